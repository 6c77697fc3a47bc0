"""When the viewer collects garbage: never between two pictures, soon in a rest."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from splatview.viewer_app import garbage
from splatview.viewer_app.garbage import Garbage

if TYPE_CHECKING:
    from collections.abc import Iterator


class Knot:
    """Goes only with a collection."""

    def __init__(self) -> None:
        self.me = self


def knot() -> weakref.ref[Knot]:
    return weakref.ref(Knot())


@pytest.fixture
def kept() -> Iterator[Garbage]:
    g = Garbage()
    with g.held_back(100.0):
        yield g


def turns(kept: Garbage, begin: int, end: int, drew: bool) -> None:
    """Ten turns a second."""
    for tenth in range(10 * begin, 10 * end):
        kept.turn(tenth / 10, drew)


def test_a_rest_is_when_it_is_done(kept: Garbage) -> None:
    gone = knot()
    turns(kept, 100, 108, drew=True)
    assert gone() is not None
    turns(kept, 108, 110, drew=False)
    assert gone() is None
    gone = knot()
    turns(kept, 110, 113, drew=False)
    assert gone() is not None, "not again at once"
    turns(kept, 113, 116, drew=False)
    assert gone() is None


def test_without_a_rest_the_youngest_are_collected(kept: Garbage) -> None:
    gone = knot()
    turns(kept, 100, 100 + int(garbage.LATEST) + 2, drew=True)
    assert gone() is None


def test_afterwards_python_collects_as_before() -> None:
    with pytest.raises(KeyboardInterrupt), Garbage().held_back(0.0):
        assert not gc.isenabled()
        raise KeyboardInterrupt
    assert gc.isenabled()
