"""A picture moved to another camera, held against a picture that is drawn from there."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.renderer_cases import read_source
from support.view_cases import module_screen, screen_fixture  # noqa: F401

from splatview.ipc.interop.host import HostBridge
from splatview.viewer_app.cameras import Camera, focal_length, intrinsics, look_at
from splatview.viewer_app.renderers.base import FAINT, RenderOptions
from splatview.viewer_app.renderers.gl import GlRenderer
from splatview.viewer_app.scene import GaussianScene
from splatview.viewer_app.views._gaussians.reprojection import Surface, Warp

if TYPE_CHECKING:
    from collections.abc import Iterator

    import moderngl

    from splatview.ipc.interop.sources import TextureSource
    from splatview.viewer_app.cameras import CameraModel
    from splatview.viewer_app.screens.offscreen import OffscreenScreen

W, H = 240, 160
DISTANCE = 6.0


def _textured() -> GaussianScene:
    """A ball in front of a wall, both of small Gaussians whose colours change smoothly."""
    rng = np.random.default_rng(0)
    n = 6000
    direction = rng.normal(size=(n, 3))
    ball = direction / np.linalg.norm(direction, axis=1, keepdims=True)
    wall = np.column_stack([rng.uniform(-9, 9, 3 * n), rng.uniform(-7, 7, 3 * n), rng.uniform(2.2, 2.8, 3 * n)])
    means = np.concatenate([ball, wall]).astype(np.float32)
    color = 0.5 + 0.4 * np.sin(means * 3.0 + np.array([0.0, 1.0, 2.0], np.float32))
    scales = np.full((4 * n, 3), 0.05, np.float32)
    scales[n:] = 0.12
    scales[n:, 2] = 0.01
    return GaussianScene(means, np.tile(np.array([1, 0, 0, 0], np.float32), (4 * n, 1)), scales,
                         np.full(4 * n, 0.9, np.float32), ((color - 0.5) / 0.28209479).astype(np.float32),
                         np.empty((4 * n, 0, 3), np.float32), activated=True, sh_degree=0)


def _camera(model: CameraModel = "pinhole", position: tuple[float, float, float] = (0.3, -0.4, -DISTANCE)) -> Camera:
    K = intrinsics(50, W, H)
    focal = focal_length(50, H, model) / (DISTANCE if model == "ortho" else 1)
    K[0, 0] = K[1, 1] = focal
    return Camera(look_at(position, (0, 0, 0)), K, W, H, model)


class Rig:
    """A renderer's picture from one camera, ready to be moved."""

    def __init__(self, ctx: moderngl.Context, renderer: GlRenderer) -> None:
        self.ctx = ctx
        self.renderer = renderer
        self.surface, self.warp = Surface(ctx), Warp(ctx)
        self._bridge = HostBridge(ctx)

    def drawn(self, camera: Camera) -> np.ndarray:
        """(H, W, 4) float32: a true render."""
        pixels = self.renderer.render(camera, RenderOptions(depth=True)).pixels()
        return np.dstack([pixels.color, pixels.alpha])

    def kept(self, seen: Camera) -> TextureSource:
        """The picture from `seen`, which the renderer's next one leaves alone; its surface is known then."""
        picture = self.renderer.render(seen, RenderOptions(depth=True))
        assert picture.depth is not None
        self.surface.take_textures(picture.color, picture.depth)
        return self._bridge.put(self.drawn(seen), "HWC")

    def moved(self, seen: Camera, camera: Camera, *, flat: bool = False) -> np.ndarray:
        source = self.kept(seen)
        middle = float(-seen.position @ seen.viewmat[2, :3])
        return read_source(self.ctx, self.warp.take(source, None if flat else self.surface, seen, camera, middle))

    def close(self) -> None:
        self.warp.close()
        self.surface.close()
        self._bridge.close()


@pytest.fixture(scope="module")
def renderer(module_screen: OffscreenScreen) -> Iterator[GlRenderer]:  # noqa: F811
    made = GlRenderer(module_screen.ctx)
    made.load(_textured())
    yield made
    made.close()


@pytest.fixture
def rig(screen: OffscreenScreen, renderer: GlRenderer) -> Iterator[Rig]:
    made = Rig(screen.ctx, renderer)
    yield made
    made.close()


def inner(pixels: np.ndarray) -> np.ndarray:
    """Without the rim, of which a moved picture cannot know everything."""
    return pixels[14:-14, 14:-14]


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return -10 * math.log10(max(float(np.mean((a.clip(0, 1) - b.clip(0, 1)) ** 2)), 1e-12))


def turned(camera: Camera, degrees: float, axis: int) -> Camera:
    """Turned about its own centre."""
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    a, b = [k for k in range(3) if k != axis]
    turn = np.eye(4)
    turn[a, a], turn[a, b], turn[b, a], turn[b, b] = c, -s, s, c
    return replace(camera, viewmat=turn @ camera.viewmat)


@pytest.mark.parametrize("model", ["pinhole", "ortho", "fisheye"])
def test_where_nothing_moves_the_picture_stays(rig: Rig, model: CameraModel) -> None:
    camera = _camera(model)
    np.testing.assert_allclose(rig.moved(camera, camera), rig.drawn(camera), atol=2 / 255)


@pytest.mark.parametrize("flat", [False, True])
def test_a_turn_of_the_camera_moves_each_pixel_where_it_belongs(rig: Rig, flat: bool) -> None:
    """Exactly, whatever the depth: the picture's own columns say where they went."""
    seen = _camera()
    camera = turned(seen, 6.0, 1)
    ramp = np.dstack(np.broadcast_arrays((np.arange(W) + 0.5) / W, (np.arange(H)[:, None] + 0.5) / H, 0.0, 1.0))
    rig.kept(seen)
    source = rig._bridge.put(np.ascontiguousarray(ramp, np.float32), "HWC")
    got = read_source(rig.ctx, rig.warp.take(source, None if flat else rig.surface, seen, camera, DISTANCE))
    y, x = np.mgrid[:H, :W] + 0.5
    rays = np.stack([x, y, np.ones_like(x)], -1) @ np.linalg.inv(camera.K).T @ camera.viewmat[:3, :3]
    expected = rays @ seen.viewmat[:3, :3].T @ seen.K.T
    expected = expected[..., :2] / expected[..., 2:]
    inside = ((expected > 1) & (expected < (W - 1, H - 1))).all(axis=-1)
    assert inside.mean() > 0.7
    np.testing.assert_allclose(got[inside][:, :2] * (W, H), expected[inside], atol=0.15)  # float16 of a picture so wide


MOTIONS = {"turn": 44.0, "roll": 50.0, "zoom": 48.0, "step aside": 34.0, "step nearer": 39.0, "step back": 41.0}
"""Decibels to a true render that each has to reach; a picture that stays where it is has under 21 dB."""


def _after(motion: str, seen: Camera) -> Camera:
    by = np.zeros(3)
    match motion:
        case "turn":
            return turned(seen, 2.0, 1)
        case "roll":
            return turned(seen, 4.0, 2)
        case "zoom":
            return replace(seen, K=seen.K * np.array([[1.1, 1, 1], [1, 1.1, 1], [1, 1, 1]]))
        case "step aside":
            by[0] = 0.3
        case "step nearer":
            by[2] = -0.5
        case "step back":
            by[2] = 0.5
    viewmat = seen.viewmat.copy()
    viewmat[:3, 3] += by
    return replace(seen, viewmat=viewmat)


@pytest.mark.parametrize("motion", MOTIONS)
def test_it_comes_near_to_a_true_render(rig: Rig, motion: str) -> None:
    seen = _camera()
    camera = _after(motion, seen)
    true, stale = rig.drawn(camera), rig.drawn(seen)
    db = psnr(inner(rig.moved(seen, camera)), inner(true))
    assert db >= MOTIONS[motion]
    assert psnr(inner(stale), inner(true)) < 21


@pytest.mark.parametrize("model", ["ortho", "fisheye"])
def test_other_projections(rig: Rig, model: CameraModel) -> None:
    seen = _camera(model)
    camera = _camera(model, (0.9, -0.3, -DISTANCE))
    true = rig.drawn(camera)
    db = psnr(inner(rig.moved(seen, camera)), inner(true))
    assert db > 28
    assert db > psnr(inner(rig.drawn(seen)), inner(true)) + 6


def test_depth_makes_it_better(rig: Rig) -> None:
    seen, camera = _camera(), _after("step aside", _camera())
    true = rig.drawn(camera)
    assert psnr(rig.moved(seen, camera), true) > psnr(rig.moved(seen, camera, flat=True), true) + 4


def test_what_comes_to_light_is_filled_with_what_lies_behind(rig: Rig) -> None:
    """A red square hangs before a blue wall. Where it was, all is blue then: neither a hole nor a red smear."""
    seen = _camera(position=(0, 0, -DISTANCE))
    color = np.zeros((H, W, 4), np.float32)
    color[..., 2] = color[..., 3] = 1.0
    depth = np.full((H, W, 1), 10.0, np.float32)
    square = slice(50, 110), slice(90, 150)
    color[square] = (1, 0, 0, 1)
    depth[square] = 4.0
    bridge = HostBridge(rig.ctx)
    rig.surface.take(bridge.put(depth, "HWC"))
    source = rig._bridge.put(color, "HWC")
    viewmat = seen.viewmat.copy()
    viewmat[0, 3] += 0.6
    got = read_source(rig.ctx, rig.warp.take(source, rig.surface, seen, replace(seen, viewmat=viewmat), 10.0))
    bridge.close()
    shift = seen.K[0, 0] * 0.6 / 4.0
    assert shift > 20
    assert np.abs(got[..., 3] - 1).max() < 2e-3  # no holes
    new = got[52:108, 95:int(90 + shift - 6), :3]  # where the square was; a narrow seam goes with the square
    assert (new[..., 2] > 0.95).all()
    assert (new[..., 0] < 0.05).all()
    there = got[55:105, int(90 + shift + 5):int(150 + shift - 5), :3]
    assert (there[..., 0] > 0.95).all()


def test_beyond_the_picture_its_edge_goes_on(rig: Rig) -> None:
    seen = _camera()
    got = rig.moved(seen, turned(seen, 12.0, 1))
    assert (got[..., 3] > 0.9).mean() > 0.99


def test_of_what_is_nowhere_nothing_is_seen(rig: Rig) -> None:
    """Neither noise nor an error comes of a picture without anything in it."""
    seen = _camera()
    bridge = HostBridge(rig.ctx)
    rig.surface.take(bridge.put(np.zeros((H, W, 1), np.float32), "HWC"))
    source = rig._bridge.put(np.zeros((H, W, 4), np.float32), "HWC")
    got = read_source(rig.ctx, rig.warp.take(source, rig.surface, seen, _after("step aside", seen), 5.0))
    bridge.close()
    assert (got == 0).all()


def test_both_forms_of_depth_say_the_same(rig: Rig) -> None:
    camera = _camera()
    picture = rig.renderer.render(camera, RenderOptions(depth=True))
    assert picture.depth is not None
    rig.surface.take_textures(picture.color, picture.depth)
    assert rig.surface.grid is not None
    first = np.frombuffer(rig.surface.grid.read(), np.float32).copy()
    pixels = picture.pixels()
    assert pixels.depth is not None
    depth = np.where(pixels.alpha > FAINT, pixels.depth / np.maximum(pixels.alpha, 1e-6), 0).astype(np.float32)
    bridge = HostBridge(rig.ctx)
    rig.surface.take(bridge.put(depth[..., None], "HWC"))
    np.testing.assert_allclose(np.frombuffer(rig.surface.grid.read(), np.float32), first, rtol=1e-5)
    bridge.close()


def test_sizes_change_and_everything_is_given_back(rig: Rig) -> None:
    seen = _camera()
    for size in ((W, H), (W // 2, H), (17, 9), (W, H)):
        small = seen.resized(*size)
        got = rig.moved(small, seen)
        assert got.shape == (H, W, 4)
        assert got[H // 2, W // 2, 3] > 0.9
    rig.warp.drop()
    assert rig.moved(seen, seen)[H // 2, W // 2, 3] > 0.9
    rig.close()
    rig.close()
