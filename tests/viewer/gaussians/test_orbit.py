"""The camera of a scene: orbiting, rolling, flights, up; the maths alone."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from splatview_viewer.core.events import (
    NO_MODS,
    Mods,
    Pinch,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.cameras import (
    Camera,
    CameraModel,
    intrinsics,
    look_at,
    project,
)
from splatview_viewer.geometry.orbit import Flight, Orbit
from splatview_viewer.geometry.turning import axis_rotation
from splatview_viewer.geometry.upward import snap_to_axis, up_of_cameras, up_of_scene

RECT = Rect(100, 20, 400, 300)
CORNER = np.array([RECT.x, RECT.y])
SHIFT: Mods = frozenset({"shift"})
CTRL: Mods = frozenset({"ctrl"})


def orbit_from(
    position: tuple[float, float, float],
    target: tuple[float, float, float],
    fov: float = 50,
) -> Orbit:
    orbit = Orbit()
    viewmat = look_at(position, target)
    camera = Camera(viewmat, intrinsics(fov, 400, 300), 400, 300)
    orbit.look_from(camera, np.array(target))
    return orbit


def orbit_with(**changes: object) -> Orbit:
    orbit = orbit_from((1.0, -2.0, -4.0), (0.5, 0.2, 0.1))
    return replace(orbit, **changes)


def pixel_of(point: np.ndarray, orbit: Orbit) -> np.ndarray:
    """Return the pixel (2,) of a world point in a picture of 400 by 300."""
    return project(orbit.camera(400, 300), point[None])[0]


def drag(
    orbit: Orbit, button: str, points: list[tuple[float, float]], mods: Mods = NO_MODS
) -> None:
    orbit.handle(PointerPress(*points[0], button, mods), RECT)  # type: ignore[arg-type]
    for point in points[1:]:
        orbit.handle(PointerMove(*point, mods), RECT)
    orbit.handle(PointerRelease(*points[-1], button, mods), RECT)  # type: ignore[arg-type]


def test_orbiting_keeps_the_target_and_stays_upright() -> None:
    orbit = orbit_with()
    target = orbit.target.copy()
    distance = orbit.distance
    for dy in [40] * 30 + [-40] * 60:
        drag(orbit, "left", [(200, 100), (203, 100 + dy)])
        np.testing.assert_allclose(pixel_of(target, orbit), (200, 150), atol=1e-9)
        assert np.linalg.norm(orbit.position - target) == pytest.approx(distance)

        right, down, forward = orbit.rotation
        assert abs(forward @ orbit.up) < math.sin(math.radians(89.01))
        # Up in the world is up in the picture, and there is no roll.
        assert down @ orbit.up < 0
        assert abs(right @ orbit.up) < 1e-9


@pytest.mark.parametrize(
    ("button", "mods", "model"),
    [
        ("right", frozenset(), "pinhole"),
        ("right", frozenset(), "ortho"),
        ("middle", frozenset(), "pinhole"),
        ("left", SHIFT, "pinhole"),
    ],
)
def test_panning_moves_the_scene_with_the_pointer(
    button: str, mods: Mods, model: str
) -> None:
    orbit = orbit_with(model=model)
    target = orbit.target.copy()
    rotation = orbit.rotation.copy()
    start = pixel_of(target, orbit)
    drag(orbit, button, [(200, 100), (237, 81)], mods)
    np.testing.assert_allclose(pixel_of(target, orbit) - start, (37, -19), atol=1e-6)
    np.testing.assert_array_equal(orbit.rotation, rotation)


@pytest.mark.parametrize("model", ["pinhole", "ortho"])
def test_wheel_and_two_fingers_keep_the_point_under_them(model: CameraModel) -> None:
    orbit = orbit_with(model=model)
    unit = 2 * math.tan(math.radians(orbit.fov) / 2) * orbit.distance / RECT.height
    point = orbit.target + orbit.rotation.T @ np.array([10 * unit, -110 * unit, 0])
    start = pixel_of(point, orbit)
    distance = orbit.distance
    np.testing.assert_allclose(start, (210, 40), atol=1e-9)
    # The picture begins at (100, 20).
    assert orbit.handle(Wheel(310, 60, 2.0), RECT)
    assert orbit.distance == pytest.approx(distance * 0.88**2)
    np.testing.assert_allclose(pixel_of(point, orbit), start, atol=1e-9)
    assert orbit.handle(Pinch(319, 46, 1.25, 9.0, -14.0), RECT)
    np.testing.assert_allclose(
        pixel_of(point, orbit), start + np.array([9, -14]), atol=1e-6
    )
    assert orbit.distance == pytest.approx(distance * 0.88**2 / 1.25)


# -- rolling, looking around, moving along -------------------------------------


@pytest.mark.parametrize("angle", [0.4, 3.0])
def test_roll_is_measured_and_stays_while_orbiting_until_levelled(angle: float) -> None:
    orbit = orbit_with()
    assert orbit.tilt == pytest.approx(0, abs=1e-12)
    target = orbit.target.copy()
    position = orbit.position
    orbit.roll(angle)
    assert orbit.tilt == pytest.approx(angle)
    np.testing.assert_allclose(orbit.position, position, atol=1e-12)
    np.testing.assert_allclose(pixel_of(target, orbit), (200, 150), atol=1e-9)
    drag(orbit, "left", [(200, 100), (260, 130), (180, 90)])
    assert orbit.tilt == pytest.approx(angle)
    np.testing.assert_allclose(orbit.target, target, atol=1e-12)
    orbit.roll(-orbit.tilt)
    assert orbit.tilt == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(orbit.rotation @ orbit.rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(orbit.rotation) == pytest.approx(1)


def test_ctrl_drag_rolls_the_scene_with_the_pointer() -> None:
    orbit = orbit_with()
    point = orbit.target + orbit.rotation.T @ np.array(
        [0.9, 0.0, 0.0]
    )  # to the right of the middle
    x, y = pixel_of(point, orbit) + CORNER
    middle = np.array([RECT.x + 200, RECT.y + 150])
    extent = np.linalg.norm((x, y) - middle)
    to = middle + extent * np.array([math.cos(0.8), math.sin(0.8)])
    drag(orbit, "left", [(x, y), tuple(to)], CTRL)
    np.testing.assert_allclose(pixel_of(point, orbit) + CORNER, to, atol=1e-9)


# -- flights -------------------------------------------------------------------


def test_flight_joins_its_ends_smoothly() -> None:
    start = orbit_from((0, 0, -5), (0, 0, 0))
    end = orbit_from((4, -2, 3), (1, 0, 1), 30)
    flight = Flight(start, end, 0.5)
    for share, orbit in ((0, start), (1, end)):
        viewmat = flight.interpolate(share).camera(400, 300).viewmat
        expected = orbit.camera(400, 300).viewmat
        np.testing.assert_allclose(viewmat, expected, atol=1e-12)
    assert flight.orbit_at(10.0) is not None
    positions = np.array([flight.interpolate(i / 100).position for i in range(101)])
    steps = np.linalg.norm(np.diff(positions, axis=0), axis=1)
    assert steps.max() < 0.05 * steps.sum()
    assert steps[0] < steps.max() / 5
    assert steps[-1] < steps.max() / 5
    for i in range(0, 101, 10):
        rotation = flight.interpolate(i / 100).rotation
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-9)
    assert flight.orbit_at(10.49) is not None
    assert flight.orbit_at(10.51) is None


# -- up ------------------------------------------------------------------------


UP = np.array([0.48, -0.6, 0.64])
UP /= np.linalg.norm(UP)


def ring(count: int, height: float, roll: float) -> np.ndarray:
    """Return cameras (N, 4, 4) on a circle that look at the origin, rolled at random.

    height: of the circle, above the origin.
    """
    random = np.random.default_rng(0)
    side = np.cross(UP, [1.0, 0, 0])
    side /= np.linalg.norm(side)
    right_axis = np.cross(side, UP)
    viewmats = []
    for angle in np.linspace(0, 2 * np.pi, count, endpoint=False):
        on_circle = 3 * (np.cos(angle) * side + np.sin(angle) * right_axis)
        spin = np.eye(4)
        spin[:3, :3] = axis_rotation((0.0, 0.0, 1.0), random.normal() * roll)
        viewmats.append(spin @ look_at(on_circle + height * UP, (0, 0, 0), UP))
    return np.stack(viewmats)


@pytest.mark.parametrize("height", [0.0, 8.0])
def test_cameras_on_a_circle_tell_up_however_much_they_look_down(
    height: float,
) -> None:
    for roll, degrees in ((0.0, 0.01), (0.03, 3)):
        up = up_of_cameras(ring(30, height, roll))
        assert up is not None
        assert up @ UP > np.cos(np.radians(degrees))


def test_real_cameras_and_their_scene_agree_about_up(data_dir: Path) -> None:
    with np.load(data_dir / "test_garden.npz") as garden:
        by_cameras = up_of_cameras(garden["viewmats"])
        by_ground = up_of_scene(garden["means3d"])
    assert by_cameras is not None
    assert by_ground is not None
    for up in (by_cameras, by_ground):
        assert up @ (0, 0, 1) > np.cos(np.radians(3))
        np.testing.assert_array_equal(snap_to_axis(up), (0, 0, 1))


@pytest.mark.parametrize(
    "points",
    [
        np.random.default_rng(3).normal(size=(5000, 3)),
        np.random.default_rng(3).uniform(-1, 1, (5000, 3)),
        np.empty((0, 3)),
        np.linspace(0, 1, 5000)[:, None] * [[1.0, 2, 3]],
    ],
    ids=["ball", "cube", "none", "line"],
)
def test_up_is_unknown_without_a_ground(points: np.ndarray) -> None:
    assert up_of_scene(points) is None
