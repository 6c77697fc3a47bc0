"""Panning, zooming and orbiting: the maths, without graphics."""

from __future__ import annotations

import math

import numpy as np
import pytest

from viewer_app.cameras import Camera, intrinsics, look_at
from viewer_app.controls import Orbit, PanZoom, Rect
from viewer_app.events import Key, PointerMove, PointerPress, PointerRelease, Wheel

RECT = Rect(100, 20, 400, 300)
SHIFT = frozenset({"shift"})


def project(orbit: Orbit, point: np.ndarray, width: int = 400, height: int = 300) -> np.ndarray:
    """(2,) pixel of a world point."""
    camera = orbit.camera(width, height)
    p = camera.viewmat[:3, :3] @ point + camera.viewmat[:3, 3]
    z = p[2] if camera.model == "pinhole" else 1.0
    return np.array([camera.K[0, 0] * p[0] / z + camera.K[0, 2], camera.K[1, 1] * p[1] / z + camera.K[1, 2]])


def orbit() -> Orbit:
    o = Orbit()
    o.take(Camera(look_at((1.0, -2.0, -4.0), (0.5, 0.2, 0.1)), intrinsics(50, 400, 300), 400, 300),
           np.array([0.5, 0.2, 0.1]))
    return o


def drag(control: Orbit | PanZoom, button: str, points: list[tuple[float, float]],
         mods: frozenset[str] = frozenset()) -> None:
    control.handle(PointerPress(*points[0], button, mods), RECT)  # type: ignore[arg-type]
    for point in points[1:]:
        control.handle(PointerMove(*point, mods), RECT)
    control.handle(PointerRelease(*points[-1], button, mods), RECT)  # type: ignore[arg-type]


# -- pictures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "zoom", "corner"), [
    ((400, 300), 1.0, (100, 20)),
    ((800, 300), 0.5, (100, 95)),   # wide: bars above and below
    ((200, 600), 0.5, (250, 20)),   # tall: bars at the sides
    ((40, 30), 10.0, (100, 20)),
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
    assert not p.fitted


def test_drag_moves_the_picture_with_the_pointer() -> None:
    p = PanZoom((640, 480))
    p.set_zoom(3.0, RECT)
    grabbed = p.to_picture(200, 100, RECT)
    drag(p, "left", [(200, 100), (230, 90), (245, 130)])
    assert p.to_picture(245, 130, RECT) == pytest.approx(grabbed)
    assert not p.handle(PointerMove(300, 200), RECT)  # the button is up: nothing moves
    assert p.to_picture(245, 130, RECT) == pytest.approx(grabbed)


def test_double_click_and_f_fit() -> None:
    for event in (PointerPress(200, 100, clicks=2), Key("f")):
        p = PanZoom((640, 480))
        p.set_zoom(5.0, RECT, (120, 40))
        assert p.handle(event, RECT)
        assert p.placed(RECT) == PanZoom((640, 480)).placed(RECT)


def test_key_1_shows_pixels_as_they_are() -> None:
    p = PanZoom((640, 480))
    assert p.handle(Key("1"), RECT)
    assert p.placed(RECT)[2] == 1.0


def test_the_picture_cannot_be_lost() -> None:
    p = PanZoom((640, 480))
    p.set_zoom(2.0, RECT)
    drag(p, "left", [(200, 100), (200_000, -90_000)])
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


def test_another_size_keeps_what_is_looked_at() -> None:
    p = PanZoom((100, 100))
    p.set_zoom(8.0, RECT)
    p.center = (25.0, 75.0)
    p.resize_picture(200, 200)
    assert p.center == (50.0, 150.0)
    assert p.placed(RECT)[2] == pytest.approx(4.0)
    fitted = PanZoom((100, 100))
    fitted.resize_picture(200, 50)
    assert fitted.fitted


# -- scenes --------------------------------------------------------------------------------------------------


def test_taking_a_camera_changes_nothing_seen() -> None:
    camera = Camera(look_at((1.0, -2.0, -4.0), (0.5, 0.2, 0.1)), intrinsics(37, 400, 300), 400, 300)
    o = Orbit()
    o.take(camera, np.array([0.5, 0.2, 0.1]))
    again = o.camera(400, 300)
    np.testing.assert_allclose(again.viewmat, camera.viewmat, atol=1e-12)
    np.testing.assert_allclose(again.K, camera.K, rtol=1e-12)
    np.testing.assert_allclose(o.target, (0.5, 0.2, 0.1), atol=1e-12)


def test_orbiting_keeps_the_target_and_the_distance() -> None:
    o = orbit()
    target, distance = o.target.copy(), o.distance
    drag(o, "left", [(200, 100), (260, 130), (320, 90), (90, 280)])
    np.testing.assert_allclose(project(o, target), (200, 150), atol=1e-9)
    assert np.linalg.norm(o.camera(400, 300).position - target) == pytest.approx(distance)
    np.testing.assert_allclose(o.rotation @ o.rotation.T, np.eye(3), atol=1e-12)


def test_orbiting_follows_the_pointer() -> None:
    """What lies before the target moves with a drag: to the right, and down."""
    o = orbit()
    near = o.target - o.rotation[2] * 0.5
    before = project(o, near)
    drag(o, "left", [(200, 100), (210, 100)])
    assert project(o, near)[0] > before[0]
    o = orbit()
    drag(o, "left", [(200, 100), (200, 110)])
    assert project(o, near)[1] > before[1]


def test_orbiting_stops_at_the_poles_and_stays_upright() -> None:
    o = orbit()
    for dy in [40] * 30 + [-40] * 60:
        drag(o, "left", [(200, 100), (203, 100 + dy)])
        assert abs(o.rotation[2] @ o.up) < math.sin(math.radians(89.01))
        assert o.rotation[1] @ o.up < 0  # up in the world is up in the picture
        assert abs(o.rotation[0] @ o.up) < 1e-9  # no roll


@pytest.mark.parametrize(("button", "mods"), [("right", frozenset()), ("middle", frozenset()), ("left", SHIFT)])
@pytest.mark.parametrize("model", ["pinhole", "ortho"])
def test_panning_moves_the_scene_with_the_pointer(button: str, mods: frozenset[str], model: str) -> None:
    o = orbit()
    o.model = model  # type: ignore[assignment]
    target, rotation = o.target.copy(), o.rotation.copy()
    before = project(o, target)
    drag(o, button, [(200, 100), (237, 81)], mods)
    np.testing.assert_allclose(project(o, target) - before, (37, -19), atol=1e-6)
    np.testing.assert_array_equal(o.rotation, rotation)


@pytest.mark.parametrize("model", ["pinhole", "ortho"])
def test_wheel_moves_towards_the_point_under_the_pointer(model: str) -> None:
    o = orbit()
    o.model = model  # type: ignore[assignment]
    x, y = 310.0, 60.0  # of the screen; the picture begins at (100, 20)
    unit = 2 * math.tan(math.radians(o.fov) / 2) * o.distance / RECT.height
    point = o.target + o.rotation.T @ np.array([(x - 100 - 200) * unit, (y - 20 - 150) * unit, 0])
    np.testing.assert_allclose(project(o, point), (210, 40), atol=1e-9)
    distance = o.distance
    assert o.handle(Wheel(x, y, 2.0), RECT)
    assert o.distance == pytest.approx(distance * 0.88**2)
    np.testing.assert_allclose(project(o, point), (210, 40), atol=1e-9)


def test_resizing_keeps_the_vertical_field_of_view() -> None:
    o = orbit()
    for size in ((400, 300), (800, 300), (120, 900)):
        camera = o.camera(*size)
        assert 2 * math.degrees(math.atan(size[1] / 2 / camera.K[1, 1])) == pytest.approx(50)
        assert camera.K[0, 0] == camera.K[1, 1]
        assert (camera.K[0, 2], camera.K[1, 2]) == (size[0] / 2, size[1] / 2)


def test_orthographic_shows_the_target_at_the_same_size() -> None:
    o = orbit()
    side = o.target + o.rotation[0] * 0.3
    before = project(o, side)
    o.model = "ortho"
    np.testing.assert_allclose(project(o, side), before, atol=1e-9)


@pytest.mark.parametrize("up", [(0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0, -1)])
def test_another_axis_upward(up: tuple[int, int, int]) -> None:
    o = orbit()
    target = o.target.copy()
    o.set_up(np.array(up))
    assert o.rotation[1] @ np.array(up) < 0
    assert abs(o.rotation[0] @ np.array(up)) < 1e-9
    np.testing.assert_allclose(np.linalg.det(o.rotation), 1.0)
    np.testing.assert_allclose(project(o, target), (200, 150), atol=1e-9)


def test_an_axis_along_the_line_of_sight_can_point_upward() -> None:
    o = Orbit()  # looks along +z
    o.set_up(np.array([0.0, 0.0, 1.0]))
    assert np.isfinite(o.rotation).all()
    np.testing.assert_allclose(o.rotation @ o.rotation.T, np.eye(3), atol=1e-12)


def test_rectangles() -> None:
    assert Rect(10, 20, 30, 40).viewport(100) == (10, 40, 30, 40)
    assert Rect(10, 20, 30, 40).contains(10, 20)
    assert not Rect(10, 20, 30, 40).contains(40, 30)
