"""PyTorch's own recording of what is allocated: switched on and off, and its snapshots written to files.

It is the process's, for all its GPUs. What PyTorch calls here is private to it (`torch.cuda.memory._...`), and differs
a little between its versions: what is missing is a trouble to be told, never an exception.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import logging
import os
import pickle
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_log = logging.getLogger("splatview")

OOM_DUMPS = 4
"""Snapshots that a run takes when it is out of memory."""
OOM_REST = 10.0
"""Seconds between two of them."""
STEPS = 4096
"""The newest steps that are named in a snapshot."""


class Recording:
    """What PyTorch records, as long as memory is published."""

    def __init__(self, run_id: str, max_entries: int | None, on_oom: Callable[[], None]) -> None:
        """`max_entries`: of the trace, for each GPU; None: record nothing. `on_oom` is called when an allocation
        failed, by the thread that asked for it, once what there was is written."""
        self.run_id = run_id
        self.newest = ""
        """What the newest snapshot is called."""
        self.count = 0
        """Snapshots taken."""
        self.trouble = ""
        """Why there is less than there could be, for people."""
        self.steps: deque[tuple[int, float]] = deque(maxlen=STEPS)
        """When steps began (ns since the epoch), and their numbers."""
        self.attached = False
        """Whether CUDA is in use, and recorded as far as possible."""
        self._lacks = ""
        """The trouble that stays."""
        self._pid = os.getpid()
        self._max_entries = max_entries
        self._on_oom = on_oom
        self._ours = False
        self._ended = False
        self._lock = threading.Lock()
        self._ooms: list[float] = []

    def attach(self) -> None:
        """Begin, once CUDA is in use. It is not begun for this. Idempotent; never raises."""
        if os.getpid() != self._pid:
            return  # PyTorch kept what was to be done over a fork: it is the parent's, and so is the lock
        with self._lock:
            if self.attached or self._ended:
                return
            self.attached = True
            try:
                _observe()
                _recordings.append(self)
                self._record()
            except Exception as e:
                self._lacks = f"allocations are not recorded: {_words(e)}"
                self.trouble = self._lacks

    def _record(self) -> None:
        import torch
        from torch.cuda import memory

        if self._max_entries is None:
            self.trouble = self._lacks = "allocations are not recorded: record=False"
            return
        enabled = getattr(torch._C, "_cuda_isHistoryEnabled", None)
        if enabled is not None and enabled():
            return  # somebody wants it as it is. (Asked before CUDA is in use, torch 2.11 crashes.)
        # Names of C++ functions would make a snapshot take minutes.
        memory._record_memory_history("all", context="all", stacks="python", max_entries=self._max_entries)
        self._ours = True

    def end(self) -> None:
        """Record no longer, unless somebody else began it. Idempotent; never raises."""
        with self._lock:
            self._ended = True
            self.steps.clear()  # PyTorch keeps us until CUDA is in use, which may be never
            if self in _recordings:
                _recordings.remove(self)
            if self._ours:
                self._ours = False
                with contextlib.suppress(Exception):
                    from torch.cuda import memory

                    memory._record_memory_history(None)

    def take(self) -> dict[str, Any] | None:
        """A full snapshot of all GPUs, as PyTorch gives it, with the steps among its annotations.

        The thread keeps the interpreter for so long: about 0.2 seconds for 100,000 entries. None: see `trouble`.
        """
        if not self.attached:
            self.trouble = "no snapshot: CUDA is not in use in this process"
            return None
        from torch.cuda import memory

        collecting = gc.isenabled()
        gc.disable()  # it would look through a million new objects again and again
        try:
            snapshot: Any = memory._snapshot()
        except Exception as e:
            self.trouble = f"no snapshot: {_words(e)}"
            return None
        finally:
            if collecting:
                gc.enable()
        with contextlib.suppress(Exception):
            snapshot["external_annotations"] = [*snapshot.get("external_annotations", ()), *self._marks()]
        return snapshot

    def _marks(self) -> list[dict[str, Any]]:
        """The steps as PyTorch writes its own annotations."""
        steps, marks = list(self.steps), []
        for (begin, number), (end, _) in zip(steps, [*steps[1:], (time.time_ns(), 0)], strict=True):
            name = f"step {number:g}" if number != int(number) else f"step {int(number)}"
            marks += [{"name": name, "stage": stage, "device": 0, "time_us": ns // 1000}
                      for stage, ns in (("START", begin), ("END", end))]
        return marks

    def write(self, snapshot: dict[str, Any], why: str) -> Path | None:
        """Write a snapshot to a file of its own, whole or not at all. None: see `trouble`."""
        from splatview_ipc.control import memory_snapshots as taken
        from splatview_ipc.control.errors import IpcError

        with self._lock:
            name = taken.name_of(self.run_id, self.count + 1, why)
            try:
                folder = taken.make_folder()
                part = folder / f".{name}.part"
                fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                try:
                    with open(fd, "wb") as file:
                        with contextlib.suppress(OSError):  # there are file systems without locks
                            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # while we live nobody tidies it away
                        pickle.dump(snapshot, file, 4)
                    part.replace(folder / name)
                except BaseException:
                    part.unlink(missing_ok=True)
                    raise
            except (OSError, IpcError, pickle.PicklingError, MemoryError) as e:
                self.trouble = f"the snapshot could not be written: {e}"
                _log.warning("splatview: %s", self.trouble)
                return None
            self.newest, self.count, self.trouble = name, self.count + 1, self._lacks
        taken.tidy()
        return folder / name

    def out_of_memory(self) -> None:
        """An allocation failed: write down what there is, for those who ask why. Never raises."""
        now = time.monotonic()
        try:
            if len(self._ooms) < OOM_DUMPS and (not self._ooms or now - self._ooms[-1] >= OOM_REST):
                self._ooms.append(now)
                snapshot = self.take()
                path = self.write(snapshot, "oom") if snapshot is not None else None
                if path is not None:
                    _log.warning("splatview: the GPU is out of memory; who holds it shows: splatview memory %s", path)
            self._on_oom()
        except Exception as e:  # the trainer has enough to do with its own
            _log.warning("splatview: no snapshot of the memory that ran out: %s: %s", type(e).__name__, e)


_OBSERVERS = ("_cuda_attach_out_of_memory_observer", "_cuda_attachOutOfMemoryObserver")
"""What it is called in different versions of torch."""
_recordings: list[Recording] = []
"""Those that want to know of memory that ran out."""
_observing = False


def _observe() -> None:
    """Have PyTorch call us when an allocation fails. It knows no way back, so once is for good."""
    global _observing
    if _observing:
        return
    import torch

    attach = next((a for name in _OBSERVERS if (a := getattr(torch._C, name, None)) is not None), None)
    if attach is None:
        raise RuntimeError("this torch has no observer of memory that runs out")
    attach(_out_of_memory)
    _observing = True


def _words(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]


def _out_of_memory(device: int, asked: int, allocated: int, free: int) -> None:
    for recording in list(_recordings):
        recording.out_of_memory()


def _after_fork_in_child() -> None:
    """What is recorded is the parent's."""
    _recordings.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
