"""When the viewer collects garbage: never between two pictures, soon in a rest."""

from __future__ import annotations

import gc
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from support.viewer import SIZE

from splatview.viewer_app import garbage
from splatview.viewer_app.app import App, AppOptions
from splatview.viewer_app.events import PointerMove
from splatview.viewer_app.garbage import Garbage
from splatview.viewer_app.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from collections.abc import Iterator


class Knot:
    """What only the collector can take away."""

    def __init__(self) -> None:
        self.me = self


def knot() -> weakref.ref[Knot]:
    return weakref.ref(Knot())


@pytest.fixture
def passes() -> Iterator[list[int]]:
    """The generation of each collection."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


@pytest.fixture
def real_unfreeze(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the interpreter's `gc.unfreeze` for a test, and freeze all objects again after it."""
    monkeypatch.setattr(gc, "unfreeze", unfreeze)
    yield
    gc.freeze()


@pytest.fixture
def kept() -> Iterator[Garbage]:
    g = Garbage()
    with g.held_back(100.0):
        yield g


@pytest.mark.exhaustive
@pytest.mark.usefixtures("real_unfreeze")
def test_nothing_is_collected_by_itself_and_afterwards_all_is_as_before(passes: list[int]) -> None:
    assert gc.isenabled()
    frozen, gone = gc.get_freeze_count(), knot()
    with pytest.raises(KeyboardInterrupt), Garbage().held_back(0.0):
        assert gc.get_freeze_count() > 10_000  # nothing that lives here already is looked at again
        passes.clear()
        gone = knot()
        more = [[i] for i in range(200_000)]
        assert gone() is not None
        assert len(more) == 200_000
        assert passes == []
        raise KeyboardInterrupt
    assert gc.isenabled()
    assert gc.get_freeze_count() <= frozen
    gc.collect()
    assert gone() is None


def test_a_rest_is_when_it_is_done(kept: Garbage, passes: list[int]) -> None:
    gone = knot()
    passes.clear()
    now = 100.0
    while now < 108.0:
        now += 0.01
        kept.turn(now, True)
    assert gone() is not None
    assert passes == []
    while now < 108.4:
        now += 0.01
        kept.turn(now, False)
    assert gone() is not None
    while now < 109.0:
        now += 0.01
        kept.turn(now, False)
    assert gone() is None
    done = len(passes)
    assert done == 1
    gone = knot()
    while now < 113.0:  # not again at once
        now += 0.01
        kept.turn(now, False)
    assert len(passes) == done
    while now < 115.0:
        now += 0.01
        kept.turn(now, False)
    assert len(passes) == done + 1
    assert gone() is None


def test_who_never_rests_has_the_youngest_collected(kept: Garbage, passes: list[int]) -> None:
    gone, now = knot(), 100.0
    passes.clear()
    while now < 100.0 + 1.5 * garbage.LATEST:
        now += 0.01
        kept.turn(now, True)
    assert passes == [0]
    assert gone() is None
    while now < 100.0 + 61.5 * garbage.LATEST:
        now += 0.1
        kept.turn(now, True)
    assert len(passes) <= 62
    assert set(passes) == {0, 1, 2}
    assert (passes.count(1), passes.count(2)) == (9, 1)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("real_unfreeze")
def test_a_large_import_is_frozen_once_it_is_done(kept: Garbage, passes: list[int]) -> None:
    now, modules, frozen = 100.0, [], gc.get_freeze_count()
    passes.clear()
    for _ in range(8):  # it still goes on
        modules.append([[i] for i in range(10_000)])
        now += 0.3
        kept.turn(now, True)
    assert passes == []
    kept.turn(now + 0.3, True)
    assert passes == [2]
    assert gc.get_freeze_count() > frozen + 70_000
    kept.turn(now + 0.6, True)
    assert passes == [2]


def test_the_viewer_draws_without_it(monkeypatch: pytest.MonkeyPatch, passes: list[int]) -> None:
    monkeypatch.setattr(garbage, "PERIOD", 0.3)
    app = App(OffscreenScreen(*SIZE), AppOptions(max_fps=500))
    turns: list[bool] = []
    gone: list[weakref.ref[Knot]] = []
    begin = time.monotonic()
    turn = app.turn

    def watched() -> bool:
        turns.append(gc.isenabled())
        now = time.monotonic()
        if not gone:
            gone.append(knot())
            passes.clear()
        if now < begin + 1.0:
            app.screen.push(PointerMove(90, 40 + len(turns) % 7))  # type: ignore[attr-defined]
            assert passes == []
            assert gone[0]() is not None
        elif gone[0]() is None or now > begin + 20:
            app.stop()
        return turn()

    monkeypatch.setattr(app, "turn", watched)
    app.serve()
    assert gone[0]() is None
    assert not any(turns)
    assert gc.isenabled()
