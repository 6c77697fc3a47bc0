"""`log`: numbers over the course of a training, as live plots in every viewer."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview.adapters import checks
from splatview.api.session import public, session

if TYPE_CHECKING:
    from splatview.adapters.series import Later
    from splatview_ipc.publisher.publisher import Publisher

STREAM = "scalars"
_PERIOD_S = 0.1
"""Time between two takings of logged numbers into the table."""
_MAX_WAITING = 1 << 16
"""Calls that wait for the worker thread."""
_MAX_NAME = 100
_END_TIMEOUT_S = 1.0
"""Longest wait for the GPU at the end of a run."""
_END_POLL_PERIOD_S = 0.01


class LoggedCall(NamedTuple):
    """One call of `log` that waits for the worker thread."""

    step: float
    time: float
    scalars: dict[str, float | Later]

    @property
    def has_arrived(self) -> bool:
        """True once the GPU has brought all numbers of the call."""
        return all(
            type(value) is float or value.arrived  # type: ignore[union-attr]
            for value in self.scalars.values()
        )


@public()
def log(step: float | None = None, /, **scalars: Any) -> None:
    """Plot numbers in every viewer that shows this process, over the training's steps.

    A call costs some microseconds. Nothing waits for a viewer, nor for the GPU: of a CUDA
    tensor a copy is queued on torch's current stream (about ten microseconds more), and
    what it held at this point is plotted once the GPU has come there. While a CUDA graph
    is captured, CUDA tensors are passed over. Arrays of other libraries are read at once.
    Of what lies long ago several samples become one, with their mean, highest and lowest;
    viewers that come late see all of it. SPLATVIEW_DISABLE=1 makes the call do nothing.

    Args:
        step: the step of these numbers, as the first argument or `step=`; any number up
            to 2**53. It may begin again, as it does after a restart. Without it the call
            is the step after that of the last call, the first one step 0.
        scalars: by name, in one call or in several, not all at every step: numbers, NaN
            and infinity included; tensors and arrays of one element. Names with a "/"
            share a plot with those that begin alike: `log(i, **{"loss/l1": a,
            "loss/ssim": b})`. At most 64 names of up to 100 printable characters; no
            part between "/" is empty, "." or "..".

    Raises:
        TypeError: a value is no number, or nothing is given.
        ValueError: a name is wrong, or is one too many.

    Faults of the surroundings never reach the caller, unless SPLATVIEW_STRICT=1.
    """
    logger: Logger | None = session().feature("log", Logger)
    if logger is None:
        return
    if step is None:
        step = scalars.pop("step", None)
    counts_itself = step is None
    if counts_itself:
        step = logger.step + 1
    step = checks.step(step)
    if not scalars:
        raise TypeError("log: no scalars were named; splatview.log(step, loss=loss)")
    has_gpu_values = False
    for name, value in scalars.items():
        if name not in logger.checked_names:
            if counts_itself:
                _check_not_step(name)
            logger.introduce(name, value)
        if type(value) is not float:
            value = _converted(name, value)
            scalars[name] = value
            has_gpu_values |= type(value) is not float
    if has_gpu_values:
        scalars = logger.queue_copies(scalars)
    logger.append(step, scalars)


class Logger:
    """A run's logged values: calls that wait for the worker thread, and their table."""

    def __init__(self, publisher: Publisher) -> None:
        from splatview.adapters.series import SCALARS, SeriesTable

        self.checked_names: set[str] = set()
        """Names that were checked."""
        self.step: float = -1
        """Step of the last call."""
        self._waiting: deque[LoggedCall] = deque()
        self._stream = publisher.stream(STREAM, "scalars")
        self._table = SeriesTable()
        self._stream.describe(SCALARS)
        self._slots: Any = None
        """A deque of free pinned memory for CUDA tensors; None before the first one."""
        self._lost_count = 0
        """Values of which no copy could be queued or kept."""
        self._is_pending = False
        """True if a call came since the worker thread took numbers last."""
        self._next_at = 0.0
        """Time from which on the worker thread may take numbers again."""
        self._lock = threading.RLock()
        """Reentrant: a signal's handler may log, or close the run, amid a call."""

    def introduce(self, name: str, value: Any) -> None:
        """Check a name that comes for the first time. Raises TypeError, ValueError."""
        from splatview_ipc.kinds.scalars import SCALAR_SERIES

        checks.name_text("log: the name", name, _MAX_NAME)
        _converted(name, value)
        with self._lock:
            if len(self.checked_names) >= SCALAR_SERIES:
                raise ValueError(
                    f"log: {name!r} is one scalar too many; a run has at most "
                    f"{SCALAR_SERIES}: log under names that were used before"
                )
            self.checked_names.add(name)

    def queue_copies(self, scalars: dict[str, Any]) -> dict[str, Any]:
        """Queue a copy of each CUDA tensor; values without a free slot are lost."""
        from splatview.adapters.series import pinned_slots, queued

        if self._slots is None:
            self._slots = pinned_slots()
        copies = queued(scalars, self._slots)
        self._lost_count += len(scalars) - len(copies)
        return copies

    def append(self, step: float, scalars: dict[str, Any]) -> None:
        """Leave the numbers of a call to the worker thread."""
        if len(self._waiting) >= _MAX_WAITING:
            # The worker thread gets no time.
            self._take_waiting()
            if len(self._waiting) >= _MAX_WAITING:
                self._lost_count += len(scalars)
                return
        self.step = step
        self._waiting.append(LoggedCall(step, time.time(), scalars))
        if not self._is_pending:
            self._is_pending = True
            session().wake()

    # On the worker thread.

    def tick(self, now: float) -> float:
        """Take in what was logged and publish it; return when to be called again."""
        if self._is_pending and now >= self._next_at:
            self._is_pending = False
            self._next_at = now + _PERIOD_S
            if self._take_waiting():
                self._publish()
            if self._waiting:
                # These wait for a GPU.
                self._is_pending = True
        if not self._is_pending:
            return math.inf
        return self._next_at

    def close(self) -> None:
        """Publish the last numbers; wait a little for those on a GPU."""
        timer = threading.Event()
        for _ in range(round(_END_TIMEOUT_S / _END_POLL_PERIOD_S)):
            self._take_waiting()
            if not self._waiting or timer.wait(_END_POLL_PERIOD_S):
                break
        if self._table:
            self._publish()

    def _take_waiting(self) -> bool:
        """Move calls into the table; return whether there were any.

        Stops at the first call whose numbers a GPU has not brought yet.
        """
        with self._lock:
            samples: dict[str, list[tuple[float, float, float]]] = {}
            step: float = 0
            while self._waiting and self._waiting[0].has_arrived:
                call = self._waiting.popleft()
                step = call.step
                for name, value in call.scalars.items():
                    scalar = self._read_scalar(value)
                    samples.setdefault(name, []).append((step, call.time, scalar))
            if samples:
                self._table.add(samples, float(step))
            return bool(samples)

    def _read_scalar(self, value: float | Later) -> float:
        """Return a number, and free the memory in which a GPU has brought it."""
        if isinstance(value, (int, float)):
            return value
        scalar = value.host.item()
        self._slots.append(value.host)
        return scalar

    def _publish(self) -> None:
        """Publish the table as the stream's next version."""
        meta: dict[str, Any] = {"step": self._table.step}
        if self._lost_count:
            meta["trouble"] = (
                f"{self._lost_count} values are missing, since the GPU was too far behind"
            )
        self._stream.publish((self._table.tensors(), meta))


def _check_not_step(name: str) -> None:
    """Raise TypeError for a misspelt `step`. `steps`, as of an episode, is a number."""
    if name != "steps" and checks.near_miss(name, ("step",)) is not None:
        raise TypeError(
            f"log has no option {name!r}: did you mean step? A scalar of this name needs "
            f"a step beside it: splatview.log(step, {name}=...)"
        )


def _converted(name: str, value: Any) -> Any:
    """Return a number as a float, a CUDA tensor as it is. Raises TypeError, ValueError."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        checks.check_tensor(value, f"log: {name}")
        if value.numel() != 1 or value.is_complex():
            raise TypeError(
                f"log: {name} is a tensor of shape {tuple(value.shape)}, {value.dtype}; "
                "expected a real one of one element"
            )
        if value.is_cuda:
            return value
        return float(value.detach().item())
    if isinstance(value, (str, bytes, complex)) or not hasattr(value, "__float__"):
        raise TypeError(f"log: {name} is {checks.type_text(value)}, not a number")
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except OverflowError:
        raise ValueError(
            f"log: {name} is {str(value)[:20]}..., too large for a float"
        ) from None
    except (TypeError, ValueError):
        raise TypeError(
            f"log: {name} is {checks.type_text(value)}, of which float() makes no number"
        ) from None
