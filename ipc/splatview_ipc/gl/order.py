"""Marks in CUDA's and OpenGL's work, to keep one off memory that the other still uses."""

from __future__ import annotations

from typing import Any

from splatview_ipc.cuda import driver


class CudaMark:
    """A place in a CUDA stream that this thread can wait for. (An event; torch's costs several times as much.)"""

    def __init__(self, device: int) -> None:
        """`device`: the ordinal of the device whose streams are marked. Raises SharingError."""
        self._device = device
        with driver.context(device):
            self._event: Any = driver.handle("cuEventCreate",
                                             int(driver.bindings().CUevent_flags.CU_EVENT_DISABLE_TIMING))

    def record(self) -> None:
        """Mark what torch's current stream of the device has been given so far. Never waits."""
        stream = driver.current_stream(self._device)
        driver.in_stream(self._device, stream, "cuEventRecord", self._event, driver.stream_object(stream))

    def wait(self) -> None:
        """Until the GPU has come to the last mark; at once where there is none. Raises SharingError after a fault.

        The driver looks at the event without pause, while other threads go on: a thread that sleeps wakes too late.
        """
        driver.call("cuEventSynchronize", self._event)

    def close(self) -> None:
        """Idempotent."""
        event, self._event = self._event, None
        if event is not None:
            with driver.context(self._device):
                driver.release("cuEventDestroy", event)
