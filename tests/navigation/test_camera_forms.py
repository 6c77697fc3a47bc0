"""Cameras that a user pastes: our forms and nerfstudio's, and what is none of them."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from splatview.viewer_app.cameras import Camera, intrinsics, look_at
from splatview.viewer_app.errors import CameraError
from splatview.viewer_app.memo import Memo
from splatview.viewer_app.navigation.bookmarks import MOST, Bookmarks
from splatview.viewer_app.navigation.camera_forms import camera_from_text

if TYPE_CHECKING:
    from pathlib import Path

POSE = look_at((1.0, -2.0, -4.0), (0.5, 0.2, 0.1))
CAMERA = Camera(POSE, intrinsics(40, 400, 300), 400, 300, "fisheye", 0.2, 50.0)
GL = np.linalg.inv(POSE) @ np.diag([1.0, -1, -1, 1])
"""The same pose as nerfstudio writes it: camera to world, y up and z backward."""


def test_what_is_copied_is_what_is_pasted() -> None:
    assert camera_from_text(f"\n {CAMERA.to_json()} ", 400, 300).key == CAMERA.key
    words = '{"position": [0, 0, -2], "look_at": [0, 0, 0]}'
    np.testing.assert_allclose(camera_from_text(words, 40, 30).position, (0, 0, -2))


@pytest.mark.parametrize("pose", [GL.tolist(), GL[:3].tolist(), GL.ravel().tolist(), GL[:3].ravel().tolist(),
                                  (GL @ np.diag([2.5, 2.5, 2.5, 1])).tolist()])
def test_a_camera_of_a_nerfstudio_path(pose: Any) -> None:
    one = {"camera_to_world": pose, "fov": 40, "aspect": 1.33}
    for d in (one, {"camera_path": [one, {"camera_to_world": np.eye(4).tolist()}], "fps": 24}):
        camera = camera_from_text(json.dumps(d), 400, 300)
        np.testing.assert_allclose(camera.viewmat, POSE, atol=1e-9)
        np.testing.assert_allclose(camera.K, intrinsics(40, 400, 300))
        assert (camera.width, camera.height) == (400, 300)


@pytest.mark.parametrize(("lens", "fov"), [
    ({"fl_y": 500.0, "h": 800}, 2 * math.degrees(math.atan(0.8))),
    ({"camera_angle_x": 1.0, "w": 400, "h": 300}, math.degrees(2 * math.atan(math.tan(0.5) * 0.75))),
    ({"camera_angle_x": 1.0}, math.degrees(1.0)), ({"camera_angle_y": 0.5}, math.degrees(0.5)), ({}, 50.0),
])
def test_a_frame_of_a_transforms_json(lens: dict[str, float], fov: float) -> None:
    camera = camera_from_text(json.dumps({"transform_matrix": GL.tolist(), "file_path": "a.png", **lens}), 640, 480)
    np.testing.assert_allclose(camera.viewmat, POSE, atol=1e-9)
    np.testing.assert_allclose(camera.K, intrinsics(fov, 640, 480))


@pytest.mark.parametrize(("text", "said"), [
    ("", "there is no text"), ("hello\nthere", "not 'hello'"), ("/etc/passwd", "JSON object"), ("[1, 2]", "JSON"),
    ("{", "not JSON"), ("{" * 100_000, "not JSON"), ("{" + " " * (1 << 21), "characters"), ("{}", "needs"),
    ('{"camera_to_world": 3}', "camera_to_world is no 4x4"),
    ('{"camera_to_world": [[1, 2], [3]]}', "camera_to_world is no 4x4"),
    ('{"camera_to_world": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}', "not a rotation"),
    ('{"camera_to_world": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]}', "not a rotation"),
    ('{"camera_to_world": [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, -1, 0]}', "not a rotation"),
    ('{"camera_to_world": [1, 0, 0, NaN, 0, 1, 0, 0, 0, 0, 1, 0]}', "finite"),
    ('{"camera_to_world": ["a", 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0]}', "finite"),
    (f'{{"camera_to_world": {GL.tolist()}, "fov": 0}}', "fov is 0"),
    (f'{{"camera_to_world": {GL.tolist()}, "fov": "wide"}}', "'wide'"),
    (f'{{"camera_to_world": {GL.tolist()}, "fov": 179.9}}', "179.9"),
    (f'{{"transform_matrix": {GL.tolist()}, "fl_y": -1, "h": 3}}', "fl_y is -1"),
    (f'{{"transform_matrix": {GL.tolist()}, "fl_y": 1e400, "h": 3}}', "fl_y"),
    ('{"position": [0, 0, 0], "look_at": [0, 0, 0]}', "different points"),
])
def test_what_is_no_camera_is_said(text: str, said: str) -> None:
    with pytest.raises(CameraError, match=r"^camera: ") as caught:
        camera_from_text(text, 400, 300)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 400


# -- bookmarks -----------------------------------------------------------------------------------------------


def test_bookmarks_outlive_the_viewer(tmp_path: Path) -> None:
    file = tmp_path / "viewer.json"
    kept = Bookmarks(Memo(file), "scene")
    assert kept.numbers == []
    assert kept.put(CAMERA, np.array([0.5, 0.2, 0.1])) == 1
    assert kept.put(CAMERA, np.zeros(3), 7) == 7
    assert kept.put(CAMERA, np.zeros(3)) == 2
    kept.delete(7)
    again = Bookmarks(Memo(file), "scene")
    assert again.numbers == [1, 2]
    found = again.get(1, 400, 300)
    assert found is not None
    assert found.camera.key == CAMERA.key
    np.testing.assert_array_equal(found.pivot, (0.5, 0.2, 0.1))
    assert again.get(3, 400, 300) is None
    assert Bookmarks(Memo(file), "another").numbers == []
    again.delete(1)
    again.delete(2)
    again.delete(2)
    assert Memo(file).get("bookmarks/scene") is None


def test_there_is_an_end_to_bookmarks() -> None:
    kept = Bookmarks(Memo(), "scene")
    assert [kept.put(CAMERA, np.zeros(3)) for _ in range(MOST)] == list(range(1, MOST + 1))
    assert kept.put(CAMERA, np.zeros(3)) is None
    assert kept.put(CAMERA, np.ones(3), 5) == 5  # another in its place is none more


@pytest.mark.parametrize("held", [
    3, [], "x", {"1": 3}, {"1": {}}, {"1": {"camera": {}, "pivot": [0, 0, 0]}}, {"0": {}, "-1": {}, "a": {}, "99": {}},
    {"1": {"camera": json.loads(CAMERA.to_json())}}, {"1": {"camera": "/etc/passwd", "pivot": [0, 0, 0]}},
    {"1": {"camera": json.loads(CAMERA.to_json()), "pivot": [0, "b", 0]}},
    {"1": {"camera": json.loads(CAMERA.to_json()), "pivot": [0, 1e999, 0]}}, {"²": {}}, {"9" * 5000: {}},
])
def test_the_memo_may_hold_anything(held: Any) -> None:
    memo = Memo()
    memo.put("bookmarks/scene", held)
    kept = Bookmarks(memo, "scene")
    assert set(kept.numbers) <= {1}
    assert kept.get(1, 400, 300) is None
    kept.delete(1)
    assert kept.put(CAMERA, np.zeros(3)) == 1
    assert kept.get(1, 400, 300) is not None
