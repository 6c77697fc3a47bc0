"""Panning, zooming and orbiting: the maths, without graphics."""

from __future__ import annotations

import math

import numpy as np
import pytest

from splatview.viewer_app.cameras import Camera, CameraModel, intrinsics, look_at
from splatview.viewer_app.controls import Orbit, PanZoom, Rect
from splatview.viewer_app.events import Key, Pinch, PointerMove, PointerPress, PointerRelease, Wheel

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


def test_two_fingers_that_do_nothing_change_nothing_and_end_the_drag_of_one() -> None:
    p = PanZoom((640, 480))
    p.handle(PointerPress(200, 100), RECT)
    assert not p.handle(Pinch(200, 100, 1.0), RECT)
    assert p.fitted
    assert not p.handle(PointerMove(300, 200), RECT)
    assert p.fitted


@pytest.mark.parametrize("factor", [0.0, -1.0, 1e-30, 1e30, float("inf")])
def test_no_finger_loses_the_picture(factor: float) -> None:
    p = PanZoom((640, 480))
    for _ in range(20):
        p.handle(Pinch(200, 100, factor), RECT)
    assert 8 / 640 <= p.zoom <= 256
    assert np.isfinite(p.placed(RECT)).all()
    o = orbit()
    for _ in range(20):
        o.handle(Pinch(200, 100, factor), RECT)
    assert 0 < o.distance < np.inf
    assert np.isfinite(o.target).all()


@pytest.mark.parametrize("rect", [Rect(0, 0, 100, 300), Rect(7, 9, 1000, 60), RECT])
def test_what_another_one_shows_is_shown_in_any_rectangle(rect: Rect) -> None:
    theirs, mine = PanZoom((640, 480)), PanZoom((640, 480))
    mine.look_like(theirs, RECT)
    assert mine.placed(rect) == PanZoom((640, 480)).placed(rect)
    theirs.set_zoom(3.0, RECT, (150, 90))
    mine.look_like(theirs, RECT)
    left, top, zoom = mine.placed(rect)
    assert zoom == pytest.approx(3 * min(rect.width / 400, rect.height / 300))
    middle = rect.x + rect.width / 2, rect.y + rect.height / 2
    assert mine.to_picture(*middle, rect) == pytest.approx(theirs.center)
    again = PanZoom((640, 480))
    again.look_like(mine, rect)  # whom somebody follows who follows: the same as the first
    assert again.placed(RECT) == pytest.approx(theirs.placed(RECT))
    mine.handle(PointerPress(*middle), rect)
    mine.handle(PointerMove(middle[0] + 3, middle[1] - 2), rect)  # its own hand goes on from there
    assert mine.placed(rect) == pytest.approx((left + 3, top - 2, zoom))


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


@pytest.mark.parametrize("model", ["pinhole", "ortho"])
def test_two_fingers_pan_and_dolly(model: CameraModel) -> None:
    o = orbit()
    o.model = model
    # A point at the target's depth, under the fingers' middle before they move.
    point = o.target + o.rotation.T @ np.array([0.4, -0.3, 0.0])
    before, distance = project(o, point), o.distance
    moved = before + np.array([9.0, -14.0])
    assert o.handle(Pinch(moved[0] + RECT.x, moved[1] + RECT.y, 1.25, 9.0, -14.0), RECT)
    np.testing.assert_allclose(project(o, point), moved, atol=1e-6)
    assert o.distance == pytest.approx(distance / 1.25)


def test_two_fingers_end_the_drag_of_one() -> None:
    o = orbit()
    o.handle(PointerPress(200, 100), RECT)
    rotation = o.rotation
    assert not o.handle(Pinch(200, 100, 1.0), RECT)
    o.handle(PointerMove(300, 200), RECT)
    assert o.rotation is rotation
    assert not o.dragging


def test_one_orbit_looks_like_another_and_goes_its_own_way() -> None:
    theirs, mine = orbit(), Orbit()
    theirs.model, theirs.fov = "fisheye", 70.0
    theirs.set_up(np.array([0.0, 0.0, 1.0]))
    mine.look_like(theirs)
    key = theirs.camera(400, 300).key
    assert mine.camera(400, 300).key == key
    drag(mine, "left", [(200, 100), (240, 130)])
    drag(mine, "right", [(200, 100), (240, 130)])
    mine.handle(Wheel(200, 100, 2), RECT)
    mine.set_up(np.array([0.0, 1.0, 0.0]))
    assert mine.camera(400, 300).key != key
    assert theirs.camera(400, 300).key == key
