"""Textures registered with CUDA: mapped, written and unmapped for every picture. Works where nothing can be imported.

A map and an unmap cost a third of a millisecond whatever the size. OpenGL context, registration, map and drawing stay
on one thread.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda import driver
from splatview_ipc.gl.base import Form
from splatview_ipc.gl.direct import require_import
from splatview_ipc.gl.glapi import TEXTURE_2D, gl_device_uuid
from splatview_ipc.gl.readback import round_trip
from splatview_ipc.gl.sources import TextureSource, picture_texture
from splatview_ipc.gl.tensors import cuda_tensor, dtype_name, height_width_channels

if TYPE_CHECKING:
    from collections.abc import Iterator

    import moderngl
    import torch

    from splatview_ipc.gl.base import Pixels


class RegisteredTexture:
    """An OpenGL texture or renderbuffer that CUDA can copy to and from."""

    def __init__(self, name: int, target: int, device: int) -> None:
        """Raises SharingError when CUDA cannot take it (it takes 1, 2 or 4 components of 8, 16 or 32 bits)."""
        self._device = device
        self._resource: Any = None
        with driver.context(device):
            self._resource = driver.handle("cuGraphicsGLRegisterImage", name, target, 0)

    @contextmanager
    def _mapped(self, stream: int) -> Iterator[Any]:
        """The CUDA array behind it. OpenGL must not use it inside."""
        queue = driver.stream_object(stream)
        with driver.context(self._device):
            driver.call("cuGraphicsMapResources", 1, self._resource, queue)
            try:
                yield driver.call("cuGraphicsSubResourceGetMappedArray", self._resource, 0, 0)
            finally:
                driver.call("cuGraphicsUnmapResources", 1, self._resource, queue)

    def write(self, tensor: torch.Tensor) -> None:
        """From a contiguous CUDA tensor (H, W, ...) of the texture's size and format, on the current stream."""
        stream = _stream(tensor)
        with self._mapped(stream) as array:
            copy_2d(tensor, array, stream, to_array=True)

    def read(self, tensor: torch.Tensor) -> None:
        """Into a contiguous CUDA tensor, on the current stream."""
        stream = _stream(tensor)
        with self._mapped(stream) as array:
            copy_2d(tensor, array, stream, to_array=False)

    def release(self) -> None:
        """Idempotent. Before the texture is deleted."""
        resource, self._resource = self._resource, None
        if resource is not None:
            with driver.context(self._device):
                driver.release("cuGraphicsUnregisterResource", resource)


def _stream(tensor: torch.Tensor) -> int:
    import torch

    return torch.cuda.current_stream(tensor.device).cuda_stream


def copy_2d(tensor: torch.Tensor, array: Any, stream: int, *, to_array: bool) -> None:
    """Copy between a contiguous CUDA tensor (H, W, ...) and a CUDA array of H rows, on a stream."""
    cu = driver.bindings()
    assert tensor.is_contiguous()
    height = tensor.shape[0]
    row = tensor.numel() // height * tensor.element_size()
    copy = cu.CUDA_MEMCPY2D()
    linear, opaque = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE, cu.CUmemorytype.CU_MEMORYTYPE_ARRAY
    if to_array:
        copy.srcMemoryType, copy.srcDevice, copy.srcPitch = linear, tensor.data_ptr(), row
        copy.dstMemoryType, copy.dstArray = opaque, array
    else:
        copy.srcMemoryType, copy.srcArray = opaque, array
        copy.dstMemoryType, copy.dstDevice, copy.dstPitch = linear, tensor.data_ptr(), row
    copy.WidthInBytes, copy.Height = row, height
    driver.call("cuMemcpy2DAsync", copy, driver.stream_object(stream))


class _Picture:
    """A texture of one form, registered."""

    def __init__(self, ctx: moderngl.Context, form: Form, device: int) -> None:
        self.form = form
        self.texture = picture_texture(ctx, form, planar=False)
        try:
            self.registered = RegisteredTexture(self.texture.glo, TEXTURE_2D, device)
        except BaseException:
            self.texture.release()
            raise

    def release(self) -> None:
        self.registered.release()
        self.texture.release()


class RegisteredCanvas:
    """A canvas (see `canvas.Canvas`) whose pictures are copied into registered textures, which take turns."""

    name: ClassVar[str] = "register"

    def __init__(self, ctx: moderngl.Context, gpu_uuid: str | None = None) -> None:
        """`gpu_uuid`: where CUDA will draw. Raises SharingError when that is not where OpenGL draws."""
        uuid = require_import(ctx) if gl_device_uuid(ctx) is None else gl_device_uuid(ctx)
        if uuid is None or not ctx.info["GL_VENDOR"].startswith("NVIDIA"):
            raise SharingError(f"OpenGL runs on {ctx.info['GL_RENDERER']}, not on an NVIDIA GPU")
        if gpu_uuid not in (None, uuid):
            raise SharingError(f"CUDA would draw on GPU {gpu_uuid}, OpenGL draws on {uuid}")
        self.device = driver.here(uuid)
        self.timings: dict[str, float] = {}
        self._ctx = ctx
        self._limit = int(ctx.info["GL_MAX_TEXTURE_SIZE"])
        self._front: _Picture | None = None
        self._back: _Picture | None = None
        self._drawn: torch.Tensor | None = None
        self._form: Form | None = None

    def begin(self, height: int, width: int, channels: int = 4, dtype: str = "float16") -> torch.Tensor:
        import torch

        form = Form.of((height, width, channels), dtype, "HWC")
        if max(height, width) > self._limit:
            raise SharingError(f"a picture of {width} x {height}; this OpenGL's textures have at most {self._limit}")
        shape = height, width, 4 if channels == 3 else channels
        if self._drawn is None or self._drawn.shape != shape or dtype_name(self._drawn) != dtype:
            self._drawn = torch.empty(shape, dtype=getattr(torch, dtype), device=torch.device("cuda", self.device))
        self._form = form
        return self._drawn[..., :channels]

    def show(self, layout: str = "HWC", *, finished: bool = False) -> TextureSource:
        if self._drawn is None or self._form is None:
            raise SharingError("show() without begin()")
        form, self._form = self._form, None
        return self.write(self._drawn, form.channels, layout)

    def write(self, tensor: torch.Tensor, channels: int, layout: str = "HWC") -> TextureSource:
        """Show a contiguous tensor (H, W, 1 | 2 | 4), of which the first `channels` count."""
        height, width, values = tensor.shape
        form = Form(width, height, values, dtype_name(tensor), "HWC")
        if self._back is None or self._back.form != form:
            if self._back is not None:
                self._back.release()
                self._back = None
            self._back = _Picture(self._ctx, form, self.device)
        self._back.registered.write(tensor)
        self._front, self._back = self._back, self._front
        return TextureSource(self._front.texture, Form(width, height, channels, form.dtype, layout))

    def undo(self) -> None:
        """As `Bridge.undo`."""
        self._front, self._back = self._back, self._front

    def close(self) -> None:
        for picture in (self._front, self._back):
            if picture is not None:
                picture.release()
        self._front = self._back = self._drawn = None


class RegisterBridge:
    """One copy on the GPU (two for pictures that do not lie row by row), into a registered texture."""

    name: ClassVar[str] = "register"

    def __init__(self, ctx: moderngl.Context) -> None:
        """Raises SharingError when OpenGL and CUDA are not on one GPU that this process sees."""
        self._canvas = RegisteredCanvas(ctx)

    @staticmethod
    def trial(ctx: moderngl.Context) -> None:
        """A picture goes to OpenGL and back. Raises SharingError when it cannot, or comes back different."""
        round_trip(ctx, RegisterBridge)

    def put(self, tensor: Pixels, layout: str) -> TextureSource:
        import torch

        values = cuda_tensor(tensor, self._canvas.device)
        form = Form.of(tuple(values.shape), dtype_name(values), layout)
        pixels = height_width_channels(values, layout)
        with torch.cuda.device(self._canvas.device), torch.no_grad():
            if form.channels != 3 and pixels.is_contiguous():
                return self._canvas.write(pixels, form.channels, layout)
            target = self._canvas.begin(form.height, form.width, form.channels, form.dtype)
            target.copy_(pixels)
            return self._canvas.show(layout)

    def undo(self) -> None:
        self._canvas.undo()

    def close(self) -> None:
        self._canvas.close()

