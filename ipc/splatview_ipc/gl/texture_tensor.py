"""Tensors over OpenGL textures of any program.

The state of OpenGL that a transfer touches is put back.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import moderngl

from splatview_ipc.control.dtypes import dtype_name
from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda import driver
from splatview_ipc.gl import glapi
from splatview_ipc.gl.direct import require_import
from splatview_ipc.gl.glapi import GL
from splatview_ipc.gl.probe import forced_bridge

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import torch

WAYS = ("register", "host")
DTYPES = {"f1": "uint8", "f2": "float16", "f4": "float32"}
"""Dtypes by moderngl's names."""

_PIXEL_STORE = {
    # Unpacked: swapped bytes, row length, skipped rows, skipped pixels, alignment.
    0x0CF0: 0,
    0x0CF2: 0,
    0x0CF3: 0,
    0x0CF4: 0,
    0x0CF5: 1,
    # Packed: the same.
    0x0D00: 0,
    0x0D02: 0,
    0x0D03: 0,
    0x0D04: 0,
    0x0D05: 1,
}
"""The state of pixel transfers for tight rows."""
_BUFFER_BINDINGS = {
    glapi.PIXEL_PACK_BUFFER_BINDING: glapi.PIXEL_PACK_BUFFER,
    glapi.PIXEL_UNPACK_BUFFER_BINDING: glapi.PIXEL_UNPACK_BUFFER,
}
_FRAMEBUFFER_BINDINGS = {
    glapi.READ_FRAMEBUFFER_BINDING: glapi.READ_FRAMEBUFFER,
    glapi.DRAW_FRAMEBUFFER_BINDING: glapi.DRAW_FRAMEBUFFER,
}


class TextureTensor(AbstractContextManager["TextureTensor"]):
    """A CUDA tensor that follows a texture, or is written into it.

        # A moderngl texture or renderbuffer of your program.
        frame = TextureTensor(texture)
        while drawing:
            ...
            # frame.tensor, (H, W, C) on the GPU, gets what was drawn.
            frame.update()

    Row 0 of a tensor is OpenGL's row 0, the bottom one of what was drawn the usual way
    up: `tensor.flip(0)` turns it over. Every call needs the OpenGL context to be
    current on its thread. CUDA copies from and to the texture (way "register", a third
    of a millisecond); without a GPU, and for textures that CUDA does not take (three
    components, depth), pixels go through host memory (way "host").
    """

    def __init__(
        self, texture: moderngl.Texture | moderngl.Renderbuffer, way: str | None = None
    ) -> None:
        """Make a tensor for a texture.

        Args:
            texture: 1 to 4 components of dtype f1, f2 or f4, or depth; not
                multisampled.
            way: "register" or "host"; by default register if it works, unless
                SPLATVIEW_INTEROP=host.

        Raises:
            TypeError: the texture is none of moderngl's.
            ValueError: another texture or way.
            SharingError: register is asked for and does not work.
        """
        _check_texture(texture)
        if way not in (None, *WAYS):
            raise ValueError(f"way {way!r}: expected {', '.join(WAYS)}")
        self._context = GL.current().context()
        if not self._context:
            raise RuntimeError(
                "TextureTensor: no OpenGL context is current on this thread"
            )
        import torch

        self.texture = texture
        self.size: tuple[int, int] = texture.width, texture.height
        self.components = 1 if texture.depth else texture.components
        self.shape = texture.height, texture.width, self.components
        """(H, W, C)."""
        self.dtype = "float32" if texture.depth else DTYPES[texture.dtype]
        self.way = way or WAYS[0]
        """register or host."""
        if way is None and forced_bridge() == "host":
            self.way = "host"
        self.reasons: dict[str, str] = {}
        """Why better ways than the one in use were not taken, by name."""
        self._device = -1
        self._resource: Any = None
        if self.way == "register":
            try:
                self._register()
            except SharingError as error:
                if way is not None:
                    raise
                self.way = "host"
                self.reasons["register"] = str(error)
        device: int | str = "cpu"
        if self.way == "register":
            device = self._device
        elif torch.cuda.is_available():
            device = "cuda"
        self.tensor: torch.Tensor = torch.zeros(
            self.shape, dtype=getattr(torch, self.dtype), device=device
        )
        """The content of the last `update`, (H, W, C) uint8, float16 or float32.

        It is on the CPU where there is no GPU.
        """
        self._host_pixels: torch.Tensor | None = None
        """The pixels in host memory, where they go through there.

        `tensor` itself if that is on the CPU.
        """
        if self.way == "host":
            self._host_pixels = self.tensor.cpu()

    def _register(self) -> None:
        """Register the texture. Raises SharingError when CUDA cannot take it."""
        texture = self.texture
        if texture.depth or texture.components == 3:
            raise SharingError(
                "CUDA takes textures of 1, 2 and 4 components, and no depth"
            )
        self._device = driver.require_device(require_import(texture.ctx))
        target = glapi.TEXTURE_2D
        if isinstance(texture, moderngl.Renderbuffer):
            target = glapi.RENDERBUFFER
        with driver.context(self._device):
            self._resource = driver.call_for_handle(
                "cuGraphicsGLRegisterImage", texture.glo, target, 0
            )

    def update(self) -> torch.Tensor:
        """Bring the texture's present content into `tensor`, and return that.

        It is there for what the current CUDA stream does next: after what was drawn,
        and after what that stream still does with the tensor.

        Raises:
            RuntimeError: the texture's OpenGL context is not current on this thread.
        """
        self._require_usable("update")
        if self._resource is not None:
            self._copy(self.tensor, to_texture=False)
            return self.tensor
        assert self._host_pixels is not None
        with _restored_state("reading a texture"):
            self._read_into(self._host_pixels.numpy())
        if self.tensor is not self._host_pixels:
            self.tensor.copy_(self._host_pixels)
        return self.tensor

    def _read_into(self, pixels: np.ndarray) -> None:
        """Read the texture's pixels into an array."""
        texture = self.texture
        if isinstance(texture, moderngl.Texture):
            texture.read_into(pixels, alignment=1)
            return
        is_depth = bool(texture.depth)
        if is_depth:
            framebuffer = texture.ctx.framebuffer([], texture)
        else:
            framebuffer = texture.ctx.framebuffer([texture])
        framebuffer.read_into(
            pixels,
            components=self.components,
            attachment=-1 if is_depth else 0,
            dtype="f4" if is_depth else texture.dtype,
            alignment=1,
        )
        framebuffer.release()

    def write(self, tensor: torch.Tensor) -> None:
        """Put a tensor of this shape and dtype into the texture.

        In the order of the current CUDA stream; OpenGL draws with it from now on.

        Raises:
            ValueError: another shape or dtype.
            SharingError: a renderbuffer that CUDA does not take.
            RuntimeError: as `update`.
        """
        check_same_form(tensor, self.shape, self.dtype)
        self._require_usable("write")
        tensor = tensor.detach()
        if self._resource is not None:
            self._copy(tensor.to(self.tensor.device).contiguous(), to_texture=True)
            return
        if not isinstance(self.texture, moderngl.Texture):
            raise SharingError(
                "a renderbuffer cannot be written from host memory: use a texture"
            )
        with _restored_state("writing a texture"):
            self.texture.write(tensor.cpu().contiguous().numpy(), alignment=1)

    def _require_usable(self, method: str) -> None:
        """Raise an error where a method cannot be called."""
        if GL.current().context() != self._context:
            raise RuntimeError(
                f"TextureTensor.{method}: the texture's OpenGL context is not current "
                f"on this thread; call {method} where you draw"
            )
        if self._resource is None and self._host_pixels is None:
            raise SharingError("the TextureTensor is closed")

    def _copy(self, tensor: torch.Tensor, *, to_texture: bool) -> None:
        """Copy between a contiguous CUDA tensor and the texture, in stream order."""
        queue = driver.stream_object(driver.current_stream(self._device))
        with driver.context(self._device):
            driver.call("cuGraphicsMapResources", 1, self._resource, queue)
            try:
                array = driver.call(
                    "cuGraphicsSubResourceGetMappedArray", self._resource, 0, 0
                )
                row_bytes = self.size[0] * self.components * tensor.element_size()
                copy = array_copy(
                    array=array,
                    address=tensor.data_ptr(),
                    row_bytes=row_bytes,
                    height=self.size[1],
                    to_array=to_texture,
                )
                driver.call("cuMemcpy2DAsync", copy, queue)
            finally:
                driver.call("cuGraphicsUnmapResources", 1, self._resource, queue)

    def close(self) -> None:
        """Release everything but the texture. Idempotent.

        The tensor must not be used any more.
        """
        resource = self._resource
        self._resource = None
        self._host_pixels = None
        if resource is not None:
            with driver.context(self._device):
                driver.call_quietly("cuGraphicsUnregisterResource", resource)

    def __exit__(self, *exc: object) -> None:
        self.close()


def _check_texture(texture: Any) -> None:
    """Raise TypeError or ValueError for what no TextureTensor can follow."""
    if not isinstance(texture, (moderngl.Texture, moderngl.Renderbuffer)):
        raise TypeError(
            f"TextureTensor({texture!r}): expected a moderngl.Texture or a "
            "moderngl.Renderbuffer"
        )
    if texture.samples:
        raise ValueError(
            f"a texture with {texture.samples} samples per pixel: resolve it first "
            "(ctx.copy_framebuffer into one without)"
        )
    if not texture.depth and texture.dtype not in DTYPES:
        raise ValueError(
            f"a texture of dtype {texture.dtype!r}; expected {', '.join(DTYPES)} or "
            "depth"
        )


def check_same_form(
    tensor: torch.Tensor, shape: tuple[int, int, int], dtype: str
) -> None:
    """Raise ValueError unless a tensor has the shape and dtype of a texture."""
    if tuple(tensor.shape) != shape or dtype_name(tensor) != dtype:
        raise ValueError(
            f"a {dtype_name(tensor)} tensor {tuple(tensor.shape)}; the texture takes "
            f"{dtype} {shape}"
        )


def array_copy(
    array: Any, address: int, row_bytes: int, height: int, *, to_array: bool
) -> Any:
    """Return the driver's description of a copy between an array and device memory.

    Args:
        array: the driver's array.
        address: the first of `height` rows of `row_bytes` bytes on the device.
        row_bytes: bytes of a row.
        height: number of rows.
        to_array: True to copy into the array.
    """
    cu = driver.bindings()
    linear = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    opaque = cu.CUmemorytype.CU_MEMORYTYPE_ARRAY
    copy = cu.CUDA_MEMCPY2D()
    copy.WidthInBytes = row_bytes
    copy.Height = height
    copy.srcPitch = row_bytes
    copy.dstPitch = row_bytes
    if to_array:
        copy.srcMemoryType = linear
        copy.srcDevice = address
        copy.dstMemoryType = opaque
        copy.dstArray = array
    else:
        copy.srcMemoryType = opaque
        copy.srcArray = array
        copy.dstMemoryType = linear
        copy.dstDevice = address
    return copy


@contextmanager
def _restored_state(action: str) -> Iterator[None]:
    """Let moderngl transfer pixels in the block, and restore what it binds and sets.

    Args:
        action: what the block does, for messages.

    Raises:
        SharingError: the transfer failed.
    """
    gl = GL.current()
    names = (
        *_PIXEL_STORE,
        *_BUFFER_BINDINGS,
        *_FRAMEBUFFER_BINDINGS,
        glapi.ACTIVE_TEXTURE,
    )
    saved = {name: gl.integer(name) for name in names}
    for name, value in _PIXEL_STORE.items():
        gl.glPixelStorei(name, value)
    for target in _BUFFER_BINDINGS.values():
        gl.glBindBuffer(target, 0)
    gl.clear_errors()
    try:
        yield
        gl.check(action)
    finally:
        for name in _PIXEL_STORE:
            gl.glPixelStorei(name, saved[name])
        for name, target in _BUFFER_BINDINGS.items():
            gl.glBindBuffer(target, saved[name])
        for name, target in _FRAMEBUFFER_BINDINGS.items():
            gl.glBindFramebuffer(target, saved[name])
        gl.glActiveTexture(saved[glapi.ACTIVE_TEXTURE])
