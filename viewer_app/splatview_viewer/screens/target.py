"""Framebuffers of screens without a window, and copies of what was drawn, for other threads."""

from __future__ import annotations

import mmap
import threading
import weakref
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.shared_texture import SharedTexture
from splatview_ipc.gl.texture_tensor import TextureTensor

if TYPE_CHECKING:
    import moderngl
    import torch

    Pixels = np.ndarray | torch.Tensor

_KEPT = 2
"""Buffers kept for use again beside those in use."""


class Target:
    """A framebuffer of one size, black at first. Lives in the thread of its context, which it does not own."""

    def __init__(self, ctx: moderngl.Context, size: tuple[int, int], *, shared: bool = False) -> None:
        """`shared`: CUDA reads the texture as well, by `self.shared`. Raises SharingError or moderngl's Error when it
        cannot be made."""
        self._ctx = ctx
        self.shared: SharedTexture | TextureTensor | None = None
        with ExitStack() as held:
            if shared:
                with suppress(SharingError):  # nothing waits but the GPU
                    self.shared = SharedTexture(ctx, size)
                    held.callback(self.shared.close)
            if isinstance(self.shared, SharedTexture):
                texture = self.shared.texture
            else:
                texture = ctx.texture(size, 4)
                held.callback(texture.release)
                if shared:
                    self.shared = TextureTensor(texture, "register")
                    held.callback(self.shared.close)
            self.framebuffer = ctx.framebuffer([texture])
            held.callback(self.framebuffer.release)
            self._held = held.pop_all()
        self.framebuffer.use()  # moderngl binds what was in use again after a clear: that must not be an old one
        self.framebuffer.clear(0.0, 0.0, 0.0, 1.0)

    @property
    def size(self) -> tuple[int, int]:
        width, height = self.framebuffer.size
        return width, height

    def tensor(self) -> torch.Tensor:
        """Return what has been drawn, for the next work of the current CUDA stream: (H, W, 4) uint8, lowest row first.
        The next call writes into the same tensor."""
        assert self.shared is not None, "made without `shared`"
        return self.shared.read() if isinstance(self.shared, SharedTexture) else self.shared.update()

    def release(self) -> None:
        """Idempotent."""
        if self._ctx.fbo is self.framebuffer:
            self._ctx.detect_framebuffer(0).use()
        self._held.close()


@dataclass(eq=False)
class Copy:
    """One picture for other threads."""

    pixels: Pixels
    """(H, W, 4) uint8, the lowest row first."""
    at: float
    """The newest event that the picture reflects, by the page's clock; 0: none."""
    arrived: torch.cuda.Event | None = None
    """Passed by the GPU once the pixels are there; None: they are."""

    @property
    def size(self) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[0]


class Copies:
    """Makes copies of what was drawn. Those on a GPU stay there, and nothing waits; others wait for the drawing.

    Memory on the host is used again once nothing refers to its copy: malloc would keep it, and clear new pages.
    """

    def __init__(self, device: int | None = None) -> None:
        """`device`: CUDA's ordinal of the GPU that OpenGL draws on, for targets that are shared with it."""
        self._device = device
        self._size = (0, 0)
        self._free: list[np.ndarray] = []
        self._lock = threading.Lock()

    def take(self, target: Target, at: float) -> Copy:
        """Copy what has been drawn. Call it in the thread of the context."""
        if target.shared is not None:
            import torch

            with torch.cuda.device(self._device):
                pixels, arrived = target.tensor().clone(), torch.cuda.Event(blocking=True)  # a thread that waits sleeps
                arrived.record()
            return Copy(pixels, at, arrived)
        size = target.size
        with self._lock:
            if size != self._size:
                self._size = size
                self._free.clear()
            pixels = self._free.pop() if self._free else None
        if pixels is None:
            memory = mmap.mmap(-1, size[0] * size[1] * 4, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            pixels = np.frombuffer(memory, np.uint8).reshape(size[1], size[0], 4)
        copy = Copy(pixels, at)
        weakref.finalize(copy, self._give_back, pixels).atexit = False
        target.framebuffer.read_into(pixels, components=4, alignment=1)
        return copy

    def _give_back(self, pixels: np.ndarray) -> None:
        with self._lock:
            if (pixels.shape[1], pixels.shape[0]) == self._size and len(self._free) < _KEPT:
                self._free.append(pixels)

    def clear(self) -> None:
        """Release what is kept."""
        with self._lock:
            self._size = (0, 0)
            self._free.clear()
