"""The time that a function takes for a picture, on the processor and on a GPU."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from splatview.rendering.host_copy import has_passed

if TYPE_CHECKING:
    from collections.abc import Callable


class DrawClock:
    """Measures one picture: from its making until `stop`. Waits for no GPU."""

    def __init__(
        self,
        device: torch.device | str = "cpu",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Start.

        Args:
            device: the function's. On a GPU the time that the work of the current
                stream takes counts, unless the calls took longer.
            clock: returns seconds.
        """
        self._clock = clock
        self._device = torch.device(device)
        self._start_event: torch.cuda.Event | None = None
        self._end_event: torch.cuda.Event | None = None
        if self._device.type == "cuda":
            self._start_event = torch.cuda.Event(enable_timing=True)
            self._start_event.record(torch.cuda.current_stream(self._device))
        self._started_at = clock()
        self._wall_s = 0.0

    def stop(self) -> None:
        """Note that all is queued that belongs to the picture."""
        self._wall_s = self._clock() - self._started_at
        if self._start_event is not None:
            self._end_event = torch.cuda.Event(enable_timing=True, blocking=True)
            self._end_event.record(torch.cuda.current_stream(self._device))

    @property
    def is_known(self) -> bool:
        """True once the GPU has come to the end as well."""
        return self._end_event is None or has_passed(self._end_event)

    def wait(self) -> None:
        """Wait until the time is known, with the GIL released."""
        if self._end_event is not None:
            self._end_event.synchronize()

    @property
    def gpu_s(self) -> float:
        """Return the GPU's part of what it took, in seconds; 0: none worked for it."""
        if self._start_event is None or self._end_event is None:
            return 0.0
        return self._start_event.elapsed_time(self._end_event) / 1e3

    @property
    def seconds(self) -> float:
        """Return what the picture took; once it `is_known`."""
        return max(self._wall_s, self.gpu_s)
