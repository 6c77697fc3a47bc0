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
from splatview_viewer.geometry.orbit import Flight, Orbit, axis_rotation
from splatview_viewer.geometry.upward import snap_to_axis, up_of_cameras, up_of_scene

RECT = Rect(100, 20, 400, 300)
CORNER = np.array([RECT.x, RECT.y])
SHIFT: Mods = frozenset({"shift"})
CTRL: Mods = frozenset({"ctrl"})


def seen_from(
    position: tuple[float, float, float],
    target: tuple[float, float, float],
    fov: float = 50,
) -> Orbit:
    o = Orbit()
    o.look_from(
        Camera(look_at(position, target), intrinsics(fov, 400, 300), 400, 300),
        np.array(target),
    )
    return o


def made(**changes: object) -> Orbit:
    return replace(seen_from((1.0, -2.0, -4.0), (0.5, 0.2, 0.1)), **changes)


def seen(o: Orbit, point: np.ndarray) -> np.ndarray:
    """(2,) pixel of a world point in a picture of 400 by 300."""
    return project(o.camera(400, 300), point[None])[0]


def drag(
    o: Orbit, button: str, points: list[tuple[float, float]], mods: Mods = NO_MODS
) -> None:
    o.handle(PointerPress(*points[0], button, mods), RECT)  # type: ignore[arg-type]
    for point in points[1:]:
        o.handle(PointerMove(*point, mods), RECT)
    o.handle(PointerRelease(*points[-1], button, mods), RECT)  # type: ignore[arg-type]


def test_orbiting_keeps_the_target_stops_at_the_poles_and_stays_upright() -> None:
    o = made()
    target = o.target.copy()
    distance = o.distance
    for dy in [40] * 30 + [-40] * 60:
        drag(o, "left", [(200, 100), (203, 100 + dy)])
        np.testing.assert_allclose(seen(o, target), (200, 150), atol=1e-9)
        assert np.linalg.norm(o.position - target) == pytest.approx(distance)
        assert abs(o.rotation[2] @ o.up) < math.sin(math.radians(89.01))
        assert o.rotation[1] @ o.up < 0  # up in the world is up in the picture
        assert abs(o.rotation[0] @ o.up) < 1e-9  # no roll


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
    o = made(model=model)
    target = o.target.copy()
    rotation = o.rotation.copy()
    before = seen(o, target)
    drag(o, button, [(200, 100), (237, 81)], mods)
    np.testing.assert_allclose(seen(o, target) - before, (37, -19), atol=1e-6)
    np.testing.assert_array_equal(o.rotation, rotation)


@pytest.mark.parametrize("model", ["pinhole", "ortho"])
def test_wheel_and_two_fingers_keep_the_point_under_them(model: CameraModel) -> None:
    o = made(model=model)
    unit = 2 * math.tan(math.radians(o.fov) / 2) * o.distance / RECT.height
    point = o.target + o.rotation.T @ np.array([10 * unit, -110 * unit, 0])
    before = seen(o, point)
    distance = o.distance
    np.testing.assert_allclose(before, (210, 40), atol=1e-9)
    assert o.handle(Wheel(310, 60, 2.0), RECT)  # the picture begins at (100, 20)
    assert o.distance == pytest.approx(distance * 0.88**2)
    np.testing.assert_allclose(seen(o, point), before, atol=1e-9)
    assert o.handle(Pinch(319, 46, 1.25, 9.0, -14.0), RECT)
    np.testing.assert_allclose(seen(o, point), before + np.array([9, -14]), atol=1e-6)
    assert o.distance == pytest.approx(distance * 0.88**2 / 1.25)


# -- rolling, looking around, moving along -------------------------------------


@pytest.mark.parametrize("angle", [0.4, 3.0])
def test_a_roll_is_measured_stays_while_orbiting_and_goes(angle: float) -> None:
    o = made()
    assert o.tilt == pytest.approx(0, abs=1e-12)
    target = o.target.copy()
    position = o.position
    o.roll(angle)
    assert o.tilt == pytest.approx(angle)
    np.testing.assert_allclose(o.position, position, atol=1e-12)
    np.testing.assert_allclose(seen(o, target), (200, 150), atol=1e-9)
    drag(o, "left", [(200, 100), (260, 130), (180, 90)])
    assert o.tilt == pytest.approx(angle)
    np.testing.assert_allclose(o.target, target, atol=1e-12)
    o.level()
    assert o.tilt == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(o.rotation @ o.rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(o.rotation) == pytest.approx(1)


def test_ctrl_drag_rolls_so_that_the_scene_follows_the_pointer() -> None:
    o = made()
    point = o.target + o.rotation.T @ np.array(
        [0.9, 0.0, 0.0]
    )  # to the right of the middle
    x, y = seen(o, point) + CORNER
    middle = np.array([RECT.x + 200, RECT.y + 150])
    extent = np.linalg.norm((x, y) - middle)
    to = middle + extent * np.array([math.cos(0.8), math.sin(0.8)])
    drag(o, "left", [(x, y), tuple(to)], CTRL)
    np.testing.assert_allclose(seen(o, point) + CORNER, to, atol=1e-9)


# -- flights -------------------------------------------------------------------


def test_a_flight_begins_and_ends_where_it_should_and_is_smooth() -> None:
    a = seen_from((0, 0, -5), (0, 0, 0))
    b = seen_from((4, -2, 3), (1, 0, 1), 30)
    flight = Flight(a, b, 0.5)
    np.testing.assert_allclose(
        flight.interpolate(0).camera(400, 300).viewmat,
        a.camera(400, 300).viewmat,
        atol=1e-12,
    )
    np.testing.assert_allclose(
        flight.interpolate(1).camera(400, 300).viewmat,
        b.camera(400, 300).viewmat,
        atol=1e-12,
    )
    assert flight.orbit_at(10.0) is not None
    positions = np.array([flight.interpolate(i / 100).position for i in range(101)])
    steps = np.linalg.norm(np.diff(positions, axis=0), axis=1)
    assert steps.max() < 0.05 * steps.sum()
    assert steps[0] < steps.max() / 5
    assert steps[-1] < steps.max() / 5
    for i in range(0, 101, 10):
        o = flight.interpolate(i / 100)
        np.testing.assert_allclose(o.rotation @ o.rotation.T, np.eye(3), atol=1e-9)
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
    out = []
    for angle in np.linspace(0, 2 * np.pi, count, endpoint=False):
        position = (
            3 * (np.cos(angle) * side + np.sin(angle) * np.cross(side, UP))
            + height * UP
        )
        spin = np.eye(4)
        spin[:3, :3] = axis_rotation(np.array([0.0, 0.0, 1.0]), random.normal() * roll)
        out.append(spin @ look_at(position, (0, 0, 0), UP))
    return np.stack(out)


@pytest.mark.parametrize("height", [0.0, 8.0])
def test_cameras_around_something_say_what_is_up_however_much_they_look_down(
    height: float,
) -> None:
    for roll, degrees in ((0.0, 0.01), (0.03, 3)):
        found = up_of_cameras(ring(30, height, roll))
        assert found is not None
        assert found @ UP > np.cos(np.radians(degrees))


def test_real_cameras_and_their_scene_agree(data_dir: Path) -> None:
    with np.load(data_dir / "test_garden.npz") as garden:
        by_cameras = up_of_cameras(garden["viewmats"])
        by_ground = up_of_scene(garden["means3d"])
    assert by_cameras is not None
    assert by_ground is not None
    for found in (by_cameras, by_ground):
        assert found @ (0, 0, 1) > np.cos(np.radians(3))
        np.testing.assert_array_equal(snap_to_axis(found), (0, 0, 1))


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
def test_nothing_stands_on_these(points: np.ndarray) -> None:
    assert up_of_scene(points) is None
