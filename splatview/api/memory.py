"""`publish_memory`: what the GPU's memory is like, live, and full snapshots when somebody asks or memory runs out."""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from splatview.adapters.memory_options import HOST, MOST_STEP, entries, frequency, number, ordinal
from splatview.api import publish as publishing

if TYPE_CHECKING:
    import torch

    from splatview.api.recording import Recording
    from splatview_ipc import Publisher, Stream

__all__ = ["publish_memory"]

_log = logging.getLogger("splatview")

PATIENCE = 1.0
"""Seconds that a request for a full snapshot, or the choice of a GPU, waits for the next call of `publish_memory`."""
REST = 2.0
"""Seconds between two full snapshots that viewers ask for."""


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

    A full snapshot is taken when a viewer asks for one, at the next call (or by the thread, if none comes within a
    second), and when an allocation fails; it stops the training for about 0.3 seconds for 100,000 entries. They lie in
    ~/.cache/splatview/snapshots/taken, the last 8 are kept, and `splatview memory FILE` shows them.

    Raises TypeError or ValueError for arguments that are wrong. Faults of the surroundings never reach the caller,
    unless SPLATVIEW_STRICT=1. SPLATVIEW_DISABLE=1 makes the call do nothing.
    """
    meter = _meters.get(name)
    if meter is None:
        meter = _begin(name, ordinal(device), frequency(hz), entries(max_entries) if record else None)
        if meter is None:
            return
    meter.mark(step)


class _Meter:
    """One stream of kind memory: the samples of one GPU."""

    def __init__(self, stream: Stream, recording: Recording, wish: int | None, hz: float) -> None:
        """`wish`: the device's ordinal, HOST, or None for whichever is in use."""
        from splatview.adapters.memory import MemoryForm, Samples

        self.stream = stream
        self.recording = recording
        self.period = 1 / hz
        self.due = 0.0
        self.unsettled = wish != HOST
        """Whether CUDA was not in use yet, so that only the host is looked at."""
        self.wanted = False
        """Whether a viewer asked for a full snapshot."""
        self._wanted_at = self._taken_at = -math.inf
        self._wish = wish
        self._seen_cuda = math.inf
        self._device = HOST
        self._stats: Any = None
        self._trouble = ""
        self._calls = 0
        self._step: float = -1
        self._peaks = (0, 0)
        self._samples, self._form = Samples(), MemoryForm()
        stream.describe(self._form)
        self._lock = threading.RLock()
        self._taken: list[dict[str, Any]] = []
        """Snapshots that are to be written."""
        self._about: dict[str, Any] = {"device": "cpu", "gpu": "", "total": 0, "hz": float(hz)}
        self._meta: dict[str, Any] = {}
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._page = os.sysconf("SC_PAGE_SIZE")

    # The trainer's thread.

    def mark(self, step: Any) -> None:
        """A step begins."""
        if step is None:
            step = self._calls
        elif type(step) is not int or not -MOST_STEP <= step <= MOST_STEP:
            step = number(step)
        self._calls += 1
        self._step = step
        self.recording.steps.append((time.time_ns(), step))
        if self.unsettled:
            self.settle(by_trainer=True)
        if self.wanted:
            self.take()

    def settle(self, by_trainer: bool) -> None:
        """Look at a GPU as soon as CUDA is in use. If that fails, only the host's memory is shown."""
        try:
            self._settle(by_trainer)
        except Exception as e:
            self.unsettled = False
            self._trouble = f"the GPU's memory is not shown: {type(e).__name__}: {e}"
            _report(e)

    def _settle(self, by_trainer: bool) -> None:
        import torch

        if not torch.cuda.is_initialized():
            return
        self.recording.attach()
        index = self._wish
        if index is None and by_trainer:
            index = torch.cuda.current_device()
        elif index is None:  # the current one of this thread says nothing about the trainer's
            now = time.monotonic()
            self._seen_cuda = min(self._seen_cuda, now)
            used = (i for i in range(torch.cuda.device_count())
                    if torch._C._cuda_memoryStats(i)["allocated_bytes"]["all"]["allocated"])
            index = next(used, None)
            if index is None or now < self._seen_cuda + PATIENCE:
                return
        if index >= torch.cuda.device_count():
            raise ValueError(f"publish_memory: device is {index}, and there are {torch.cuda.device_count()} GPUs")
        with self._lock:
            if not self.unsettled:
                return
            self.unsettled = False
            properties = torch.cuda.get_device_properties(index)
            self._device, self._stats = index, torch._C._cuda_memoryStats
            self._about |= {"device": f"cuda:{index}", "gpu": str(properties.name), "total": properties.total_memory}

    def take(self) -> None:
        """The full snapshot that was asked for. Its file is written by our own thread."""
        with self._lock:
            if not self.wanted:
                return
            self.wanted, self._taken_at = False, time.monotonic()
        snapshot = self.recording.take()
        if snapshot is not None:
            self._taken.append(snapshot)
        self.due = 0.0
        _sampler.wake()

    # Any thread.

    def ask(self) -> None:
        """A viewer wants a full snapshot."""
        now = time.monotonic()
        if not self.wanted and now >= self._taken_at + REST:
            self._wanted_at, self.wanted = now, True
            _sampler.wake()

    def when(self) -> float:
        """When (time.monotonic) there is something to do."""
        return min(self.due, self._wanted_at + PATIENCE) if self.wanted else self.due

    def work(self, now: float) -> None:
        """What is due: a sample, a snapshot that no call of the trainer's came to take, its file."""
        if self.unsettled:
            self.settle(by_trainer=False)
        if self.wanted and now >= self._wanted_at + PATIENCE:
            self.take()
        while self._taken:
            path = self.recording.write(self._taken.pop(), "asked")
            if path is not None:
                _log.info("splatview: a snapshot of the memory: splatview memory %s", path)
        if now >= self.due:
            self.due = max(self.due + self.period, now)
            self.sample()

    def sample(self) -> None:
        """Look once, and let viewers see it."""
        from splatview_ipc.control.limits import MAX_META_TEXT

        with self._lock:
            self._samples.add(self._look())
            recording = self.recording
            meta = {**self._about, "snapshot": recording.newest, "snapshots": recording.count,
                    "trouble": (self._trouble or recording.trouble)[:MAX_META_TEXT]}
            if meta != self._meta:
                self._meta = meta  # otherwise the same object: whoever encodes it sees at once that nothing changed
            self.stream.publish((self._form.of(self._samples), self._meta))

    def _look(self) -> list[float]:
        """A row of MEMORY_COLUMNS."""
        host = int(os.pread(self._statm, 128, 0).split()[1]) * self._page
        if self._stats is None:
            return [time.time(), self._step, 0, 0, 0, 0, 0, 0, 0, host, 0, 0, 0]
        stats = self._stats(self._device)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        # A highest value that is not the one of the last time was reached since then.
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
        if self._statm >= 0:
            os.close(self._statm)
        self._statm = -1


class _Sampler:
    """The thread that looks, for all meters."""

    def __init__(self) -> None:
        self._wake = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        if self._thread is None:
            self._ending = False
            self._thread = threading.Thread(target=self._run, name="splatview memory", daemon=True)
            self._thread.start()
        self.wake()

    def wake(self) -> None:
        self._wake.set()

    def end(self) -> bool:
        """Whether it has ended, once what it was at is done."""
        thread, self._ending = self._thread, True
        self._thread = None
        self.wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=20)  # a snapshot of many gigabytes' entries is being written
            return not thread.is_alive()
        return True

    def _run(self) -> None:
        from splatview_ipc.control import memory_snapshots as taken

        taken.tidy()  # a run before us may have been killed while it wrote one
        while not self._ending:
            meters = list(_meters.values())
            wait = min((meter.when() for meter in meters), default=math.inf) - time.monotonic()
            if wait > 0:
                self._wake.wait(min(wait, 60.0))
            self._wake.clear()
            for meter in meters:
                if self._ending or time.monotonic() < meter.when():
                    continue
                try:
                    meter.work(time.monotonic())
                except Exception as e:
                    meter.due = max(meter.due, time.monotonic() + 1)
                    _report(e)


_meters: dict[str, _Meter] = {}
_sampler = _Sampler()
_recording: Recording | None = None
_lock = threading.RLock()


def _begin(name: str, wish: int | None, hz: float, max_entries: int | None) -> _Meter | None:
    """The meter of a name that has none; None where the surroundings allow none."""
    publishing.check_name(name)
    with _lock:
        if name in _meters:
            return _meters[name]
        publisher = publishing.running()
        if publisher is None:
            return None
        stream = publisher.stream(name, "memory")
        try:
            meter = _meters[name] = _Meter(stream, _recorded(publisher, wish, max_entries), wish, hz)
        except Exception as e:
            publishing.fault(e)
            return None
        publisher.on_snapshot[name] = meter.ask
        _sampler.begin()
        atexit.unregister(end)
        atexit.register(end)  # later than the publisher's, so that it comes first
        return meter


def _recorded(publisher: Publisher, wish: int | None, max_entries: int | None) -> Recording:
    """The process's recording, which begins with CUDA."""
    global _recording
    if _recording is None:
        from splatview.api.recording import Recording

        _recording = Recording(publisher.run_id, max_entries, _ran_out)
    if wish != HOST:
        import torch

        with contextlib.suppress(AttributeError):  # at once, or as soon as the trainer begins to use CUDA
            torch.cuda._lazy_call(_recording.attach)
    return _recording


def _ran_out() -> None:
    """An allocation failed: viewers see it even if the trainer ends now."""
    for meter in list(_meters.values()):
        meter.sample()


def end() -> None:
    """Look no longer, and record no longer. The next `publish_memory` begins again. Idempotent."""
    global _recording
    with _lock:
        meters = list(_meters.values())
        if not meters:
            return
        ended = _sampler.end()
        _meters.clear()
        recording, _recording = _recording, None
    for meter in meters if ended else ():
        with contextlib.suppress(Exception):
            meter.work(time.monotonic())  # what is still to be written, and how it ended
        meter.close()
    if recording is not None:
        recording.end()


def _report(error: Exception) -> None:
    with contextlib.suppress(Exception):  # raising on request is for the trainer's own thread
        publishing.fault(error)


def _after_fork_in_child() -> None:
    """What is looked at is the parent's. A child that publishes begins its own."""
    global _sampler, _recording, _lock
    for meter in _meters.values():
        meter.close()
    _meters.clear()
    _sampler, _recording, _lock = _Sampler(), None, threading.RLock()


os.register_at_fork(after_in_child=_after_fork_in_child)
