"""What is worked out once for a snapshot is kept as long as the snapshot."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace

    T = TypeVar("T")

_kept: WeakKeyDictionary[Snapshot, dict[Any, _Answer]] = WeakKeyDictionary()
_lock = threading.Lock()
_NONE = object()


class _Answer:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: Any = _NONE


def _recall(snapshot: Snapshot, key: tuple[object, ...], make: Callable[[], Any]) -> Any:
    """What is kept must not refer to the snapshot: it would never go."""
    with _lock:
        answer = _kept.setdefault(snapshot, {}).setdefault(key, _Answer())
    if answer.value is _NONE:
        with answer.lock:  # two threads that ask for the same work do it once; nothing asks for itself
            if answer.value is _NONE:
                answer.value = make()
    return answer.value


def of_snapshot(function: Callable[[Snapshot], T]) -> Callable[[Snapshot], T]:
    """Keep what a function of a snapshot answers."""
    @functools.wraps(function)
    def keeping(snapshot: Snapshot) -> T:
        return _recall(snapshot, (function,), lambda: function(snapshot))
    return keeping


def of_trace(function: Callable[[Snapshot, Trace], T]) -> Callable[[Snapshot, Trace], T]:
    """Keep what a function of a snapshot and one of its traces answers."""
    @functools.wraps(function)
    def keeping(snapshot: Snapshot, trace: Trace) -> T:
        return _recall(snapshot, (function, trace.device), lambda: function(snapshot, trace))
    return keeping
