"""splatview.gl: tensors over textures, textures over tensors, and textures of both.

Every pixel is compared, in a program with an OpenGL state of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import moderngl
import numpy as np
import pytest
import torch
from support.programs import Programs
from support.wait import PATIENCE_S

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
PIXEL_STORE = {
    0x0D02: 100,
    0x0D03: 1,
    0x0D04: 2,
    0x0D05: 8,
    0x0CF2: 99,
    0x0CF3: 2,
    0x0CF4: 1,
    0x0CF5: 2,
}
"""A program's own state of pixel transfers.

Row length, skipped rows, skipped pixels and alignment, packed and unpacked.
"""
ALIGNMENTS = (0x0D05, 0x0CF5)
STATE = [
    *PIXEL_STORE,
    glapi.ACTIVE_TEXTURE,
    glapi.TEXTURE_BINDING_2D,
    glapi.TEXTURE_BINDING_BUFFER,
    glapi.TEXTURE_BUFFER_BINDING,
    glapi.PIXEL_PACK_BUFFER_BINDING,
    glapi.PIXEL_UNPACK_BUFFER_BINDING,
    glapi.READ_FRAMEBUFFER_BINDING,
    glapi.DRAW_FRAMEBUFFER_BINDING,
]
"""OpenGL's state that a transfer may touch."""


def values(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Return random pixels of one of moderngl's dtypes."""
    generator = np.random.default_rng(seed)
    if dtype == "f1":
        return generator.integers(0, 256, shape, np.uint8)
    return generator.normal(size=shape).astype(NUMPY[dtype])


def content_of(texture: moderngl.Texture, dtype: str) -> np.ndarray:
    """Return a texture's pixels, (H, W, C)."""
    pixels = np.frombuffer(texture.read(alignment=1), NUMPY[dtype])
    return pixels.reshape(texture.height, texture.width, texture.components)


@pytest.fixture(params=WAYS)
def sharing_way(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    ctx: moderngl.Context,
) -> Iterator[str]:
    monkeypatch.delenv("SPLATVIEW_INTEROP", raising=False)
    assert ctx.error == "GL_NO_ERROR"
    yield request.param
    assert ctx.error == "GL_NO_ERROR"


def test_textures_both_ways(ctx: moderngl.Context, sharing_way: str) -> None:
    for (components, dtype), size in itertools.product(COLOURS, ((61, 33), (1, 1))):
        if components == 3 and sharing_way != "host":
            continue
        shape = size[1], size[0], components
        content = values(shape, dtype, 0).tobytes()
        texture = ctx.texture(size, components, content, alignment=1, dtype=dtype)
        with TextureTensor(texture, sharing_way) as follower:
            assert follower.way == sharing_way
            assert tuple(follower.tensor.shape) == shape
            uses_gpu = sharing_way != "host" or torch.cuda.is_available()
            assert follower.tensor.is_cuda == uses_gpu
            check_both_ways(texture, follower, shape, dtype)
        texture.release()


def check_both_ways(
    texture: moderngl.Texture,
    follower: TextureTensor,
    shape: tuple[int, int, int],
    dtype: str,
) -> None:
    """Write to a texture and to the tensor that follows it."""
    case = (shape, dtype)
    device = follower.tensor.device
    for seed in range(1, 4):
        expected = values(shape, dtype, seed)
        texture.write(expected, alignment=1)
        assert np.array_equal(follower.update().cpu().numpy(), expected), (case, seed)
    for seed in range(4, 9):  # more than it has slots
        expected = values(shape, dtype, seed)
        follower.write(torch.from_numpy(expected).to(device))
        assert np.array_equal(content_of(texture, dtype), expected), (case, seed)
    flipped = torch.from_numpy(values(shape, dtype, 9)).to(device).flip(0, 1)
    follower.write(flipped)
    assert torch.equal(follower.update(), flipped)


def test_renderbuffers(ctx: moderngl.Context, sharing_way: str) -> None:
    for components, dtype in ((4, "f1"), (4, "f2"), (4, "f4"), (1, "f4"), (2, "f1")):
        buffer = ctx.renderbuffer((61, 33), components, dtype=dtype)
        framebuffer = ctx.framebuffer([buffer])
        with TextureTensor(buffer, sharing_way) as follower:
            for red in (0.25, 0.75):
                framebuffer.clear(red, 0.5, 0.0, 1.0)
                # OpenGL's row 0 is at the bottom.
                framebuffer.clear(1.0, 1.0, 1.0, 1.0, viewport=(0, 0, 5, 2))
                content = framebuffer.read(
                    components=components, dtype=dtype, alignment=1
                )
                expected = np.frombuffer(content, NUMPY[dtype])
                expected = expected.reshape(33, 61, components)
                pixels = follower.update().cpu().numpy()
                assert np.array_equal(pixels, expected), (components, dtype)
                assert pixels[1, 4, 0] == pixels[0, 0, 0]
                assert pixels[1, 4, 0] != pixels[2, 4, 0]
            white = torch.ones_like(follower.tensor)
            if sharing_way == "register":
                follower.write(white)
                assert (follower.update() == 1).all()
            else:
                message = "a renderbuffer cannot be written"
                with pytest.raises(SharingError, match=message):
                    follower.write(white)
        framebuffer.release()
        buffer.release()


def test_depth(ctx: moderngl.Context) -> None:
    for depth in (ctx.depth_texture((61, 33)), ctx.depth_renderbuffer((61, 33))):
        framebuffer = ctx.framebuffer([], depth)
        with TextureTensor(depth) as follower:
            framebuffer.clear(depth=0.25)
            framebuffer.clear(depth=1.0, viewport=(0, 0, 5, 2))
            expected = torch.full((33, 61, 1), 0.25)
            expected[:2, :5] = 1
            assert follower.way == "host"
            assert abs(follower.update().cpu() - expected).max() < 1e-6
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
        with splatview.gl.texture(tensor, ctx, explicit=explicit) as shared_texture:
            assert shared_texture.texture.size == (shape[1], shape[0])
            if device == "cuda":
                assert shared_texture.way == ("host" if shape[2:] == (3,) else "vulkan")
            for seed in (0, 1, 2):
                tensor.copy_(torch.from_numpy(values(shape, dtype, seed)))
                shared_texture.update()
                with shared_texture.gl() as texture:
                    content = content_of(texture, dtype).reshape(shape)
                assert np.array_equal(content, values(shape, dtype, seed))


def test_the_programs_own_state_stays(ctx: moderngl.Context, sharing_way: str) -> None:
    """A transfer restores what it binds, and a program's state does not harm it."""
    gl = GL.current()
    shape = (33, 61, 4)
    content = values(shape, "f1", 1)
    texture = ctx.texture((61, 33), 4, content.tobytes(), alignment=1)
    own_framebuffer = ctx.simple_framebuffer((8, 8))
    own_texture = ctx.texture((8, 8), 4)
    own_buffer = ctx.buffer(b"12345678")
    follower = TextureTensor(texture, sharing_way)
    own_framebuffer.use()
    gl.glBindFramebuffer(glapi.READ_FRAMEBUFFER, own_framebuffer.glo)
    gl.glActiveTexture(glapi.TEXTURE0 + 3)
    gl.glBindTexture(glapi.TEXTURE_2D, own_texture.glo)
    for target in (glapi.PIXEL_PACK_BUFFER, glapi.PIXEL_UNPACK_BUFFER):
        gl.glBindBuffer(target, own_buffer.glo)
    for name, value in PIXEL_STORE.items():
        gl.glPixelStorei(name, value)
    state_before = {hex(name): gl.integer(name) for name in STATE}
    new_content = values(shape, "f1", 2)
    try:
        pixels = follower.update().cpu().numpy()
        follower.write(torch.from_numpy(new_content).to(follower.tensor.device))
        state_after = {hex(name): gl.integer(name) for name in STATE}
    finally:
        for name in PIXEL_STORE:
            gl.glPixelStorei(name, 4 if name in ALIGNMENTS else 0)
        for target in (glapi.PIXEL_PACK_BUFFER, glapi.PIXEL_UNPACK_BUFFER):
            gl.glBindBuffer(target, 0)
    assert state_after == state_before
    assert np.array_equal(pixels, content)
    assert np.array_equal(content_of(texture, "f1"), new_content)
    assert own_buffer.read() == b"12345678"
    follower.close()
    follower.close()


def test_what_cannot_be_followed(ctx: moderngl.Context) -> None:
    texture = ctx.texture((4, 4), 4)
    errors = (TypeError, ValueError, SharingError)
    for followed, sharing_way, message in (
        (5, None, r"expected a moderngl\.Texture or a"),
        (ctx.texture((4, 4), 1, dtype="u4"), None, "expected f1, f2, f4 or depth"),
        (
            ctx.renderbuffer((4, 4), samples=4),
            None,
            "4 samples per pixel: resolve it first",
        ),
        (texture, "import", "expected register, host"),
        (ctx.texture((4, 4), 3), "register", "textures of 1, 2 and 4 components"),
    ):
        with pytest.raises(errors, match=message):
            TextureTensor(followed, sharing_way)  # type: ignore[arg-type]
    for tensor, message in (
        (torch.zeros(4, 4, dtype=torch.int32), "int32 tensor"),
        (torch.zeros(4, 4, 5), r"\(4, 4, 5\); expected"),
    ):
        with pytest.raises(errors, match=message):
            splatview.gl.texture(tensor, ctx)
    message = r"the texture takes uint8 \(4, 4, 4\)"
    with TextureTensor(texture, "host") as follower:
        for tensor in (torch.zeros(4, 4, 4), torch.zeros(4, 4, 3, dtype=torch.uint8)):
            with pytest.raises(ValueError, match=message):
                follower.write(tensor)
    with pytest.raises(SharingError, match="the TextureTensor is closed"):
        follower.update()


def test_a_thread_without_the_context_is_refused(
    ctx: moderngl.Context, sharing_way: str
) -> None:
    with (
        TextureTensor(ctx.texture((4, 4), 4), sharing_way) as follower,
        ThreadPoolExecutor(1) as pool,
    ):
        message = "the texture's OpenGL context is not current on this thread"
        for call in (
            pool.submit(follower.update),
            pool.submit(follower.write, follower.tensor),
        ):
            with pytest.raises(RuntimeError, match=message):
                call.result()
        follower.update()


def test_the_choice_and_its_reasons(
    ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPLATVIEW_INTEROP", raising=False)
    is_nvidia = "NVIDIA" in ctx.info["GL_VENDOR"]
    texture = ctx.texture((4, 4), 4)
    with TextureTensor(texture) as follower:
        if is_nvidia:
            assert follower.way == "register"
            assert follower.reasons == {}
        else:
            assert follower.way == "host"
            assert set(follower.reasons) == {"register"}
    with TextureTensor(ctx.texture((4, 4), 3)) as follower:
        assert follower.way == "host"
        assert set(follower.reasons) == {"register"}
    monkeypatch.setenv("SPLATVIEW_INTEROP", "host")
    with TextureTensor(texture) as follower:
        assert follower.way == "host"
        assert follower.reasons == {}


def test_importing_it_loads_no_torch(programs: Programs) -> None:
    code = "import sys, splatview.gl; print('torch' in sys.modules)"
    output, _ = programs.python("-c", code).communicate(timeout=PATIENCE_S)
    assert output.strip() == "False"


def on_gpu(shape: tuple[int, ...], dtype: str, seed: int) -> torch.Tensor:
    return torch.from_numpy(values(shape, dtype, seed)).cuda()


def test_where_it_cannot_work_one_error_names_another_way(
    ctx: moderngl.Context,
) -> None:
    if torch.cuda.is_available():
        pytest.skip("needs an OpenGL that is not on an NVIDIA GPU")
    message = r"SharedTexture cannot work here, a TextureTensor .* can: OpenGL "
    with pytest.raises(SharingError, match=message):
        SharedTexture(ctx, (64, 48))


def is_drawn(
    ctx: moderngl.Context, shared: SharedTexture, expected: torch.Tensor
) -> bool:
    """Return whether a shader sees these values, uint8 as v / 255."""
    components = shared.shape[2]
    form = Form(*shared.size, components, shared.dtype, "HWC")
    pixels = read_source(ctx, TextureSource(shared.texture, form)).copy()
    seen_values = torch.from_numpy(pixels)[..., :components]
    expected_values = expected.cpu().float()
    if expected.dtype == torch.uint8:
        expected_values = expected_values / 255
    return torch.allclose(seen_values, expected_values, rtol=0, atol=1e-7)


@pytest.mark.cuda
@pytest.mark.parametrize("explicit", [False, True], ids=["any time", "explicit"])
def test_every_format_exactly(ctx: moderngl.Context, explicit: bool) -> None:
    for (components, dtype), size in itertools.product(COLOURS, ((61, 33), (1, 1))):
        if components == 3:
            continue
        shape = size[1], size[0], components
        with SharedTexture(ctx, size, components, dtype, explicit=explicit) as shared:
            for seed in range(2):
                case = (components, dtype, seed)
                by_cuda = on_gpu(shape, dtype, seed)
                shared.write(by_cuda)
                with shared.gl():
                    assert is_drawn(ctx, shared, by_cuda), ("drawn", case)
                assert torch.equal(shared.read(), by_cuda), ("CUDA's copy", case)
                by_gl = on_gpu(shape, dtype, seed + 10)
                with shared.gl() as texture:
                    texture.write(by_gl.cpu().numpy().tobytes(), alignment=1)
                assert torch.equal(shared.read(), by_gl), ("from OpenGL", case)
            flipped = on_gpu(shape, dtype, 5).flip(0, 1)
            shared.write(flipped)
            assert torch.equal(shared.read(), flipped)


@pytest.mark.cuda
def test_the_order_of_work_is_kept(ctx: moderngl.Context) -> None:
    """A tensor goes to a texture, by a shader into another one, and to a tensor again.

    Many times without a wait of ours, each time another picture.
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
            mismatches = torch.zeros((), dtype=torch.int64, device=pictures[0].device)
            for k in range(200):
                first.write(pictures[k % 8])
                with (
                    first.gl() as texture,
                    second.gl(),
                    ctx.scope(framebuffer, moderngl.NOTHING),
                ):
                    texture.use(0)
                    array.render(moderngl.TRIANGLES, vertices=3)
                mismatches += (second.read() != 255 - pictures[k % 8]).sum()
            assert int(mismatches) == 0
            framebuffer.release()


@pytest.mark.cuda
def test_an_explicit_texture_is_one_sides_at_a_time(ctx: moderngl.Context) -> None:
    """Many writes before OpenGL looks, times without work of CUDA, and refusals."""
    shape = 33, 61, 4
    with SharedTexture(ctx, (61, 33), explicit=True) as shared:
        pictures = [on_gpu(shape, "f1", seed) for seed in range(8)]
        for _ in range(3):
            for picture in pictures:
                shared.write(picture)
            assert torch.equal(shared.read(), pictures[-1])
            for _ in range(3):  # OpenGL gives it back and takes it again
                with shared.gl():
                    assert is_drawn(ctx, shared, pictures[-1])
                    with pytest.raises(SharingError, match="OpenGL has the texture"):
                        shared.write(pictures[0])
                    with pytest.raises(SharingError, match="OpenGL has the texture"):
                        shared.read()
        assert shared.acquire() is shared.acquire() is shared.texture
        shared.release()
        shared.release()
        shared.write(pictures[3])
        assert torch.equal(shared.read(), pictures[3])
    with pytest.raises(SharingError, match="the texture is closed"):
        shared.read()
