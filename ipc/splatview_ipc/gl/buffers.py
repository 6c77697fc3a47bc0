"""GPU memory as OpenGL buffers, and a picture in it read through buffer textures, strides and all.

`plan_access` decides how, for the fewest fetches per pixel (a graphics pipeline on a data-centre GPU is slow: three
fetches take three times as long as one); `GlMemory` holds the buffers; `BufferSource` binds them for
`shaders/fetch.glsl`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl import glapi
from splatview_ipc.gl.base import DTYPE_DEFINES
from splatview_ipc.gl.glapi import GL
from splatview_ipc.gl.sources import set_uniform, set_units

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import moderngl

    from splatview_ipc.gl.base import Form

ITEM_SIZE = {"uint8": 1, "uint16": 2, "float16": 2, "bfloat16": 2, "float32": 4}
MAX_PIECES = 8
"""Pieces of memory that one picture may span. OpenGL 3.3 has 16 texture units for a fragment shader."""
_MAX_TEXTURES = 64
"""Buffer textures kept for one memory: a ring of 16 slots over several formats fits."""
_SHORT_STEP = 16
"""Steps from one pixel to the next up to this are compiled in: those of rows without gaps. Others would make a program
for every stride."""
_WORDS = 0x8236  # R32UI
_FORMATS = {  # by dtype and values in a texel
    ("uint8", 1): 0x8229, ("uint8", 2): 0x822B, ("uint8", 4): 0x8058,  # R8, RG8, RGBA8
    ("uint16", 1): 0x822A, ("uint16", 2): 0x822C, ("uint16", 4): 0x805B,  # R16, RG16, RGBA16
    ("float16", 1): 0x822D, ("float16", 2): 0x822F, ("float16", 4): 0x881A,  # R16F, RG16F, RGBA16F
    ("bfloat16", 1): 0x8234, ("bfloat16", 2): 0x823A, ("bfloat16", 4): 0x8D76,  # R16UI, RG16UI, RGBA16UI
    ("float32", 1): 0x822E, ("float32", 2): 0x8230, ("float32", 3): 0x8815, ("float32", 4): 0x8814,  # R32F .. RGBA32F
}


@dataclass(frozen=True)
class Limits:
    """What an OpenGL can do with buffer textures."""

    texels: int
    """Of one buffer texture."""
    alignment: int
    """Bytes that the start of a buffer texture within its buffer is a multiple of; 0 where it is always 0."""
    rgb: bool = True
    """Whether a texel can have three values (OpenGL 3.3 alone does not say so)."""

    @classmethod
    def of(cls, ctx: moderngl.Context) -> Limits:
        gl = GL.current()
        ranged = ctx.version_code >= 430 or "GL_ARB_texture_buffer_range" in ctx.extensions
        return cls(gl.integer(glapi.MAX_TEXTURE_BUFFER_SIZE),
                   gl.integer(glapi.TEXTURE_BUFFER_OFFSET_ALIGNMENT) if ranged else 0,
                   ctx.version_code >= 400 or "GL_ARB_texture_buffer_object_rgb32" in ctx.extensions)


@dataclass(frozen=True)
class Access:
    """How a shader reads one picture."""

    fetch: str
    """FETCH_TEXEL, FETCH_ELEMENT or FETCH_WORDS."""
    format: int
    """OpenGL's name of the buffer textures' format."""
    pieces: tuple[int, ...]
    """Which of the memory's pieces, by number."""
    start: int
    """Byte of the first piece at which its texture starts."""
    size: int
    """Bytes that the first piece's texture covers."""
    base: int
    row: int
    column: int
    plane: int
    """Where the first pixel lies, and the steps from one to the next: in texels, for FETCH_WORDS in bytes."""
    cuts: tuple[int, ...]
    """The texel at which each piece starts."""


def plan_access(form: Form, strides: tuple[int, ...], offset: int, sizes: Sequence[int], limits: Limits) -> Access:
    """The way to read a picture with the fewest fetches per pixel.

    `strides` in elements, `offset` in bytes from the start of the memory, whose pieces have `sizes` bytes. Raises
    SharingError when the picture does not lie within the memory, or OpenGL cannot address it.
    """
    item = ITEM_SIZE[form.dtype]
    row, column, plane = form.steps(strides)
    end = offset + item * ((form.height - 1) * row + (form.width - 1) * column + (form.channels - 1) * plane + 1)
    if min(row, column, plane, offset) < 0 or offset % item or end > sum(sizes):
        raise SharingError(f"a picture at byte {offset} with strides {strides} does not lie within {sum(sizes)} bytes")
    first, last, before = _pieces(offset, end, sizes)
    if last - first >= MAX_PIECES:
        raise SharingError(f"the picture spans {last - first + 1} pieces of memory; a shader reads {MAX_PIECES}")
    inside = list(sizes[first:last + 1])
    offset, end = offset - before, end - before
    adjacent = form.channels == 1 or plane == 1
    for values in (1, 2, 3, 4) if adjacent else ():
        if values < form.channels or (form.dtype, values) not in _FORMATS or (values == 3 and not limits.rgb):
            continue
        texel = values * item
        if row * item % texel or column * item % texel:
            continue
        window = _window(offset, end, inside, texel, limits)
        if window is not None and (offset - window[0]) % texel == 0:
            return _access("FETCH_TEXEL", _FORMATS[form.dtype, values], range(first, last + 1), window, inside, texel,
                           ((offset - window[0]) // texel, row * item // texel, column * item // texel, 0))
    if adjacent and item < 4 and form.channels > 1:
        window = _window(offset, end, inside, 4, limits)
        if window is not None and end - window[0] < 1 << 31:
            return _access("FETCH_WORDS", _WORDS, range(first, last + 1), window, inside, 4,
                           (offset - window[0], row * item, column * item, 0))
    window = _window(offset, end, inside, item, limits)
    if window is None:
        raise SharingError(f"the picture spans {end - offset} bytes; this OpenGL's buffer textures have "
                           f"{limits.texels} texels" + ("" if limits.alignment else " and start where buffers do"))
    return _access("FETCH_ELEMENT", _FORMATS[form.dtype, 1], range(first, last + 1), window, inside, item,
                   ((offset - window[0]) // item, row, column, plane))


def _pieces(offset: int, end: int, sizes: Sequence[int]) -> tuple[int, int, int]:
    """The first and the last piece that bytes `offset` to `end` touch, and how many bytes lie before the first."""
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    first = max(k for k, start in enumerate(starts) if start <= offset)
    last = max(k for k, start in enumerate(starts) if start < end)
    return first, last, starts[first]


def _window(offset: int, end: int, sizes: Sequence[int], texel: int, limits: Limits) -> tuple[int, int] | None:
    """(start, size) in bytes of the part of the first piece that a texture of `texel`-byte texels covers.

    From the first pixel on where that can be: every instruction per pixel counts on a GPU that is mostly made for
    compute, and adding where a picture starts is one. None where nothing suits.
    """
    if len(sizes) > 1:
        fits = all(size // texel <= limits.texels for size in sizes)
        return (0, sizes[0]) if fits and offset % texel == 0 and not any(s % texel for s in sizes[:-1]) else None
    size = sizes[0]
    step = lcm(limits.alignment, texel)
    if limits.alignment and offset % limits.alignment == 0:
        covered = -(-(end - offset) // texel) * texel
        if offset + covered <= size and covered // texel <= limits.texels:
            return offset, covered
    last = -(-end // texel) * texel
    if size // texel <= limits.texels and last <= size and (offset % texel == 0 or texel == 4):
        return 0, size  # else words: the shader takes them apart
    if not limits.alignment:
        return None
    start = offset // step * step
    covered = -(-(end - start) // texel) * texel
    return (start, covered) if start + covered <= size and covered // texel <= limits.texels else None


def _access(fetch: str, format_: int, pieces: range, window: tuple[int, int], sizes: Sequence[int], texel: int,
            steps: tuple[int, int, int, int]) -> Access:
    cuts = [sum(sizes[:k]) // texel for k in range(len(sizes))]
    return Access(fetch, format_, tuple(pieces), *window, *steps, tuple(cuts))


class GlMemory:
    """Pieces of memory that lie one after the other, as OpenGL buffers, made when they are first read."""

    def __init__(self, sizes: Sequence[int], make: Callable[[int], tuple[int, int]]) -> None:
        """`make(k)` gives the names of piece k's buffer and of its memory object (0 for none)."""
        self.sizes = tuple(sizes)
        self._make = make
        self._buffers: dict[int, tuple[int, int]] = {}
        self._textures: dict[tuple[int, int, int, int], int] = {}

    def buffer(self, piece: int) -> int:
        """OpenGL's name of the buffer over a piece. Raises SharingError."""
        if piece not in self._buffers:
            self._buffers[piece] = self._make(piece)
        return self._buffers[piece][0]

    def textures(self, access: Access) -> tuple[int, ...]:
        """The names of the buffer textures that `access` asks for. They may be deleted at the next call."""
        if len(self._textures) + len(access.pieces) > _MAX_TEXTURES:
            self._release_textures()
        out = []
        for k, piece in enumerate(access.pieces):
            start, size = (access.start, access.size) if k == 0 else (0, self.sizes[piece])
            key = piece, access.format, start, size
            if key not in self._textures:
                self._textures[key] = self._texture(*key)
            out.append(self._textures[key])
        return tuple(out)

    def _texture(self, piece: int, format_: int, start: int, size: int) -> int:
        gl, buffer = GL.current(), self.buffer(piece)
        gl.clear_errors()
        name = gl.generate("glGenTextures")
        before = gl.integer(glapi.TEXTURE_BINDING_BUFFER)
        gl.glBindTexture(glapi.TEXTURE_BUFFER, name)
        if (start, size) == (0, self.sizes[piece]):
            gl.glTexBuffer(glapi.TEXTURE_BUFFER, format_, buffer)
        else:
            gl.glTexBufferRange(glapi.TEXTURE_BUFFER, format_, buffer, start, size)
        gl.glBindTexture(glapi.TEXTURE_BUFFER, before)
        try:
            gl.check(f"a buffer texture over {size} bytes from {start} on")
        except SharingError:
            gl.delete("glDeleteTextures", [name])
            raise
        return name

    def _release_textures(self) -> None:
        names = list(self._textures.values())
        self._textures.clear()
        GL.current().delete("glDeleteTextures", names)

    def release(self) -> None:
        """Delete everything. Idempotent. OpenGL keeps what a drawing still reads until it is through."""
        self._release_textures()
        gl, made = GL.current(), list(self._buffers.values())
        self._buffers.clear()
        gl.delete("glDeleteBuffers", [buffer for buffer, _ in made])
        memories = [memory for _, memory in made if memory]
        if memories:
            gl.delete("glDeleteMemoryObjectsEXT", memories)


def import_memory(pieces: Sequence[tuple[int, int]]) -> GlMemory:
    """OpenGL buffers over GPU memory, `pieces` of (POSIX descriptor, bytes) in order.

    The descriptors stay the caller's. Each piece is imported when it is first read: `GlMemory.buffer` raises then.
    """
    return GlMemory([size for _, size in pieces], lambda k: _import_piece(*pieces[k]))


def _import_piece(fd: int, size: int) -> tuple[int, int]:
    gl = GL.current()
    gl.clear_errors()
    memory = gl.generate("glCreateMemoryObjectsEXT")
    own = os.dup(fd)
    gl.glImportMemoryFdEXT(memory, size, glapi.HANDLE_TYPE_OPAQUE_FD, own)
    try:
        gl.check(f"glImportMemoryFdEXT of {size} bytes")
    except SharingError:
        os.close(own)  # OpenGL owns it only where the import succeeded
        gl.delete("glDeleteMemoryObjectsEXT", [memory])
        raise
    buffer = gl.generate("glGenBuffers")
    with gl.bound(glapi.TEXTURE_BUFFER, buffer):
        gl.glBufferStorageMemEXT(glapi.TEXTURE_BUFFER, size, memory, 0)
    try:
        gl.check(f"glBufferStorageMemEXT of {size} bytes")
    except SharingError:
        gl.delete("glDeleteBuffers", [buffer])
        gl.delete("glDeleteMemoryObjectsEXT", [memory])
        raise
    return buffer, memory


class BufferSource:
    """A picture in OpenGL buffers."""

    stride = 1

    def __init__(self, memory: GlMemory, form: Form, strides: tuple[int, ...], offset: int, limits: Limits,
                 ready: Callable[[], None] | None = None) -> None:
        """As `plan_access`. `ready` is called before each drawing, to wait for the data.

        Raises SharingError when OpenGL cannot read it there; the memory's pieces are imported now, if not before.
        """
        self.memory = memory
        self.access = access = plan_access(form, strides, offset, memory.sizes, limits)
        self.size = form.width, form.height
        self.channels, self.dtype, self.layout = form.channels, form.dtype, form.layout
        words = (f"ELEMENT_BYTES {ITEM_SIZE[form.dtype]}",) if access.fetch == "FETCH_WORDS" else ()
        self.defines: tuple[str, ...] = ("SOURCE_BUFFER", DTYPE_DEFINES[form.dtype], f"CHANNELS {form.channels}",
                                         access.fetch, f"PIECES {len(access.pieces)}", *words,
                                         *((f"STEP {access.column}",) if access.column <= _SHORT_STEP else ()),
                                         *(("AT_START",) if access.base == 0 else ()))
        self._ready = ready
        memory.textures(access)

    def bind(self, program: moderngl.Program, unit: int = 0) -> None:
        if self._ready is not None:
            self._ready()
        gl, access = GL.current(), self.access
        for k, texture in enumerate(self.memory.textures(access)):
            gl.glActiveTexture(glapi.TEXTURE0 + unit + k)
            gl.glBindTexture(glapi.TEXTURE_BUFFER, texture)
        set_units(program, len(access.pieces), unit)
        set_uniform(program, "u_source_size", self.size)
        if access.base:
            set_uniform(program, "u_source_base", access.base)
        set_uniform(program, "u_source_row", access.row)
        if access.column > _SHORT_STEP:
            set_uniform(program, "u_source_column", access.column)
        if access.fetch == "FETCH_ELEMENT":
            set_uniform(program, "u_source_plane", access.plane)
        if len(access.cuts) > 1:
            set_uniform(program, "u_source_cuts", access.cuts)
