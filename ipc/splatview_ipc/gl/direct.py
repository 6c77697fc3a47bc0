"""The bridge that copies nothing: the shader reads another process's GPU memory in place.

OpenGL imports the memory by its file descriptors. No CUDA call is made in this process, so that a viewer of images
needs no CUDA context (hundreds of MB). Reading is not ordered with the writer's GPU work: whoever hands a tensor in
knows that its data is there, and keeps the frame for as long as the source is drawn.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, ClassVar

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.base import Form
from splatview_ipc.gl.buffers import BufferSource, GlMemory, Limits, import_memory
from splatview_ipc.gl.glapi import gl_device_uuid

if TYPE_CHECKING:
    import moderngl

    from splatview_ipc.control.frame import DeviceMemory
    from splatview_ipc.gl.base import Pixels

NEEDED = ("GL_EXT_memory_object", "GL_EXT_memory_object_fd")


def require_import(ctx: moderngl.Context) -> str:
    """The UUID of the GPU on which this OpenGL draws and imports memory. Raises SharingError when it cannot."""
    missing = [e for e in NEEDED if e not in ctx.extensions]
    if missing:
        raise SharingError(f"OpenGL ({ctx.info['GL_RENDERER']}) has no {' and no '.join(missing)}")
    uuid = gl_device_uuid(ctx)
    if uuid is None or not ctx.info["GL_VENDOR"].startswith("NVIDIA"):
        raise SharingError(f"OpenGL runs on {ctx.info['GL_RENDERER']}, not on an NVIDIA GPU")
    return uuid


_MAX_SOURCES = 64


class DirectBridge:
    name: ClassVar[str] = "direct"

    def __init__(self, ctx: moderngl.Context) -> None:
        """Raises SharingError when this OpenGL cannot import memory."""
        self._uuid = require_import(ctx)
        self._limits = Limits.of(ctx)
        self._memories: list[tuple[weakref.ref[DeviceMemory], GlMemory]] = []
        self._sources: dict[tuple[Any, ...], BufferSource] = {}  # a ring's slots come again and again
        self._in_use: list[GlMemory] = []  # what the last two sources read

    @staticmethod
    def trial(ctx: moderngl.Context) -> None:
        """Raises SharingError with the reason why this context cannot; only another process's memory can prove it."""
        require_import(ctx)

    def put(self, tensor: Pixels, layout: str) -> BufferSource:
        memory: DeviceMemory | None = getattr(tensor, "memory", None)
        if memory is None or not memory.pieces:
            raise SharingError("OpenGL can import memory that comes with file descriptors only (the trainer's rings, "
                               "and its own tensors with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)")
        if memory.gpu != self._uuid:
            raise SharingError(f"the tensor is on GPU {memory.gpu}, OpenGL draws on {self._uuid}")
        form = Form.of(tensor.shape, tensor.dtype, layout)  # type: ignore[arg-type]  # a DeviceTensor has memory
        imported = self._imported(memory)
        strides, offset = tuple(tensor.strides), tensor.offset  # type: ignore[union-attr]
        key = id(imported), form, strides, offset
        source = self._sources.get(key)
        if source is None:
            if len(self._sources) >= _MAX_SOURCES:
                self._sources.clear()
            source = self._sources[key] = BufferSource(imported, form, strides, offset, self._limits)
        self._in_use = [*self._in_use[-1:], imported]
        self._sweep()
        return source

    def undo(self) -> None:
        """Nothing was written."""

    def _imported(self, memory: DeviceMemory) -> GlMemory:
        """OpenGL's side of a memory, made once and kept while the memory is."""
        for known, imported in self._memories:
            if known() is memory:
                return imported
        imported = import_memory([(piece.fd, piece.size) for piece in memory.pieces])
        self._memories.append((weakref.ref(memory), imported))
        return imported

    def _sweep(self) -> None:
        """Let go of memory that is gone, so that whoever made it gets it back."""
        kept = []
        for memory, imported in self._memories:
            if memory() is None and not any(imported is used for used in self._in_use):
                imported.release()
                self._sources.clear()
            else:
                kept.append((memory, imported))
        self._memories = kept

    def close(self) -> None:
        for _, imported in self._memories:
            imported.release()
        self._memories.clear()
        self._sources.clear()
        self._in_use.clear()
