"""Numbers that lie on a GPU, brought to the host without anybody waiting for it."""

from __future__ import annotations

import time
from typing import Any

import torch

SLOTS = 1024
"""Numbers of one type that may be on their way."""


class Later:
    """A number that is on its way to the host."""

    __slots__ = ("_event", "_pool", "_slot")

    def __init__(self, pool: _Pool, slot: int, event: torch.cuda.Event) -> None:
        self._pool, self._slot, self._event = pool, slot, event

    def there(self, until: float = 0.0) -> bool:
        """Whether it has come; waits for it until then (time.monotonic)."""
        while not self._event.query():
            if time.monotonic() >= until:
                return False
            time.sleep(0.001)
        return True

    def take(self) -> float | None:
        """The number, once; None if it has not come."""
        if not self._event.query():
            self._pool.late.append((self._slot, self._event))
            return None
        value = self._pool.slots[self._slot].item()
        self._pool.free.append(self._slot)
        return float(value)


class _Pool:
    """Pinned memory for numbers of one type."""

    def __init__(self, dtype: torch.dtype, pinned: bool = True) -> None:
        self.slots = torch.empty(SLOTS, dtype=dtype, pin_memory=pinned).unbind(0)
        self.free = list(range(SLOTS))
        self.late: list[tuple[int, torch.cuda.Event]] = []
        """Slots of numbers that nobody waits for any more, and that may still come."""

    def reclaim(self) -> None:
        """Have those free that have come. The caller's thread."""
        late, self.late = self.late, []
        for slot, event in late:
            if event.query():
                self.free.append(slot)
            else:
                self.late.append((slot, event))


class Pinned:
    """Queues copies. The caller's thread queues; another may take what has come."""

    def __init__(self) -> None:
        self.lost = 0
        """Numbers that were passed over: all slots were in use, or a CUDA graph was being captured."""
        self._pools: dict[torch.dtype, _Pool] = {}

    def queue(self, scalars: dict[str, Any]) -> dict[str, Any]:
        """The same with a `Later` in the place of each CUDA tensor of one element, without those that are passed
        over."""
        out: dict[str, Any] = {}
        events: dict[torch.device, torch.cuda.Event] = {}
        for name, value in scalars.items():
            if type(value) is float:
                out[name] = value
                continue
            device = value.device
            with torch.cuda.device(device):
                if torch.cuda.is_current_stream_capturing():  # what we would record would run at each replay
                    self.lost += 1
                    continue
                dtype = value.dtype if value.dtype in (torch.float32, torch.float64) else torch.float64
                pool = self._pools.get(dtype)
                if pool is None:
                    pool = self._pools[dtype] = _Pool(dtype)
                if not pool.free and pool.late:
                    pool.reclaim()
                if not pool.free:
                    self.lost += 1
                    continue
                slot = pool.free.pop()
                pool.slots[slot].copy_(value.detach().reshape(()), non_blocking=True)
            event = events.get(device)
            if event is None:
                event = events[device] = torch.cuda.Event()
            out[name] = Later(pool, slot, event)
        for device, event in events.items():
            event.record(torch.cuda.current_stream(device))
        return out
