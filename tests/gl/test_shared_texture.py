"""splatview.gl.SharedTexture: an image that OpenGL and CUDA share, every pixel, in the right order."""

from __future__ import annotations

import itertools

import moderngl
import numpy as np
import pytest
import torch

from splatview.gl import SharedTexture
from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.base import Form
from splatview_ipc.gl.sources import VERTEX, TextureSource, read_source

NUMPY = {"f1": np.uint8, "f2": np.float16, "f4": np.float32}
FORMATS = [(components, dtype) for components in (1, 2, 4) for dtype in NUMPY]


def values(shape: tuple[int, ...], dtype: str, seed: int) -> torch.Tensor:
    bits = np.random.default_rng(seed)
    array = bits.integers(0, 256, shape, np.uint8) if dtype == "f1" else bits.normal(size=shape).astype(NUMPY[dtype])
    return torch.from_numpy(array).cuda()


def test_where_it_cannot_work_one_error_names_another_way(ctx: moderngl.Context) -> None:
    if torch.cuda.is_available():
        pytest.skip("needs an OpenGL that is not on an NVIDIA GPU")
    with pytest.raises(SharingError, match=r"SharedTexture cannot work here, a TextureTensor .* can: OpenGL "):
        SharedTexture(ctx, (64, 48))


def drawn(ctx: moderngl.Context, shared: SharedTexture) -> torch.Tensor:
    """What a shader sees of it, bit for bit: (H, W, C) float32, uint8 as v / 255."""
    form = Form(*shared.size, shared.shape[2], shared.dtype, "HWC")
    return torch.from_numpy(read_source(ctx, TextureSource(shared.texture, form)).copy())[..., : shared.shape[2]]


def as_drawn(values: torch.Tensor) -> torch.Tensor:
    return values.cpu().float() / 255 if values.dtype == torch.uint8 else values.cpu().float()


@pytest.mark.cuda
@pytest.mark.parametrize("explicit", [False, True], ids=["any time", "explicit"])
def test_every_format_exactly(ctx: moderngl.Context, explicit: bool) -> None:
    for (components, dtype), size in itertools.product(FORMATS, ((61, 33), (1, 1))):
        shape = size[1], size[0], components
        with SharedTexture(ctx, size, components, dtype, explicit=explicit) as shared:
            for seed in range(2):
                sent = values(shape, dtype, seed)
                shared.write(sent)
                with shared.gl():
                    assert torch.allclose(drawn(ctx, shared), as_drawn(sent), rtol=0, atol=1e-7), (
                        "drawn", components, dtype, seed)
                assert torch.equal(shared.read(), sent), ("from CUDA's copy", components, dtype, seed)
                back = values(shape, dtype, seed + 10)
                with shared.gl() as texture:
                    texture.write(back.cpu().numpy().tobytes(), alignment=1)
                assert torch.equal(shared.read(), back), ("from OpenGL", components, dtype, seed)
            turned = values(shape, dtype, 5).flip(0, 1)
            shared.write(turned)
            assert torch.equal(shared.read(), turned)


@pytest.mark.cuda
def test_the_order_of_work_is_kept(ctx: moderngl.Context) -> None:
    """Tensor to texture, drawn by a shader into another one, to a tensor again: many times without a wait of ours, each
    time another picture."""
    size, shape = (512, 256), (256, 512, 4)
    program = ctx.program(vertex_shader=VERTEX, fragment_shader=(
        "#version 330\nuniform sampler2D t; out vec4 c;\n"
        "void main() { c = 1.0 - texelFetch(t, ivec2(gl_FragCoord.xy), 0); }"))
    array = ctx.vertex_array(program, [])
    for explicit in (False, True):
        with (SharedTexture(ctx, size, explicit=explicit) as first,
              SharedTexture(ctx, size, explicit=explicit) as second):
            framebuffer = ctx.framebuffer([second.texture])
            pictures = [values(shape, "f1", seed) for seed in range(8)]
            wrong = torch.zeros((), dtype=torch.int64, device=pictures[0].device)
            for k in range(200):
                first.write(pictures[k % 8])
                with first.gl() as texture, second.gl(), ctx.scope(framebuffer, moderngl.NOTHING):
                    texture.use(0)
                    array.render(moderngl.TRIANGLES, vertices=3)
                wrong += (second.read() != 255 - pictures[k % 8]).sum()
            assert int(wrong) == 0
            framebuffer.release()


@pytest.mark.cuda
def test_an_explicit_texture_is_one_sides_at_a_time(ctx: moderngl.Context) -> None:
    """Many writes before OpenGL looks, turns in which CUDA does nothing, and what is refused."""
    shape = 33, 61, 4
    with SharedTexture(ctx, (61, 33), explicit=True) as shared:
        sent = [values(shape, "f1", seed) for seed in range(8)]
        for _ in range(3):
            for picture in sent:
                shared.write(picture)
            assert torch.equal(shared.read(), sent[-1])
            for _ in range(3):  # OpenGL gives it back and takes it again
                with shared.gl():
                    assert torch.allclose(drawn(ctx, shared), as_drawn(sent[-1]), rtol=0, atol=1e-7)
                    with pytest.raises(SharingError, match="OpenGL has the texture"):
                        shared.write(sent[0])
                    with pytest.raises(SharingError, match="OpenGL has the texture"):
                        shared.read()
        assert shared.acquire() is shared.acquire() is shared.texture
        shared.release()
        shared.release()
        shared.write(sent[3])
        assert torch.equal(shared.read(), sent[3])
    with pytest.raises(SharingError, match="the texture is closed"):
        shared.read()
