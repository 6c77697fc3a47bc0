"""Tensors over OpenGL textures of any program. OpenGL's state that a transfer touches is put back."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import moderngl

from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda import driver
from splatview_ipc.gl import glapi
from splatview_ipc.gl.direct import require_import
from splatview_ipc.gl.glapi import GL
from splatview_ipc.gl.probe import forced_bridge
from splatview_ipc.shm.slot_layout import dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

WAYS = ("register", "host")
DTYPES = {"f1": "uint8", "f2": "float16", "f4": "float32"}
"""Dtypes by moderngl's names."""

_PIXEL_STORE = {
    0x0D00: 0,
    0x0D02: 0,
    0x0D03: 0,
    0x0D04: 0,
    0x0D05: 1,
    0x0CF0: 0,
    0x0CF2: 0,
    0x0CF3: 0,
    0x0CF4: 0,
    0x0CF5: 1,
}
"""Tight rows, packed and unpacked: swapped bytes, row length, skipped rows, skipped pixels, alignment."""
_BUFFERS = {
    glapi.PIXEL_PACK_BUFFER_BINDING: glapi.PIXEL_PACK_BUFFER,
    glapi.PIXEL_UNPACK_BUFFER_BINDING: glapi.PIXEL_UNPACK_BUFFER,
}
_FRAMEBUFFERS = {
    glapi.READ_FRAMEBUFFER_BINDING: glapi.READ_FRAMEBUFFER,
    glapi.DRAW_FRAMEBUFFER_BINDING: glapi.DRAW_FRAMEBUFFER,
}


class TextureTensor(AbstractContextManager["TextureTensor"]):
    """A CUDA tensor that follows a texture, or is written into it.

        frame = TextureTensor(texture)       # a moderngl texture or renderbuffer of your program
        while drawing:
            ...
            frame.update()                   # frame.tensor, (H, W, C) on the GPU, has what was drawn

    Row 0 of a tensor is OpenGL's row 0, the bottom one of what was drawn the usual way up: `tensor.flip(0)` turns it
    over. Every call needs the OpenGL context to be current on its thread. CUDA copies from and to the texture (way
    "register", a third of a millisecond); without a GPU, and for textures that CUDA does not take (three components,
    depth), pixels go through host memory (way "host").
    """

    def __init__(
        self, texture: moderngl.Texture | moderngl.Renderbuffer, way: str | None = None
    ) -> None:
        """`texture`: 1 to 4 components of dtype f1, f2 or f4, or depth; not multisampled.

        `way`: register or host; by default register if it works, unless SPLATVIEW_INTEROP=host. Raises TypeError and
        ValueError for another texture or way, SharingError when register is asked for and does not work.
        """
        if not isinstance(texture, (moderngl.Texture, moderngl.Renderbuffer)):
            raise TypeError(
                f"TextureTensor({texture!r}): legal are a moderngl.Texture and a moderngl.Renderbuffer"
            )
        if texture.samples:
            raise ValueError(
                f"a texture with {texture.samples} samples per pixel: resolve it first "
                "(ctx.copy_framebuffer into one without)"
            )
        if not texture.depth and texture.dtype not in DTYPES:
            raise ValueError(
                f"a texture of dtype {texture.dtype!r}; legal are {', '.join(DTYPES)} and depth"
            )
        if way not in (None, *WAYS):
            raise ValueError(f"way {way!r}: legal are {', '.join(WAYS)}")
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
        if way is None and forced_bridge() == "host":
            self.way = "host"
        else:
            self.way = way or WAYS[0]
        """register or host."""
        self.reasons: dict[str, str] = {}
        """Why better ways than the one in use were not taken, by name."""
        self._device = -1
        self._resource: Any = None
        if self.way == "register":
            try:
                self._register()
            except SharingError as e:
                if way is not None:
                    raise
                self.way = "host"
                self.reasons["register"] = str(e)
        if self.way == "register":
            device = self._device
        elif torch.cuda.is_available():
            device = "cuda"
        else:
            device = "cpu"
        self.tensor: torch.Tensor = torch.zeros(
            self.shape, dtype=getattr(torch, self.dtype), device=device
        )
        """(H, W, C) uint8, float16 or float32, on the CPU where there is no GPU; the content of the last `update`."""
        self._values: torch.Tensor | None = (
            self.tensor.cpu() if self.way == "host" else None
        )
        """The pixels in host memory, where they go through there: `tensor` itself if that is on the CPU."""

    def _register(self) -> None:
        """Raises SharingError when CUDA cannot take the texture."""
        texture = self.texture
        if texture.depth or texture.components == 3:
            raise SharingError(
                "CUDA takes textures of 1, 2 and 4 components, and no depth"
            )
        self._device = driver.here(require_import(texture.ctx))
        if isinstance(texture, moderngl.Renderbuffer):
            target = glapi.RENDERBUFFER
        else:
            target = glapi.TEXTURE_2D
        with driver.context(self._device):
            self._resource = driver.handle(
                "cuGraphicsGLRegisterImage", texture.glo, target, 0
            )

    def update(self) -> torch.Tensor:
        """Bring the texture's present content into `tensor`, and return that.

        It is there for what the current CUDA stream does next: after what was drawn, and after what that stream still
        does with the tensor. Raises RuntimeError on a thread where the texture's OpenGL context is not current.
        """
        self._require_usable("update")
        if self._resource is not None:
            self._copy(self.tensor, to_texture=False)
            return self.tensor
        assert self._values is not None
        texture = self.texture
        pixels = self._values.numpy()
        with _kept_state("reading a texture"):
            if isinstance(texture, moderngl.Texture):
                texture.read_into(pixels, alignment=1)
            else:
                depth = bool(texture.depth)
                if depth:
                    framebuffer = texture.ctx.framebuffer([], texture)
                else:
                    framebuffer = texture.ctx.framebuffer([texture])
                framebuffer.read_into(
                    pixels,
                    components=self.components,
                    attachment=-1 if depth else 0,
                    dtype="f4" if depth else texture.dtype,
                    alignment=1,
                )
                framebuffer.release()
        if self.tensor is not self._values:
            self.tensor.copy_(self._values)
        return self.tensor

    def write(self, tensor: torch.Tensor) -> None:
        """Put a tensor of this shape and dtype into the texture, in the order of the current CUDA stream.

        OpenGL draws with it from now on. Raises ValueError for another shape or dtype, SharingError for a renderbuffer
        that CUDA does not take, RuntimeError as `update`.
        """
        if tuple(tensor.shape) != self.shape or dtype_name(tensor) != self.dtype:
            raise ValueError(
                f"a {dtype_name(tensor)} tensor {tuple(tensor.shape)}; the texture takes {self.dtype} "
                f"{self.shape}"
            )
        self._require_usable("write")
        tensor = tensor.detach()
        if self._resource is not None:
            self._copy(tensor.to(self.tensor.device).contiguous(), to_texture=True)
            return
        if not isinstance(self.texture, moderngl.Texture):
            raise SharingError(
                "a renderbuffer cannot be written from host memory: use a texture"
            )
        with _kept_state("writing a texture"):
            self.texture.write(tensor.cpu().contiguous().numpy(), alignment=1)

    def _require_usable(self, method: str) -> None:
        if GL.current().context() != self._context:
            raise RuntimeError(
                f"TextureTensor.{method}: the texture's OpenGL context is not current on this thread; "
                f"call {method} where you draw"
            )
        if self._resource is None and self._values is None:
            raise SharingError("the TextureTensor is closed")

    def _copy(self, tensor: torch.Tensor, *, to_texture: bool) -> None:
        """Copy between a contiguous CUDA tensor and the texture, on the current stream."""
        queue = driver.stream_object(driver.current_stream(self._device))
        with driver.context(self._device):
            driver.call("cuGraphicsMapResources", 1, self._resource, queue)
            try:
                array = driver.call(
                    "cuGraphicsSubResourceGetMappedArray", self._resource, 0, 0
                )
                row = self.size[0] * self.components * tensor.element_size()
                copy = array_copy(
                    array, tensor.data_ptr(), row, self.size[1], to_array=to_texture
                )
                driver.call("cuMemcpy2DAsync", copy, queue)
            finally:
                driver.call("cuGraphicsUnmapResources", 1, self._resource, queue)

    def close(self) -> None:
        """Give back everything but the texture. The tensor must not be used any more. Idempotent."""
        resource = self._resource
        self._resource = None
        self._values = None
        if resource is not None:
            with driver.context(self._device):
                driver.release("cuGraphicsUnregisterResource", resource)

    def __exit__(self, *exc: object) -> None:
        self.close()


def array_copy(
    array: Any, address: int, row: int, height: int, *, to_array: bool
) -> Any:
    """The driver's description of a copy between an array and `height` rows of `row` bytes at a device address."""
    cu = driver.bindings()
    linear = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    opaque = cu.CUmemorytype.CU_MEMORYTYPE_ARRAY
    copy = cu.CUDA_MEMCPY2D()
    copy.WidthInBytes = row
    copy.Height = height
    copy.srcPitch = row
    copy.dstPitch = row
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
def _kept_state(what: str) -> Iterator[None]:
    """Let moderngl transfer pixels in here; what that binds and sets is as before afterwards. Raises SharingError."""
    gl = GL.current()
    before = {
        name: gl.integer(name)
        for name in (*_PIXEL_STORE, *_BUFFERS, *_FRAMEBUFFERS, glapi.ACTIVE_TEXTURE)
    }
    for name, value in _PIXEL_STORE.items():
        gl.glPixelStorei(name, value)
    for target in _BUFFERS.values():
        gl.glBindBuffer(target, 0)
    gl.clear_errors()
    try:
        yield
        gl.check(what)
    finally:
        for name in _PIXEL_STORE:
            gl.glPixelStorei(name, before[name])
        for name, target in _BUFFERS.items():
            gl.glBindBuffer(target, before[name])
        for name, target in _FRAMEBUFFERS.items():
            gl.glBindFramebuffer(target, before[name])
        gl.glActiveTexture(before[glapi.ACTIVE_TEXTURE])
