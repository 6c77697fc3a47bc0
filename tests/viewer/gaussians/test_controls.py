"""The pointer, fingers and keys over pictures and scenes: panning, zooming and keys that are held; the maths alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from splatview_viewer.core.events import Key, Mods, Pinch, PointerMove, PointerPress, PointerRelease, Wheel
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.controls import FAST, FITTED, SLOW, Flying, PanZoom

RECT = Rect(100, 20, 400, 300)


# -- pictures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "zoom", "corner"), [
    ((800, 300), 0.5, (100, 95)),   # wide: bars above and below
    ((200, 600), 0.5, (250, 20)),   # tall: bars at the sides
    ((1, 1), 300.0, (150, 20)),
])
def test_fitting_keeps_the_aspect(size: tuple[int, int], zoom: float, corner: tuple[int, int]) -> None:
    x, y, z = PanZoom(size).placed(RECT)
    assert z == pytest.approx(zoom)
    assert (x, y) == pytest.approx(corner)


def test_wheel_zooms_at_the_pointer() -> None:
    p = PanZoom((640, 480))
    at = (220.0, 190.0)
    before = p.to_picture(*at, RECT)
    zoom = p.placed(RECT)[2]
    for dy in (1, 1, 1, -1, 1):
        assert p.handle(Wheel(*at, dy), RECT)
        assert p.to_picture(*at, RECT) == pytest.approx(before)
    assert p.placed(RECT)[2] == pytest.approx(zoom * 1.2**3)
    assert p.place != FITTED


def test_drag_moves_the_picture_with_the_pointer() -> None:
    p = PanZoom((640, 480))
    p.set_zoom(3.0, RECT)
    grabbed = p.to_picture(200, 100, RECT)
    for event in (PointerPress(200, 100), PointerMove(230, 90), PointerMove(245, 130), PointerRelease(245, 130)):
        p.handle(event, RECT)
    assert p.to_picture(245, 130, RECT) == pytest.approx(grabbed)
    assert not p.handle(PointerMove(300, 200), RECT)  # the button is up: nothing moves
    assert p.to_picture(245, 130, RECT) == pytest.approx(grabbed)


def test_double_click_and_f_fit() -> None:
    for event in (PointerPress(200, 100, clicks=2), Key("f")):
        p = PanZoom((640, 480))
        p.set_zoom(5.0, RECT, (120, 40))
        assert p.handle(event, RECT)
        assert p.placed(RECT) == PanZoom((640, 480)).placed(RECT)


def test_the_picture_cannot_be_lost() -> None:
    p = PanZoom((640, 480))
    p.set_zoom(2.0, RECT)
    for event in (PointerPress(200, 100), PointerMove(200_000, -90_000), PointerRelease(200_000, -90_000)):
        p.handle(event, RECT)
    x, y, zoom = p.placed(RECT)
    assert x < RECT.x + RECT.width
    assert x + 640 * zoom > RECT.x
    assert y < RECT.y + RECT.height
    assert y + 480 * zoom > RECT.y
    for _ in range(100):
        p.handle(Wheel(200, 100, -8), RECT)
    assert p.placed(RECT)[2] > 0
    for _ in range(100):
        p.handle(Wheel(200, 100, 8), RECT)
    assert math.isfinite(p.placed(RECT)[2])


@pytest.mark.parametrize("fitted", [True, False])
def test_two_fingers_hold_what_lies_under_their_middle(fitted: bool) -> None:
    p = PanZoom((640, 480))
    if not fitted:
        p.set_zoom(2.0, RECT)
    for factor, dx, dy in ((1.25, 12.0, -7.0), (0.8, 0.0, 0.0), (1.0, -5.0, 4.0)):
        x, y = 230.0, 170.0
        held, zoom = p.to_picture(x - dx, y - dy, RECT), p.placed(RECT)[2]
        assert p.handle(Pinch(x, y, factor, dx, dy), RECT)
        assert p.to_picture(x, y, RECT) == pytest.approx(held)
        assert p.placed(RECT)[2] == pytest.approx(zoom * factor)


# -- keys that are held ------------------------------------------------------------------------------------------------


def path(rate: float, events: list[tuple[float, Key]], end: float = 2.0) -> np.ndarray:
    """(5,) how far the camera has come after `end` seconds, asked `rate` times a second."""
    flying, came, events = Flying(), np.zeros(5), sorted(events, key=lambda e: e[0])
    for i in range(round(end * rate) + 1):
        now = 100.0 + i / rate
        step = flying.step(now)
        came += 0 if step is None else step
        while events and events[0][0] <= i / rate + 1e-9:
            assert flying.key(events.pop(0)[1])
            flying.step(now)
    return came


def test_the_path_does_not_depend_on_the_rate_of_pictures() -> None:
    events = [(0.0, Key("w")), (0.5, Key("d")), (0.75, Key("w", False)), (1.0, Key("c")), (1.25, Key("d", False)),
              (1.25, Key("c", False))]
    slow = path(4, events)
    assert slow[2] > 0.3 and slow[0] > 0.3 and slow[4] > 0.1
    for rate in (8, 60, 1000):
        np.testing.assert_allclose(path(rate, events), slow, rtol=2e-3, atol=2e-3)


def test_each_key_has_its_way() -> None:
    for name, axis, sign in (("w", 2, 1), ("s", 2, -1), ("a", 0, -1), ("d", 0, 1), ("q", 3, -1), ("e", 3, 1),
                             ("left", 0, -1), ("right", 0, 1), ("up", 1, -1), ("down", 1, 1), ("z", 4, -1),
                             ("c", 4, 1)):
        came = path(60, [(0.0, Key(name)), (1.0, Key(name, False))])
        assert came[axis] * sign > 0.5, name
        assert not np.delete(came, axis).any(), name


def test_shift_is_fast_and_alt_slow_from_whatever_event_it_is_heard() -> None:
    plain = path(60, [(0.0, Key("w")), (1.0, Key("w", False))])[2]
    shift: Mods = frozenset({"shift"})
    alt: Mods = frozenset({"alt"})
    for factor, mods in ((FAST, shift), (SLOW, alt)):
        held = path(60, [(0.0, Key("w", mods=mods)), (1.0, Key("w", False, mods))])[2]
        assert held / plain == pytest.approx(factor, rel=0.1)
    flying = Flying()
    flying.key(Key("w"))
    flying.step(0.0)
    assert not flying.key(Key("shift"))  # its own press does not name it on every screen
    flying.step(0.5)
    assert flying.step(1.0)[2] == pytest.approx(0.5 * 0.8 * FAST, rel=0.05)  # type: ignore[index]
    flying.key(Key("shift", False, frozenset({"shift"})))
    flying.step(1.5)
    assert flying.step(2.0)[2] == pytest.approx(0.5 * 0.8, rel=0.05)  # type: ignore[index]


def test_a_key_whose_end_was_lost_does_not_fly_for_ever() -> None:
    flying = Flying()
    flying.key(Key("w"))
    flying.step(0.0)
    assert flying.step(0.1) is not None
    assert flying.step(30.0) is None  # half a minute without a step
    assert not flying.moving
