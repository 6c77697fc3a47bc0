"""The bridge that copies nothing: the shader reads another process's GPU memory.

No CUDA call is made in this process, so that a viewer of images needs no CUDA context
(hundreds of MB). Reading is not ordered with the writer's GPU work: the caller knows
that the data is there, and keeps the frame while it is drawn.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import DeviceTensor
from splatview_ipc.gl.base import Form
from splatview_ipc.gl.buffers import BufferSource, GlMemory
from splatview_ipc.gl.glapi import gl_device_uuid

if TYPE_CHECKING:
    import moderngl

    from splatview_ipc.control.frame import DeviceMemory
    from splatview_ipc.gl.base import Pixels

_NEEDED = ("GL_EXT_memory_object", "GL_EXT_memory_object_fd")


def require_import(ctx: moderngl.Context, *more: str) -> str:
    """Return the UUID of the GPU on which this OpenGL draws and imports memory.

    Raises SharingError when it cannot, or lacks `more` extensions.
    """
    missing = [name for name in (*_NEEDED, *more) if name not in ctx.extensions]
    renderer = ctx.info["GL_RENDERER"]
    if missing:
        raise SharingError(f"OpenGL ({renderer}) has no {' and no '.join(missing)}")
    uuid = gl_device_uuid(ctx)
    if uuid is None or not ctx.info["GL_VENDOR"].startswith("NVIDIA"):
        raise SharingError(f"OpenGL runs on {renderer}, not on an NVIDIA GPU")
    return uuid


class _Imported(NamedTuple):
    """Memory of another process that was imported into OpenGL."""

    owner: weakref.ref[DeviceMemory]
    memory: GlMemory


class DirectBridge:
    """Has the shader read another process's GPU memory."""

    name: ClassVar[str] = "direct"

    def __init__(self, ctx: moderngl.Context) -> None:
        """Check the context. Raises SharingError when it cannot import memory."""
        self._uuid = require_import(ctx)
        self._imported: list[_Imported] = []
        self._sources: list[BufferSource] = []
        """The last two."""

    def put(self, tensor: Pixels, layout: str) -> BufferSource:
        """Make a picture readable; see `Bridge.put`."""
        if not isinstance(tensor, DeviceTensor) or not tensor.memory.pieces:
            raise SharingError(
                "OpenGL can import memory that comes with file descriptors only (the "
                "trainer's rings, and its own tensors with "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)"
            )
        memory = tensor.memory
        if memory.gpu != self._uuid:
            raise SharingError(
                f"the tensor is on GPU {memory.gpu}, OpenGL draws on {self._uuid}"
            )
        form = Form.of(tensor.shape, tensor.dtype, layout)
        gl_memory = self._import(memory)
        strides = tuple(tensor.strides)
        if len(self._sources) == 2:
            self._sources.pop(0).release()
        self._sources.append(BufferSource(gl_memory, form, strides, tensor.offset))
        self._release_unused()
        return self._sources[-1]

    def _import(self, memory: DeviceMemory) -> GlMemory:
        """Import a memory into OpenGL, once. Raises SharingError."""
        for imported in self._imported:
            if imported.owner() is memory:
                return imported.memory
        gl_memory = GlMemory([(piece.fd, piece.size) for piece in memory.pieces])
        self._imported.append(_Imported(weakref.ref(memory), gl_memory))
        return gl_memory

    def _release_unused(self) -> None:
        """Release memory that is closed and not drawn from, so that it is freed."""
        for imported in self._imported[:]:
            is_drawn = any(s.memory is imported.memory for s in self._sources)
            if imported.owner() is None and not is_drawn:
                imported.memory.release()
                self._imported.remove(imported)

    def undo(self) -> None:
        """Drop the last picture; see `Bridge.undo`."""
        if self._sources:
            self._sources.pop().release()

    def close(self) -> None:
        """Release everything. Idempotent."""
        for source in self._sources:
            source.release()
        for imported in self._imported:
            imported.memory.release()
        self._sources.clear()
        self._imported.clear()
