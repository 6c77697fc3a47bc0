"""Camera paths: through every key without a jolt, in nerfstudio's format and back, and the tool of a view for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.frames import cloud, gaussian_frame
from support.view_cases import scene_view
from support.wait import clock, turns

from splatview_viewer.core.errors import CameraError
from splatview_viewer.core.events import Key as KeyEvent
from splatview_viewer.core.events import PointerMove, PointerPress, PointerRelease
from splatview_viewer.core.host import Host, Memo
from splatview_viewer.core.screen import Rect
from splatview_viewer.formats.camera_paths import (
    FILE_LIMIT,
    Film,
    parse_path,
    read_path,
    write_path,
)
from splatview_viewer.geometry.cameras import Camera, field_of_view, intrinsics, look_at
from splatview_viewer.geometry.path import CameraPath, Key
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.panel import Panel

W, H = 640, 400
RECT = Rect(0, 0, W, H)
PLACES = [(0, -1, -4), (3, -1, -3), (4, -2, 1), (0, -1, 4)]


def camera(position: Any, target: Any = (0, 0, 0), fov: float = 50.0) -> Camera:
    return Camera(look_at(position, target), intrinsics(fov, 640, 480), 640, 480)


def path(**more: Any) -> CameraPath:
    keys = [
        Key.of(camera(p, fov=40 + 10 * i), seconds=1 + 0.5 * i)
        for i, p in enumerate(PLACES)
    ]
    return CameraPath(keys, **more)


@pytest.mark.parametrize(
    ("loop", "smooth"), [(False, True), (True, True), (False, False)]
)
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
            before, here, after = (
                way.at(time + d, 640, 480).viewmat[:3] for d in (-h, 0, h)
            )
            worst = max(
                worst, float(np.abs((after - here) - (here - before)).max()) / h
            )
        return worst

    assert jolts(path(loop=loop)) < 1e-3
    assert jolts(path(loop=loop, smooth=False)) > 0.1


# -- nerfstudio's format -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loop", "model"), [(False, "pinhole"), (True, "fisheye")])
def test_there_and_back(tmp_path: Path, loop: bool, model: Any) -> None:
    file = tmp_path / "path.json"
    film = Film(path(loop=loop, model=model), 800, 600, 24.0)
    file.write_text(write_path(film))
    back = read_path(file)
    assert (back.width, back.height, back.fps, back.path.loop, back.path.model) == (
        800,
        600,
        24.0,
        loop,
        model,
    )
    assert back.path.smooth
    for time in np.linspace(0, film.path.duration, 20):
        a, b = (f.path.at(float(time), 800, 600) for f in (film, back))
        np.testing.assert_allclose(a.viewmat, b.viewmat, atol=1e-9)
        np.testing.assert_allclose(a.K, b.K, rtol=1e-9)


def test_frames_are_as_ns_render_reads_them() -> None:
    """camera_to_world in OpenGL's axes, vertical fields of view in degrees, one for each picture."""
    film = Film(path(), 640, 480, 10.0)
    d = json.loads(write_path(film))
    assert (
        len(d["camera_path"])
        == film.path.frames(10.0)
        == round(film.path.duration * 10)
    )
    for i, frame in enumerate(d["camera_path"]):
        wanted = film.path.at(i / 10, 640, 480)
        pose = np.array(frame["camera_to_world"]).reshape(4, 4)
        np.testing.assert_allclose(pose[:3, 3], wanted.position, atol=1e-9)
        right, down, forward = wanted.viewmat[:3, :3]
        np.testing.assert_allclose(
            pose[:3, :3], np.stack([right, -down, -forward], 1), atol=1e-9
        )
        assert frame["fov"] == pytest.approx(field_of_view(wanted.K[1, 1], 480))
    assert (d["render_width"], d["render_height"], d["fps"], d["camera_type"]) == (
        640,
        480,
        10.0,
        "perspective",
    )
    alone = parse_path(json.dumps({"camera_path": d["camera_path"], "fps": 24}))
    for same in (
        alone,
        parse_path(write_path(alone)),
    ):  # each is a picture, also of frames that are made keyframes
        again = json.loads(write_path(same))["camera_path"]
        poses, wanted = (
            [f["camera_to_world"] for f in frames]
            for frames in (again, d["camera_path"])
        )
        np.testing.assert_allclose(poses, wanted, atol=1e-9)


def test_fisheye_path_has_the_focal_lengths_that_nerfstudio_makes() -> None:
    """Half the height by the tangent of half the field of view, which is equidistant then; keyframes and frames."""
    d = json.loads(write_path(Film(path(), 640, 480, 10.0))) | {
        "camera_type": "fisheye"
    }
    d["keyframes"][0]["fov"] = d["camera_path"][0]["fov"] = 120
    for document in (d, d | {"keyframes": []}):
        film = parse_path(json.dumps(document))
        camera = film.path.at(0.0, 640, 480)
        assert camera.model == "fisheye"
        assert camera.K[1, 1] == pytest.approx(240 / np.tan(np.radians(60)))
        back = json.loads(write_path(film))
        assert back["keyframes"][0]["fov"] == pytest.approx(120)
        assert back["camera_path"][0]["fov"] == pytest.approx(120)


@pytest.mark.parametrize("fov", [0.1, 179.0])
def test_fisheye_keyframe_at_the_limits_is_read_again(fov: float) -> None:
    keys = [Key(np.zeros(3), np.array([1.0, 0, 0, 0]), fov) for _ in range(2)]
    for model in ("fisheye", "pinhole"):
        film = Film(CameraPath(keys, model=model), 640, 480, 10.0)  # type: ignore[arg-type]
        back = parse_path(write_path(parse_path(write_path(film))))
        assert back.path.keys[0].fov == pytest.approx(fov)


def _first_viewer(matrix: np.ndarray) -> Any:
    return json.dumps(matrix.T.ravel().tolist())


def _text_by_rows(matrix: np.ndarray) -> Any:
    return json.dumps(matrix.tolist())


@pytest.mark.parametrize(
    "written",
    [
        _first_viewer,
        _text_by_rows,
        np.ndarray.tolist,
        lambda matrix: matrix[:3].tolist(),
        lambda matrix: " ".join(map(str, matrix[:3].ravel())),
    ],
)
def test_path_of_older_viewers_is_the_same_path(written: Any) -> None:
    """Matrices of keyframes as text, column by column; how long the whole takes stands beside them alone."""
    film = Film(path(), 640, 480, 10.0)
    d = json.loads(write_path(film))
    poses = [np.reshape(k["matrix"], (4, 4)) for k in d["keyframes"]]
    old = {
        "keyframes": [
            {"matrix": written(pose), "fov": key["fov"], "properties": "[]"}
            for pose, key in zip(poses, d["keyframes"], strict=True)
        ],
        "camera_type": "perspective",
        "fps": 24,
        "seconds": 6,
        "smoothness_value": 0.5,
        "is_cycle": False,
    }
    back = parse_path(json.dumps(old)).path
    assert back.duration == pytest.approx(6) and back.times == pytest.approx(
        [0, 2, 4, 6]
    )
    for key, wanted in zip(back.keys, film.path.keys, strict=True):
        np.testing.assert_allclose(key.position, wanted.position, atol=1e-9)
        assert abs(key.rotation @ wanted.rotation) == pytest.approx(1)
        assert key.fov == pytest.approx(wanted.fov)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"keyframes": 7, "camera_path": None}, "neither"),
        ({"keyframes": [7]}, "no keyframe"),
        ({"keyframes": [{"matrix": [1, 2]}]}, "16 numbers"),
        ({"keyframes": [{}] * 1001}, "1000 are the most"),
        ({"keyframes": [{"matrix": [float("nan")] * 16}]}, "no rotation"),
        ({"render_width": 1e9}, '"render_width"'),
        (
            {"keyframes": [{"matrix": np.eye(4).ravel().tolist(), "fov": 0}]},
            '"fov" is 0',
        ),
        ({"camera_type": "equirectangular"}, "perspective, fisheye"),
    ],
)
def test_what_is_no_path_is_told(change: dict[str, Any], words: str) -> None:
    d = json.loads(write_path(Film(path()))) | change
    with pytest.raises(CameraError, match=words):
        parse_path(json.dumps(d))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[" * 100_000, "no JSON"),
        (b"{}", "neither"),
        (None, "cannot be read"),
        (b" " * (FILE_LIMIT + 1), "MB"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_by_its_name(
    tmp_path: Path, text: bytes | None, words: str
) -> None:
    if text is not None:
        (tmp_path / "path.json").write_bytes(text)
    with pytest.raises(CameraError, match=rf"path\.json.*{words}"):
        read_path(tmp_path / "path.json")


# -- the tool of a view ------------------------------------------------------------------------------------------------


class Rig:
    """A view, and events for it."""

    def __init__(self, screen: OffscreenScreen) -> None:
        screen.resize(W, H)
        self.screen, self.panel = screen, Panel()
        self.said: list[str] = []
        self.view = scene_view(screen)
        self.view.view.host = Host(say=self.said.append, memo=Memo(), name="scene.ply")
        self.tool = self.view.view.tools["path"]
        self.view.update(gaussian_frame(cloud(100, seed=5)))
        self.draw()

    def key(self, *places: float) -> None:
        for x in places:
            self.view.view.use_camera(side(x))
            assert self.view.handle(KeyEvent("k"), RECT)

    @property
    def places(self) -> list[float]:
        return [round(float(k.position[0]), 6) for k in self.tool.path.keys]

    def draw(self) -> None:
        self.view.draw(self.screen.framebuffer, RECT)
        self.panel.draw_over(self.screen.framebuffer, self.view.over, 1.0)

    def point(self, kind: type, *times: float) -> None:
        """Events at these times of the timeline: it lies between its buttons and the right edge."""
        board, begin, end = self.view.wants.boards[-1], 146.0, 616.0
        for seconds in times:
            event = kind(
                begin + (end - begin) * seconds / self.tool.path.duration,
                board.y + 16.0,
            )
            self.panel.handle(event, RECT, boards=self.view.wants.boards)
            self.draw()
            self.draw()

    def check_camera(self) -> None:
        """The view looks from where the playhead is."""
        seen = self.view.view.camera(RECT)
        assert seen is not None
        np.testing.assert_allclose(
            seen.viewmat, self.tool.path.at(self.tool.time, W, H).viewmat, atol=1e-9
        )


def side(x: float) -> Camera:
    return Camera(look_at((x, -0.5, -4), (0, 0, 0)), intrinsics(50, W, H), W, H)


@pytest.fixture
def rig(screen: OffscreenScreen) -> Iterator[Rig]:
    made = Rig(screen)
    yield made
    made.view.close()
    made.panel.close()


def test_k_sets_keys_where_the_camera_is(rig: Rig) -> None:
    assert rig.tool.bar_height() == 0
    rig.key(-1.0, 0.0, 1.0)
    assert rig.places == [-1.0, 0.0, 1.0]
    assert rig.tool.path.times == [0.0, 2.0, 4.0]
    assert rig.tool.bar_height() > 0
    rig.tool.choose(0)
    rig.key(-0.5)  # behind the one that is chosen
    assert rig.places == [-1.0, -0.5, 0.0, 1.0]
    rig.view.view.use_camera(side(0.25))
    rig.tool.replace()
    assert rig.places == [-1.0, 0.25, 0.0, 1.0]
    assert rig.view.handle(KeyEvent("delete"), RECT)
    assert rig.tool.path.times == [0.0, 4.0, 6.0]  # its time went to the one before


def test_a_path_is_remembered_by_the_name_of_its_scene(rig: Rig) -> None:
    rig.view.tick(0.0)
    rig.key(-1.0, 1.0)
    rig.view.tick(1.0)
    other = rig.view.beside()
    other.view.host = Host(memo=rig.view.view.host.memo, name="scene.ply")
    other.tick(2.0)
    for time in (0.0, 1.0, 2.0):
        np.testing.assert_allclose(
            other.view.tools["path"].path.at(time, W, H).viewmat,
            rig.tool.path.at(time, W, H).viewmat,
            atol=1e-9,
        )
    other.close()


def test_the_timeline_is_edited_with_the_pointer(rig: Rig) -> None:
    rig.key(-1.0, 0.0, 1.0)
    rig.tool.chosen = None
    rig.draw()
    rig.draw()
    rig.point(PointerMove, 2.0)
    rig.point(PointerPress, 2.0)
    assert rig.tool.chosen == 1
    rig.point(PointerMove, 2.5, 3.0)
    rig.point(PointerRelease, 3.0)
    assert rig.tool.path.times == pytest.approx([0.0, 3.0, 4.0], abs=0.05)
    rig.view.view.tools["navigate"].stop()
    rig.point(PointerMove, 1.0)
    rig.point(PointerPress, 1.0)
    assert rig.tool.time == pytest.approx(1.0, abs=0.03)
    rig.check_camera()
    rig.point(PointerMove, 3.5)
    rig.point(PointerRelease, 3.5)
    assert rig.tool.time == pytest.approx(3.5, abs=0.03)


def test_it_is_played_at_its_own_pace(rig: Rig) -> None:
    assert rig.view.handle(KeyEvent("p"), RECT)
    assert "two keyframes" in rig.said[-1]
    rig.key(-1.0, 1.0)
    rig.tool.play()
    rig.tool.tick(100.0)
    first = rig.tool.time
    rig.tool.tick(101.0)
    assert rig.tool.time == pytest.approx(first + 1.0)
    rig.check_camera()
    rig.tool.tick(105.0)
    assert not rig.tool.playing
    assert rig.tool.time == rig.tool.path.duration


def test_it_is_filmed_while_the_loop_goes_on(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frames = json.loads(write_path(Film(path())))["camera_path"][:4]
    (tmp_path / "path.json").write_text(json.dumps({"camera_path": frames, "fps": 10}))
    assert rig.view.view.dropped(tmp_path / "path.json")
    rig.tool.film = Film(rig.tool.path, 64, 48, 10.0)
    rig.tool.as_frames = True
    rig.tool.record()
    assert rig.tool.filming is not None
    for _ in turns("the film is made", rest=False):
        if rig.tool.filming is None:
            break
        rig.view.tick(clock())
        rig.view.work()
        rig.draw()
    assert len(list((tmp_path / "scene").iterdir())) == 4
    assert "4 pictures" in rig.said[-1]
    rig.tool.record()
    rig.tool.cancel()
    assert rig.tool.filming is None
    assert "given up" in rig.said[-1]
    assert len(rig.view.content.pictures) == 1
