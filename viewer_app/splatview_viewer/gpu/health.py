"""OpenGL and CUDA in this process: whether both still work, and how much of the GPU's memory is in use.

A kernel that reads where nothing is ends CUDA for the process that started it: every later call fails, and nothing but
another process helps. So does the loss of an OpenGL context. Whatever fails for less than that is dealt with where it
fails: in the place of one stream, or by another renderer.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.glapi import GL
from splatview_viewer.core.errors import GpuLostError

if TYPE_CHECKING:
    import moderngl

log = logging.getLogger("splatview")

TOTAL, AVAILABLE = 0x9048, 0x9049
"""Kilobytes: GL_GPU_MEMORY_INFO_TOTAL_AVAILABLE_MEMORY_NVX and CURRENT_AVAILABLE (the extension's own text)."""
PERIOD = 1.0
"""Seconds between looks, each of which takes microseconds."""
FULL = ("The GPU's memory is full: what is shown may be incomplete. A smaller window, fewer panes or a smaller scene "
        "need less")


class Health:
    """Looks at both, again and again."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._due = 0.0
        self._said = ""

    def turn(self, now: float) -> str:
        """Return what a user should know; "" for nothing. Raises GpuLostError when one of them is lost for this
        process."""
        if now < self._due:
            return ""
        self._due = now + PERIOD
        if lost := cuda_is_lost():
            raise GpuLostError(lost)
        error = self._ctx.error
        if error == "GL_CONTEXT_LOST":
            raise GpuLostError("the graphics driver was reset, and OpenGL is lost")
        if error == "GL_OUT_OF_MEMORY":
            return FULL
        if error != "GL_NO_ERROR" and error != self._said:
            self._said = error
            log.warning("OpenGL says %s", error)
        return ""


def cuda_is_lost() -> str:
    """Return why CUDA is of no use in this process any more; "" where it works, or was never used. Never waits."""
    if "splatview_ipc.cuda.driver" not in sys.modules and "torch" not in sys.modules:
        return ""
    from splatview_ipc.cuda import driver

    used, torch = set(driver.in_use()), driver.torch_with_cuda()
    try:
        if torch is not None:
            used.add(torch.cuda.current_device())
        lost = any(driver.broken(index) for index in used)
    except SharingError:  # there is no driver to be asked
        return ""
    except RuntimeError:  # torch's way to say what the driver says
        lost = True
    return "a fault on the GPU has ended CUDA for this process" if lost else ""


class GpuMemory:
    """Memory of OpenGL's GPU in use by all processes, where its driver reports it. Every call needs the OpenGL context
    to be current."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self._known = "GL_NVX_gpu_memory_info" in ctx.extensions
        self._asked_at = float("-inf")
        self._last: tuple[int, int] | None = None

    def read(self, now: float) -> tuple[int, int] | None:
        """Bytes in use and in all; None where the driver does not report them. `now`: `time.monotonic()`."""
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
