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

from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl import glapi
from splatview_ipc.gl.glapi import GL
from splatview_ipc.gl.probe import bridge_class, forced_bridge, probe
from splatview_ipc.gl.tensors import dtype_name
from splatview_ipc.gl.texture_reading import DTYPES, CudaReader, Pixels, arrives_whole, refuse_renderbuffer

if TYPE_CHECKING:
    import moderngl
    import torch

WAYS = ("import", "register", "host")
_SLOTS = 2


class TextureTensor:
    """A CUDA tensor that follows a texture, or is pushed into it."""

    def __init__(self, texture: moderngl.Texture | moderngl.Renderbuffer, way: str | None = None) -> None:
        """`texture`: 1 to 4 components of dtype f1, f2 or f4, or depth; not multisampled. Three go by way of the host.

        `way`: import, register or host; by default (or by SPLATVIEW_INTEROP) the first that works. Raises ValueError
        for another texture, and SharingError, with every reason, when no way works.
        """
        if texture.samples:
            raise ValueError(f"a texture with {texture.samples} samples per pixel: resolve it first "
                             "(ctx.copy_framebuffer into one without)")
        if not texture.depth and texture.dtype not in DTYPES:
            raise ValueError(f"a texture of dtype {texture.dtype!r}; legal are {', '.join(DTYPES)} and depth")
        self.texture = texture
        self._pixels = pixels = Pixels(texture)
        self.size: tuple[int, int] = pixels.size
        self.components = pixels.components
        self.dtype = pixels.dtype
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
    def read_by(self) -> str:
        """Who copies in `update`: OpenGL, or CUDA (and then from a texture in between if CUDA takes not this one)."""
        return self._shuttle.read_by

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

        It is there for what the current CUDA stream does next: after what was drawn, and after what that stream still
        does with the tensor.
        """
        self._shuttle.pull()
        return self._shuttle.tensor

    def write(self, tensor: torch.Tensor) -> None:
        """Put a tensor of this shape and dtype into the texture, in the order of the current CUDA stream.

        OpenGL draws with it from now on. Raises ValueError for another shape or dtype, SharingError for a
        renderbuffer, which only the way register can write, and for depth, which register alone cannot.
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


class _Imported:
    """OpenGL reads and writes pixels of a buffer that is CUDA's memory as well.

    What it writes into there is tried out first. Where that arrives wrong, and for renderbuffers and depth, which do
    on an H200, CUDA reads the texture by itself, as for the way register.
    """

    def __init__(self, owner: TextureTensor) -> None:
        from splatview_ipc.cuda.driver import here
        from splatview_ipc.gl.direct import require_import
        from splatview_ipc.gl.imported import SharedBuffer
        from splatview_ipc.gl.order import CudaMark

        self._pixels = pixels = owner._pixels
        if pixels.components == 3:  # seen on an H200: areas of one colour, whatever the trial says
            raise SharingError("what OpenGL writes of three components does not arrive whole; four components do")
        device = here(require_import(owner.texture.ctx))
        self._size = -(-pixels.bytes // 4096) * 4096
        whole = self._size * (1 + _SLOTS)
        self._reader = None if arrives_whole(pixels, device, whole) else CudaReader(pixels, device)
        try:
            self._buffer = SharedBuffer(whole, device)
        except BaseException:
            if self._reader is not None:
                self._reader.release()
            raise
        self.tensor = self._buffer.tensor(owner.dtype, owner.shape, 0)
        self._mark = CudaMark(device)
        self._slots = [self._buffer.tensor(owner.dtype, owner.shape, self._size * (k + 1)) for k in range(_SLOTS)]
        self._fences: list[int | None] = [None] * _SLOTS
        self._next = 0

    @property
    def read_by(self) -> str:
        return "OpenGL" if self._reader is None else self._reader.read_by

    def _wait_for_cuda(self) -> None:
        self._mark.record()
        self._mark.wait()

    def pull(self) -> None:
        if self._reader is not None:
            self._reader.read(self.tensor)
            return
        gl = GL.current()
        gl.clear_errors()
        self._wait_for_cuda()
        with gl.bound(glapi.PIXEL_PACK_BUFFER, self._buffer.gl.buffer(0)):
            self._pixels.read(gl, None)
        gl.check("reading a texture into GPU memory")
        gl.glFinish()

    def push(self, tensor: torch.Tensor) -> None:
        gl = GL.current()
        refuse_renderbuffer(self._pixels, "from GPU memory")
        gl.clear_errors()
        slot, self._next = self._next, (self._next + 1) % _SLOTS
        if (fence := self._fences[slot]) is not None:
            self._fences[slot] = None
            gl.wait_fence(fence)
        self._slots[slot].copy_(tensor)
        self._wait_for_cuda()
        with gl.bound(glapi.PIXEL_UNPACK_BUFFER, self._buffer.gl.buffer(0)):
            self._pixels.write(gl, self._size * (slot + 1))
        gl.check("writing a texture from GPU memory")
        self._fences[slot] = gl.fence()

    def close(self) -> None:
        gl = GL.current()
        for fence in self._fences:
            if fence is not None:
                gl.glDeleteSync(fence)
        if self._reader is not None:
            self._reader.release()
        self._slots.clear()
        del self.tensor
        self._mark.close()
        self._buffer.release()


class _Registered:
    """CUDA maps the texture itself (for depth: a copy in a texture of its own) for each transfer."""

    def __init__(self, owner: TextureTensor) -> None:
        import torch

        from splatview_ipc.cuda.driver import here
        from splatview_ipc.gl.direct import require_import

        if owner.components == 3:
            raise SharingError("CUDA registers textures of 1, 2 and 4 components")
        device = here(require_import(owner.texture.ctx))
        self._reader = CudaReader(owner._pixels, device)
        self.read_by = self._reader.read_by
        self.tensor = torch.zeros(owner.shape, dtype=getattr(torch, owner.dtype), device=torch.device("cuda", device))

    def pull(self) -> None:
        self._reader.read(self.tensor)

    def push(self, tensor: torch.Tensor) -> None:
        if self._reader.resource is None:
            raise SharingError("CUDA cannot write this format (depth, for one): use way='import' or 'host'")
        self._reader.resource.write(tensor.to(self.tensor.device).contiguous())

    def close(self) -> None:
        self._reader.release()
        del self.tensor


class _Host:
    """Through host memory, where OpenGL and CUDA are not on one GPU."""

    read_by = "OpenGL"

    def __init__(self, owner: TextureTensor) -> None:
        import torch

        self._pixels = owner._pixels
        self._values = torch.zeros(owner.shape, dtype=getattr(torch, owner.dtype))
        self.tensor = self._values.cuda() if torch.cuda.is_available() else self._values

    def pull(self) -> None:
        gl = GL.current()
        gl.clear_errors()
        with gl.bound(glapi.PIXEL_PACK_BUFFER, 0):
            self._pixels.read(gl, self._values.data_ptr())
        gl.check("reading a texture")
        if self.tensor is not self._values:
            self.tensor.copy_(self._values)

    def push(self, tensor: torch.Tensor) -> None:
        gl = GL.current()
        refuse_renderbuffer(self._pixels, "from host memory")
        gl.clear_errors()
        values = tensor.cpu().contiguous()
        with gl.bound(glapi.PIXEL_UNPACK_BUFFER, 0):
            self._pixels.write(gl, values.data_ptr())
        gl.check("writing a texture")

    def close(self) -> None:
        del self.tensor


_SHUTTLES = {"import": _Imported, "register": _Registered, "host": _Host}
