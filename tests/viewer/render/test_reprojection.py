"""A picture moved to another camera by CUDA's kernels, run on the CPU (`support/kernels_on_cpu.h`), held against a
picture that is drawn from there.
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
    """A ball in front of a wall, both of small Gaussians whose colours change smoothly."""
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
    focal = focal_length(50, H, model) / (DISTANCE if model == "ortho" else 1)
    K[0, 0] = focal
    K[1, 1] = focal
    return Camera(look_at(position, (0, 0, 0)), K, W, H, model)


class Rig:
    """A renderer's pictures, moved by the kernels of warp.cu."""

    def __init__(self, renderer: GlRenderer) -> None:
        self.renderer = renderer
        self.own = OnCpu(
            "warp.cu", {"corners": False, "spread": False, "gather": False}
        )

    def move(
        self,
        color: np.ndarray,
        depth: np.ndarray | None,
        seen: Camera,
        camera: Camera,
        middle: float = DISTANCE,
    ) -> np.ndarray:
        rgba = torch.from_numpy(np.ascontiguousarray(color, np.float32))
        if depth is None:
            grid = None
        else:
            grid = grid_of(
                rgba, torch.from_numpy(np.ascontiguousarray(depth)), self.own
            )
        nearness = torch.zeros(camera.height, camera.width, dtype=torch.int32)
        out = torch.full((camera.height, camera.width, 4), 7.0, dtype=torch.float16)
        warp(rgba.half(), grid, (seen, camera), middle, nearness, out, self.own)
        assert not nearness.any()  # ready for the next one
        return out.float().numpy()

    def drawn(self, camera: Camera) -> tuple[np.ndarray, np.ndarray]:
        """A true render: (H, W, 4) float32, and its depth."""
        pixels = self.renderer.render(camera, RenderOptions(depth=True)).pixels()
        assert pixels.depth is not None
        return np.dstack([pixels.color, pixels.alpha]), pixels.depth

    def moved(self, seen: Camera, camera: Camera) -> np.ndarray:
        color, depth = self.drawn(seen)
        middle = float(-seen.position @ seen.viewmat[2, :3])
        return self.move(color, depth, seen, camera, middle)


@pytest.fixture(scope="module")
def rig(ctx: moderngl.Context) -> Iterator[Rig]:
    renderer = GlRenderer(ctx)
    renderer.load(_textured())
    yield Rig(renderer)
    renderer.close()


def inner(pixels: np.ndarray) -> np.ndarray:
    """Without the rim, of which a moved picture cannot know everything."""
    return pixels[14:-14, 14:-14]


def turned(camera: Camera, degrees: float, axis: int) -> Camera:
    """Turned about its own centre."""
    c = math.cos(math.radians(degrees))
    s = math.sin(math.radians(degrees))
    a, b = [k for k in range(3) if k != axis]
    turn = np.eye(4)
    turn[a, a] = c
    turn[a, b] = -s
    turn[b, a] = s
    turn[b, b] = c
    return replace(camera, viewmat=turn @ camera.viewmat)


def stepped(camera: Camera, *by: float) -> Camera:
    viewmat = camera.viewmat.copy()
    viewmat[:3, 3] += by
    return replace(camera, viewmat=viewmat)


@pytest.mark.parametrize("flat", [False, True])
def test_a_turn_of_the_camera_moves_each_pixel_where_it_belongs(
    rig: Rig, flat: bool
) -> None:
    """Exactly, whatever the depth: the picture's own columns say where they went."""
    seen = _camera()
    camera = turned(seen, 6.0, 1)
    ramp = np.dstack(
        np.broadcast_arrays(
            (np.arange(W) + 0.5) / W, (np.arange(H)[:, None] + 0.5) / H, 0.0, 1.0
        )
    )
    got = rig.move(ramp, None if flat else rig.drawn(seen)[1], seen, camera)
    y, x = np.mgrid[:H, :W] + 0.5
    rays = (
        np.stack([x, y, np.ones_like(x)], -1)
        @ np.linalg.inv(camera.K).T
        @ camera.viewmat[:3, :3]
    )
    expected = rays @ seen.viewmat[:3, :3].T @ seen.K.T
    expected = expected[..., :2] / expected[..., 2:]
    inside = ((expected > 1) & (expected < (W - 1, H - 1))).all(axis=-1)
    assert inside.mean() > 0.7
    np.testing.assert_allclose(
        got[inside][:, :2] * (W, H), expected[inside], atol=0.15
    )  # float16 of a picture so wide


MOTIONS: dict[str, tuple[float, Callable[[Camera], Camera]]] = {
    "turn": (44.0, lambda seen: turned(seen, 2.0, 1)),
    "roll": (50.0, lambda seen: turned(seen, 4.0, 2)),
    "zoom": (
        48.0,
        lambda seen: replace(
            seen, K=seen.K * np.array([[1.1, 1, 1], [1, 1.1, 1], [1, 1, 1]])
        ),
    ),
    "step aside": (34.0, lambda seen: stepped(seen, 0.3, 0, 0)),
    "step nearer": (39.0, lambda seen: stepped(seen, 0, 0, -0.5)),
    "step back": (41.0, lambda seen: stepped(seen, 0, 0, 0.5)),
    **{
        model: (28.0, lambda seen: _camera(seen.model, (0.9, -0.3, -DISTANCE)))
        for model in ("ortho", "fisheye")
    },
}
"""Decibels to a true render that each has to reach; a picture that stays where it is has under 21 dB."""


def test_moved_pictures_come_near_to_a_true_render(rig: Rig) -> None:
    for motion, (least, move) in MOTIONS.items():
        seen = _camera(motion if motion in MODELS else "pinhole")
        camera = move(seen)
        true = rig.drawn(camera)[0]
        stale = rig.drawn(seen)[0]
        assert psnr(inner(rig.moved(seen, camera)), inner(true)) >= least, motion
        assert psnr(inner(stale), inner(true)) < 21, motion


def test_what_comes_to_light_is_filled_with_what_lies_behind(rig: Rig) -> None:
    """A red square hangs before a blue wall. Where it was, all is blue then: neither a hole nor a red smear."""
    seen = _camera(position=(0, 0, -DISTANCE))
    color = np.zeros((H, W, 4), np.float32)
    depth = np.full((H, W), 10.0, np.float32)
    color[..., 2] = 1.0
    color[..., 3] = 1.0
    color[50:110, 90:150] = (1, 0, 0, 1)
    depth[50:110, 90:150] = 4.0
    got = rig.move(color, depth, seen, stepped(seen, 0.6, 0, 0), 10.0)
    shift = seen.K[0, 0] * 0.6 / 4.0
    assert shift > 20
    assert np.abs(got[..., 3] - 1).max() < 2e-3  # no holes
    new = got[
        52:108, 95 : int(90 + shift - 6), :3
    ]  # where the square was; a narrow seam goes with the square
    assert (new[..., 2] > 0.95).all()
    assert (new[..., 0] < 0.05).all()
    there = got[55:105, int(90 + shift + 5) : int(150 + shift - 5), :3]
    assert (there[..., 0] > 0.95).all()


def test_any_motion_gives_numbers_that_are_colours(rig: Rig) -> None:
    """Through things, past them, or turned away."""
    for model in MODELS:
        seen = _camera(model)
        for camera in (
            stepped(seen, 0, 0, -5.0),
            stepped(seen, 40.0, 0, 60.0),
            turned(seen, 180.0, 0),
        ):
            got = rig.moved(seen, camera)
            assert np.isfinite(got).all() and got.min() >= 0 and got.max() < 2, model


def test_pictures_of_other_sizes_than_the_screen(rig: Rig) -> None:
    seen = _camera()
    camera = turned(seen, 2.0, 1)
    for size in ((W // 2, H // 2), (2 * W, 2 * H), (17, 9), (W, H)):
        got = rig.moved(seen.resized(*size), camera)
        assert got.shape == (H, W, 4) and got[H // 2, W // 2, 3] > 0.9, size
        if size[0] > 100:
            assert psnr(inner(got), inner(rig.drawn(camera)[0])) > 27, size
