"""The viewer's works on the GPU, timed by the GPU itself without ever waiting for it."""

from __future__ import annotations

import ctypes
import time
from collections import deque
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from splatview_ipc.gl.glapi import GL
from splatview_viewer.gpu.governor import Governor
from splatview_viewer.gpu.steps import StepQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import moderngl

    from splatview_viewer.gpu.costs import WorkKey

SOFTWARE = "llvmpipe", "softpipe", "swrast", "software rasterizer", "swiftshader"
"""Parts of GL_RENDERER where there is no graphics card."""
_GL_TIMESTAMP = 0x8E28
_GL_QUERY_RESULT = 0x8866
_GL_QUERY_RESULT_AVAILABLE = 0x8867
_MAX_PENDING = 64
"""Works whose times may be outstanding."""


def is_software(ctx: moderngl.Context) -> bool:
    """Return True if the processor draws, and no graphics card."""
    renderer = ctx.info["GL_RENDERER"].lower()
    return any(name in renderer for name in SOFTWARE)


class _PendingWork(NamedTuple):
    """A work whose time the GPU has not told yet."""

    work_key: WorkKey
    start_query: int
    end_query: int


class GpuWork:
    """Times works on the GPU (`with work("image", 640, 480): ...`) and tells a governor.

    A work is timed by two timestamps in the stream of commands (OpenGL 3.3). Works do not
    lie in each other. A software rasteriser's timestamps say little, and its drawing is
    the processor's work: there the end is waited for, and nothing is paid for it.
    Belongs to the thread that holds the context.
    """

    def __init__(
        self,
        ctx: moderngl.Context,
        governor: Governor | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """Start without works.

        Args:
            ctx: the context.
            governor: None: nothing is limited.
            wake: has the loop turn, from any thread.
        """
        self.governor = governor or Governor(1.0)
        self.steps = StepQueue(ctx, wake)
        """What is drawn in steps, some in each turn of the loop."""
        self.ms: dict[object, float] = {}
        """The last known milliseconds by the work's name."""
        self.software = is_software(ctx)
        self.submitted = 0
        """Number of works given to the GPU so far."""
        self.finished = 0
        """Number of works that are known to be done: all up to this one."""
        self._ctx = ctx
        self._gl = None if self.software else GL.current()
        self._pending: deque[_PendingWork] = deque()
        self._idle_queries: list[int] = []
        """Queries whose results are known."""
        self._closed = False

    def __call__(self, *work_key: object) -> AbstractContextManager[None]:
        """Take the time of the commands submitted inside, as this work, paid for now."""
        if self._gl is None:
            return self._time_by_clock(work_key)
        self.governor.charge(work_key, "opengl")
        return self._time_by_queries(self._gl, work_key)

    @contextmanager
    def _time_by_clock(self, work_key: WorkKey) -> Iterator[None]:
        started_at = time.perf_counter()
        yield
        self._ctx.finish()
        self.submitted += 1
        self.finished = self.submitted
        self.record(work_key, (time.perf_counter() - started_at) * 1e3)

    @contextmanager
    def _time_by_queries(self, gl: GL, work_key: WorkKey) -> Iterator[None]:
        start_query = self._timestamp(gl)
        try:
            yield
        finally:
            end_query = self._timestamp(gl)
            self._pending.append(_PendingWork(work_key, start_query, end_query))
            self.submitted += 1

    def _timestamp(self, gl: GL) -> int:
        """Have the GPU note the time; return the query that tells it."""
        if len(self._pending) >= _MAX_PENDING:
            # `collect` was not called for long.
            self._ctx.finish()
            self.collect()
        if self._idle_queries:
            query = self._idle_queries.pop()
        else:
            query = gl.generate("glGenQueries")
        gl.glQueryCounter(query, _GL_TIMESTAMP)
        return query

    def collect(self) -> None:
        """Record the times of works that the GPU has finished. Never waits."""
        gl = self._gl
        if gl is None:
            return
        while self._pending:
            work_key, start_query, end_query = self._pending[0]
            is_available = ctypes.c_uint()
            gl.glGetQueryObjectuiv(
                end_query, _GL_QUERY_RESULT_AVAILABLE, ctypes.byref(is_available)
            )
            if not is_available.value:
                break
            self._pending.popleft()
            self.finished += 1
            start_ns = _query_result(gl, start_query)
            end_ns = _query_result(gl, end_query)
            self._idle_queries += [start_query, end_query]
            self.record(work_key, max(end_ns - start_ns, 0) * 1e-6)

    def flush(self) -> None:
        """Have the GPU begin with the submitted works. Does not wait."""
        if self._gl is not None:
            self._gl.glFlush()
        else:
            self._ctx.finish()

    def record(self, work_key: WorkKey, ms: float) -> None:
        """Take note of a work that was timed by other means."""
        self.ms[work_key[0]] = ms
        self.governor.record(work_key, ms)

    def close(self) -> None:
        """Release everything. Idempotent. The context must still be current."""
        if self._closed:
            return
        self._closed = True
        self.steps.close()
        self.finished = self.submitted
        if self._gl is not None:
            queries = self._idle_queries
            for pending in self._pending:
                queries += [pending.start_query, pending.end_query]
            self._gl.delete("glDeleteQueries", queries)
        self._pending.clear()


def _query_result(gl: GL, query: int) -> int:
    """Return the nanoseconds of a timestamp that is available."""
    ns = ctypes.c_uint64()
    gl.glGetQueryObjectui64v(query, _GL_QUERY_RESULT, ctypes.byref(ns))
    return ns.value
