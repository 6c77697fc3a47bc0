"""`log`: numbers over the course of a training, as live plots in every viewer."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from splatview.adapters.memory_options import MOST_STEP, number
from splatview.adapters.metadata import check_tensor
from splatview.api import publish as publishing

if TYPE_CHECKING:
    from splatview.adapters.gpu_scalars import Later, Pinned
    from splatview_ipc import Stream

__all__ = ["log"]

STREAM = "scalars"
"""The stream's name."""
PERIOD = 0.1
"""Seconds between two looks at what was logged."""
SHARE = 0.05
"""The share of its time that the thread may spend on letting viewers see it."""
MOST_WAITING = 1 << 16
"""Calls whose values nobody has looked at; the next one does it itself."""
MOST_NAME = 100
LAST = 1.0
"""Seconds for which the end of a run waits for the GPU to bring the last numbers."""


def log(step: float | None = None, /, **scalars: Any) -> None:
    """Plot numbers in every viewer that looks at this process, over the steps of a training, and go on at once.

    step: of what the numbers are, as the first argument or `step=`; any number up to 2**53. It may begin anew, as it
        does after a restart. Without it the call is the step after that of the last call, the first one step 0.
    scalars: by name, in one call or in several, not all at every step: numbers, NaN and infinity included; tensors and
        arrays of one element. Names with a "/" share a plot with those that begin alike: `log(i, **{"loss/l1": a,
        "loss/ssim": b})`. At most 64 names of up to 100 printable characters.

    A call costs some microseconds. Nothing waits for a viewer, nor for the GPU: of a CUDA tensor a copy is queued on
    torch's current stream (about ten microseconds more), and what it held at this point is plotted once the GPU has
    come there. While a CUDA graph is captured, CUDA tensors are passed over. Arrays of other libraries are read at
    once. Of what lies long ago several samples become one, with their mean, highest and lowest; viewers that come late
    see all of it.

    Raises TypeError or ValueError for what is no number, for a wrong name and for one too many. Faults of the
    surroundings never reach the caller, unless SPLATVIEW_STRICT=1. SPLATVIEW_DISABLE=1 makes the call do nothing.
    """
    logger = _logger or _begin()
    if logger is None:
        return
    if step is None and (step := scalars.pop("step", None)) is None:
        step = logger.step + 1
    if type(step) is not int or not -MOST_STEP <= step <= MOST_STEP:
        step = number(step)
    later = False
    for name, value in scalars.items():
        if name not in logger.known:
            logger.introduce(name, value)
        if type(value) is not float:
            value = scalars[name] = logger.converted(name, value)
            later |= type(value) is not float
    if not scalars:
        raise TypeError("log: no scalars were named; splatview.log(step, loss=loss)")
    if later:
        scalars = logger.queued(scalars)
    logger.step, waiting = step, logger.waiting
    waiting.append((step, time.time(), scalars))
    if not logger.called.is_set():
        logger.called.set()
    if len(waiting) > MOST_WAITING:
        logger.catch_up()


class _Logger:
    """What a run logs: its waiting calls, its thread, the table that they become."""

    def __init__(self, stream: Stream) -> None:
        from splatview.adapters.scalars import ScalarsForm, Table

        self.known: dict[str, None] = {}
        """The names so far."""
        self.step: float = -1  # of the last call
        self.waiting: deque[tuple[float, float, dict[str, Any]]] = deque()
        """Calls that nobody has looked at: step, time, values: floats, and `Later` for what a GPU will bring."""
        self.called = threading.Event()
        self._stream, self._table, self._form = stream, Table(), ScalarsForm()
        stream.describe(self._form)
        self._pinned: Pinned | None = None
        self._lost = 0
        self._meta: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="splatview scalars", daemon=True)
        self._thread.start()

    # The caller's thread.

    def introduce(self, name: str, value: Any) -> None:
        """A name that comes for the first time."""
        from splatview_ipc.kinds.rules import SCALAR_SERIES

        if not 1 <= len(name) <= MOST_NAME or not name.isprintable():
            shown = repr(name[:40]) + ("..." if len(name) > 40 else "")
            raise ValueError(f"log: a scalar is called {shown}; legal are 1 to {MOST_NAME} printable characters")
        self.converted(name, value, check_only=True)
        with self._lock:
            if len(self.known) >= SCALAR_SERIES:
                raise ValueError(f"log: {name!r} is one scalar too many; a run has at most {SCALAR_SERIES}: log under "
                                 "names that were used before")
            self.known[name] = None

    def converted(self, name: str, value: Any, check_only: bool = False) -> Any:
        """A float; a CUDA tensor and what is deferred stay what they are."""
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            check_tensor(value, f"log: {name}")
            if value.numel() != 1 or value.is_complex():
                raise TypeError(f"log: {name} is a tensor of shape {tuple(value.shape)}, {value.dtype}; legal are real "
                                "ones of one element")
            return value if value.is_cuda or check_only else float(value.detach().item())
        if isinstance(value, (str, bytes, complex)) or not hasattr(value, "__float__"):
            raise TypeError(f"log: {name} is a {type(value).__name__}, not a number")
        try:
            return float(value.item() if hasattr(value, "item") else value)
        except OverflowError:
            raise ValueError(f"log: {name} is {str(value)[:20]}..., too large for a float") from None
        except (TypeError, ValueError):
            raise TypeError(f"log: {name} is a {type(value).__name__}, of which float() makes no number") from None

    def queued(self, scalars: dict[str, Any]) -> dict[str, Any]:
        """The same with a copy queued of each CUDA tensor; without those of which none can be."""
        try:
            if self._pinned is None:
                from splatview.adapters.gpu_scalars import Pinned

                self._pinned = Pinned()
            return self._pinned.queue(scalars)
        except Exception as e:
            publishing.fault(e)
            return {name: value for name, value in scalars.items() if type(value) is float}

    def catch_up(self) -> None:
        """Look at what waits, since nobody else came to it; what the GPU has not brought by now is given up."""
        try:
            self.take_in()
        except Exception as e:
            self.waiting.clear()
            publishing.fault(e)

    # Any thread.

    def take_in(self, last: bool = False) -> bool:
        """Bring what was logged into the table, as far as the GPU has come; `last`: wait a moment for it. True when
        there was any."""
        with self._lock:
            found: dict[str, list[tuple[float, float, float]]] = {}
            step = self._table.step
            until = time.monotonic() + LAST if last else 0.0
            for _ in range(len(self.waiting)):
                at, when, scalars = self.waiting[0]
                there = all(type(value) is float or value.there(until) for value in scalars.values())
                if not (there or last or len(self.waiting) > MOST_WAITING):
                    break
                self.waiting.popleft()
                step = float(at)
                for name, value in scalars.items():
                    if type(value) is not float:
                        value = self._arrival(value)
                        if value is None:
                            continue
                    rows = found.get(name)
                    if rows is None:
                        rows = found[name] = []
                    rows.append((step, when, value))
            if found:
                self._table.add(found, step)
            return bool(found)

    def _arrival(self, value: Later) -> float | None:
        """What the GPU brought; None for what never came."""
        brought = value.take()
        if brought is None:
            self._lost += 1
        return brought

    def tell(self) -> None:
        """Let viewers see it."""
        if not self._table:
            return
        meta: dict[str, Any] = {"step": self._table.step}
        lost = self._lost + (self._pinned.lost if self._pinned is not None else 0)
        if lost:
            meta["trouble"] = f"{lost} values are missing, since the GPU was too far behind"
        if meta != self._meta:
            self._meta = meta
        if not self._stream.keep(self._table, self._meta):
            self._stream.publish((self._form.of(self._table), self._meta))

    # Its own thread.

    def _run(self) -> None:
        while True:
            self.called.wait()
            if self._ending:
                return
            self.called.clear()
            begin = time.monotonic()
            try:
                if self.take_in():
                    self.tell()
            except Exception as e:
                with contextlib.suppress(Exception):  # raising on request is for the trainer's own thread
                    publishing.fault(e)
            if self.waiting:
                self.called.set()
            self._pause(max(PERIOD, (time.monotonic() - begin) / SHARE))

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._ending and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, PERIOD))

    def end(self) -> None:
        """Look a last time, and no more."""
        self._ending = True
        self.called.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5)
        with contextlib.suppress(Exception):
            if self.take_in(last=True):
                self.tell()


def end() -> None:
    """What was logged is seen by viewers; the next `log` begins anew. Idempotent."""
    global _logger
    with _lock:
        ended, _logger = _logger, None
    if ended is not None:
        ended.end()


def _begin() -> _Logger | None:
    """What logs for this process; None where the surroundings allow none."""
    global _logger
    with _lock:
        if _logger is None:
            publisher = publishing.running()
            if publisher is None:
                return None
            stream = publisher.stream(STREAM, "scalars")
            try:
                _logger = _Logger(stream)
            except Exception as e:
                publishing.fault(e)
                return None
            atexit.unregister(end)
            atexit.register(end)  # later than the publisher's, so that it comes first
        return _logger


_logger: _Logger | None = None
_lock = threading.RLock()


def _after_fork_in_child() -> None:
    """What is logged is the parent's. A child that logs begins its own."""
    global _logger, _lock
    _logger, _lock = None, threading.RLock()


os.register_at_fork(after_in_child=_after_fork_in_child)
