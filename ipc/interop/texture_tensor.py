"""Tensors over somebody's OpenGL textures, without a copy through host memory.

    frame = TextureTensor(texture)       # a moderngl texture or renderbuffer of your program
    while drawing:
        ...
        frame.update()                   # frame.tensor, (H, W, C) on the GPU, has what was drawn

Row 0 of a tensor is OpenGL's row 0, the bottom one of what was drawn the usual way up: `tensor.flip(0)` turns it over.
Everything happens on the thread of the OpenGL context, with that context current. OpenGL's state that is touched is
put back.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import moderngl

from ipc.errors import SharingError
from ipc.interop import glapi
from ipc.interop.glapi import GL
from ipc.interop.probe import bridge_class, forced_bridge, probe
from ipc.interop.tensors import dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

WAYS = ("import", "register", "host")
_DTYPES = {"f1": ("uint8", glapi.UNSIGNED_BYTE, 1), "f2": ("float16", glapi.HALF_FLOAT, 2),
           "f4": ("float32", glapi.FLOAT, 4)}
_FORMATS = {1: glapi.RED, 2: glapi.RG, 3: glapi.RGB, 4: glapi.RGBA}
_PACK = {0x0D00: 0, 0x0D02: 0, 0x0D03: 0, 0x0D04: 0, 0x0D05: 1}  # swap bytes, row length, skip rows, pixels, alignment
_UNPACK = {0x0CF0: 0, 0x0CF2: 0, 0x0CF3: 0, 0x0CF4: 0, 0x0CF5: 1}
_SLOTS = 2


class TextureTensor:
    """A CUDA tensor that follows a texture, or is pushed into it."""

    def __init__(self, texture: moderngl.Texture | moderngl.Renderbuffer, way: str | None = None) -> None:
        """`texture`: 1 to 4 components of dtype f1, f2 or f4, or depth; not multisampled.

        `way`: import, register or host; by default (or by SPLATVIEW_INTEROP) the first that works. Raises ValueError
        for another texture, and SharingError, with every reason, when no way works.
        """
        if texture.samples:
            raise ValueError(f"a texture with {texture.samples} samples per pixel: resolve it first "
                             "(ctx.copy_framebuffer into one without)")
        if not texture.depth and texture.dtype not in _DTYPES:
            raise ValueError(f"a texture of dtype {texture.dtype!r}; legal are {', '.join(_DTYPES)} and depth")
        self.texture = texture
        self.size: tuple[int, int] = texture.width, texture.height
        self.components = 1 if texture.depth else texture.components
        self.dtype, self._type, item = _DTYPES["f4" if texture.depth else texture.dtype]
        self._format = glapi.DEPTH_COMPONENT if texture.depth else _FORMATS[self.components]
        self._renderbuffer = isinstance(texture, moderngl.Renderbuffer)
        self._bytes = self.size[0] * self.size[1] * self.components * item
        self.reasons: dict[str, str] = {}
        """Why better ways than the one in use were not taken, by name."""
        self._shuttle: Any = None
        forced = way or forced_bridge()
        if forced is not None:
            bridge_class(forced)  # raises for an unknown name
        for name in WAYS if forced in (None, "direct") else (forced,):
            reason = probe(texture.ctx, name)[name]
            if not reason:
                try:
                    self._shuttle = _SHUTTLES[name](self)
                except SharingError as e:
                    reason = str(e)
            if self._shuttle is not None:
                self.way = name
                break
            self.reasons[name] = reason
        if self._shuttle is None:
            raise SharingError("; ".join(f"{n}: {why}" for n, why in self.reasons.items()))

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, W, C)."""
        return self.size[1], self.size[0], self.components

    @property
    def tensor(self) -> torch.Tensor:
        """(H, W, C) uint8, float16 or float32 on the GPU (with the way host and no GPU: on the CPU).

        Its content is that of the last `update`, whatever was written into it since.
        """
        return self._shuttle.tensor

    def update(self) -> torch.Tensor:
        """Bring the texture's present content into `tensor`, and return that.

        Waits for what was drawn, and first for what the current CUDA stream still does with the tensor.
        """
        self._shuttle.pull()
        return self._shuttle.tensor

    def write(self, tensor: torch.Tensor) -> None:
        """Put a tensor of this shape and dtype into the texture, in the order of the current CUDA stream.

        OpenGL draws with it from now on. Raises ValueError for another shape or dtype, SharingError for a
        renderbuffer, which only the way register can write.
        """
        if tuple(tensor.shape) != self.shape or dtype_name(tensor) != self.dtype:
            raise ValueError(f"a {dtype_name(tensor)} tensor {tuple(tensor.shape)}; the texture takes {self.dtype} "
                             f"{self.shape}")
        self._shuttle.push(tensor.detach())

    def close(self) -> None:
        """Give back everything but the texture. The tensor must not be used any more. Idempotent."""
        if self._shuttle is not None:
            self._shuttle.close()
            self._shuttle = None

    def __enter__(self) -> TextureTensor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@contextmanager
def _stored_tightly(gl: GL, settings: dict[int, int]) -> Iterator[None]:
    """Pixels of a transfer lie side by side; the program's own settings come back afterwards."""
    before = {name: gl.integer(name) for name in settings}
    for name, value in settings.items():
        if before[name] != value:
            gl.glPixelStorei(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value != settings[name]:
                gl.glPixelStorei(name, value)


@contextmanager
def _texture_bound(gl: GL, name: int) -> Iterator[None]:
    before = gl.integer(glapi.TEXTURE_BINDING_2D)
    gl.glBindTexture(glapi.TEXTURE_2D, name)
    try:
        yield
    finally:
        gl.glBindTexture(glapi.TEXTURE_2D, before)


def _read_renderbuffer(gl: GL, owner: TextureTensor, address: int | None) -> None:
    """Its pixels to an address, or to the start of the bound pixel-pack buffer."""
    before, own = gl.integer(glapi.READ_FRAMEBUFFER_BINDING), gl.generate("glGenFramebuffers")
    depth = owner._format == glapi.DEPTH_COMPONENT
    gl.glBindFramebuffer(glapi.READ_FRAMEBUFFER, own)
    try:
        gl.glFramebufferRenderbuffer(glapi.READ_FRAMEBUFFER,
                                     glapi.DEPTH_ATTACHMENT if depth else glapi.COLOR_ATTACHMENT0,
                                     glapi.RENDERBUFFER, owner.texture.glo)
        gl.glReadBuffer(0 if depth else glapi.COLOR_ATTACHMENT0)
        gl.glReadPixels(0, 0, *owner.size, owner._format, owner._type, address)
    finally:
        gl.glBindFramebuffer(glapi.READ_FRAMEBUFFER, before)
        gl.delete("glDeleteFramebuffers", [own])


class _Imported:
    """OpenGL reads and writes pixels of a buffer that is CUDA's memory as well."""

    def __init__(self, owner: TextureTensor) -> None:
        from ipc.cuda.driver import here
        from ipc.interop.direct import require_import
        from ipc.interop.imported import SharedBuffer
        from ipc.interop.order import CudaMark

        self._owner = owner
        self._device = here(require_import(owner.texture.ctx))
        self._size = -(-owner._bytes // 4096) * 4096
        self._buffer = SharedBuffer(self._size * (1 + _SLOTS), self._device)
        self.tensor = self._buffer.tensor(owner.dtype, owner.shape, 0)
        self._mark = CudaMark(self._device)
        self._slots = [self._buffer.tensor(owner.dtype, owner.shape, self._size * (k + 1)) for k in range(_SLOTS)]
        self._fences: list[int | None] = [None] * _SLOTS
        self._next = 0
        self._direct = not owner._renderbuffer and owner._format != glapi.DEPTH_COMPONENT
        self._staging = 0

    def _wait_for_cuda(self) -> None:
        self._mark.record()
        self._mark.wait()

    def pull(self) -> None:
        gl, owner, target = GL.current(), self._owner, self._buffer.gl.buffer(0)
        gl.clear_errors()
        self._wait_for_cuda()
        if self._direct:
            with (gl.bound(glapi.PIXEL_PACK_BUFFER, target), _stored_tightly(gl, _PACK),
                  _texture_bound(gl, owner.texture.glo)):
                gl.glGetTexImage(glapi.TEXTURE_2D, 0, owner._format, owner._type, None)
        else:
            self._pull_by_way_of(gl, target)
        gl.check("reading a texture into GPU memory")
        gl.glFinish()  # a fence tells nothing of transfers into memory that others use too

    def _pull_by_way_of(self, gl: GL, target: int) -> None:
        """First into a buffer of OpenGL's own.

        NVIDIA's OpenGL has not finished writing what it reads from a framebuffer or converts (depth) into imported
        memory when it says that it has; a copy between buffers it has.
        """
        owner = self._owner
        if not self._staging:
            self._staging = gl.generate("glGenBuffers")
            with gl.bound(glapi.PIXEL_PACK_BUFFER, self._staging):
                gl.glBufferData(glapi.PIXEL_PACK_BUFFER, self._size, None, glapi.STREAM_COPY)
        with gl.bound(glapi.PIXEL_PACK_BUFFER, self._staging), _stored_tightly(gl, _PACK):
            if owner._renderbuffer:
                _read_renderbuffer(gl, owner, None)
            else:
                with _texture_bound(gl, owner.texture.glo):
                    gl.glGetTexImage(glapi.TEXTURE_2D, 0, owner._format, owner._type, None)
        with gl.bound(glapi.COPY_READ_BUFFER, self._staging), gl.bound(glapi.COPY_WRITE_BUFFER, target):
            gl.glCopyBufferSubData(glapi.COPY_READ_BUFFER, glapi.COPY_WRITE_BUFFER, 0, 0, owner._bytes)

    def push(self, tensor: torch.Tensor) -> None:
        owner, gl = self._owner, GL.current()
        if owner._renderbuffer:
            raise SharingError("a renderbuffer cannot be written from GPU memory: use a texture, or way='register'")
        gl.clear_errors()
        slot, self._next = self._next, (self._next + 1) % _SLOTS
        if (fence := self._fences[slot]) is not None:
            self._fences[slot] = None
            gl.wait_fence(fence)
        self._slots[slot].copy_(tensor)
        self._wait_for_cuda()
        with (gl.bound(glapi.PIXEL_UNPACK_BUFFER, self._buffer.gl.buffer(0)), _stored_tightly(gl, _UNPACK),
              _texture_bound(gl, owner.texture.glo)):
            gl.glTexSubImage2D(glapi.TEXTURE_2D, 0, 0, 0, *owner.size, owner._format, owner._type,
                               self._size * (slot + 1))
        gl.check("writing a texture from GPU memory")
        self._fences[slot] = gl.fence()

    def close(self) -> None:
        gl = GL.current()
        for fence in self._fences:
            if fence is not None:
                gl.glDeleteSync(fence)
        if self._staging:
            gl.delete("glDeleteBuffers", [self._staging])
        self._slots.clear()
        del self.tensor
        self._mark.close()
        self._buffer.release()


class _Registered:
    """CUDA maps the texture itself for each transfer."""

    def __init__(self, owner: TextureTensor) -> None:
        import torch

        from ipc.cuda.driver import here
        from ipc.interop.direct import require_import
        from ipc.interop.registered import RegisteredTexture

        if owner.components == 3 or owner._format == glapi.DEPTH_COMPONENT:
            raise SharingError("CUDA registers textures of 1, 2 and 4 components, no depth")
        device = here(require_import(owner.texture.ctx))
        self._resource = RegisteredTexture(
            owner.texture.glo, glapi.RENDERBUFFER if owner._renderbuffer else glapi.TEXTURE_2D, device)
        self.tensor = torch.zeros(owner.shape, dtype=getattr(torch, owner.dtype), device=torch.device("cuda", device))

    def pull(self) -> None:
        self._resource.read(self.tensor)

    def push(self, tensor: torch.Tensor) -> None:
        self._resource.write(tensor.to(self.tensor.device).contiguous())

    def close(self) -> None:
        self._resource.release()
        del self.tensor


class _Host:
    """Through host memory, where OpenGL and CUDA are not on one GPU."""

    def __init__(self, owner: TextureTensor) -> None:
        import torch

        self._owner = owner
        self._values = torch.zeros(owner.shape, dtype=getattr(torch, owner.dtype))
        self.tensor = self._values.cuda() if torch.cuda.is_available() else self._values

    def pull(self) -> None:
        gl, owner = GL.current(), self._owner
        gl.clear_errors()
        with gl.bound(glapi.PIXEL_PACK_BUFFER, 0), _stored_tightly(gl, _PACK):
            if owner._renderbuffer:
                _read_renderbuffer(gl, owner, self._values.data_ptr())
            else:
                with _texture_bound(gl, owner.texture.glo):
                    gl.glGetTexImage(glapi.TEXTURE_2D, 0, owner._format, owner._type, self._values.data_ptr())
        gl.check("reading a texture")
        if self.tensor is not self._values:
            self.tensor.copy_(self._values)

    def push(self, tensor: torch.Tensor) -> None:
        gl, owner = GL.current(), self._owner
        if owner._renderbuffer:
            raise SharingError("a renderbuffer cannot be written: use a texture, or way='register'")
        gl.clear_errors()
        values = tensor.cpu().contiguous()
        with (gl.bound(glapi.PIXEL_UNPACK_BUFFER, 0), _stored_tightly(gl, _UNPACK),
              _texture_bound(gl, owner.texture.glo)):
            gl.glTexSubImage2D(glapi.TEXTURE_2D, 0, 0, 0, *owner.size, owner._format, owner._type, values.data_ptr())
        gl.check("writing a texture")

    def close(self) -> None:
        del self.tensor


_SHUTTLES = {"import": _Imported, "register": _Registered, "host": _Host}
