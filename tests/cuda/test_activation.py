"""The kernel that activates Gaussians on a GPU, against NumPy; and pictures drawn straight into OpenGL's memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.renderer_cases import CLASSIC, Chance, looking_at_origin, psnr, random_scene, read_source

from splatview_viewer.render.activation import activate
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


def assert_same(s: GaussianScene) -> None:
    kernel = DeviceGaussians(torch.device("cuda", 0))
    for _ in range(2):
        kernel.load(s)
    torch.cuda.synchronize()
    made = activate(replace(s.to_host(), means=s.means.double().cpu()))
    a = kernel.active
    expected, good = made.scene(), a.opacities.cpu().numpy() != 0
    assert np.array_equal(good, (expected.opacities != 0).numpy()) and kernel.left_out == made.left_out
    terms = a.colors.shape[1]
    sh = torch.cat([expected.sh0[:, None], expected.shN[:, : terms - 1]], 1)
    quats = torch.nn.functional.normalize(a.quats.double(), dim=-1)
    for name, got, wanted in (("means", a.means, expected.means), ("quats", quats, expected.quats),
                              ("scales", a.scales, expected.scales), ("opacities", a.opacities, expected.opacities),
                              ("colors", a.colors, sh)):
        assert got.is_contiguous()
        np.testing.assert_allclose(got.cpu().numpy()[good], wanted.float().numpy()[good], rtol=2e-6, atol=1e-7,
                                   err_msg=name)
    assert not kernel.origin.any() and not kernel.rough


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16,
                                   torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize(("n", "degree"), [(1, 3), (20_001, 2), (3_000, 4)])
def test_against_numpy(dtype: torch.dtype, degree: int, n: int) -> None:
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
    slots = renderer._frame.slots
    values = read_source(ctx, picture.source())
    assert renderer._frame.slots > slots, "this scene does not show what the test is about"
    p = renderer.render(near, CLASSIC).pixels()
    assert np.array_equal(values, np.dstack([p.color, p.alpha]).astype(np.float16).astype(np.float32))
