"""Cameras drawn over a scene, and looking through them, with OpenGL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from imgui_bundle import imgui
from PIL import Image
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
from torch.nn.functional import interpolate

from splatview_viewer.core.events import PointerMove, PointerPress, PointerRelease
from splatview_viewer.core.handed import HandedOn
from splatview_viewer.core.screen import Rect, read_pixels
from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at, project
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.kinds.cameras.view import CamerasState, CamerasView
from splatview_viewer.render.cameras.content import CamerasContent
from splatview_viewer.render.cameras.drawing import FrustumStyle
from splatview_viewer.scene_view.frustums import Frustums
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.surface import Surface

COUNT = 8
PHOTOS = photographs(COUNT)
STYLE = FrustumStyle(0.6, width=1.0, pictures=False)


def answer(content: CamerasContent, now: float = 0.0) -> None:
    """Bring the photographs that are asked for, as a publisher does."""
    for camera, side in content.photos.requests(now):
        photos = PHOTOS[camera : camera + 1]
        if side:
            planes = PHOTOS[camera:].permute(0, 3, 1, 2).float()
            small = interpolate(planes, (side, side), mode="area")
            photos = small.permute(0, 2, 3, 1).to(torch.uint8)
        content.take_update(photos_frame(photos, camera, side))


@pytest.fixture
def content(screen: OffscreenScreen) -> Iterator[CamerasContent]:
    new_content = CamerasContent(screen.ctx, GpuWork(screen.ctx))
    user = CamerasView(new_content, CamerasState())
    assert new_content.update(cameras_frame(COUNT, 1))
    yield new_content
    user.release("last")


@pytest.fixture
def view(screen: OffscreenScreen, content: CamerasContent) -> Iterator[Any]:
    new_view = scene_view(screen)
    new_view.update(gaussian_frame())
    frustums(new_view).use(content)
    view_pixels(new_view, screen)
    yield new_view
    new_view.close()


def frustums(view: Any) -> Frustums:
    return view.view.tools["frustums"]  # type: ignore[return-value]


def test_following_starts_when_the_scene_arrives(
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
    assert tool.is_following
    assert tool.through.index == 2
    view.close()


EDGES = ((0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (2, 3), (3, 4), (4, 1))
"""Corners of an outline that a line joins: apex and edges of the picture."""


def pixels_on_lines(camera: Camera, outline: np.ndarray) -> np.ndarray:
    """Return pixels (N, 2) along the lines of an outline of a camera."""
    shares = np.linspace(0, 1, 40)[:, None]
    lines = []
    for a, b in EDGES:
        points = outline[a] + shares * (outline[b] - outline[a])
        lines.append(project(camera, points))
    return np.concatenate(lines)


@pytest.mark.parametrize(("model", "share"), [("pinhole", 0.98), ("fisheye", 0.9)])
def test_lines_lie_where_the_cameras_are(
    screen: OffscreenScreen, content: CamerasContent, model: Any, share: float
) -> None:
    viewmat = look_at((0, -5, 8), (0, 0, 0))
    camera = Camera(viewmat, intrinsics(60, W, H, model), W, H, model)
    cameras = content.cameras
    assert cameras is not None
    screen.framebuffer.clear(0.0, 0.0, 0.0, 1.0)
    content.drawing.draw(screen.framebuffer, RECT, camera, STYLE)
    is_lit = screen.pixels()[..., 0] > 18
    outlines = [cameras.outline(index, 0.6) for index in range(COUNT)]
    marks = np.concatenate([pixels_on_lines(camera, outline) for outline in outlines])
    marks = marks[np.isfinite(marks).all(1)]
    is_inside = (marks > 1).all(1) & (marks < (W - 1, H - 1)).all(1)
    inside = np.floor(marks[is_inside]).astype(int)
    near = np.stack([is_lit[y - 1 : y + 2, x - 1 : x + 2].any() for x, y in inside])
    # Straight lines stand for curved ones in a fisheye's picture.
    assert near.mean() > share
    # And there are none elsewhere, but for the marks above the pictures.
    y, x = np.nonzero(is_lit)
    lit_pixels = np.stack([x + 0.5, y + 0.5], 1)
    offsets = np.abs(lit_pixels[:, None] - marks[None])
    distance = offsets.max(2).min(1)
    assert (distance < 5).all()


# -- through a camera ----------------------------------------------------------


def through(
    view: Any,
    index: int,
    screen: OffscreenScreen,
    content: CamerasContent,
    rect: Rect = RECT,
) -> None:
    """Look through a camera, until its photograph is there."""
    frustums(view).enter(index, 0.0)
    for now in (0.0, 2.0, 4.0):
        view_pixels(view, screen, rect)
        view.tick(now)
        content.photos.photo(index)
        answer(content, now)
    view_pixels(view, screen, rect)
    assert frustums(view).through.is_there


def test_photograph_is_compared_in_each_mode(
    view: Any, screen: OffscreenScreen, content: CamerasContent
) -> None:
    screen.resize(480, 400)
    rect = Rect(0, 0, 480, 400)
    view.draw(screen.framebuffer, rect)
    through(view, 1, screen, content, rect)
    tool = frustums(view).through
    # Half of the height is the bar's there.
    assert tool.photo_rect(RECT) == Rect(14, 0, 36, 24)
    photo_rect = tool.photo_rect(rect)
    assert photo_rect.width == 480
    assert photo_rect.height == 320
    pictures = {}
    for mode in ("render", "photo", "wipe", "side", "error"):
        frustums(view).change(comparison=mode)
        assert frustums(view).paints == (mode != "render")
        pictures[mode] = view_pixels(view, screen, rect)
    inside = slice(photo_rect.y, photo_rect.y + 320), slice(0, 480)
    photo = pictures["photo"][inside]
    rendered = pictures["render"][inside]
    wiped = pictures["wipe"][inside]
    expected = np.kron(PHOTOS[1].numpy(), np.ones((10, 10, 1)))
    assert np.abs(photo - expected).max() <= 2
    np.testing.assert_array_equal(wiped[:, :239], rendered[:, :239])
    np.testing.assert_array_equal(wiped[:, 241:], photo[:, 241:])
    check_side(pictures["side"], tool.photo_rect(rect, 2))
    difference = np.abs(photo - rendered).mean(2)
    brightness = pictures["error"][inside].sum(2)
    of_large = brightness[difference > 60].mean()
    of_small = brightness[difference <= 60].mean()
    assert of_large > of_small + 50
    frustums(view).change(comparison="photo", opacity=0.5)
    half = view_pixels(view, screen, rect)[inside]
    assert np.abs(half - (photo + rendered) / 2).max() <= 1.5
    drag_line(view, rect)
    moved = view_pixels(view, screen, rect)[inside]
    np.testing.assert_array_equal(moved[:, 122:], photo[:, 122:])


def layer_over(view: Any, screen: OffscreenScreen, rect: Rect) -> np.ndarray:
    """Draw what lies over a picture that a screen draws, (H, W, 4) from 0 to 255."""
    screen.framebuffer.use()
    screen.framebuffer.clear()
    view.view.draw_over_handed(screen.framebuffer, rect)
    return read_pixels(screen.framebuffer).astype(float)


def has_photo(view: Any, rect: Rect) -> bool:
    """Return whether a photograph is handed on over the picture."""
    return view.hand_on(rect).photo is not None


def with_photo(picture: np.ndarray, handed: HandedOn) -> np.ndarray:
    """Return a picture with the photograph over it, as a screen makes it."""
    assert handed.drawing is not None
    assert handed.photo is not None
    handed_photo = handed.drawing.photo
    assert handed_photo is not None
    assert handed_photo.number == handed.photo.number
    left, top, width, height = handed_photo.clip
    x, y, whole_width, whole_height = handed_photo.box
    image = Image.open(BytesIO(handed.photo.data))
    resized = image.resize((whole_width, whole_height), Image.Resampling.BILINEAR)
    pixels = np.asarray(resized, float)
    composed = picture.astype(float)
    inside = np.s_[top : top + height, left : left + width]
    seen_pixels = pixels[top - y : top - y + height, left - x : left - x + width]
    opacity = handed_photo.opacity
    composed[inside] += opacity * (seen_pixels - composed[inside])
    return composed


def test_photograph_lies_over_a_picture_that_a_screen_draws(
    view: Any, screen: OffscreenScreen, content: CamerasContent
) -> None:
    screen.resize(480, 400)
    rect = Rect(0, 0, 480, 400)
    view.draw(screen.framebuffer, rect)
    through(view, 1, screen, content, rect)
    tool = frustums(view)
    tool.change(comparison="render")
    rendered = view_pixels(view, screen, rect)
    for mode in ("photo", "wipe", "side"):
        tool.change(comparison=mode, opacity=0.4)
        expected = view_pixels(view, screen, rect)
        wait_until(partial(has_photo, view, rect))
        handed = view.hand_on(rect)
        composed = with_photo(rendered, handed)
        box = handed.drawing.photo.box
        inside = np.s_[box[1] : box[1] + box[3], box[0] : box[0] + box[2]]
        assert np.abs(composed - expected)[inside].max() <= 4
    tool.change(comparison="wipe")
    handed = view.hand_on(rect)
    assert not layer_over(view, screen, rect).any()
    (grip,) = handed.drawing.grips
    assert Rect(*grip).contains(240, 100)
    assert handed.drawing.navigates
    view.view.host = replace(view.view.host, around="phone")
    tool.through.magnify(4.0, (240, 160), rect)
    drawing = view.hand_on(rect).drawing
    assert not drawing.navigates, "a finger pans the photograph"
    assert drawing.photo.box[2] > rect.width
    assert Rect(*drawing.photo.clip) == Rect(240, 0, 240, 400)
    view.view.host = replace(view.view.host, around="desktop")
    tool.change(comparison="error")
    handed = view.hand_on(rect)
    assert handed.drawing is None
    assert "Errors" in handed.reason


def test_screen_draws_the_picture_beside_a_photograph(
    view: Any, screen: OffscreenScreen, content: CamerasContent
) -> None:
    """In its column, as `draw` would make the whole picture smaller."""
    screen.resize(480, 400)
    rect = Rect(0, 0, 480, 400)
    view.draw(screen.framebuffer, rect)
    through(view, 1, screen, content, rect)
    frustums(view).change(comparison="side")
    picture = view_pixels(view, screen, rect)
    camera = view.hand_on(rect).drawing.camera
    whole_rect = frustums(view).through.photo_rect(rect)
    both = frustums(view).through.photo_rect(rect, 2)
    corners = [
        (whole_rect.x, whole_rect.y, 1),
        (whole_rect.x + whole_rect.width, whole_rect.y + whole_rect.height, 1),
    ]
    rays = np.linalg.inv(view.view.drawn_camera.K) @ np.transpose(corners)
    pixels = (np.reshape(camera.K, (3, 3)) @ rays)[:2].T
    right = both.x + both.width // 2
    bottom = both.y + both.height
    np.testing.assert_allclose(pixels, [(both.x, both.y), (right, bottom)], atol=1e-6)
    layer = layer_over(view, screen, rect)
    is_open = layer[..., 3] == 0
    assert is_open[both.y : bottom, both.x : both.x + both.width].all()
    assert is_open.sum() == both.height * both.width
    np.testing.assert_array_equal(layer[~is_open][:, :3], picture[~is_open])


def check_side(picture: np.ndarray, rect: Rect) -> None:
    """Check that the right half of `rect` has the photograph of camera 1."""
    columns = slice(rect.x + rect.width // 2, rect.x + rect.width)
    right = picture[rect.y : rect.y + rect.height, columns]
    row = right[80, ::40]
    expected = PHOTOS[1].numpy()[16, ::8][: len(row)]
    assert np.abs(row - expected).max() <= 6


def drag_line(view: Any, rect: Rect) -> None:
    """Drag the line between photograph and rendering to a quarter of the picture."""
    frustums(view).change(comparison="wipe")
    for event in (
        PointerPress(240, 100),
        PointerMove(120, 100),
        PointerRelease(120, 100),
    ):
        assert view.handle(event, rect)
    assert abs(view.view.state.training.divider_position - 0.25) < 0.01


def drawn_widgets(
    view: Any, panel: Surface, screen: OffscreenScreen
) -> dict[str, Rect]:
    """Draw the section of the cameras, and return the rectangles of its widgets."""
    widgets.drawn.clear()

    def draw_section(_: Rect, scale: float) -> bool:
        imgui.begin("part")
        frustums(view).sections()[0].draw()
        imgui.end()
        return False

    panel.draw_over(screen.framebuffer, draw_section, 1.0)
    return dict(widgets.drawn)


def has_psnr(view: Any) -> bool:
    """Take a turn, and return whether the PSNR of the photograph is known."""
    view.tick(clock())
    return frustums(view).through.meter.psnr is not None


def test_panel_shows_the_comparison_with_the_photograph(
    view: Any, screen: OffscreenScreen, content: CamerasContent
) -> None:
    """Check the modes while one looks through a camera, and the PSNR below them."""
    with closing(Surface(1.0)) as panel:
        assert "Wipe" not in drawn_widgets(view, panel, screen)
        through(view, 1, screen, content)
        for mode, neighbour in (("photo", "Opacity"), ("error", "Amplify")):
            frustums(view).change(comparison=mode)
            drawn = drawn_widgets(view, panel, screen)
            assert {"Wipe", "Leave", neighbour} <= drawn.keys()
            assert view.view.state.training.comparison == mode
        wait_until(partial(has_psnr, view))
        drawn = drawn_widgets(view, panel, screen)
        wipe = drawn["Wipe"]
        rows = (drawn["Amplify"].y - wipe.y) / wipe.height
        # The PSNR stands between them.
        assert rows > 1.8


def test_follower_shows_the_photograph_and_leaves_with_its_leader(
    view: Any, screen: OffscreenScreen, content: CamerasContent
) -> None:
    through(view, 1, screen, content)
    frustums(view).change(comparison="photo", opacity=0.7)
    with closing(view.another_view()) as follower:
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


def test_cameras_that_a_difference_does_not_show_take_no_click(
    view: Any, content: CamerasContent
) -> None:
    tool = frustums(view)
    tool.change(shown=True)
    cameras = tool.cameras
    camera = view.view.rig.camera(RECT)
    assert cameras is not None
    corners = cameras.outline(1, tool.depth)
    x, y = project(camera, corners[1:].mean(0, keepdims=True))[0]

    def click() -> None:
        tool.handle(PointerPress(x, y, "left"), RECT)
        tool.handle(PointerRelease(x, y, "left"), RECT)

    host = view.view.host
    assert tool.paints
    view.view.host = replace(host, is_subtracted=True)
    assert not tool.paints
    click()
    assert tool.hovered is None
    assert tool.through.index is None
    view.view.host = host
    click()
    assert tool.through.index is not None


def picture_of_camera(
    view: Any, screen: OffscreenScreen, content: CamerasContent, index: int
) -> np.ndarray:
    """Return the scene as a camera sees it, in the photograph's size."""
    assert content.cameras is not None
    camera = content.cameras.camera(index)
    assert camera is not None
    with closing(view.another_view()) as scene_alone:
        scene_alone.view.host.exact = "scene"
        scene_alone.view.rig.use_camera(camera)
        screen.resize(*SIZE)
        return view_pixels(scene_alone, screen, Rect(0, 0, *SIZE))


def test_psnr_is_that_of_the_same_pixels(
    view: Any, screen: OffscreenScreen, content: CamerasContent
) -> None:
    through(view, 2, screen, content)
    meter = frustums(view).through.meter
    wait_until(partial(has_psnr, view))
    pixels = picture_of_camera(view, screen, content, 2)
    rendered = torch.from_numpy(pixels).double() / 255
    error = torch.mean((rendered - PHOTOS[2].double() / 255) ** 2)
    first = meter.psnr
    assert first is not None
    assert abs(float(-10 * torch.log10(error)) - first) < 0.01
    view.update(gaussian_frame(cloud(50, seed=9)))
    view_pixels(view, screen)

    def has_new_psnr() -> bool:
        return has_psnr(view) and meter.psnr != first

    wait_until(has_new_psnr)
    # The framebuffer that was used last may have been released.
    closed = screen.ctx.simple_framebuffer((4, 4))
    closed.use()
    closed.release()
    assert content.cameras is not None
    camera = content.cameras.camera(2)
    assert camera is not None
    meter.begin(camera, PHOTOS[2].numpy())
    assert meter.result() == meter.psnr


def test_worst_photograph_is_found_and_the_order_goes_on_from_it(
    view: Any, screen: OffscreenScreen, content: CamerasContent
) -> None:
    tool = frustums(view)
    tool.go_to_worst()
    assert [job.title for job in view.view.jobs()] == ["The photographs' PSNR"]
    for second in range(60):
        view.tick(float(second))
        answer(content, float(second))
    assert not tool.survey.is_running
    assert len(tool.survey.psnrs) == COUNT
    order = list(tool.survey.order(content.cameras))  # type: ignore[arg-type]
    psnrs = [tool.survey.psnrs[index] for index in order]
    assert psnrs == sorted(psnrs)
    assert tool.through.index == order[0]
    tool.step(1)
    assert tool.through.index == order[1]
    through(view, order[1], screen, content)
    wait_until(partial(has_psnr, view))
    assert tool.through.meter.psnr == pytest.approx(psnrs[1], abs=0.01)
    tool.order_by_psnr(False)
    tool.step(1)
    assert tool.through.index == (order[1] + 1) % COUNT


@pytest.mark.parametrize(
    "background", [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (0.2, 0.5, 0.9)]
)
def test_transparent_photographs_lie_over_the_scenes_background(
    view: Any,
    screen: OffscreenScreen,
    content: CamerasContent,
    background: tuple[float, float, float],
) -> None:
    """Check the picture and the PSNR."""
    alpha = torch.zeros(COUNT, SIZE[1], SIZE[0], 1, dtype=torch.uint8)
    alpha[:, :, 8:40] = 255
    alpha[:, 8:16] = 100
    clear = torch.cat([PHOTOS, alpha], 3)
    share = alpha.double() / 255
    composed = PHOTOS * share + 255 * torch.tensor(background) * (1 - share)
    expected = composed[1].numpy()
    view.view.change(background=background)
    frustums(view).enter(1, 0.0)
    frustums(view).change(comparison="photo")
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
    photo_rect = frustums(view).through.photo_rect(rect)
    rows = slice(photo_rect.y, photo_rect.y + photo_rect.height)
    columns = slice(photo_rect.x, photo_rect.x + photo_rect.width)
    enlarged = np.kron(expected, np.ones((10, 10, 1)))
    difference = np.abs(pixels[rows, columns] - enlarged)
    # But for where neighbours are mixed.
    assert np.percentile(difference, 85) <= 2
    assert difference[:, 120:360].mean() < 2
    wait_until(partial(has_psnr, view))
    rendered = picture_of_camera(view, screen, content, 1)
    error = np.mean(((rendered - expected.round()) / 255) ** 2)
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
    view_from_behind = Camera(first.viewmat.copy(), first.K, W, H)
    view_from_behind.viewmat[2, 3] += 0.95
    style = FrustumStyle(0.6, width=0.5, opacity=1.0, background=background)
    screen.framebuffer.clear(0.0, 1.0, 0.0, 1.0)
    content.drawing.draw(screen.framebuffer, RECT, view_from_behind, style)
    middle = screen.pixels()[18, 24, :3].astype(int)
    expected = 0.2 * 255 + 0.8 * 255 * np.array(background)
    assert np.abs(middle - expected).max() <= 2
