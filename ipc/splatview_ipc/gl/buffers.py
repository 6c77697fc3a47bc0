"""GPU memory as OpenGL buffers, and a picture in it read through buffer textures.

`plan_access` chooses the fewest fetches per pixel: on a data-centre GPU three take
three times as long as one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import accumulate
from math import lcm
from typing import TYPE_CHECKING, NamedTuple

from splatview_ipc.control.dtypes import DTYPES
from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl import glapi
from splatview_ipc.gl.base import PixelSource
from splatview_ipc.gl.glapi import GL
from splatview_ipc.gl.sources import set_uniform, set_units

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import moderngl

    from splatview_ipc.gl.base import Form, ShaderProgram

MAX_PIECES = 8
"""Pieces of memory that one picture may span.

OpenGL 3.3 has 16 texture units for a fragment shader.
"""
_SHORT_STEP = 16
"""Steps from one pixel to the next up to this are compiled in.

Others would make a program for every stride.
"""
TEXEL_FORMATS = {
    # R8, RG8, RGBA8
    ("uint8", 1): 0x8229,
    ("uint8", 2): 0x822B,
    ("uint8", 4): 0x8058,
    # R16, RG16, RGBA16
    ("uint16", 1): 0x822A,
    ("uint16", 2): 0x822C,
    ("uint16", 4): 0x805B,
    # R16F, RG16F, RGBA16F
    ("float16", 1): 0x822D,
    ("float16", 2): 0x822F,
    ("float16", 4): 0x881A,
    # R16UI, RG16UI, RGBA16UI
    ("bfloat16", 1): 0x8234,
    ("bfloat16", 2): 0x823A,
    ("bfloat16", 4): 0x8D76,
    # R32F .. RGBA32F
    ("float32", 1): 0x822E,
    ("float32", 2): 0x8230,
    ("float32", 3): 0x8815,
    ("float32", 4): 0x8814,
}
"""OpenGL's names of formats, by dtype and values in a texel."""
_TRANSFERS = {
    TEXEL_FORMATS["uint8", 4]: (glapi.RGBA, glapi.UNSIGNED_BYTE),
    TEXEL_FORMATS["float32", 1]: (glapi.RED, glapi.FLOAT),
}
"""Formats of texels that are copied to textures as they are: OpenGL's names of their
channels and their type."""
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
    """First byte of the first piece that its texture covers."""
    size: int
    """Bytes of the first piece that its texture covers."""
    base: int
    """The first pixel's texel."""
    row: int
    """Texels from one row to the next."""
    column: int
    """Texels from one column to the next."""
    plane: int
    """Texels from one channel to the next; 0: they are in one texel."""
    cuts: tuple[int, ...]
    """The texel at which each piece starts."""


class _Steps(NamedTuple):
    """The distances of a picture's values, in elements."""

    row: int
    column: int
    plane: int


class _BufferWindow(NamedTuple):
    """The bytes of a piece that a texture covers."""

    start: int
    size: int


def plan_access(
    form: Form,
    strides: tuple[int, ...],
    offset: int,
    sizes: Sequence[int],
    max_texels: int,
) -> Access:
    """Return the way to read a picture with the fewest fetches per pixel.

    Args:
        form: shape and dtype of the picture.
        strides: in elements, one for each dimension of its layout.
        offset: bytes from the start of the memory.
        sizes: bytes of the memory's pieces.
        max_texels: number of texels that a buffer texture can have.

    Raises:
        SharingError: the picture is not within the memory, or OpenGL cannot address it.
    """
    item = DTYPES[form.dtype].item_size
    steps = _Steps(
        row=strides[form.layout.index("H")],
        column=strides[form.layout.index("W")],
        plane=strides[form.layout.index("C")] if "C" in form.layout else 1,
    )
    end = offset + item * _extent(form, steps)
    if min(*steps, offset) < 0 or offset % item or end > sum(sizes):
        raise SharingError(
            f"a picture at byte {offset} with strides {strides} does not lie within "
            f"{sum(sizes)} bytes"
        )
    starts = list(accumulate(sizes, initial=0))[:-1]
    first = max(k for k, start in enumerate(starts) if start <= offset)
    pieces = tuple(k for k, start in enumerate(starts) if k >= first and start < end)
    if len(pieces) > MAX_PIECES:
        raise SharingError(
            f"the picture spans {len(pieces)} pieces of memory; a shader reads "
            f"{MAX_PIECES}"
        )
    offset -= starts[first]
    end -= starts[first]
    piece_sizes = [sizes[k] for k in pieces]
    # Texels of whole pixels take one fetch; else each value is a texel.
    for pixel_values in (*_pixel_texels(form, steps.plane), 0):
        texel_values = pixel_values or 1
        texel = texel_values * item
        window = _window(offset, end, piece_sizes, texel, max_texels)
        if window is None or steps.row * item % texel or steps.column * item % texel:
            continue
        return Access(
            fetch="FETCH_TEXEL" if pixel_values else "FETCH_ELEMENT",
            format=TEXEL_FORMATS[form.dtype, texel_values],
            pieces=pieces,
            start=window.start,
            size=window.size,
            base=(offset - window.start) // texel,
            row=steps.row * item // texel,
            column=steps.column * item // texel,
            plane=0 if pixel_values else steps.plane,
            cuts=tuple((starts[k] - starts[first]) // texel for k in pieces),
        )
    raise SharingError(
        f"the picture spans {end - offset} bytes; this OpenGL's buffer textures have "
        f"{max_texels} texels"
    )


def _extent(form: Form, steps: _Steps) -> int:
    """Return how many elements of memory a picture spans, with gaps between rows."""
    last_row = (form.height - 1) * steps.row
    last_column = (form.width - 1) * steps.column
    last_plane = (form.channels - 1) * steps.plane
    return last_row + last_column + last_plane + 1


def _pixel_texels(form: Form, plane: int) -> list[int]:
    """Return the numbers of values of texels that may hold whole pixels."""
    if form.channels > 1 and plane != 1:
        return []
    counts = range(form.channels, 5)
    return [n for n in counts if (form.dtype, n) in TEXEL_FORMATS]


def _window(
    offset: int, end: int, sizes: Sequence[int], texel: int, max_texels: int
) -> _BufferWindow | None:
    """Return the part of the first piece that a texture covers; None where none can.

    It starts at the first pixel if possible: adding its place is an instruction per
    pixel.

    Args:
        offset: bytes from the start of the first piece to the picture.
        end: offset of the first byte after the picture.
        sizes: bytes of the pieces.
        texel: bytes of a texel.
        max_texels: number of texels that a texture can have.
    """
    if len(sizes) > 1:
        fits = all(size // texel <= max_texels for size in sizes)
        is_aligned = offset % texel == 0 and all(s % texel == 0 for s in sizes[:-1])
        return _BufferWindow(0, sizes[0]) if fits and is_aligned else None
    start = offset
    if offset % _ALIGNMENT:
        step = lcm(_ALIGNMENT, texel)
        start = offset // step * step
    if (offset - start) % texel:
        return None
    texels = -(-(end - start) // texel)
    covered = texels * texel
    if start + covered > sizes[0] or texels > max_texels:
        return None
    return _BufferWindow(start, covered)


class _GlBuffer(NamedTuple):
    """OpenGL's names of a buffer over imported memory."""

    buffer: int
    memory: int
    """Its memory object."""


class GlMemory:
    """Consecutive pieces of GPU memory as OpenGL buffers.

    They are imported when they are first read.
    """

    def __init__(self, pieces: Sequence[tuple[int, int]]) -> None:
        """Take pieces, each a POSIX descriptor and its bytes, in order.

        The descriptors stay the caller's.
        """
        self.sizes = tuple(size for _, size in pieces)
        self._pieces = pieces
        self._buffers: dict[int, _GlBuffer] = {}
        """Buffers by the piece of memory that each one imports."""

    def buffer(self, piece: int) -> int:
        """Return OpenGL's name of the buffer over a piece. Raises SharingError."""
        if piece in self._buffers:
            return self._buffers[piece].buffer
        gl = GL.current()
        fd, size = self._pieces[piece]
        gl.clear_errors()
        memory = gl.generate("glCreateMemoryObjectsEXT")
        own_fd = os.dup(fd)
        buffer = 0
        try:
            gl.glImportMemoryFdEXT(memory, size, glapi.HANDLE_TYPE_OPAQUE_FD, own_fd)
            gl.check(f"glImportMemoryFdEXT of {size} bytes")
            own_fd = -1  # OpenGL owns it only where the import succeeded
            buffer = gl.generate("glGenBuffers")
            last_buffer = gl.integer(glapi.TEXTURE_BUFFER_BINDING)
            gl.glBindBuffer(glapi.TEXTURE_BUFFER, buffer)
            gl.glBufferStorageMemEXT(glapi.TEXTURE_BUFFER, size, memory, 0)
            gl.glBindBuffer(glapi.TEXTURE_BUFFER, last_buffer)
            gl.check(f"glBufferStorageMemEXT of {size} bytes")
        except SharingError:
            if own_fd >= 0:
                os.close(own_fd)
            gl.delete("glDeleteBuffers", [buffer])
            gl.delete("glDeleteMemoryObjectsEXT", [memory])
            raise
        self._buffers[piece] = _GlBuffer(buffer, memory)
        return buffer

    def release(self) -> None:
        """Delete the buffers. Idempotent.

        OpenGL keeps what a submitted drawing still reads.
        """
        gl = GL.current()
        buffers = list(self._buffers.values())
        self._buffers.clear()
        gl.delete("glDeleteBuffers", [b.buffer for b in buffers])
        gl.delete("glDeleteMemoryObjectsEXT", [b.memory for b in buffers])


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
        """Make the textures.

        Args:
            memory: the memory that the picture is in.
            form: shape and dtype of the picture.
            strides: as for `plan_access`.
            offset: as for `plan_access`.
            ready: called last before each drawing, to wait for the data.

        Raises:
            SharingError: OpenGL cannot read the picture.
        """
        gl = GL.current()
        self.memory = memory
        max_texels = gl.integer(glapi.MAX_TEXTURE_BUFFER_SIZE)
        access = plan_access(form, strides, offset, memory.sizes, max_texels)
        self.access = access
        defines = ["SOURCE_BUFFER", access.fetch, f"PIECES {len(access.pieces)}"]
        if access.column <= _SHORT_STEP:
            defines.append(f"STEP {access.column}")
        if access.base == 0:
            defines.append("AT_START")
        super().__init__(form, *defines)
        self._ready = ready
        self._textures: list[int] = []
        for k, piece in enumerate(access.pieces):
            window = _BufferWindow(0, memory.sizes[piece])
            if k == 0:
                window = _BufferWindow(access.start, access.size)
            self._add_texture(piece, window)

    def _add_texture(self, piece: int, window: _BufferWindow) -> None:
        """Make a buffer texture over a part of a piece. Raises SharingError."""
        gl = GL.current()
        buffer = self.memory.buffer(piece)
        gl.clear_errors()
        texture = gl.generate("glGenTextures")
        self._textures.append(texture)
        last_texture = gl.integer(glapi.TEXTURE_BINDING_BUFFER)
        gl.glBindTexture(glapi.TEXTURE_BUFFER, texture)
        gl.glTexBufferRange(
            glapi.TEXTURE_BUFFER,
            self.access.format,
            buffer,
            window.start,
            window.size,
        )
        gl.glBindTexture(glapi.TEXTURE_BUFFER, last_texture)
        try:
            gl.check(
                f"a buffer texture over {window.size} bytes from {window.start} on"
            )
        except SharingError:
            self.release()
            raise

    def bind(self, program: ShaderProgram, unit: int = 0) -> None:
        """Bind the textures and set the uniforms; see `PixelSource.bind`."""
        gl = GL.current()
        access = self.access
        for k, texture in enumerate(self._textures):
            gl.glActiveTexture(glapi.TEXTURE0 + unit + k)
            gl.glBindTexture(glapi.TEXTURE_BUFFER, texture)
        set_units(program, len(access.pieces), unit)
        set_uniform(program, "u_source_size", self.size)
        set_uniform(program, "u_source_base", access.base)
        set_uniform(program, "u_source_row", access.row)
        set_uniform(program, "u_source_column", access.column)
        set_uniform(program, "u_source_plane", access.plane)
        if len(access.cuts) > 1:
            set_uniform(program, "u_source_cuts", access.cuts)
        if self._ready is not None:
            self._ready()

    def copy_to(self, texture: moderngl.Texture) -> bool:
        """Copy the pixels to a texture; see `PixelSource.copy_to`."""
        access = self.access
        is_row_whole = access.column == 1 and access.row >= self.size[0]
        if len(access.pieces) != 1 or access.plane or not is_row_whole:
            return False
        own_format = TEXEL_FORMATS.get((self.dtype, self.channels))
        # A texel may have a value more than the picture has channels.
        if access.format != own_format or own_format not in _TRANSFERS:
            return False
        channels, number_type = _TRANSFERS[own_format]
        if self._ready is not None:
            self._ready()
        gl = GL.current()
        texel = self.channels * DTYPES[self.dtype].item_size
        texture.use(0)
        gl.glActiveTexture(glapi.TEXTURE0)
        gl.glPixelStorei(glapi.UNPACK_ALIGNMENT, 1)
        gl.glPixelStorei(glapi.UNPACK_ROW_LENGTH, access.row)
        gl.glBindBuffer(glapi.PIXEL_UNPACK_BUFFER, self.memory.buffer(access.pieces[0]))
        gl.glTexSubImage2D(
            glapi.TEXTURE_2D,
            0,
            0,
            0,
            *self.size,
            channels,
            number_type,
            access.start + access.base * texel,
        )
        gl.glBindBuffer(glapi.PIXEL_UNPACK_BUFFER, 0)
        gl.glPixelStorei(glapi.UNPACK_ROW_LENGTH, 0)
        return True

    def release(self) -> None:
        """Delete its textures. Idempotent.

        OpenGL keeps what a submitted drawing still reads.
        """
        textures = self._textures
        self._textures = []
        GL.current().delete("glDeleteTextures", textures)
