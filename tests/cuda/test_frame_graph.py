"""The viewer's frame against `gsplat.rasterization`, on a GPU: the same picture, without a question to the host."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.renderer_cases import Chance, looking_at_origin, psnr, random_scene

from splatview_viewer.render.base import RenderOptions
from splatview_viewer.render.gsplat.frame import FrameGraph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.scene.scene import GaussianScene

pytestmark = pytest.mark.cuda

Tensors = dict[str, torch.Tensor]
DRAWS = 5
"""Enough that the last ones come from a graph."""


@pytest.fixture(scope="module")
def module_graph() -> Iterator[FrameGraph]:
    graph = FrameGraph(torch.device("cuda", 0))
    yield graph
    graph.close()


@pytest.fixture
def graph(module_graph: FrameGraph) -> Iterator[FrameGraph]:
    yield module_graph
    assert module_graph.failure == ""


def on_gpu(scene: GaussianScene) -> Tensors:
    t = {k: getattr(scene, k).float().cuda()
         for k in ("means", "quats", "scales", "opacities")}
    if not scene.activated:
        t["scales"], t["opacities"] = t["scales"].exp(), t["opacities"].sigmoid()
    sh = torch.cat([scene.sh0[:, None], scene.shN], 1).cuda()
    return {**t, "sh0": sh[:, 0], "shN": sh[:, 1:]}


def gsplat_draws(t: Tensors, camera: Camera, options: RenderOptions) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Colour (H, W, 3), alpha and depth (H, W)."""
    from gsplat import rasterization

    colors = torch.cat([t["sh0"][:, None], t["shN"]], 1)
    degree = {1: 0, 4: 1, 9: 2, 16: 3, 25: 4}[colors.shape[1]] if options.sh_degree is None else options.sh_degree
    viewmat, K = (torch.tensor(np.asarray(m)[None], dtype=torch.float32, device="cuda")
                  for m in (camera.viewmat, camera.K))
    picture, alphas, _ = rasterization(
        t["means"], t["quats"], t["scales"], t["opacities"], colors, viewmat, K, camera.width, camera.height,
        near_plane=camera.near, far_plane=camera.far, sh_degree=degree, packed=False, render_mode="RGB+D",
        rasterize_mode=options.mode, camera_model=camera.model)
    return picture[0, ..., :3], alphas[0, ..., 0], picture[0, ..., 3]


def draw(graph: FrameGraph, camera: Camera, options: RenderOptions) -> tuple[torch.Tensor, torch.Tensor | None]:
    """As a renderer does: until the picture is whole."""
    for _ in range(4):
        picture = graph.render(camera, options)
        torch.cuda.synchronize()
        if not graph.overflowed():
            return picture
    raise AssertionError("the picture is never whole")


def assert_gsplat_s(got: tuple[torch.Tensor, torch.Tensor | None],
                    expected: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    """A compiler may round the same formulas differently, and colours pass through our harmonics, in the direction
    from a camera whose position gsplat finds by inverting a matrix in float32. Where a Gaussian is at the limit of
    showing, that can decide."""
    rgba, depth = got
    for name, values, wanted in [("colour", rgba[..., :3], expected[0]), ("alpha", rgba[..., 3], expected[1]),
                                 ("depth", depth, expected[2])]:
        if values is None:
            continue
        error = (values - wanted).abs() / wanted.abs().clamp_min(1)
        found = f"{name}: " + ", ".join(f"{(error < e).float().mean().item():.5%} within {e}" for e in (1e-5, 1e-4))
        found += f", worst {error.max().item():.2g}"
        assert (error < 1e-5).float().mean().item() > 0.99, found
        assert (error < 1e-4).float().mean().item() > 0.999, found
        assert error.max().item() < 2e-2, found
    assert psnr(rgba[..., :3].cpu().numpy(), expected[0].cpu().numpy()) > 80


@pytest.mark.parametrize("model", ["pinhole", "ortho", "fisheye"])
@pytest.mark.parametrize(("mode", "degree"), [("classic", 3), ("classic", 4), ("antialiased", 1)])
def test_random_scenes(graph: FrameGraph, model: Any, mode: Any, degree: int) -> None:
    t = on_gpu(random_scene(degree, Chance(n=3000, sh_degree=degree)))
    camera, options = looking_at_origin(333, 250, model=model), RenderOptions(mode=mode)
    graph.load(**t)
    expected = gsplat_draws(t, camera, options)
    assert expected[1].max() > 0.5
    for _ in range(DRAWS):
        assert_gsplat_s(draw(graph, camera, options), expected)
    assert graph.graphs


@pytest.mark.parametrize("size", [(1, 1), (17, 50), (1919, 1079), (4096, 2304)], ids=str)
def test_sizes(graph: FrameGraph, size: tuple[int, int]) -> None:
    """The last one has more tiles than 16 bits count."""
    t = on_gpu(random_scene(2, Chance(n=2000)))
    graph.load(**t)
    base = looking_at_origin(200, 150)
    K = base.K * np.array([[size[0] / 200], [size[1] / 150], [1]])
    camera, options = replace(base, width=size[0], height=size[1], K=K), RenderOptions()
    expected = gsplat_draws(t, camera, options)
    for _ in range(DRAWS):
        assert_gsplat_s(draw(graph, camera, options), expected)


@contextmanager
def no_synchronisation() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this mode does not see everything
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_no_frame_waits_for_the_gpu(graph: FrameGraph) -> None:
    """Not the first ones, nor the one that is captured, nor those from the graph."""
    t = on_gpu(random_scene(1, Chance(n=100_000)))
    graph.load(**t)
    for mode in ("classic", "antialiased"):
        options = RenderOptions(mode=mode)
        with no_synchronisation():
            for i in range(2 * DRAWS):
                graph.render(looking_at_origin(1280, 720, distance=4.0 + i), options)
        torch.cuda.synchronize()
        assert graph.graphs
