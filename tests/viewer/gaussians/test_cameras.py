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
    """Pixels (N, 2) and depth (N,) of world points."""
    p = (
        np.asarray(points, np.float64) @ camera.viewmat[:3, :3].T
        + camera.viewmat[:3, 3]
    )
    xy = p[:, :2] / (p[:, 2:] if camera.model == "pinhole" else 1)
    return xy * np.diag(camera.K)[:2] + camera.K[:2, 2], p[:, 2]


@pytest.mark.parametrize("seed", range(2))
def test_look_at_puts_the_target_in_the_middle_and_up_upward(seed):
    r = np.random.default_rng(seed)
    position, target, up = r.normal(size=(3, 3)) * 10 ** r.uniform(-3, 5)
    viewmat = look_at(position, target, up)
    rotation = viewmat[:3, :3]
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(rotation) == pytest.approx(1)
    distance = float(np.linalg.norm(target - position))
    np.testing.assert_allclose(
        viewmat @ [*target, 1], [0, 0, distance, 1], atol=1e-9 * np.abs(target).max()
    )
    shifted = rotation @ up
    assert shifted[0] == pytest.approx(0, abs=1e-9 * float(np.linalg.norm(up)))
    assert shifted[1] < 0
    camera = Camera(viewmat, intrinsics(50, 64, 48), 64, 48)
    np.testing.assert_allclose(camera.position, position, rtol=1e-9)


@pytest.mark.parametrize("size", [(200, 48), (64, 400)])
@pytest.mark.parametrize("model", ["pinhole", "ortho"])
def test_fitted_shows_all_that_was_seen(model, size):
    K = np.array([[50.0, 0, 30], [0, 45, 20], [0, 0, 1]])
    camera = Camera(np.eye(4), K, 64, 48, model)
    points = np.random.default_rng(0).normal((0, 0, 5), size=(20, 3))
    first_pixels = project(camera, points)[0]
    last_pixels = project(camera.fitted(*size), points)[0]
    s = min(size[0] / 64, size[1] / 48)
    np.testing.assert_allclose(
        last_pixels - np.array(size) / 2, (first_pixels - (32, 24)) * s
    )  # measured from the middle
    assert np.array_equal(camera.K, K), "the original stays as it was"


@pytest.mark.parametrize(
    "change", [{}, {"model": "fisheye"}, {"near": 0.5, "far": 20.0}]
)
def test_json_round_trip(change):
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
    assert (back.width, back.height, back.model, back.near, back.far) == (
        640,
        480,
        camera.model,
        camera.near,
        camera.far,
    )
    half = camera_from_json(camera.to_json(), 320, 240)  # fitted to another picture
    np.testing.assert_allclose(half.K[:2], camera.K[:2] / 2)


def test_json_forms(tmp_path):
    camera = camera_from_json(json.dumps(SIMPLE | {"fov": 40, "up": [0, 0, 1]}), 64, 48)
    np.testing.assert_array_equal(
        camera.viewmat, look_at((1, 2, -3), (0, 0, 0), (0, 0, 1))
    )
    np.testing.assert_array_equal(camera.K, intrinsics(40, 64, 48))
    (tmp_path / "camera.json").write_text(json.dumps(FULL))
    camera = camera_from_json(str(tmp_path / "camera.json"), 64, 48)
    np.testing.assert_array_equal(camera.K, K33)  # made for the picture's own size
    assert (
        camera_from_json(json.dumps(FULL | {"width": 128, "height": 96}), 64, 48).K[
            0, 0
        ]
        == 25
    )


@pytest.mark.parametrize(
    ("form", "change", "message"),
    [
        *(
            (SIMPLE, *case)
            for case in (
                ({"fov": "wide"}, "fov is 'wide', not a finite number"),
                ({"near": 5, "far": 2}, "0 < near < far"),
                ({"look_at": [1, 2, -3]}, "different points"),
                ({"fov": 179.6}, "fov is 179.6"),
                ({"model": "equal"}, "'equal', not 'pinhole', 'ortho' or"),
                ({"eye": 1}, "unknown key 'eye'; legal are K"),
            )
        ),
        *(
            (FULL, *case)
            for case in (
                ({"K": K33[:2]}, "not a finite 3x3 matrix"),
                ({"K": [[0, 0, 1], [0, 5, 1], [0, 0, 1]]}, "focal lengths 0.0, 5.0"),
                ({"viewmat": np.diag([1, 1, -1, 1]).tolist()}, "not a rotation"),
                ({"viewmat": [[math.inf] * 4] * 4}, "a finite 4x4 matrix"),
                ({"width": 64}, "two whole numbers"),
                ({"width": 0, "height": 5}, "a size of 0x5"),
            )
        ),
    ],
)
def test_json_forms_say_what_is_wrong(form, change, message):
    with pytest.raises(CameraError, match=message):
        camera_from_json(json.dumps(form | change), 64, 48)


def test_json_that_is_none(tmp_path):
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
def test_forms_of_other_programs_say_what_is_wrong(document: Any, message: str) -> None:
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
def test_camera_of_a_nerfstudio_path(pose: Any) -> None:
    """Its matrix by rows, or by columns as three.js has it; as numbers or a text."""
    one = {"camera_to_world": pose, "fov": 40, "aspect": 1.33}
    for d in (
        one,
        {"camera_path": [one, {"camera_to_world": np.eye(4).tolist()}], "fps": 24},
    ):
        camera = camera_from_text(json.dumps(d), 400, 300)
        np.testing.assert_allclose(camera.viewmat, POSE, atol=1e-9)
        np.testing.assert_allclose(camera.K, intrinsics(40, 400, 300))
        assert (camera.width, camera.height) == (400, 300)


def test_fisheye_camera_of_a_nerfstudio_path_has_the_focal_length_of_a_perspective_one() -> (
    None
):
    one = {"camera_to_world": GL.tolist(), "fov": 100}
    text = json.dumps({"camera_path": [one], "camera_type": "fisheye"})
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
def test_frame_of_a_transforms_json_is_a_camera(
    shared: dict[str, Any], K: Any, tmp_path: Any
) -> None:
    """By itself, or the first of a file with what all frames share beside them."""
    expected = FRAME | {"transform_matrix": EYE}
    (tmp_path / "transforms.json").write_text(
        "\ufeff" + json.dumps(shared | {"frames": [FRAME, expected]})
    )
    for camera in (
        camera_from_json(json.dumps(FRAME | shared), 320, 240),
        camera_from_json(str(tmp_path / "transforms.json"), 320, 240),
    ):
        np.testing.assert_allclose(camera.viewmat, POSE, atol=1e-9)
        np.testing.assert_allclose(camera.K, K)
        assert (camera.width, camera.height, camera.model) == (320, 240, "pinhole")


def test_fisheye_frame_of_a_transforms_json_is_equidistant() -> None:
    d = FRAME | {"fl_x": 200, "w": 64, "h": 48, "camera_model": "OPENCV_FISHEYE"}
    assert camera_from_json(json.dumps(d), 64, 48).model == "fisheye"


def test_camera_of_a_cameras_json_is_a_camera(tmp_path: Any) -> None:
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
    ("text", "said"),
    [
        ("", "there is no text"),
        ("/etc/passwd", "JSON object"),
        ("{" + " " * (1 << 21), "characters"),
    ],
)
def test_what_is_no_camera_is_said(text: str, said: str) -> None:
    with pytest.raises(CameraError, match=r"^camera: ") as caught:
        camera_from_text(text, 400, 300)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 400


# -- the camera that frames a scene --------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_whole_of_a_random_box_is_in_view(seed):
    r = np.random.default_rng(seed)
    center = r.normal(size=3) * 10 ** r.uniform(-3, 6)
    points = (
        center + r.uniform(-1, 1, (r.integers(1, 3000), 3)) * 10 ** r.uniform(-2, 3, 3)
    ).astype(np.float32)
    width, height = (int(v) for v in r.integers(16, 2000, 2))
    camera = frame_points(points, width, height, up=r.normal(size=3))
    pixels, depth = project(camera, points)
    assert ((pixels >= 0) & (pixels <= [width, height])).all()
    assert (depth > camera.near).all()


@pytest.mark.parametrize(
    "points",
    [np.zeros((0, 3)), np.full((5, 3), np.nan), np.full((2, 3), 1e300) * [[1], [-1]]],
)
def test_without_a_finite_point_the_unit_ball_is_framed(points):
    camera = frame_points(points, 640, 480)
    pixels, _ = project(camera, np.concatenate([np.eye(3), -np.eye(3)]))
    assert ((pixels > 0) & (pixels < [640, 480])).all()
    assert np.ptp(pixels[:, 1]) > 240
