"""The camera path of a view: made with keys, edited on its timeline, played, kept, saved and filmed."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.frames import cloud, gaussian_frame
from support.view_cases import module_screen, screen_fixture  # noqa: F401
from support.wait import PATIENCE

from splatview.viewer_app.cameras import Camera, intrinsics, look_at
from splatview.viewer_app.controls import Rect
from splatview.viewer_app.desk import Desk
from splatview.viewer_app.events import Key, PointerMove, PointerPress, PointerRelease
from splatview.viewer_app.interface import theme
from splatview.viewer_app.interface.panel import Panel
from splatview.viewer_app.memo import Memo
from splatview.viewer_app.paths.nerfstudio import read_path
from splatview.viewer_app.views._gaussians.path import PathTool
from splatview.viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from splatview.viewer_app.screens.offscreen import OffscreenScreen

W, H = 640, 400
RECT = Rect(0, 0, W, H)
SEEN = Rect(40, 0, 560, 400)


class Rig:
    """A view, and what its user does."""

    def __init__(self, screen: OffscreenScreen, memo: Memo | None = None) -> None:
        screen.resize(W, H)
        self.screen = screen
        self.said: list[str] = []
        self.view = GaussianView(screen.ctx)
        self.view.desk = Desk(say=self.said.append, memo=memo or Memo(), name="scene.ply")
        tool = self.view.tools["path"]
        assert isinstance(tool, PathTool)
        self.tool = tool
        self.panel = Panel()
        self.view.update(gaussian_frame(cloud(100, seed=5)))
        self.view.draw(screen.framebuffer, RECT)

    def key(self, x: float, seconds: float = 2.0) -> None:
        self.view.use_camera(camera(x))
        assert self.view.handle(Key("k"), RECT)

    def draw(self) -> None:
        self.view.draw(self.screen.framebuffer, RECT)
        self.panel.draw_over(self.screen.framebuffer, self.view.over, 1.0)

    def point(self, *events: object) -> None:
        """On the timeline, as the seat hands events to the panel; three pictures for each."""
        for event in events:
            self.panel.handle(event, RECT, boards=self.view.boards(RECT))  # type: ignore[arg-type]
            self.draw()
            self.draw()

    def x(self, seconds: float) -> float:
        """Where on the screen a time lies on the timeline: between its buttons and the right edge."""
        begin, end = 146.0, 616.0
        return begin + (end - begin) * seconds / self.tool.path.duration

    def close(self) -> None:
        self.view.close()
        self.panel.close()


def camera(x: float) -> Camera:
    return Camera(look_at((x, -0.5, -4), (0, 0, 0)), intrinsics(50, W, H), W, H)


@pytest.fixture
def rig(screen: OffscreenScreen) -> Iterator[Rig]:
    made = Rig(screen)
    yield made
    made.close()


def test_k_sets_keys_where_the_camera_is(rig: Rig) -> None:
    assert rig.tool.bar_height() == 0
    for x in (-1.0, 0.0, 1.0):
        rig.key(x)
    assert [round(float(k.position[0]), 6) for k in rig.tool.path.keys] == [-1.0, 0.0, 1.0]
    assert rig.tool.path.times == [0.0, 2.0, 4.0]
    assert rig.tool.bar_height() > 0
    rig.tool.choose(0)
    rig.key(-0.5)  # behind the one that is chosen
    assert [round(float(k.position[0]), 6) for k in rig.tool.path.keys] == [-1.0, -0.5, 0.0, 1.0]
    rig.view.use_camera(camera(0.25))
    rig.tool.replace()
    assert rig.tool.path.keys[1].position[0] == pytest.approx(0.25)
    assert rig.view.handle(Key("delete"), RECT)
    assert len(rig.tool.path.keys) == 3
    assert rig.tool.path.times == [0.0, 4.0, 6.0]  # its time went to the one before


def test_the_first_key_sees_what_is_seen(rig: Rig) -> None:
    rig.key(0.7)
    now = rig.tool.path.at(0, W, H)
    np.testing.assert_allclose(now.viewmat, camera(0.7).viewmat, atol=1e-9)
    np.testing.assert_allclose(now.K, camera(0.7).K, rtol=1e-9)


def test_keys_are_moved_between_their_neighbours(rig: Rig) -> None:
    for x in (-1.0, 0.0, 1.0):
        rig.key(x)
    rig.tool.move_key(1, 3.0)
    assert rig.tool.path.times == pytest.approx([0.0, 3.0, 4.0])
    rig.tool.move_key(1, 99.0)
    assert rig.tool.path.times == pytest.approx([0.0, 3.95, 4.0])
    rig.tool.move_key(2, 10.0)  # the last one makes it longer
    assert rig.tool.path.times == pytest.approx([0.0, 3.95, 10.0])
    rig.tool.move_key(0, 1.0)  # the first one stays
    assert rig.tool.path.times == pytest.approx([0.0, 3.95, 10.0])


def test_the_timeline_is_edited_with_the_pointer(rig: Rig) -> None:
    for x in (-1.0, 0.0, 1.0):
        rig.key(x)
    rig.tool.chosen = None
    rig.draw()
    rig.draw()
    board = rig.view.boards(RECT)[-1]
    y = board.y + 16.0
    rig.point(PointerMove(rig.x(2.0), y), PointerPress(rig.x(2.0), y))
    assert rig.tool.chosen == 1
    rig.point(PointerMove(rig.x(2.5), y), PointerMove(rig.x(3.0), y), PointerRelease(rig.x(3.0), y))
    assert rig.tool.path.times == pytest.approx([0.0, 3.0, 4.0], abs=0.05)
    rig.tool.view.tools["navigate"].stop()  # type: ignore[attr-defined]
    rig.point(PointerMove(rig.x(1.0), y), PointerPress(rig.x(1.0), y))
    assert rig.tool.time == pytest.approx(1.0, abs=0.03)
    seen = rig.view.camera(RECT)
    assert seen is not None
    np.testing.assert_allclose(seen.viewmat, rig.tool.path.at(rig.tool.time, W, H).viewmat, atol=1e-9)
    rig.point(PointerMove(rig.x(3.5), y), PointerRelease(rig.x(3.5), y))
    assert rig.tool.time == pytest.approx(3.5, abs=0.03)


def test_it_is_played_at_its_own_pace(rig: Rig) -> None:
    assert rig.view.handle(Key("p"), RECT)
    assert "two key frames" in rig.said[-1]
    for x in (-1.0, 1.0):
        rig.key(x)
    rig.tool.play()
    begin = rig.tool._playing_since
    assert begin is not None
    rig.tool.tick(begin + 1.0)
    assert rig.tool.time == pytest.approx(1.0)
    seen = rig.view.camera(RECT)
    assert seen is not None
    np.testing.assert_allclose(seen.viewmat, rig.tool.path.at(rig.tool.time, W, H).viewmat, atol=1e-9)
    rig.tool.tick(begin + 5.0)
    assert not rig.tool.playing
    assert rig.tool.time == rig.tool.path.duration
    rig.tool.path.loop = True
    rig.tool.seek(0.0)
    rig.tool.play()
    begin = rig.tool._playing_since
    assert begin is not None
    rig.tool.tick(begin + 5.0)
    assert rig.tool.playing
    assert rig.tool.time == pytest.approx(1.0)
    assert rig.view.handle(Key("p"), RECT)
    assert not rig.tool.playing


def test_it_is_there_the_next_time(screen: OffscreenScreen) -> None:
    memo = Memo()
    first = Rig(screen, memo)
    for x in (-1.0, 0.0, 1.0):
        first.key(x)
    first.tool.path.loop = True
    first.tool.changed()
    first.close()
    again = Rig(screen, memo)
    again.view.tick(time.monotonic())
    assert [round(float(k.position[0]), 6) for k in again.tool.path.keys] == [-1.0, 0.0, 1.0]
    assert again.tool.path.loop
    for kept in (7, {"keyframes": 3}, [], {"keyframes": [{"matrix": "x"}]}):
        memo.put("path/scene.ply", kept)
        other = Rig(screen, memo)
        other.view.tick(time.monotonic())
        assert not other.tool.path.keys
        other.close()
    again.close()


def test_it_is_saved_and_dropped(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for x in (-1.0, 0.0, 1.0):
        rig.key(x)
    rig.tool.save()
    file = tmp_path / "scene-path.json"
    assert len(read_path(file).path.keys) == 3
    assert str(file) in rig.said[-1]
    rig.tool.path.keys.clear()
    assert rig.view.dropped(file)
    assert len(rig.tool.path.keys) == 3
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"no": "path"}))
    assert not rig.view.dropped(other)
    assert "neither" in rig.said[-1]
    assert not rig.view.dropped(tmp_path / "scene.ply")


def test_it_is_filmed_while_the_loop_goes_on(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for x in (-1.0, 1.0):
        rig.key(x)
    rig.tool.path.stretch(0.4)
    rig.tool.film = type(rig.tool.film)(rig.tool.path, 64, 48, 10.0)
    rig.tool.as_frames = True
    rig.tool.record()
    assert rig.tool.filming is not None
    end = time.monotonic() + PATIENCE
    while rig.tool.filming is not None:
        rig.view.tick(time.monotonic())
        rig.draw()
        assert time.monotonic() < end
    assert len(list((tmp_path / "scene").iterdir())) == 4
    assert "4 pictures" in rig.said[-1]
    rig.tool.record()
    rig.tool.cancel()
    assert rig.tool.filming is None
    assert "given up" in rig.said[-1]
    assert len(rig.view.content.views) == 1


def test_pictures_to_keep_have_no_path_in_them(rig: Rig) -> None:
    rig.view.use_camera(camera(0))
    rig.view.draw(rig.screen.framebuffer, RECT)
    before = rig.screen.pixels()
    rig.tool.around()
    rig.view.use_camera(camera(0))
    rig.view.draw(rig.screen.framebuffer, RECT)
    np.testing.assert_array_equal(rig.screen.pixels(), before)
    rig.draw()
    assert (rig.screen.pixels() != before).any()  # it is seen on the screen


def test_over_a_picture_lines_are_the_same_beside_a_light_panel(rig: Rig) -> None:
    for x in (-1.0, 0.0, 1.0):
        rig.key(x)
    rig.view.use_camera(Camera(look_at((0.5, -1.5, -9), (0, 0, 0)), intrinsics(50, W, H), W, H))
    pictures = []
    for light in (False, True):
        rig.panel._light = light  # as the seat's state says before each picture
        rig.draw()
        pictures.append(rig.screen.pixels()[..., :3].astype(int))
    bar = H - round(rig.tool.bar_height())
    np.testing.assert_array_equal(pictures[0][:bar], pictures[1][:bar])
    assert (pictures[0][bar:] != pictures[1][bar:]).any()
    blue = np.abs(pictures[0][:bar] - 255 * np.array([theme.MARK.x, theme.MARK.y, theme.MARK.z])).max(-1) < 40
    assert blue.sum() > 50
