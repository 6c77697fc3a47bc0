"""Copies between CUDA tensors and the OpenGL textures of any program.

Every transfer restores the OpenGL state that it changes.
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
"""Ways of a transfer: by CUDA, or through host memory. The better one comes first."""
DTYPES = {"f1": "uint8", "f2": "float16", "f4": "float32"}
"""Names of dtypes by moderngl's names for them."""

_TIGHT_ROWS = {
    0x0CF0: 0,  # GL_UNPACK_SWAP_BYTES
    0x0CF2: 0,  # GL_UNPACK_ROW_LENGTH
    0x0CF3: 0,  # GL_UNPACK_SKIP_ROWS
    0x0CF4: 0,  # GL_UNPACK_SKIP_PIXELS
    0x0CF5: 1,  # GL_UNPACK_ALIGNMENT
    0x0D00: 0,  # GL_PACK_SWAP_BYTES
    0x0D02: 0,  # GL_PACK_ROW_LENGTH
    0x0D03: 0,  # GL_PACK_SKIP_ROWS
    0x0D04: 0,  # GL_PACK_SKIP_PIXELS
    0x0D05: 1,  # GL_PACK_ALIGNMENT
}
"""Parameters of glPixelStore for rows without gaps, and their values."""
_BUFFER_TARGETS = {
    glapi.PIXEL_PACK_BUFFER_BINDING: glapi.PIXEL_PACK_BUFFER,
    glapi.PIXEL_UNPACK_BUFFER_BINDING: glapi.PIXEL_UNPACK_BUFFER,
}
"""Binding points of buffers by the names under which OpenGL reports the binding."""
_FRAMEBUFFER_TARGETS = {
    glapi.READ_FRAMEBUFFER_BINDING: glapi.READ_FRAMEBUFFER,
    glapi.DRAW_FRAMEBUFFER_BINDING: glapi.DRAW_FRAMEBUFFER,
}
"""The same for framebuffers."""


class TextureTensor(AbstractContextManager["TextureTensor"]):
    """A CUDA tensor that is read from a texture, or is written into it.

    For example::

        # A moderngl texture or renderbuffer of your program.
        frame = TextureTensor(texture)
        while drawing:
            ...
            # frame.tensor, (H, W, C) on the GPU, gets what was drawn.
            frame.update()

    Row 0 of a tensor is OpenGL's row 0, the bottom one of an upright picture:
    `tensor.flip(0)` turns it over. Every call needs the OpenGL context to be current on
    its thread.

    CUDA copies from and to the texture (way "register", a third of a millisecond).
    Without a GPU, and for textures that CUDA does not take (three components, depth),
    pixels go through host memory (way "host").
    """

    def __init__(
        self, texture: moderngl.Texture | moderngl.Renderbuffer, way: str | None = None
    ) -> None:
        """Choose the way of transfer, and allocate a tensor for a texture.

        Args:
            texture: 1 to 4 components of dtype f1, f2 or f4, or depth; not
                multisampled.
            way: "register" or "host"; by default register if it works, unless
                SPLATVIEW_INTEROP=host.

        Raises:
            TypeError: the texture is not one of moderngl's.
            ValueError: the texture is of another form, or `way` is another text.
            SharingError: "register" is asked for and does not work.
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
        self.reasons: dict[str, str] = {}
        """The reasons why better ways were not taken, by the name of the way."""
        self._device = -1
        """Ordinal of the GPU on which the texture is registered."""
        self._resource: Any = None
        """The texture's registration with CUDA; None for the way "host"."""
        self.way = self._choose_way(way)
        """The way of transfer: "register" or "host"."""
        device: int | str = "cpu"
        if self.way == "register":
            device = self._device
        elif torch.cuda.is_available():
            device = "cuda"
        self.tensor: torch.Tensor = torch.zeros(
            self.shape, dtype=getattr(torch, self.dtype), device=device
        )
        """The content of the last `update`, (H, W, C) uint8, float16 or float32.

        It is on the CPU if there is no GPU.
        """
        self._host_pixels: torch.Tensor | None = None
        """The pixels in host memory, for the way "host"; None for "register".

        It is `tensor` itself if that is on the CPU.
        """
        if self.way == "host":
            self._host_pixels = self.tensor.cpu()

    def _choose_way(self, way: str | None) -> str:
        """Return the way of transfer; for "register" the texture is registered."""
        if way == "host" or (way is None and forced_bridge() == "host"):
            return "host"
        try:
            self._register()
        except SharingError as error:
            if way is not None:
                raise
            self.reasons["register"] = str(error)
            return "host"
        return "register"

    def _register(self) -> None:
        """Register the texture with CUDA. Raises SharingError if CUDA does not take it."""
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
        """Copy the texture's content into `tensor`, and return `tensor`.

        The copy is queued in the current CUDA stream: it waits for what OpenGL has drawn
        and for earlier work of the stream, and later work of the stream sees its result.

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
        """Copy a tensor of the same shape and dtype into the texture.

        The copy is queued in the current CUDA stream. OpenGL commands that follow this
        call see its result.

        Raises:
            ValueError: the tensor has another shape or dtype.
            SharingError: the texture is a renderbuffer that CUDA does not take.
            RuntimeError: the texture's OpenGL context is not current on this thread.
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
        """Raise if the context is not current or the tensor is closed.

        Args:
            method: name of the caller, for the message.
        """
        if GL.current().context() != self._context:
            raise RuntimeError(
                f"TextureTensor.{method}: the texture's OpenGL context is not current "
                f"on this thread; call {method} where you draw"
            )
        if self._resource is None and self._host_pixels is None:
            raise SharingError("the TextureTensor is closed")

    def _copy(self, tensor: torch.Tensor, *, to_texture: bool) -> None:
        """Copy between a contiguous CUDA tensor and the texture, in stream order."""
        stream = driver.stream_object(driver.current_stream(self._device))
        with driver.context(self._device):
            driver.call("cuGraphicsMapResources", 1, self._resource, stream)
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
                driver.call("cuMemcpy2DAsync", copy, stream)
            finally:
                driver.call("cuGraphicsUnmapResources", 1, self._resource, stream)

    def close(self) -> None:
        """Release everything but the texture. Idempotent.

        `update` and `write` raise SharingError from then on.
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
    """Raise TypeError or ValueError if a texture is of a form without a tensor."""
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
        array: CUarray of a texture.
        address: device address of the rows, which lie behind each other without gaps.
        row_bytes: bytes of a row.
        height: number of rows.
        to_array: True to copy into the array, False to copy out of it.
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
    """Prepare OpenGL for a transfer by moderngl, and restore its state afterwards.

    Args:
        action: name of the transfer, for messages.

    Raises:
        SharingError: the transfer failed.
    """
    gl = GL.current()
    names = (
        *_TIGHT_ROWS,
        *_BUFFER_TARGETS,
        *_FRAMEBUFFER_TARGETS,
        glapi.ACTIVE_TEXTURE,
    )
    saved = {name: gl.integer(name) for name in names}
    for name, value in _TIGHT_ROWS.items():
        gl.glPixelStorei(name, value)
    for target in _BUFFER_TARGETS.values():
        gl.glBindBuffer(target, 0)
    gl.clear_errors()
    try:
        yield
        gl.check(action)
    finally:
        for name in _TIGHT_ROWS:
            gl.glPixelStorei(name, saved[name])
        for name, target in _BUFFER_TARGETS.items():
            gl.glBindBuffer(target, saved[name])
        for name, target in _FRAMEBUFFER_TARGETS.items():
            gl.glBindFramebuffer(target, saved[name])
        gl.glActiveTexture(saved[glapi.ACTIVE_TEXTURE])
