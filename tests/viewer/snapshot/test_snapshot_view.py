"""The view of memory snapshots: what it paints, what hands do, and that nothing is painted in vain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.memory_data import small_snapshot
from support.view_cases import shown
from support.wait import clock

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import Key, Mods, PointerLeave, PointerMove, PointerPress, PointerRelease, Wheel
from splatview_viewer.core.settings import SnapshotSettings
from splatview_viewer.geometry.controls import Rect
from splatview_viewer.kinds.snapshot import world
from splatview_viewer.kinds.snapshot.painting import Painting, paint
from splatview_viewer.kinds.snapshot.timeline.bands import Addresses, Bands
from splatview_viewer.kinds.snapshot.view import SnapshotView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.kinds.snapshot.world import Window
    from splatview_viewer.screens.offscreen import OffscreenScreen

pytestmark = pytest.mark.usefixtures("timeline_kernels")

RECT = Rect(0, 0, 180, 120)


@pytest.fixture
def view(screen: OffscreenScreen) -> Iterator[SnapshotView]:
    screen.resize(RECT.width, RECT.height, 1.0)
    v = SnapshotView(screen.ctx)
    v.update(small_snapshot(0))
    shown(v, screen)
    yield v
    v.close()


def window(view: SnapshotView) -> Window:
    content = view.shared.content
    assert content is not None
    found = world.window_of(content, view.look, RECT)
    assert found is not None
    return found


def painting(view: SnapshotView, before: Painting | None = None) -> Painting:
    """What the view shows, painted from the beginning or from what was."""
    content = view.shared.content
    assert content is not None
    found = world.material_of(content, view.look, 1)
    assert found is not None
    return paint(world.sheet_of(found[0], found[1], window(view)), found[2], before)


def test_each_pixel_is_the_allocation_that_is_there(view: SnapshotView) -> None:
    made, w = painting(view), window(view)
    bands = Bands(small_snapshot(0).traces[0])
    for x in range(0, RECT.width, 7):
        for y in range(0, RECT.height, 5):
            byte = w.y_at(y + 0.5)
            assert made.canvas.ids[x, y] == bands.pick(int(made.moments[x]), byte)


def test_the_picture_is_what_was_painted(view: SnapshotView, screen: OffscreenScreen) -> None:
    made = painting(view)
    rows = made.rows.view(np.uint8).reshape(RECT.height, RECT.width, 4)[::-1, :, :3]
    np.testing.assert_array_equal(shown(view, screen), rows)
    np.testing.assert_array_equal(rows, made.canvas.rgba.transpose(1, 0, 2)[..., :3])


@pytest.mark.parametrize("lanes", [False, True])
def test_columns_that_are_taken_over_are_as_if_painted_anew(screen: OffscreenScreen, lanes: bool) -> None:
    screen.resize(RECT.width, RECT.height, 1.0)
    view = SnapshotView(screen.ctx, SnapshotSettings(lanes=lanes))
    view.update(small_snapshot(2, 4000, pools=2))
    shown(view, screen)
    view.handle(Wheel(90, 60, 6), RECT)
    before = painting(view)
    assert before.painted == RECT.width
    view.handle(PointerPress(90, 60), RECT)
    for x in (70, 75, 140):
        view.handle(PointerMove(x, 60), RECT)
        made, anew = painting(view, before), painting(view)
        assert made.painted < anew.painted == RECT.width
        np.testing.assert_array_equal(made.rows, anew.rows)
        np.testing.assert_array_equal(made.canvas.ids, anew.canvas.ids)
        before = made
    view.close()


def test_lanes_lie_one_above_the_other(screen: OffscreenScreen) -> None:
    screen.resize(RECT.width, RECT.height, 1.0)
    view = SnapshotView(screen.ctx, SnapshotSettings(lanes=True))
    snapshot = small_snapshot(3, 600, pools=3)
    view.update(snapshot)
    shown(view, screen)
    content, pools = view.shared.content, snapshot.traces[0].allocations.pool
    assert content is not None
    lanes = world.lanes_at(content, 0)
    assert lanes is not None
    assert [lane.name for lane in lanes] == ["default pool", "private pool (0, 1)", "private pool (0, 2)"]
    made, w = painting(view), window(view)
    for y in range(RECT.height):
        at = w.y_at(y + 0.5)
        here = made.canvas.ids[:, y]
        lane = next((k for k, lane in enumerate(lanes) if lane.base <= at < lane.base + lane.height), None)
        assert set(pools[here[here >= 0]].tolist()) <= ({lane} if lane is not None else set())
    assert (made.rows >> 24 == 255).all()
    view.close()


def test_addresses_have_their_place(view: SnapshotView, screen: OffscreenScreen) -> None:
    view.look.tab = "addresses"
    shown(view, screen)
    made, w = painting(view), window(view)
    addresses = Addresses(small_snapshot(0).traces[0])
    for x in range(0, RECT.width, 11):
        for y in range(0, RECT.height, 7):
            assert made.canvas.ids[x, y] == addresses.pick(int(made.moments[x]), int(w.y_at(y + 0.5)))


def test_what_is_selected_is_lifted_and_nothing_else(view: SnapshotView, screen: OffscreenScreen) -> None:
    before, made = shown(view, screen), painting(view)
    there, counts = np.unique(made.canvas.ids[made.canvas.ids >= 0], return_counts=True)
    chosen = int(there[counts.argmax()])
    for name in ("selected", "hovered"):
        setattr(view.look, name, chosen)
        after = shown(view, screen)
        changed = (after != before).any(axis=-1)
        np.testing.assert_array_equal(changed, made.canvas.ids.T == chosen)
        setattr(view.look, name, None)
    np.testing.assert_array_equal(shown(view, screen), before)


def test_nothing_is_painted_while_nothing_changes(view: SnapshotView, screen: OffscreenScreen,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    shown(view, screen)
    made: list[Painting] = []
    monkeypatch.setattr("splatview_viewer.kinds.snapshot.plot.paint", lambda *a: made.append(paint(*a)) or made[-1])
    for k in range(5):
        assert not view.tick(clock())
        view.handle(PointerMove(20 + 20 * k, 100), RECT)
        shown(view, screen)
    assert not made
    view.handle(Wheel(90, 60, 1), RECT)
    shown(view, screen)
    assert len(made) == 1


def test_a_snapshot_without_anything_is_refused(view: SnapshotView) -> None:
    before = view.details
    with pytest.raises(ViewerError, match="no events and no segments"):
        view.update(replace(small_snapshot(0), traces=()))
    assert view.details == before != []


def test_the_wheel_keeps_what_is_under_the_pointer(view: SnapshotView) -> None:
    for dy in (1, 2, 3, -1, 4):
        before = window(view)
        at = before.x_at(100), before.y_at(70)
        assert view.handle(Wheel(100, 70, dy), RECT)
        after = window(view)
        assert (after.x_at(100), after.y_at(70)) == pytest.approx(at, rel=1e-6)
        assert after.step == pytest.approx(before.step / 1.2**dy)
    shift: Mods = frozenset({"shift"})
    ctrl: Mods = frozenset({"ctrl"})
    for mods, x, y in ((shift, True, False), (ctrl, False, True)):
        before = window(view)
        view.handle(Wheel(100, 70, 1, mods=mods), RECT)
        assert (window(view).step != before.step, window(view).per_pixel != before.per_pixel) == (x, y)


def test_a_drag_takes_the_picture_along_and_is_no_click(view: SnapshotView) -> None:
    view.handle(Wheel(100, 70, 4), RECT)
    before = window(view)
    at = before.x_at(100), before.y_at(70)
    view.handle(PointerPress(100, 70), RECT)
    for x, y in ((102, 71), (90, 60), (80, 66)):
        view.handle(PointerMove(x, y), RECT)
    assert view.moving
    view.handle(PointerRelease(80, 66), RECT)
    assert not view.moving
    assert (window(view).x_at(80), window(view).y_at(66)) == pytest.approx(at, rel=1e-3)
    assert view.look.selected is None


def test_a_click_selects_what_lies_there(view: SnapshotView, screen: OffscreenScreen) -> None:
    made = painting(view)
    for x, y in ((20, 110), (100, 100), (170, 115), (100, 2)):
        view.handle(PointerMove(x + 0.5, y + 0.5), RECT)
        view.handle(PointerPress(x + 0.5, y + 0.5), RECT)
        view.handle(PointerRelease(x + 0.5, y + 0.5), RECT)
        found = int(made.canvas.ids[x, y])
        assert view.look.selected == (found if found >= 0 else None)
        assert view.look.moment == made.moments[x]
        assert view.readout.startswith(f"{made.moments[x]:,} ")
    view.handle(PointerLeave(), RECT)
    assert view.look.hovered is view.look.pointed is None
    assert view.readout == ""


def test_keys(view: SnapshotView) -> None:
    def press(name: str) -> None:
        assert view.handle(Key(name), RECT)

    press("e")
    first = window(view)
    press("d")
    assert window(view).x0 > first.x0
    press("a")
    assert window(view).x0 == pytest.approx(first.x0)
    press("w")
    assert window(view).y0 > first.y0
    press("q")
    press("f")
    assert view.look.x is view.look.y is None
    press("slash")
    assert view.look.wants_focus == "search"
    for moment, marks in ((70, (70, None)), (20, (20, 70)), (30, (30, None))):
        view.look.go(moment)
        press("m")
        assert (view.look.moment_a, view.look.moment_b) == marks
    press("2")
    assert view.look.tab == "addresses"
    assert not view.handle(Key("x"), RECT)
    assert not view.handle(Key("f", mods=frozenset({"ctrl"})), RECT)
    assert not view.handle(Key("e", pressed=False), RECT)
