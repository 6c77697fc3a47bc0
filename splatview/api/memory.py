"""`publish_memory`: samples of the GPU's memory, and full snapshots on request or when memory runs out."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from splatview.adapters import checks
from splatview.api.session import public, session
from splatview_ipc.cuda.driver import torch_with_cuda

if TYPE_CHECKING:
    import torch

    from splatview.api.recording import Recording
    from splatview_ipc.control import messages
    from splatview_ipc.publisher.publisher import Publisher

__all__ = ["publish_memory"]

_log = logging.getLogger("splatview")

_REST_S = 2.0
"""Least time between two full snapshots that viewers ask for."""
HOST = -1
"""In place of a device's ordinal: only the host's memory."""


@public()
def publish_memory(name: str = "memory", *, device: torch.device | str | int | None = None, hz: float = 10.0,
                   record: bool = True, max_entries: int = 100_000, step: int | None = None) -> None:
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
        entries = checks.whole("max_entries", max_entries, 1, 10**8)
        meter = session().feature(f"memory {name}", partial(
            Meter, name=name, device=_ordinal(device), hz=checks.number("hz", hz, 0.001, 100),
            max_entries=entries if record else None))
    if meter is not None:
        meter.mark(step)


class Meter:
    """One stream of kind memory: the samples of one GPU."""

    def __init__(self, publisher: Publisher, name: str, device: int | None, hz: float, max_entries: int | None) -> None:
        """`device`: the ordinal, HOST, or None for the one in use; `max_entries` of the recording, None: none."""
        import torch

        from splatview.adapters.series import MEMORY, Samples
        from splatview.api.recording import Recording

        self._stream = publisher.stream(name, "memory")
        self._stream.describe(MEMORY)
        if "recording" not in session().features:
            session().add("recording", Recording(publisher.run_id, max_entries))
        self._recording: Recording = session().features["recording"]
        if device != HOST:
            with contextlib.suppress(AttributeError):  # at once, or as soon as the trainer begins to use CUDA
                torch.cuda._lazy_call(self._recording.attach)
        self._device = device
        self._stats: Any = None
        """PyTorch's statistics by device; None while only the host is shown."""
        self._asked = False
        self._period, self._due, self._rest_until = 1 / hz, 0.0, 0.0
        self._calls, self._step = 0, -1.0
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

    def turn(self, now: float) -> float:
        if self._stats is None and self._device != HOST:
            self._settle()
        if self._asked and now >= self._rest_until:
            self._asked, self._rest_until, self._due = False, now + _REST_S, now
            snapshot = self._recording.take()
            if snapshot is not None and (path := self._recording.write(snapshot, "asked")) is not None:
                _log.info("splatview: a snapshot of the memory: splatview memory %s", path)
        if now >= self._due:
            self._due = max(self._due + self._period, now)
            self.sample()
        return min(self._due, self._rest_until) if self._asked else self._due

    def _settle(self) -> None:
        """Show a GPU as soon as CUDA is in use."""
        if (torch := torch_with_cuda()) is None:
            return
        self._recording.attach()
        index, count = self._device, torch.cuda.device_count()
        if index is None:  # no call of the trainer's has told which
            used = (i for i in range(count) if torch._C._cuda_memoryStats(i)["allocated_bytes"]["all"]["allocated"])
            if (index := next(used, None)) is None:
                return
        try:
            if index >= count:
                raise ValueError(f"device is {index}, and there are {count} GPUs")
            properties = torch.cuda.get_device_properties(index)
        except Exception as e:
            self._device, self._trouble = HOST, f"the GPU's memory is not shown: {type(e).__name__}: {e}"
            raise
        with self._lock:
            self._about |= {"device": f"cuda:{index}", "gpu": str(properties.name), "total": properties.total_memory}
            self._device, self._stats = index, torch._C._cuda_memoryStats

    def sample(self) -> None:
        """Take a sample, and let viewers see it. Any thread."""
        from splatview_ipc.control.limits import MAX_META_TEXT

        with self._lock:
            self.samples.add(self._row())
            recording = self._recording
            meta = {**self._about, "snapshot": recording.newest, "snapshots": recording.count,
                    "trouble": (self._trouble or recording.trouble)[:MAX_META_TEXT]}
            self._stream.publish((self.samples.tensors(), meta))

    def _row(self) -> list[float]:
        """Return a row of MEMORY_COLUMNS."""
        with open("/proc/self/statm", "rb") as f:
            host = int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        if self._stats is None:
            return [time.time(), self._step, 0, 0, 0, 0, 0, 0, 0, host, 0, 0, 0]
        stats = self._stats(self._device)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        # A highest value unlike that of the last sample was reached since then.
        peaks = allocated["peak"], reserved["peak"]
        most, room = (peak if peak != before else now for peak, before, now in zip(
            peaks, self._peaks, (allocated["current"], reserved["current"]), strict=True))
        self._peaks = peaks
        return [time.time(), self._step, allocated["current"], allocated["current"],
                max(most, allocated["current"]), stats["active_bytes"]["all"]["current"],
                stats.get("requested_bytes", {}).get("all", allocated)["current"], max(room, reserved["current"]),
                stats["inactive_split_bytes"]["all"]["current"], host, stats["allocation"]["all"]["allocated"],
                stats["num_alloc_retries"], stats["num_ooms"]]

    def close(self) -> None:
        self.sample()  # how it ended


def _ordinal(device: Any) -> int | None:
    """Return a device's ordinal, HOST, or None. Raises ValueError."""
    if device is None:
        return None
    legal = 'legal are None, an ordinal such as 0, "cuda:0", a torch.device, and "cpu"'
    import torch

    try:
        parsed = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f"device is {device!r}; {legal}") from None
    if parsed.type == "cpu":
        return HOST
    if parsed.type != "cuda" or (isinstance(device, int) and device < 0):
        raise ValueError(f"device is {device!r}; {legal}")
    if parsed.index is not None and torch.cuda.is_initialized() and parsed.index >= torch.cuda.device_count():
        raise ValueError(f"device is {device!r}, and there are {torch.cuda.device_count()} GPUs; {legal}")
    return parsed.index
