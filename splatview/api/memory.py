"""`publish_memory`: samples of the GPU's memory, and full snapshots.

Snapshots are taken on request of a viewer and when memory runs out
(`memory_recording`).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview.adapters import checks
from splatview.api.memory_recording import MemoryRecording
from splatview.api.session import public, session
from splatview_ipc.cuda.driver import torch_with_cuda

if TYPE_CHECKING:
    import torch

    from splatview_ipc.control import messages
    from splatview_ipc.publisher.publisher import Publisher

_log = logging.getLogger("splatview")

_SNAPSHOT_PERIOD_S = 2.0
"""Least time between two full snapshots that viewers ask for."""
HOST = -1
"""In place of a device's ordinal: only the host's memory."""
_MAX_HZ = 100


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
    """Show in every viewer how the GPU's memory is used, from now on, and mark a step.

    The first call begins: a thread reads PyTorch's statistics `hz` times a second (at
    most 100), which takes a fraction of a millisecond; nothing waits for the GPU. Every
    call marks a step, which is counted unless `step` says its number; it costs a
    microsecond or two. The other arguments of later calls are checked, and change
    nothing.

    A full snapshot is taken when a viewer asks for one, and when an allocation fails; it
    stops the training for about 0.3 seconds for 100,000 entries. The last 8 are kept in
    ~/.cache/splatview/snapshots/taken, and `splatview memory FILE` shows them.
    SPLATVIEW_DISABLE=1 makes the call do nothing.

    Args:
        name: the stream's name, as for `publish`. Several GPUs need a name each.
        device: the GPU: an ordinal, "cuda:1" or a torch.device; "cpu" for the host's
            memory alone. None: the current one, or if CUDA is not in use yet the first
            one on which something is allocated. CUDA is never begun for this; until it
            is in use, and where there is none, only the host's memory is shown.
        hz: samples a second.
        record: have PyTorch record what is allocated and where
            (`torch.cuda.memory._record_memory_history`, Python's stacks only, a few
            microseconds for each allocation), unless it does already; until `close`.
            Without it full snapshots have no history.
        max_entries: how many of the newest allocations and frees are kept for each GPU.
        step: the number of the step that begins.

    Raises:
        TypeError: an argument is of another type.
        ValueError: an argument is out of range.

    Faults of the surroundings never reach the caller, unless SPLATVIEW_STRICT=1.
    """
    meter: Meter | None = session().features.get(f"memory {name}")
    if meter is None:
        checks.stream_name(name)
        arguments = _Arguments(device, hz, max_entries)
        checked = arguments.check()
        new_meter = functools.partial(
            Meter,
            name=name,
            device=checked.device,
            hz=checked.hz,
            max_entries=checked.max_entries if record else None,
        )
        meter = session().feature(f"memory {name}", new_meter)
        if meter is not None:
            meter.arguments = arguments
    elif not meter.arguments.are(device, hz, max_entries):
        arguments = _Arguments(device, hz, max_entries)
        arguments.check()
        meter.arguments = arguments
    if meter is not None:
        meter.mark(step)


class _Arguments(NamedTuple):
    """The arguments of `publish_memory` that only its first call uses."""

    device: Any = None
    hz: Any = None
    max_entries: Any = None

    def are(self, device: Any, hz: Any, max_entries: Any) -> bool:
        """Return whether these are the very objects of a later call.

        A call in a loop passes the same ones each time, which need no second check.
        """
        is_same_device = device is self.device
        return is_same_device and hz is self.hz and max_entries is self.max_entries

    def check(self) -> _Arguments:
        """Return the device's ordinal and the numbers. Raises TypeError, ValueError."""
        return _Arguments(
            device=_ordinal(self.device),
            hz=checks.real("hz", self.hz, 0.001, _MAX_HZ),
            max_entries=checks.integer("max_entries", self.max_entries, 1, 10**8),
        )


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
        """Begin to sample.

        Args:
            publisher: the run.
            name: the stream's.
            device: the ordinal, HOST, or None for the one in use.
            hz: samples a second.
            max_entries: of the recording; None: nothing is recorded.
        """
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
            # Attached at once, or as soon as the trainer begins to use CUDA.
            with contextlib.suppress(AttributeError):
                torch.cuda._lazy_call(self._recording.attach)
        self._device = device
        self._read_stats: Any = None
        """PyTorch's statistics by device; None while only the host is shown."""
        self._is_snapshot_requested = False
        self._period = 1 / hz
        self._next_sample_at = 0.0
        self._next_snapshot_at = 0.0
        self._step_count = 0
        self._step = -1.0
        self._last_peaks = (0, 0)
        """PyTorch's highest values at the last sample: allocated, reserved."""
        self._trouble = ""
        self.arguments = _Arguments()
        """Those of the last call, which were checked."""
        self._meta: dict[str, Any] = {"device": "cpu", "gpu": "", "total": 0, "hz": hz}
        self.samples = Samples()
        self._lock = threading.RLock()
        publisher.on_request["Snapshot", name] = self.request_snapshot

    def mark(self, step: Any) -> None:
        """Mark the beginning of a step. On the trainer's thread."""
        self._step = self._step_count if step is None else checks.step(step)
        self._step_count += 1
        self._recording.steps.append((time.time_ns(), self._step))
        if self._device is None:
            torch = torch_with_cuda()
            if torch is not None:
                self._device = torch.cuda.current_device()

    def request_snapshot(self, _: messages.Snapshot) -> None:
        """Take a viewer's request for a full snapshot. On the helper thread."""
        self._is_snapshot_requested = True
        session().wake()

    def tick(self, now: float) -> float:
        """Take the samples and snapshots that are due; return when the next one is."""
        if self._read_stats is None and self._device != HOST:
            self._find_gpu()
        if self._is_snapshot_requested and now >= self._next_snapshot_at:
            self._is_snapshot_requested = False
            self._next_snapshot_at = now + _SNAPSHOT_PERIOD_S
            self._next_sample_at = now
            path = self._recording.save("asked")
            if path is not None:
                _log.info(
                    "splatview: a snapshot of the memory: splatview memory %s", path
                )
        if now >= self._next_sample_at:
            self._next_sample_at = max(self._next_sample_at + self._period, now)
            self.sample()
        if self._is_snapshot_requested:
            return min(self._next_sample_at, self._next_snapshot_at)
        return self._next_sample_at

    def _find_gpu(self) -> None:
        """Show a GPU as soon as CUDA is in use."""
        torch = torch_with_cuda()
        if torch is None:
            return
        self._recording.attach()
        index = self._device
        count = torch.cuda.device_count()
        if index is None:
            index = _first_used_gpu(torch, count)
            if index is None:
                return
        try:
            if index >= count:
                raise ValueError(f"device is {index}, and there are {count} GPUs")
            properties = torch.cuda.get_device_properties(index)
        except Exception as error:
            self._device = HOST
            self._trouble = (
                f"the GPU's memory is not shown: {type(error).__name__}: {error}"
            )
            raise
        with self._lock:
            self._meta |= {
                "device": f"cuda:{index}",
                "gpu": str(properties.name),
                "total": properties.total_memory,
            }
            self._device = index
            self._read_stats = torch._C._cuda_memoryStats

    def sample(self) -> None:
        """Take a sample, and let viewers see it. On any thread."""
        from splatview_ipc.control.limits import MAX_META_TEXT

        with self._lock:
            host_bytes = _resident_bytes()
            gpu_columns = [0] * 7
            event_columns = [0] * 3
            if self._read_stats is not None:
                stats = self._read_stats(self._device)
                gpu_columns = self._gpu_columns(stats)
                event_columns = [
                    stats["allocation"]["all"]["allocated"],
                    stats["num_alloc_retries"],
                    stats["num_ooms"],
                ]
            # In the order of MEMORY_COLUMNS.
            self.samples.add(
                [time.time(), self._step, *gpu_columns, host_bytes, *event_columns]
            )
            recording = self._recording
            message = self._trouble or recording.trouble
            meta = {
                **self._meta,
                "snapshot": recording.newest,
                "snapshots": recording.count,
                "trouble": message[:MAX_META_TEXT],
            }
            self._stream.publish((self.samples.tensors(), meta))

    def _gpu_columns(self, stats: dict[str, Any]) -> list[int]:
        """Return the columns "allocated" to "inactive" of a sample, in bytes."""
        allocated = stats["allocated_bytes"]["all"]
        reserved = stats["reserved_bytes"]["all"]
        # A highest value unlike that of the last sample was reached since then.
        highest_allocated = allocated["current"]
        if allocated["peak"] != self._last_peaks[0]:
            highest_allocated = max(highest_allocated, allocated["peak"])
        highest_reserved = reserved["current"]
        if reserved["peak"] != self._last_peaks[1]:
            highest_reserved = max(highest_reserved, reserved["peak"])
        self._last_peaks = (allocated["peak"], reserved["peak"])
        return [
            allocated["current"],
            allocated["current"],
            highest_allocated,
            stats["active_bytes"]["all"]["current"],
            stats.get("requested_bytes", {}).get("all", allocated)["current"],
            highest_reserved,
            stats["inactive_split_bytes"]["all"]["current"],
        ]

    def close(self) -> None:
        """Take the last sample."""
        self.sample()


def _first_used_gpu(torch: Any, count: int) -> int | None:
    """Return the first GPU on which something was allocated."""
    for index in range(count):
        stats = torch._C._cuda_memoryStats(index)
        if stats["allocated_bytes"]["all"]["allocated"]:
            return index
    return None


def _resident_bytes() -> int:
    """Return the bytes of host memory that this process occupies."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _ordinal(device: Any) -> int | None:
    """Return a device's ordinal, HOST, or None. Raises ValueError."""
    if device is None:
        return None
    expected = 'expected None, an ordinal such as 0, "cuda:0", a torch.device, or "cpu"'
    import torch

    is_ordinal = isinstance(device, int)
    try:
        parsed = torch.device("cuda", device) if is_ordinal else torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f"device is {device!r}; {expected}") from None
    if parsed.type == "cpu":
        return HOST
    if parsed.type != "cuda" or (is_ordinal and device < 0):
        raise ValueError(f"device is {device!r}; {expected}")
    if parsed.index is not None and torch.cuda.is_initialized():
        count = torch.cuda.device_count()
        if parsed.index >= count:
            raise ValueError(
                f"device is {device!r}, and there are {count} GPUs; {expected}"
            )
    return parsed.index
