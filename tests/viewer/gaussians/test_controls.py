"""Panning, zooming and held keys over pictures and scenes; the maths alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from splatview_viewer.core.events import (
    Key,
    Mods,
    Pinch,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.flying import FAST, SLOW, Flying
from splatview_viewer.geometry.pan_zoom import FITTED, PanZoom, moved_range

RECT = Rect(100, 20, 400, 300)


# -- pictures ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "zoom", "corner"),
    [
        ((800, 300), 0.5, (100, 95)),
        ((200, 600), 0.5, (250, 20)),
        ((1, 1), 300.0, (150, 20)),
    ],
    ids=["wide", "tall", "one pixel"],
)
def test_fitting_keeps_the_aspect(
    size: tuple[int, int], zoom: float, corner: tuple[int, int]
) -> None:
    x, y, z = PanZoom(size).placed(RECT)
    assert z == pytest.approx(zoom)
    assert (x, y) == pytest.approx(corner)


@pytest.mark.parametrize("fitted", [True, False])
def test_point_under_the_pointer_or_between_two_fingers_stays_there(
    fitted: bool,
) -> None:
    pan_zoom = PanZoom((640, 480))
    if not fitted:
        pan_zoom.set_zoom(2.0, RECT)
    for event, factor in (
        (Wheel(220, 190, 1), 1.2),
        (Wheel(220, 190, -2), 1.2**-2),
        (Pinch(230, 170, 1.25, 12, -7), 1.25),
        (Pinch(230, 170, 1.0, -5, 4), 1.0),
    ):
        x = event.x
        y = event.y
        if isinstance(event, Pinch):
            x -= event.dx
            y -= event.dy
        point = pan_zoom.to_picture(x, y, RECT)
        zoom = pan_zoom.placed(RECT)[2]
        assert pan_zoom.handle(event, RECT)
        assert pan_zoom.to_picture(event.x, event.y, RECT) == pytest.approx(point)
        assert pan_zoom.placed(RECT)[2] == pytest.approx(zoom * factor)
    assert pan_zoom.place != FITTED
    grabbed = pan_zoom.to_picture(200, 100, RECT)
    for event in (
        PointerPress(200, 100),
        PointerMove(230, 90),
        PointerMove(245, 130),
        PointerRelease(245, 130),
    ):
        pan_zoom.handle(event, RECT)
    assert pan_zoom.to_picture(245, 130, RECT) == pytest.approx(grabbed)
    # Nothing moves without a button.
    assert not pan_zoom.handle(PointerMove(300, 200), RECT)


def test_picture_cannot_be_lost_and_is_fitted_again() -> None:
    pan_zoom = PanZoom((640, 480))
    pan_zoom.set_zoom(2.0, RECT)
    for event in (
        PointerPress(200, 100),
        PointerMove(200_000, -90_000),
        PointerRelease(200_000, -90_000),
    ):
        pan_zoom.handle(event, RECT)
    x, y, zoom = pan_zoom.placed(RECT)
    assert x < RECT.x + RECT.width
    assert x + 640 * zoom > RECT.x
    assert y < RECT.y + RECT.height
    assert y + 480 * zoom > RECT.y
    for dy in (-8, 8):
        for _ in range(100):
            pan_zoom.handle(Wheel(200, 100, dy), RECT)
        assert 0 < pan_zoom.placed(RECT)[2] < math.inf
    pan_zoom.set_zoom(5.0, RECT, (120, 40))
    assert pan_zoom.handle(PointerPress(200, 100, clicks=2), RECT)
    assert pan_zoom.placed(RECT) == PanZoom((640, 480)).placed(RECT)


def test_range_of_an_axis_is_moved_and_zoomed() -> None:
    assert moved_range((0, 100), right=1) == (12, 112)
    low, high = moved_range((0, 100), closer=1)
    assert (0 < low < high < 100, low + high) == (True, pytest.approx(100))
    assert moved_range((low, high), closer=-1) == pytest.approx((0, 100))


# -- keys that are held --------------------------------------------------------


def flown_distance(
    rate: float, events: list[tuple[float, Key]], end: float = 2.0
) -> np.ndarray:
    """Return the distance (5,) after `end` seconds, with `rate` steps a second.

    events: keys by the second in which they come, in order.
    """
    flying = Flying()
    distance = np.zeros(5)
    waiting = list(events)
    for i in range(round(end * rate) + 1):
        now = 100.0 + i / rate
        step = flying.step(now)
        if step is not None:
            distance += step
        while waiting and waiting[0][0] <= i / rate + 1e-9:
            _, key = waiting.pop(0)
            assert flying.key(key)
            flying.step(now)
    return distance


def test_flown_distance_does_not_depend_on_the_rate_of_pictures() -> None:
    events = [
        (0.0, Key("w")),
        (0.5, Key("d")),
        (0.75, Key("w", False)),
        (1.0, Key("c")),
        (1.25, Key("d", False)),
        (1.25, Key("c", False)),
    ]
    slow = flown_distance(4, events)
    assert slow[2] > 0.3
    assert slow[0] > 0.3
    assert slow[4] > 0.1
    for rate in (8, 60, 1000):
        np.testing.assert_allclose(
            flown_distance(rate, events), slow, rtol=2e-3, atol=2e-3
        )


def test_each_key_moves_along_its_axis() -> None:
    for name, axis, sign in (
        ("w", 2, 1),
        ("s", 2, -1),
        ("a", 0, -1),
        ("d", 0, 1),
        ("q", 3, -1),
        ("e", 3, 1),
        ("left", 0, -1),
        ("right", 0, 1),
        ("up", 1, -1),
        ("down", 1, 1),
        ("z", 4, -1),
        ("c", 4, 1),
    ):
        distance = flown_distance(60, [(0.0, Key(name)), (1.0, Key(name, False))])
        assert distance[axis] * sign > 0.5, name
        assert not np.delete(distance, axis).any(), name


def test_shift_flies_fast_and_alt_slowly() -> None:
    def distance_with(mods: Mods) -> float:
        events = [(0.0, Key("w", mods=mods)), (1.0, Key("w", False, mods))]
        return flown_distance(60, events)[2]

    unmodified = distance_with(frozenset())
    fast = distance_with(frozenset({"shift"}))
    slow = distance_with(frozenset({"alt"}))
    assert fast / unmodified == pytest.approx(FAST, rel=0.1)
    assert slow / unmodified == pytest.approx(SLOW, rel=0.1)


def test_key_whose_release_was_lost_stops_flying() -> None:
    flying = Flying()
    flying.key(Key("w"))
    flying.step(0.0)
    assert flying.step(0.1) is not None
    # Half a minute went by without a step.
    assert flying.step(30.0) is None
    assert not flying.moving
