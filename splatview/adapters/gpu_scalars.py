"""Numbers in GPU memory, brought to the host without waiting for the GPU."""

from __future__ import annotations

from collections import deque

import torch

SLOTS = 1024
"""Numbers that may be on their way."""


class Later:
    """A number on its way to the host."""

    __slots__ = ("_event", "_pinned", "_slot")

    def __init__(self, pinned: Pinned, slot: int, event: torch.cuda.Event) -> None:
        self._pinned, self._slot, self._event = pinned, slot, event

    @property
    def arrived(self) -> bool:
        return self._event.query()

    def take(self) -> float:
        """Return the number, once, after it has arrived."""
        value = self._pinned.slots[self._slot].item()
        self._pinned.free.append(self._slot)
        return float(value)


class Pinned:
    """Pinned memory for numbers on their way. One thread queues copies, another takes what has arrived."""

    def __init__(self) -> None:
        self.slots = torch.empty(SLOTS, dtype=torch.float64, pin_memory=True).unbind(0)
        self.free = deque(range(SLOTS))

    def queue(self, tensor: torch.Tensor, events: dict[torch.device, torch.cuda.Event]) -> Later | None:
        """Queue a copy of a CUDA tensor of one element on torch's current stream.

        `events` gets the event of its device, to be recorded behind all copies. None: a CUDA graph is being captured,
        in whose replays the copy would run again, or all slots are in use.
        """
        with torch.cuda.device(tensor.device):
            if torch.cuda.is_current_stream_capturing() or not self.free:
                return None
            slot = self.free.popleft()
            self.slots[slot].copy_(tensor.detach().reshape(()), non_blocking=True)
        event = events.get(tensor.device)
        if event is None:
            event = events[tensor.device] = torch.cuda.Event()
        return Later(self, slot, event)


def record(events: dict[torch.device, torch.cuda.Event]) -> None:
    """Record events behind what torch's current streams have queued."""
    for device, event in events.items():
        event.record(torch.cuda.current_stream(device))
