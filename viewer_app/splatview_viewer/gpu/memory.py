"""How much of the memory of OpenGL's GPU is in use, by whomever: where its driver says so, without CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.glapi import GL

if TYPE_CHECKING:
    import moderngl

TOTAL, AVAILABLE = 0x9048, 0x9049
"""Kilobytes: GL_GPU_MEMORY_INFO_TOTAL_AVAILABLE_MEMORY_NVX and CURRENT_AVAILABLE (the extension's own text)."""
PERIOD = 1.0
"""Seconds between two looks."""


class GpuMemory:
    """Asks seldom; every call needs the OpenGL context to be current."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self._known = "GL_NVX_gpu_memory_info" in ctx.extensions
        self._asked_at = float("-inf")
        self._last: tuple[int, int] | None = None

    def read(self, now: float) -> tuple[int, int] | None:
        """Bytes in use and in all; None where the driver does not tell. `now`: `time.monotonic()`."""
        if self._known and now - self._asked_at >= PERIOD:
            self._asked_at = now
            try:
                gl = GL.current()
                total, available = (gl.integer(what) << 10 for what in (TOTAL, AVAILABLE))
            except (SharingError, AttributeError):
                self._known, self._last = False, None
            else:
                self._last = (total - available, total) if total > 0 else None
        return self._last
