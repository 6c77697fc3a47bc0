"""Camera paths: through every key, without a jolt, and in nerfstudio's format there and back."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splatview.viewer_app import rotations
from splatview.viewer_app.cameras import Camera, field_of_view, intrinsics, look_at
from splatview.viewer_app.errors import CameraError
from splatview.viewer_app.paths.nerfstudio import FILE_LIMIT, Film, parse_path, read_path, write_path
from splatview.viewer_app.paths.path import CameraPath, Key, turntable

if TYPE_CHECKING:
    from pathlib import Path


def camera(position: Any, target: Any = (0, 0, 0), fov: float = 50.0) -> Camera:
    return Camera(look_at(position, target), intrinsics(fov, 640, 480), 640, 480)


PLACES = [(0, -1, -4), (3, -1, -3), (4, -2, 1), (0, -1, 4)]


def path(**more: Any) -> CameraPath:
    keys = [Key.of(camera(p, fov=40 + 10 * i), seconds=1 + 0.5 * i) for i, p in enumerate(PLACES)]
    return CameraPath(keys, **more)


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize("smooth", [False, True])
def test_it_leads_through_every_key(loop: bool, smooth: bool) -> None:
    way = path(loop=loop, smooth=smooth)
    assert len(way.times) == len(PLACES) + loop
    assert way.duration == pytest.approx(1 + 1.5 + 2 + (2.5 if loop else 0))
    for i, time in enumerate(way.times):
        wanted = camera(PLACES[i % len(PLACES)], fov=40 + 10 * (i % len(PLACES)))
        got = way.at(time, 640, 480)
        np.testing.assert_allclose(got.viewmat, wanted.viewmat, atol=1e-9)
        np.testing.assert_allclose(got.K, wanted.K, rtol=1e-9)


@pytest.mark.parametrize("loop", [False, True])
def test_it_is_smooth_at_the_keys(loop: bool) -> None:
    """Position and direction have the same velocity on both sides of a key; straight ways have not."""
    def jolts(way: CameraPath) -> float:
        worst, h = 0.0, 1e-5
        for time in way.times[1:-1]:
            before, here, after = (way.at(time + d, 640, 480).viewmat[:3] for d in (-h, 0, h))
            worst = max(worst, float(np.abs((after - here) - (here - before)).max()) / h)
        return worst

    assert jolts(path(loop=loop)) < 1e-3
    assert jolts(path(loop=loop, smooth=False)) > 0.1


def test_a_loop_ends_as_it_begins() -> None:
    way, h = path(loop=True), 1e-5
    start = way.at(h, 640, 480).viewmat - way.at(0, 640, 480).viewmat
    end = way.at(way.duration, 640, 480).viewmat - way.at(way.duration - h, 640, 480).viewmat
    np.testing.assert_allclose(start / h, end / h, atol=1e-3)


def test_every_camera_of_it_is_one() -> None:
    way = path(loop=True)
    for time in np.linspace(-1, way.duration + 1, 200):
        m = way.at(float(time), 320, 200).viewmat
        np.testing.assert_allclose(m[:3, :3] @ m[:3, :3].T, np.eye(3), atol=1e-9)
        assert np.linalg.det(m[:3, :3]) > 0
    np.testing.assert_array_equal(way.at(-1, 320, 200).viewmat, way.at(0, 320, 200).viewmat)


def test_a_straight_way_is_straight_and_even() -> None:
    way = CameraPath([Key.of(camera((x, 0, -4), (x, 0, 0)), seconds=1.0) for x in range(4)])
    for time in np.linspace(0, 3, 31):
        np.testing.assert_allclose(way.at(float(time), 64, 48).position, (time, 0, -4), atol=1e-9)


def test_few_keys() -> None:
    with pytest.raises(CameraError, match="no key frame"):
        CameraPath().at(0, 64, 48)
    alone = CameraPath([Key.of(camera(PLACES[0]))], loop=True)
    assert (alone.duration, alone.frames(30), CameraPath().frames(30)) == (0.0, 1, 0)
    np.testing.assert_allclose(alone.at(5, 640, 480).viewmat, camera(PLACES[0]).viewmat, atol=1e-12)
    same = CameraPath([Key.of(camera(PLACES[0]))] * 3)
    assert np.isfinite(same.at(1.3, 64, 48).viewmat).all()
    none = CameraPath([Key.of(camera(p), seconds=0.0) for p in PLACES])  # all at once
    assert np.isfinite(none.at(0, 64, 48).viewmat).all()


def test_it_can_be_stretched() -> None:
    way = path()
    way.stretch(9.0)
    assert way.duration == pytest.approx(9.0)
    assert way.times[1] == pytest.approx(2.0)


def test_once_around_a_point() -> None:
    first, up = camera((0, -1, -4)), np.array([0, -1.0, 0])
    way = turntable(first, np.zeros(3), up, seconds=8.0)
    assert way.duration == pytest.approx(8.0)
    for time in np.linspace(0, 8, 50):
        c = way.at(float(time), 640, 480)
        assert np.linalg.norm(c.position) == pytest.approx(math.sqrt(17), rel=0.01)
        assert c.position[1] == pytest.approx(-1, abs=0.01)
        center = c.viewmat[:3, :3] @ np.zeros(3) + c.viewmat[:3, 3]
        assert math.hypot(center[0], center[1]) < 0.05  # it goes on looking there
    np.testing.assert_allclose(way.at(0, 640, 480).viewmat, first.viewmat, atol=1e-9)


@settings(deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=3, max_size=3))
def test_quaternions_are_rotations(turn: list[float]) -> None:
    q = rotations.exp(np.array(turn))
    assert np.linalg.norm(q) == pytest.approx(1)
    back = rotations.quaternion(rotations.matrix(q))
    assert min(np.abs(back - q).max(), np.abs(back + q).max()) < 1e-9
    if np.linalg.norm(turn) < math.pi - 1e-3:
        np.testing.assert_allclose(rotations.log(q), turn, atol=1e-9)
    other = rotations.exp(np.array([0.3, -0.2, 0.5]))
    np.testing.assert_allclose(rotations.matrix(rotations.multiply(q, other)),
                               rotations.matrix(q) @ rotations.matrix(other), atol=1e-9)


# -- nerfstudio's format ------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize("model", ["pinhole", "fisheye"])
def test_there_and_back(tmp_path: Path, loop: bool, model: Any) -> None:
    file = tmp_path / "path.json"
    film = Film(path(loop=loop, model=model), 800, 600, 24.0)
    file.write_text(write_path(film))
    back = read_path(file)
    assert (back.width, back.height, back.fps, back.path.loop, back.path.model) == (800, 600, 24.0, loop, model)
    assert back.path.smooth
    for time in np.linspace(0, film.path.duration, 20):
        a, b = (f.path.at(float(time), 800, 600) for f in (film, back))
        np.testing.assert_allclose(a.viewmat, b.viewmat, atol=1e-9)
        np.testing.assert_allclose(a.K, b.K, rtol=1e-9)


def test_frames_are_as_ns_render_reads_them() -> None:
    """camera_to_world in OpenGL's axes, vertical fields of view in degrees, one for each picture."""
    film = Film(path(), 640, 480, 10.0)
    d = json.loads(write_path(film))
    assert len(d["camera_path"]) == film.path.frames(10.0) == round(film.path.duration * 10)
    for i, frame in enumerate(d["camera_path"]):
        wanted = film.path.at(i / 10, 640, 480)
        pose = np.array(frame["camera_to_world"]).reshape(4, 4)
        np.testing.assert_allclose(pose[:3, 3], wanted.position, atol=1e-9)
        right, down, forward = wanted.viewmat[:3, :3]
        np.testing.assert_allclose(pose[:3, :3], np.stack([right, -down, -forward], 1), atol=1e-9)
        assert frame["fov"] == pytest.approx(field_of_view(wanted.K[1, 1], 480))
    assert (d["render_width"], d["render_height"], d["fps"], d["camera_type"]) == (640, 480, 10.0, "perspective")


def test_frames_alone_are_a_path() -> None:
    film = Film(path(), 640, 480, 10.0)
    d = json.loads(write_path(film))
    d["keyframes"] = []
    back = parse_path(json.dumps(d))
    for i in range(film.path.frames(10.0)):
        np.testing.assert_allclose(back.path.at(i / 10, 640, 480).viewmat, film.path.at(i / 10, 640, 480).viewmat,
                                   atol=1e-9)


def test_the_older_viewers_key_frames() -> None:
    """Matrices as text, column by column, and the length of the whole alone."""
    d = json.loads(write_path(Film(path())))
    for key in d["keyframes"]:
        key["matrix"] = json.dumps(np.array(key["matrix"]).reshape(4, 4).T.ravel().tolist())
        del key["override_transition_enabled"], key["override_transition_sec"]
    d["seconds"] = 7.5
    back = parse_path(json.dumps(d)).path
    assert back.duration == pytest.approx(7.5)
    np.testing.assert_allclose(back.keys[2].position, PLACES[2], atol=1e-9)


@pytest.mark.parametrize(("change", "words"), [
    ({"keyframes": 7, "camera_path": None}, "neither"),
    ({"keyframes": [7]}, "no key frame"),
    ({"keyframes": [{"matrix": [1, 2]}]}, "16 numbers"),
    ({"keyframes": [{"matrix": "[1, 2"}]}, "16 numbers"),
    ({"keyframes": [{"matrix": [2.0] * 16}]}, "no rotation"),
    ({"keyframes": [{"matrix": [float("nan")] * 16}]}, "no rotation"),
    ({"keyframes": [{"matrix": np.eye(4).ravel().tolist(), "fov": 0}]}, '"fov" is 0'),
    ({"keyframes": [{}] * 1001}, "1000 are the most"),
    ({"keyframes": [], "camera_path": []}, "0 frames"),
    ({"camera_type": "equirectangular"}, "perspective, fisheye"),
    ({"fps": True}, '"fps" is True'),
    ({"render_width": 1e9}, '"render_width"'),
])
def test_what_is_no_path_is_told(change: dict[str, Any], words: str) -> None:
    d = json.loads(write_path(Film(path()))) | change
    with pytest.raises(CameraError, match=words):
        parse_path(json.dumps(d))


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    for text, words in ((b"no", "no JSON"), (b"[" * 100_000, "no JSON"), (b"{}", "neither")):
        file = tmp_path / "p.json"
        file.write_bytes(text)
        with pytest.raises(CameraError, match=words) as e:
            read_path(file)
        assert str(file) in str(e.value)
    with pytest.raises(CameraError, match="cannot be read"):
        read_path(tmp_path / "none.json")
    with (tmp_path / "large").open("wb") as f:
        f.truncate(FILE_LIMIT + 1)
    with pytest.raises(CameraError, match="MB"):
        read_path(tmp_path / "large")
