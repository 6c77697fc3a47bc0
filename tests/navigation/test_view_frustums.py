"""Cameras drawn over a scene, and looking through them: pixels compared, on a real OpenGL context."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.frames import gaussian_frame
from support.training_camera_cases import SIZE, cameras_frame, photographs, photos_frame
from support.view_cases import RECT, H, W, module_screen, screen_fixture, shown  # noqa: F401

from splatview.viewer_app.cameras import Camera, intrinsics, look_at, project
from splatview.viewer_app.controls import Rect
from splatview.viewer_app.events import Key, PointerMove, PointerPress, PointerRelease
from splatview.viewer_app.gpu_work import GpuWork
from splatview.viewer_app.interface.panel import Panel
from splatview.viewer_app.training_cameras.content import CamerasContent
from splatview.viewer_app.training_cameras.drawing import Look
from splatview.viewer_app.training_cameras.model import at_size
from splatview.viewer_app.views.cameras import CamerasView
from splatview.viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from splatview.viewer_app.screens.offscreen import OffscreenScreen
    from splatview.viewer_app.views._gaussians.frustums import Frustums

COUNT = 8
PHOTOS = photographs(COUNT)


def answer(content: CamerasContent, now: float = 0.0) -> None:
    """What a publisher does: bring what is asked for."""
    for camera, side in content.photos.requests(now):
        photos = PHOTOS[camera: camera + 1]
        if side:
            photos = torch.nn.functional.interpolate(PHOTOS[camera:].permute(0, 3, 1, 2).float(), (side, side),
                                                     mode="area").permute(0, 2, 3, 1).to(torch.uint8)
        content.take_photos(photos_frame(photos, camera, side))


@pytest.fixture
def content(screen: OffscreenScreen) -> Iterator[CamerasContent]:
    made = CamerasContent(screen.ctx, GpuWork(screen.ctx))
    user = CamerasView(screen.ctx)
    made.join(user)
    assert made.update(cameras_frame(COUNT, 1))
    yield made
    made.leave(user)
    user.close()


@pytest.fixture
def view(screen: OffscreenScreen, content: CamerasContent) -> Iterator[GaussianView]:
    made = GaussianView(screen.ctx)
    made.update(gaussian_frame())
    frustums(made).use(content)
    shown(made, screen)
    yield made
    made.close()


def frustums(view: GaussianView) -> Frustums:
    return view.tools["frustums"]  # type: ignore[return-value]


def eye(model: Any) -> Camera:
    K = intrinsics(60, W, H, model)
    if model == "ortho":
        K[[0, 1], [0, 1]] /= 8
    return Camera(look_at((0, -5, 8), (0, 0, 0)), K, W, H, model)


LOOK = Look((1.0, 0.0, 0.0, 1.0), (0.0, 1.0, 0.0, 1.0), (0.0, 0.0, 1.0, 1.0), 0.6, width=1.0, pictures=False)


@pytest.mark.parametrize("model", ["pinhole", "ortho", "fisheye"])
def test_lines_lie_where_the_cameras_are(screen: OffscreenScreen, content: CamerasContent, model: str) -> None:
    camera, cameras = eye(model), content.cameras
    assert cameras is not None
    screen.framebuffer.clear(0.5, 0.5, 0.5, 1.0)
    content.drawing.draw(screen.framebuffer, RECT, camera, LOOK)
    drawn = screen.pixels()[..., :3].astype(int)
    red = (drawn[..., 0] - drawn[..., 1]) > 25
    assert red.any()
    marks = []
    for number in range(COUNT):
        points = cameras.outline(number, 0.6)
        for a, b in ((0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (2, 3), (3, 4), (4, 1)):
            along = points[a] + np.linspace(0, 1, 40)[:, None] * (points[b] - points[a])
            marks.append(project(camera, along))
    marks = np.concatenate(marks)
    marks = marks[np.isfinite(marks).all(1)]
    inside = marks[(marks > 1).all(1) & (marks < (W - 1, H - 1)).all(1)]
    pixels = np.floor(inside).astype(int)
    near = np.stack([red[y - 1: y + 2, x - 1: x + 2].any() for x, y in pixels])
    assert near.mean() > (0.98 if model != "fisheye" else 0.9)  # straight lines stand for curved ones there
    # And there are none elsewhere, but for the marks above the pictures.
    y, x = np.nonzero(red)
    away = np.abs(np.stack([x + 0.5, y + 0.5], 1)[:, None] - marks[None]).max(2).min(1)
    assert (away < 5).all()


def test_marked_ones_stand_out(screen: OffscreenScreen, content: CamerasContent) -> None:
    from dataclasses import replace

    screen.framebuffer.clear(0.0, 0.0, 0.0, 1.0)
    content.drawing.draw(screen.framebuffer, RECT, eye("pinhole"), replace(LOOK, marked=3, current=5))
    drawn = screen.pixels()[..., :3].astype(int)
    for channel, number in ((1, 3), (2, 5)):
        colored = drawn[..., channel] > 100
        assert colored.any()
        assert content.cameras is not None
        middle = project(eye("pinhole"), content.cameras.outline(number, 0.6)).mean(0)
        y, x = np.nonzero(colored)
        assert np.hypot(x - middle[0], y - middle[1]).max() < 14


def test_photographs_hang_in_their_frustums(screen: OffscreenScreen, content: CamerasContent) -> None:
    from dataclasses import replace

    content.tick(0.0)
    answer(content)
    content.tick(0.0)
    look = replace(LOOK, pictures=True, opacity=1.0, depth=2.0, color=(0.0, 0.0, 0.0, 0.0))
    assert content.cameras is not None
    camera = Camera(look_at((0, -1.2, 16), (0, -1, 0)), intrinsics(35, W, H), W, H)
    screen.framebuffer.clear(0.0, 0.0, 0.0, 1.0)
    content.drawing.draw(screen.framebuffer, RECT, camera, look)
    drawn = screen.pixels()[..., :3].astype(float)
    x, y = project(camera, content.cameras.outline(0, 2.0)[1:].mean(0))  # seen from behind, so left is right
    color = drawn[int(y), int(x)]
    photo = PHOTOS[0].numpy().mean((0, 1))
    share = color / photo  # it is fainter than it is, since it is far off
    assert share.min() > 0.25
    assert share.max() - share.min() < 0.08


def test_the_empty_set_draws_nothing(screen: OffscreenScreen, content: CamerasContent) -> None:
    assert content.update(cameras_frame(0))
    screen.framebuffer.clear(0.2, 0.4, 0.6, 1.0)
    before = screen.pixels()
    content.drawing.draw(screen.framebuffer, RECT, eye("pinhole"), LOOK)
    np.testing.assert_array_equal(screen.pixels(), before)
    assert content.update(cameras_frame(3))
    content.drawing.draw(screen.framebuffer, RECT, eye("pinhole"), LOOK)
    assert (screen.pixels() != before).any()


# -- through a camera ----------------------------------------------------------------------------------------------


def through(view: GaussianView, number: int, screen: OffscreenScreen, content: CamerasContent,
            rect: Rect = RECT) -> None:
    """Look through a camera, until its photograph is there."""
    frustums(view).enter(number, 0.0)
    for now in (0.0, 2.0, 4.0):
        shown(view, screen, rect)
        view.tick(now)
        content.photos.whole(number)
        answer(content, now)
    shown(view, screen, rect)
    assert frustums(view).through.there


def test_it_sees_all_that_the_camera_saw(view: GaussianView, screen: OffscreenScreen, content: CamerasContent) -> None:
    through(view, 3, screen, content)
    tool = frustums(view).through
    tool.how = "render"
    place = tool.place(RECT)
    assert place == Rect(14, 0, 36, 24)  # half of the height is the bar's here
    whole = shown(view, screen)[place.y:place.y + place.height, place.x:place.x + place.width]
    assert content.cameras is not None
    camera = content.cameras.camera(3)
    assert camera is not None
    alone = view.beside(view.settings)
    try:
        alone.use_camera(at_size(camera, place.width, place.height))
        rect = Rect(0, 0, place.width, place.height)
        exact = shown(alone, screen, rect)[:place.height, :place.width]
    finally:
        alone.close()
    # The same but for a part of a pixel.
    assert np.abs(whole - exact).mean() < 12
    assert np.corrcoef(whole.ravel(), exact.ravel())[0, 1] > 0.97


def test_each_way_to_compare(view: GaussianView, screen: OffscreenScreen, content: CamerasContent) -> None:
    screen.resize(480, 400)
    rect = Rect(0, 0, 480, 400)
    view.draw(screen.framebuffer, rect)
    through(view, 1, screen, content, rect)
    tool = frustums(view).through
    place = tool.place(rect)
    assert (place.width, place.height) == (480, 320)
    pictures = {}
    for tool.how in ("render", "photo", "wipe", "side", "error"):
        pictures[tool.how] = shown(view, screen, rect)
    inside = slice(place.y, place.y + 320), slice(0, 480)
    photo, rendered = pictures["photo"][inside], pictures["render"][inside]
    wanted = np.kron(PHOTOS[1].numpy(), np.ones((10, 10, 1)))
    assert np.abs(photo - wanted).max() <= 2
    np.testing.assert_array_equal(pictures["wipe"][inside][:, :239], rendered[:, :239])
    np.testing.assert_array_equal(pictures["wipe"][inside][:, 241:], photo[:, 241:])
    sides = tool.sides(rect)
    right = pictures["side"][sides.y: sides.y + sides.height, sides.x + sides.width // 2: sides.x + sides.width]
    assert np.abs(right[80, ::40] - PHOTOS[1].numpy()[16, ::8][: len(right[80, ::40])]).max() <= 6
    apart = np.abs(photo - rendered).mean(2)
    bright = pictures["error"][inside].sum(2)
    assert bright[apart > 60].mean() > bright[apart < 20].mean() + 50 if (apart < 20).any() else bright.mean() > 50
    tool.how, tool.opacity = "photo", 0.5
    half = shown(view, screen, rect)[inside]
    assert np.abs(half - (photo + rendered) / 2).max() <= 1.5
    # The line is dragged.
    tool.how = "wipe"
    y = place.y + 100
    assert view.handle(PointerPress(240, y), rect)
    assert view.handle(PointerMove(120, y), rect)
    assert view.handle(PointerRelease(120, y), rect)
    assert abs(tool.divider.at - 0.25) < 0.01
    moved = shown(view, screen, rect)[inside]
    np.testing.assert_array_equal(moved[:, 122:], photo[:, 122:])


def test_the_psnr_is_that_of_the_same_pixels(view: GaussianView, screen: OffscreenScreen, content: CamerasContent,
                                             wait_until: Callable[..., Any]) -> None:
    through(view, 2, screen, content)
    tool = frustums(view).through

    def measured() -> bool:
        view.tick(time.monotonic())
        return tool.psnr is not None

    wait_until(measured)
    assert content.cameras is not None
    alone = view.beside(view.settings)
    try:
        camera = content.cameras.camera(2)
        assert camera is not None
        alone.use_camera(camera)
        screen.resize(*SIZE)
        pixels = shown(alone, screen, Rect(0, 0, *SIZE))
    finally:
        alone.close()
    rendered = torch.from_numpy(pixels).double() / 255
    error = torch.mean((rendered - PHOTOS[2].double() / 255) ** 2)
    assert abs(float(-10 * torch.log10(error)) - tool.psnr) < 0.01  # type: ignore[operator]


def test_following_begins_when_the_scene_has_come(screen: OffscreenScreen, content: CamerasContent) -> None:
    view = GaussianView(screen.ctx)
    try:
        tool = frustums(view)
        tool.use(content)
        content.say_current(2)
        tool.follow(True)
        for now in (100.0, 101.0, 102.0):
            view.tick(now)
        assert tool.following
        view.update(gaussian_frame())
        view.tick(103.0)
        assert (tool.following, tool.through.index) == (True, 2)
    finally:
        view.close()


def test_a_new_scene_is_measured_anew(view: GaussianView, screen: OffscreenScreen, content: CamerasContent,
                                      wait_until: Callable[..., Any]) -> None:
    from support.frames import cloud

    through(view, 2, screen, content)
    tool = frustums(view).through

    def measured() -> float | None:
        view.tick(time.monotonic())
        return tool.psnr

    first = wait_until(measured)
    view.update(gaussian_frame(cloud(50, seed=9)))
    shown(view, screen)
    wait_until(lambda: measured() != first)


def test_going_elsewhere_leaves_the_camera(view: GaussianView, screen: OffscreenScreen,
                                           content: CamerasContent) -> None:
    before = view.camera()
    through(view, 4, screen, content)
    view.orbit.orbit(0.1, 0.0)
    view.moved()
    assert view.tick(time.monotonic())
    assert frustums(view).through.index is None
    through(view, 4, screen, content)
    assert view.handle(Key("page_up"), RECT)
    assert frustums(view).through.index == 3
    assert view.handle(Key("escape"), RECT)
    assert frustums(view).through.index is None
    assert before is not None
    assert frustums(view).handle(Key("page_up"), RECT) is None


def test_it_stays_with_the_camera_when_its_pose_changes(view: GaussianView, screen: OffscreenScreen,
                                                        content: CamerasContent) -> None:
    through(view, 1, screen, content)
    assert content.update(cameras_frame(COUNT, 1, distance=5.0))
    for _ in range(3):
        view.tick(time.monotonic())
        shown(view, screen)
    tool = frustums(view).through
    camera = view.camera()
    assert tool.there
    assert camera is not None
    assert content.cameras is not None
    np.testing.assert_allclose(camera.position, content.cameras.positions[1], atol=1e-9)
    assert content.update(cameras_frame(1, 1))
    view.tick(time.monotonic())
    assert tool.index is None


def test_what_is_drawn_with_imgui(view: GaussianView, screen: OffscreenScreen, content: CamerasContent) -> None:
    panel = Panel()
    try:
        for how in ("render", "photo", "wipe", "side", "error"):
            for rect in (Rect(0, 0, 1000, 500), Rect(0, 0, 300, 300), Rect(0, 0, 40, 60)):
                screen.resize(rect.width, rect.height)
                view.draw(screen.framebuffer, rect)
                through(view, 5, screen, content, rect)
                frustums(view).through.how = how
                before = shown(view, screen, rect)
                panel.draw_over(screen.framebuffer, view.over, 1.0)
                assert (screen.pixels()[..., :3] != before).any()
    finally:
        panel.close()


def test_two_users_look_for_themselves(view: GaussianView, screen: OffscreenScreen, content: CamerasContent) -> None:
    other = view.beside(view.settings)
    try:
        frustums(other).use(content)
        through(view, 5, screen, content)
        assert frustums(other).through.index is None
        shown(other, screen)
        other.like(view)
        assert frustums(other).through.index == 5
        frustums(view).leave()
        other.like(view)
        assert frustums(other).through.index is None
    finally:
        other.close()
    assert not content.closed


# -- by themselves -------------------------------------------------------------------------------------------------


def test_rows_show_the_photographs_and_a_click_opens_one(screen: OffscreenScreen) -> None:
    screen.resize(800, 300)
    rect = Rect(0, 0, 800, 300)
    view = CamerasView(screen.ctx)
    try:
        assert view.update(cameras_frame(COUNT, 1))
        for now in (0.0, 2.0):
            view.tick(now)
            answer(view.content, now)
        view.tick(3.0)
        drawn = shown(view, screen, rect)
        _, rows = view._parts(rect)
        assert rows is not None
        grid = view._grid(rows)
        for number in range(2):
            x, y, w, h = grid.place(number)
            seen = drawn[int(rows.y + y + h / 2), int(rows.x + x + w / 2)]
            assert np.abs(seen - PHOTOS[number].numpy()[16, 24]).max() <= 6
        x, y, w, h = grid.place(1)
        place = rows.x + x + w / 2, rows.y + y + h / 2
        assert view.handle(PointerMove(*place), rect)
        assert view.hovered == 1
        view.handle(PointerPress(*place), rect)
        view.handle(PointerRelease(*place), rect)
        assert view.opened == 1
        shown(view, screen, rect)
        answer(view.content, 9.0)
        drawn = shown(view, screen, rect)
        assert np.abs(drawn[150, 400] - PHOTOS[1].numpy()[16, 24]).max() <= 3
        assert (drawn[150, 5] == drawn[5, 5]).all()  # the backdrop
        view.handle(Key("page_down"), rect)
        assert view.opened == 2
        view.handle(Key("escape"), rect)
        assert view.opened is None
        assert math.isfinite(view._scroll)
    finally:
        view.close()
