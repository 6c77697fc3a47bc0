"""The bridge over memory of this process that CUDA writes and OpenGL reads.

The memory is imported once: nothing is ever mapped. CUDA's work is awaited on this
thread just before something is drawn from it (an event), and a slot is written again
only when OpenGL has finished with it (a fence); with three slots neither takes long.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from splatview_ipc.control.dtypes import DTYPES, dtype_name
from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda import driver
from splatview_ipc.gl.base import Form, local_tensor
from splatview_ipc.gl.buffers import BufferSource, GlMemory
from splatview_ipc.gl.direct import require_import
from splatview_ipc.gl.glapi import GL

if TYPE_CHECKING:
    from collections.abc import Callable

    import moderngl
    import torch

    from splatview_ipc.gl.base import Pixels

_SLOTS = 3
_PAGE = 4096
"""Slots start at a multiple of this many bytes.

Every alignment that OpenGL asks for divides it.
"""


class _SlotView(NamedTuple):
    """A slot as a picture of one form."""

    tensor: torch.Tensor
    source: BufferSource


class _Slot:
    """A slot for one picture in a canvas's memory, and what was made over it."""

    def __init__(self, memory: _Memory, offset: int, device: int) -> None:
        """Make the slot's event.

        Args:
            memory: the memory that the slot is in.
            offset: bytes from the memory's start.
            device: ordinal of the CUDA device.
        """
        self.memory = memory
        self.offset = offset
        self._device = device
        with driver.context(device):
            flags = driver.bindings().CUevent_flags.CU_EVENT_DISABLE_TIMING
            # torch's events cost several times as much.
            self._event: Any = driver.call_for_handle("cuEventCreate", int(flags))
        self._finish: Callable[[], object] | None = None
        """Waits until the picture is written; None: it is."""
        self._fence = 0
        self._was_bound = False
        """True once OpenGL read it since the last fence."""
        self.views: dict[Form, _SlotView] = {}

    def note_written(self, finish: Callable[[], object] | None) -> None:
        """Record that CUDA got its work. Never waits.

        Args:
            finish: as for `Canvas.show`.
        """
        self._finish = finish
        if finish is not None:
            return
        self._finish = self._await_event
        stream = driver.current_stream(self._device)
        driver.enqueue(
            self._device,
            stream,
            "cuEventRecord",
            self._event,
            driver.stream_object(stream),
        )

    def _await_event(self) -> None:
        # This polls without pause: a thread that sleeps wakes late.
        driver.call("cuEventSynchronize", self._event)

    def await_cuda(self) -> None:
        """Wait until it is written: OpenGL reads it next."""
        self._was_bound = True
        if self._finish is not None:
            self._finish()
            self._finish = None

    def set_fence(self) -> None:
        """Set a fence after everything that reads it, if anything does."""
        if self._was_bound:
            self._delete_fence()
            self._fence = GL.current().fence()
            self._was_bound = False

    def _delete_fence(self) -> None:
        if self._fence:
            GL.current().glDeleteSync(self._fence)
            self._fence = 0

    def await_gl(self) -> None:
        """Wait until OpenGL has read it: CUDA writes it next."""
        self.set_fence()
        fence = self._fence
        self._fence = 0
        if fence:
            GL.current().wait_fence(fence)

    def close(self) -> None:
        self._delete_fence()
        for view in self.views.values():
            view.source.release()
        self.views.clear()
        with driver.context(self._device):
            driver.call_quietly("cuEventDestroy", self._event)


class _Memory:
    """Three slots for pictures of one size.

    They can be used as tensors and as an OpenGL buffer over the same bytes.
    """

    def __init__(self, slot_size: int, device: int) -> None:
        """Allocate the slots.

        Raises SharingError when the memory cannot be made or imported.
        """
        from splatview_ipc.cuda.memory import ExportableMemory

        # Freed with its last reference.
        self.allocation: ExportableMemory = ExportableMemory(slot_size * _SLOTS, device)
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


class _Drawing(NamedTuple):
    """A picture that is being written."""

    slot: _Slot
    form: Form


class ImportBridge:
    """One copy on the GPU, into memory that OpenGL reads.

    Also a canvas: CUDA draws into that memory.
    """

    name: ClassVar[str] = "import"

    def __init__(self, ctx: moderngl.Context, gpu_uuid: str | None = None) -> None:
        """Make a bridge without memory.

        Args:
            ctx: the OpenGL context.
            gpu_uuid: the GPU on which CUDA will draw; by default OpenGL's.

        Raises:
            SharingError: OpenGL does not draw there, or cannot import this process's
                GPU memory.
        """
        uuid = require_import(ctx)
        if gpu_uuid not in (None, uuid):
            raise SharingError(
                f"CUDA would draw on GPU {gpu_uuid}, OpenGL draws on {uuid}"
            )
        self._device = driver.require_device(uuid)
        self._memories: dict[int, _Memory] = {}
        """By the size of their slots.

        Those with the last two pictures, and the one that is drawn into.
        """
        self._front: _Slot | None = None
        """The last picture."""
        self._previous: _Slot | None = None
        """The picture before."""
        self._drawing: _Drawing | None = None

    def put(self, tensor: Pixels, layout: str) -> BufferSource:
        """Copy a picture; see `Bridge.put`."""
        import torch

        values = local_tensor(tensor)
        if values.device.index != self._device:
            values = values.to(torch.device("cuda", self._device), non_blocking=True)
        form = Form.of(tuple(values.shape), dtype_name(values), layout)
        if layout == "HW":
            pixels = values.unsqueeze(-1)
        elif layout == "CHW":
            pixels = values.movedim(0, -1)
        else:
            pixels = values
        with torch.cuda.device(self._device), torch.no_grad():
            target = self.begin(form.height, form.width, form.channels, form.dtype)
            target.copy_(pixels)
            return self.show()

    def begin(
        self, height: int, width: int, channels: int = 4, dtype: str = "float16"
    ) -> torch.Tensor:
        """Return the next picture, for CUDA kernels to write; see `Canvas.begin`."""
        form = Form.of((height, width, channels), dtype, "HWC")
        # A shader reads pixels of four values with one fetch.
        pixel_values = 4 if channels == 3 and dtype != "float32" else channels
        size = height * width * pixel_values * DTYPES[dtype].item_size
        slot_size = -(-size // _PAGE) * _PAGE
        if slot_size not in self._memories:
            self._memories[slot_size] = _Memory(slot_size, self._device)
        slot = self._free_slot(self._memories[slot_size])
        slot.await_gl()
        self._drawing = _Drawing(slot, form)
        if form not in slot.views:
            slot.views[form] = _make_view(slot, form, pixel_values)
        return slot.views[form].tensor

    def _free_slot(self, memory: _Memory) -> _Slot:
        """Return a slot that holds none of the last two pictures."""
        in_use = (self._front, self._previous)
        return next(slot for slot in memory.slots if slot not in in_use)

    def show(self, *, finish: Callable[[], object] | None = None) -> BufferSource:
        """Return the picture of `begin` as a source; see `Canvas.show`."""
        drawing = self._drawing
        if drawing is None:
            raise SharingError("show() without begin()")
        slot = drawing.slot
        self._drawing = None
        slot.note_written(finish)
        # Here rather than in `begin`, which CUDA waits for.
        for memory in self._memories.values():
            for drawn in memory.slots:
                drawn.set_fence()
        self._previous = self._front
        self._front = slot
        self._release_unused()
        return slot.views[drawing.form].source

    def _release_unused(self) -> None:
        """Release memory without a picture. Pictures of two sizes may alternate."""
        slots = [slot for slot in (self._front, self._previous) if slot is not None]
        in_use = [slot.memory for slot in slots]
        for size, memory in list(self._memories.items()):
            if memory not in in_use:
                memory.release()
                del self._memories[size]

    def undo(self) -> None:
        """Drop the last picture; see `Bridge.undo`."""
        self._front = self._previous
        self._previous = None

    def close(self) -> None:
        """Release everything. Idempotent."""
        for memory in self._memories.values():
            memory.release()
        self._memories.clear()
        self._front = None
        self._previous = None
        self._drawing = None


def _make_view(slot: _Slot, form: Form, pixel_values: int) -> _SlotView:
    """Return a slot as a picture, each pixel of which takes this many values."""
    shape = (form.height, form.width, pixel_values)
    padded = slot.memory.allocation.tensor(form.dtype, shape, slot.offset)
    source = BufferSource(
        memory=slot.memory.gl,
        form=form,
        strides=(form.width * pixel_values, pixel_values, 1),
        offset=slot.offset,
        ready=slot.await_cuda,
    )
    return _SlotView(padded[..., : form.channels], source)
