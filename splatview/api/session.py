"""The one `Session` of a process: its run, its worker thread, its handling of faults."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import re
import sys
import threading
import time
from types import FunctionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from splatview.api.exits import ExitCall
from splatview_ipc.control.errors import IpcError
from splatview_ipc.system.terminal import printable_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

    from splatview_ipc.publisher.publisher import Publisher
    from splatview_ipc.system.child_program import ChildProgram

    Tick = Callable[[float], float]
    """Does what is due at a time (time.monotonic).

    Returns when it is due again; math.inf: after the next wake.
    """

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("splatview")

RETRY_S = 10.0
"""Time until a run is begun again after the surroundings allowed none.

An attempt takes less than a millisecond.
"""
_FAULT_PAUSE_S = 1.0
"""Time until a feature's next tick after one that failed."""
_END_TIMEOUT_S = 20.0
"""Longest wait for the worker's end.

A memory snapshot of many gigabytes may be being written.
"""
_MAX_LOGGED = 100


class Session:
    """Everything that splatview keeps in this process.

    A forked child has a new one, and leaves the parent's alone.
    """

    def __init__(self) -> None:
        self.publisher: Publisher | None = None
        self.published: dict[str, Any] = {}
        """Published streams by name."""
        self.features: dict[str, Any] = {}
        """Objects that `close()` ends with the run, after the worker thread has ended."""
        self.programs: list[ChildProgram] = []
        """Viewers that go on when the run ends, and end with this process."""
        self.lock = threading.RLock()
        """Held while streams and features are made."""
        self._starting = threading.Lock()
        self._starting_thread = 0
        """The thread that holds `_starting`; 0: none."""
        self.exiting = False
        self._retry_at = -math.inf
        self._wake = threading.Event()
        self._worker: threading.Thread | None = None
        self._ticks: dict[str, Tick] = {}
        """The `tick` of each feature that has one."""
        self._is_beginning = False
        """True while a run is begun, under the lock.

        Only a signal's handler in the same thread can have the lock too.
        """

    @property
    def idle(self) -> bool:
        """True if nothing can be published now.

        SPLATVIEW_DISABLE is set, the process ends, or there was no run a moment ago.
        """
        if self.publisher is not None:
            return False
        return disabled() or self.exiting or time.monotonic() < self._retry_at

    def run(self) -> Publisher | None:
        """Return this process's run, which the first call begins; None while `idle`.

        None too in a signal's handler that interrupts that first call: there is one run
        at a time. Raises IpcError, OSError.
        """
        if self.publisher is not None or self.idle:
            return self.publisher
        with self.lock:
            if self._is_beginning:
                return self.publisher
            # Set before the publisher is read: a handler may come between the two.
            self._is_beginning = True
            try:
                if self.publisher is None:
                    self._begin_run()
            except (IpcError, OSError):
                self._retry_at = time.monotonic() + RETRY_S
                raise
            finally:
                self._is_beginning = False
        return self.publisher

    def _begin_run(self) -> None:
        from splatview_ipc.publisher.publisher import Publisher

        self.publisher = Publisher(os.environ.get("SPLATVIEW_NAME"), on_fault=fault)
        # Registered after the exit calls of the modules that it uses, to come before.
        _exit_call.register()
        for name, make in first_features.items():
            self.feature(name, make)

    def feature(self, name: str, make: Callable[[Publisher], Any]) -> Any:
        """Return a feature of the run, made at the first call; None without a run."""
        if name not in self.features:
            with self.lock:
                publisher = self.run()
                if publisher is not None and name not in self.features:
                    feature = make(publisher)
                    # A signal's handler may have ended the run, or made the feature,
                    # meanwhile.
                    if self.publisher is publisher and name not in self.features:
                        self.add(name, feature)
        return self.features.get(name)

    def add(self, name: str, feature: Any) -> None:
        """Take over a feature, and call its `tick`, if any, on the worker thread."""
        tick: Tick | None = getattr(feature, "tick", None)
        with self.lock:
            if tick is not None and self._worker is None:
                self._start_worker()
            self.features = {**self.features, name: feature}
            if tick is not None:
                self._ticks = {**self._ticks, name: tick}
        self.wake()

    def _start_worker(self) -> None:
        worker = threading.Thread(
            target=self._run_ticks, name="splatview worker", daemon=True
        )
        # Stored before it is started: it ends when it is not this one any more.
        self._worker = worker
        try:
            worker.start()
        except RuntimeError:
            self._worker = None
            raise

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Hold other threads up while a child program is started that calls share.

        Taken before `lock`. Raises RuntimeError in a signal's handler that interrupts it:
        it would wait for itself.
        """
        thread = threading.get_ident()
        if self._starting_thread == thread:
            raise RuntimeError(
                "a signal's handler has interrupted the start of the program that it "
                "needs; note the signal, and call this after the handler"
            )
        with self._starting:
            self._starting_thread = thread
            try:
                yield
            finally:
                self._starting_thread = 0

    def wake(self) -> None:
        """Have the worker thread call every feature soon. On any thread."""
        self._wake.set()

    def forget(self, name: str) -> None:
        """Release what a stream shows; the stream stays for its viewers.

        Not while another thread publishes it.
        """
        entry = self.published.pop(name, None)
        if entry is not None:
            entry.layout.release()
        publisher = self.publisher
        stream = publisher.streams.get(name) if publisher is not None else None
        if stream is not None:
            stream.clear()

    def close(self, exiting: bool = False) -> None:
        """End the run and all features. Idempotent.

        Args:
            exiting: the process ends; viewers keep what they have mapped.
        """
        with self.lock:
            worker = self._worker
            # The worker thread ends when it finds that it is not the present one.
            self._worker = None
            self.exiting = self.exiting or exiting
        self.wake()
        if worker is not None and worker is not threading.current_thread():
            worker.join(_END_TIMEOUT_S)
        with self.lock:
            for feature in self.features.values():
                with contextlib.suppress(Exception):
                    feature.close()
            self.features = {}
            self._ticks = {}
            publisher = self.publisher
            try:
                if publisher is not None:
                    publisher.close(exiting)
            except BaseException:
                # After Ctrl-C the rest is done now, without a pause.
                if publisher is not None:
                    publisher.close(exiting)
                raise
            finally:
                self.publisher = None
                self.published.clear()
                self._retry_at = -math.inf

    def _run_ticks(self) -> None:
        """Call the features when they are due, until another worker takes over."""
        worker = threading.current_thread()
        due_times: dict[str, float] = {}
        while self._worker is worker:
            next_due = min(
                (due_times.get(name, 0.0) for name in self._ticks), default=math.inf
            )
            wait = next_due - time.monotonic()
            is_woken = False
            if wait > 0:
                is_woken = self._wake.wait(min(wait, threading.TIMEOUT_MAX))
            if is_woken:
                self._wake.clear()
            for name, tick in self._ticks.items():
                now = time.monotonic()
                is_due = is_woken or due_times.get(name, 0.0) <= now
                if self._worker is not worker or not is_due:
                    continue
                try:
                    due_times[name] = tick(now)
                except Exception as error:
                    due_times[name] = now + _FAULT_PAUSE_S
                    # SPLATVIEW_STRICT raises in the trainer's own threads alone.
                    with contextlib.suppress(Exception):
                        fault(error)


_session = Session()
_inherited: list[Session] = []
"""Sessions of the parents of a forked child, kept from being torn down there."""
_logged_faults: set[str] = set()
"""Texts of faults with # for each number."""


first_features: dict[str, Callable[[Publisher], Any]] = {}
"""What makes the features that each run has from its beginning, by their names."""


def session() -> Session:
    """Return the session of this process."""
    return _session


def started_publisher() -> Publisher | None:
    """Return this process's run; None before there is one."""
    return _session.publisher


def run_name() -> str:
    """Return the name of this process's run, also of one that is still to begin."""
    from splatview_ipc.publisher.publisher import script_name

    return os.environ.get("SPLATVIEW_NAME") or script_name()


def disabled() -> bool:
    """Return True if SPLATVIEW_DISABLE is set."""
    return os.environ.get("SPLATVIEW_DISABLE", "") not in ("", "0")


def capturing() -> bool:
    """Return True, and count it, while a CUDA graph is captured on the current stream.

    Work that is queued then would run at the graph's replays.
    """
    from splatview_ipc.cuda.driver import torch_with_cuda

    torch = torch_with_cuda()
    if torch is None or not torch.cuda.is_current_stream_capturing():
        return False
    publisher = _session.publisher
    if publisher is not None:
        from splatview_ipc.shm.control_block import SKIPPED

        publisher.control.words[SKIPPED] += 1
    return True


# ---- torch.compile


class _Untraced:
    """The mark of a function at which dynamo breaks the graph.

    `torch.compiler.disable` does the same with an import of dynamo. Dynamo evaluates the
    mark when it meets the function; from then on it leaves alone what the function calls.
    """

    def __init__(self, code: CodeType) -> None:
        self._code = code
        if "torch" in sys.modules:
            bool(self)

    def __bool__(self) -> bool:
        # PyTorch before 2.7 has none of these names.
        with contextlib.suppress(ImportError, AttributeError):
            from torch._C._dynamo.eval_frame import (
                _FrameAction,
                _FrameExecStrategy,
                set_code_exec_strategy,
            )

            skip = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
            set_code_exec_strategy(self._code, skip)
        return True


def untraced(*classes: type) -> None:
    """Keep torch.compile from tracing the methods and properties of classes."""
    for owner in classes:
        for member in vars(owner).values():
            function = getattr(member, "fget", member)
            if isinstance(function, FunctionType):
                # Of a context manager not the code that all of them share.
                code = getattr(function, "__wrapped__", function).__code__
                function._torchdynamo_disable = _Untraced(code)  # type: ignore[attr-defined]


def untraced_function(function: Callable[P, R]) -> Callable[P, R]:
    """Keep torch.compile from tracing a function; return it."""
    code = function.__code__  # type: ignore[attr-defined]
    function._torchdynamo_disable = _Untraced(code)  # type: ignore[attr-defined]
    return function


# ---- faults

CALLERS_MISTAKES = (TypeError, ValueError, DeprecationWarning)
"""Errors that leave public functions; the last is a warning made an error."""


def public(
    answers: bool = False, fallback: Callable[..., R] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a public function: faults of the surroundings do not leave it.

    TypeError and ValueError, mistakes of the caller, are raised, as are warnings that the
    caller has made errors; everything else is a `fault`. torch.compile does not trace the
    function.

    Args:
        answers: the caller waits for a result, so that faults are raised as well.
        fallback: called with the arguments for the result after a fault; by default the
            result is None.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except CALLERS_MISTAKES:
                raise
            except Exception as error:
                if answers or strict():
                    raise
                survive(error)
                if fallback is not None:
                    return fallback(*args, **kwargs)
                return None  # type: ignore[return-value]

        return untraced_function(call)

    return decorate


def survive(error: Exception) -> None:
    """Count and log a fault of the surroundings that ends a public call.

    Raised instead if SPLATVIEW_STRICT is set.
    """
    publisher = _session.publisher
    report = fault if publisher is None else publisher.fault
    report(error)


def strict() -> bool:
    """Return True if SPLATVIEW_STRICT is set."""
    return os.environ.get("SPLATVIEW_STRICT", "") not in ("", "0")


def fault(error: BaseException) -> None:
    """Log a fault of the surroundings once, at the caller's line.

    Raised instead if SPLATVIEW_STRICT is set.
    """
    if strict():
        raise error
    text = printable_lines(f"{type(error).__name__}: {error}")
    # A fault that comes back with another size or number is the same fault.
    pattern = re.sub(r"\d+", "#", text)
    if pattern in _logged_faults or len(_logged_faults) >= _MAX_LOGGED:
        return
    _logged_faults.add(pattern)
    _log.warning(
        "splatview met a fault, training goes on: %s", text, stacklevel=_callers_level()
    )


def _callers_level() -> int:
    """Return the level of the caller's line for a warning that `fault` logs."""
    levels = 0
    for _ in _frames_of_splatview(sys._getframe(1)):
        levels += 1
    return max(1, levels)


def callers_line() -> str:
    """Return the file and line that call splatview, for users."""
    caller: FrameType | None = None
    for frame in _frames_of_splatview(sys._getframe(1)):
        caller = frame.f_back
    if caller is None:
        return "an unknown line"
    return f"{caller.f_code.co_filename}:{caller.f_lineno}"


def _frames_of_splatview(frame: FrameType) -> Iterator[FrameType]:
    """Yield a frame and those around it, up to the first one that is not splatview's.

    The outermost frame of all is not one of them.
    """
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.partition(".")[0].startswith("splatview"):
            return
        yield frame
        frame = frame.f_back


# ---- the end of the process, and forks


def _at_exit() -> None:
    _session.close(exiting=True)


_exit_call = ExitCall(_at_exit)


def _after_fork_in_child() -> None:
    global _session
    _inherited.append(_session)
    if _session.publisher is not None:
        _session.publisher.abandon()
    _session = Session()


# No fork comes while a run begins or ends: its child would hold the run's lock without
# knowing.
os.register_at_fork(
    before=lambda: _session.lock.acquire(),
    after_in_parent=lambda: _session.lock.release(),
    after_in_child=_after_fork_in_child,
)
