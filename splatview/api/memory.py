"""`publish_memory`: samples of the GPU's memory, and full snapshots on request or when memory runs out.

PyTorch's recording of allocations covers all GPUs of the process. Its functions used here are private
(`torch.cuda.memory._...`) and differ between its versions: what is missing becomes `trouble`, a text for people, never
an exception.
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

from splatview.adapters import checks
from splatview.api.session import public, session
from splatview_ipc.control import memory_snapshots
from splatview_ipc.cuda.driver import torch_with_cuda

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from splatview_ipc.control import messages
    from splatview_ipc.publisher.publisher import Publisher

_log = logging.getLogger("splatview")

_REST_S = 2.0
"""Least time between two full snapshots that viewers ask for."""
HOST = -1
"""In place of a device's ordinal: only the host's memory."""
MAX_OOM_SNAPSHOTS = 4
OOM_REST_S = 10.0
"""Snapshots of a run that runs out of memory again and again, and the least time between two of them."""
_MAX_STEPS = 4096
"""The newest steps, which a snapshot names."""


@public()
def publish_memory(
    name: str = "memory",
    *,
    device: torch.device | str | int | None = None,
    hz: float = 10.0,
    record: bool = True,
    max_entries: int = 100_000,
    step: int | None = None,
) -> None:
    """Show in every viewer what the GPU's memory is like, from now on, and mark a step.

    The first call begins: a thread looks at PyTorch's statistics `hz` times a second (at most 100), which takes a
    fraction of a millisecond; nothing waits for the GPU. Every call marks a step, which is counted unless `step` says
    its number; it costs a microsecond or two. The other arguments of later calls are not looked at.

    name: the stream's name, as for `publish`. Several GPUs need a name each.
    device: the GPU: an ordinal, "cuda:1" or a torch.device; "cpu" for the host's memory alone. None: the current one,
        or if CUDA is not in use yet the first one on which something is allocated. CUDA is never begun for this; until
        it is in use, and where there is none, only the host's memory is shown.
    record: have PyTorch record what is allocated and where (`torch.cuda.memory._record_memory_history`, Python's stacks
        only, a few microseconds for each allocation), unless it does already; until `close`. Without it full snapshots
        have no history.
    max_entries: how many of the newest allocations and frees are kept for each GPU.

    A full snapshot is taken when a viewer asks for one, and when an allocation fails; it stops the training for about
    0.3 seconds for 100,000 entries. The last 8 are kept in ~/.cache/splatview/snapshots/taken, and `splatview memory
    FILE` shows them.

    Raises TypeError or ValueError for arguments that are wrong. Faults of the surroundings never reach the caller,
    unless SPLATVIEW_STRICT=1. SPLATVIEW_DISABLE=1 makes the call do nothing.
    """
    meter: Meter | None = session().features.get(f"memory {name}")
    if meter is None:
        checks.stream_name(name)
        entries = checks.integer("max_entries", max_entries, 1, 10**8)
        meter = session().feature(
            f"memory {name}",
            functools.partial(
                Meter,
                name=name,
                device=_ordinal(device),
                hz=checks.real("hz", hz, 0.001, 100),
                max_entries=entries if record else None,
            ),
        )
    if meter is not None:
        meter.mark(step)


class Meter:
    """One stream of kind memory: the samples of one GPU."""

    def __init__(
        self,
        publisher: Publisher,
        name: str,
        device: int | None,
        hz: float,
        max_entries: int | None,
    ) -> None:
        """`device`: the ordinal, HOST, or None for the one in use; `max_entries` of the recording, None: none."""
        import torch

        from splatview.adapters.series import MEMORY, Samples

        self._stream = publisher.stream(name, "memory")
        self._stream.describe(MEMORY)
        recording: MemoryRecording | None = session().features.get("recording")
        if recording is None:
            recording = MemoryRecording(publisher.run_id, max_entries)
            session().add("recording", recording)
        self._recording = recording
        if device != HOST:
            with contextlib.suppress(
                AttributeError
            ):  # at once, or as soon as the trainer begins to use CUDA
                torch.cuda._lazy_call(self._recording.attach)
        self._device = device
        self._stats: Any = None
        """PyTorch's statistics by device; None while only the host is shown."""
        self._asked = False
        self._period = 1 / hz
        self._due = 0.0
        self._rest_until = 0.0
        self._calls = 0
        self._step = -1.0
        self._peaks = 0, 0
        self._trouble = ""
        self._about: dict[str, Any] = {"device": "cpu", "gpu": "", "total": 0, "hz": hz}
        self.samples = Samples()
        self._lock = threading.RLock()
        publisher.on_request["Snapshot", name] = self.ask

    def mark(self, step: Any) -> None:
        """Mark the beginning of a step. The trainer's thread."""
        self._step = self._calls if step is None else checks.step(step)
        self._calls += 1
        self._recording.steps.append((time.time_ns(), self._step))
        if self._device is None and (torch := torch_with_cuda()) is not None:
            self._device = torch.cuda.current_device()

    def ask(self, _: messages.Snapshot) -> None:
        """Take a viewer's request for a full snapshot. The publisher's helper thread."""
        self._asked = True
        session().wake()

    def tick(self, now: float) -> float:
        if self._stats is None and self._device != HOST:
            self._settle()
        if self._asked and now >= self._rest_until:
            self._asked = False
            self._rest_until = now + _REST_S
            self._due = now
            path = self._recording.save("asked")
            if path is not None:
                _log.info(
                    "splatview: a snapshot of the memory: splatview memory %s", path
                )
        if now >= self._due:
            self._due = max(self._due + self._period, now)
            self.sample()
        return min(self._due, self._rest_until) if self._asked else self._due

    def _settle(self) -> None:
        """Show a GPU as soon as CUDA is in use."""
        torch = torch_with_cuda()
        if torch is None:
            return
        self._recording.attach()
        index = self._device
        count = torch.cuda.device_count()
        if index is None:  # no call of the trainer's has told which
            used = (
                i
                for i in range(count)
                if torch._C._cuda_memoryStats(i)["allocated_bytes"]["all"]["allocated"]
            )
            index = next(used, None)
            if index is None:
                return
        try:
            if index >= count:
                raise ValueError(f"device is {index}, and there are {count} GPUs")
            properties = torch.cuda.get_device_properties(index)
        except Exception as e:
            self._device = HOST
            self._trouble = f"the GPU's memory is not shown: {type(e).__name__}: {e}"
            raise
        with self._lock:
            self._about |= {
                "device": f"cuda:{index}",
                "gpu": str(properties.name),
                "total": properties.total_memory,
            }
            self._device = index
            self._stats = torch._C._cuda_memoryStats

    def sample(self) -> None:
        """Take a sample, and let viewers see it. Any thread."""
        from splatview_ipc.control.limits import MAX_META_TEXT

        with self._lock:
            with open("/proc/self/statm", "rb") as f:
                host = int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            row = [
                time.time(),
                self._step,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                host,
                0,
                0,
                0,
            ]  # MEMORY_COLUMNS
            if self._stats is not None:
                stats = self._stats(self._device)
                allocated = stats["allocated_bytes"]["all"]
                reserved = stats["reserved_bytes"]["all"]
                # A highest value unlike that of the last sample was reached since then.
                peaks = allocated["peak"], reserved["peak"]
                most, room = (
                    peak if peak != before else now
                    for peak, before, now in zip(
                        peaks,
                        self._peaks,
                        (allocated["current"], reserved["current"]),
                        strict=True,
                    )
                )
                self._peaks = peaks
                row[2:] = [
                    allocated["current"],
                    allocated["current"],
                    max(most, allocated["current"]),
                    stats["active_bytes"]["all"]["current"],
                    stats.get("requested_bytes", {}).get("all", allocated)["current"],
                    max(room, reserved["current"]),
                    stats["inactive_split_bytes"]["all"]["current"],
                    host,
                    stats["allocation"]["all"]["allocated"],
                    stats["num_alloc_retries"],
                    stats["num_ooms"],
                ]
            self.samples.add(row)
            recording = self._recording
            meta = {
                **self._about,
                "snapshot": recording.newest,
                "snapshots": recording.count,
                "trouble": (self._trouble or recording.trouble)[:MAX_META_TEXT],
            }
            self._stream.publish((self.samples.tensors(), meta))

    def close(self) -> None:
        self.sample()  # how it ended


def _ordinal(device: Any) -> int | None:
    """Return a device's ordinal, HOST, or None. Raises ValueError."""
    if device is None:
        return None
    legal = 'legal are None, an ordinal such as 0, "cuda:0", a torch.device, and "cpu"'
    import torch

    try:
        if isinstance(device, int):
            parsed = torch.device("cuda", device)
        else:
            parsed = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f"device is {device!r}; {legal}") from None
    if parsed.type == "cpu":
        return HOST
    if parsed.type != "cuda" or (isinstance(device, int) and device < 0):
        raise ValueError(f"device is {device!r}; {legal}")
    if (
        parsed.index is not None
        and torch.cuda.is_initialized()
        and parsed.index >= torch.cuda.device_count()
    ):
        raise ValueError(
            f"device is {device!r}, and there are {torch.cuda.device_count()} GPUs; {legal}"
        )
    return parsed.index


class MemoryRecording:
    """PyTorch's recording of allocations while memory is published."""

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
        self._ours = False
        self._ended = False
        self._ooms = 0
        self._rest_until = 0.0
        # Reentrant: a signal's handler may end the run amid its end.
        self._lock = threading.RLock()
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
                elif (
                    enabled is None or not enabled()
                ):  # by other code. (Before CUDA is in use, torch 2.11 crashes.)
                    # Names of C++ functions would make a snapshot take minutes.
                    memory._record_memory_history(
                        "all",
                        context="all",
                        stacks="python",
                        max_entries=self._max_entries,
                    )
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

    def _take(self) -> dict[str, Any] | None:
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
        marks = [
            {
                "name": f"step {number:.15g}",
                "stage": stage,
                "device": 0,
                "time_us": ns // 1000,
            }
            for (begin, number), end in zip(steps, ends, strict=False)
            for stage, ns in (("START", begin), ("END", end))
        ]
        with contextlib.suppress(Exception):
            snapshot["external_annotations"] = [
                *snapshot.get("external_annotations", ()),
                *marks,
            ]
        return snapshot

    def save(self, why: str) -> Path | None:
        """Write a full snapshot to a file of its own; `why`: "asked" or "oom". None: see `trouble`."""
        snapshot = self._take()
        if snapshot is None:
            return None
        with self._lock:
            name = memory_snapshots.name_of(self.run_id, self.count + 1, why)
            try:
                path = memory_snapshots.write_private(name, pickle.dumps(snapshot, 4))
            except Exception as e:
                self.trouble = f"the snapshot could not be written: {_one_line(e)}"
                _log.warning("splatview: %s", self.trouble)
                return None
            self.newest = name
            self.count = self.count + 1
            self.trouble = self._lacks
        memory_snapshots.tidy()
        return path

    def out_of_memory(self) -> None:
        """Write a snapshot when an allocation failed, in the thread of that allocation."""
        now = time.time()
        if self._ooms >= MAX_OOM_SNAPSHOTS or now < self._rest_until:
            return
        self._ooms = self._ooms + 1
        self._rest_until = now + OOM_REST_S
        path = self.save("oom")
        if path is not None:
            _log.warning(
                "splatview: the GPU is out of memory; who holds it shows: splatview memory %s",
                path,
            )


@functools.cache
def observe() -> None:
    """Have PyTorch call `_out_of_memory` when an allocation fails. This cannot be undone, so once is for good."""
    import torch

    names = (
        "_cuda_attach_out_of_memory_observer",
        "_cuda_attachOutOfMemoryObserver",
    )  # of different versions of torch
    attach = next(
        (a for name in names if (a := getattr(torch._C, name, None)) is not None), None
    )
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
        _log.warning(
            "splatview: no snapshot of the memory that ran out: %s", _one_line(e)
        )


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]
