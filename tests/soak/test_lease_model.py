"""Leases: what a reader holds is not overwritten while there are other slots, nor said to be; two readers, one that is
killed, and one that says what it likes, cost no more than a slot or a retry. Every interleaving, with the real code
(`slot_cases.Case` says within which bounds).

The numbers are those of the invariants in `ipc/ways/slots.py`.
"""

from __future__ import annotations

import pytest
from support.explorer import WEAK
from support.slot_cases import Case, explore

SLOTS, READER = "splatview_ipc.shm.slot_writer", "splatview_ipc.shm.slot_reader"
DEVICE = "splatview_ipc.transports.device_ring"

HELD = {  # the writer grows: rather than overwrite what is held it has more slots made, and `intact` never says no
    "one reader, and a slot that stays leased": Case(grows=True, stuck=2),
    "two frames are held": Case(publishes=2, reads=(2,), keeps=2, slots=4, filled=4, grows=True, cells=1, stuck=2),
    "another reader leases the same": Case(forged=(3, 0), grows=True, cells=1, attempts=1),
    "a GPU copies": Case(grows=True, stuck=2, gpu=True),
    "weak memory": Case(grows=True, attempts=1, cells=1, memory=WEAK, stuck=2),
    "weak memory, a GPU copies": Case(publishes=1, grows=True, attempts=1, cells=1, memory=WEAK, gpu=True, again=True),
}
TWO = {"slots": 2, "filled": 2, "grows": True, "bounded": True, "cells": 1}
HELD |= {  # large frames: the newest slot is written into, or the version is skipped, so that what is held stays
    "two slots, one reader": Case(**{**TWO, "cells": 2}, publishes=3, reads=(2,)),
    "two slots, two readers": Case(**TWO, publishes=2, reads=(1, 1), attempts=1),
    "two slots, two frames are held": Case(**TWO, publishes=2, reads=(2,), keeps=2),
    "two slots, the writer may die": Case(**TWO, publishes=3, reads=(1,), stuck=1, dies="writer"),
    "two slots, one is empty and leased": Case(**{**TWO, "filled": 1}, publishes=2, stuck=2, dies="writer"),
    "two slots, weak memory": Case(**TWO, attempts=1, memory=WEAK, stuck=1),
    "two slots, the ring is replaced": Case(**TWO, publishes=1, reads=(2,), retires=True),
}
LEFT = {  # the writer does not grow: slots that are leased are overwritten in the end, and readers see it
    "a reader is killed": Case(publishes=1, reads=(1, 1), attempts=1, dies="reader", cells=1),
    "a reader is killed, its slot is overwritten": Case(publishes=2, reads=(1,), dies="reader", stuck=1),
    "a GPU copies, a reader is killed": Case(gpu=True, again=True, reads=(1,), dies="reader", cells=1),
    "another reader moves about": Case(forged=(1, 2), cells=1, attempts=1),
}


@pytest.mark.parametrize("case", HELD.values(), ids=HELD)
def test_what_is_held_stays(case: Case) -> None:
    found = explore(case)
    assert not found.wrong, found
    assert found.states > 1000 and found.ends, "nothing was explored"


def test_a_lease_that_is_left_behind_or_forged_costs_a_slot_at_most() -> None:
    for name, case in LEFT.items():
        found = explore(case)
        assert not found.wrong, f"{name}: {found}"
        assert found.states > 1000 and found.ends, "nothing was explored"


def broken(module: str, old: str, new: str, *more: tuple[str, str, str], **case: object) -> Case:
    given = {"stuck": 2, "grows": True, **case}
    return Case(changes=((module, old, new), *more), **given)  # type: ignore[arg-type]


BROKEN = {
    "no fence behind the claim": broken(
        SLOTS, "        full_fence()  # the claim must be seen before we trust the leases\n", ""),
    "no look at the leases": broken(SLOTS, "        if slot + 1 not in self.leased():\n            return True",
                                    "        if True:\n            return True"),
    "no claim, a way in and out": broken(  # as it once was: `intact` says no for a moment
        SLOTS, "        words[index] = number | CLAIMED\n", "        words[index] = number + 1\n",
        (SLOTS, "number = (self._words[index] & ~CLAIMED) + 1\n", "number = self._words[index] | 1\n")),
    "no fence behind the lease": broken(
        READER, "            full_fence()  # the lease must be seen before we trust the slot\n", ""),
    "no second look at the number": broken(
        READER, "if self._words[FIRST_SLOT + slot * WORDS_PER_SLOT + SEQ] == seq:", "if True:"),
    "a claim is overlooked": broken(
        READER, "if self._words[FIRST_SLOT + slot * WORDS_PER_SLOT + SEQ] == seq:", "if self.unchanged(lease):"),
    "no look at the leases, as prepared": broken(
        DEVICE, "entered = slot + 1 not in self.leased()", "entered = True", gpu=True, again=True,
        publishes=3, stuck=0, cells=1, attempts=1),
    "what is held of two slots is written into": broken(
        SLOTS, "        if self.grows and self.most < limits.MAX_SLOTS:  # invariant 10\n", "        if False:\n",
        **TWO, reads=(2,), publishes=2, stuck=0),
    "a ring that is replaced forgets what is held": broken(
        SLOTS, "                if self._claim(slot):\n", "                if True:\n", **TWO, publishes=1, stuck=0,
        retires=True),
    "no fence behind the claim, as prepared": broken(
        DEVICE, "            words[base + SEQ] = before | CLAIMED\n            full_fence()\n",
        "            words[base + SEQ] = before | CLAIMED\n", gpu=True, again=True, publishes=3, stuck=0, cells=1,
        attempts=1),
}


def test_what_is_broken_on_purpose_is_found() -> None:
    for name, case in BROKEN.items():
        found = explore(case)
        assert "was overwritten while it was held" in found.wrong and found.trace, f"{name}: {found}"
