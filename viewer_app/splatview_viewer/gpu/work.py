"""The viewer's works on the GPU: timed by the GPU itself, without ever waiting for it."""

from __future__ import annotations

import ctypes
import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from splatview_ipc.gl.glapi import GL
from splatview_viewer.gpu.governor import Governor

if TYPE_CHECKING:
    from collections.abc import Iterator

    import moderngl

    from splatview_viewer.gpu.governor import Work

SOFTWARE = "llvmpipe", "softpipe", "swrast", "software rasterizer", "swiftshader"
"""Parts of GL_RENDERER where there is no graphics card."""
_TIMESTAMP, _RESULT, _AVAILABLE = 0x8E28, 0x8866, 0x8867
_MOST = 64
_OFTEN, _SELDOM = 8, 4
"""Times in a row that a work is timed, and then one in so many: the GPU has to write each time down."""


def is_software(ctx: moderngl.Context) -> bool:
    """Return whether the processor draws, and no graphics card."""
    return any(name in ctx.info["GL_RENDERER"].lower() for name in SOFTWARE)


class GpuWork:
    """Times works on the GPU (`with work("image", 640, 480): ...`) and tells a governor.

    A work is timed by two timestamps in the stream of commands (OpenGL 3.3), not every time once it is known well.
    Works do not lie in each other.
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
        self._queries: list[int] = []
        self._free: list[int] = []
        self._pending: deque[tuple[Work, int, int]] = deque()
        self._times: dict[Work, int] = {}
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
        begin = self._stamp(self._gl) if self._is_timed(work) else 0
        try:
            yield
        finally:
            self._pending.append((work, begin, self._stamp(self._gl)))
            self.submitted += 1

    def _is_timed(self, work: Work) -> bool:
        if work not in self._times and len(self._times) > 200:  # of windows that were dragged to many sizes
            self._times.clear()
        self._times[work] = times = self._times.get(work, 0) + 1
        return times <= _OFTEN or times % _SELDOM == 0

    def _stamp(self, gl: GL) -> int:
        if not self._free and len(self._queries) >= 2 * _MOST:  # they were not collected
            self._ctx.finish()
            self.collect()
        if not self._free:
            self._free.append(gl.generate("glGenQueries"))
            self._queries.append(self._free[-1])
        query_id = self._free.pop()
        gl.glQueryCounter(query_id, _TIMESTAMP)
        return query_id

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
            if begin:
                times = []
                for query in (begin, end):
                    ns = ctypes.c_uint64()
                    gl.glGetQueryObjectui64v(query, _RESULT, ctypes.byref(ns))
                    times.append(ns.value)
                self.took(work, max(times[1] - times[0], 0) * 1e-6)
                self._free.append(begin)
            self._free.append(end)

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
        self._pending.clear()
        self.finished = self.submitted
        if self._gl is not None:
            self._gl.delete("glDeleteQueries", self._queries)
        self._queries, self._free = [], []
