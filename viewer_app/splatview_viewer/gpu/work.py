"""The viewer's works on the GPU, timed by the GPU itself without ever waiting for it; and whether OpenGL and CUDA still
work in this process.

A kernel that reads where nothing is ends CUDA for the process that started it: every later call fails, and nothing but
another process helps. So does the loss of an OpenGL context. Whatever fails for less than that is dealt with where it
fails: in the place of one stream, or by another renderer.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.glapi import GL
from splatview_viewer.core.errors import GpuLostError
from splatview_viewer.gpu.governor import Governor

if TYPE_CHECKING:
    from collections.abc import Iterator

    import moderngl

    from splatview_viewer.gpu.governor import Work

SOFTWARE = "llvmpipe", "softpipe", "swrast", "software rasterizer", "swiftshader"
"""Parts of GL_RENDERER where there is no graphics card."""
_TIMESTAMP = 0x8E28
_RESULT = 0x8866
_AVAILABLE = 0x8867
_MOST = 64


def is_software(ctx: moderngl.Context) -> bool:
    """Return whether the processor draws, and no graphics card."""
    return any(name in ctx.info["GL_RENDERER"].lower() for name in SOFTWARE)


class GpuWork:
    """Times works on the GPU (`with work("image", 640, 480): ...`) and tells a governor.

    A work is timed by two timestamps in the stream of commands (OpenGL 3.3). Works do not lie in each other.
    A software rasteriser's timestamps say little, and its drawing is the processor's work: there the end is waited for,
    and nothing is paid for it.
    Belongs to the thread that holds the context.
    """

    def __init__(self, ctx: moderngl.Context, governor: Governor | None = None) -> None:
        self.governor = governor or Governor(1.0)
        self.ms: dict[object, float] = {}
        """The last known time by the work's first word."""
        self.software = is_software(ctx)
        self.submitted = 0
        """Works given to the GPU so far."""
        self.finished = 0
        """Works that are known to be done: all whose number, `submitted` after them, is not greater."""
        self._ctx = ctx
        self._gl = None if self.software else GL.current()
        self._pending: deque[tuple[Work, int, int]] = deque()
        self._closed = False

    @contextmanager
    def __call__(self, *work: object) -> Iterator[None]:
        """Time the commands submitted inside as this work."""
        if self._gl is None:
            since = time.perf_counter()
            yield
            self._ctx.finish()
            self.submitted = self.finished = self.submitted + 1
            self.took(work, (time.perf_counter() - since) * 1e3)
            return
        self.governor.gives(work, "opengl")
        begin = self._stamp(self._gl)
        try:
            yield
        finally:
            self._pending.append((work, begin, self._stamp(self._gl)))
            self.submitted += 1

    def _stamp(self, gl: GL) -> int:
        if len(self._pending) >= _MOST:  # they were not collected
            self._ctx.finish()
            self.collect()
        query = gl.generate("glGenQueries")
        gl.glQueryCounter(query, _TIMESTAMP)
        return query

    def collect(self) -> None:
        """Take in what the GPU has finished. Never waits."""
        gl = self._gl
        while self._pending and gl is not None:
            work, begin, end = self._pending[0]
            done = ctypes.c_uint()
            gl.glGetQueryObjectuiv(end, _AVAILABLE, ctypes.byref(done))
            if not done.value:
                break
            self._pending.popleft()
            self.finished += 1
            times = []
            for query in (begin, end):
                ns = ctypes.c_uint64()
                gl.glGetQueryObjectui64v(query, _RESULT, ctypes.byref(ns))
                times.append(ns.value)
            gl.delete("glDeleteQueries", [begin, end])
            self.took(work, max(times[1] - times[0], 0) * 1e-6)

    def flush(self) -> None:
        """Have the GPU begin with what was submitted. Does not wait."""
        if self._gl is not None:
            self._gl.glFlush()
        else:
            self._ctx.finish()

    def took(self, work: Work, ms: float) -> None:
        """A work was timed by other means."""
        self.ms[work[0]] = ms
        self.governor.took(work, ms)

    def close(self) -> None:
        """Give back everything. Idempotent. The context must still be current."""
        if self._closed:
            return
        self._closed = True
        self.finished = self.submitted
        if self._gl is not None:
            self._gl.delete(
                "glDeleteQueries",
                [query for _, *queries in self._pending for query in queries],
            )
        self._pending.clear()


# -- health -----------------------------------------------------------------------------------------------------------

log = logging.getLogger("splatview")

TOTAL = 0x9048
AVAILABLE = 0x9049
"""Kilobytes: GL_GPU_MEMORY_INFO_TOTAL_AVAILABLE_MEMORY_NVX and CURRENT_AVAILABLE (the extension's own text)."""
PERIOD = 1.0
"""Seconds between looks, each of which takes microseconds."""
FULL = (
    "The GPU's memory is full: what is shown may be incomplete. A smaller window, fewer panes or a smaller scene "
    "need less"
)


class Health:
    """Looks at both, again and again."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._due = 0.0
        self._said = ""

    def turn(self, now: float) -> str:
        """Return what a user should know; "" for nothing. Raises GpuLostError when one of them is lost for this
        process.
        """
        if now < self._due:
            return ""
        self._due = now + PERIOD
        lost = cuda_is_lost()
        if lost:
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

    used = set(driver.devices_in_use())
    torch = driver.torch_with_cuda()
    try:
        if torch is not None:
            used.add(torch.cuda.current_device())
        lost = any(driver.is_broken(index) for index in used)
    except SharingError:  # there is no driver to be asked
        return ""
    except RuntimeError:  # torch's way to say what the driver says
        lost = True
    return "a fault on the GPU has ended CUDA for this process" if lost else ""


class GpuMemory:
    """Memory of OpenGL's GPU in use by all processes, where its driver reports it. Every call needs the OpenGL context
    to be current.
    """

    def __init__(self, ctx: moderngl.Context) -> None:
        self._known = "GL_NVX_gpu_memory_info" in ctx.extensions
        self._asked_at = float("-inf")
        self._last: tuple[int, int] | None = None

    def read(self, now: float) -> tuple[int, int] | None:
        """Bytes in use and in all; None where the driver does not report them. `now`: `time.monotonic()`."""
        if self._known and now - self._asked_at >= PERIOD:
            self._asked_at = now
            total, available = (
                GL.current().integer(what) << 10 for what in (TOTAL, AVAILABLE)
            )
            self._last = (total - available, total) if total > 0 else None
        return self._last
