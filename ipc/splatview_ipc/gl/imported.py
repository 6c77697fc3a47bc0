"""The bridge over memory of this process that CUDA writes and OpenGL reads, imported once: nothing is ever mapped.

CUDA's work is awaited on this thread just before something is drawn from it (an event), and a slot is written again
only when OpenGL has finished with it (a fence); with three slots neither takes long.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda import driver
from splatview_ipc.gl.base import DTYPES, Form, local_tensor
from splatview_ipc.gl.buffers import BufferSource, GlMemory
from splatview_ipc.gl.direct import require_import
from splatview_ipc.gl.glapi import GL
from splatview_ipc.shm.slot_layout import dtype_name

if TYPE_CHECKING:
    import moderngl
    import torch

    from splatview_ipc.gl.base import Pixels

_SLOTS = 3
_PAGE = 4096
"""Slots start at a multiple of this many bytes: every alignment that OpenGL asks for divides it."""


class _Slot:
    """A place for one picture in a canvas's memory, and what was made over it."""

    def __init__(self, memory: _Memory, offset: int, device: int) -> None:
        self.memory = memory
        self.offset = offset
        self._device = device
        with driver.context(device):
            self._event: Any = driver.handle(
                "cuEventCreate",  # torch's cost several times as much
                int(driver.bindings().CUevent_flags.CU_EVENT_DISABLE_TIMING),
            )
        self._due = False
        """True from `written` until the event was awaited."""
        self._fence = 0
        self._bound = False
        """True once OpenGL read it since the last fence."""
        self.views: dict[Form, tuple[torch.Tensor, BufferSource]] = {}

    def written(self) -> None:
        """CUDA got its work, on torch's current stream. Never waits."""
        self._due = True
        stream = driver.current_stream(self._device)
        driver.in_stream(
            self._device,
            stream,
            "cuEventRecord",
            self._event,
            driver.stream_object(stream),
        )

    def await_cuda(self) -> None:
        """Wait until it is written: OpenGL reads it next."""
        self._bound = True
        if self._due:
            driver.call(
                "cuEventSynchronize", self._event
            )  # it polls without pause: a thread that sleeps wakes late
            self._due = False

    def set_fence(self) -> None:
        """Behind everything that reads it, if anything does."""
        if self._bound:
            GL.current().glDeleteSync(self._fence)
            self._fence = GL.current().fence()
            self._bound = False

    def await_gl(self) -> None:
        """Wait until OpenGL has read it: CUDA writes it next."""
        fence = self._fence
        self._fence = 0
        if fence:
            GL.current().wait_fence(fence)

    def close(self) -> None:
        GL.current().glDeleteSync(self._fence)
        for _, source in self.views.values():
            source.release()
        self.views.clear()
        with driver.context(self._device):
            driver.release("cuEventDestroy", self._event)


class _Memory:
    """Three slots for pictures of one size, as tensors and as an OpenGL buffer over the same bytes."""

    def __init__(self, slot_size: int, device: int) -> None:
        """Raises SharingError when the memory cannot be made or imported."""
        from splatview_ipc.cuda.memory import Allocation

        self.allocation: Allocation = Allocation(
            slot_size * _SLOTS, device
        )  # freed with its last reference
        fd = self.allocation.fd()
        try:
            self.gl: GlMemory = GlMemory([(fd, self.allocation.size)])
            self.gl.buffer(0)
        finally:
            os.close(fd)
        self.slots = [_Slot(self, k * slot_size, device) for k in range(_SLOTS)]

    def release(self) -> None:
        """Delete it; only OpenGL's work is awaited here."""
        for slot in self.slots:
            slot.close()
        GL.current().glFinish()
        self.gl.release()
        self.allocation.close()


class ImportBridge:
    """One copy on the GPU, into memory that OpenGL reads. Also a canvas: CUDA draws into that memory."""

    name: ClassVar[str] = "import"

    def __init__(self, ctx: moderngl.Context, gpu_uuid: str | None = None) -> None:
        """`gpu_uuid`: the GPU on which CUDA will draw. Raises SharingError unless OpenGL draws there, too, and can
        import this process's GPU memory.
        """
        uuid = require_import(ctx)
        if gpu_uuid not in (None, uuid):
            raise SharingError(
                f"CUDA would draw on GPU {gpu_uuid}, OpenGL draws on {uuid}"
            )
        self._device = driver.here(uuid)
        self._memories: dict[int, _Memory] = {}
        """By the size of their slots: those with the last two pictures, and the one that is drawn into."""
        self._front: _Slot | None = None
        self._before: _Slot | None = None
        self._begun: tuple[_Slot, Form] | None = None

    def put(self, tensor: Pixels, layout: str) -> BufferSource:
        import torch

        values = local_tensor(tensor)
        if values.device.index != self._device:
            values = values.to(torch.device("cuda", self._device), non_blocking=True)
        form = Form.of(tuple(values.shape), dtype_name(values), layout)
        with torch.cuda.device(self._device), torch.no_grad():
            target = self.begin(form.height, form.width, form.channels, form.dtype)
            target.copy_(
                values.unsqueeze(-1)
                if layout == "HW"
                else values.movedim(0, -1)
                if layout == "CHW"
                else values
            )
            return self.show()

    def begin(
        self, height: int, width: int, channels: int = 4, dtype: str = "float16"
    ) -> torch.Tensor:
        form = Form.of((height, width, channels), dtype, "HWC")
        # pixels that a shader reads with one fetch
        if channels == 3 and dtype != "float32":
            room = 4
        else:
            room = channels
        size = -(-height * width * room * DTYPES[dtype].item // _PAGE) * _PAGE
        if size not in self._memories:
            self._memories[size] = _Memory(size, self._device)
        for slot in (
            slot for memory in self._memories.values() for slot in memory.slots
        ):
            slot.set_fence()
        slot = next(
            s
            for s in self._memories[size].slots
            if s is not self._front and s is not self._before
        )
        slot.await_gl()
        self._begun = slot, form
        if form not in slot.views:
            whole = slot.memory.allocation.tensor(
                dtype, (height, width, room), slot.offset
            )
            source = BufferSource(
                slot.memory.gl,
                form,
                (width * room, room, 1),
                slot.offset,
                slot.await_cuda,
            )
            slot.views[form] = whole[..., :channels], source
        return slot.views[form][0]

    def show(self, *, finished: bool = False) -> BufferSource:
        if self._begun is None:
            raise SharingError("show() without begin()")
        (slot, form), self._begun = self._begun, None
        if not finished:
            slot.written()
        self._before = self._front
        self._front = slot
        shown = [
            slot.memory for slot in (self._front, self._before) if slot is not None
        ]
        for size, memory in list(
            self._memories.items()
        ):  # pictures of two sizes may take turns
            if memory not in shown:
                memory.release()
                del self._memories[size]
        return slot.views[form][1]

    def undo(self) -> None:
        self._front = self._before
        self._before = None

    def close(self) -> None:
        for memory in self._memories.values():
            memory.release()
        self._memories.clear()
        self._front = None
        self._before = None
        self._begun = None
