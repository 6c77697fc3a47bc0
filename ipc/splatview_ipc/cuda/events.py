"""Events: marks in a GPU's stream, for other processes to wait for and for measuring."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda import driver

_GONE = ("CUDA_ERROR_DEINITIALIZED", "CUDA_ERROR_CONTEXT_IS_DESTROYED")

_own: weakref.WeakValueDictionary[bytes, InterprocessEvent] = weakref.WeakValueDictionary()
"""Events made here, by handle: CUDA opens none in the process that made it."""


class InterprocessEvent:
    """An event made here, to be recorded again and again, that another process can query."""

    def __init__(self, index: int):
        """`index`: the device on whose streams it will be recorded. Raises SharingError."""
        cu = driver.bindings()
        flags = int(cu.CUevent_flags.CU_EVENT_INTERPROCESS) | int(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        self.index = index
        self._record = cu.cuEventRecord
        torch = driver.torch_with_cuda()
        self._device = (lambda: -1) if torch is None else torch._C._cuda_getDevice
        self._stream, self._on = 0, driver.stream_object(0)
        with driver.context(index):
            self._event = driver.handle("cuEventCreate", flags)
            try:
                # Recorded before its handle is given away: there is something to query from the start.
                driver.call("cuEventRecord", self._event, driver.stream_object(0))
                self.handle = bytes(driver.call("cuIpcGetEventHandle", self._event).reserved)
                """64 bytes that another process opens."""
            except SharingError:
                driver.release("cuEventDestroy", self._event)
                raise
        _own[self.handle] = self

    def record(self, stream: int) -> None:
        """Mark what a stream of the device has been given so far. Costs a microsecond or two. Never waits."""
        if stream != self._stream:
            self._stream, self._on = stream, driver.stream_object(stream)
        # The common cases, in as few calls as possible.
        if (stream or self._device() == self.index) and not self._record(self._event, self._on)[0]:
            return
        driver.in_stream(self.index, stream, "cuEventRecord", self._event, self._on)

    def done(self) -> bool:
        """Whether the work before the newest record has ended; of a closed one it counts as such."""
        return self._event is None or _event_done(self._event, self.index)

    def close(self) -> None:
        """Destroy it; work that already waits for it is not disturbed. Idempotent."""
        event, self._event = self._event, None
        if event is not None:
            with contextlib.suppress(SharingError), driver.context(self.index):
                driver.release("cuEventDestroy", event)


class Stopwatch:
    """How long the GPU takes for a piece of a stream, found out without waiting."""

    def __init__(self, index: int):
        """`index`: the device. Raises SharingError."""
        self.index = index
        with driver.context(index):
            self._start = driver.handle("cuEventCreate", 0)
            try:
                self._stop = driver.handle("cuEventCreate", 0)
            except SharingError:
                driver.release("cuEventDestroy", self._start)
                raise

    def start(self, stream: int) -> None:
        driver.in_stream(self.index, stream, "cuEventRecord", self._start, driver.stream_object(stream))

    def stop(self, stream: int) -> None:
        driver.in_stream(self.index, stream, "cuEventRecord", self._stop, driver.stream_object(stream))

    def seconds(self) -> float | None:
        """Between the newest start and stop; None while the GPU has not come to the end."""
        if not _event_done(self._stop, self.index):
            return None
        with driver.context(self.index), driver.relaxed_capture():
            return float(driver.call("cuEventElapsedTime", self._start, self._stop)) / 1e3

    def close(self) -> None:
        """Once only."""
        with contextlib.suppress(SharingError), driver.context(self.index):
            driver.release("cuEventDestroy", self._start)
            driver.release("cuEventDestroy", self._stop)


class OpenedEvent:
    """An event of another process, or one of this process by its handle.

    No stream is made to wait for it. The event of a process that is killed before its GPU reached the record is never
    completed, and a stream that waits for it never goes on (measured, driver 580).
    """

    def __init__(self, handle_bytes: bytes, index: int):
        """Makes the device's context. Raises SharingError."""
        if len(handle_bytes) != 64:
            raise SharingError(f"an event handle of {len(handle_bytes)} bytes; it has 64")
        self.index = index
        self._ours = _own.get(handle_bytes)
        if self._ours is not None:
            self._event = self._ours._event
            return
        ipc_handle = driver.bindings().CUipcEventHandle()
        ipc_handle.reserved = handle_bytes
        with driver.context(index):
            self._event = driver.handle("cuIpcOpenEventHandle", ipc_handle)

    def done(self) -> bool:
        """Whether the work before the newest record has ended."""
        if self._ours is not None:
            return self._ours.done()
        return self._event is None or _event_done(self._event, self.index)

    def close(self) -> None:
        """Idempotent."""
        event, self._event = self._event, None
        if event is not None and self._ours is None:
            with contextlib.suppress(SharingError), driver.context(self.index):
                driver.release("cuEventDestroy", event)


def _event_done(event: Any, index: int) -> bool:
    with driver.context(index), driver.relaxed_capture():  # asking would spoil a capture in any other thread
        error = driver.bindings().cuEventQuery(event)[0]
    if error.name == "CUDA_ERROR_NOT_READY":
        return False
    if int(error) != 0 and error.name not in _GONE:
        raise driver.CudaError("cuEventQuery", error.name)
    return True
