"""Viewers' requests for pictures that wait to be drawn."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from splatview_ipc.control.messages import Draw

MAX_WAITING = 64
"""Viewers whose requests wait at most."""
_LIFETIME_S = 10.0
"""Seconds after which a request is forgotten.

A viewer that is there repeats it each second.
"""


class _WaitingRequest(NamedTuple):
    draw: Draw
    arrived_at: float


class RequestQueue:
    """The newest request of each viewer; they are served in turn. For any thread."""

    def __init__(self) -> None:
        self._requests: dict[str, _WaitingRequest] = {}
        """By viewer, in the order of their turns."""
        # Reentrant: a signal's handler may take a request too.
        self._lock = threading.RLock()

    def __bool__(self) -> bool:
        return bool(self._requests)

    def put(self, draw: Draw, now: float) -> None:
        """Add a request; it takes the turn of an older one of the same viewer.

        Forgets those that viewers do not repeat, and the first one where there are too
        many.

        Args:
            draw: the request.
            now: the clock's seconds.
        """
        with self._lock:
            for viewer, request in list(self._requests.items()):
                if now >= request.arrived_at + _LIFETIME_S:
                    del self._requests[viewer]
            last_request = self._requests.get(draw.viewer)
            if last_request is not None and draw.number < last_request.draw.number:
                return
            if last_request is None and len(self._requests) >= MAX_WAITING:
                del self._requests[next(iter(self._requests))]
            self._requests[draw.viewer] = _WaitingRequest(draw, now)

    def take(self) -> Draw | None:
        """Remove and return the request whose turn it is; None: none waits."""
        with self._lock:
            viewer = next(iter(self._requests), None)
            if viewer is None:
                return None
            return self._requests.pop(viewer).draw

    def clear(self) -> None:
        """Forget all requests."""
        with self._lock:
            self._requests.clear()
