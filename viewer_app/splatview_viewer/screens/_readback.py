"""From what was drawn to pixels that a worker can encode, while the thread that draws waits for as little as can be.

On a GPU with nvJPEG the pixels stay there (`CudaReader`); on another GPU they come through a pixel buffer, later
(`BufferReader`); a software rasteriser has them in memory already (`HostReader`).
"""

from __future__ import annotations

import mmap
import threading
import weakref
from typing import TYPE_CHECKING, Protocol

import numpy as np

from splatview_ipc.gl import glapi
from splatview_ipc.gl.glapi import GL

if TYPE_CHECKING:
    from collections.abc import Callable

    import moderngl
    import torch

    from splatview_viewer.screens._target import Target

    Pixels = np.ndarray | torch.Tensor
    Memory = tuple[Pixels, torch.cuda.Event | None]

_KEPT = 2
"""Frames that are kept for use again beside the one that the page shows."""


class Frame:
    """One picture on its way: (H, W, 4) uint8, the lowest row first, in memory that is used again."""

    def __init__(self, pixels: Pixels, arrived: torch.cuda.Event | None = None) -> None:
        self.pixels = pixels
        self.arrived = arrived
        """What the GPU has passed once the pixels are there; None: they are."""
        self.at, self.taken = 0.0, 0.0
        """The newest event that the picture reflects: the page's time, and when it was taken in."""

    @property
    def size(self) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[0]


class Frames:
    """Frames of one size. The memory of a frame is used again once nothing refers to the frame. For any thread."""

    def __init__(self, make: Callable[[tuple[int, int]], Memory]) -> None:
        self._make = make
        self._size = (0, 0)
        self._free: list[Memory] = []
        self._lock = threading.Lock()

    def take(self, size: tuple[int, int]) -> Frame:
        with self._lock:
            if size != self._size:
                self._size = size
                self._free.clear()
            memory = self._free.pop() if self._free else self._make(size)
        frame = Frame(*memory)
        weakref.finalize(frame, self._give, size, memory).atexit = False
        return frame

    def _give(self, size: tuple[int, int], memory: Memory) -> None:
        with self._lock:
            if size == self._size and len(self._free) < _KEPT:
                self._free.append(memory)

    def clear(self) -> None:
        with self._lock:
            self._size = (0, 0)
            self._free.clear()


class Reader(Protocol):
    """Reads one picture at a time. Lives in the thread of the context."""

    frames: Frames

    @property
    def reading(self) -> bool:
        """Whether a picture was begun and is not there yet."""
        ...

    def begin(self, target: Target) -> None:
        """Read what has been drawn so far."""
        ...

    def collect(self) -> Frame | None:
        """The picture, if it is there. Never waits."""
        ...

    def close(self) -> None:
        """Give back everything. Idempotent."""
        ...


def _host_memory(size: tuple[int, int]) -> Memory:
    # Mapped, so that the memory returns to the system with the frame: malloc keeps what was freed.
    room = mmap.mmap(-1, size[0] * size[1] * 4, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(room, np.uint8).reshape(size[1], size[0], 4), None


class _AtOnce:
    """What readers have in common whose pictures can be collected as soon as they were begun."""

    reading = False

    def __init__(self, make: Callable[[tuple[int, int]], Memory]) -> None:
        self.frames = Frames(make)
        self._frame: Frame | None = None

    def collect(self) -> Frame | None:
        frame, self._frame = self._frame, None
        return frame

    def close(self) -> None:
        self._frame = None
        self.frames.clear()


class HostReader(_AtOnce):
    """Where OpenGL draws on the processor: a copy in memory, after the drawing."""

    def __init__(self) -> None:
        super().__init__(_host_memory)

    def begin(self, target: Target) -> None:
        frame = self.frames.take(target.size)
        target.framebuffer.read_into(frame.pixels, components=4, alignment=1)
        self._frame = frame


class BufferReader:
    """Through a buffer of the GPU, which is looked at when the GPU has filled it."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self.frames = Frames(_host_memory)
        self._ctx = ctx
        self._buffer: moderngl.Buffer | None = None
        self._size = (0, 0)
        self._fence: int | None = None

    @property
    def reading(self) -> bool:
        return self._fence is not None

    def begin(self, target: Target) -> None:
        self._drop_fence()
        if self._buffer is None or self._size != target.size:
            self._release()
            self._size = target.size
            self._buffer = self._ctx.buffer(reserve=self._size[0] * self._size[1] * 4, dynamic=True)
        target.framebuffer.read_into(self._buffer, components=4, alignment=1)
        gl = GL.current()
        self._fence = gl.fence()
        gl.glFlush()

    def collect(self) -> Frame | None:
        if self._fence is None or self._buffer is None:
            return None
        if GL.current().glClientWaitSync(self._fence, 0, 0) == glapi.TIMEOUT_EXPIRED:
            return None
        self._drop_fence()
        frame = self.frames.take(self._size)
        self._buffer.read_into(frame.pixels)
        return frame

    def _drop_fence(self) -> None:
        fence, self._fence = self._fence, None
        if fence is not None:
            GL.current().glDeleteSync(fence)

    def _release(self) -> None:
        if self._buffer is not None:
            self._buffer.release()
            self._buffer = None

    def close(self) -> None:
        self._drop_fence()
        self._release()
        self.frames.clear()


class CudaReader(_AtOnce):
    """From a shared texture into a tensor. Nothing waits but the GPU."""

    def __init__(self, device: int) -> None:
        """`device`: CUDA's ordinal of the GPU that OpenGL draws on."""
        super().__init__(self._make)
        self._device = device

    def _make(self, size: tuple[int, int]) -> Memory:
        import torch

        pixels = torch.empty((size[1], size[0], 4), dtype=torch.uint8, device=torch.device("cuda", self._device))
        return pixels, torch.cuda.Event(blocking=True)  # a thread that waits for it sleeps

    def begin(self, target: Target) -> None:
        import torch

        frame = self.frames.take(target.size)
        assert isinstance(frame.pixels, torch.Tensor) and frame.arrived is not None
        with torch.cuda.device(self._device):
            frame.pixels.copy_(target.tensor())
            frame.arrived.record()
        self._frame = frame
