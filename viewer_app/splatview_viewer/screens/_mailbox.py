"""What other threads hand to the one that draws: events in order, and an end to its sleep."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

MOST = 4096
"""Items that wait at most."""


class Mailbox(Generic[T]):
    """Any thread puts in, one thread takes out."""

    def __init__(self, supersedes: Callable[[T, T], bool] | None = None, most: int = MOST) -> None:
        """`supersedes(new, last)`: whether an item takes the place of the one that waits before it."""
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._woken = False
        self._supersedes = supersedes
        self._most = most

    def put(self, *items: T) -> bool:
        """Put in; False when there is no room, and then nothing more was put in."""
        with self._changed:
            for item in items:
                if self._supersedes is not None and self._items and self._supersedes(item, self._items[-1]):
                    self._items[-1] = item
                elif len(self._items) < self._most:
                    self._items.append(item)
                else:
                    return False
            self._changed.notify()
        return True

    def wake(self) -> None:
        """End a `take` that sleeps, or the next one."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def take(self, timeout: float) -> list[T]:
        """All that waits, oldest first. Sleeps at most `timeout` seconds for the first one, or until `wake`."""
        with self._changed:
            if not self._items and not self._woken and timeout > 0:
                self._changed.wait_for(lambda: bool(self._items) or self._woken, timeout)
            self._woken = False
            items = list(self._items)
            self._items.clear()
        return items
