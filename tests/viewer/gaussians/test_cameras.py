"""Cameras: poses, JSON forms, other sizes, and the camera that frames a scene."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from splatview_viewer.core.errors import CameraError
from splatview_viewer.geometry.camera_text import (
    FILE_LIMIT,
    camera_from_json,
    camera_from_text,
)
from splatview_viewer.geometry.cameras import Camera, frame_points, intrinsics, look_at

EYE = np.eye(4).tolist()
K33 = [[50, 0, 32], [0, 50, 24], [0, 0, 1]]
SIMPLE = {"position": [1, 2, -3], "look_at": [0, 0, 0]}
FULL = {"viewmat": EYE, "K": K33}
POSE = look_at((1.0, -2.0, -4.0), (0.5, 0.2, 0.1))
GL = np.linalg.inv(POSE) @ np.diag([1.0, -1, -1, 1])
"""The same pose as nerfstudio writes it: camera to world, y up and z backward."""


def project(camera: Camera, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pixels (N, 2) and depth (N,) of world points."""
    rotation = camera.viewmat[:3, :3]
    local = np.asarray(points, np.float64) @ rotation.T + camera.viewmat[:3, 3]
    depth = local[:, 2]
    xy = local[:, :2]
    if camera.model == "pinhole":
        xy = xy / depth[:, None]
    return xy * np.diag(camera.K)[:2] + camera.K[:2, 2], depth


@pytest.mark.parametrize("seed", range(2))
def test_look_at_puts_the_target_in_the_middle_and_up_upward(seed):
    r = np.random.default_rng(seed)
    position, target, up = r.normal(size=(3, 3)) * 10 ** r.uniform(-3, 5)
    viewmat = look_at(position, target, up)
    rotation = viewmat[:3, :3]
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(rotation) == pytest.approx(1)
    distance = float(np.linalg.norm(target - position))
    local_target = viewmat @ [*target, 1]
    tolerance = 1e-9 * np.abs(target).max()
    np.testing.assert_allclose(local_target, [0, 0, distance, 1], atol=tolerance)
    shifted = rotation @ up
    assert shifted[0] == pytest.approx(0, abs=1e-9 * float(np.linalg.norm(up)))
    assert shifted[1] < 0
    camera = Camera(viewmat, intrinsics(50, 64, 48), 64, 48)
    np.testing.assert_allclose(camera.position, position, rtol=1e-9)


@pytest.mark.parametrize("size", [(200, 48), (64, 400)])
@pytest.mark.parametrize("model", ["pinhole", "ortho"])
def test_fitted_camera_shows_all_that_was_in_the_picture(model, size):
    K = np.array([[50.0, 0, 30], [0, 45, 20], [0, 0, 1]])
    camera = Camera(np.eye(4), K, 64, 48, model)
    points = np.random.default_rng(0).normal((0, 0, 5), size=(20, 3))
    first_pixels = project(camera, points)[0]
    last_pixels = project(camera.fitted(*size), points)[0]
    scale = min(size[0] / 64, size[1] / 48)
    # Measured from the middle of each picture.
    fitted_offsets = last_pixels - np.array(size) / 2
    np.testing.assert_allclose(fitted_offsets, (first_pixels - (32, 24)) * scale)
    assert np.array_equal(camera.K, K), "the original stays as it was"


@pytest.mark.parametrize(
    "change", [{}, {"model": "fisheye"}, {"near": 0.5, "far": 20.0}]
)
def test_camera_survives_json(change):
    camera = Camera(
        look_at((1, 2, 3), (-4, 5, 6), (0.1, 0.2, 0.9)),
        np.array([[500.5, 0, 310], [0, 480, 250], [0, 0, 1]]),
        640,
        480,
        **change,
    )
    back = camera_from_json(camera.to_json(), 640, 480)
    np.testing.assert_array_equal(back.viewmat, camera.viewmat)
    np.testing.assert_array_equal(back.K, camera.K)
    assert back.width == 640
    assert back.height == 480
    assert back.model == camera.model
    assert back.near == camera.near
    assert back.far == camera.far
    # A picture of another size has the camera fitted.
    half = camera_from_json(camera.to_json(), 320, 240)
    np.testing.assert_allclose(half.K[:2], camera.K[:2] / 2)


def test_json_forms_are_read(tmp_path):
    simple = SIMPLE | {"fov": 40, "up": [0, 0, 1]}
    camera = camera_from_json(json.dumps(simple), 64, 48)
    expected = look_at((1, 2, -3), (0, 0, 0), (0, 0, 1))
    np.testing.assert_array_equal(camera.viewmat, expected)
    np.testing.assert_array_equal(camera.K, intrinsics(40, 64, 48))
    (tmp_path / "camera.json").write_text(json.dumps(FULL))
    camera = camera_from_json(str(tmp_path / "camera.json"), 64, 48)
    # A camera without a size is of the picture's own.
    np.testing.assert_array_equal(camera.K, K33)
    sized = FULL | {"width": 128, "height": 96}
    assert camera_from_json(json.dumps(sized), 64, 48).K[0, 0] == 25


INVALID_SIMPLE = [
    ({"fov": "wide"}, "fov is 'wide', not a finite number"),
    ({"near": 5, "far": 2}, "0 < near < far"),
    ({"look_at": [1, 2, -3]}, "different points"),
    ({"fov": 179.6}, "fov is 179.6"),
    ({"model": "equal"}, "'equal', not 'pinhole', 'ortho' or"),
    ({"eye": 1}, "unknown key 'eye'; expected K"),
]
INVALID_FULL = [
    ({"K": K33[:2]}, "not a finite 3x3 matrix"),
    ({"K": [[0, 0, 1], [0, 5, 1], [0, 0, 1]]}, "focal lengths 0.0, 5.0"),
    ({"viewmat": np.diag([1, 1, -1, 1]).tolist()}, "not a rotation"),
    ({"viewmat": [[math.inf] * 4] * 4}, "a finite 4x4 matrix"),
    ({"width": 64}, "two whole numbers"),
    ({"width": 0, "height": 5}, "a size of 0x5"),
]


@pytest.mark.parametrize(
    ("form", "change", "message"),
    [
        *((SIMPLE, *case) for case in INVALID_SIMPLE),
        *((FULL, *case) for case in INVALID_FULL),
    ],
)
def test_invalid_json_forms_say_what_is_wrong(form, change, message):
    with pytest.raises(CameraError, match=message):
        camera_from_json(json.dumps(form | change), 64, 48)


def test_unreadable_json_is_refused(tmp_path):
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large.json").write_text('{"fov": 1, ' + " " * FILE_LIMIT + "}")
    for source, message in (
        ("", "neither a JSON object nor a readable file"),
        ("none.json", "No such file"),
        (str(tmp_path), "Is a directory"),
        ('{"a":' + "[" * 100_000, "not JSON"),
        ("{}", 'needs "viewmat" and "K", or'),
        ('{"K": 1}', '"viewmat" is missing'),
        (str(tmp_path / "bytes.json"), "neither"),
        (str(tmp_path / "large.json"), "not JSON"),
    ):
        with pytest.raises(CameraError, match=message) as caught:
            camera_from_json(source, 64, 48)
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"camera_to_world": [[1, 2], [3]]}, r"\[\[1, 2\], \[3\]\], not 16 numbers"),
        ({"camera_to_world": [0] * 12}, "holds no rotation"),
        ({"camera_to_world": "[1, 2"}, "'\\[1, 2', not 16 numbers"),
        ({"camera_to_world": EYE, "camera_type": "vr180"}, "perspective, fisheye"),
        ({"transform_matrix": EYE, "fl_x": -3}, "focal lengths -3, -3"),
        ({"transform_matrix": EYE, "camera_angle_x": 4}, "an angle from 0 to pi"),
        ({"transform_matrix": EYE, "w": 0.5, "h": 9}, "a size of 0.5x9"),
        ({"frames": [{"transform_matrix": [math.nan] * 16}]}, "no rotation"),
        ([{"rotation": EYE, "position": [0, 0, 0]}], "not a finite 3x3 matrix"),
        ([{"rotation": [[1, 0, 0]] * 3, "position": [0, 0, 0]}], "not a rotation"),
        ([1, 2], "neither a JSON object"),
    ],
)
def test_invalid_forms_of_other_programs_say_what_is_wrong(
    document: Any, message: str
) -> None:
    with pytest.raises(CameraError, match=message):
        camera_from_json(json.dumps(document), 64, 48)


# -- forms that are pasted -----------------------------------------------------


@pytest.mark.parametrize(
    "pose",
    [
        GL.tolist(),
        GL[:3].ravel().tolist(),
        (GL @ np.diag([2.5, 2.5, 2.5, 1])).tolist(),
        json.dumps(GL[:3].tolist()),
        json.dumps(GL.T.ravel().tolist()),
        GL.T.ravel().tolist(),
        " ".join(map(str, GL.ravel())),
    ],
)
def test_camera_of_a_nerfstudio_path_is_read(pose: Any) -> None:
    """Read matrices by rows, or by columns as in three.js, as numbers or as text."""
    frame = {"camera_to_world": pose, "fov": 40, "aspect": 1.33}
    second_frame = {"camera_to_world": EYE}
    whole_path = {"camera_path": [frame, second_frame], "fps": 24}
    for document in (frame, whole_path):
        camera = camera_from_text(json.dumps(document), 400, 300)
        np.testing.assert_allclose(camera.viewmat, POSE, atol=1e-9)
        np.testing.assert_allclose(camera.K, intrinsics(40, 400, 300))
        assert camera.width == 400
        assert camera.height == 300


def test_fisheye_camera_of_nerfstudio_has_a_perspective_focal_length() -> None:
    frame = {"camera_to_world": GL.tolist(), "fov": 100}
    text = json.dumps({"camera_path": [frame], "camera_type": "fisheye"})
    camera = camera_from_text(text, 400, 300)
    focal = 150 / math.tan(math.radians(50))
    assert camera.model == "fisheye"
    np.testing.assert_allclose(np.diag(camera.K), [focal, focal, 1])


FRAME = {"transform_matrix": GL.tolist(), "file_path": "images/1.jpg"}


@pytest.mark.parametrize(
    ("shared", "K"),
    [
        (
            {"fl_x": 500, "fl_y": 480, "cx": 310, "cy": 250, "w": 640, "h": 480},
            [[250, 0, 155], [0, 240, 125], [0, 0, 1]],
        ),
        (
            {"fl_x": 500, "w": 640, "h": 480, "camera_model": "OPENCV", "cx": None},
            [[250, 0, 160], [0, 250, 120], [0, 0, 1]],
        ),
        (
            {"camera_angle_x": 2 * math.atan(0.5)},
            [[240, 0, 160], [0, 240, 120], [0, 0, 1]],
        ),
        (
            {"camera_angle_x": 2 * math.atan(0.5), "w": 640, "h": 480},
            [[320, 0, 160], [0, 320, 120], [0, 0, 1]],
        ),
        ({}, intrinsics(50, 320, 240).tolist()),
    ],
)
def test_frame_of_a_transforms_json_is_read_as_a_camera(
    shared: dict[str, Any], K: Any, tmp_path: Any
) -> None:
    """Read a frame by itself, or the first of a file with what all frames share."""
    second_frame = FRAME | {"transform_matrix": EYE}
    document = shared | {"frames": [FRAME, second_frame]}
    file = tmp_path / "transforms.json"
    file.write_text("\ufeff" + json.dumps(document))
    for source in (json.dumps(FRAME | shared), str(file)):
        camera = camera_from_json(source, 320, 240)
        np.testing.assert_allclose(camera.viewmat, POSE, atol=1e-9)
        np.testing.assert_allclose(camera.K, K)
        assert camera.width == 320
        assert camera.height == 240
        assert camera.model == "pinhole"


def test_fisheye_frame_of_a_transforms_json_is_equidistant() -> None:
    frame = FRAME | {"fl_x": 200, "w": 64, "h": 48, "camera_model": "OPENCV_FISHEYE"}
    assert camera_from_json(json.dumps(frame), 64, 48).model == "fisheye"


def test_entry_of_a_cameras_json_is_read_as_a_camera(tmp_path: Any) -> None:
    """Check a camera of inria's trainer: camera to world in OpenCV's axes."""
    camera = {
        "id": 0,
        "img_name": "0001",
        "width": 640,
        "height": 480,
        "position": [1.0, -2.0, -4.0],
        "rotation": POSE[:3, :3].T.tolist(),
        "fx": 500.0,
        "fy": 480.0,
    }
    (tmp_path / "cameras.json").write_text(json.dumps([camera, camera]))
    for source in (json.dumps(camera), str(tmp_path / "cameras.json")):
        got = camera_from_json(source, 320, 240)
        np.testing.assert_allclose(got.viewmat, POSE, atol=1e-12)
        np.testing.assert_allclose(got.K, [[250, 0, 160], [0, 240, 120], [0, 0, 1]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no text"),
        ("/etc/passwd", "JSON object"),
        ("{" + " " * (1 << 21), "characters"),
    ],
)
def test_text_without_a_camera_is_refused(text: str, message: str) -> None:
    with pytest.raises(CameraError, match=r"^camera: ") as caught:
        camera_from_text(text, 400, 300)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400


# -- the camera that frames a scene --------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_frame_points_shows_all_of_a_random_box(seed):
    r = np.random.default_rng(seed)
    center = r.normal(size=3) * 10 ** r.uniform(-3, 6)
    unit_points = r.uniform(-1, 1, (r.integers(1, 3000), 3))
    points = (center + unit_points * 10 ** r.uniform(-2, 3, 3)).astype(np.float32)
    width, height = (int(v) for v in r.integers(16, 2000, 2))
    camera = frame_points(points, width, height, up=r.normal(size=3))
    pixels, depth = project(camera, points)
    assert ((pixels >= 0) & (pixels <= [width, height])).all()
    assert (depth > camera.near).all()


@pytest.mark.parametrize(
    "points",
    [np.zeros((0, 3)), np.full((5, 3), np.nan), np.full((2, 3), 1e300) * [[1], [-1]]],
)
def test_frame_points_shows_the_unit_ball_without_finite_points(points):
    camera = frame_points(points, 640, 480)
    pixels, _ = project(camera, np.concatenate([np.eye(3), -np.eye(3)]))
    assert ((pixels > 0) & (pixels < [640, 480])).all()
    assert np.ptp(pixels[:, 1]) > 240
