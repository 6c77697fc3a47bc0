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
from splatview_viewer.render.gsplat import frame
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


@pytest.mark.parametrize(("n", "chance"), [
    (2000, Chance(n=2000, log_scale=(-2.5, 2.0))), (5000, Chance(n=5000, logit=(-4.5, 1.0))),
    (300, Chance(n=300, log_scale=(0.0, 1.0))), (200_000, Chance(n=200_000, log_scale=(-4.5, 1.0)))],
    ids=["needles", "faint", "large", "many"])
def test_hard_scenes(graph: FrameGraph, n: int, chance: Chance) -> None:
    t = on_gpu(random_scene(7, chance))
    assert len(t["means"]) == n
    for distance in (0.5, 4.0):
        camera, options = looking_at_origin(641, 479, distance=distance), RenderOptions(mode="antialiased")
        graph.load(**t)
        got = [draw(graph, camera, options) for _ in range(DRAWS)][-1]
        assert_gsplat_s(got, gsplat_draws(t, camera, options))


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


def test_overflow_is_told_and_mended() -> None:
    graph = FrameGraph(torch.device("cuda", 0))
    t = on_gpu(random_scene(1, Chance(n=4000, log_scale=(-0.5, 0.5))))
    graph.load(**t)
    near, far, options = looking_at_origin(1280, 720, distance=3.0), looking_at_origin(64, 48), RenderOptions()
    for _ in range(DRAWS):
        draw(graph, far, options)
    first = graph.capacity.slots
    graph.render(near, options)
    assert graph.overflowed(), "waits for the frame by itself"
    assert graph.capacity.slots > first
    assert not graph.overflowed(), "asked again about the same frame"
    for _ in range(DRAWS):
        assert_gsplat_s(draw(graph, near, options), gsplat_draws(t, near, options))
    assert graph.failure == ""
    graph.close()


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


def test_what_six_million_gaussians_take_beside_themselves() -> None:
    n, camera, g = 6_000_000, looking_at_origin(1920, 1080, distance=4.0), torch.Generator("cuda").manual_seed(2)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(n, *shape, device="cuda", generator=g)

    tensors = {"means": normal(3) * 1.5, "quats": normal(4), "scales": (normal(3) * 0.6 - 4.9).exp(),
               "opacities": (normal() * 1.5).sigmoid(), "sh0": normal(3) * 0.5, "shN": normal(15, 3) * 0.1}
    graph = FrameGraph(torch.device("cuda", 0))
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    graph.load(**tensors)
    for _ in range(7):
        draw(graph, camera, RenderOptions(depth=False))
    assert len(graph.graphs) == 1 and graph.failure == ""
    # Per Gaussian some 96 bytes at a time; per slot 6, and 30 for those sorted at a time.
    most = 1.3 * (120 * n + 6 * graph.capacity.slots + 34 * frame.PART) + (128 << 20)
    assert torch.cuda.memory_reserved() - before < most
    graph.close()
