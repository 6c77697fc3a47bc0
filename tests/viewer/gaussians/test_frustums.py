"""Cameras drawn over a scene, and looking through them, with OpenGL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from imgui_bundle import imgui
from support import widgets
from support.frames import (
    SIZE,
    cameras_frame,
    cloud,
    gaussian_frame,
    photographs,
    photos_frame,
)
from support.view_cases import RECT, H, W, scene_view, view_pixels
from support.wait import clock, wait_until

from splatview_viewer.core.events import PointerMove, PointerPress, PointerRelease
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at, project
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.kinds.cameras.view import CamerasState, CamerasView
from splatview_viewer.render.cameras.content import CamerasContent
from splatview_viewer.render.cameras.drawing import FrustumStyle
from splatview_viewer.scene_view.frustums import Frustums
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.panel import Panel

COUNT = 8
PHOTOS = photographs(COUNT)
STYLE = FrustumStyle(0.6, width=1.0, pictures=False)


def answer(content: CamerasContent, now: float = 0.0) -> None:
    """What a publisher does: bring what is asked for."""
    for camera, side in content.photos.requests(now):
        photos = PHOTOS[camera : camera + 1]
        if side:
            photos = (
                torch.nn.functional.interpolate(
                    PHOTOS[camera:].permute(0, 3, 1, 2).float(),
                    (side, side),
                    mode="area",
                )
                .permute(0, 2, 3, 1)
                .to(torch.uint8)
            )
        content.take_update(photos_frame(photos, camera, side))


@pytest.fixture
def content(screen: OffscreenScreen) -> Iterator[CamerasContent]:
    made = CamerasContent(screen.ctx, GpuWork(screen.ctx))
    user = CamerasView(made, CamerasState())
    assert made.update(cameras_frame(COUNT, 1))
    yield made
    user.release("last")


@pytest.fixture
def view(screen: OffscreenScreen, content: CamerasContent) -> Iterator[Any]:
    made = scene_view(screen)
    made.update(gaussian_frame())
    frustums(made).use(content)
    view_pixels(made, screen)
    yield made
    made.close()


def frustums(view: Any) -> Frustums:
    return view.view.tools["frustums"]  # type: ignore[return-value]


def test_following_begins_when_the_scene_has_come(
    screen: OffscreenScreen, content: CamerasContent
) -> None:
    view = scene_view(screen)
    tool = frustums(view)
    tool.use(content)
    content.current = 2
    tool.follow(True)
    view.tick(100.0)
    assert tool.is_following
    assert tool.through.index is None
    view.update(gaussian_frame())
    view.tick(103.0)
    assert (tool.is_following, tool.through.index) == (True, 2)
    view.close()


@pytest.mark.parametrize(("model", "share"), [("pinhole", 0.98), ("fisheye", 0.9)])
def test_lines_lie_where_the_cameras_are(
    screen: OffscreenScreen, content: CamerasContent, model: Any, share: float
) -> None:
    camera = Camera(
        look_at((0, -5, 8), (0, 0, 0)), intrinsics(60, W, H, model), W, H, model
    )
    cameras = content.cameras
    assert cameras is not None
    screen.framebuffer.clear(0.0, 0.0, 0.0, 1.0)
    content.drawing.draw(screen.framebuffer, RECT, camera, STYLE)
    is_lit = screen.pixels()[..., 0] > 18
    outlines = [cameras.outline(number, 0.6) for number in range(COUNT)]
    marks = np.concatenate(
        [
            project(
                camera,
                points[a] + np.linspace(0, 1, 40)[:, None] * (points[b] - points[a]),
            )
            for points in outlines
            for a, b in ((0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (2, 3), (3, 4), (4, 1))
        ]
    )
    marks = marks[np.isfinite(marks).all(1)]
    inside = np.floor(
        marks[(marks > 1).all(1) & (marks < (W - 1, H - 1)).all(1)]
    ).astype(int)
    near = np.stack([is_lit[y - 1 : y + 2, x - 1 : x + 2].any() for x, y in inside])
    assert (
        near.mean() > share
    )  # straight lines stand for curved ones in a fisheye's picture
    # And there are none elsewhere, but for the marks above the pictures.
    y, x = np.nonzero(is_lit)
    away = np.abs(np.stack([x + 0.5, y + 0.5], 1)[:, None] - marks[None]).max(2).min(1)
    assert (away < 5).all()


# -- through a camera ----------------------------------------------------------


def through(
    view: Any,
    number: int,
    screen: OffscreenScreen,
    content: CamerasContent,
    rect: Rect = RECT,
) -> None:
    """Look through a camera, until its photograph is there."""
    frustums(view).enter(number, 0.0)
    for now in (0.0, 2.0, 4.0):
        view_pixels(view, screen, rect)
        view.tick(now)
        content.photos.photo(number)
        answer(content, now)
    view_pixels(view, screen, rect)
    assert frustums(view).through.is_there


def test_each_way_to_compare(
    view: Any, screen: OffscreenScreen, content: CamerasContent
) -> None:
    screen.resize(480, 400)
    rect = Rect(0, 0, 480, 400)
    view.draw(screen.framebuffer, rect)
    through(view, 1, screen, content, rect)
    tool = frustums(view).through
    assert tool.photo_rect(RECT) == Rect(
        14, 0, 36, 24
    )  # half of the height is the bar's there
    place = tool.photo_rect(rect)
    assert (place.width, place.height) == (480, 320)
    pictures = {}
    for how in ("render", "photo", "wipe", "side", "error"):
        frustums(view).change(how=how)
        pictures[how] = view_pixels(view, screen, rect)
    inside = slice(place.y, place.y + 320), slice(0, 480)
    photo = pictures["photo"][inside]
    rendered = pictures["render"][inside]
    expected = np.kron(PHOTOS[1].numpy(), np.ones((10, 10, 1)))
    assert np.abs(photo - expected).max() <= 2
    np.testing.assert_array_equal(pictures["wipe"][inside][:, :239], rendered[:, :239])
    np.testing.assert_array_equal(pictures["wipe"][inside][:, 241:], photo[:, 241:])
    sides = tool.photo_rect(rect, 2)
    right = pictures["side"][
        sides.y : sides.y + sides.height,
        sides.x + sides.width // 2 : sides.x + sides.width,
    ]
    assert (
        np.abs(
            right[80, ::40] - PHOTOS[1].numpy()[16, ::8][: len(right[80, ::40])]
        ).max()
        <= 6
    )
    difference = np.abs(photo - rendered).mean(2)
    bright = pictures["error"][inside].sum(2)
    assert bright[difference > 60].mean() > bright[difference <= 60].mean() + 50
    frustums(view).change(how="photo", opacity=0.5)
    half = view_pixels(view, screen, rect)[inside]
    assert np.abs(half - (photo + rendered) / 2).max() <= 1.5
    # The line is dragged.
    frustums(view).change(how="wipe")
    for event in (
        PointerPress(240, 100),
        PointerMove(120, 100),
        PointerRelease(120, 100),
    ):
        assert view.handle(event, rect)
    assert abs(view.view.state.training.at - 0.25) < 0.01
    moved = view_pixels(view, screen, rect)[inside]
    np.testing.assert_array_equal(moved[:, 122:], photo[:, 122:])


def test_panel_has_the_comparison_with_the_photograph(
    view: Any, screen: OffscreenScreen, content: CamerasContent
) -> None:
    """While one looks through a camera, with the PSNR below it once it is known."""
    panel = Panel(1.0)

    def see() -> dict[str, Rect]:
        widgets.drawn.clear()

        def over(_: Rect, scale: float) -> bool:
            imgui.begin("part")
            frustums(view).sections()[0].draw()
            imgui.end()
            return False

        panel.draw_over(screen.framebuffer, over, 1.0)
        return dict(widgets.drawn)

    try:
        assert "Compare" not in see()
        through(view, 1, screen, content)
        for how, neighbour in (("photo", "Opacity"), ("error", "Amplify")):
            frustums(view).change(how=how)
            assert {"Compare", neighbour} <= see().keys()
            assert view.view.state.training.how == how
        wait_until(
            lambda: (view.tick(clock()), frustums(view).through.meter.psnr is not None)[
                1
            ]
        )
        drawn = see()
        compare = drawn["Compare"]
        rows = (drawn["Amplify"].y - compare.y) / compare.height
        assert rows > 1.8  # the PSNR stands between them
    finally:
        panel.close()


def test_a_follower_sees_the_photograph_and_leaves_with_its_leader(
    view: Any, screen: OffscreenScreen, content: CamerasContent
) -> None:
    through(view, 1, screen, content)
    frustums(view).change(how="photo", opacity=0.7)
    follower = view.another_view()
    try:
        frustums(follower).use(content)
        follower.follow(view, alike=True)
        follower.tick(5.0)
        assert frustums(follower).through.is_there
        np.testing.assert_array_equal(
            view_pixels(follower, screen), view_pixels(view, screen)
        )
        frustums(view).leave()
        follower.follow(view, alike=True)
        follower.tick(6.0)
        assert frustums(follower).through.index is None
    finally:
        follower.close()


def test_the_psnr_is_that_of_the_same_pixels(
    view: Any, screen: OffscreenScreen, content: CamerasContent
) -> None:
    through(view, 2, screen, content)
    tool = frustums(view).through

    def measured() -> bool:
        view.tick(clock())
        return tool.meter.psnr is not None

    wait_until(measured)
    assert content.cameras is not None
    alone = view.another_view()
    try:
        camera = content.cameras.camera(2)
        assert camera is not None
        alone.view.rig.use_camera(camera)
        screen.resize(*SIZE)
        pixels = view_pixels(alone, screen, Rect(0, 0, *SIZE))
    finally:
        alone.close()
    rendered = torch.from_numpy(pixels).double() / 255
    error = torch.mean((rendered - PHOTOS[2].double() / 255) ** 2)
    first = tool.meter.psnr
    assert first is not None
    assert abs(float(-10 * torch.log10(error)) - first) < 0.01
    view.update(gaussian_frame(cloud(50, seed=9)))
    view_pixels(view, screen)
    wait_until(lambda: measured() and tool.meter.psnr != first)


@pytest.mark.parametrize(
    "background", [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (0.2, 0.5, 0.9)]
)
def test_transparent_photographs_lie_over_the_scenes_background(
    view: Any,
    screen: OffscreenScreen,
    content: CamerasContent,
    background: tuple[float, float, float],
) -> None:
    """In the picture, in the PSNR, and in the frustums."""
    alpha = torch.zeros(COUNT, SIZE[1], SIZE[0], 1, dtype=torch.uint8)
    alpha[:, :, 8:40] = 255
    alpha[:, 8:16] = 100
    clear = torch.cat([PHOTOS, alpha], 3)
    share = alpha.double() / 255
    expected = PHOTOS * share + 255 * torch.tensor(background) * (1 - share)
    view.view.change(background=background)
    frustums(view).enter(1, 0.0)
    frustums(view).change(how="photo")
    for now in (0.0, 2.0, 4.0):
        view_pixels(view, screen)
        view.tick(now)
        content.photos.photo(1)
        for camera, side in content.photos.requests(now):
            if not side:
                content.take_update(photos_frame(clear[camera : camera + 1], camera))
    screen.resize(480, 400)
    rect = Rect(0, 0, 480, 400)
    view_pixels(view, screen, rect)
    view.tick(6.0)
    pixels = view_pixels(view, screen, rect)
    place = frustums(view).through.photo_rect(rect)
    got = pixels[place.y : place.y + place.height, place.x : place.x + place.width]
    inner = np.kron(expected[1].numpy(), np.ones((10, 10, 1)))
    # But for where neighbours are mixed.
    assert np.percentile(np.abs(got - inner), 85) <= 2
    assert np.abs(got - inner)[:, 120:360].mean() < 2

    def measured() -> bool:
        view.tick(clock())
        return frustums(view).through.meter.psnr is not None

    wait_until(measured)
    alone = view.another_view()
    try:
        assert content.cameras is not None
        alone.view.rig.use_camera(content.cameras.camera(1))
        screen.resize(*SIZE)
        rendered = view_pixels(alone, screen, Rect(0, 0, *SIZE))
    finally:
        alone.close()
    error = np.mean(((rendered - expected[1].numpy().round()) / 255) ** 2)
    psnr = frustums(view).through.meter.psnr
    assert psnr is not None
    assert abs(-10 * np.log10(error) - psnr) < 0.05


@pytest.mark.parametrize("background", [(0.0, 0.0, 0.0), (0.2, 0.5, 0.9)])
def test_transparent_photographs_in_frustums_show_the_background(
    screen: OffscreenScreen,
    content: CamerasContent,
    background: tuple[float, float, float],
) -> None:
    clear = torch.full((COUNT, 128, 128, 4), 255, dtype=torch.uint8)
    clear[..., 3] = 51
    content.tick(0.0)
    for camera, side in content.photos.requests(0.0):
        content.take_update(photos_frame(clear, camera, side))
    content.tick(0.0)
    cameras = content.cameras
    assert cameras is not None
    first = cameras.camera(0)
    assert first is not None
    # Straight behind camera 0, whose picture is in the middle.
    is_behind = Camera(first.viewmat.copy(), first.K, W, H)
    is_behind.viewmat[2, 3] += 0.95
    style = FrustumStyle(0.6, width=0.5, opacity=1.0, background=background)
    screen.framebuffer.clear(0.0, 1.0, 0.0, 1.0)
    content.drawing.draw(screen.framebuffer, RECT, is_behind, style)
    middle = screen.pixels()[18, 24, :3].astype(int)
    expected = 0.2 * 255 + 0.8 * 255 * np.array(background)
    assert np.abs(middle - expected).max() <= 2
