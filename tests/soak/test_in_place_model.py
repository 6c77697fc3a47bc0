"""What is shared in place: a version's header is never torn, never of another generation than its tensors, and what was
given back is never said to have been kept. Every interleaving of the real writer's marking and forgetting with the real
reader, on two memories, within the bounds of each case.

The numbers are those of the invariants in `ipc/ways/in_place.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.explorer import WEAK
from support.in_place_cases import Case, explore

PLACE = "splatview_ipc.transports.zero_copy_writer"
READER = "splatview_ipc.transports.zero_copy_reader"
HOLDS = {
    "one generation, going round": Case(publishes=4, moves=0, attempts=1),
    "the writer may die": Case(publishes=3, moves=2, attempts=1, dies=True),
    "a generation is given back": Case(publishes=3, moves=2, forgets=True, attempts=1),
    "weak memory, one version": Case(publishes=1, moves=1, forgets=True, attempts=1, memory=WEAK),
    "weak memory": Case(publishes=2, moves=2, attempts=1, memory=WEAK),
    "weak memory, a generation is given back": Case(publishes=2, moves=1, forgets=True, attempts=1, memory=WEAK),
}


@pytest.mark.parametrize("case", HOLDS.values(), ids=HOLDS)
def test_every_interleaving_holds(case: Case) -> None:
    found = explore(case)
    assert not found.wrong, found
    assert found.states > 500 and found.ends, "nothing was explored"


def broken(module: str, old: str, new: str, wrong: str, **case: Any) -> tuple[Case, str]:
    return Case(changes=((module, old, new),), **case), wrong


_GONE = "what was given back"
BROKEN = {
    "never an odd number": broken(PLACE, "        words[base + SEQ] = whole - 1\n", "", "torn", publishes=4, moves=0),
    "the number before what it counts": broken(
        PLACE, "        words[base + VERSION] = version\n        words[base + TIME] = time_ns()\n"
               "        store_fence()\n"
               "        words[base + SEQ] = whole\n",
        "        words[base + SEQ] = whole\n        words[base + VERSION] = version\n"
        "        words[base + TIME] = time_ns()\n", "torn", publishes=4, moves=0),
    "no fence behind the odd number": broken(
        PLACE, "        words[base + SEQ] = whole - 1\n        store_fence()\n",
        "        words[base + SEQ] = whole - 1\n", "torn", publishes=3, moves=0, attempts=1, memory=WEAK),
    "no fence behind the first look": broken(
        READER, "            load_fence()  #", "            #", "torn", publishes=3, moves=0, attempts=1, memory=WEAK),
    "no second look": broken(
        READER, "            if not self.unchanged(Lease(slot, seq)):\n                continue\n", "", "torn",
        publishes=4, moves=0),
    "any generation will do": broken(
        READER, "header.generation != current.number", "False", "of generation", publishes=2, moves=1),
    "given back before it is said": broken(
        PLACE, "                try:\n                    self._words[OLDEST_KEPT] = first.number + 1\n",
        "                first.drop()\n                try:\n"
        "                    self._words[OLDEST_KEPT] = first.number + 1\n",
        _GONE, publishes=2, moves=1, forgets=True),
    "no fence before it is given back": broken(
        PLACE, "                full_fence()\n                self._generations.popleft()\n",
        "                self._generations.popleft()\n", _GONE, publishes=1, moves=1, forgets=True, attempts=1,
        memory=WEAK),
    "no fence before it is asked": broken(
        READER, "            full_fence()\n            try:\n                ok = self._words[OLDEST_KEPT]",
        "            try:\n                ok = self._words[OLDEST_KEPT]", _GONE, publishes=1, moves=1, forgets=True,
        attempts=1, memory=WEAK),
}


def test_what_is_broken_on_purpose_is_found() -> None:
    for name, (case, wrong) in BROKEN.items():
        found = explore(case)
        assert wrong in found.wrong and found.trace, f"{name}: {found}"
