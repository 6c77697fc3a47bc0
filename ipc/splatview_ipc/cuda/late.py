"""Work that the helper thread does on a trainer's GPU, ordered behind the trainer's own, and never in its way."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from splatview_ipc.cuda import driver

if TYPE_CHECKING:
    from collections.abc import Iterator

_sides: dict[int, tuple[Any, Any]] = {}
"""Per device: a stream of ours and an event. Only the helper thread comes here."""


@contextlib.contextmanager
def behind(index: int, stream: int) -> Iterator[bool]:
    """Make a stream of ours torch's current one in this thread, behind all that `stream` was given so far.

    `index`: the device, `stream`: a stream of the trainer, by the driver's number. Nothing is waited for on the host.
    Yields False, with nothing done, while that stream is being captured into a CUDA graph. Raises SharingError when the
    GPU refuses.
    """
    import torch

    with driver.context(index), driver.relaxed_capture(), torch.cuda.device(index):
        made = _sides.get(index)
        if made is None:
            event = driver.handle("cuEventCreate", int(driver.bindings().CUevent_flags.CU_EVENT_DISABLE_TIMING))
            made = _sides[index] = torch.cuda.Stream(index), event
        side, event = made
        if driver.is_captured(index, stream):
            yield False
            return
        driver.call("cuEventRecord", event, driver.stream_object(stream))
        driver.call("cuStreamWaitEvent", driver.stream_object(side.cuda_stream), event, 0)
        with torch.cuda.stream(side):
            yield True
