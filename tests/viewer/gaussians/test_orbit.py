"""The camera of a scene: orbiting, rolling, looking around, flights, and what is up; the maths alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from splatview_viewer.core.events import NO_MODS, Mods, Pinch, PointerMove, PointerPress, PointerRelease, Wheel
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.cameras import Camera, CameraModel, intrinsics, look_at
from splatview_viewer.geometry.controls import Orbit
from splatview_viewer.geometry.orbit import Flight
from splatview_viewer.geometry.training_cameras import snapped, up_of_cameras, up_of_scene

if TYPE_CHECKING:
    from pathlib import Path

RECT = Rect(100, 20, 400, 300)
CORNER = np.array([RECT.x, RECT.y])
SHIFT: Mods = frozenset({"shift"})
CTRL: Mods = frozenset({"ctrl"})


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


def drag(o: Orbit, button: str, points: list[tuple[float, float]], mods: Mods = NO_MODS) -> None:
    o.handle(PointerPress(*points[0], button, mods), RECT)  # type: ignore[arg-type]
    for point in points[1:]:
        o.handle(PointerMove(*point, mods), RECT)
    o.handle(PointerRelease(*points[-1], button, mods), RECT)  # type: ignore[arg-type]


def test_orbiting_keeps_the_target_stops_at_the_poles_and_stays_upright() -> None:
    o = made()
    target, distance = o.target.copy(), o.distance
    for dy in [40] * 30 + [-40] * 60:
        drag(o, "left", [(200, 100), (203, 100 + dy)])
        np.testing.assert_allclose(project(o, target), (200, 150), atol=1e-9)
        assert np.linalg.norm(o.position - target) == pytest.approx(distance)
        assert abs(o.rotation[2] @ o.up) < math.sin(math.radians(89.01))
        assert o.rotation[1] @ o.up < 0  # up in the world is up in the picture
        assert abs(o.rotation[0] @ o.up) < 1e-9  # no roll


@pytest.mark.parametrize(("button", "mods", "model"), [
    ("right", frozenset(), "pinhole"), ("right", frozenset(), "ortho"), ("middle", frozenset(), "pinhole"),
    ("left", SHIFT, "pinhole"),
])
def test_panning_moves_the_scene_with_the_pointer(button: str, mods: Mods, model: str) -> None:
    o = made(model=model)
    target, rotation = o.target.copy(), o.rotation.copy()
    before = project(o, target)
    drag(o, button, [(200, 100), (237, 81)], mods)
    np.testing.assert_allclose(project(o, target) - before, (37, -19), atol=1e-6)
    np.testing.assert_array_equal(o.rotation, rotation)


@pytest.mark.parametrize("model", ["pinhole", "ortho"])
def test_wheel_moves_towards_the_point_under_the_pointer(model: str) -> None:
    o = made(model=model)
    x, y = 310.0, 60.0  # of the screen; the picture begins at (100, 20)
    unit = 2 * math.tan(math.radians(o.fov) / 2) * o.distance / RECT.height
    point = o.target + o.rotation.T @ np.array([(x - 100 - 200) * unit, (y - 20 - 150) * unit, 0])
    np.testing.assert_allclose(project(o, point), (210, 40), atol=1e-9)
    distance = o.distance
    assert o.handle(Wheel(x, y, 2.0), RECT)
    assert o.distance == pytest.approx(distance * 0.88**2)
    np.testing.assert_allclose(project(o, point), (210, 40), atol=1e-9)


@pytest.mark.parametrize("model", ["pinhole", "ortho"])
def test_two_fingers_pan_and_dolly(model: CameraModel) -> None:
    o = made(model=model)
    # A point at the target's depth, under the fingers' middle before they move.
    point = o.target + o.rotation.T @ np.array([0.4, -0.3, 0.0])
    before, distance = project(o, point), o.distance
    moved = before + np.array([9.0, -14.0])
    assert o.handle(Pinch(moved[0] + RECT.x, moved[1] + RECT.y, 1.25, 9.0, -14.0), RECT)
    np.testing.assert_allclose(project(o, point), moved, atol=1e-6)
    assert o.distance == pytest.approx(distance / 1.25)


# -- rolling, looking around, moving along -----------------------------------------------------------------------------


@pytest.mark.parametrize("angle", [0.4, 3.0])
def test_a_roll_is_measured_stays_while_orbiting_and_goes(angle: float) -> None:
    o = made()
    assert o.tilt == pytest.approx(0, abs=1e-12)
    target, position = o.target.copy(), o.position
    o.roll(angle)
    assert o.tilt == pytest.approx(angle)
    np.testing.assert_allclose(o.position, position, atol=1e-12)
    np.testing.assert_allclose(project(o, target), (200, 150), atol=1e-9)
    drag(o, "left", [(200, 100), (260, 130), (180, 90)])
    assert o.tilt == pytest.approx(angle)
    np.testing.assert_allclose(o.target, target, atol=1e-12)
    o.level()
    assert o.tilt == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(o.rotation @ o.rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(o.rotation) == pytest.approx(1)


def test_ctrl_drag_rolls_so_that_the_scene_follows_the_pointer() -> None:
    o = made()
    point = o.target + o.rotation.T @ np.array([0.9, 0.0, 0.0])  # to the right of the middle
    x, y = project(o, point) + CORNER
    middle = np.array([RECT.x + 200, RECT.y + 150])
    reach = np.linalg.norm((x, y) - middle)
    to = middle + reach * np.array([math.cos(0.8), math.sin(0.8)])
    drag(o, "left", [(x, y), tuple(to)], CTRL)
    np.testing.assert_allclose(project(o, point) + CORNER, to, atol=1e-9)


# -- flights -----------------------------------------------------------------------------------------------------------


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


# -- up ----------------------------------------------------------------------------------------------------------------


UP = np.array([0.48, -0.6, 0.64])
UP /= np.linalg.norm(UP)


def ring(count: int, height: float, *, roll: float = 0.0, arc: float = 2 * np.pi) -> np.ndarray:
    """(N, 4, 4) cameras on a circle around the origin, `height` above it, that look at it; rolled at random."""
    random = np.random.default_rng(0)
    side = np.cross(UP, [1.0, 0, 0])
    side /= np.linalg.norm(side)
    ahead = np.cross(side, UP)
    out = []
    for angle in np.linspace(0, arc, count, endpoint=False):
        position = 3 * (np.cos(angle) * side + np.sin(angle) * ahead) + height * UP
        viewmat, turn = look_at(position, (0, 0, 0), UP), random.normal() * roll
        c, s = np.cos(turn), np.sin(turn)
        spin = np.eye(4)
        spin[:2, :2] = [[c, -s], [s, c]]
        out.append(spin @ viewmat)
    return np.stack(out)


@pytest.mark.parametrize("height", [0.0, 8.0])
def test_cameras_around_something_say_what_is_up_however_much_they_look_down(height: float) -> None:
    for roll, degrees in ((0.0, 0.01), (0.03, 3)):
        found = up_of_cameras(ring(30, height, roll=roll))
        assert found is not None
        assert found @ UP > np.cos(np.radians(degrees))


def test_real_cameras_and_their_scene_agree(data_dir: Path) -> None:
    with np.load(data_dir / "test_garden.npz") as garden:
        by_cameras, by_ground = up_of_cameras(garden["viewmats"]), up_of_scene(garden["means3d"])
    assert by_cameras is not None
    assert by_ground is not None
    for found in (by_cameras, by_ground):
        assert found @ (0, 0, 1) > np.cos(np.radians(3))
        np.testing.assert_array_equal(snapped(found), (0, 0, 1))


def standing(share: float, seed: int = 0) -> np.ndarray:
    """(6000, 3) a ball on a ground of which UP is the normal, with this share of the points."""
    random = np.random.default_rng(seed)
    count = round(6000 * share)
    side = np.cross(UP, [1.0, 0, 0])
    side /= np.linalg.norm(side)
    flat = random.uniform(-2, 2, (count, 2)) @ np.stack([side, np.cross(UP, side)])
    flat += random.normal(0, 0.004, (count, 1)) * UP
    ball = random.normal(size=(6000 - count, 3))
    ball *= 0.8 * random.uniform(0, 1, (len(ball), 1)) ** (1 / 3) / np.linalg.norm(ball, axis=1, keepdims=True)
    return np.concatenate([flat, ball + 0.85 * UP]) * 7 + [100, -50, 3]


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_ground_in_any_direction_is_found(share: float) -> None:
    found = up_of_scene(standing(share))
    assert found is not None
    assert found @ UP > np.cos(np.radians(1))


@pytest.mark.parametrize("shape", ["ball", "cube", "none", "line"])
def test_nothing_stands_on_these(shape: str) -> None:
    random = np.random.default_rng(3)
    points = {
        "ball": random.normal(size=(5000, 3)), "cube": random.uniform(-1, 1, (5000, 3)),
        "none": np.empty((0, 3)),
        "line": np.linspace(0, 1, 5000)[:, None] * [[1.0, 2, 3]],
    }[shape]
    assert up_of_scene(points) is None
