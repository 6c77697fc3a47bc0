"""Every interleaving of the real writers and readers of shared memory, within the bounds that each case states, on x86
and on a weaker memory; and what is broken on purpose is found.

Never a torn frame taken for whole, never a version that goes back, the newest whole one always there, never tensors
of another generation than the header's, nothing given back that is said to be kept, wherever a process dies. The
invariants stand in `splatview_ipc.shm.slot_writer` and `splatview_ipc.transports.zero_copy_writer`.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.explorer import WEAK
from support.slot_cases import Case, InPlace, explore

SLOTS, READER = "splatview_ipc.shm.slot_writer", "splatview_ipc.shm.slot_reader"
PLACE, PLACE_READER = "splatview_ipc.transports.zero_copy_writer", "splatview_ipc.transports.zero_copy_reader"

HOLDS = {
    "the writer may die": Case(publishes=3, dies="writer", cells=1),
    "a reader may die": Case(publishes=2, reads=(1, 1), dies="reader", cells=1, attempts=1),
    "two reads": Case(reads=(2,), dies="writer"),
    "four slots": Case(publishes=4, filled=4, slots=4, cells=1, attempts=1),
    "nothing is there at first": Case(filled=0, reads=(2,), dies="writer"),
    "versions are counted": Case(told=True, reads=(2,), cells=1),
    "a GPU copies, the writer may die": Case(gpu=True, dies="writer", cells=1),
    "a GPU copies four versions": Case(gpu=True, publishes=4, cells=1, attempts=1),
    "weak memory": Case(attempts=1, cells=1, memory=WEAK),
    "weak memory, a GPU copies": Case(publishes=1, attempts=1, cells=1, memory=WEAK, gpu=True),
}
HOLDS_IN_PLACE = {
    "one generation, going round": InPlace(publishes=4, moves=0, attempts=1),
    "the writer may die": InPlace(publishes=3, moves=2, attempts=1, dies=True),
    "a generation is given back": InPlace(publishes=3, moves=2, forgets=True, attempts=1),
    "weak memory": InPlace(publishes=2, moves=2, attempts=1, memory=WEAK),
    "weak memory, a generation is given back": InPlace(publishes=2, moves=1, forgets=True, attempts=1, memory=WEAK),
}


@pytest.mark.parametrize("case", HOLDS.values(), ids=HOLDS)
def test_every_interleaving_of_slots_holds(case: Case) -> None:
    found = explore(case)
    assert not found.wrong, found
    assert found.states > 1000 and found.ends, "nothing was explored"


@pytest.mark.parametrize("case", HOLDS_IN_PLACE.values(), ids=HOLDS_IN_PLACE)
def test_every_interleaving_in_place_holds(case: InPlace) -> None:
    found = explore(case)
    assert not found.wrong, found
    assert found.states > 500 and found.ends, "nothing was explored"


def broken(module: str, old: str, new: str, wrong: str, **case: Any) -> tuple[Case, str]:
    return Case(changes=((module, old, new),), **case), wrong


def broken_in_place(module: str, old: str, new: str, wrong: str, **case: Any) -> tuple[InPlace, str]:
    return InPlace(changes=((module, old, new),), **case), wrong


BROKEN: dict[str, tuple[Case | InPlace, str]] = {
    "the number before what it counts": broken(
        SLOTS, "        words[base + VERSION] = version\n        words[base + TIME] = time.time_ns()\n"
               "        full_fence()\n        words[base + SEQ] = whole\n",
        "        words[base + SEQ] = whole\n        full_fence()\n        words[base + VERSION] = version\n"
        "        words[base + TIME] = time.time_ns()\n", "torn", publishes=3),
    "no fence behind the data": broken(
        SLOTS, "        words[base + TIME] = time.time_ns()\n        full_fence()\n",
        "        words[base + TIME] = time.time_ns()\n", "torn", memory=WEAK, cells=1, attempts=1),
    "the newest is overwritten": broken(
        SLOTS, "            slot = (self._last + i) % self.slots\n", "            slot = self._last % self.slots\n",
        "nothing can be read", dies="writer"),
    "any version is the newest": broken(
        READER, "found, best = (slot, seq), words[base + VERSION]", "found, best = (slot, seq), after",
        "is read in the end"),
    "no look whether the GPU is done": broken(
        READER, "if seq % 2 == 0 and words[base + DONE] == seq and", "if seq % 2 == 0 and", "torn", gpu=True),
    "any generation will do": broken_in_place(
        PLACE_READER, "header.generation != generation.number", "False", "of generation", publishes=2, moves=1),
    "given back before it is said": broken_in_place(
        PLACE, "        self._words[OLDEST_KEPT] = first.number + 1\n",
        "        first.undo[0]()\n        self._words[OLDEST_KEPT] = first.number + 1\n",
        "what was given back", publishes=2, moves=1, forgets=True),
}
"""Counter-proofs: a text of the code, what is put in its place, and what the explorer says of that."""


@pytest.mark.parametrize("name", BROKEN)
def test_slots_broken_on_purpose_are_found(name: str) -> None:
    case, wrong = BROKEN[name]
    found = explore(case)
    assert wrong in found.wrong and found.trace, found
