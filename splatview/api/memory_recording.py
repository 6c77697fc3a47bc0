"""PyTorch's recording of allocations, and full snapshots of the GPU's memory.

The recording covers all GPUs of the process. The functions of PyTorch used here are
private (`torch.cuda.memory._...`) and differ between its versions: a missing one becomes
`trouble`, a text for users, never an exception.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
import pickle
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from splatview.api.session import session
from splatview_ipc.control import memory_snapshots

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger("splatview")

MAX_OOM_SNAPSHOTS = 4
"""Snapshots of a run that runs out of memory again and again."""
OOM_PERIOD_S = 10.0
"""Least time between two of them."""
_MAX_STEPS = 4096
"""The newest steps, which a snapshot names."""
_PICKLE_PROTOCOL = 4
_OBSERVER_NAMES = (
    "_cuda_attach_out_of_memory_observer",
    "_cuda_attachOutOfMemoryObserver",
)
"""Names of one function in different versions of torch."""


class MemoryRecording:
    """PyTorch's recording of allocations while memory is published."""

    def __init__(self, run_id: str, max_entries: int | None) -> None:
        """Remove what an earlier run left; nothing is recorded yet.

        Args:
            max_entries: of the recording, for each GPU; None: nothing is recorded.
        """
        self.run_id = run_id
        self.newest = ""
        """File name of the newest snapshot."""
        self.count = 0
        """Snapshots of this run."""
        self.trouble = ""
        """Why there is less than there could be."""
        self.steps: deque[tuple[int, float]] = deque(maxlen=_MAX_STEPS)
        """When steps began (ns since the epoch), and their numbers."""
        self.attached = False
        """True once CUDA is in use."""
        self._pid = os.getpid()
        self._max_entries = max_entries
        self._lasting_trouble = ""
        """The trouble that no successful snapshot ends."""
        self._records = False
        """True if this object has made PyTorch record."""
        self._has_ended = False
        self._oom_count = 0
        self._next_oom_at = 0.0
        # Reentrant: a signal's handler may end the run amid its end.
        self._lock = threading.RLock()
        # An earlier run may have been killed while it wrote a snapshot.
        memory_snapshots.remove_old_snapshots()

    def attach(self) -> None:
        """Begin, once CUDA is in use. Idempotent; never raises."""
        if os.getpid() != self._pid:
            # In a forked child, to which PyTorch took over what the parent queued.
            return
        with self._lock:
            if self.attached or self._has_ended:
                return
            self.attached = True
            try:
                self._start_recording()
            except Exception as error:
                self._lasting_trouble = (
                    f"allocations are not recorded: {_one_line(error)}"
                )
            self.trouble = self._lasting_trouble

    def _start_recording(self) -> None:
        """Make PyTorch record, unless other code has."""
        import torch
        from torch.cuda import memory

        observe()
        if self._max_entries is None:
            self._lasting_trouble = "allocations are not recorded: record=False"
            return
        # Before CUDA is in use, this function of torch 2.11 crashes.
        is_recording = getattr(torch._C, "_cuda_isHistoryEnabled", None)
        if is_recording is not None and is_recording():
            return
        # Names of C++ functions would make a snapshot take minutes.
        memory._record_memory_history(
            "all", context="all", stacks="python", max_entries=self._max_entries
        )
        self._records = True

    def close(self) -> None:
        """Stop recording, unless other code began it. Idempotent; never raises."""
        with self._lock:
            self._has_ended = True
            # PyTorch keeps this object until CUDA is in use, which may be never.
            self.steps.clear()
            if self._records:
                self._records = False
                with contextlib.suppress(Exception):
                    from torch.cuda import memory

                    memory._record_memory_history(None)

    def _take(self) -> dict[str, Any] | None:
        """Return a full snapshot of all GPUs, with the steps among its annotations.

        It is as PyTorch gives it. The thread keeps the interpreter meanwhile: about 0.2
        seconds for 100,000 entries. None: see `trouble`.
        """
        if not self.attached:
            self.trouble = "no snapshot: CUDA is not in use in this process"
            return None
        from torch.cuda import memory

        was_collecting = gc.isenabled()
        # The collector would visit a million new objects again and again.
        gc.disable()
        try:
            snapshot: Any = memory._snapshot()
        except Exception as error:
            self.trouble = f"no snapshot: {_one_line(error)}"
            return None
        finally:
            if was_collecting:
                gc.enable()
        with contextlib.suppress(Exception):
            snapshot["external_annotations"] = [
                *snapshot.get("external_annotations", ()),
                *self._step_annotations(),
            ]
        return snapshot

    def _step_annotations(self) -> list[dict[str, Any]]:
        """Return the start and end of each step as a snapshot's annotations."""
        steps = list(self.steps)
        ends = [started_at for started_at, _ in steps[1:]]
        ends.append(time.time_ns())
        annotations: list[dict[str, Any]] = []
        for (started_at, step), ended_at in zip(steps, ends, strict=False):
            for stage, time_ns in (("START", started_at), ("END", ended_at)):
                annotations.append(
                    {
                        "name": f"step {step:.15g}",
                        "stage": stage,
                        "device": 0,
                        "time_us": time_ns // 1000,
                    }
                )
        return annotations

    def save(self, reason: str) -> Path | None:
        """Write a full snapshot to a file of its own; return None if there is `trouble`.

        Args:
            reason: "asked" or "oom", a part of the file's name.
        """
        snapshot = self._take()
        if snapshot is None:
            return None
        with self._lock:
            name = memory_snapshots.snapshot_name(self.run_id, self.count + 1, reason)
            try:
                content = pickle.dumps(snapshot, _PICKLE_PROTOCOL)
                path = memory_snapshots.write_snapshot(name, content)
            except Exception as error:
                self.trouble = f"the snapshot could not be written: {_one_line(error)}"
                _log.warning("splatview: %s", self.trouble)
                return None
            self.newest = name
            self.count += 1
            self.trouble = self._lasting_trouble
        memory_snapshots.remove_old_snapshots()
        return path

    def out_of_memory(self) -> None:
        """Write a snapshot when an allocation failed, in the thread of that allocation."""
        now = time.time()
        if self._oom_count >= MAX_OOM_SNAPSHOTS or now < self._next_oom_at:
            return
        self._oom_count += 1
        self._next_oom_at = now + OOM_PERIOD_S
        path = self.save("oom")
        if path is not None:
            _log.warning(
                "splatview: the GPU is out of memory; this shows its allocations: "
                "splatview memory %s",
                path,
            )


@functools.cache
def observe() -> None:
    """Have PyTorch call `_out_of_memory` when an allocation fails.

    This cannot be undone, so once is for good.
    """
    import torch

    for name in _OBSERVER_NAMES:
        attach = getattr(torch._C, name, None)
        if attach is not None:
            attach(_out_of_memory)
            return
    raise RuntimeError("this torch has no observer of memory that runs out")


def _out_of_memory(device: int, requested: int, allocated: int, free: int) -> None:
    """Take a snapshot and a sample of each meter. PyTorch calls this."""
    features = session().features
    try:
        if "recording" in features:
            features["recording"].out_of_memory()
        for name, feature in features.items():
            if name.startswith("memory "):
                # Viewers see it even if the trainer ends now.
                feature.sample()
    except Exception as error:
        # The trainer has its own error to deal with.
        _log.warning(
            "splatview: no snapshot of the memory that ran out: %s", _one_line(error)
        )


def _one_line(error: Exception) -> str:
    """Return an error's type and first line."""
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]
