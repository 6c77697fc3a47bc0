"""Parts of scenes in a kind that is not of Gaussians."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import points_kind
from support.view_cases import view_pixels
from support.wait import clock, wait_until

from splatview_viewer.core.events import PointerMove, PointerPress, PointerRelease
from splatview_viewer.core.host import Host
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.shown_view import ShownView
from splatview_viewer.formats.camera_paths import Film
from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.screens.offscreen import OffscreenScreen

RECT = Rect(0, 0, 160, 120)
FRONT = Camera(look_at((0.0, 0.0, -5.0), (0, 0, 0)), intrinsics(50, 160, 120), 160, 120)
POINTS = np.array([(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.5), (-1.0, 0.5, 1.0)])


@pytest.fixture(name="view")
def view_fixture(screen: OffscreenScreen) -> Iterator[ShownView]:
    screen.resize(RECT.width, RECT.height)
    view = ShownView(points_kind.view(screen.ctx, GpuWork(screen.ctx)))
    view.update(POINTS)
    yield view
    view.close()


def test_points_are_framed_orbited_and_looked_at(
    view: Any, screen: OffscreenScreen
) -> None:
    first = view_pixels(view, screen, RECT)
    # The whole scene is in view.
    assert first.any()
    assert view.view.state.place.framed
    for event in (PointerPress(40, 30), PointerMove(70, 50), PointerRelease(70, 50)):
        view.handle(event, RECT)
    assert view.view.state.place.by_hand
    assert (view_pixels(view, screen, RECT) != first).any()
    follower = view.another_view()
    follower.follow(view, alike=True)
    np.testing.assert_array_equal(
        view_pixels(follower, screen, RECT), view_pixels(view, screen, RECT)
    )
    follower.close()
    view.view.rig.use_camera(FRONT)
    assert view.view.rig.camera(RECT).key == FRONT.key
    # A double click on a point orbits around it.
    for clicks in (1, 2):
        view.handle(PointerPress(80, 60, clicks=clicks), RECT)
        view.handle(PointerRelease(80, 60), RECT)

    def is_flying() -> bool:
        return view.tick(50.0)

    wait_until(is_flying)
    assert any(not view.tick(50.0 + i / 60) for i in range(200)), "it never rests"
    np.testing.assert_allclose(view.view.rig.orbit.target, 0, atol=1e-9)


def test_points_are_filmed_along_a_path(
    view: Any, screen: OffscreenScreen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    messages: list[str] = []
    view.view.host = Host(messages.append, name="points.ply")
    view_pixels(view, screen, RECT)
    tool = view.view.path
    for _ in range(2):
        tool.add_key()
        view.view.rig.use_camera(FRONT)
    assert tool.path.times == [0.0, 2.0]
    titles = {section.title for section in view.sections}
    assert titles == {"Camera", "Near and far", "Path", "Keyframe 2", "Video"}
    tool.film = Film(tool.path, 64, 48, 2.0)
    tool.film_maker.as_frames = True
    tool.film_maker.start()
    assert tool.film_maker.filming is not None

    def is_done() -> bool:
        view.tick(clock())
        view.work()
        return tool.film_maker.filming is None

    wait_until(is_done)
    assert "pictures" in messages[-1]
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.iterdir())) == 4
