"""Pictures with depth are drawn as another camera sees what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import moderngl
import numpy as np
import pytest

from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.cameras import (
    MODELS,
    Camera,
    CameraModel,
    intrinsics,
    look_at,
)
from splatview_viewer.render.cameras.photos import PhotoTexture
from splatview_viewer.render.gl.moving import MovedPicture, can_be_moved
from splatview_viewer.screens.offscreen import OffscreenScreen

W = 96
H = 64
RECT = Rect(0, 0, W, H)
BACKGROUND = (0.0, 1.0, 0.0)
_OPAQUE = np.full((H, W, 1), 255, np.uint8)


def camera_from(x: float, model: CameraModel = "pinhole", z: float = -3.0) -> Camera:
    K = intrinsics(50, W, H)
    if model == "ortho":
        K[0, 0] = K[1, 1] = 24
    return Camera(look_at((x, -0.4, z), (0, 0, 0)), K, W, H, model)


def rays_of(camera: Camera) -> tuple[np.ndarray, np.ndarray]:
    """Return where rays through pixels begin and go in the world; camera z is theirs."""
    columns, rows = np.meshgrid(np.arange(W) + 0.5, np.arange(H) + 0.5)
    slopes = np.stack([columns, rows], axis=2) - camera.K[:2, 2]
    slopes /= camera.focal_lengths
    local_start = np.zeros((H, W, 3))
    local_direction = np.dstack([slopes, np.ones((H, W))])
    if camera.model == "ortho":
        local_start[..., :2] = slopes
        local_direction[..., :2] = 0
    elif camera.model == "fisheye":
        angle = np.linalg.norm(slopes, axis=2, keepdims=True)
        local_direction[..., :2] = slopes / angle * np.tan(angle)
    rotation = camera.viewmat[:3, :3]
    return local_start @ rotation + camera.position, local_direction @ rotation


def wall_and_ball(camera: Camera) -> tuple[np.ndarray, np.ndarray]:
    """Return the picture of a slanted wall of many colours with a red ball before it."""
    start, direction = rays_of(camera)
    depth = (1 + 0.3 * start[..., 0] - start[..., 2]) / (
        direction[..., 2] - 0.3 * direction[..., 0]
    )
    points = start + depth[..., None] * direction
    color = 127 + 100 * np.sin(3 * points)
    center = np.array([0.2, 0, -0.4])
    offset = start - center
    a = (direction * direction).sum(2)
    b = (direction * offset).sum(2)
    inside = b * b - a * ((offset * offset).sum(2) - 0.3**2)
    is_ball = inside > 0
    near = (-b - np.sqrt(np.maximum(inside, 0))) / a
    color = np.where(is_ball[..., None], (220, 30, 30), color)
    return color.astype(np.uint8), np.where(is_ball, near, depth).astype(np.float32)


@pytest.fixture
def moved(screen: OffscreenScreen) -> Iterator[MovedPicture]:
    screen.resize(W, H)
    with closing(MovedPicture(screen.ctx)) as moved_picture:
        yield moved_picture


def pixels_of(
    moved: MovedPicture,
    screen: OffscreenScreen,
    picture: tuple[np.ndarray, np.ndarray | moderngl.Texture],
    cameras: tuple[Camera, Camera],
) -> np.ndarray:
    colors, depth = picture
    with closing(PhotoTexture(screen.ctx)) as texture:
        texture.take(colors, is_multiplied=True)
        moved.take(depth)
        moved.draw(screen.framebuffer, RECT, texture.texture, cameras, 3.0, BACKGROUND)
        return screen.pixels()[..., :3].astype(int)


@pytest.mark.parametrize("model", MODELS)
def test_other_camera_sees_what_is_at_its_place(
    moved: MovedPicture, screen: OffscreenScreen, model: CameraModel
) -> None:
    first = camera_from(0.0, model)
    second = camera_from(0.3, model)
    picture = wall_and_ball(first)
    unmoved = pixels_of(moved, screen, picture, (first, first))
    np.testing.assert_allclose(unmoved, picture[0], atol=1)
    pixels = pixels_of(moved, screen, picture, (first, second))
    expected = wall_and_ball(second)[0].astype(int)
    error = np.abs(pixels - expected).mean(2)
    plain_error = np.abs(picture[0].astype(int) - expected).mean(2)
    # All but what comes to light, and what the first camera did not see.
    assert np.mean(error < 12) > 0.88
    assert error.mean() < 0.35 * plain_error.mean()


def test_depth_comes_as_a_texture_or_an_array(
    moved: MovedPicture, screen: OffscreenScreen
) -> None:
    cameras = camera_from(0.0), camera_from(0.3)
    color, depth = wall_and_ball(cameras[0])
    pixels = pixels_of(moved, screen, (color, depth), cameras)
    texture = screen.ctx.texture((W, H), 1, depth.tobytes(), dtype="f4")
    np.testing.assert_array_equal(
        pixels_of(moved, screen, (color, texture), cameras), pixels
    )
    texture.release()


def test_nothing_stays_behind_the_camera_or_where_nothing_is(
    moved: MovedPicture, screen: OffscreenScreen
) -> None:
    first = camera_from(0.0)
    color, depth = wall_and_ball(first)
    transparent = np.dstack([color, _OPAQUE])
    transparent[:, W // 2 :] = 0
    depth[:, W // 2 :] = np.nan
    picture = (transparent, depth)
    pixels = pixels_of(moved, screen, picture, (first, camera_from(0.05)))
    assert (pixels[:, 3 * W // 4 :] == (0, 255, 0)).all()
    # Beyond the wall there is nothing to see.
    beyond = replace(first, viewmat=camera_from(0.0, z=4.0).viewmat.copy())
    beyond.viewmat[:3, :3] = first.viewmat[:3, :3]
    beyond.viewmat[:3, 3] = -first.viewmat[:3, :3] @ np.array([0, -0.4, 4.0])
    pixels = pixels_of(moved, screen, picture, (first, beyond))
    assert (pixels == (0, 255, 0)).all()


def test_picture_of_another_direction_or_lens_is_not_moved() -> None:
    camera = camera_from(0.0)
    assert can_be_moved(camera, camera_from(1.5))
    assert not can_be_moved(camera, camera_from(9.0))
    assert not can_be_moved(camera, camera_from(0.0, "fisheye"))
