"""The CUDA renderer on scenes of the GPU: against gsplat, the reference and OpenGL."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import moderngl
import numpy as np
import pytest
import torch
from support.odd_cases import SCENES, everywhere
from support.programs import Programs
from support.reference import ReferenceRenderer
from support.renderer_cases import (
    CLASSIC,
    Chance,
    activated,
    camera,
    draw,
    looking_at_origin,
    psnr,
    random_scene,
)

from splatview_ipc.gl.sources import read_source
from splatview_viewer.geometry.cameras import Camera
from splatview_viewer.render.base import COLOR_MAX, Pixels, RenderOptions
from splatview_viewer.render.gsplat.frame import Capacity
from splatview_viewer.render.gsplat.renderer import GsplatRenderer
from splatview_viewer.scene import HIDDEN, MARKED, Selection
from splatview_viewer.scene import flags as flags_of
from splatview_viewer.scene.scene import FIELDS, GaussianScene

pytestmark = pytest.mark.cuda
VIEW = looking_at_origin()
COLOR_ONLY = RenderOptions(depth=False)
"""Options of a view that shows colours."""
SELECTION = Selection(opacity=(0.2, 0.97), scale=(0.01, 0.6), marked=(3, 50, 400))
DRAWS = 5
"""Enough draws for the last ones to come from a graph."""
SECOND = 1_500_000_000
"""Cycles of a GPU's clock in a second, about."""


@pytest.fixture
def renderer(ctx: moderngl.Context) -> Iterator[GsplatRenderer]:
    renderer = GsplatRenderer(ctx)
    yield renderer
    assert renderer.note == "", "what is measured here is the quick way"
    renderer.close()


def on_gpu(
    s: GaussianScene, dtype: torch.dtype = torch.float32, **changes: Any
) -> GaussianScene:
    arrays = {name: getattr(s, name).to("cuda", dtype, copy=True) for name in FIELDS}
    return replace(s, **{**arrays, **changes})


def pixels(
    renderer: GsplatRenderer,
    s: GaussianScene,
    view: Camera = VIEW,
    options: RenderOptions = CLASSIC,
) -> Pixels:
    renderer.load(s)
    return renderer.render(view, options).pixels()


# ---- scenes on a GPU


def test_a_scene_on_the_gpu_looks_like_one_in_host_memory(
    renderer: GsplatRenderer,
) -> None:
    s = random_scene(1, Chance())
    a = pixels(renderer, s)
    b = pixels(renderer, on_gpu(s))
    assert np.array_equal(a.color, b.color)
    assert np.array_equal(a.alpha, b.alpha)
    assert a.alpha.max() > 0.5
    needs = on_gpu(s)
    for name in FIELDS:
        getattr(needs, name).requires_grad_(True)
    assert np.array_equal(pixels(renderer, needs).color, a.color)


def test_a_change_in_place_shows_with_the_next_version(
    renderer: GsplatRenderer,
) -> None:
    s = on_gpu(random_scene(4, Chance(n=800)), version=1)
    first = pixels(renderer, s)
    s.means.add_(0.5)
    turned = looking_at_origin(201, 150)
    renderer.render(turned, CLASSIC)
    assert np.array_equal(renderer.render(VIEW, CLASSIC).pixels().color, first.color)
    second = pixels(renderer, replace(s, version=2))
    assert psnr(first.color, second.color) < 40
    assert np.array_equal(second.color, pixels(renderer, s.to_host()).color)


def test_it_waits_for_the_data(renderer: GsplatRenderer) -> None:
    s = on_gpu(random_scene(8, Chance(n=500)))
    expected = pixels(renderer, s)
    right = s.means.clone()
    s.means.fill_(1e6)
    torch.cuda.synchronize()
    trainer = torch.cuda.Stream()
    written = torch.cuda.Event()
    streams = []
    with torch.cuda.stream(trainer):
        torch.cuda._sleep(SECOND // 5)
        s.means.copy_(right)
        written.record()

    def ready(stream: int) -> None:
        streams.append(stream)
        torch.cuda.ExternalStream(stream).wait_event(written)

    renderer.load(s, ready)
    assert renderer.pending
    assert not streams, "the GPU is given nothing before the picture"
    assert np.array_equal(renderer.render(VIEW, CLASSIC).pixels().color, expected.color)
    assert streams == [renderer._stream.cuda_stream]
    assert not renderer.pending
    assert not renderer.reading


def test_a_scene_is_lent_to_another_stream(renderer: GsplatRenderer) -> None:
    s = random_scene(6, Chance(n=50_000))
    second_stream = torch.cuda.Stream()
    for offset in range(3):
        moved = replace(s, means=s.means + offset)
        renderer.load(on_gpu(moved))
        with torch.cuda.stream(second_stream):
            borrowed = renderer.scene()
            total = borrowed.means.double().sum(0)
            flags = flags_of(borrowed, SELECTION)
        renderer.load(on_gpu(replace(s, means=s.means + 100)))
        renderer.render(VIEW, CLASSIC).pixels()
        assert borrowed.on_gpu
        assert borrowed.activated
        assert len(borrowed) == 50_000
        np.testing.assert_allclose(
            total.cpu().numpy(), moved.means.double().sum(0), rtol=1e-5, atol=1.0
        )
        opacities = s.opacities.sigmoid().numpy()
        hidden = (flags.cpu().numpy() & HIDDEN) != 0
        sure = np.abs(opacities - 0.2) > 1e-5
        assert hidden[sure & (opacities < 0.2)].all()
        assert (flags.cpu().numpy()[[3, 50]] & MARKED).all()


# ---- pictures


def half_precision(p: Pixels) -> np.ndarray:
    """Return colour and alpha as OpenGL has them, rounded to float16."""
    rgba = np.dstack([p.color, p.alpha])
    return rgba.astype(np.float16).astype(np.float32)


def test_straight_into_opengl(renderer: GsplatRenderer, ctx: moderngl.Context) -> None:
    renderer.load(on_gpu(random_scene(1, Chance(n=800))))
    for size in [(201, 150), (333, 77), (201, 150)]:
        # The last ones come from a graph.
        for distance in (3.0, 4.0, 5.0, 6.0, 7.0):
            view = looking_at_origin(*size, distance=distance)
            picture = renderer.render(view, COLOR_ONLY)
            assert picture._target is not None
            assert picture._rgba.dtype == torch.float16
            values = read_source(ctx, picture.source())
            p = picture.pixels()
            assert p.color.dtype == np.float32
            assert p.depth is None
            assert p.alpha.max() > 0.5
            assert np.array_equal(values, half_precision(p))
            assert np.array_equal(read_source(ctx, picture.source()), values)


def test_more_than_there_was_room_for(
    renderer: GsplatRenderer, ctx: moderngl.Context
) -> None:
    """The picture is whole, though it was drawn into OpenGL's memory at once."""
    renderer.load(on_gpu(random_scene(1, Chance(n=4000, log_scale=(-0.5, 0.5)))))
    near = looking_at_origin(1280, 720, distance=3.0)
    picture = renderer.render(near, COLOR_ONLY)
    slots = renderer._frame.capacity.slots
    values = read_source(ctx, picture.source())
    assert renderer._frame.capacity.slots > slots, (
        "this scene does not show what the test is about"
    )
    p = renderer.render(near, CLASSIC).pixels()
    assert np.array_equal(values, half_precision(p))


# ---- gsplat's own pictures


def gsplat_draws(s: GaussianScene, view: Camera, options: RenderOptions) -> Pixels:
    from gsplat import rasterization

    viewmat, K = (
        torch.tensor(np.asarray(m)[None], dtype=torch.float32, device="cuda")
        for m in (view.viewmat, view.K)
    )
    picture, alphas, _ = rasterization(
        s.means,
        s.quats,
        s.scales,
        s.opacities,
        torch.cat([s.sh0[:, None], s.shN], 1),
        viewmat,
        K,
        view.width,
        view.height,
        near_plane=view.near,
        far_plane=view.far,
        sh_degree=s.sh_degree,
        packed=False,
        render_mode="RGB+D",
        rasterize_mode=options.mode,
        camera_model=view.model,
    )
    values = picture[0].cpu().numpy()
    return Pixels(values[..., :3], alphas[0, ..., 0].cpu().numpy(), values[..., 3])


def assert_gsplat_s(
    renderer: GsplatRenderer,
    gaussians: GaussianScene,
    view: Camera,
    options: RenderOptions,
) -> None:
    """Check pictures against gsplat's own.

    A compiler may round the same formulas differently, and colours pass through our
    harmonics, in the direction from a camera whose position gsplat finds by inverting a
    matrix in float32. Where a Gaussian is at the limit of showing, that can decide.
    """
    s = on_gpu(activated(gaussians))
    # The renderer has the quaternions so, bit for bit.
    s = replace(s, quats=s.quats / s.quats.abs().amax(1, keepdim=True))
    expected = gsplat_draws(s, view, options)
    assert expected.alpha.any()
    renderer.load(s)
    for _ in range(DRAWS):
        got = renderer.render(view, options).pixels()
        for name in ("color", "alpha", "depth"):
            assert_close(name, getattr(got, name), getattr(expected, name))
        assert psnr(got.color, expected.color) > 80
    assert renderer._frame.graphs


def assert_close(name: str, got: np.ndarray, expected: np.ndarray) -> None:
    error = np.abs(got - expected) / np.maximum(np.abs(expected), 1)
    exact_share = (error < 1e-5).mean()
    message = f"{name}: worst {error.max():.2g}, {exact_share:.5%} within 1e-5"
    assert exact_share > 0.99, message
    assert (error < 1e-4).mean() > 0.999, message
    assert error.max() < 2e-2, message


@pytest.mark.parametrize("model", ["pinhole", "ortho", "fisheye"])
@pytest.mark.parametrize(
    ("mode", "degree"), [("classic", 3), ("classic", 4), ("antialiased", 1)]
)
def test_pictures_are_gsplat_s(
    renderer: GsplatRenderer, model: Any, mode: Any, degree: int
) -> None:
    gaussians = random_scene(degree, Chance(n=3000, sh_degree=degree))
    view = looking_at_origin(333, 250, model=model)
    assert_gsplat_s(renderer, gaussians, view, RenderOptions(mode))


@pytest.mark.parametrize(
    "size", [(1, 1), (17, 50), (1919, 1079), (4096, 2304)], ids=str
)
def test_pictures_of_every_size_are_gsplat_s(
    renderer: GsplatRenderer, size: tuple[int, int]
) -> None:
    """The last one has more tiles than 16 bits count."""
    K = VIEW.K * np.array([[size[0] / 200], [size[1] / 150], [1]])
    view = replace(VIEW, width=size[0], height=size[1], K=K)
    assert_gsplat_s(renderer, random_scene(2, Chance(n=2000)), view, CLASSIC)


def test_no_frame_waits_for_the_gpu(renderer: GsplatRenderer) -> None:
    """Not the first ones, nor the one that is captured, nor those from the graph."""
    renderer.load(on_gpu(random_scene(1, Chance(n=100_000))))
    # The first picture reads the scene.
    renderer.render(VIEW, CLASSIC).pixels()
    for options in (CLASSIC, RenderOptions("antialiased")):
        with warnings.catch_warnings():
            # Torch warns that this mode does not see everything.
            warnings.simplefilter("ignore")
            torch.cuda.set_sync_debug_mode("error")
        try:
            for i in range(2 * DRAWS):
                renderer.render(looking_at_origin(1280, 720, distance=4.0 + i), options)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()


# ---- what the renderer keeps from one version of a scene to the next


def assert_fresh(
    renderer: GsplatRenderer,
    s: GaussianScene,
    view: Camera = VIEW,
    options: RenderOptions = COLOR_ONLY,
) -> np.ndarray:
    """Check a picture against that of a new renderer, which has no graphs yet."""
    p = pixels(renderer, s, view, options)
    values = np.dstack([p.color, p.alpha])
    copies = {name: getattr(s, name).clone() for name in FIELDS}
    new_renderer = GsplatRenderer()
    fresh = pixels(new_renderer, replace(s, **copies), view, options)
    new_renderer.close()
    differing = int((values != np.dstack([fresh.color, fresh.alpha])).sum())
    message = (
        f"{differing} of {values.size} numbers differ, {values.max()} is the greatest"
    )
    assert not differing, message
    assert values.any(), message
    return values


def test_versions_generations_sizes_and_degrees(renderer: GsplatRenderer) -> None:
    small, large = (on_gpu(random_scene(n, Chance(n=n))) for n in (700, 3000))
    pictures = []
    # From the third on they are drawn by a graph.
    for _ in range(6):
        small.means.add_(0.03)
        small.shN.mul_(-0.8)
        pictures.append(assert_fresh(renderer, small))
    assert len({p.tobytes() for p in pictures}) == 6
    for s in (large, small, large, small):
        assert_fresh(renderer, s)
    for degree in (0, 1, 2, 3, 1):
        assert_fresh(renderer, replace(small, sh_degree=degree))
    # This scene is of the same size, and lies elsewhere.
    same_size = replace(small, **{name: getattr(large, name)[:700] for name in FIELDS})
    for s in (same_size, small, same_size):
        assert_fresh(renderer, s)
    assert_fresh(renderer, replace(small, means=small.means.half()))
    view = replace(VIEW, viewmat=VIEW.viewmat.copy(), K=VIEW.K.copy())
    for _ in range(3):
        view.viewmat[2, 3] += 0.5
        assert_fresh(renderer, small, view)
        assert_fresh(renderer, small, view, RenderOptions("antialiased"))


# ---- scenes that are odd or endless work, and memory that is full


def test_every_odd_scene_has_the_reference_s_picture(ctx: moderngl.Context) -> None:
    renderer = GsplatRenderer(ctx)
    view = looking_at_origin(80, 60)
    for name, (make, left_out) in SCENES.items():
        odd = make()
        gpu_copy = replace(odd, **{f: getattr(odd, f).cuda() for f in FIELDS})
        expected = draw(ReferenceRenderer(rules=renderer.rules), odd, view)
        got = draw(renderer, gpu_copy, view)
        assert renderer.left_out == left_out, name
        assert np.isfinite(got.color).all(), name
        assert np.isfinite(got.alpha).all(), name
        assert got.color.max() <= COLOR_MAX, name
        assert np.abs(got.alpha - expected.alpha).max() < 5e-3, name
        assert psnr(np.minimum(got.color, 1), np.minimum(expected.color, 1)) > 45, name
    renderer.close()


def test_more_pairs_than_may_be_are_not_drawn(
    ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the nearest are drawn."""
    renderer = GsplatRenderer(ctx)
    max_pairs = 62 * 20
    view = camera(80, 64)
    many = everywhere(500)
    monkeypatch.setattr(Capacity, "FIRST", 64)
    renderer._frame.capacity = Capacity(max_pairs)
    nearest = replace(many, **{n: getattr(many, n)[:62] for n in FIELDS})
    got = draw(renderer, many, view)
    expected = draw(ReferenceRenderer(rules=renderer.rules), nearest, view)
    assert psnr(got.color, expected.color) > 45
    assert renderer.thinned
    draw(renderer, everywhere(20), view)
    assert renderer.thinned == ""
    renderer.close()


FULL = """
import torch
from support.renderer_cases import Chance, psnr, random_scene
from support.view_cases import scene_view, view_pixels
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.screens.offscreen import OffscreenScreen

screen = OffscreenScreen(160, 120)
view = scene_view(screen)
view.update(random_scene(1, Chance(n=3000)))
view_pixels(view, screen)
assert "gsplat renderer" in view.info.path, view.info.extras
torch.cuda.synchronize()
torch.cuda.empty_cache()
total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
big = random_scene(1, Chance(n=2_000_000, sh_degree=3))
view.update(big)
got = view_pixels(view, screen)
assert "gl renderer" in view.info.path and "memory" in view.info.extras[-1], view.info.extras
other = scene_view(screen, GlRenderer(screen.ctx))
other.update(big)
other.follow(view, alike=True)
assert psnr(got / 255, view_pixels(other, screen) / 255) > 40
print(view.info.extras[-1], flush=True)
"""


def test_full_memory_and_opengl_takes_over(programs: Programs) -> None:
    program = programs.code(FULL)
    out, err = program.end()
    assert program.returncode == 0, err
    assert re.search("gl: gsplat: the memory of cuda:0 is full", out)
