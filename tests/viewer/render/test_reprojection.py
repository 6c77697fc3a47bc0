"""Pictures moved to another camera come near to pictures that are drawn from there.

CUDA's kernels move them; they run on the CPU (`support/kernels_on_cpu.h`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import moderngl
import numpy as np
import pytest
import torch
from support.on_cpu import OnCpu
from support.renderer_cases import psnr, scene

from splatview_viewer.geometry.cameras import (
    MODELS,
    Camera,
    CameraModel,
    focal_length,
    intrinsics,
    look_at,
)
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.render.gsplat.moving import grid_of, warp
from splatview_viewer.scene.scene import GaussianScene

W = 240
H = 160
DISTANCE = 6.0


def _textured() -> GaussianScene:
    """Make a ball before a wall, of small Gaussians whose colours change smoothly."""
    rng = np.random.default_rng(0)
    n = 6000
    direction = rng.normal(size=(n, 3))
    ball = direction / np.linalg.norm(direction, axis=1, keepdims=True)
    wall = np.column_stack(
        [
            rng.uniform(-9, 9, 3 * n),
            rng.uniform(-7, 7, 3 * n),
            rng.uniform(2.2, 2.8, 3 * n),
        ]
    )
    means = np.concatenate([ball, wall]).astype(np.float32)
    color = 0.5 + 0.4 * np.sin(means * 3.0 + np.array([0.0, 1.0, 2.0], np.float32))
    scales = np.repeat([[0.05] * 3, [0.12, 0.12, 0.01]], [n, 3 * n], axis=0)
    return scene(means, color, scales, 0.9)


def _camera(
    model: CameraModel = "pinhole",
    position: tuple[float, float, float] = (0.3, -0.4, -DISTANCE),
) -> Camera:
    K = intrinsics(50, W, H)
    focal = focal_length(50, H, model)
    if model == "ortho":
        focal /= DISTANCE
    K[0, 0] = focal
    K[1, 1] = focal
    return Camera(look_at(position, (0, 0, 0)), K, W, H, model)


class Rig:
    """Move a renderer's pictures by the kernels of warp.cu."""

    def __init__(self, renderer: GlRenderer) -> None:
        self.renderer = renderer
        self.kernels = OnCpu("warp.cu", ["corners", "spread", "gather"])

    def move(
        self,
        color: np.ndarray,
        depth: np.ndarray | None,
        source: Camera,
        camera: Camera,
        middle: float = DISTANCE,
    ) -> np.ndarray:
        rgba = torch.from_numpy(np.ascontiguousarray(color, np.float32))
        if depth is None:
            grid = None
        else:
            grid = grid_of(
                rgba, torch.from_numpy(np.ascontiguousarray(depth)), self.kernels
            )
        nearness = torch.zeros(camera.height, camera.width, dtype=torch.int32)
        out = torch.full((camera.height, camera.width, 4), 7.0, dtype=torch.float16)
        warp(rgba.half(), grid, (source, camera), middle, nearness, out, self.kernels)
        # The buffer is ready for the next picture.
        assert not nearness.any()
        return out.float().numpy()

    def drawn(self, camera: Camera) -> tuple[np.ndarray, np.ndarray]:
        """Render truly: (H, W, 4) float32, and its depth."""
        pixels = self.renderer.render(camera, RenderOptions(depth=True)).pixels()
        assert pixels.depth is not None
        return np.dstack([pixels.color, pixels.alpha]), pixels.depth

    def moved(self, source: Camera, camera: Camera) -> np.ndarray:
        color, depth = self.drawn(source)
        middle = float(-source.position @ source.viewmat[2, :3])
        return self.move(color, depth, source, camera, middle)


@pytest.fixture(scope="module")
def rig(ctx: moderngl.Context) -> Iterator[Rig]:
    renderer = GlRenderer(ctx)
    renderer.load(_textured())
    yield Rig(renderer)
    renderer.close()


def inner(pixels: np.ndarray) -> np.ndarray:
    """Cut off the rim, of which a moved picture cannot know everything."""
    return pixels[14:-14, 14:-14]


def turned(camera: Camera, degrees: float, axis: int) -> Camera:
    """Turn a camera about its own centre."""
    c = math.cos(math.radians(degrees))
    s = math.sin(math.radians(degrees))
    a, b = [k for k in range(3) if k != axis]
    rotation = np.eye(4)
    rotation[a, a] = c
    rotation[a, b] = -s
    rotation[b, a] = s
    rotation[b, b] = c
    return replace(camera, viewmat=rotation @ camera.viewmat)


def stepped(camera: Camera, *step: float) -> Camera:
    viewmat = camera.viewmat.copy()
    viewmat[:3, 3] += step
    return replace(camera, viewmat=viewmat)


@pytest.mark.parametrize("flat", [False, True])
def test_turned_camera_moves_each_pixel_exactly(rig: Rig, flat: bool) -> None:
    """Pixels move exactly at any depth; the values of the picture are its coordinates."""
    source = _camera()
    camera = turned(source, 6.0, 1)
    ramp = np.dstack(
        np.broadcast_arrays(
            (np.arange(W) + 0.5) / W, (np.arange(H)[:, None] + 0.5) / H, 0.0, 1.0
        )
    )
    depth = None if flat else rig.drawn(source)[1]
    got = rig.move(ramp, depth, source, camera)
    y, x = np.mgrid[:H, :W] + 0.5
    rays = (
        np.stack([x, y, np.ones_like(x)], -1)
        @ np.linalg.inv(camera.K).T
        @ camera.viewmat[:3, :3]
    )
    expected = rays @ source.viewmat[:3, :3].T @ source.K.T
    expected = expected[..., :2] / expected[..., 2:]
    inside = ((expected > 1) & (expected < (W - 1, H - 1))).all(axis=-1)
    assert inside.mean() > 0.7
    # float16 of so wide a picture is that coarse.
    moved_points = got[inside][:, :2] * (W, H)
    np.testing.assert_allclose(moved_points, expected[inside], atol=0.15)


def _turn_aside(camera: Camera) -> Camera:
    return turned(camera, 2.0, 1)


def _roll(camera: Camera) -> Camera:
    return turned(camera, 4.0, 2)


def _zoom(camera: Camera) -> Camera:
    factors = np.array([[1.1, 1, 1], [1, 1.1, 1], [1, 1, 1]])
    return replace(camera, K=camera.K * factors)


def _step_aside(camera: Camera) -> Camera:
    return stepped(camera, 0.3, 0, 0)


def _step_nearer(camera: Camera) -> Camera:
    return stepped(camera, 0, 0, -0.5)


def _step_back(camera: Camera) -> Camera:
    return stepped(camera, 0, 0, 0.5)


def _move_to_the_right(camera: Camera) -> Camera:
    return _camera(camera.model, (0.9, -0.3, -DISTANCE))


MOTIONS: dict[str, tuple[float, Callable[[Camera], Camera]]] = {
    "turn": (44.0, _turn_aside),
    "roll": (50.0, _roll),
    "zoom": (48.0, _zoom),
    "step aside": (34.0, _step_aside),
    "step nearer": (39.0, _step_nearer),
    "step back": (41.0, _step_back),
    "ortho": (28.0, _move_to_the_right),
    "fisheye": (28.0, _move_to_the_right),
}
"""Motions, and the decibels to a true render that a moved picture reaches.

A picture that is not moved has under 21 dB.
"""


def test_moved_pictures_come_near_to_a_true_render(rig: Rig) -> None:
    for motion, (decibels, move) in MOTIONS.items():
        source = _camera(motion if motion in MODELS else "pinhole")
        camera = move(source)
        true = rig.drawn(camera)[0]
        stale = rig.drawn(source)[0]
        assert psnr(inner(rig.moved(source, camera)), inner(true)) >= decibels, motion
        assert psnr(inner(stale), inner(true)) < 21, motion


def test_uncovered_pixels_are_filled_with_the_background(rig: Rig) -> None:
    """A red square moves before a blue wall.

    Its old place is blue then, with neither a hole nor a red smear.
    """
    source = _camera(position=(0, 0, -DISTANCE))
    color = np.zeros((H, W, 4), np.float32)
    depth = np.full((H, W), 10.0, np.float32)
    color[..., 2] = 1.0
    color[..., 3] = 1.0
    color[50:110, 90:150] = (1, 0, 0, 1)
    depth[50:110, 90:150] = 4.0
    got = rig.move(color, depth, source, stepped(source, 0.6, 0, 0), 10.0)
    shift = source.K[0, 0] * 0.6 / 4.0
    assert shift > 20
    # There are no holes.
    assert np.abs(got[..., 3] - 1).max() < 2e-3
    # A narrow seam moves with the square.
    old_place = got[52:108, 95 : int(90 + shift - 6), :3]
    assert (old_place[..., 2] > 0.95).all()
    assert (old_place[..., 0] < 0.05).all()
    new_place = got[55:105, int(90 + shift + 5) : int(150 + shift - 5), :3]
    assert (new_place[..., 0] > 0.95).all()


def test_any_motion_gives_finite_colors(rig: Rig) -> None:
    """Cameras move through things, past them, or turn away."""
    for model in MODELS:
        source = _camera(model)
        for camera in (
            stepped(source, 0, 0, -5.0),
            stepped(source, 40.0, 0, 60.0),
            turned(source, 180.0, 0),
        ):
            got = rig.moved(source, camera)
            assert np.isfinite(got).all(), model
            assert got.min() >= 0, model
            assert got.max() < 2, model


def test_pictures_of_other_sizes_are_moved(rig: Rig) -> None:
    source = _camera()
    camera = turned(source, 2.0, 1)
    for size in ((W // 2, H // 2), (2 * W, 2 * H), (17, 9), (W, H)):
        got = rig.moved(source.resized(*size), camera)
        assert got.shape == (H, W, 4), size
        assert got[H // 2, W // 2, 3] > 0.9, size
        if size[0] > 100:
            assert psnr(inner(got), inner(rig.drawn(camera)[0])) > 27, size
