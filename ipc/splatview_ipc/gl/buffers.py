"""GPU memory as OpenGL buffers, and a picture in it read through buffer textures, strides and all.

`plan_access` chooses the fewest fetches per pixel: on a data-centre GPU three take three times as long as one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import accumulate
from math import lcm
from typing import TYPE_CHECKING

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl import glapi
from splatview_ipc.gl.base import DTYPES, PixelSource
from splatview_ipc.gl.glapi import GL
from splatview_ipc.gl.sources import set_uniform, set_units

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import moderngl

    from splatview_ipc.gl.base import Form

MAX_PIECES = 8
"""Pieces of memory that one picture may span. OpenGL 3.3 has 16 texture units for a fragment shader."""
_SHORT_STEP = 16
"""Steps from one pixel to the next up to this are compiled in. Others would make a program for every stride."""
_FORMATS = {  # by dtype and values in a texel
    ("uint8", 1): 0x8229,
    ("uint8", 2): 0x822B,
    ("uint8", 4): 0x8058,  # R8, RG8, RGBA8
    ("uint16", 1): 0x822A,
    ("uint16", 2): 0x822C,
    ("uint16", 4): 0x805B,  # R16, RG16, RGBA16
    ("float16", 1): 0x822D,
    ("float16", 2): 0x822F,
    ("float16", 4): 0x881A,  # R16F, RG16F, RGBA16F
    ("bfloat16", 1): 0x8234,
    ("bfloat16", 2): 0x823A,
    ("bfloat16", 4): 0x8D76,  # R16UI, RG16UI, RGBA16UI
    ("float32", 1): 0x822E,
    ("float32", 2): 0x8230,
    ("float32", 3): 0x8815,
    ("float32", 4): 0x8814,  # R32F .. RGBA32F
}
_ALIGNMENT = 256
"""Bytes: no OpenGL asks more of the start of a buffer texture within its buffer."""


@dataclass(frozen=True)
class Access:
    """The fetches of one picture by a shader."""

    fetch: str
    """FETCH_TEXEL or FETCH_ELEMENT."""
    format: int
    """OpenGL's name of the buffer textures' format."""
    pieces: tuple[int, ...]
    """The memory's pieces, by number."""
    start: int
    size: int
    """The bytes of the first piece that its texture covers."""
    base: int
    """The first pixel's texel, and, below, the steps from one pixel to the next, in texels."""
    row: int
    column: int
    plane: int
    cuts: tuple[int, ...]
    """The texel at which each piece starts."""


def plan_access(
    form: Form, strides: tuple[int, ...], offset: int, sizes: Sequence[int], most: int
) -> Access:
    """The way to read a picture with the fewest fetches per pixel.

    `strides` in elements, `offset` in bytes from the start of the memory, whose pieces have `sizes` bytes; `most`: the
    texel limit. Raises SharingError when the picture is not within the memory, or OpenGL cannot address it.
    """
    item = DTYPES[form.dtype].item
    row = strides[form.layout.index("H")]
    column = strides[form.layout.index("W")]
    plane = strides[form.layout.index("C")] if "C" in form.layout else 1
    end = offset + item * (
        (form.height - 1) * row
        + (form.width - 1) * column
        + (form.channels - 1) * plane
        + 1
    )
    if min(row, column, plane, offset) < 0 or offset % item or end > sum(sizes):
        raise SharingError(
            f"a picture at byte {offset} with strides {strides} does not lie within {sum(sizes)} bytes"
        )
    starts = list(accumulate(sizes, initial=0))[:-1]
    first = max(k for k, start in enumerate(starts) if start <= offset)
    pieces = tuple(k for k, start in enumerate(starts) if k >= first and start < end)
    if len(pieces) > MAX_PIECES:
        raise SharingError(
            f"the picture spans {len(pieces)} pieces of memory; a shader reads {MAX_PIECES}"
        )
    offset = offset - starts[first]
    end = end - starts[first]
    inside = [sizes[k] for k in pieces]
    # values of texels that may hold whole pixels
    if form.channels == 1 or plane == 1:
        whole = (1, 2, 3, 4)
    else:
        whole = ()
    for values in (
        *(n for n in whole if n >= form.channels and (form.dtype, n) in _FORMATS),
        0,
    ):
        texel = (values or 1) * item
        window = _window(offset, end, inside, texel, most)
        if window is None or row * item % texel or column * item % texel:
            continue
        return Access(
            "FETCH_TEXEL" if values else "FETCH_ELEMENT",
            _FORMATS[form.dtype, values or 1],
            pieces,
            *window,
            (offset - window[0]) // texel,
            row * item // texel,
            column * item // texel,
            0 if values else plane,
            tuple((starts[k] - starts[first]) // texel for k in pieces),
        )
    raise SharingError(
        f"the picture spans {end - offset} bytes; this OpenGL's buffer textures have {most} texels"
    )


def _window(
    offset: int, end: int, sizes: Sequence[int], texel: int, most: int
) -> tuple[int, int] | None:
    """(start, size) in bytes of the part of the first piece that a texture of `texel`-byte texels covers; None where
    none can. It starts at the first pixel if possible: adding its place is an instruction per pixel.
    """
    if len(sizes) > 1:
        fits = all(size // texel <= most for size in sizes)
        if fits and offset % texel == 0 and not any(s % texel for s in sizes[:-1]):
            return (0, sizes[0])
        return None
    step = lcm(_ALIGNMENT, texel)
    start = offset if offset % _ALIGNMENT == 0 else offset // step * step
    covered = -(-(end - start) // texel) * texel
    fits = (
        start + covered <= sizes[0]
        and covered // texel <= most
        and (offset - start) % texel == 0
    )
    return (start, covered) if fits else None


class GlMemory:
    """Consecutive pieces of GPU memory as OpenGL buffers, imported when they are first read."""

    def __init__(self, pieces: Sequence[tuple[int, int]]) -> None:
        """`pieces`: (POSIX descriptor, bytes) in order. The descriptors stay the caller's."""
        self.sizes = tuple(size for _, size in pieces)
        self._pieces = pieces
        self._buffers: dict[int, tuple[int, int]] = {}
        """By piece: OpenGL's names of its buffer and of its memory object."""

    def buffer(self, piece: int) -> int:
        """OpenGL's name of the buffer over a piece. Raises SharingError."""
        if piece in self._buffers:
            return self._buffers[piece][0]
        gl, (fd, size) = GL.current(), self._pieces[piece]
        gl.clear_errors()
        memory = gl.generate("glCreateMemoryObjectsEXT")
        own = os.dup(fd)
        buffer = 0
        try:
            gl.glImportMemoryFdEXT(memory, size, glapi.HANDLE_TYPE_OPAQUE_FD, own)
            gl.check(f"glImportMemoryFdEXT of {size} bytes")
            own = -1  # OpenGL owns it only where the import succeeded
            buffer = gl.generate("glGenBuffers")
            before = gl.integer(glapi.TEXTURE_BUFFER_BINDING)
            gl.glBindBuffer(glapi.TEXTURE_BUFFER, buffer)
            gl.glBufferStorageMemEXT(glapi.TEXTURE_BUFFER, size, memory, 0)
            gl.glBindBuffer(glapi.TEXTURE_BUFFER, before)
            gl.check(f"glBufferStorageMemEXT of {size} bytes")
        except SharingError:
            if own >= 0:
                os.close(own)
            gl.delete("glDeleteBuffers", [buffer])
            gl.delete("glDeleteMemoryObjectsEXT", [memory])
            raise
        self._buffers[piece] = buffer, memory
        return buffer

    def release(self) -> None:
        """Delete the buffers. Idempotent. OpenGL keeps what a submitted drawing still reads."""
        gl = GL.current()
        made = list(self._buffers.values())
        self._buffers.clear()
        gl.delete("glDeleteBuffers", [buffer for buffer, _ in made])
        gl.delete("glDeleteMemoryObjectsEXT", [memory for _, memory in made])


class BufferSource(PixelSource):
    """A picture in OpenGL buffers. It owns its buffer textures."""

    def __init__(
        self,
        memory: GlMemory,
        form: Form,
        strides: tuple[int, ...],
        offset: int,
        ready: Callable[[], None] | None = None,
    ) -> None:
        """As `plan_access`. `ready` is called before each drawing, to wait for the data. Raises SharingError."""
        gl = GL.current()
        self.memory = memory
        access = plan_access(
            form,
            strides,
            offset,
            memory.sizes,
            gl.integer(glapi.MAX_TEXTURE_BUFFER_SIZE),
        )
        self.access = access
        super().__init__(
            form,
            "SOURCE_BUFFER",
            access.fetch,
            f"PIECES {len(access.pieces)}",
            *((f"STEP {access.column}",) if access.column <= _SHORT_STEP else ()),
            *(("AT_START",) if access.base == 0 else ()),
        )
        self._ready = ready
        self._textures: list[int] = []
        for k, piece in enumerate(access.pieces):
            start, size = (
                (access.start, access.size) if k == 0 else (0, memory.sizes[piece])
            )
            buffer = memory.buffer(piece)
            gl.clear_errors()
            self._textures.append(gl.generate("glGenTextures"))
            before = gl.integer(glapi.TEXTURE_BINDING_BUFFER)
            gl.glBindTexture(glapi.TEXTURE_BUFFER, self._textures[-1])
            gl.glTexBufferRange(
                glapi.TEXTURE_BUFFER, access.format, buffer, start, size
            )
            gl.glBindTexture(glapi.TEXTURE_BUFFER, before)
            try:
                gl.check(f"a buffer texture over {size} bytes from {start} on")
            except SharingError:
                self.release()
                raise

    def bind(self, program: moderngl.Program, unit: int = 0) -> None:
        if self._ready is not None:
            self._ready()
        gl = GL.current()
        access = self.access
        for k, texture in enumerate(self._textures):
            gl.glActiveTexture(glapi.TEXTURE0 + unit + k)
            gl.glBindTexture(glapi.TEXTURE_BUFFER, texture)
        set_units(program, len(access.pieces), unit)
        for name, value in (
            ("size", self.size),
            ("base", access.base),
            ("row", access.row),
            ("column", access.column),
            ("plane", access.plane),
        ):
            set_uniform(program, f"u_source_{name}", value)
        if len(access.cuts) > 1:
            set_uniform(program, "u_source_cuts", access.cuts)

    def release(self) -> None:
        """Delete its textures. Idempotent. OpenGL keeps what a submitted drawing still reads."""
        names = self._textures
        self._textures = []
        GL.current().delete("glDeleteTextures", names)
