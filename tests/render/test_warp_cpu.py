"""A picture moved by CUDA's kernels, run on the CPU (`kernels_on_cpu.h`), held against what OpenGL makes of it and
against a picture that is drawn from there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.on_cpu import OnCpu
from support.view_cases import module_screen, screen_fixture  # noqa: F401
from test_reprojection import (  # noqa: F401
    DISTANCE,
    MOTIONS,
    H,
    W,
    _after,
    _camera,
    inner,
    psnr,
    renderer,
    turned,
)
from test_reprojection import Rig as GlRig

from splatview.viewer_app.renderers.base import RenderOptions
from splatview.viewer_app.renderers.kernels.warp import grid_of, warp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview.viewer_app.cameras import Camera, CameraModel
    from splatview.viewer_app.renderers.gl import GlRenderer
    from splatview.viewer_app.screens.offscreen import OffscreenScreen

KERNELS = {"corners": False, "spread": False, "gather": False}


@pytest.fixture(scope="module")
def own() -> OnCpu:
    return OnCpu("warp.cu", KERNELS)


class Rig:
    """A renderer's picture from one camera, moved by the kernels."""

    def __init__(self, gl: GlRig, own: OnCpu) -> None:
        self.gl, self.own = gl, own
        self.nearness = torch.zeros(H, W, dtype=torch.int32)

    def kept(self, seen: Camera) -> tuple[torch.Tensor, torch.Tensor]:
        """Colours, float16, and the grid."""
        pixels = self.gl.renderer.render(seen, RenderOptions(depth=True)).pixels()
        assert pixels.depth is not None
        rgba = torch.from_numpy(np.dstack([pixels.color, pixels.alpha]).astype(np.float32))
        return rgba.half(), grid_of(rgba, torch.from_numpy(np.ascontiguousarray(pixels.depth)), self.own)

    def warped(self, color: torch.Tensor, grid: torch.Tensor | None, seen: Camera, camera: Camera,
               middle: float) -> np.ndarray:
        out = torch.full((camera.height, camera.width, 4), 7.0, dtype=torch.float16)
        warp(color, grid, (seen, camera), middle, self.nearness, out, self.own)
        assert not self.nearness.any()  # ready for the next one
        return out.float().numpy()

    def moved(self, seen: Camera, camera: Camera, *, flat: bool = False) -> np.ndarray:
        color, grid = self.kept(seen)
        middle = float(-seen.position @ seen.viewmat[2, :3])
        return self.warped(color, None if flat else grid, seen, camera, middle)


@pytest.fixture
def rig(screen: OffscreenScreen, renderer: GlRenderer, own: OnCpu) -> Iterator[Rig]:  # noqa: F811
    gl = GlRig(screen.ctx, renderer)
    yield Rig(gl, own)
    gl.close()


@pytest.mark.parametrize("model", ["pinhole", "ortho", "fisheye"])
@pytest.mark.parametrize("flat", [False, True])
def test_where_nothing_moves_the_picture_stays(rig: Rig, model: CameraModel, flat: bool) -> None:
    camera = _camera(model)
    np.testing.assert_allclose(rig.moved(camera, camera, flat=flat), rig.gl.drawn(camera), atol=2 / 255)


@pytest.mark.parametrize("flat", [False, True])
def test_a_turn_of_the_camera_moves_each_pixel_where_it_belongs(rig: Rig, flat: bool) -> None:
    """Exactly, whatever the depth: the picture's own columns say where they went."""
    seen = _camera()
    camera = turned(seen, 6.0, 1)
    ramp = np.dstack(np.broadcast_arrays((np.arange(W) + 0.5) / W, (np.arange(H)[:, None] + 0.5) / H, 0.0, 1.0))
    _, grid = rig.kept(seen)
    got = rig.warped(torch.from_numpy(ramp).half().contiguous(), None if flat else grid, seen, camera, DISTANCE)
    y, x = np.mgrid[:H, :W] + 0.5
    rays = np.stack([x, y, np.ones_like(x)], -1) @ np.linalg.inv(camera.K).T @ camera.viewmat[:3, :3]
    expected = rays @ seen.viewmat[:3, :3].T @ seen.K.T
    expected = expected[..., :2] / expected[..., 2:]
    inside = ((expected > 1) & (expected < (W - 1, H - 1))).all(axis=-1)
    assert inside.mean() > 0.7
    np.testing.assert_allclose(got[inside][:, :2] * (W, H), expected[inside], atol=0.15)  # float16 of a picture so wide


@pytest.mark.parametrize("motion", MOTIONS)
def test_it_comes_near_to_a_true_render(rig: Rig, motion: str) -> None:
    """As near as OpenGL's."""
    seen = _camera()
    camera = _after(motion, seen)
    true = rig.gl.drawn(camera)
    got, gl = rig.moved(seen, camera), rig.gl.moved(seen, camera)
    assert psnr(inner(got), inner(true)) >= MOTIONS[motion]
    assert psnr(inner(got), inner(gl)) >= 40
    assert psnr(got, true) >= psnr(gl, true) - 1


@pytest.mark.parametrize("model", ["ortho", "fisheye"])
def test_other_projections(rig: Rig, model: CameraModel) -> None:
    seen = _camera(model)
    camera = _camera(model, (0.9, -0.3, -DISTANCE))
    true = rig.gl.drawn(camera)
    db = psnr(inner(rig.moved(seen, camera)), inner(true))
    assert db > 28
    assert db > psnr(inner(rig.gl.drawn(seen)), inner(true)) + 6
    assert db > psnr(inner(rig.gl.moved(seen, camera)), inner(true)) - 1


def test_what_comes_to_light_is_filled_with_what_lies_behind(rig: Rig) -> None:
    """A red square hangs before a blue wall. Where it was, all is blue then: neither a hole nor a red smear."""
    seen = _camera(position=(0, 0, -DISTANCE))
    color, depth = torch.zeros(H, W, 4), torch.full((H, W), 12.0)
    color[..., 2] = color[..., 3] = 1.0
    color[50:110, 90:150] = torch.tensor([1.0, 0, 0, 1])
    depth[50:110, 90:150] = 4.0
    viewmat = seen.viewmat.copy()
    viewmat[0, 3] += 0.6
    got = rig.warped(color.half(), grid_of(color, depth, rig.own), seen, replace(seen, viewmat=viewmat), 10.0)
    shift = seen.K[0, 0] * 0.6 / 4.0
    assert shift > 20
    assert np.abs(got[..., 3] - 1).max() < 2e-3  # no holes
    new = got[52:108, 95:int(90 + shift - 6), :3]  # where the square was; a narrow seam goes with the square
    assert (new[..., 2] > 0.95).all()
    assert (new[..., 0] < 0.05).all()
    there = got[55:105, int(90 + shift + 5):int(150 + shift - 5), :3]
    assert (there[..., 0] > 0.95).all()


@pytest.mark.parametrize("model", ["pinhole", "ortho", "fisheye"])
def test_beyond_the_picture_its_edge_goes_on(rig: Rig, model: CameraModel) -> None:
    seen = _camera(model)
    got = rig.moved(seen, turned(seen, 12.0, 1))
    assert np.isfinite(got).all()
    assert (got[..., 3] > 0.9).mean() > 0.99


@pytest.mark.parametrize("model", ["pinhole", "ortho", "fisheye"])
def test_wherever_somebody_goes_there_is_something_to_see(rig: Rig, model: CameraModel) -> None:
    """Through things, past them, or turned away: numbers that are colours."""
    seen = _camera(model)
    for by in ((0, 0, -5.0), (0, 0, -30.0), (40.0, 0, 0), (0, 0, 60.0)):
        viewmat = seen.viewmat.copy()
        viewmat[:3, 3] += by
        got = rig.moved(seen, replace(seen, viewmat=viewmat))
        assert np.isfinite(got).all()
        assert got.min() >= 0
        assert got.max() < 2
    for degrees in (60.0, 120.0, 180.0):
        assert np.isfinite(rig.moved(seen, turned(seen, degrees, 0))).all()


def test_of_what_is_nowhere_nothing_is_seen(rig: Rig) -> None:
    seen, nothing = _camera(), torch.zeros(H, W, 4)
    grid = grid_of(nothing, torch.zeros(H, W), rig.own)
    assert not grid.any()
    assert (rig.warped(nothing.half(), grid, seen, _after("step aside", seen), 5.0) == 0).all()


def test_the_grid_is_opengl_s(rig: Rig) -> None:
    camera = _camera()
    picture = rig.gl.renderer.render(camera, RenderOptions(depth=True))
    assert picture.depth is not None
    rig.gl.surface.take_textures(picture.color, picture.depth)
    assert rig.gl.surface.grid is not None
    expected = np.frombuffer(rig.gl.surface.grid.read(), np.float32)
    np.testing.assert_allclose(rig.kept(camera)[1].numpy().ravel(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [(W // 2, H // 2), (2 * W, 2 * H), (17, 9)])
def test_pictures_of_other_sizes_than_the_screen(rig: Rig, size: tuple[int, int]) -> None:
    seen = _camera()
    camera = _after("turn", seen)
    small = seen.resized(*size)
    got = rig.moved(small, camera)
    assert got[H // 2, W // 2, 3] > 0.9
    if size[0] > 100:
        assert psnr(inner(got), inner(rig.gl.drawn(camera))) > 27


def test_rows_may_lie_apart(rig: Rig) -> None:
    seen = _camera()
    camera = _after("step aside", seen)
    color, grid = rig.kept(seen)
    expected = rig.warped(color, grid, seen, camera, DISTANCE)
    wide = torch.zeros(H, W + 8, 4, dtype=torch.float16)
    wide[:, :W] = color
    out = torch.zeros(H, W + 24, 4, dtype=torch.float16)
    warp(wide[:, :W], grid, (seen, camera), DISTANCE, rig.nearness, out[:, :W], rig.own)
    np.testing.assert_array_equal(out[:, :W].float().numpy(), expected)
    assert not out[:, W:].any()


def test_what_does_not_fit_is_refused(rig: Rig) -> None:
    seen = _camera()
    color, grid = rig.kept(seen)
    out = torch.zeros(H, W, 4, dtype=torch.float16)
    with pytest.raises(ValueError, match="picture is torch"):
        warp(color.float(), grid, (seen, seen), DISTANCE, rig.nearness, out, rig.own)
    with pytest.raises(ValueError, match="result is"):
        warp(color, grid, (seen, seen), DISTANCE, rig.nearness, out[1:], rig.own)
    with pytest.raises(ValueError, match="nearness is"):
        warp(color, grid, (seen, seen), DISTANCE, rig.nearness[1:], out, rig.own)
    with pytest.raises(ValueError, match="has no grid"):
        grid_of(color, torch.zeros(H, W), rig.own)
