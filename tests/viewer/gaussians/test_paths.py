"""Camera paths: their curves, nerfstudio's format, and the tool of a view."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.frames import cloud, gaussian_frame
from support.scene_files import ply_columns, truth, write_ply
from support.view_cases import press_shortcut, scene_view
from support.viewer import Viewer
from support.wait import clock, polls

from splatview_viewer.core.errors import CameraError
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
from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import Camera, field_of_view, intrinsics, look_at
from splatview_viewer.geometry.path import MAX_FRAMES, MAX_KEYS, CameraPath, Keyframe
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.surface import Surface
from splatview_viewer.ui.boards import board
from splatview_viewer.ui.tracks import Track

W = 640
H = 400
RECT = Rect(0, 0, W, H)
LANE = Rect(0, H - 40, W, 30)
POSITIONS = [(0, -1, -4), (3, -1, -3), (4, -2, 1), (0, -1, 4)]


def camera(position: Any, target: Any = (0, 0, 0), fov: float = 50.0) -> Camera:
    viewmat = look_at(position, target)
    return Camera(viewmat, intrinsics(fov, 640, 480), 640, 480)


def path(**options: Any) -> CameraPath:
    keys = []
    for i, position in enumerate(POSITIONS):
        key_camera = camera(position, fov=40 + 10 * i)
        keys.append(Keyframe.of(key_camera, seconds=1 + 0.5 * i))
    return CameraPath(keys, **options)


@pytest.mark.parametrize(
    ("loop", "smooth"), [(False, True), (True, True), (False, False)]
)
def test_path_leads_through_every_key(loop: bool, smooth: bool) -> None:
    curve = path(loop=loop, smooth=smooth)
    assert len(curve.times) == len(POSITIONS) + loop
    assert curve.duration == pytest.approx(1 + 1.5 + 2 + 2.5 * loop)
    for i, time in enumerate(curve.times):
        key_index = i % len(POSITIONS)
        expected = camera(POSITIONS[key_index], fov=40 + 10 * key_index)
        got = curve.camera_at(time, 640, 480)
        np.testing.assert_allclose(got.viewmat, expected.viewmat, atol=1e-9)
        np.testing.assert_allclose(got.K, expected.K, rtol=1e-9)


@pytest.mark.parametrize("loop", [False, True])
def test_smooth_path_has_no_jolt_at_its_keys(loop: bool) -> None:
    """Compare the velocities on both sides of a key, which straight ways change."""

    def largest_jolt(curve: CameraPath) -> float:
        worst = 0.0
        h = 1e-5
        for time in curve.times[1:-1]:
            previous = curve.camera_at(time - h, 640, 480).viewmat[:3]
            middle = curve.camera_at(time, 640, 480).viewmat[:3]
            following = curve.camera_at(time + h, 640, 480).viewmat[:3]
            change = (following - middle) - (middle - previous)
            worst = max(worst, float(np.abs(change).max()) / h)
        return worst

    assert largest_jolt(path(loop=loop)) < 1e-3
    assert largest_jolt(path(loop=loop, smooth=False)) > 0.1


# -- nerfstudio's format -------------------------------------------------------


@pytest.mark.parametrize(("loop", "model"), [(False, "pinhole"), (True, "fisheye")])
def test_path_survives_a_file(tmp_path: Path, loop: bool, model: Any) -> None:
    file = tmp_path / "path.json"
    film = Film(path(loop=loop, model=model), 800, 600, 24.0)
    file.write_text(write_path(film))
    back = read_path(file)
    assert back.width == 800
    assert back.height == 600
    assert back.fps == 24.0
    assert back.path.loop == loop
    assert back.path.model == model
    assert back.path.smooth
    for time in np.linspace(0, film.path.duration, 20):
        written = film.path.camera_at(float(time), 800, 600)
        read = back.path.camera_at(float(time), 800, 600)
        np.testing.assert_allclose(written.viewmat, read.viewmat, atol=1e-9)
        np.testing.assert_allclose(written.K, read.K, rtol=1e-9)


def test_written_frames_are_those_that_ns_render_reads() -> None:
    """Check pictures: poses in OpenGL's axes, vertical fields of view in degrees."""
    film = Film(path(), 640, 480, 10.0)
    document = json.loads(write_path(film))
    frames = document["camera_path"]
    assert len(frames) == film.path.frame_count(10.0)
    assert len(frames) == round(film.path.duration * 10)
    for i, frame in enumerate(frames):
        expected = film.path.camera_at(i / 10, 640, 480)
        pose = np.array(frame["camera_to_world"]).reshape(4, 4)
        np.testing.assert_allclose(pose[:3, 3], expected.position, atol=1e-9)
        right, down, forward = expected.viewmat[:3, :3]
        axes = np.stack([right, -down, -forward], 1)
        np.testing.assert_allclose(pose[:3, :3], axes, atol=1e-9)
        fov = field_of_view(expected.K[1, 1], 480)
        assert frame["fov"] == pytest.approx(fov)
    assert document["render_width"] == 640
    assert document["render_height"] == 480
    assert document["fps"] == 10.0
    assert document["camera_type"] == "perspective"


def test_pictures_without_keyframes_become_the_same_pictures() -> None:
    """Check also a path that was made of such pictures and written again."""
    document = json.loads(write_path(Film(path(), 640, 480, 10.0)))
    frames = document["camera_path"]
    expected = [frame["camera_to_world"] for frame in frames]
    without_keys = parse_path(json.dumps({"camera_path": frames, "fps": 24}))
    for film in (without_keys, parse_path(write_path(without_keys))):
        reread = json.loads(write_path(film))["camera_path"]
        poses = [frame["camera_to_world"] for frame in reread]
        np.testing.assert_allclose(poses, expected, atol=1e-9)


def test_fisheye_path_has_the_focal_lengths_of_nerfstudio() -> None:
    """Compare fields of view of an equidistant camera, in keyframes and pictures."""
    fisheye = json.loads(write_path(Film(path(), 640, 480, 10.0)))
    fisheye["camera_type"] = "fisheye"
    fisheye["keyframes"][0]["fov"] = 120
    fisheye["camera_path"][0]["fov"] = 120
    for document in (fisheye, fisheye | {"keyframes": []}):
        film = parse_path(json.dumps(document))
        camera = film.path.camera_at(0.0, 640, 480)
        assert camera.model == "fisheye"
        assert camera.K[1, 1] == pytest.approx(240 / np.tan(np.radians(60)))
        back = json.loads(write_path(film))
        assert back["keyframes"][0]["fov"] == pytest.approx(120)
        assert back["camera_path"][0]["fov"] == pytest.approx(120)


@pytest.mark.parametrize("fov", [0.1, 179.0])
def test_fisheye_keyframe_at_the_limits_is_read_again(fov: float) -> None:
    rotation = np.array([1.0, 0, 0, 0])
    keys = [Keyframe(np.zeros(3), rotation, fov) for _ in range(2)]
    for model in ("fisheye", "pinhole"):
        film = Film(CameraPath(keys, model=model), 640, 480, 10.0)  # type: ignore[arg-type]
        once = parse_path(write_path(film))
        back = parse_path(write_path(once))
        assert back.path.keys[0].fov == pytest.approx(fov)


def _first_viewer(matrix: np.ndarray) -> Any:
    return json.dumps(matrix.T.ravel().tolist())


def _text_by_rows(matrix: np.ndarray) -> Any:
    return json.dumps(matrix.tolist())


def _three_rows(matrix: np.ndarray) -> Any:
    return matrix[:3].tolist()


def _three_rows_as_words(matrix: np.ndarray) -> Any:
    return " ".join(map(str, matrix[:3].ravel()))


@pytest.mark.parametrize(
    "written",
    [
        _first_viewer,
        _text_by_rows,
        np.ndarray.tolist,
        _three_rows,
        _three_rows_as_words,
    ],
)
def test_path_of_older_viewers_is_the_same_path(written: Any) -> None:
    """Read matrices of keyframes as text, column by column, with one duration."""
    film = Film(path(), 640, 480, 10.0)
    keyframes = []
    for key in json.loads(write_path(film))["keyframes"]:
        matrix = written(np.reshape(key["matrix"], (4, 4)))
        keyframes.append({"matrix": matrix, "fov": key["fov"], "properties": "[]"})
    old = {
        "keyframes": keyframes,
        "camera_type": "perspective",
        "fps": 24,
        "seconds": 6,
        "smoothness_value": 0.5,
        "is_cycle": False,
    }
    back = parse_path(json.dumps(old)).path
    assert back.duration == pytest.approx(6)
    assert back.times == pytest.approx([0, 2, 4, 6])
    for key, expected in zip(back.keys, film.path.keys, strict=True):
        np.testing.assert_allclose(key.position, expected.position, atol=1e-9)
        assert abs(key.rotation @ expected.rotation) == pytest.approx(1)
        assert key.fov == pytest.approx(expected.fov)


@pytest.mark.parametrize(
    ("change", "message"),
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
def test_document_without_a_path_is_refused(
    change: dict[str, Any], message: str
) -> None:
    document = json.loads(write_path(Film(path()))) | change
    with pytest.raises(CameraError, match=message):
        parse_path(json.dumps(document))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[" * 100_000, "no JSON"),
        (b"{}", "neither"),
        (None, "cannot be read"),
        (b" " * (FILE_LIMIT + 1), "MB"),
    ],
)
def test_unreadable_file_is_named_in_the_error(
    tmp_path: Path, text: bytes | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "path.json").write_bytes(text)
    with pytest.raises(CameraError, match=rf"path\.json.*{message}"):
        read_path(tmp_path / "path.json")


def many_frames(count: int, *, values: dict[int, Any] | None = None) -> str:
    """Return a path of pictures alone, each a little to the right of the last."""
    frames: list[Any] = []
    for i in range(count):
        pose = [1, 0, 0, i, 0, 0, -1, 0, 0, 1, 0, 0, 0, 0, 0, 1]
        frames.append({"camera_to_world": pose})
    for i, frame in (values or {}).items():
        frames[i] = frame
    return json.dumps({"camera_path": frames, "fps": 30})


def test_path_of_more_pictures_than_an_hour_is_refused() -> None:
    film = parse_path(many_frames(2000))
    assert len(film.path.keys) == 2000
    assert film.path.frame_count(30.0) == 2000
    with pytest.raises(CameraError, match=f"{MAX_FRAMES + 1} pictures.*keyframes"):
        parse_path(many_frames(MAX_FRAMES + 1))


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"camera_to_world": [1, 2]}, "16 numbers"),
        ({"camera_to_world": [2.0] * 16}, "no rotation"),
        ({"camera_to_world": [float("nan")] * 16}, "no rotation"),
        ({}, "16 numbers"),
        (7, "no keyframe"),
        ({"camera_to_world": np.eye(4).ravel().tolist(), "fov": -1}, '"fov" is -1'),
    ],
)
def test_invalid_picture_among_many_is_refused(frame: Any, message: str) -> None:
    with pytest.raises(CameraError, match=message):
        parse_path(many_frames(500, values={321: frame}))


def test_rotations_of_many_equal_those_of_each() -> None:
    quaternions = np.random.default_rng(3).normal(size=(200, 4))
    # No rotation, and half turns around each axis.
    quaternions[:4] = np.eye(4)
    quaternions[4:7] = [[1e-9, 1, 1, 0], [0, -1, 1e-9, 1], [1, 1, 1, 1]]
    matrices = rotations.matrix(quaternions)
    expected_quaternions = np.stack([rotations.quaternion(m) for m in matrices])
    together = rotations.quaternions(matrices)
    np.testing.assert_allclose(together, expected_quaternions, atol=1e-12)
    broken = matrices.copy()
    broken[1] = 2 * matrices[1]
    broken[3] = -matrices[3]
    broken[5, 0, 0] = np.nan
    valid = rotations.are_rotations(broken)
    assert valid.tolist() == [rotations.is_rotation(m) for m in broken]
    assert np.flatnonzero(~valid).tolist() == [1, 3, 5]


# -- the tool of a view --------------------------------------------------------


class PathRig:
    """View with a panel and the tool of camera paths, and events for them."""

    def __init__(self, screen: OffscreenScreen) -> None:
        screen.resize(W, H)
        self.screen = screen
        self.panel = Surface()
        self.messages: list[str] = []
        self.view = scene_view(screen)
        self.view.view.host = Host(
            notify=self.messages.append, memo=Memo(), name="scene.ply"
        )
        self.tool = self.view.view.tools["path"]
        self.view.update(gaussian_frame(cloud(100, seed=5)))
        self.draw()

    def add_keys(self, *x_positions: float) -> None:
        for x in x_positions:
            self.view.view.rig.use_camera(side(x))
            press_shortcut(self.view, "K")

    @property
    def key_x_positions(self) -> list[float]:
        return [round(float(k.position[0]), 6) for k in self.tool.path.keys]

    def draw(self) -> None:
        self.view.draw(self.screen.framebuffer, RECT)
        self.panel.draw_over(self.screen.framebuffer, self._draw_over, 1.0)

    def _draw_over(self, rect: Rect, scale: float) -> bool:
        """Draw the path's lane at the lower edge."""
        changed = self.view.draw_ui(rect, scale)
        with board("time", LANE):
            return self.tool.timeline.draw_track(LANE, scale) or changed

    def point(self, kind: type, *times: float) -> None:
        """Send events at these times of the lane."""
        track = Track(LANE, 1.0)
        for seconds in times:
            x = track.to_x(seconds / self.tool.path.duration)
            event = kind(x, LANE.y + 10.0)
            self.panel.input.handle(event, RECT, covered=[LANE])
            self.draw()
            self.draw()

    def check_camera(self) -> None:
        """Check that the view looks from where the playhead is."""
        camera = self.view.view.rig.camera(RECT)
        assert camera is not None
        expected = self.tool.path.camera_at(self.tool.time, W, H)
        np.testing.assert_allclose(camera.viewmat, expected.viewmat, atol=1e-9)


def side(x: float) -> Camera:
    return Camera(look_at((x, -0.5, -4), (0, 0, 0)), intrinsics(50, W, H), W, H)


@pytest.fixture
def rig(screen: OffscreenScreen) -> Iterator[PathRig]:
    new_rig = PathRig(screen)
    yield new_rig
    new_rig.view.close()
    new_rig.panel.close()


def test_key_k_sets_keyframes_where_the_camera_is(rig: PathRig) -> None:
    assert "K" in rig.tool.timeline.empty_text
    rig.add_keys(-1.0, 0.0, 1.0)
    assert rig.key_x_positions == [-1.0, 0.0, 1.0]
    assert rig.tool.path.times == [0.0, 2.0, 4.0]
    assert not rig.tool.timeline.empty_text
    assert rig.tool.timeline.caption == "4.0 / 4 s"
    rig.tool.choose(0)
    # A new keyframe comes after the chosen one.
    rig.add_keys(-0.5)
    assert rig.key_x_positions == [-1.0, -0.5, 0.0, 1.0]
    rig.view.view.rig.use_camera(side(0.25))
    rig.tool.replace_key()
    assert rig.key_x_positions == [-1.0, 0.25, 0.0, 1.0]
    press_shortcut(rig.view, "Delete")
    # The time of the deleted keyframe goes to the previous one.
    assert rig.tool.path.times == [0.0, 4.0, 6.0]


def test_path_is_remembered_by_the_name_of_its_scene(rig: PathRig) -> None:
    rig.view.tick(0.0)
    rig.add_keys(-1.0, 1.0)
    rig.view.tick(1.0)
    second_view = rig.view.another_view()
    second_view.view.host = Host(memo=rig.view.view.host.memo, name="scene.ply")
    second_view.tick(2.0)
    remembered = second_view.view.tools["path"].path
    for time in (0.0, 1.0, 2.0):
        np.testing.assert_allclose(
            remembered.camera_at(time, W, H).viewmat,
            rig.tool.path.camera_at(time, W, H).viewmat,
            atol=1e-9,
        )
    second_view.close()


def test_timeline_is_edited_with_the_pointer(rig: PathRig) -> None:
    rig.add_keys(-1.0, 0.0, 1.0)
    rig.tool.chosen_key = None
    rig.draw()
    rig.draw()
    rig.point(PointerMove, 2.0)
    rig.point(PointerPress, 2.0)
    assert rig.tool.chosen_key == 1
    rig.point(PointerMove, 2.5, 3.0)
    rig.point(PointerRelease, 3.0)
    assert rig.tool.path.times == pytest.approx([0.0, 3.0, 4.0], abs=0.05)
    rig.view.view.rig.motion.stop()
    rig.point(PointerMove, 1.0)
    rig.point(PointerPress, 1.0)
    assert rig.tool.time == pytest.approx(1.0, abs=0.03)
    rig.check_camera()
    rig.point(PointerMove, 3.5)
    rig.point(PointerRelease, 3.5)
    assert rig.tool.time == pytest.approx(3.5, abs=0.03)


def test_path_is_played_at_its_own_pace(rig: PathRig) -> None:
    assert "two keyframes" in str(rig.tool.timeline.reason)
    rig.tool.timeline.play(True)
    assert "two keyframes" in rig.messages[-1]
    rig.add_keys(-1.0, 1.0)
    assert rig.tool.timeline.reason is None
    rig.tool.play()
    rig.tool.tick(100.0)
    first = rig.tool.time
    rig.tool.tick(101.0)
    assert rig.tool.time == pytest.approx(first + 1.0)
    rig.check_camera()
    rig.tool.tick(105.0)
    assert not rig.tool.is_playing
    assert rig.tool.time == rig.tool.path.duration


def test_path_is_stepped_from_keyframe_to_keyframe(rig: PathRig) -> None:
    rig.add_keys(-1.0, 0.0, 1.0)
    lane = rig.tool.timeline
    rig.tool.time = 1.5
    stops = []
    for direction in (1, 1, 1, -1, -1, -1):
        lane.step(direction)
        stops.append((rig.tool.chosen_key, rig.tool.time))
    assert stops == [(1, 2.0), (2, 4.0), (2, 4.0), (1, 2.0), (0, 0.0), (0, 0.0)]


def test_path_is_filmed_while_the_loop_continues(
    rig: PathRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frames = json.loads(write_path(Film(path())))["camera_path"][:4]
    file = tmp_path / "path.json"
    file.write_text(json.dumps({"camera_path": frames, "fps": 10}))
    assert rig.view.view.dropped(file)
    rig.tool.film = Film(rig.tool.path, 64, 48, 10.0)
    film_maker = rig.tool.film_maker
    film_maker.as_frames = True
    film_maker.start()
    assert film_maker.filming is not None
    for _ in polls("the film is made", pauses=False):
        if film_maker.filming is None:
            break
        rig.view.tick(clock())
        rig.view.work()
        rig.draw()
    assert len(list((tmp_path / "scene").iterdir())) == 4
    assert "4 pictures" in rig.messages[-1]
    film_maker.start()
    film_maker.cancel()
    assert film_maker.filming is None
    assert "given up" in rig.messages[-1]
    assert len(rig.view.content.pictures) == 1


def test_path_of_very_many_pictures_is_drawn_played_and_not_remembered(
    rig: PathRig, tmp_path: Path
) -> None:
    (tmp_path / "path.json").write_text(many_frames(20_000))
    assert rig.view.view.dropped(tmp_path / "path.json")
    assert rig.tool.is_open
    rig.tool.chosen_key = 5
    rig.draw()
    rig.tool.tick(1.0)
    assert rig.view.view.host.memo.get("path/scene.ply") is None
    rig.tool.seek(500.0)
    rig.check_camera()
    del rig.tool.path.keys[MAX_KEYS:]
    rig.draw()
    rig.tool.tick(2.0)
    saved = rig.view.view.host.memo.get("path/scene.ply")
    assert saved is not None
    assert len(saved["keyframes"]) == MAX_KEYS + 1


@pytest.mark.parametrize("filmed", [False, True])
def test_path_of_too_many_pictures_is_neither_written_nor_filmed(
    rig: PathRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filmed: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    rig.add_keys(-1.0, 1.0)
    rig.tool.path.stretch(1e6)
    rig.tool.film = Film(rig.tool.path, 64, 48, 1000.0)
    if filmed:
        rig.tool.film_maker.start()
    else:
        rig.tool.storage.save()
    assert "1,000,000,000 pictures" in rig.messages[-1]
    assert rig.tool.film_maker.filming is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("away", ["another entry", "a fault", "another pane alone"])
def test_film_continues_while_its_scene_is_hidden(
    open_viewer: Callable[..., Viewer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    away: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    scene = write_ply(tmp_path / "scene.ply", ply_columns(truth(200)))
    picture = tmp_path / "other.png"
    Image.new("RGB", (60, 40)).save(picture)
    viewer = open_viewer((400, 300), files=(scene, picture))
    viewer.until(viewer.loaded)
    viewer.user.select(str(scene))
    viewer.until(viewer.loaded)
    view: Any = viewer.user.view
    tool = view.view.tools["path"]
    tool.film = Film(path(), 64, 48, 2.0)
    tool.film_maker.start()
    filming = tool.film_maker.filming
    assert filming is not None
    viewer.step()
    if away == "another entry":
        viewer.user.select(str(picture))
    elif away == "a fault":
        assert viewer.state.selected_entry is not None
        viewer.state.selected_entry.fault = "the newest version is damaged"
    else:
        viewer.user.layout.add(str(picture))
        viewer.user.layout.maximise(viewer.user.layout.active)
    viewer.until(lambda: tool.film_maker.filming is None)
    assert filming.is_ended
    assert not filming.fault
    assert filming.drawn == filming.total
    assert (tmp_path / "scene.mp4").stat().st_size > 500
