"""The board: whoever sees a version there finds it, or a newer one, among the slots. Every interleaving of the real
writer, tally, board and reader, within the bounds of each case (`slot_cases.Case`).

The numbers are those of the invariants in `ipc/board.py`.
"""

from __future__ import annotations

from support.explorer import WEAK
from support.slot_cases import Case, explore


def test_a_look_that_is_overtaken_may_find_an_older_one() -> None:
    """What invariant 2 says of a writer that goes round all slots while a reader looks at them once."""
    found = explore(Case(told=True, again=True, cells=1, stuck=1))
    assert "the board told of version" in found.wrong, found


def test_where_stores_are_reordered_the_count_may_come_first() -> None:
    """What invariant 2 says of ARM: a viewer that has read nothing new looks again at its next poll."""
    found = explore(Case(told=True, cells=1, attempts=1, memory=WEAK))
    assert "the board told of version" in found.wrong, found
