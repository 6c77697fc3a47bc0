"""PyTorch's recording of allocations: switched on and off, and its snapshots written to files.

It covers all GPUs of the process. The functions of PyTorch used here are private (`torch.cuda.memory._...`) and differ
between its versions: what is missing becomes `trouble`, a text for people, never an exception.
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
OOM_REST_S = 10.0
"""Snapshots of a run that runs out of memory again and again, and the least time between two of them."""
_MAX_STEPS = 4096
"""The newest steps, which a snapshot names."""


class Recording:
    """What PyTorch records while memory is published."""

    def __init__(self, run_id: str, max_entries: int | None) -> None:
        """`max_entries`: of the trace, for each GPU; None: record nothing."""
        self.run_id = run_id
        self.newest = ""
        self.count = 0
        self.trouble = ""
        """Why there is less than there could be."""
        self.steps: deque[tuple[int, float]] = deque(maxlen=_MAX_STEPS)
        """When steps began (ns since the epoch), and their numbers."""
        self.attached = False
        """True once CUDA is in use."""
        self._pid = os.getpid()
        self._max_entries = max_entries
        self._lacks = ""
        """The trouble that stays."""
        self._ours = self._ended = False
        self._ooms, self._rest_until = 0, 0.0
        self._lock = threading.Lock()
        memory_snapshots.tidy()  # an earlier run may have been killed while it wrote one

    def attach(self) -> None:
        """Begin, once CUDA is in use. Idempotent; never raises."""
        if os.getpid() != self._pid:
            return  # a forked child, to which PyTorch took over what the parent queued
        with self._lock:
            if self.attached or self._ended:
                return
            self.attached = True
            try:
                import torch
                from torch.cuda import memory

                observe()
                enabled = getattr(torch._C, "_cuda_isHistoryEnabled", None)
                if self._max_entries is None:
                    self._lacks = "allocations are not recorded: record=False"
                elif enabled is None or not enabled():  # by other code. (Before CUDA is in use, torch 2.11 crashes.)
                    # Names of C++ functions would make a snapshot take minutes.
                    memory._record_memory_history("all", context="all", stacks="python", max_entries=self._max_entries)
                    self._ours = True
            except Exception as e:
                self._lacks = f"allocations are not recorded: {_one_line(e)}"
            self.trouble = self._lacks

    def close(self) -> None:
        """Stop recording, unless other code began it. Idempotent; never raises."""
        with self._lock:
            self._ended = True
            self.steps.clear()  # PyTorch keeps this object until CUDA is in use, which may be never
            if self._ours:
                self._ours = False
                with contextlib.suppress(Exception):
                    from torch.cuda import memory

                    memory._record_memory_history(None)

    def take(self) -> dict[str, Any] | None:
        """Return a full snapshot of all GPUs, as PyTorch gives it, with the steps among its annotations.

        The thread keeps the interpreter meanwhile: about 0.2 seconds for 100,000 entries. None: see `trouble`.
        """
        if not self.attached:
            self.trouble = "no snapshot: CUDA is not in use in this process"
            return None
        from torch.cuda import memory

        collecting = gc.isenabled()
        gc.disable()  # it would visit a million new objects again and again
        try:
            snapshot: Any = memory._snapshot()
        except Exception as e:
            self.trouble = f"no snapshot: {_one_line(e)}"
            return None
        finally:
            if collecting:
                gc.enable()
        steps = list(self.steps)
        ends = [*(begin for begin, _ in steps[1:]), time.time_ns()]
        marks = [{"name": f"step {number:.15g}", "stage": stage, "device": 0, "time_us": ns // 1000}
                 for (begin, number), end in zip(steps, ends, strict=False)
                 for stage, ns in (("START", begin), ("END", end))]
        with contextlib.suppress(Exception):
            snapshot["external_annotations"] = [*snapshot.get("external_annotations", ()), *marks]
        return snapshot

    def write(self, snapshot: dict[str, Any], why: str) -> Path | None:
        """Write a snapshot to a file of its own; `why`: "asked" or "oom". None: see `trouble`."""
        with self._lock:
            name = memory_snapshots.name_of(self.run_id, self.count + 1, why)
            try:
                path = memory_snapshots.write_private(name, pickle.dumps(snapshot, 4))
            except Exception as e:
                self.trouble = f"the snapshot could not be written: {_one_line(e)}"
                _log.warning("splatview: %s", self.trouble)
                return None
            self.newest, self.count, self.trouble = name, self.count + 1, self._lacks
        memory_snapshots.tidy()
        return path

    def out_of_memory(self) -> None:
        """Write a snapshot when an allocation failed, in the thread of that allocation."""
        now = time.time()
        if self._ooms >= MAX_OOM_SNAPSHOTS or now < self._rest_until:
            return
        self._ooms, self._rest_until = self._ooms + 1, now + OOM_REST_S
        path = self.write(snapshot, "oom") if (snapshot := self.take()) is not None else None
        if path is not None:
            _log.warning("splatview: the GPU is out of memory; who holds it shows: splatview memory %s", path)


@functools.cache
def observe() -> None:
    """Have PyTorch call `_out_of_memory` when an allocation fails. This cannot be undone, so once is for good."""
    import torch

    names = "_cuda_attach_out_of_memory_observer", "_cuda_attachOutOfMemoryObserver"  # of different versions of torch
    attach = next((a for name in names if (a := getattr(torch._C, name, None)) is not None), None)
    if attach is None:
        raise RuntimeError("this torch has no observer of memory that runs out")
    attach(_out_of_memory)


def _out_of_memory(device: int, asked: int, allocated: int, free: int) -> None:
    features = session().features
    try:
        if "recording" in features:
            features["recording"].out_of_memory()
        for name, feature in features.items():
            if name.startswith("memory "):
                feature.sample()  # viewers see it even if the trainer ends now
    except Exception as e:  # the trainer has its own to deal with
        _log.warning("splatview: no snapshot of the memory that ran out: %s", _one_line(e))


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]
