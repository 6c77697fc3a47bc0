"""One published stream: the newest value, and how it reaches viewers while some are attached.

A state machine without threads: `publish` runs on the trainer's thread, everything else on the helper thread. A call to
`publish` stores the newest value, writes it to each transport in use and counts it. What it cannot do at once is left
for `turn`: the memory of rings, versions that came too fast or found no free slot, and viewers that come late. Both
write by the same `_write`, under a lock that `publish` never waits for.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.limits import MAX_META_TEXT
from splatview_ipc.control.messages import StreamInfo
from splatview_ipc.shm.control_block import COPIES, SKIPPED, ControlBlock
from splatview_ipc.transports import TRANSPORTS, ZERO_COPY, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from splatview_ipc.control.messages import Ref
    from splatview_ipc.kinds import ValueLayout

    Published = tuple[tuple[torch.Tensor, ...], dict[str, Any]]

GRACE_S = 0.1
"""Seconds after a publish for which what it left undone is left to the next one; then the helper thread does it."""
SETTLE_S = 0.02
"""Seconds after a late copy at which it is known whether its tensors were amid a write."""
RETRY_S = 1.0
"""Seconds between two tries to get memory that was short."""
LIVE_PERIOD_S = 1 / 30
"""Seconds between two copies of a live stream that the trainer changes in place without publishing again."""
PERIOD_S = {"ring": 1 / 240, "device-ring": 1 / 240, "host": 1 / 240}
"""Mean seconds between two frames by a transport, at least; 1/60 by others. The last version is always shown."""
BURST_S = 0.05
"""Seconds without a frame that are made up for: a change right behind another one is not left for later."""
CPU_TRANSPORTS = ("ring",)
_MOVES = 3
"""Publishes in a row at which Gaussians were stored elsewhere: from then on they are copied."""


class Run(Protocol):
    """Services that a stream needs of its run."""

    control: ControlBlock

    def now(self) -> float:
        """Return the clock's seconds."""
        ...

    def wake(self) -> None:
        """Have the helper thread call `turn` soon, and tell viewers what changed. Any thread."""
        ...

    def fault(self, error: BaseException) -> None:
        """Count a fault of the surroundings and pass it on."""
        ...


@dataclass
class _Active:
    """A transport in use."""

    period: float
    """Mean seconds between two versions, at least."""
    readers: int = 0
    writer: Writer | None = None
    shown: Published | None = None
    """The value that was written last."""
    version: int = 0
    """Its number."""
    layout: ValueLayout | None = None
    """Its layout: the writer fits all values that have it."""
    next_at: float = 0.0
    """When the next one may be written."""
    retry_at: float = 0.0
    """When to try again to make the writer."""
    _last: tuple[ValueLayout, tuple[torch.Tensor, ...], list[int], dict[str, torch.Tensor]] | None = None
    """The last value that was shared in place: layout, tensors, their addresses, fields."""

    def fields(self, layout: ValueLayout, tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        """Return the fields of a value to share in place: the last ones if the same tensors are at the same addresses.

        A dozen calls of torch are spared, which cost most of a version. What is kept keeps its memory, so that no other
        tensor can have these addresses.
        """
        addresses, last = [t.data_ptr() for t in tensors], self._last
        if last is None or last[0] is not layout or last[1] is not tensors or last[2] != addresses:
            last = self._last = layout, tensors, addresses, layout.frame(tensors)
        return last[3]


class Stream:
    """One named thing that a run publishes."""

    def __init__(self, index: int, name: str, kind: str, run: Run):
        self.index, self.name, self.kind = index, name, kind
        self.version = 0
        """Number of the newest version."""
        self.live = False
        self.over: tuple[str, str] = "", ""
        """For kind overlay: the stream under it, its name and its run's id (`StreamInfo`)."""
        self.shard: tuple[tuple[int, int] | None, str] = None, ""
        """Which part of a scene it is, and of which (`StreamInfo.group`)."""
        self._run = run
        self._newest: tuple[ValueLayout, Published] | None = None
        self._published_at = 0.0
        self._active: dict[str, _Active] = {}
        """By transport. Replaced, never changed in place, since two threads look at it."""
        self._lock = threading.RLock()
        self._inside = False
        """True while a publish is on its way."""
        self._left = False
        """True when the helper thread knows that a version is left for it."""
        self._wishes: tuple[bool | None, bool] = None, False
        """The caller's `copy` and `live`."""
        self.layout: ValueLayout | None = None
        """The layout of the newest value."""
        self._looks: tuple[tuple[int, ...], str, str] | None = None
        self._failed: dict[str, str] = {}
        """Transports that do not work here, or whose memory is short, and why."""
        self._gpu: _Gpu | None = None
        self._settling: tuple[Published, list[int], float] | None = None
        """A late copy: the value, its tensors' counts of in-place operations before it, when to compare."""
        self._moves = 0
        self._addresses: list[int] = []

    # The trainer's thread.

    def describe(self, layout: ValueLayout, copy: bool | None = None, live: bool = False) -> None:
        """Take in how values look from now on, and the caller's wishes. Call it before `publish`."""
        self.layout = layout
        looks = layout.shape, layout.dtype, layout.device
        if looks == self._looks and (copy, live) == self._wishes:
            return
        if self._looks is None or layout.device != self._looks[2]:
            with self._lock:
                self._drop_writers()
                self._failed, self._gpu = {}, None
                if layout.device != "cpu":
                    self._gpu = _Gpu(layout.device)
                    if self._gpu.trouble is not None:
                        self._failed = dict.fromkeys(("in-place", "device-ring"), str(self._gpu.trouble))
                        self._run.fault(self._gpu.trouble)
        self._wishes, self.live, self._looks = (copy, live), live, looks
        self._run.wake()

    def publish(self, published: Published) -> None:
        """Make a value of the described layout the newest version. Waits for nothing."""
        layout = self.layout
        assert layout is not None
        gpu = self._gpu
        if gpu is not None:
            if self._active and gpu.capturing():  # nothing runs yet, and what we queue would run at each replay
                self._run.control.words[SKIPPED] += 1
                return
            gpu.stream = gpu.current_stream(gpu.index)
        now = self._published_at = self._run.now()  # without viewers too: the first waits for the next publish
        self.version += 1  # before the value: the helper thread, which may write it at once, takes a number of its own
        self._newest = layout, published
        if self._active:
            self._publish_now(now)
        self._run.control.words[ControlBlock.version_word(self.index)] = self.version

    def _publish_now(self, now: float) -> None:
        if self._inside:  # a signal's handler, or another thread
            self._leave()
            return
        self._inside = True
        try:
            if self._lock.acquire(blocking=False):
                self._share(now)
                self._lock.release()
            else:
                self._leave()
        except BaseException as e:  # Ctrl-C as well, between any two steps, amid a slot: the writers are made anew
            with contextlib.suppress(RuntimeError):
                self._drop_writers()
                while True:  # until the lock is not this thread's any more
                    self._lock.release()
            if not isinstance(e, Exception):
                raise
            self._run.fault(e)
        finally:
            self._inside = False

    def _leave(self) -> None:
        """Leave the newest version to the helper thread."""
        if not self._left:
            self._left = True
            self._run.wake()

    def _share(self, now: float) -> None:
        """Write the newest value to every transport in use. Under the lock."""
        assert self._newest is not None
        if self._gpu is not None and self.kind == "gaussians" and self._moves < _MOVES:
            addresses = [t.data_ptr() for t in self._newest[1][0]]
            self._moves = self._moves + 1 if addresses != self._addresses else 0
            self._addresses = addresses
            if self._moves == _MOVES:
                self._run.wake()  # viewers take another transport
        for name, active in self._active.items():
            if now < active.next_at or not self._write(name, active, now):
                self._leave()

    def republish(self) -> int:
        """Have viewers see what the newest value holds now, changed in place or not; on the trainer's thread.

        Returns the version to look for; 0: nothing was published yet. An image that was copied when it was published
        and has reached every viewer stays as it is.
        """
        if self._newest is None:
            return 0
        published, active = self._newest[1], self._active
        if (self.kind == "image" and not self.live and active and active.keys().isdisjoint(ZERO_COPY)
                and all(a.shown is published for a in active.values())):
            return self.version
        self.publish((published[0], published[1]))
        return self.version

    # Both threads, under the lock.

    def _write(self, name: str, active: _Active, now: float, confirmed: bool = True) -> bool:
        """Bring the newest value to a transport; return whether nothing is left to be done there."""
        writer, newest = active.writer, self._newest
        if newest is None or name in self._failed:
            return True  # its viewers are choosing another
        layout, published = newest
        tensors = active.fields(layout, published[0]) if name in ZERO_COPY else layout.frame(published[0])
        if writer is None or (layout is not active.layout and not writer.fits(tensors)):
            return False  # the helper thread makes one
        ref, version = writer.ref, max(self.version, active.version + 1)  # the other thread may have used the number
        try:
            if not writer.write(layout.kind, tensors, published[1], version, confirmed):
                return False
        except SharingError as e:
            self._fail(name, active, e)
            return True
        if writer.ref is not ref:
            self._run.wake()
        self.version = max(self.version, version)
        active.shown, active.version, active.layout = published, version, layout
        active.next_at = max(active.next_at, now - BURST_S) + active.period
        self._run.control.words[COPIES] += 1
        return True

    def _fail(self, name: str, active: _Active, error: SharingError) -> None:
        """Offer this transport no more, if there is another: its viewers take the next. The last one is tried again."""
        anew = name not in self._failed
        if len(self._offered()) < 2:
            active.retry_at = self._run.now() + RETRY_S
        self._failed[name] = str(error)
        best = self._offered()[0]
        if active.retry_at and anew:
            self._run.fault(SharingError(f"stream {self.name!r} is not shown: {error}"))
        elif anew and best not in ZERO_COPY:
            self._run.fault(SharingError(f"stream {self.name!r} goes by {best} instead of {name}: {error}"))
        writer, active.writer, active.shown = active.writer, None, None
        if writer is not None:
            writer.close()
        self._run.wake()

    def _drop_writers(self) -> None:
        for active in self._active.values():
            writer, active.writer, active.shown = active.writer, None, None
            if writer is not None:
                with contextlib.suppress(Exception):
                    writer.close()

    # Any thread.

    def _offered(self) -> tuple[str, ...]:
        """Return the transports that suit the tensors as they come, the best first, without those that failed."""
        names = self._suitable()
        return tuple(n for n in names if n not in self._failed) or names[-1:]

    def _suitable(self) -> tuple[str, ...]:
        copy, live = self._wishes
        if self._gpu is None:
            return CPU_TRANSPORTS
        if copy is True:
            return ("device-ring", "host")
        shared = ZERO_COPY[1:] if os.environ.get("SPLATVIEW_SHARE") == "torch" else ZERO_COPY
        if copy is False:
            return (*shared, "host")
        if live or (self.kind == "gaussians" and self._moves < _MOVES):
            return (*shared, "device-ring", "host")
        return ("device-ring", *shared, "host")

    @property
    def info(self) -> StreamInfo | None:
        """Announcement for viewers; None before the first value."""
        if self._looks is None:
            return None
        why = "; ".join(f"{name}: {reason}" for name, reason in self._failed.items())
        return StreamInfo(self.index, self.name, self.kind, *self._looks, self._offered(),  # type: ignore[arg-type]
                          why[:MAX_META_TEXT], self._gpu.uuid if self._gpu is not None else "", self.live, *self.over,
                          *self.shard)

    @property
    def readers(self) -> int:
        """Viewers that opened this stream."""
        return sum(a.readers for a in self._active.values())

    # The helper thread.

    def open(self, transport: str) -> None:
        """Count one more viewer that takes frames by this transport."""
        with self._lock:
            if transport not in self._active:
                self._active = {**self._active, transport: _Active(PERIOD_S.get(transport, 1 / 60))}
            self._active[transport].readers += 1

    def release(self, transport: str) -> None:
        """Count one viewer less; what no viewer reads is given back."""
        with self._lock:
            active = self._active[transport]
            active.readers -= 1
            if active.readers:
                return
            self._active = {n: a for n, a in self._active.items() if n != transport}
            writer, active.writer = active.writer, None
        if writer is not None:
            writer.close()  # outside of the lock: to give a gigabyte back takes long

    def offer(self, transport: str) -> tuple[Ref, str] | None:
        """Return what viewers of this transport are told: where the frames are, and a note; None: not yet."""
        active = self._active.get(transport)
        writer = active.writer if active is not None else None
        return None if writer is None else (writer.ref, writer.note[:MAX_META_TEXT])

    def turn(self, now: float) -> float | None:
        """Do what `publish` left, and what is due; return when (clock seconds) to be called again, None: when woken."""
        self._left = False  # before we look: what is left from now on wakes us again
        if self._newest is None or not self._active:
            return None
        due = math.inf
        for name, active in list(self._active.items()):
            if active.retry_at > now:
                due = min(due, active.retry_at)
            else:
                self._make_writer(name, active)
            with self._lock:
                if active.writer is not None and (when := active.writer.turn(now)) is not None:
                    due = min(due, when)
        soon = self._published_at + GRACE_S
        if now >= soon and self.behind():
            self._catch_up(now)
            soon = now + GRACE_S
        if self.behind() or now < soon:
            self._left = True  # this thread comes again by itself: a busy trainer need not wake it
            due = min(due, soon)
        elif self.live and any(name not in ZERO_COPY for name in self._active):
            due = min(due, self._follow_live(now))
        elif self._settling is not None:
            published, counts, when = self._settling
            if now < when:
                return min(due, when)
            # An in-place operation that has ended since a late copy may have been amid a write then: it is copied once
            # more, as not confirmed.
            self._settling = None
            if _counts(published[0]) != counts:
                with self._lock, self._side_stream():
                    for name, active in self._active.items():
                        if name not in ZERO_COPY and active.shown is published:
                            self._write(name, active, now, confirmed=False)
            self._run.control.words[ControlBlock.version_word(self.index)] = self.version
        return due if due < math.inf else None

    def behind(self) -> bool:
        """Return whether viewers lack the newest value."""
        newest = self._newest
        return newest is not None and any(a.shown is not newest[1] and name not in self._failed
                                          for name, a in self._active.items())

    def _make_writer(self, name: str, active: _Active) -> None:
        """Make the writer that a transport lacks, or one that the newest value fits. Allocates outside of the lock."""
        newest = self._newest
        if newest is None or (active.writer is not None and active.layout is newest[0]):
            return
        if name not in self._suitable() or (name in self._failed and not active.retry_at):
            return
        try:
            with self._lock, self._side_stream():
                tensors = newest[0].frame(newest[1][0])
            if active.writer is not None and active.writer.fits(tensors):
                return
            made = TRANSPORTS[name].writer(tensors, self.kind == "gaussians")
        except SharingError as e:
            with self._lock:
                self._fail(name, active, e)
            return
        with self._lock:
            before, active.writer, active.shown, active.layout = active.writer, made, None, newest[0]
            if active.retry_at:
                active.retry_at = 0.0
                self._failed.pop(name, None)
        if before is not None:
            before.close()

    def _catch_up(self, now: float) -> None:
        """Bring the newest value to viewers that came late, or where its own publish could not."""
        with self._lock, self._side_stream() as ready:
            newest = self._newest
            if not ready or newest is None:
                return
            counts = _counts(newest[1][0])
            for name, active in self._active.items():
                if active.shown is not newest[1] and now >= active.next_at:
                    self._write(name, active, now, counts is not None)
            self._settling = (newest[1], counts, now + SETTLE_S) if counts else None
        self._run.control.words[ControlBlock.version_word(self.index)] = self.version

    def _follow_live(self, now: float) -> float:
        """Copy what a live stream's tensors hold now; return when to do so again."""
        due = math.inf
        with self._lock, self._side_stream() as ready:
            newest = self._newest
            for name, active in self._active.items():
                if name in ZERO_COPY or active.writer is None or newest is None or not ready:
                    continue
                if now >= active.next_at + LIVE_PERIOD_S:
                    holds = getattr(active.writer, "holds", None)
                    if holds is None or not holds(newest[0].frame(newest[1][0])):
                        self._write(name, active, now)
                    active.next_at = now + 4 * (self._run.now() - now)  # large copies come less often
                due = min(due, active.next_at + LIVE_PERIOD_S)
        self._run.control.words[ControlBlock.version_word(self.index)] = self.version
        return due

    @contextlib.contextmanager
    def _side_stream(self) -> Iterator[bool]:
        """Queue work for the GPU behind the trainer's own; False: not possible now, a CUDA graph is being captured."""
        if self._gpu is None:
            yield True
            return
        from splatview_ipc.cuda.driver import behind

        with behind(self._gpu.index, self._gpu.stream) as ready:
            yield ready

    def finish(self) -> None:
        """Bring the last version to viewers, which read it after this process has ended; when the helper has ended."""
        try:
            if self.behind():
                for active in self._active.values():
                    active.next_at = 0.0
                self._catch_up(0.0)
        except Exception as e:
            self._run.fault(e)

    def close(self) -> None:
        with self._lock:
            self._newest = None
            self._drop_writers()


class _Gpu:
    """The CUDA device that a stream's tensors are on."""

    def __init__(self, device: str):
        import torch

        self.index = int(device.partition(":")[2] or 0)
        self.current_stream: Callable[[int], int] = torch._C._cuda_getCurrentRawStream
        self.capturing: Callable[[], bool] = torch._C._cuda_isCurrentStreamCapturing
        self.stream = self.current_stream(self.index)
        """The trainer's current CUDA stream at the newest publish."""
        self.uuid = ""
        self.trouble: SharingError | None = None
        """Why nothing can be shared within GPU memory."""
        try:
            from splatview_ipc.cuda import driver

            self.uuid = driver.gpu_uuid(self.index)
        except SharingError as e:
            self.trouble = e


def _counts(tensors: tuple[Any, ...]) -> list[int] | None:
    """Return how many in-place operations ended on each tensor; None where torch does not count them."""
    if any(hasattr(t, "is_inference") and t.is_inference() for t in tensors):
        return None
    return [getattr(t, "_version", 0) for t in tensors]  # 0: a NumPy array
