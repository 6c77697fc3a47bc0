"""The kernel that activates Gaussians on a GPU: what it computes, against torch, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.renderer_cases import CLASSIC, Chance, looking_at_origin, psnr, random_scene, read_source

from splatview_viewer.render.base import RenderOptions
from splatview_viewer.render.gsplat.renderer import GsplatRenderer
from splatview_viewer.render.gsplat.scene import DeviceGaussians
from splatview_viewer.scene.scene import FIELDS, GaussianScene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import moderngl

pytestmark = pytest.mark.cuda
SHOWN = RenderOptions(depth=False)
"""What a view asks for that shows colours."""
VIEW = looking_at_origin()


@pytest.fixture
def renderer(ctx: moderngl.Context) -> Iterator[GsplatRenderer]:
    made = GsplatRenderer(ctx)
    yield made
    assert made.note == ""
    made.close()


def on_gpu(s: GaussianScene, dtype: torch.dtype = torch.float32) -> GaussianScene:
    return replace(s, **{name: getattr(s, name).to("cuda", dtype)
                         for name in FIELDS})


def both(s: GaussianScene) -> tuple[DeviceGaussians, DeviceGaussians]:
    made = DeviceGaussians(torch.device("cuda", 0)), DeviceGaussians(torch.device("cuda", 0), plain=True)
    assert made[0].note == "", "the kernel does not compile"
    for gaussians in made:
        for _ in range(2):
            gaussians.load(s)
    torch.cuda.synchronize()
    return made


def assert_same(s: GaussianScene) -> DeviceGaussians:
    kernel, plain = both(s)
    good = plain.opacities != 0
    assert torch.equal(kernel.opacities != 0, good)
    for name in ("means", "quats", "scales", "opacities", "colors"):
        a, b = getattr(kernel, name)[good], getattr(plain, name)[good]
        assert a.shape == b.shape and a.is_contiguous()
        worst = ((a - b).abs() / b.abs().clamp(min=1e-30)).max().item() if len(a) else 0.0
        assert worst < 1e-6, f"{name}: {worst}"
    assert kernel.skipped == plain.skipped == (~good).sum().item()
    assert np.array_equal(kernel.origin, plain.origin) and not kernel.rough and not plain.rough
    return kernel


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16,
                                   torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize(("n", "degree"), [(1, 3), (20_001, 2), (3_000, 4)])
def test_against_torch(dtype: torch.dtype, degree: int, n: int) -> None:
    assert_same(on_gpu(random_scene(n, Chance(n=n, sh_degree=degree)), dtype))


APART: dict[str, Callable[[GaussianScene], GaussianScene]] = {
    "columns first": lambda s: replace(s, **{name: t.mT.contiguous().mT for name in ("means", "quats", "sh0", "shN")
                                             if isinstance(t := getattr(s, name), torch.Tensor)}),
    "one tensor": lambda s: replace(s, sh0=(c := torch.cat([s.sh0[:, None], s.shN], 1))[:, 0],  # type: ignore[list-item,index]
                                    shN=c[:, 1:]),
    "the third": lambda s: replace(s, sh_degree=1),
}


@pytest.mark.parametrize("name", APART)
def test_strides(name: str) -> None:
    assert_same(APART[name](on_gpu(random_scene(1, Chance(n=5000)))))


def test_straight_into_opengl(renderer: GsplatRenderer, ctx: moderngl.Context) -> None:
    renderer.load(on_gpu(random_scene(1, Chance(n=800))))
    for size in [(201, 150), (333, 77), (201, 150)]:
        for distance in (3.0, 4.0, 5.0, 6.0, 7.0):  # the last ones from a graph
            picture = renderer.render(looking_at_origin(*size, distance=distance), SHOWN)
            assert picture._shown is not None and picture._rgba.dtype == torch.float16
            values = read_source(ctx, picture.source())
            p = picture.pixels()
            assert p.color.dtype == np.float32 and p.depth is None and p.alpha.max() > 0.5
            assert np.array_equal(values, np.dstack([p.color, p.alpha]).astype(np.float16).astype(np.float32))
            assert np.array_equal(read_source(ctx, picture.source()), values)


def test_pixels_before_it_is_shown(renderer: GsplatRenderer, ctx: moderngl.Context) -> None:
    renderer.load(on_gpu(random_scene(1, Chance(n=800))))
    picture = renderer.render(VIEW, SHOWN)
    p = picture.pixels()
    assert psnr(read_source(ctx, picture.source())[..., :3], p.color) > 60
    for _ in range(5):  # pictures that nobody shows
        renderer.render(looking_at_origin(distance=9.0), SHOWN)
        renderer.render(VIEW, SHOWN)
    assert psnr(read_source(ctx, renderer.render(VIEW, SHOWN).source())[..., :3], p.color) > 60


def test_more_than_there_was_room_for(renderer: GsplatRenderer, ctx: moderngl.Context) -> None:
    """The picture that is shown is whole, though it was drawn into OpenGL's memory at once."""
    renderer.load(on_gpu(random_scene(1, Chance(n=4000, log_scale=(-0.5, 0.5)))))
    near = looking_at_origin(1280, 720, distance=3.0)
    picture = renderer.render(near, SHOWN)
    assert isinstance(slots := getattr(renderer._frame, "slots", None), int)
    values = read_source(ctx, picture.source())
    assert renderer._frame.slots > slots, "this scene does not show what the test is about"  # type: ignore[attr-defined]
    p = renderer.render(near, CLASSIC).pixels()
    assert np.array_equal(values, np.dstack([p.color, p.alpha]).astype(np.float16).astype(np.float32))
