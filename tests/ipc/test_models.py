"""The protocols of the shared memory, of which every interleaving is explored with the real code, in small cases. All
cases, and variants that are broken on purpose, are in tests/soak."""

from __future__ import annotations

import pytest
from support.explorer import WEAK
from support.slot_cases import Case, InPlace, explore

CASES = {
    "nothing is there at first": Case(filled=0, reads=(2,), dies="writer"),
    "the slots are gone round": Case(publishes=3, dies="writer", cells=1),
    "a reader is killed": Case(publishes=2, dies="reader"),
    "a GPU copies": Case(gpu=True, cells=1),
    "versions are counted": Case(told=True, cells=1),
}
IN_PLACE = {
    "a generation is given back": InPlace(publishes=3, moves=2, forgets=True, attempts=1),
    "weak memory, one version": InPlace(publishes=1, moves=1, forgets=True, attempts=1, memory=WEAK),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_interleaving_of_slots_holds(case: Case) -> None:
    found = explore(case)
    assert not found.wrong, found
    assert found.states > 1000 and found.ends, "nothing was explored"


@pytest.mark.parametrize("case", IN_PLACE.values(), ids=IN_PLACE)
def test_every_interleaving_in_place_holds(case: InPlace) -> None:
    found = explore(case)
    assert not found.wrong, found
    assert found.states > 500 and found.ends, "nothing was explored"
