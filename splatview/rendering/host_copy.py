"""Copies of tensors to host memory for which no caller waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from splatview_ipc.cuda import driver

if TYPE_CHECKING:
    from collections.abc import Mapping


def has_passed(event: torch.cuda.Event) -> bool:
    """Return whether a GPU has come to an event. Raises RuntimeError if it failed."""
    # Another thread may capture a CUDA graph, which a query would spoil.
    with driver.relaxed_capture():
        return event.query()


class QueuedHostCopy:
    """Tensors on their way to host memory; those that are there already stay."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Queue the copies on the current streams of the tensors' GPUs."""
        self.tensors: dict[str, torch.Tensor] = {}
        """In host memory; whole once `has_arrived`."""
        self._events: dict[torch.device, torch.cuda.Event] = {}
        for name, tensor in tensors.items():
            if tensor.is_cuda:
                self.tensors[name] = self._queue(tensor)
            else:
                self.tensors[name] = tensor
        for device, event in self._events.items():
            event.record(torch.cuda.current_stream(device))

    def _queue(self, tensor: torch.Tensor) -> torch.Tensor:
        # torch keeps pinned memory for the next picture of such a size.
        host = torch.empty(
            tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True
        )
        with torch.cuda.device(tensor.device):
            host.copy_(tensor, non_blocking=True)
            if tensor.device not in self._events:
                self._events[tensor.device] = torch.cuda.Event(blocking=True)
        return host

    @property
    def has_arrived(self) -> bool:
        """True once `tensors` hold the values. Raises RuntimeError if a GPU failed."""
        return all(has_passed(event) for event in self._events.values())

    def wait(self) -> None:
        """Wait until `tensors` hold the values, with the GIL released."""
        for event in self._events.values():
            event.synchronize()
