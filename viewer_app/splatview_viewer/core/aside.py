"""Work that takes too long for the loop: in a thread of its own, which ends when there is nothing left."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Aside(Generic[T]):
    """Works out one thing at a time. Of what is asked for meanwhile only the last comes next; what is old by then is
    never told. Everything but the work itself is called from one thread."""

    def __init__(self, name: str) -> None:
        """`name`: of its threads."""
        self._name = name
        self._lock = threading.Lock()
        self._next: tuple[Callable[[], T], Callable[[], None]] | None = None
        self._running = False
        self._come: tuple[T | None, BaseException | None] | None = None
        self._asked = 0
        """Counts what was asked for or forgotten."""

    @property
    def busy(self) -> bool:
        """Whether something was asked for that has not come."""
        with self._lock:
            return self._running or self._next is not None

    def ask(self, work: Callable[[], T], wake: Callable[[], None] = lambda: None) -> None:
        """Have this worked out; `wake` is called from the thread when it has come."""
        with self._lock:
            self._asked += 1
            self._next, self._come = (work, wake), None
            if self._running:
                return
            self._running = True
        threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def take(self) -> T | None:
        """What came since the last time, once; None while nothing has. Raises what the work raised."""
        with self._lock:
            come, self._come = self._come, None
        if come is None:
            return None
        value, error = come
        if error is not None:
            raise error
        return value

    def forget(self) -> None:
        """What was asked for is wanted no more."""
        with self._lock:
            self._asked += 1
            self._next = self._come = None

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._next is None:
                    self._running = False
                    return
                (work, wake), self._next, asked = self._next, None, self._asked
            come: tuple[T | None, BaseException | None]
            try:
                come = work(), None
            except Exception as e:
                come = None, e
            del work  # it may hold a scene
            with self._lock:
                told = asked == self._asked
                if told:
                    self._come = come
            if told:
                wake()
            del come, wake
