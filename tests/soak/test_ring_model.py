"""Slots: never a torn frame taken for whole, never a version that goes back, the newest whole one always there, whoever
dies wherever. Every interleaving of the real writer and reader, within the bounds that each case states
(`slot_cases.Case`), on x86 and on a weaker memory; and what is broken on purpose is found.

The numbers are those of the invariants in `ipc/ways/slots.py`.
"""

from __future__ import annotations

import pytest
from support.explorer import WEAK
from support.slot_cases import Case, explore

SLOTS, READER = "splatview_ipc.shm.slot_writer", "splatview_ipc.shm.slot_reader"
DEVICE = "splatview_ipc.transports.device_ring"

HOLDS = {
    "the writer may die": Case(publishes=3, dies="writer", cells=1),
    "as prepared": Case(reads=(2,), again=True, dies="writer"),
    "the reader's slot is overwritten": Case(reads=(2,), stuck=1),
    "four slots": Case(publishes=4, reads=(1,), filled=4, slots=4, cells=1, attempts=1),
    "nothing is there at first": Case(filled=0, reads=(2,), dies="writer"),
    "a GPU copies, the writer may die": Case(gpu=True, dies="writer", cells=1),
    "a GPU copies, as prepared": Case(gpu=True, again=True, dies="writer"),
    "a GPU copies, the reader's slot is overwritten": Case(gpu=True, again=True, stuck=1, cells=1),
    "weak memory": Case(attempts=1, cells=1, memory=WEAK),
    "weak memory, the reader's slot is overwritten": Case(attempts=1, cells=1, memory=WEAK, stuck=1),
    "weak memory, as prepared": Case(publishes=1, attempts=1, cells=1, memory=WEAK, again=True),
    "weak memory, a GPU copies": Case(publishes=1, attempts=1, cells=1, memory=WEAK, gpu=True, again=True, stuck=1),
}


@pytest.mark.parametrize("case", HOLDS.values(), ids=HOLDS)
def test_every_interleaving_holds(case: Case) -> None:
    found = explore(case)
    assert not found.wrong, found
    assert found.states > 1000 and found.ends, "nothing was explored"


def broken(module: str, old: str, new: str, wrong: str, **case: object) -> tuple[Case, str]:
    return Case(changes=((module, old, new),), **case), wrong  # type: ignore[arg-type]


BROKEN = {
    "the number before what it counts": broken(
        SLOTS, "        words[base + VERSION] = version\n        words[base + TIME] = time.time_ns()\n"
               "        full_fence()\n        words[base + SEQ] = whole\n",
        "        words[base + SEQ] = whole\n        full_fence()\n        words[base + VERSION] = version\n"
        "        words[base + TIME] = time.time_ns()\n", "torn"),
    "never an odd number": broken(
        SLOTS, "        self._words[index] = number\n        full_fence()  #",
        "        self._words[index] = number - 1\n        full_fence()  #", "torn"),
    "the same number again": broken(
        SLOTS, "        words[base + SEQ] = whole\n        if version:",
        "        words[base + SEQ] = words[base + DONE] = whole - 2\n        if version:", "torn", stuck=1),
    "no fence behind the data": broken(
        SLOTS, "        words[base + TIME] = time.time_ns()\n        full_fence()\n",
        "        words[base + TIME] = time.time_ns()\n", "torn", memory=WEAK, cells=1, attempts=1),
    "no fence before the second look": broken(
        READER, '        lease, and leaves it alone."""\n        full_fence()\n',
        '        lease, and leaves it alone."""\n', "torn", memory=WEAK, cells=1, attempts=1, stuck=1),
    "the newest is overwritten": broken(
        SLOTS, "        free = [slot for slot in free if slot != newest]\n", "", "is read in the end",
        dies="writer", stuck=1),
    "any version is the newest": broken(
        READER, "found, best = (slot, seq), words[base + VERSION]", "found, best = (slot, seq), after",
        "is read in the end"),
    "no look whether it is done": broken(
        READER, "if seq % 2 == 0 and words[base + DONE] == seq and", "if seq % 2 == 0 and", "torn",
        gpu=True, again=True),
    "no look whether the GPU is at it": broken(
        SLOTS, "        return slot >= 0 and self._words[base + DONE] == self._words[base + SEQ]",
        "        return slot >= 0", "is read in the end", gpu=True, dies="writer", stuck=1, cells=1),
    "no look whether the GPU is at it, as prepared": broken(
        DEVICE, "words[base + DONE] == before and words[newest + DONE] == words[newest + SEQ]", "True",
        "nothing can be read", gpu=True, again=True, dies="writer", publishes=3, cells=1, attempts=1),
}


def test_what_is_broken_on_purpose_is_found() -> None:
    for name, (case, wrong) in BROKEN.items():
        found = explore(case)
        assert wrong in found.wrong and found.trace, f"{name}: {found}"


def test_the_copies_are_of_the_real_code() -> None:
    from support.modelled import code

    import splatview_ipc.shm.slot_writer

    assert code().slots.__file__ == splatview_ipc.shm.slot_writer.__file__
    with pytest.raises(AssertionError, match="stands 0 times"):
        code((("splatview_ipc.shm.slot_writer", "no such text", ""),))
