"""The bridge that copies nothing: the shader reads another process's GPU memory in place.

No CUDA call is made in this process, so that a viewer of images needs no CUDA context (hundreds of MB). Reading is not
ordered with the writer's GPU work: the caller knows that the data is there, and keeps the frame while it is drawn.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, ClassVar

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.base import Form
from splatview_ipc.gl.buffers import BufferSource, GlMemory
from splatview_ipc.gl.glapi import gl_device_uuid

if TYPE_CHECKING:
    import moderngl

    from splatview_ipc.control.frame import DeviceMemory
    from splatview_ipc.gl.base import Pixels

_NEEDED = ("GL_EXT_memory_object", "GL_EXT_memory_object_fd")


def require_import(ctx: moderngl.Context, *more: str) -> str:
    """The UUID of the GPU on which this OpenGL draws and imports memory. Raises SharingError when it cannot, or lacks
    `more` extensions.
    """
    missing = [e for e in (*_NEEDED, *more) if e not in ctx.extensions]
    if missing:
        raise SharingError(
            f"OpenGL ({ctx.info['GL_RENDERER']}) has no {' and no '.join(missing)}"
        )
    uuid = gl_device_uuid(ctx)
    if uuid is None or not ctx.info["GL_VENDOR"].startswith("NVIDIA"):
        raise SharingError(
            f"OpenGL runs on {ctx.info['GL_RENDERER']}, not on an NVIDIA GPU"
        )
    return uuid


class DirectBridge:
    name: ClassVar[str] = "direct"

    def __init__(self, ctx: moderngl.Context) -> None:
        """Raises SharingError when this OpenGL cannot import memory."""
        self._uuid = require_import(ctx)
        self._memories: list[tuple[weakref.ref[DeviceMemory], GlMemory]] = []
        self._sources: list[BufferSource] = []
        """The last two."""

    def put(self, tensor: Pixels, layout: str) -> BufferSource:
        memory: DeviceMemory | None = getattr(tensor, "memory", None)
        if memory is None or not memory.pieces:
            raise SharingError(
                "OpenGL can import memory that comes with file descriptors only (the trainer's rings, "
                "and its own tensors with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)"
            )
        if memory.gpu != self._uuid:
            raise SharingError(
                f"the tensor is on GPU {memory.gpu}, OpenGL draws on {self._uuid}"
            )
        form = Form.of(tensor.shape, tensor.dtype, layout)  # type: ignore[arg-type]  # a DeviceTensor has memory
        imported = next(
            (known for owner, known in self._memories if owner() is memory), None
        )
        if imported is None:
            imported = GlMemory([(piece.fd, piece.size) for piece in memory.pieces])
            self._memories.append((weakref.ref(memory), imported))
        strides, offset = tuple(tensor.strides), tensor.offset  # type: ignore[union-attr]
        if len(self._sources) == 2:
            self._sources.pop(0).release()
        self._sources.append(BufferSource(imported, form, strides, offset))
        for entry in self._memories[:]:
            if entry[0]() is None and not any(
                source.memory is entry[1] for source in self._sources
            ):
                entry[1].release()  # so that the process that made it gets it back
                self._memories.remove(entry)
        return self._sources[-1]

    def undo(self) -> None:
        if self._sources:
            self._sources.pop().release()

    def close(self) -> None:
        for source in self._sources:
            source.release()
        for _, imported in self._memories:
            imported.release()
        self._sources.clear()
        self._memories.clear()
