"""Checks that OpenGL and CUDA still work in this process, and how full the GPU's memory is.

A kernel that reads where nothing is ends CUDA for the process that started it: every
later call fails, and nothing but another process helps. So does the loss of an OpenGL
context. A fault that is less than that is dealt with where it occurs: in the place of one
stream, or by another renderer.
"""

from __future__ import annotations

import logging
import math
import sys
from typing import TYPE_CHECKING, NamedTuple

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.glapi import GL
from splatview_viewer.core.errors import GpuLostError

if TYPE_CHECKING:
    import moderngl

log = logging.getLogger("splatview")

TOTAL = 0x9048
AVAILABLE = 0x9049
"""Kilobytes: GL_GPU_MEMORY_INFO_TOTAL_AVAILABLE_MEMORY_NVX and CURRENT_AVAILABLE (the
extension's own text)."""
PERIOD = 1.0
"""Seconds between checks, each of which takes microseconds."""
FULL = (
    "The GPU's memory is full: what is shown may be incomplete. A smaller window, fewer "
    "panes or a smaller scene need less"
)


class Health:
    """Checks OpenGL and CUDA, again and again."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._due = 0.0
        self._logged_error = ""

    def check(self, now: float) -> str:
        """Return a message for users; "" for nothing.

        Args:
            now: time of the loop's turn, seconds.

        Raises:
            GpuLostError: OpenGL or CUDA is lost for this process.
        """
        if now < self._due:
            return ""
        self._due = now + PERIOD
        loss = cuda_is_lost()
        if loss:
            raise GpuLostError(loss)
        error = self._ctx.error
        if error == "GL_CONTEXT_LOST":
            raise GpuLostError("the graphics driver was reset, and OpenGL is lost")
        if error == "GL_OUT_OF_MEMORY":
            return FULL
        if error not in ("GL_NO_ERROR", self._logged_error):
            self._logged_error = error
            log.warning("OpenGL says %s", error)
        return ""


def cuda_is_lost() -> str:
    """Return the reason why CUDA is of no use in this process any more.

    "" where it works, or was never used. Never waits.
    """
    if "splatview_ipc.cuda.driver" not in sys.modules and "torch" not in sys.modules:
        return ""
    from splatview_ipc.cuda import driver

    devices = set(driver.devices_in_use())
    torch = driver.torch_with_cuda()
    try:
        if torch is not None:
            devices.add(torch.cuda.current_device())
        is_lost = any(driver.is_broken(index) for index in devices)
    except SharingError:
        # There is no driver to be asked.
        return ""
    except RuntimeError:
        # torch raises this for the driver's own errors.
        is_lost = True
    if not is_lost:
        return ""
    return "a fault on the GPU has ended CUDA for this process"


class MemoryUse(NamedTuple):
    """Bytes of a GPU's memory."""

    used: int
    total: int


class GpuMemory:
    """Memory of OpenGL's GPU in use by all processes, where its driver reports it.

    Every call needs the OpenGL context to be current.
    """

    def __init__(self, ctx: moderngl.Context) -> None:
        self._is_reported = "GL_NVX_gpu_memory_info" in ctx.extensions
        self._read_at = -math.inf
        self._last: MemoryUse | None = None

    def read(self, now: float) -> MemoryUse | None:
        """Return the bytes in use and in all; None where the driver does not report them.

        Args:
            now: `time.monotonic()`.
        """
        if self._is_reported and now - self._read_at >= PERIOD:
            self._read_at = now
            gl = GL.current()
            total = gl.integer(TOTAL) << 10
            available = gl.integer(AVAILABLE) << 10
            self._last = None
            if total > 0:
                self._last = MemoryUse(total - available, total)
        return self._last
