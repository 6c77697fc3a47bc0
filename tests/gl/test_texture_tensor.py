"""splatview.gl: tensors over textures, textures over tensors and what both share, every pixel, in any program."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import moderngl
import numpy as np
import pytest
import torch
from support.programs import Programs
from support.wait import PATIENCE

import splatview.gl
from splatview.gl import SharedTexture, TextureTensor
from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl import glapi
from splatview_ipc.gl.base import Form
from splatview_ipc.gl.glapi import GL
from splatview_ipc.gl.sources import VERTEX, TextureSource, read_source

WAYS = ["host", pytest.param("register", marks=pytest.mark.cuda)]
NUMPY = {"f1": np.uint8, "f2": np.float16, "f4": np.float32}
COLOURS = [(components, dtype) for components in (1, 2, 3, 4) for dtype in NUMPY]
STORE = {
    0x0D02: 100,
    0x0D03: 1,
    0x0D04: 2,
    0x0D05: 8,
    0x0CF2: 99,
    0x0CF3: 2,
    0x0CF4: 1,
    0x0CF5: 2,
}
"""How a program may have pixels stored: row length, skipped rows, skipped pixels, alignment, packed and unpacked."""


def values(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    bits = np.random.default_rng(seed)
    if dtype == "f1":
        return bits.integers(0, 256, shape, np.uint8)
    return bits.normal(size=shape).astype(NUMPY[dtype])


@pytest.fixture(params=WAYS)
def way(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    ctx: moderngl.Context,
) -> Iterator[str]:
    monkeypatch.delenv("SPLATVIEW_INTEROP", raising=False)
    assert ctx.error == "GL_NO_ERROR"
    yield request.param
    assert ctx.error == "GL_NO_ERROR"


def test_textures_both_ways(ctx: moderngl.Context, way: str) -> None:
    for (components, dtype), size in itertools.product(COLOURS, ((61, 33), (1, 1))):
        if components == 3 and way != "host":
            continue
        shape = size[1], size[0], components
        texture = ctx.texture(
            size,
            components,
            values(shape, dtype, 0).tobytes(),
            alignment=1,
            dtype=dtype,
        )
        with TextureTensor(texture, way) as follower:
            assert follower.way == way
            assert tuple(follower.tensor.shape) == shape
            device = follower.tensor.device
            assert device.type == (
                "cuda" if way != "host" or torch.cuda.is_available() else "cpu"
            )
            for seed in range(1, 4):
                texture.write(values(shape, dtype, seed), alignment=1)
                got = follower.update()
                assert np.array_equal(got.cpu().numpy(), values(shape, dtype, seed)), (
                    components,
                    dtype,
                    seed,
                )
            for seed in range(4, 9):  # more than the slots behind it
                follower.write(torch.from_numpy(values(shape, dtype, seed)).to(device))
                back = np.frombuffer(texture.read(alignment=1), NUMPY[dtype]).reshape(
                    shape
                )
                assert np.array_equal(back, values(shape, dtype, seed)), (
                    components,
                    dtype,
                    seed,
                )
            turned = torch.from_numpy(values(shape, dtype, 9)).to(device).flip(0, 1)
            follower.write(turned)
            assert torch.equal(follower.update(), turned)
        texture.release()


def test_renderbuffers(ctx: moderngl.Context, way: str) -> None:
    for components, dtype in ((4, "f1"), (4, "f2"), (4, "f4"), (1, "f4"), (2, "f1")):
        buffer = ctx.renderbuffer((61, 33), components, dtype=dtype)
        framebuffer = ctx.framebuffer([buffer])
        with TextureTensor(buffer, way) as follower:
            for red in (0.25, 0.75):
                framebuffer.clear(red, 0.5, 0.0, 1.0)
                framebuffer.clear(
                    1.0, 1.0, 1.0, 1.0, viewport=(0, 0, 5, 2)
                )  # OpenGL's row 0 is at the bottom
                wanted = np.frombuffer(
                    framebuffer.read(components=components, dtype=dtype, alignment=1),
                    NUMPY[dtype],
                )
                got = follower.update().cpu().numpy()
                assert np.array_equal(got, wanted.reshape(33, 61, components)), (
                    components,
                    dtype,
                )
                assert got[1, 4, 0] == got[0, 0, 0] != got[2, 4, 0]
            if way == "register":
                follower.write(torch.ones_like(follower.tensor))
                assert (follower.update() == 1).all()
            else:
                with pytest.raises(
                    SharingError, match="a renderbuffer cannot be written"
                ):
                    follower.write(torch.ones_like(follower.tensor))
        framebuffer.release()
        buffer.release()


def test_depth(ctx: moderngl.Context) -> None:
    for depth in (ctx.depth_texture((61, 33)), ctx.depth_renderbuffer((61, 33))):
        framebuffer = ctx.framebuffer([], depth)
        with TextureTensor(depth) as follower:
            framebuffer.clear(depth=0.25)
            framebuffer.clear(depth=1.0, viewport=(0, 0, 5, 2))
            wanted = torch.full((33, 61, 1), 0.25)
            wanted[:2, :5] = 1
            assert follower.way == "host"
            assert abs(follower.update().cpu() - wanted).max() < 1e-6
            if isinstance(depth, moderngl.Texture):
                follower.write(torch.full((33, 61, 1), 0.5))
                assert abs(follower.update().cpu() - 0.5).max() < 1e-6
        framebuffer.release()
        depth.release()


@pytest.mark.parametrize("explicit", [False, True], ids=["any time", "explicit"])
def test_a_texture_over_a_tensor(
    ctx: moderngl.Context, explicit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPLATVIEW_INTEROP", raising=False)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for shape, dtype in (((33, 61), "f4"), ((33, 61, 3), "f1"), ((33, 61, 4), "f2")):
        tensor = torch.from_numpy(values(shape, dtype, 0)).to(device)
        with splatview.gl.texture(tensor, ctx, explicit=explicit) as shown:
            assert shown.texture.size == (shape[1], shape[0])
            if device == "cuda":
                assert shown.way == ("host" if shape[2:] == (3,) else "vulkan")
            for seed in (0, 1, 2):
                tensor.copy_(torch.from_numpy(values(shape, dtype, seed)))
                shown.update()
                with shown.gl() as texture:
                    back = np.frombuffer(
                        texture.read(alignment=1), NUMPY[dtype]
                    ).reshape(shape)
                assert np.array_equal(back, values(shape, dtype, seed))


def test_the_programs_own_state_stays(ctx: moderngl.Context, way: str) -> None:
    """Bindings and pixel-store settings that a transfer touches are put back, and do not disturb it."""
    gl = GL.current()
    texture = ctx.texture(
        (61, 33), 4, values((33, 61, 4), "f1", 1).tobytes(), alignment=1
    )
    own_framebuffer = ctx.simple_framebuffer((8, 8))
    own_texture = ctx.texture((8, 8), 4)
    own_buffer = ctx.buffer(b"12345678")
    follower = TextureTensor(texture, way)
    own_framebuffer.use()
    gl.glBindFramebuffer(glapi.READ_FRAMEBUFFER, own_framebuffer.glo)
    gl.glActiveTexture(glapi.TEXTURE0 + 3)
    gl.glBindTexture(glapi.TEXTURE_2D, own_texture.glo)
    for target in (glapi.PIXEL_PACK_BUFFER, glapi.PIXEL_UNPACK_BUFFER):
        gl.glBindBuffer(target, own_buffer.glo)
    for name, value in STORE.items():
        gl.glPixelStorei(name, value)
    looked_at = [
        *STORE,
        glapi.ACTIVE_TEXTURE,
        glapi.TEXTURE_BINDING_2D,
        glapi.TEXTURE_BINDING_BUFFER,
        glapi.TEXTURE_BUFFER_BINDING,
        glapi.PIXEL_PACK_BUFFER_BINDING,
        glapi.PIXEL_UNPACK_BUFFER_BINDING,
        glapi.READ_FRAMEBUFFER_BINDING,
        glapi.DRAW_FRAMEBUFFER_BINDING,
    ]
    before = {name: gl.integer(name) for name in looked_at}
    try:
        got = follower.update().cpu().numpy()
        follower.write(
            torch.from_numpy(values((33, 61, 4), "f1", 2)).to(follower.tensor.device)
        )
        after = {name: gl.integer(name) for name in looked_at}
    finally:
        for name in STORE:
            gl.glPixelStorei(name, 4 if name in (0x0D05, 0x0CF5) else 0)
        for target in (glapi.PIXEL_PACK_BUFFER, glapi.PIXEL_UNPACK_BUFFER):
            gl.glBindBuffer(target, 0)
    assert {hex(k): v for k, v in after.items()} == {
        hex(k): v for k, v in before.items()
    }
    assert np.array_equal(got, values((33, 61, 4), "f1", 1))
    assert np.array_equal(
        np.frombuffer(texture.read(alignment=1), np.uint8).reshape(33, 61, 4),
        values((33, 61, 4), "f1", 2),
    )
    assert own_buffer.read() == b"12345678"
    follower.close()
    follower.close()


def test_what_cannot_be_followed(ctx: moderngl.Context) -> None:
    for make, words in (
        (lambda: TextureTensor(5), r"legal are a moderngl\.Texture and a"),  # type: ignore[arg-type]
        (
            lambda: TextureTensor(ctx.texture((4, 4), 1, dtype="u4")),
            "legal are f1, f2, f4 and depth",
        ),
        (
            lambda: TextureTensor(ctx.renderbuffer((4, 4), samples=4)),
            "4 samples per pixel: resolve it first",
        ),
        (
            lambda: TextureTensor(ctx.texture((4, 4), 4), "import"),
            "legal are register, host",
        ),
        (
            lambda: TextureTensor(ctx.texture((4, 4), 3), "register"),
            "textures of 1, 2 and 4 components",
        ),
        (
            lambda: splatview.gl.texture(torch.zeros(4, 4, dtype=torch.int32), ctx),
            "int32 tensor",
        ),
        (
            lambda: splatview.gl.texture(torch.zeros(4, 4, 5), ctx),
            r"\(4, 4, 5\); legal are",
        ),
    ):
        with pytest.raises((TypeError, ValueError, SharingError), match=words):
            make()
    with TextureTensor(ctx.texture((4, 4), 4), "host") as follower:
        for wrong in (torch.zeros(4, 4, 4), torch.zeros(4, 4, 3, dtype=torch.uint8)):
            with pytest.raises(
                ValueError, match=r"the texture takes uint8 \(4, 4, 4\)"
            ):
                follower.write(wrong)
    with pytest.raises(SharingError, match="the TextureTensor is closed"):
        follower.update()


def test_a_thread_without_the_context_is_refused(
    ctx: moderngl.Context, way: str
) -> None:
    with (
        TextureTensor(ctx.texture((4, 4), 4), way) as follower,
        ThreadPoolExecutor(1) as pool,
    ):
        for call in (follower.update, lambda: follower.write(follower.tensor)):
            with pytest.raises(
                RuntimeError,
                match="the texture's OpenGL context is not current on this thread",
            ):
                pool.submit(call).result()
        follower.update()


def test_the_choice_and_its_reasons(
    ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPLATVIEW_INTEROP", raising=False)
    nvidia = "NVIDIA" in ctx.info["GL_VENDOR"]
    texture = ctx.texture((4, 4), 4)
    with TextureTensor(texture) as follower:
        assert follower.way == ("register" if nvidia else "host")
        assert set(follower.reasons) == (set() if nvidia else {"register"})
    with TextureTensor(ctx.texture((4, 4), 3)) as follower:
        assert (follower.way, set(follower.reasons)) == ("host", {"register"})
    monkeypatch.setenv("SPLATVIEW_INTEROP", "host")
    with TextureTensor(texture) as follower:
        assert (follower.way, follower.reasons) == ("host", {})


def test_importing_it_loads_no_torch(programs: Programs) -> None:
    done = programs.python(
        "-c", "import sys, splatview.gl; print('torch' in sys.modules)"
    )
    assert done.communicate(timeout=PATIENCE)[0].strip() == "False"


def on_gpu(shape: tuple[int, ...], dtype: str, seed: int) -> torch.Tensor:
    return torch.from_numpy(values(shape, dtype, seed)).cuda()


def test_where_it_cannot_work_one_error_names_another_way(
    ctx: moderngl.Context,
) -> None:
    if torch.cuda.is_available():
        pytest.skip("needs an OpenGL that is not on an NVIDIA GPU")
    with pytest.raises(
        SharingError,
        match=r"SharedTexture cannot work here, a TextureTensor .* can: OpenGL ",
    ):
        SharedTexture(ctx, (64, 48))


def drawn(ctx: moderngl.Context, shared: SharedTexture) -> torch.Tensor:
    """What a shader sees of it, bit for bit: (H, W, C) float32, uint8 as v / 255."""
    form = Form(*shared.size, shared.shape[2], shared.dtype, "HWC")
    return torch.from_numpy(
        read_source(ctx, TextureSource(shared.texture, form)).copy()
    )[..., : shared.shape[2]]


def as_drawn(values: torch.Tensor) -> torch.Tensor:
    if values.dtype == torch.uint8:
        return values.cpu().float() / 255
    return values.cpu().float()


@pytest.mark.cuda
@pytest.mark.parametrize("explicit", [False, True], ids=["any time", "explicit"])
def test_every_format_exactly(ctx: moderngl.Context, explicit: bool) -> None:
    for (components, dtype), size in itertools.product(COLOURS, ((61, 33), (1, 1))):
        if components == 3:
            continue
        shape = size[1], size[0], components
        with SharedTexture(ctx, size, components, dtype, explicit=explicit) as shared:
            for seed in range(2):
                sent = on_gpu(shape, dtype, seed)
                shared.write(sent)
                with shared.gl():
                    assert torch.allclose(
                        drawn(ctx, shared), as_drawn(sent), rtol=0, atol=1e-7
                    ), ("drawn", components, dtype, seed)
                assert torch.equal(shared.read(), sent), (
                    "from CUDA's copy",
                    components,
                    dtype,
                    seed,
                )
                back = on_gpu(shape, dtype, seed + 10)
                with shared.gl() as texture:
                    texture.write(back.cpu().numpy().tobytes(), alignment=1)
                assert torch.equal(shared.read(), back), (
                    "from OpenGL",
                    components,
                    dtype,
                    seed,
                )
            turned = on_gpu(shape, dtype, 5).flip(0, 1)
            shared.write(turned)
            assert torch.equal(shared.read(), turned)


@pytest.mark.cuda
def test_the_order_of_work_is_kept(ctx: moderngl.Context) -> None:
    """Tensor to texture, drawn by a shader into another one, to a tensor again: many times without a wait of ours, each
    time another picture.
    """
    size = (512, 256)
    shape = (256, 512, 4)
    program = ctx.program(
        vertex_shader=VERTEX,
        fragment_shader=(
            "#version 330\nuniform sampler2D t; out vec4 c;\n"
            "void main() { c = 1.0 - texelFetch(t, ivec2(gl_FragCoord.xy), 0); }"
        ),
    )
    array = ctx.vertex_array(program, [])
    for explicit in (False, True):
        with (
            SharedTexture(ctx, size, explicit=explicit) as first,
            SharedTexture(ctx, size, explicit=explicit) as second,
        ):
            framebuffer = ctx.framebuffer([second.texture])
            pictures = [on_gpu(shape, "f1", seed) for seed in range(8)]
            wrong = torch.zeros((), dtype=torch.int64, device=pictures[0].device)
            for k in range(200):
                first.write(pictures[k % 8])
                with (
                    first.gl() as texture,
                    second.gl(),
                    ctx.scope(framebuffer, moderngl.NOTHING),
                ):
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
        sent = [on_gpu(shape, "f1", seed) for seed in range(8)]
        for _ in range(3):
            for picture in sent:
                shared.write(picture)
            assert torch.equal(shared.read(), sent[-1])
            for _ in range(3):  # OpenGL gives it back and takes it again
                with shared.gl():
                    assert torch.allclose(
                        drawn(ctx, shared), as_drawn(sent[-1]), rtol=0, atol=1e-7
                    )
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
