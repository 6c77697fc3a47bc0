"""A texture's or a renderbuffer's pixels, on their way to CUDA or to host memory; used by `texture_tensor`."""

from __future__ import annotations

import contextlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

import moderngl

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl import glapi
from splatview_ipc.gl.glapi import GL

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from splatview_ipc.gl.registered import RegisteredTexture

DTYPES = {"f1": ("uint8", glapi.UNSIGNED_BYTE, 1), "f2": ("float16", glapi.HALF_FLOAT, 2),
          "f4": ("float32", glapi.FLOAT, 4)}
FORMATS = {1: glapi.RED, 2: glapi.RG, 3: glapi.RGB, 4: glapi.RGBA}
PACK = {0x0D00: 0, 0x0D02: 0, 0x0D03: 0, 0x0D04: 0, 0x0D05: 1}  # swap bytes, row length, skip rows, pixels, alignment
FRAMEBUFFERS = {glapi.READ_FRAMEBUFFER_BINDING: glapi.READ_FRAMEBUFFER,
                glapi.DRAW_FRAMEBUFFER_BINDING: glapi.DRAW_FRAMEBUFFER}
UNPACK = {0x0CF0: 0, 0x0CF2: 0, 0x0CF3: 0, 0x0CF4: 0, 0x0CF5: 1}


@contextmanager
def stored_tightly(gl: GL, settings: dict[int, int]) -> Iterator[None]:
    """Pixels of a transfer lie side by side (`settings`: PACK or UNPACK); the program's own come back afterwards."""
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
def texture_bound(gl: GL, name: int) -> Iterator[None]:
    before = gl.integer(glapi.TEXTURE_BINDING_2D)
    gl.glBindTexture(glapi.TEXTURE_2D, name)
    try:
        yield
    finally:
        gl.glBindTexture(glapi.TEXTURE_2D, before)


@contextmanager
def undisturbed(gl: GL) -> Iterator[None]:
    """moderngl makes, clears and deletes its objects in here; what that binds and sets is as before afterwards."""
    names = glapi.ACTIVE_TEXTURE, glapi.ARRAY_BUFFER_BINDING, *FRAMEBUFFERS
    before = {name: gl.integer(name) for name in names}
    try:
        with stored_tightly(gl, PACK), stored_tightly(gl, UNPACK), gl.bound(glapi.PIXEL_UNPACK_BUFFER, 0):
            yield
    finally:
        gl.glActiveTexture(before[glapi.ACTIVE_TEXTURE])
        gl.glBindBuffer(glapi.ARRAY_BUFFER, before[glapi.ARRAY_BUFFER_BINDING])
        for name, target in FRAMEBUFFERS.items():
            gl.glBindFramebuffer(target, before[name])


class Pixels:
    """What a transfer of a texture or renderbuffer looks like to OpenGL."""

    def __init__(self, texture: moderngl.Texture | moderngl.Renderbuffer) -> None:
        """`texture`: 1 to 4 components of dtype f1, f2 or f4, or depth (one component of f4)."""
        self.texture = texture
        self.size: tuple[int, int] = texture.width, texture.height
        self.depth = bool(texture.depth)
        self.renderbuffer = isinstance(texture, moderngl.Renderbuffer)
        self.components = 1 if self.depth else texture.components
        self.code = "f4" if self.depth else texture.dtype
        self.dtype, self.type, self.item = DTYPES[self.code]
        self.format = glapi.DEPTH_COMPONENT if self.depth else FORMATS[self.components]
        self.bytes = self.size[0] * self.size[1] * self.components * self.item

    def read(self, gl: GL, address: int | None, format: int | None = None) -> None:
        """To an address, or (None) to the start of the bound pixel-pack buffer; row after row without gaps."""
        format = self.format if format is None else format
        with stored_tightly(gl, PACK):
            if self.renderbuffer:
                self._read_renderbuffer(gl, address, format)
            else:
                with texture_bound(gl, self.texture.glo):
                    gl.glGetTexImage(glapi.TEXTURE_2D, 0, format, self.type, address)

    def _read_renderbuffer(self, gl: GL, address: int | None, format: int) -> None:
        before, own = gl.integer(glapi.READ_FRAMEBUFFER_BINDING), gl.generate("glGenFramebuffers")
        gl.glBindFramebuffer(glapi.READ_FRAMEBUFFER, own)
        try:
            gl.glFramebufferRenderbuffer(glapi.READ_FRAMEBUFFER,
                                         glapi.DEPTH_ATTACHMENT if self.depth else glapi.COLOR_ATTACHMENT0,
                                         glapi.RENDERBUFFER, self.texture.glo)
            gl.glReadBuffer(0 if self.depth else glapi.COLOR_ATTACHMENT0)
            gl.glReadPixels(0, 0, *self.size, format, self.type, address)
        finally:
            gl.glBindFramebuffer(glapi.READ_FRAMEBUFFER, before)
            gl.delete("glDeleteFramebuffers", [own])

    def write(self, gl: GL, address: int | None) -> None:
        """Into the texture, from an address or from an offset into the bound pixel-unpack buffer."""
        with stored_tightly(gl, UNPACK), texture_bound(gl, self.texture.glo):
            gl.glTexSubImage2D(glapi.TEXTURE_2D, 0, 0, 0, *self.size, self.format, self.type, address)


class ColourCopy:
    """A texture of ours with another one's pixels, in a format that CUDA takes: depth as one float32. By way of a
    buffer of OpenGL's own, so that nothing is drawn and no state of drawing matters.
    """

    def __init__(self, source: Pixels) -> None:
        self._source = source
        ctx = source.texture.ctx
        with undisturbed(GL.current()):
            self.texture: moderngl.Texture = ctx.texture(source.size, source.components, alignment=1, dtype=source.code)
            self.texture.filter = moderngl.NEAREST, moderngl.NEAREST
            self._pixels = Pixels(self.texture)
            self._buffer: moderngl.Buffer = ctx.buffer(reserve=self._pixels.bytes)

    def refresh(self) -> None:
        """Bring the source's present content into `texture`."""
        gl, source, own = GL.current(), self._source, self._pixels
        gl.clear_errors()
        with gl.bound(glapi.PIXEL_PACK_BUFFER, self._buffer.glo):
            source.read(gl, None, source.format if source.depth else own.format)
        with gl.bound(glapi.PIXEL_UNPACK_BUFFER, self._buffer.glo):
            own.write(gl, None)
        gl.check("copying a texture")

    def release(self) -> None:
        self._buffer.release()
        self.texture.release()


class CudaReader:
    """CUDA reads a texture or renderbuffer out of the memory in which OpenGL has it."""

    def __init__(self, source: Pixels, device: int) -> None:
        """Raises SharingError when CUDA takes neither it nor a copy of it."""
        from splatview_ipc.gl.registered import RegisteredTexture

        self._copy: ColourCopy | None = None
        self.resource: RegisteredTexture | None = None
        """The texture itself as CUDA has it; None where a copy is read."""
        if not source.depth:
            with contextlib.suppress(SharingError):  # some formats CUDA does not know
                self.resource = self._read = RegisteredTexture(
                    source.texture.glo, glapi.RENDERBUFFER if source.renderbuffer else glapi.TEXTURE_2D, device)
                return
        self._copy = ColourCopy(source)
        try:
            self._read = RegisteredTexture(self._copy.texture.glo, glapi.TEXTURE_2D, device)
        except BaseException:
            self._copy.release()
            raise

    @property
    def read_by(self) -> str:
        return "CUDA" if self._copy is None else "CUDA, from a copy"

    def read(self, tensor: torch.Tensor) -> None:
        """Into a contiguous CUDA tensor (H, W, C), on the current stream, after what OpenGL was told to draw."""
        if self._copy is not None:
            self._copy.refresh()
        self._read.read(tensor)

    def release(self) -> None:
        self._read.release()
        if self._copy is not None:
            self._copy.release()


def arrives_whole(source: Pixels, device: int, size: int) -> bool:
    """Whether a texture like this one, of one colour, arrives in `size` bytes of imported memory when OpenGL reads it
    into there.

    NVIDIA's OpenGL may write areas of one colour in a form that CUDA does not read as pixels; what has no such areas
    arrives even then, so that only such a picture tells. A scratch texture and memory of their own are used, for
    nothing of it must remain.
    """
    from splatview_ipc.gl.imported import SharedBuffer

    if source.renderbuffer or source.depth:
        return False
    gl, ctx = GL.current(), source.texture.ctx
    with contextlib.ExitStack() as stack:
        stack.enter_context(undisturbed(gl))
        texture = ctx.texture(source.size, source.components, alignment=1, dtype=source.code)
        stack.callback(texture.release)
        try:
            framebuffer = ctx.framebuffer([texture])
        except moderngl.Error:  # OpenGL need not draw into every format
            gl.clear_errors()
            return False
        stack.callback(framebuffer.release)
        buffer = SharedBuffer(size, device)
        stack.callback(buffer.release)
        got = buffer.tensor(source.dtype, (source.bytes // source.item,), 0)
        for level in (1.0, 0.0, 1.0):
            framebuffer.clear(level, level, level, level)
            gl.clear_errors()
            with gl.bound(glapi.PIXEL_PACK_BUFFER, buffer.gl.buffer(0)):
                Pixels(texture).read(gl, None)
            gl.check("reading a texture into GPU memory")
            gl.glFinish()
            if not (got == level * (255 if source.dtype == "uint8" else 1)).all():
                return False
        return True


def refuse_renderbuffer(source: Pixels, instead: str) -> None:
    """Raises SharingError for one: OpenGL uploads to textures only."""
    if source.renderbuffer:
        raise SharingError(f"a renderbuffer cannot be written {instead}: use a texture, or way='register'")
