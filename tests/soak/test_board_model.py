"""The board: whoever sees a version there finds it, or a newer one, among the slots. Every interleaving of the real
writer, tally, board and reader, within the bounds of each case (`slot_cases.Case`).

The numbers are those of the invariants in `ipc/board.py`.
"""

from __future__ import annotations

import pytest
from support.explorer import TSO, WEAK, Explorer, Port, Process
from support.modelled import Source, code, initial, lease_address, run
from support.slot_cases import Case, explore


def test_a_look_that_is_overtaken_may_find_an_older_one() -> None:
    """What invariant 2 says of a writer that goes round all slots while a reader looks at them once."""
    found = explore(Case(told=True, again=True, cells=1, stuck=1))
    assert "the board told of version" in found.wrong, found


def test_where_stores_are_reordered_the_count_may_come_first() -> None:
    """What invariant 2 says of ARM: a viewer that has read nothing new looks again at its next poll."""
    found = explore(Case(told=True, cells=1, attempts=1, memory=WEAK))
    assert "the board told of version" in found.wrong, found


@pytest.mark.parametrize("memory", [TSO, WEAK])
def test_leases_of_one_viewer_are_cleared_and_those_of_others_stay(memory: str) -> None:
    """The trainer forgets a viewer (`clear_leases`) while another leases: no store of the one touches the other's."""
    modules = code(weak=memory == WEAK)
    ours, theirs = lease_address(0), lease_address(1)

    def trainer(port: Port) -> None:
        run(port)
        board = modules.board.Board()
        port.begin()
        board.clear_leases(0)

    def viewer(port: Port) -> None:
        run(port)
        board = modules.board.Board()
        reader = modules.board.BoardReader(board.segment.ref, board.lease_segment.ref, Source(), 1)
        port.begin()
        for slot in (2, 0, -1, 1):
            reader.lease(0, slot)

    def audit(end: dict[tuple[object, ...], object]) -> None:
        assert (end[ours], end[theirs]) == (0, 2)

    start = initial(trainer, ours, theirs) | {ours: 3}
    found = Explorer([Process("trainer", trainer), Process("viewer", viewer)], start, memory, audit).explore()
    assert not found.wrong and found.ends == 1, found
