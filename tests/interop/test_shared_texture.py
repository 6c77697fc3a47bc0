"""splatview.gl.SharedTexture: an image that OpenGL and CUDA share, every pixel, in the right order."""

from __future__ import annotations

import ctypes
import gc
import os
from typing import TYPE_CHECKING

import moderngl
import numpy as np
import pytest
import torch
from support.gpu_memory import used
from support.repetitions import exhaustive

from splatview.gl import SharedTexture
from splatview.ipc import SharingError
from splatview.ipc.interop import glapi
from splatview.ipc.interop.base import Form
from splatview.ipc.interop.glapi import GL, gl_device_uuid
from splatview.ipc.interop.readback import VERTEX, read_source
from splatview.ipc.interop.sources import TextureSource

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMPY = {"f1": np.uint8, "f2": np.float16, "f4": np.float32}
FORMATS = [(components, dtype) for components in (1, 2, 4) for dtype in NUMPY]
ORDERS = [pytest.param(None, id="best"),
          *(pytest.param(order, marks=pytest.mark.cuda, id=order) for order in ("gpu", "host"))]


def values(shape: tuple[int, ...], dtype: str, seed: int) -> torch.Tensor:
    bits = np.random.default_rng(seed)
    array = bits.integers(0, 256, shape, np.uint8) if dtype == "f1" else bits.normal(size=shape).astype(NUMPY[dtype])
    return torch.from_numpy(array).to("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest, ctx: moderngl.Context,
          monkeypatch: pytest.MonkeyPatch) -> Iterator[str | None]:
    monkeypatch.delenv("SPLATVIEW_INTEROP", raising=False)
    yield request.param
    assert ctx.error == "GL_NO_ERROR"


@pytest.mark.cuda
def test_the_image_is_shared_on_a_gpu(ctx: moderngl.Context) -> None:
    with SharedTexture(ctx, (64, 48)) as shared:
        assert (shared.way, shared.reason) == ("vulkan", "")


def test_without_it_an_ordinary_texture_does_it(ctx: moderngl.Context) -> None:
    with SharedTexture(ctx, (64, 48)) as shared:
        if "NVIDIA" not in ctx.info["GL_VENDOR"]:
            assert shared.way == "host"
            assert "not on an NVIDIA GPU" in shared.reason
            with pytest.raises(SharingError, match=r"GL_EXT_semaphore_fd|NVIDIA"):
                SharedTexture(ctx, (64, 48), order="gpu")


def drawn(ctx: moderngl.Context, shared: SharedTexture) -> torch.Tensor:
    """What a shader sees of it, bit for bit: (H, W, C) float32, uint8 as v / 255."""
    form = Form(*shared.size, shared.shape[2], shared.dtype, "HWC")
    return torch.from_numpy(read_source(ctx, TextureSource(shared.texture, form)).copy())[..., : shared.shape[2]]


def as_drawn(values: torch.Tensor) -> torch.Tensor:
    return values.cpu().float() / 255 if values.dtype == torch.uint8 else values.cpu().float()


def attached(ctx: moderngl.Context, shared: SharedTexture, components: int, dtype: str) -> np.ndarray:
    """Its pixels, read through a framebuffer."""
    framebuffer = ctx.framebuffer([shared.texture])
    pixels = framebuffer.read(components=components, dtype=dtype, alignment=1)
    framebuffer.release()
    return np.frombuffer(pixels, NUMPY[dtype]).reshape(shared.shape)


@pytest.mark.parametrize("explicit", [False, True], ids=["any time", "explicit"])
@pytest.mark.parametrize("size", [(61, 33), (1, 1), (256, 128), exhaustive((1000, 701))])
def test_every_format_exactly(ctx: moderngl.Context, order: str | None, size: tuple[int, int], explicit: bool) -> None:
    for components, dtype in FORMATS:
        shape = size[1], size[0], components
        with SharedTexture(ctx, size, components, dtype, order=order, explicit=explicit) as shared:
            for seed in range(2 if size[0] > 500 else 4):
                sent = values(shape, dtype, seed)
                shared.write(sent)
                with shared.gl():
                    assert torch.allclose(drawn(ctx, shared), as_drawn(sent), rtol=0, atol=1e-7), (
                        "drawn", components, dtype, seed)
                    assert np.array_equal(attached(ctx, shared, components, dtype), sent.cpu().numpy()), (
                        "in a framebuffer", components, dtype, seed)
                assert torch.equal(shared.read(), sent), ("from CUDA's copy", components, dtype, seed)
                back = values(shape, dtype, seed + 10)
                with shared.gl() as texture:
                    texture.write(back.cpu().numpy().tobytes(), alignment=1)
                assert torch.equal(shared.read(), back), ("from OpenGL", components, dtype, seed)
            turned = values(shape, dtype, 5).flip(0, 1)
            shared.write(turned)
            assert torch.equal(shared.read(), turned)


def test_what_is_written_can_be_read_as_a_texture(ctx: moderngl.Context, order: str | None) -> None:
    """With OpenGL's own reading."""
    for components, dtype in FORMATS:
        shape = 33, 61, components
        with SharedTexture(ctx, (61, 33), components, dtype, order=order) as shared:
            for seed in range(4):
                sent = values(shape, dtype, seed)
                shared.write(sent)
                got = np.frombuffer(shared.texture.read(alignment=1), NUMPY[dtype]).reshape(shape)
                assert np.array_equal(got, sent.cpu().numpy()), (components, dtype, seed)


@pytest.mark.parametrize("explicit", [False, True], ids=["any time", "explicit"])
def test_the_order_of_work_is_kept(ctx: moderngl.Context, order: str | None, explicit: bool) -> None:
    """Tensor to texture, drawn by a shader into another one, to a tensor again: two hundred times without a wait of
    ours, each time another picture."""
    size, shape = (512, 256), (256, 512, 4)
    program = ctx.program(vertex_shader=VERTEX, fragment_shader=(
        "#version 330\nuniform sampler2D t; out vec4 c;\n"
        "void main() { c = 1.0 - texelFetch(t, ivec2(gl_FragCoord.xy), 0); }"))
    array = ctx.vertex_array(program, [])
    with (SharedTexture(ctx, size, order=order, explicit=explicit) as first,
          SharedTexture(ctx, size, order=order, explicit=explicit) as second):
        framebuffer = ctx.framebuffer([second.texture])
        pictures = [values(shape, "f1", seed) for seed in range(8)]
        wrong = torch.zeros((), dtype=torch.int64, device=pictures[0].device)
        count = 200 if first.way == "vulkan" else 20
        for k in range(count):
            first.write(pictures[k % 8])
            with first.gl() as texture, second.gl(), ctx.scope(framebuffer, moderngl.NOTHING):
                texture.use(0)
                array.render(moderngl.TRIANGLES, vertices=3)
            wrong += (second.read() != 255 - pictures[k % 8]).sum()
        assert int(wrong) == 0
        framebuffer.release()


def test_an_explicit_texture_is_one_sides_at_a_time(ctx: moderngl.Context, order: str | None) -> None:
    """Many writes before OpenGL looks, turns in which CUDA does nothing, and what is refused."""
    shape = 33, 61, 4
    with SharedTexture(ctx, (61, 33), order=order, explicit=True) as shared:
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


@pytest.mark.cuda
def test_writing_an_explicit_texture_calls_no_opengl(ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    with SharedTexture(ctx, (64, 64), explicit=True) as shared:
        sent = values((64, 64, 4), "f1", 1)
        shared.write(sent)
        with shared.gl():
            pass
        shared.write(sent)  # this one hands it over
        with monkeypatch.context() as patch:
            patch.setattr(GL, "current", lambda: pytest.fail("OpenGL was called"))
            for picture in (sent.flip(0).contiguous(), sent):
                shared.write(picture)
                assert torch.equal(shared.read(), picture)


@pytest.mark.cuda
def test_streams_one_after_the_other(ctx: moderngl.Context, order: str | None) -> None:
    """Written on one stream behind long work, read on another: in this order, and OpenGL after both."""
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    sent = [torch.full((256, 256, 1), float(k), device="cuda") for k in range(1, 6)]
    torch.cuda.synchronize()
    with SharedTexture(ctx, (256, 256), 1, "f4", order=order, explicit=True) as shared:
        for k, picture in enumerate(sent, 1):
            with torch.cuda.stream(one):
                torch.cuda._sleep(20_000_000)
                shared.write(picture)
            with torch.cuda.stream(two):
                got = shared.read()
                assert (got == k).all(), k
            with torch.cuda.stream(one):
                torch.cuda._sleep(20_000_000)
                shared.write(picture + 0.5)
            with torch.cuda.stream(two), shared.gl():
                assert (drawn(ctx, shared) == k + 0.5).all(), k


@pytest.mark.cuda
def test_other_streams_and_long_work(ctx: moderngl.Context, order: str | None) -> None:
    """A kernel that takes long before the write, on a stream of its own: OpenGL still draws what it made."""
    with SharedTexture(ctx, (256, 256), 1, "f4", order=order) as shared, torch.cuda.stream(torch.cuda.Stream()):
        for k in range(1, 6):
            torch.cuda._sleep(20_000_000)
            shared.write(torch.full((256, 256, 1), float(k), device="cuda"))
            assert (drawn(ctx, shared) == k).all(), k


@pytest.mark.usefixtures("few_objects")
def test_nothing_piles_up(ctx: moderngl.Context, order: str | None) -> None:
    size = (512, 512) if torch.cuda.is_available() else (64, 64)  # a leak of memory is looked for on a GPU alone

    def turn() -> tuple[int, int]:
        for _ in range(10):
            with SharedTexture(ctx, size, order=order) as shared:
                for _ in range(10):
                    shared.write(shared.read())
        ctx.finish()
        gc.collect()
        return len(os.listdir("/proc/self/fd")), used() if torch.cuda.is_available() else 0

    turn()
    descriptors, memory = turn()
    later = [turn() for _ in range(3)][-1]
    assert later[0] <= descriptors
    assert later[1] <= memory + (8 << 20)


def test_what_is_refused(ctx: moderngl.Context) -> None:
    for size, components, dtype in (((4, 4), 3, "f1"), ((4, 4), 4, "u4"), ((0, 4), 4, "f1")):
        with pytest.raises(ValueError, match="legal are 1, 2 or 4 of f1, f2, f4"):
            SharedTexture(ctx, size, components, dtype)
    with pytest.raises(ValueError, match="'cpu' is not gpu or host"):
        SharedTexture(ctx, (4, 4), order="cpu")
    with SharedTexture(ctx, (4, 4)) as shared:
        for wrong in (torch.zeros(4, 4, 4), torch.zeros(4, 4, 3, dtype=torch.uint8)):
            with pytest.raises(ValueError, match=r"the texture takes uint8 \(4, 4, 4\)"):
                shared.write(wrong)
    shared.close()


def test_vulkans_images_in_opengl(ctx: moderngl.Context) -> None:
    """Vulkan's memory as OpenGL's texture, on whatever both run on: the half that needs no GPU."""
    from splatview.ipc.interop.vulkan import VulkanDevice, give_fd

    try:
        ctypes.CDLL("libvulkan.so.1")
    except OSError:
        pytest.skip("no Vulkan here: apt-get install libvulkan1 mesa-vulkan-drivers")
    uuid = gl_device_uuid(ctx)
    if uuid is None:
        pytest.skip("this OpenGL cannot import memory")
    with pytest.raises(SharingError, match="Vulkan does not see GPU 00000000000000000000000000000000"):
        VulkanDevice("0" * 32)
    device = VulkanDevice.on(uuid)
    assert VulkanDevice.on(uuid) is device
    gl, one = GL.current(), ctypes.c_int(1)
    gl.clear_errors()
    formats = (37, 0x8058, 4, "f1"), (97, 0x881A, 4, "f2"), (100, 0x822E, 1, "f4")
    for vk_format, gl_format, components, dtype in formats:
        image = device.image(61, 33, vk_format)
        memory = gl.generate("glCreateMemoryObjectsEXT")
        gl.glMemoryObjectParameterivEXT(memory, glapi.DEDICATED_MEMORY_OBJECT, ctypes.byref(one))
        size = image.size
        give_fd(image.fd(), lambda fd, m=memory, s=size: gl.glImportMemoryFdEXT(m, s, glapi.HANDLE_TYPE_OPAQUE_FD, fd))
        name = gl.generate("glGenTextures")
        gl.glBindTexture(glapi.TEXTURE_2D, name)
        gl.glTexStorageMem2DEXT(glapi.TEXTURE_2D, 1, gl_format, 61, 33, memory, 0)
        gl.check("glTexStorageMem2DEXT")
        image.release()
        image.release()
        texture = ctx.external_texture(name, (61, 33), components, 0, dtype)
        sent = values((33, 61, components), dtype, 3).cpu().numpy()
        texture.write(sent.tobytes(), alignment=1)
        assert np.array_equal(np.frombuffer(texture.read(alignment=1), NUMPY[dtype]).reshape(sent.shape), sent)
        gl.delete("glDeleteTextures", [name])
        gl.delete("glDeleteMemoryObjectsEXT", [memory])
    assert ctx.error == "GL_NO_ERROR"
