"""Held keys and flights: the same path at any rate of pictures, and no key that stays down for ever."""

from __future__ import annotations

import math

import numpy as np
import pytest

from splatview.viewer_app.cameras import Camera, intrinsics, look_at
from splatview.viewer_app.events import Key
from splatview.viewer_app.navigation.flights import Flight
from splatview.viewer_app.navigation.flying import FAST, SLOW, SPEEDS, Flying
from splatview.viewer_app.navigation.orbit import Orbit


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
    for rate in (8, 60, 144, 1000):
        np.testing.assert_allclose(path(rate, events), slow, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("name", "axis", "sign"), [
    ("w", 2, 1), ("s", 2, -1), ("a", 0, -1), ("d", 0, 1), ("q", 3, -1), ("e", 3, 1), ("left", 0, -1), ("right", 0, 1),
    ("up", 1, -1), ("down", 1, 1), ("z", 4, -1), ("c", 4, 1),
])
def test_each_key_has_its_way(name: str, axis: int, sign: int) -> None:
    came = path(60, [(0.0, Key(name)), (1.0, Key(name, False))])
    assert came[axis] * sign > 0.5
    assert not np.delete(came, axis).any()


def test_shift_is_fast_and_alt_slow_from_whatever_event_it_is_heard() -> None:
    plain = path(60, [(0.0, Key("w")), (1.0, Key("w", False))])[2]
    for factor, mod in ((FAST, "shift"), (SLOW, "alt")):
        mods = frozenset({mod})
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


def test_opposite_keys_stand_still() -> None:
    assert not path(60, [(0.0, Key("w")), (0.0, Key("s"))]).any()


def test_it_comes_to_rest_soon_after_the_key_goes_up() -> None:
    flying = Flying()
    flying.key(Key("w"))
    for i in range(61):
        flying.step(i / 60)
    flying.key(Key("w", False))
    left, now = 0.0, 1.0
    while flying.moving:
        now += 1 / 60
        left += float(flying.step(now)[2])  # type: ignore[index]
        assert now < 2
    assert 0 < left < 0.1
    flying.key(Key("w"))  # though nobody asked meanwhile
    assert not flying.step(now + 9).any()  # type: ignore[union-attr]


def test_a_key_whose_end_was_lost_does_not_fly_for_ever() -> None:
    flying = Flying()
    flying.key(Key("w"))
    flying.step(0.0)
    assert flying.step(0.1) is not None
    assert flying.step(30.0) is None  # nobody looked for half a minute
    assert not flying.moving


def test_pictures_that_take_seconds_each_do_not_stop_a_key_that_is_held() -> None:
    flying, came = Flying(), 0.0
    flying.key(Key("w"))
    flying.step(0.0)
    for i in range(1, 5):
        flying.key(Key("w", repeat=True))  # as long as a key is down, screens say so
        came += float(flying.step(i * 2.0)[2])  # type: ignore[index]
    assert came > 1


def test_shortcuts_do_not_move() -> None:
    flying = Flying()
    for mod in ("ctrl", "super"):
        assert not flying.key(Key("c", mods=frozenset({mod})))
    assert not flying.key(Key("x"))
    assert not flying.key(Key("w", False))
    assert not flying.moving


def test_stopping_is_at_once() -> None:
    flying = Flying()
    flying.key(Key("w"))
    flying.step(0.0)
    flying.step(0.5)
    flying.stop()
    assert not flying.moving
    assert flying.step(0.6) is None


def test_the_wheel_changes_the_speed_within_limits() -> None:
    flying = Flying()
    flying.faster(5)
    flying.faster(-5)
    assert flying.speed == pytest.approx(1)
    flying.faster(1e9)
    flying.faster(1e9)
    flying.faster(1e9)
    assert flying.speed <= SPEEDS[1]
    for _ in range(40):
        flying.faster(-1e9)
    assert flying.speed >= SPEEDS[0]


# -- flights -------------------------------------------------------------------------------------------------


def seen_from(position: tuple[float, float, float], target: tuple[float, float, float], fov: float = 50) -> Orbit:
    o = Orbit()
    o.take(Camera(look_at(position, target), intrinsics(fov, 400, 300), 400, 300), np.array(target))
    return o


def test_a_flight_begins_and_ends_where_it_should_and_is_smooth() -> None:
    a, b = seen_from((0, 0, -5), (0, 0, 0)), seen_from((4, -2, 3), (1, 0, 1), 30)
    flight = Flight(a, b, 0.5)
    np.testing.assert_allclose(flight.between(0).camera(400, 300).viewmat, a.camera(400, 300).viewmat, atol=1e-12)
    np.testing.assert_allclose(flight.between(1).camera(400, 300).viewmat, b.camera(400, 300).viewmat, atol=1e-12)
    assert flight.at(10.0) is not None
    places = np.array([flight.between(i / 100).position for i in range(101)])
    steps = np.linalg.norm(np.diff(places, axis=0), axis=1)
    assert steps.max() < 0.05 * steps.sum()
    assert steps[0] < steps.max() / 5 and steps[-1] < steps.max() / 5
    for i in range(0, 101, 10):
        o = flight.between(i / 100)
        np.testing.assert_allclose(o.rotation @ o.rotation.T, np.eye(3), atol=1e-9)
    assert flight.at(10.49) is not None
    assert flight.at(10.51) is None


@pytest.mark.parametrize("angle", [0.0, 1e-12, 0.5, math.pi - 1e-7, math.pi])
def test_any_turn_is_flown(angle: float) -> None:
    a, b = seen_from((0, 0, -5), (0, 0, 0)), seen_from((0, 0, -5), (0, 0, 0))
    b.orbit(angle, 0.0)
    for i in range(11):
        o = Flight(a, b, 1).between(i / 10)
        assert np.isfinite(o.rotation).all()
        np.testing.assert_allclose(o.rotation @ o.rotation.T, np.eye(3), atol=1e-6)
    np.testing.assert_allclose(Flight(a, b, 1).between(1).rotation, b.rotation, atol=1e-5)


def test_no_time_is_no_flight() -> None:
    a = seen_from((0, 0, -5), (0, 0, 0))
    assert Flight(a, a, 0.0).at(3.0) is None
