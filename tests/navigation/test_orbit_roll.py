"""Rolling, looking around, moving along: what a scene's camera does beside orbiting."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from splatview.viewer_app.cameras import Camera, intrinsics, look_at
from splatview.viewer_app.controls import Orbit, Rect
from splatview.viewer_app.events import Pinch, PointerMove, PointerPress, PointerRelease, Wheel

RECT = Rect(100, 20, 400, 300)
CORNER = np.array([RECT.x, RECT.y])
SHIFT, CTRL = frozenset({"shift"}), frozenset({"ctrl"})


def made(**changes: object) -> Orbit:
    o = Orbit()
    o.take(Camera(look_at((1.0, -2.0, -4.0), (0.5, 0.2, 0.1)), intrinsics(50, 400, 300), 400, 300),
           np.array([0.5, 0.2, 0.1]))
    return replace(o, **changes)


def project(o: Orbit, point: np.ndarray) -> np.ndarray:
    """(2,) pixel of a world point in a picture of 400 by 300."""
    camera = o.camera(400, 300)
    p = camera.viewmat[:3, :3] @ point + camera.viewmat[:3, 3]
    z = p[2] if camera.model == "pinhole" else 1.0
    return np.array([camera.K[0, 0] * p[0] / z + camera.K[0, 2], camera.K[1, 1] * p[1] / z + camera.K[1, 2]])


def drag(o: Orbit, points: list[tuple[float, float]], mods: frozenset[str] = frozenset()) -> None:
    o.handle(PointerPress(*points[0], "left", mods), RECT)
    for point in points[1:]:
        o.handle(PointerMove(*point, mods), RECT)
    o.handle(PointerRelease(*points[-1], "left", mods), RECT)


@pytest.mark.parametrize("angle", [0.4, -1.2, 3.0])
def test_a_roll_is_measured_stays_while_orbiting_and_goes(angle: float) -> None:
    o = made()
    assert o.tilt == pytest.approx(0, abs=1e-12)
    target, position = o.target.copy(), o.position
    o.roll(angle)
    assert o.tilt == pytest.approx(angle)
    np.testing.assert_allclose(o.position, position, atol=1e-12)
    np.testing.assert_allclose(project(o, target), (200, 150), atol=1e-9)
    drag(o, [(200, 100), (260, 130), (180, 90)])
    assert o.tilt == pytest.approx(angle)
    np.testing.assert_allclose(o.target, target, atol=1e-12)
    o.level()
    assert o.tilt == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(o.rotation @ o.rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(o.rotation) == pytest.approx(1)


@pytest.mark.parametrize("angle", [0.0, 0.7, math.pi / 2, -2.5])
def test_what_is_near_follows_an_orbiting_drag_however_it_is_rolled(angle: float) -> None:
    for dx, dy in ((6, 0), (0, 6), (-4, 5)):
        o = made()
        o.roll(angle)
        near = o.target - o.rotation[2] * 0.5
        before = project(o, near)
        drag(o, [(300, 100), (300 + dx, 100 + dy)])
        moved = project(o, near) - before
        assert moved @ (dx, dy) > 0.9 * np.linalg.norm(moved) * math.hypot(dx, dy)


def test_straight_along_up_nothing_is_undefined() -> None:
    o = Orbit(up=np.array([0.0, 0.0, 1.0]))  # looks along +z
    assert o.tilt == 0.0
    for step in range(20):
        o.orbit(0.1, 0.2 if step % 2 else -0.3)
        o.roll(0.1)
    assert np.isfinite(o.rotation).all()
    np.testing.assert_allclose(o.rotation @ o.rotation.T, np.eye(3), atol=1e-12)


def test_ctrl_drag_rolls_so_that_the_scene_follows_the_pointer() -> None:
    o = made()
    point = o.target + o.rotation.T @ np.array([0.9, 0.0, 0.0])  # to the right of the middle
    x, y = project(o, point) + CORNER
    middle = np.array([RECT.x + 200, RECT.y + 150])
    reach = np.linalg.norm((x, y) - middle)
    to = middle + reach * np.array([math.cos(0.8), math.sin(0.8)])
    drag(o, [(x, y), tuple(to)], CTRL)
    np.testing.assert_allclose(project(o, point) + CORNER, to, atol=1e-9)


def test_looking_around_keeps_the_place() -> None:
    o = made(looks=True)
    position, distance, ahead = o.position, o.distance, o.rotation[2].copy()
    right = o.rotation[0].copy()
    drag(o, [(200, 100), (240, 100)])
    np.testing.assert_allclose(o.position, position, atol=1e-12)
    assert o.distance == distance
    assert o.rotation[2] @ right > 0  # a drag to the right looks to the right
    assert o.tilt == pytest.approx(0, abs=1e-12)
    drag(o, [(200, 100), (200, 60)])
    assert o.rotation[2] @ o.up > ahead @ o.up  # and one up, up
    for _ in range(40):
        drag(o, [(200, 100), (200, 20)])
    assert math.degrees(math.asin(o.rotation[2] @ o.up)) == pytest.approx(89)
    np.testing.assert_allclose(o.position, position, atol=1e-9)


@pytest.mark.parametrize("model", ["pinhole", "fisheye", "ortho"])
def test_moving_takes_the_target_along(model: str) -> None:
    o = made(model=model)
    target, distance = o.target.copy(), o.distance
    o.move(np.array([0.3, -0.2, 0.0]))
    np.testing.assert_allclose(o.target, target + o.rotation.T @ (0.3, -0.2, 0.0))
    assert o.distance == distance
    before, side = o.target, o.target + o.rotation[0] * 0.1
    size = project(o, side)[0] - 200
    o.move(np.array([0.0, 0.0, 0.5]))
    if model == "ortho":  # forward alone would change nothing that is seen
        assert o.distance < distance
        assert project(o, side)[0] - 200 > size
    else:
        np.testing.assert_allclose(o.target, before + o.rotation[2] * 0.5)
    o.move(np.array([0.0, 0.0, 1e9]))
    o.move(np.array([0.0, 0.0, -1e9]))
    assert np.isfinite(o.target).all()
    assert 0 < o.distance < math.inf


@pytest.mark.parametrize(("mods", "dx", "dy", "moved"), [
    (frozenset(), 0.3, 0.02, (-30, 0)), (frozenset(), -2.0, 0.0, (200, 0)), (SHIFT, 0.1, 0.25, (-10, 25)),
])
def test_two_fingers_on_a_trackpad_move_the_scene_sideways(mods: frozenset[str], dx: float, dy: float,
                                                           moved: tuple[float, float]) -> None:
    o = made()
    target, distance = o.target.copy(), o.distance
    assert o.handle(Wheel(220, 90, dy, dx, mods), RECT)
    np.testing.assert_allclose(project(o, target) - (200, 150), moved, atol=1e-6)
    assert o.distance == distance


def test_many_small_turns_of_the_wheel_are_one_large_one() -> None:
    a, b = made(), made()
    for _ in range(10):
        a.handle(Wheel(310, 60, 0.1), RECT)
    b.handle(Wheel(310, 60, 1.0), RECT)
    assert a.distance == pytest.approx(b.distance)
    np.testing.assert_allclose(a.target, b.target, atol=1e-12)
    assert not a.handle(Wheel(310, 60, 0.0), RECT)


def test_two_fingers_that_turn_roll_around_their_middle() -> None:
    o = made()
    at = np.array([270.0, 90.0])
    unit = 2 * math.tan(math.radians(o.fov) / 2) * o.distance / RECT.height
    held = o.target + o.rotation.T @ np.array([(at[0] - 200) * unit, (at[1] - 150) * unit, 0])
    beside = held + o.rotation.T @ np.array([30 * unit, 0, 0])
    assert o.handle(Pinch(at[0] + RECT.x, at[1] + RECT.y, 1.0, turn=0.5), RECT)
    np.testing.assert_allclose(project(o, held), at, atol=1e-9)
    np.testing.assert_allclose(project(o, beside) - at, (30 * math.cos(0.5), 30 * math.sin(0.5)), atol=1e-9)


def test_a_drag_can_be_ended() -> None:
    o = made()
    o.handle(PointerPress(200, 100), RECT)
    o.let_go()
    rotation = o.rotation
    assert not o.handle(PointerMove(250, 100), RECT)
    assert o.rotation is rotation


def test_near_and_far_are_the_cameras() -> None:
    o = made()
    camera = Camera(look_at((1.0, -2.0, -4.0), (0.5, 0.2, 0.1)), intrinsics(50, 400, 300), 400, 300, "pinhole", 0.3, 9)
    o.take(camera, np.array([0.5, 0.2, 0.1]))
    assert (o.camera(400, 300).near, o.camera(400, 300).far) == (0.3, 9)
    o.far = 7.0
    assert o.camera(400, 300).far == 7.0
    mine = Orbit()
    mine.look_like(o)
    assert mine.camera(400, 300).key == o.camera(400, 300).key
