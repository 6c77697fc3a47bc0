"""Cameras: poses, their JSON forms and errors, other sizes, and the camera that frames a scene."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from splatview.viewer_app.cameras import (
    DEFAULT_UP,
    FILE_LIMIT,
    Camera,
    bounds,
    camera_from_json,
    field_of_view,
    focal_length,
    frame_points,
    intrinsics,
    look_at,
)
from splatview.viewer_app.errors import CameraError

EYE = np.eye(4).tolist()
K33 = [[50, 0, 32], [0, 50, 24], [0, 0, 1]]
SIMPLE = {"position": [1, 2, -3], "look_at": [0, 0, 0]}
FULL = {"viewmat": EYE, "K": K33}


def project(camera: Camera, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (N, 2) and depth (N,) of world points."""
    p = np.asarray(points, np.float64) @ camera.viewmat[:3, :3].T + camera.viewmat[:3, 3]
    xy = p[:, :2] / (p[:, 2:] if camera.model == "pinhole" else 1)
    return xy * np.diag(camera.K)[:2] + camera.K[:2, 2], p[:, 2]


@pytest.mark.parametrize("seed", range(20))
def test_look_at_puts_the_target_in_the_middle_and_up_upward(seed):
    r = np.random.default_rng(seed)
    position, target, up = r.normal(size=(3, 3)) * 10 ** r.uniform(-3, 5)
    viewmat = look_at(position, target, up)
    rotation = viewmat[:3, :3]
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(rotation) == pytest.approx(1)
    distance = float(np.linalg.norm(target - position))
    np.testing.assert_allclose(viewmat @ [*target, 1], [0, 0, distance, 1], atol=1e-9 * np.abs(target).max())
    shifted = rotation @ up
    assert shifted[0] == pytest.approx(0, abs=1e-9 * float(np.linalg.norm(up))) and shifted[1] < 0  # y points down
    camera = Camera(viewmat, intrinsics(50, 64, 48), 64, 48)
    np.testing.assert_allclose(camera.position, position, rtol=1e-9)


def test_look_at_by_hand():
    np.testing.assert_allclose(look_at((0, 0, -3), (0, 0, 0)), [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 3], [0, 0, 0, 1]])
    # From the right of the scene: what lies ahead (+z) appears on the right, to turn left is to look along -x.
    np.testing.assert_allclose(look_at((3, 0, 0), (0, 0, 0))[:3, :3], [[0, 0, 1], [0, 1, 0], [-1, 0, 0]], atol=1e-15)


@pytest.mark.parametrize("up", [(0, 0, 1), (0, 0, -5), (0, 1e-14, 1), (0, 0, 1e300), (0, 0, 1e-300)])
def test_look_at_along_up_is_still_a_rotation(up):
    rotation = look_at((0, 0, 0), (0, 0, 2), up)[:3, :3]
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(rotation[2], [0, 0, 1])


@pytest.mark.parametrize(("position", "target", "up", "message"), [
    ((1, 2, 3), (1, 2, 3), DEFAULT_UP, "two finite, different points"),
    ((math.nan, 0, 0), (1, 2, 3), DEFAULT_UP, "two finite, different points"),
    ((1e308, 0, 0), (-1e308, 2, 3), DEFAULT_UP, "two finite, different points"),
    ((0, 0, 0), (1, 2, 3), (0, 0, 0), r"up is \[0.0, 0.0, 0.0\]"),
    ((0, 0, 0), (1, 2, 3), (0, math.nan, 0), "up is"),
    ((0, 0, 0), (1, 2, 3), (0, 1), "up is")])
def test_look_at_says_what_is_wrong(position, target, up, message):
    with pytest.raises(CameraError, match=message):
        look_at(position, target, up)


def test_field_of_view():
    camera = Camera(np.eye(4), intrinsics(60, 640, 480), 640, 480)
    edge = math.tan(math.radians(30))
    np.testing.assert_allclose(project(camera, np.array([[0, edge, 1], [0, -2 * edge, 2], [0, 0, 1]]))[0],
                               [[320, 480], [320, 0], [320, 240]], atol=1e-9)
    for fov in (0, 179.6, -3, math.nan, math.inf):
        with pytest.raises(CameraError, match="fov is"):
            intrinsics(fov, 4, 4)


@pytest.mark.parametrize("model", ["pinhole", "ortho"])
@pytest.mark.parametrize("size", [(128, 96), (50, 96), (300, 20), (64, 48)])
def test_resized_keeps_the_vertical_extent(model, size):
    K = np.array([[50.0, 0, 30], [0, 45, 20], [0, 0, 1]])
    camera = Camera(np.eye(4), K, 64, 48, model)
    points = np.random.default_rng(0).normal((0, 0, 5), size=(20, 3))
    before, after = project(camera, points)[0], project(camera.resized(*size), points)[0]
    s = size[1] / 48
    np.testing.assert_allclose(after[:, 1], before[:, 1] * s)  # the same share of the height
    np.testing.assert_allclose(after[:, 0] - size[0] / 2, (before[:, 0] - 32) * s)  # measured from the middle
    assert np.array_equal(camera.K, K), "the original stays as it was"


@pytest.mark.parametrize("size", [(64, 48), (128, 96), (200, 48), (20, 48), (64, 400), (31, 7)])
@pytest.mark.parametrize("model", ["pinhole", "ortho", "fisheye"])
def test_fitted_shows_all_that_was_seen(model, size):
    K = np.array([[50.0, 0, 30], [0, 45, 20], [0, 0, 1]])
    camera = Camera(np.eye(4), K, 64, 48, model)
    points = np.random.default_rng(0).normal((0, 0, 5), size=(20, 3))
    before, after = project(camera, points)[0], project(camera.fitted(*size), points)[0]
    s = min(size[0] / 64, size[1] / 48)
    np.testing.assert_allclose(after - np.array(size) / 2, (before - (32, 24)) * s)  # measured from the middle
    assert np.array_equal(camera.K, K), "the original stays as it was"


@pytest.mark.parametrize("change", [{}, {"model": "ortho"}, {"model": "fisheye"}, {"near": 0.5, "far": 20.0}])
def test_json_round_trip(change):
    camera = Camera(look_at((1, 2, 3), (-4, 5, 6), (0.1, 0.2, 0.9)),
                    np.array([[500.5, 0, 310], [0, 480, 250], [0, 0, 1]]), 640, 480, **change)
    back = camera_from_json(camera.to_json(), 640, 480)
    np.testing.assert_array_equal(back.viewmat, camera.viewmat)
    np.testing.assert_array_equal(back.K, camera.K)
    assert (back.width, back.height, back.model, back.near, back.far) == (
        640, 480, camera.model, camera.near, camera.far)
    half = camera_from_json(camera.to_json(), 320, 240)  # fitted to another picture
    np.testing.assert_allclose(half.K[:2], camera.K[:2] / 2)


def test_json_forms(tmp_path):
    camera = camera_from_json(json.dumps(SIMPLE | {"fov": 40, "up": [0, 0, 1]}), 64, 48)
    np.testing.assert_array_equal(camera.viewmat, look_at((1, 2, -3), (0, 0, 0), (0, 0, 1)))
    np.testing.assert_array_equal(camera.K, intrinsics(40, 64, 48))
    (tmp_path / "camera.json").write_text(json.dumps(FULL))
    camera = camera_from_json(str(tmp_path / "camera.json"), 64, 48)
    np.testing.assert_array_equal(camera.K, K33)  # made for the picture's own size
    assert camera_from_json(json.dumps(FULL | {"width": 128, "height": 96}), 64, 48).K[0, 0] == 25


def test_ortho_shows_as_much_as_pinhole_at_the_target():
    pinhole, ortho = (camera_from_json(json.dumps(SIMPLE | {"model": m}), 64, 48) for m in ("pinhole", "ortho"))
    across = pinhole.viewmat[:2, :3] * 0.7  # two points beside the target, at its distance
    np.testing.assert_allclose(project(ortho, across)[0], project(pinhole, across)[0])


def test_fisheye_shows_the_angle_from_top_to_bottom():
    camera = camera_from_json(json.dumps(SIMPLE | {"model": "fisheye", "fov": 120}), 64, 48)
    assert camera.K[1, 1] * math.radians(60) == pytest.approx(24)  # pixels per radian
    for model in ("pinhole", "fisheye"):
        assert field_of_view(focal_length(100, 48, model), 48, model) == pytest.approx(100)


@pytest.mark.parametrize(("change", "message"), [
    ({"fov": "wide"}, "fov: 'wide' is not a number"), ({"fov": 0}, "fov is 0"), ({"fov": True}, "True is not a number"),
    ({"near": 0}, "near 0.* and far"), ({"near": 5, "far": 2}, "0 < near < far"), ({"far": None}, "far: None"),
    ({"near": math.nan}, "0 < near < far"), ({"up": [0, 0]}, r"up is \[0, 0\]; three finite"),
    ({"up": None}, "up is None"), ({"up": [0, 0, 0]}, "not all 0"), ({"position": ["1", 0, 0]}, r"position is \['1'"),
    ({"look_at": 3}, "look_at is 3"), ({"look_at": [1, 2, -3]}, "different points"),
    ({"look_at": [10**400, 0, 0]}, "look_at is"), ({"model": "equal"}, "'equal', not 'pinhole', 'ortho' or"),
    ({"model": []}, r"model is \[\]"), ({"eye": 1}, "unknown key 'eye'; legal are K, far, fov"),
    ({"viewmat": EYE, "K": K33}, "does not go with"), ({"K": K33}, "does not go with")])
def test_json_simple_form_says_what_is_wrong(change, message):
    with pytest.raises(CameraError, match=message):
        camera_from_json(json.dumps(SIMPLE | change), 64, 48)


@pytest.mark.parametrize(("change", "message"), [
    ({"K": None}, "K is not a 3x3 matrix"), ({"K": K33[:2]}, r"K has shape \(2, 3\)"),
    ({"K": [[0, 0, 1], [0, 5, 1], [0, 0, 1]]}, "focal lengths 0.0, 5.0"),
    ({"K": [[5, 1, 1], [0, 5, 1], [0, 0, 1]]}, "not of the form"), ({"K": [[1, 2], [3]]}, "K is not a 3x3"),
    ({"viewmat": np.diag([1, 1, 2, 1]).tolist()}, "not a rotation"),
    ({"viewmat": np.diag([1, 1, -1, 1]).tolist()}, "not a rotation"),
    ({"viewmat": np.diag([1, 1, 1, 2]).tolist()}, "last row of viewmat"),
    ({"viewmat": [[math.inf] * 4] * 4}, "a finite 4x4 matrix"), ({"viewmat": "x"}, "viewmat is not"),
    ({"viewmat": [[1e300] * 4] * 4}, "not a rotation"), ({"width": 64}, "two whole numbers"),
    ({"width": 0, "height": 5}, "a size of 0x5"), ({"width": 6.5, "height": 5}, "a size of 6.5x5"),
    ({"width": "6", "height": 5}, "width: '6' is not a number"), ({"width": math.inf, "height": 5}, "a size of infx5"),
    ({"width": math.nan, "height": 5}, "a size of nanx5")])
def test_json_matrix_form_says_what_is_wrong(change, message):
    with pytest.raises(CameraError, match=message):
        camera_from_json(json.dumps(FULL | change), 64, 48)


def test_json_that_is_none(tmp_path):
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large.json").write_text('{"fov": 1, ' + " " * FILE_LIMIT + "}")
    for source, message in (("", "neither a JSON object nor a readable file"), ("none.json", "No such file"),
                            ("\0", "neither"), (str(tmp_path), "Is a directory"), ("{", "not JSON"),
                            ('{"a":' + "[" * 100_000, "not JSON"), ("{}", 'needs "viewmat" and "K", or'),
                            ('{"position": [0, 0, 0]}', "got position"), ('{"K": 1}', '"viewmat" is missing'),
                            (str(tmp_path / "list.json"), "a JSON object is needed, not a list"),
                            (str(tmp_path / "bytes.json"), "neither"), (str(tmp_path / "large.json"), "not JSON")):
        with pytest.raises(CameraError, match=message) as caught:
            camera_from_json(source, 64, 48)
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("seed", range(60))
def test_the_whole_of_a_random_box_is_in_view(seed):
    r = np.random.default_rng(seed)
    center = r.normal(size=3) * 10 ** r.uniform(-3, 6)
    points = (center + r.uniform(-1, 1, (r.integers(1, 3000), 3)) * 10 ** r.uniform(-2, 3, 3)).astype(np.float32)
    width, height = (int(v) for v in r.integers(16, 2000, 2))
    camera = frame_points(points, width, height, up=r.normal(size=3))
    pixels, depth = project(camera, points)
    assert ((pixels >= 0) & (pixels <= [width, height])).all() and (depth > camera.near).all()


def test_a_cube_fills_half_of_the_picture():
    for size in ((640, 480), (300, 900)):
        points = np.random.default_rng(0).uniform(-1, 1, (500, 3))
        pixels, _ = project(frame_points(points, *size), points)
        assert np.ptp(pixels, axis=0).min() > 0.5 * min(size)


def test_frame_points_at_a_million():
    points = np.full((500, 3), 1e6, np.float32) + np.random.default_rng(0).uniform(-2, 2, (500, 3)).astype(np.float32)
    camera = frame_points(points, 640, 480)
    pixels, depth = project(camera, points)
    assert ((pixels > 0) & (pixels < [640, 480])).all() and depth.min() > 0 and depth.max() < 20


@pytest.mark.parametrize("points", [
    np.zeros((0, 3)), np.full((5, 3), np.nan), np.full((5, 3), np.inf), np.full((2, 3), 1e300) * [[1], [-1]]])
def test_without_a_finite_point_the_unit_ball_is_framed(points):
    camera = frame_points(points, 640, 480)
    pixels, _ = project(camera, np.concatenate([np.eye(3), -np.eye(3)]))
    assert ((pixels > 0) & (pixels < [640, 480])).all() and np.ptp(pixels[:, 1]) > 240


def test_what_is_not_finite_or_has_no_weight_is_ignored():
    r = np.random.default_rng(1)
    points = r.normal(size=(400, 3))
    spoiled = np.concatenate([points, np.full((100, 3), np.nan), [[np.inf, 0, 0]]])
    expected = frame_points(points, 64, 48)
    np.testing.assert_array_equal(frame_points(spoiled, 64, 48).viewmat, expected.viewmat)
    far = np.concatenate([points, np.full((900, 3), 1e4)])
    weights = np.r_[np.ones(400), np.zeros(900)]
    np.testing.assert_array_equal(frame_points(far, 64, 48, weights=weights).viewmat, expected.viewmat)


def test_floaters_do_not_push_the_scene_away():
    r = np.random.default_rng(2)
    points = r.uniform(-1, 1, (5000, 3))
    points[:50] *= 10_000
    center, radius = bounds(points)
    assert np.abs(center).max() < 0.1 and radius < 2
    assert np.linalg.norm(frame_points(points, 64, 48).position) < 8


def test_one_point_and_many_points():
    camera = frame_points(np.array([[3.0, 4, 5]]), 64, 48)
    np.testing.assert_allclose(project(camera, np.array([[3.0, 4, 5]]))[0], [[32, 24]], atol=1e-6)
    points = np.random.default_rng(3).uniform(-1, 1, (300_000, 3)).astype(np.float32)  # a sample is looked at
    pixels, _ = project(frame_points(points, 64, 48), points)
    assert ((pixels >= 0) & (pixels <= [64, 48])).all()


@pytest.mark.parametrize("up", [(0, -1, 0), (0, 1, 0), (0, 0, 1), (0, 0, -1), (1, 0, 0), (0, 0, 1e-200)])
def test_frame_points_looks_slightly_down_with_up_upward(up):
    camera = frame_points(np.random.default_rng(4).normal(size=(100, 3)), 64, 48, up=up)
    unit = np.array(up) / np.abs(up).max()
    assert camera.viewmat[1, :3] @ unit < -0.9, "up is upward in the picture"
    assert camera.viewmat[2, :3] @ unit < 0, "and seen from a little above"


@pytest.mark.parametrize(("arguments", "message"), [
    ({"width": 0}, "a size of 0x48"), ({"height": -1}, "a size of 64x-1"), ({"up": (0, 0, 0)}, "up is"),
    ({"fov": 200}, "fov is 200")])
def test_frame_points_says_what_is_wrong(arguments, message):
    with pytest.raises(CameraError, match=message):
        frame_points(np.zeros((1, 3)), **{"width": 64, "height": 48, **arguments})
