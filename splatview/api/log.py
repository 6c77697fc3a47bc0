"""`log`: numbers over the course of a training, as live plots in every viewer."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from splatview.adapters import checks
from splatview.api.session import public, session

if TYPE_CHECKING:
    from splatview_ipc.publisher.publisher import Publisher

STREAM = "scalars"
_PERIOD_S = 0.1
"""Time between two looks at what was logged."""
_MAX_WAITING = 1 << 16
"""Calls that wait for the worker thread."""
_MAX_NAME = 100
_LAST_S = 1.0
_LOOK_S = 0.01
"""Longest wait for the GPU at the end of a run; time between two looks."""


@public()
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
    later = False
    for name, value in scalars.items():
        if name not in logger.known:
            if counts_itself:
                _check_not_step(name)
            logger.introduce(name, value)
        if type(value) is not float:
            value = _converted(name, value)
            scalars[name] = value
            later |= type(value) is not float
    logger.append(step, logger.queued(scalars) if later else scalars)


class Logger:
    """A run's logged values: calls that wait for the worker thread, and the table that they become."""

    def __init__(self, publisher: Publisher) -> None:
        from splatview.adapters.series import SCALARS, SeriesTable

        self.known: set[str] = set()
        self.step: float = -1
        """Step of the last call."""
        self._waiting: deque[tuple[float, float, dict[str, Any]]] = deque()
        """Step, time, values: floats, and `Later` for what is on its way from a GPU."""
        self._stream, self._table = publisher.stream(STREAM, "scalars"), SeriesTable()
        self._stream.describe(SCALARS)
        self._slots: Any = None
        """A deque of free pinned memory for CUDA tensors; None before the first one."""
        self._lost = 0
        self._pending = False
        """True if a call came since the worker's last look."""
        self._rest_until = 0.0
        self._lock = threading.RLock()
        """A signal's handler may log, or close the run, amid a call."""

    def introduce(self, name: str, value: Any) -> None:
        """Check a name that comes for the first time. Raises TypeError, ValueError."""
        from splatview_ipc.kinds.scalars import SCALAR_SERIES

        if not 1 <= len(name) <= _MAX_NAME or not name.isprintable():
            raise ValueError(
                f"log: a scalar is called {name[:40]!r}; legal are 1 to {_MAX_NAME} printable characters"
            )
        _converted(name, value)
        with self._lock:
            if len(self.known) >= SCALAR_SERIES:
                raise ValueError(
                    f"log: {name!r} is one scalar too many; a run has at most {SCALAR_SERIES}: log under "
                    "names that were used before"
                )
            self.known.add(name)

    def queued(self, scalars: dict[str, Any]) -> dict[str, Any]:
        """Queue a copy of each CUDA tensor; those of which none can be queued are lost."""
        from splatview.adapters.series import pinned_slots, queued

        if self._slots is None:
            self._slots = pinned_slots()
        found = queued(scalars, self._slots)
        self._lost += len(scalars) - len(found)
        return found

    def append(self, step: float, scalars: dict[str, Any]) -> None:
        if len(self._waiting) >= _MAX_WAITING:
            self._take_in()  # the worker thread gets no time
            if len(self._waiting) >= _MAX_WAITING:
                self._lost += len(scalars)
                return
        self.step = step
        self._waiting.append((step, time.time(), scalars))
        if not self._pending:
            self._pending = True
            session().wake()

    # The worker thread.

    def tick(self, now: float) -> float:
        if self._pending and now >= self._rest_until:
            self._pending = False
            self._rest_until = now + _PERIOD_S
            if self._take_in():
                self._show()
            self._pending = self._pending or bool(self._waiting)  # for a GPU
        return self._rest_until if self._pending else math.inf

    def close(self) -> None:
        nothing = threading.Event()
        for _ in range(round(_LAST_S / _LOOK_S)):
            self._take_in()
            if not self._waiting or nothing.wait(_LOOK_S):
                break
        if self._table:
            self._show()

    def _take_in(self) -> bool:
        """Move calls into the table, up to the first whose numbers a GPU has not brought; True if there were any."""
        with self._lock:
            found: dict[str, list[tuple[float, float, float]]] = {}
            step: float = 0
            while self._waiting and all(
                type(v) is float or v.arrived for v in self._waiting[0][2].values()
            ):
                step, when, scalars = self._waiting.popleft()
                for name, value in scalars.items():
                    if type(value) is not float:
                        slot = value.host
                        value = value.host.item()
                        self._slots.append(slot)
                    found.setdefault(name, []).append((step, when, value))
            if found:
                self._table.add(found, float(step))
            return bool(found)

    def _show(self) -> None:
        meta: dict[str, Any] = {"step": self._table.step}
        if self._lost:
            meta["trouble"] = (
                f"{self._lost} values are missing, since the GPU was too far behind"
            )
        self._stream.publish((self._table.tensors(), meta))


def _check_not_step(name: str) -> None:
    """Raise TypeError for a misspelt `step`. Steps, such as those of an episode, are counted."""
    if name != "steps" and checks.near_miss(name, ("step",)) is not None:
        raise TypeError(
            f"log has no option {name!r}: did you mean step? A scalar of this name needs a step beside it: "
            f"splatview.log(step, {name}=...)"
        )


def _converted(name: str, value: Any) -> Any:
    """Return a number as a float, a CUDA tensor as it is. Raises TypeError, ValueError."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        checks.check_tensor(value, f"log: {name}")
        if value.numel() != 1 or value.is_complex():
            raise TypeError(
                f"log: {name} is a tensor of shape {tuple(value.shape)}, {value.dtype}; legal are real "
                "ones of one element"
            )
        return value if value.is_cuda else float(value.detach().item())
    if isinstance(value, (str, bytes, complex)) or not hasattr(value, "__float__"):
        raise TypeError(f"log: {name} is a {type(value).__name__}, not a number")
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except OverflowError:
        raise ValueError(
            f"log: {name} is {str(value)[:20]}..., too large for a float"
        ) from None
    except (TypeError, ValueError):
        raise TypeError(
            f"log: {name} is a {type(value).__name__}, of which float() makes no number"
        ) from None
