"""The CUDA renderer on scenes that lie on the GPU, and its pictures against gsplat's own, the reference and OpenGL."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.renderer_cases import (
    CLASSIC,
    Chance,
    gsplat_picture,
    looking_at_origin,
    psnr,
    random_scene,
    real_scene,
)

from splatview_viewer.geometry.cameras import MODELS, Camera
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.render.gsplat.renderer import GsplatRenderer
from splatview_viewer.render.reference import ReferenceRenderer
from splatview_viewer.scene.scene import FIELDS, GaussianScene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import moderngl

    from splatview_viewer.render.base import Pixels

pytestmark = pytest.mark.cuda
VIEW = looking_at_origin()
SECOND = 1_500_000_000
"""Cycles of a GPU's clock, about."""


@pytest.fixture
def renderer(ctx: moderngl.Context) -> Iterator[GsplatRenderer]:
    made = GsplatRenderer(ctx)
    yield made
    assert made.note == "", "what is measured here is the quick way"
    made.close()


def on_gpu(s: GaussianScene, dtype: torch.dtype = torch.float32, **changes: Any) -> GaussianScene:
    arrays = {name: getattr(s, name).to("cuda", dtype, copy=True) for name in FIELDS}
    return replace(s, **{**arrays, **changes})


def pixels(renderer: GsplatRenderer, s: GaussianScene, view: Camera = VIEW, options: RenderOptions = CLASSIC) -> Pixels:
    renderer.load(s)
    return renderer.render(view, options).pixels()


def test_a_scene_on_the_gpu_looks_like_one_in_host_memory(renderer: GsplatRenderer) -> None:
    s = random_scene(1, Chance())
    a, b = pixels(renderer, s), pixels(renderer, on_gpu(s))
    assert np.array_equal(a.color, b.color) and np.array_equal(a.alpha, b.alpha) and a.alpha.max() > 0.5


def test_strided_tensors(renderer: GsplatRenderer) -> None:
    s = on_gpu(random_scene(2, Chance(n=700)))
    wide = torch.cat([s.sh0[:, None], s.shN], dim=1)
    apart = replace(s, sh0=wide[:, 0], shN=wide[:, 1:], means=s.means.T.contiguous().T,
                    quats=s.quats.repeat_interleave(2, 0)[::2])
    assert np.array_equal(pixels(renderer, s).color, pixels(renderer, apart).color)


def test_tensors_that_need_gradients(renderer: GsplatRenderer) -> None:
    s = on_gpu(random_scene(2, Chance(n=100)))
    for name in FIELDS:
        getattr(s, name).requires_grad_(True)
    assert pixels(renderer, s).alpha.any()


def test_a_change_in_place_shows_with_the_next_version(renderer: GsplatRenderer) -> None:
    s = on_gpu(random_scene(4, Chance(n=800)), version=1)
    before = pixels(renderer, s)
    s.means.add_(0.5)
    turned = looking_at_origin(201, 150)
    renderer.render(turned, CLASSIC)
    assert np.array_equal(renderer.render(VIEW, CLASSIC).pixels().color, before.color)
    after = pixels(renderer, replace(s, version=2))
    assert psnr(before.color, after.color) < 40
    assert np.array_equal(after.color, pixels(renderer, s.to_host()).color)


def test_it_waits_for_the_data(renderer: GsplatRenderer) -> None:
    s = on_gpu(random_scene(8, Chance(n=500)))
    expected = pixels(renderer, s)
    right = s.means.clone()
    s.means.fill_(1e6)
    torch.cuda.synchronize()
    trainer, written, streams = torch.cuda.Stream(), torch.cuda.Event(), []
    with torch.cuda.stream(trainer):
        torch.cuda._sleep(SECOND // 5)
        s.means.copy_(right)
        written.record()

    def ready(stream: int) -> None:
        streams.append(stream)
        torch.cuda.ExternalStream(stream).wait_event(written)

    renderer.load(s, ready)
    assert renderer.pending and not streams, "the GPU is given nothing before the picture"
    assert np.array_equal(renderer.render(VIEW, CLASSIC).pixels().color, expected.color)
    assert streams == [renderer._stream.cuda_stream] and not renderer.pending and not renderer.reading


def test_far_from_the_origin(renderer: GsplatRenderer) -> None:
    s = random_scene(11, Chance(n=400))
    offset = np.array([3e5, -2e5, 1e5])
    s = replace(s, means=(s.means * 8).round() / 8)  # so that adding the offset rounds nothing
    view = replace(VIEW, viewmat=VIEW.viewmat.copy())
    view.viewmat[:3, 3] -= view.viewmat[:3, :3] @ offset
    near = pixels(renderer, on_gpu(s))
    far = replace(s, means=(s.means + torch.from_numpy(offset)).float())
    renderer.load(on_gpu(far))
    renderer.render(view, CLASSIC)
    torch.cuda.synchronize()
    assert renderer.tick() or renderer._gaussians.origin.any(), "by now it is known where the scene lies"
    assert psnr(near.color, renderer.render(view, CLASSIC).pixels().color) > 65
    assert not renderer.tick()
    for _ in range(3):
        assert psnr(near.color, pixels(renderer, on_gpu(far), view).color) > 65
    back = renderer.host_scene()
    assert (back.means - far.means).abs().max() < 0.1 and back.activated


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("mode", "degree"), [("classic", 4), ("antialiased", 1)])
def test_against_the_reference(renderer: GsplatRenderer, model: Any, mode: Any, degree: int) -> None:
    s = random_scene(20 + degree, Chance(sh_degree=4))
    view, options, reference = looking_at_origin(model=model), RenderOptions(mode, degree), ReferenceRenderer()
    if model == "fisheye":
        view.K[[0, 1], [0, 1]] = 90.0, 80.0  # a right angle and more
    reference.load(s)
    expected = reference.render(view, options).pixels()
    got = pixels(renderer, on_gpu(s), view, options)
    assert got.depth is not None and expected.depth is not None and expected.alpha.max() > 0.5
    decibels = (psnr(got.color, expected.color), psnr(got.alpha, expected.alpha),
                psnr(got.depth, expected.depth, float(expected.depth.max())))
    assert min(decibels) > (60 if model == "fisheye" else 65), decibels


@pytest.mark.parametrize("name", ["biker_0", "biker_1", "playbot_0_aa", "playbot_2", "random_0", "random_1"])
def test_against_stored_pictures_of_gsplat(renderer: GsplatRenderer, data_dir: Path, name: str) -> None:
    d = gsplat_picture(data_dir, name)
    p = pixels(renderer, on_gpu(real_scene(data_dir, d.scene)), d.camera, RenderOptions(d.mode, d.sh_degree))
    assert p.depth is not None
    got = psnr(p.color, d.color), psnr(p.alpha, d.alpha), psnr(p.depth, d.depth, float(d.depth.max()))
    assert all(np.greater_equal(got, (77, 75, 75))), got  # they are float16


# ---- what the renderer keeps from one version of a scene to the next

SHOWN = RenderOptions(depth=False)


def fresh(s: GaussianScene, view: Camera = VIEW, options: RenderOptions = SHOWN) -> np.ndarray:
    """By a renderer that knows nothing, without graphs as yet."""
    made = GsplatRenderer()
    made.load(replace(s, **{name: getattr(s, name).clone() for name in FIELDS}))
    values = made.render(view, options).pixels()
    made.close()
    return np.dstack([values.color, values.alpha])


def assert_fresh(kept: GsplatRenderer, s: GaussianScene, view: Camera = VIEW,
                 options: RenderOptions = SHOWN) -> np.ndarray:
    kept.load(s)
    p = kept.render(view, options).pixels()
    values = np.dstack([p.color, p.alpha])
    wrong = int((values != fresh(s, view, options)).sum())
    assert not wrong and values.any(), f"{wrong} of {values.size} numbers differ, {values.max()} is the greatest"
    return values


@pytest.fixture
def kept(ctx: moderngl.Context) -> GsplatRenderer:
    return GsplatRenderer(ctx)


def test_versions_generations_sizes_and_degrees(kept: GsplatRenderer) -> None:
    small, large = (on_gpu(random_scene(n, Chance(n=n))) for n in (700, 3000))
    pictures = []
    for _ in range(6):  # from the third on by a graph
        small.means.add_(0.03)
        small.shN.mul_(-0.8)
        pictures.append(assert_fresh(kept, small))
    assert len({p.tobytes() for p in pictures}) == 6
    for s in (large, small, large, small):
        assert_fresh(kept, s)
    for degree in (0, 1, 2, 3, 1):
        assert_fresh(kept, replace(small, sh_degree=degree))
    other = replace(small, **{name: getattr(large, name)[:700] for name in FIELDS})  # of one size, elsewhere
    for s in (other, small, other):
        assert_fresh(kept, s)
    assert_fresh(kept, replace(small, means=small.means.half()))
    view = replace(VIEW, viewmat=VIEW.viewmat.copy(), K=VIEW.K.copy())
    for _ in range(3):
        view.viewmat[2, 3] += 0.5
        assert_fresh(kept, small, view)
        assert_fresh(kept, small, view, RenderOptions("antialiased"))
    assert kept.note == ""
    kept.close()
