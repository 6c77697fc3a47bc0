"""Memory of this process that CUDA writes and OpenGL reads, imported once: no map or unmap per picture.

Order is kept by hand. The GPU's copy is waited for on this thread just before something is drawn from it (an event),
and a slot is written again only when OpenGL is through with it (a fence); with three slots neither takes long.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, ClassVar

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.base import Form
from splatview_ipc.gl.buffers import ITEM_SIZE, BufferSource, GlMemory, Limits, import_memory
from splatview_ipc.gl.direct import require_import
from splatview_ipc.gl.glapi import GL
from splatview_ipc.gl.order import CudaMark
from splatview_ipc.gl.readback import round_trip
from splatview_ipc.gl.tensors import cuda_tensor, dtype_name, fewest_values, height_width_channels

if TYPE_CHECKING:
    from collections.abc import Sequence

    import moderngl
    import torch

    from splatview_ipc.cuda.memory import Allocation
    from splatview_ipc.gl.base import Pixels

_SLOTS = 3
_PAGE = 4096
"""Slots start at a multiple of this many bytes: every alignment that OpenGL asks for divides it."""


class SharedBuffer:
    """GPU memory of ours, as tensors and as OpenGL buffers over the same bytes."""

    def __init__(self, size: int, device: int) -> None:
        """`size` in bytes. Raises SharingError when the memory cannot be made or imported."""
        from splatview_ipc.cuda.memory import Allocation

        self.allocation: Allocation = Allocation(size, device)
        self._fd = -1
        try:
            self._fd = self.allocation.fd()
            self.gl: GlMemory = import_memory([(self._fd, self.allocation.size)])
            self.gl.buffer(0)
        except BaseException:
            self.allocation.close()
            raise
        finally:
            if self._fd >= 0:
                os.close(self._fd)

    @property
    def size(self) -> int:
        return self.allocation.size

    def tensor(self, dtype: str, shape: Sequence[int], offset: int) -> torch.Tensor:
        """A writable CUDA tensor; `offset` in bytes."""
        return self.allocation.tensor(dtype, tuple(shape), offset)

    def release(self) -> None:
        """Delete it, when CUDA and OpenGL are through with it; only what was drawn is waited for here."""
        GL.current().glFinish()
        self.gl.release()
        self.allocation.close()


class _Slot:
    """One of the places in a canvas's memory: who still uses it, and what was made over it."""

    def __init__(self, memory: _Memory, offset: int, device: int) -> None:
        self.memory = memory
        self.offset = offset
        self.mark = CudaMark(device)
        self.due = False
        """Whether the mark was set and not waited for yet."""
        self.fence: int | None = None
        self.bound = False
        """Whether OpenGL was told to read it since the last fence."""
        self.tensors: dict[Form, torch.Tensor] = {}
        self.sources: dict[Form, BufferSource] = {}

    def set_fence(self) -> None:
        """Behind everything that reads it, if anything does."""
        if self.bound:
            self.drop_fence()
            self.fence, self.bound = GL.current().fence(), False

    def drop_fence(self) -> None:
        fence, self.fence = self.fence, None
        if fence is not None:
            GL.current().glDeleteSync(fence)


class _Memory:
    """Three slots for pictures of one size."""

    def __init__(self, slot_size: int, device: int) -> None:
        self.slot_size = slot_size
        self.shared = SharedBuffer(slot_size * _SLOTS, device)
        self.slots = [_Slot(self, k * slot_size, device) for k in range(_SLOTS)]

    def release(self) -> None:
        for slot in self.slots:
            slot.drop_fence()
            slot.tensors.clear()
            slot.sources.clear()
            slot.mark.close()
        self.shared.release()


class ImportedCanvas:
    """A canvas (see `canvas.Canvas`) whose pictures OpenGL reads where CUDA wrote them."""

    name: ClassVar[str] = "import"

    def __init__(self, ctx: moderngl.Context, gpu_uuid: str | None = None) -> None:
        """`gpu_uuid`: where CUDA will draw. Raises SharingError when that is not where OpenGL draws."""
        from splatview_ipc.cuda.driver import here

        uuid = require_import(ctx)
        if gpu_uuid not in (None, uuid):
            raise SharingError(f"CUDA would draw on GPU {gpu_uuid}, OpenGL draws on {uuid}")
        self.device = here(uuid)
        self.timings: dict[str, float] = {}
        self._limits = Limits.of(ctx)
        self._memories: list[_Memory] = []  # the last is the one in use; others hold pictures shown before
        self._front: _Slot | None = None
        self._before: _Slot | None = None
        self._begun: tuple[_Slot, Form] | None = None

    def begin(self, height: int, width: int, channels: int = 4, dtype: str = "float16") -> torch.Tensor:
        form = Form.of((height, width, channels), dtype, "HWC")
        room = fewest_values(form)
        size = -(-height * width * room * ITEM_SIZE[dtype] // _PAGE) * _PAGE
        if not self._memories or self._memories[-1].slot_size != size:
            self._use(size)
        for slot in (slot for memory in self._memories for slot in memory.slots):
            slot.set_fence()
        slot = next(s for s in self._memories[-1].slots if s is not self._front and s is not self._before)
        start = time.perf_counter()
        fence, slot.fence = slot.fence, None
        if fence is not None:
            GL.current().wait_fence(fence)
        self.timings["fence"] = (time.perf_counter() - start) * 1e3
        self._begun = slot, form
        if form not in slot.tensors:
            slot.tensors[form] = slot.memory.shared.tensor(dtype, (height, width, room), slot.offset)[..., :channels]
        return slot.tensors[form]

    def show(self, layout: str = "HWC", *, finished: bool = False) -> BufferSource:
        if self._begun is None:
            raise SharingError("show() without begin()")
        (slot, form), self._begun = self._begun, None
        slot.due = not finished
        if slot.due:
            slot.mark.record()
        if form not in slot.sources:
            room = fewest_values(form)
            slot.sources[form] = BufferSource(slot.memory.shared.gl, form, (form.width * room, room, 1), slot.offset,
                                              self._limits, lambda: self._wait(slot))
        source = slot.sources[form]
        source.layout = layout
        self._front, self._before = slot, self._front
        if len(self._memories) > 1:
            self._sweep()
        return source

    def _wait(self, slot: _Slot) -> None:
        slot.bound = True
        if slot.due:
            start = time.perf_counter()
            slot.mark.wait()
            slot.due = False
            self.timings["wait"] = (time.perf_counter() - start) * 1e3

    def undo(self) -> None:
        """As `Bridge.undo`."""
        self._front, self._before = self._before, None

    def _use(self, size: int) -> None:
        """Draw into slots of this size from now on: two sizes may take turns, for two who look."""
        memory = next((m for m in self._memories if m.slot_size == size), None)
        if memory is None:
            self._sweep()
            memory = _Memory(size, self.device)
        else:
            self._memories.remove(memory)
        self._memories.append(memory)

    def _sweep(self) -> None:
        """Give back the memory of other sizes that holds neither of the last two pictures."""
        shown = [slot.memory for slot in (self._front, self._before) if slot is not None]
        kept = [m for k, m in enumerate(self._memories) if m in shown or k == len(self._memories) - 1]
        for memory in self._memories:
            if memory not in kept:
                memory.release()
        self._memories = kept

    def close(self) -> None:
        for memory in self._memories:
            memory.release()
        self._memories.clear()
        self._front = self._before = self._begun = None


class ImportBridge:
    """One copy on the GPU, into memory that OpenGL reads."""

    name: ClassVar[str] = "import"

    def __init__(self, ctx: moderngl.Context) -> None:
        """Raises SharingError when OpenGL cannot import this process's GPU memory."""
        self._canvas = ImportedCanvas(ctx)

    @staticmethod
    def trial(ctx: moderngl.Context) -> None:
        """A picture goes to OpenGL and back. Raises SharingError when it cannot, or comes back different."""
        round_trip(ctx, ImportBridge)

    @property
    def timings(self) -> dict[str, float]:
        """Milliseconds that this thread waited for the last picture: "fence" for OpenGL, "wait" for CUDA."""
        return self._canvas.timings

    def put(self, tensor: Pixels, layout: str) -> BufferSource:
        values = cuda_tensor(tensor, self._canvas.device)
        form = Form.of(tuple(values.shape), dtype_name(values), layout)
        import torch

        with torch.cuda.device(self._canvas.device), torch.no_grad():
            target = self._canvas.begin(form.height, form.width, form.channels, form.dtype)
            target.copy_(height_width_channels(values, layout))
            return self._canvas.show(layout)

    def undo(self) -> None:
        self._canvas.undo()

    def close(self) -> None:
        self._canvas.close()
