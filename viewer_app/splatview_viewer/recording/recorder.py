"""Takes snapshots of streams of Gaussians now and then, without delaying anything."""

from __future__ import annotations

import functools
import logging
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview_ipc.control.errors import SharingError
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, JobQueue
from splatview_viewer.recording.packed import Packed, pack, packed_bytes, write_packed
from splatview_viewer.recording.recording import (
    DEFAULT_INTERVAL,
    Player,
    Recording,
    SceneSnapshot,
    StreamFolder,
)
from splatview_viewer.scene.frames import activated_in, background_of, scene_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.control.frame import StreamFrame
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.recording.recording import RecordOptions

log = logging.getLogger("splatview")

_MAX_WAIT = 10.0
"""Seconds after which a version is taken though fewer came than the interval asks for;
grows with the interval."""
_GAP = 1.0
"""Seconds between two snapshots at least."""
_SHARE = 0.05
"""Part of a processor, and of the viewer's share of the GPU, that snapshots may cost.
"""
_QUIET = 5.0
"""Seconds without a new version, or three times the period between the last two, after
which the last one is taken: as a rule it is the result of the training."""
_ERROR_GAP = 10.0
"""Seconds between a failed snapshot and the next attempt."""
_TIMEOUT = 10.0
"""Seconds to wait for a job when memory that it reads is about to be freed."""


class Recorder:
    """The tapes of all streams, their jobs that pack and write, and their limits."""

    def __init__(
        self, options: RecordOptions, work: GpuWork, wake: Callable[[], None]
    ) -> None:
        """`wake` ends the loop's sleep, from any thread."""
        self.options = options
        self.wake = wake
        self.governor = work.governor
        self._tapes: list[Tape] = []
        self.jobs = JobQueue("splatview recorder", wake)
        """At most two of each tape."""

    def start_tape(self, run: str, name: str) -> Tape:
        """Start to record a stream.

        Errors of the folder are logged; the stream is then recorded in memory.
        """
        folder = None
        if self.options.folder is not None:
            try:
                folder = StreamFolder(self.options.folder, run, name)
                log.warning(
                    "recording %s into %s, at most %s MB",
                    name,
                    folder.path,
                    f"{self.options.disk_mb:,}",
                )
            except (OSError, ViewerError) as e:
                log.warning(
                    "%s cannot be recorded into %s, so only in memory: %s",
                    name,
                    self.options.folder,
                    e,
                )
        tape = Tape(self, folder)
        self._tapes.append(tape)
        self._share()
        return tape

    def remove(self, tape: Tape) -> None:
        """Remove a closed tape; the others may take its share."""
        if tape in self._tapes:
            self._tapes.remove(tape)
            self._share()

    def _share(self) -> None:
        """Divide the memory, or the disk, among all tapes."""
        for tape in self._tapes:
            if tape.recording.folder is None:
                mb = self.options.memory_mb
            else:
                mb = self.options.disk_mb
            tape.allow(mb * 1_000_000 // len(self._tapes))

    def close(self) -> None:
        """Wait for the last job. Idempotent. The tapes have to be closed before."""
        self.jobs.close(_TIMEOUT)


@dataclass
class StreamProgress:
    """State of recording one run, whose versions count from 1."""

    version: int = 0
    """The newest one."""
    arrived_at: float = math.inf
    """Time at which the newest version was noticed."""
    period: float = 0.0
    """Seconds between the newest version and the one before it."""
    examined: int = 0
    """The newest version of which a snapshot was begun, or whose step came too soon."""
    snapshot_version: int = 0
    """Version of the last snapshot; 0: there is none, or it failed."""
    snapshot_step: int = 0
    snapshot_at: float = -math.inf
    """Time at which the last snapshot was begun."""
    next_at: float = 0.0
    """Time before which no snapshot is begun."""

    def notice(self, version: int, now: float) -> None:
        """Note the time of the stream's version, if it is a new one."""
        if version == self.version:
            return
        self.period = max(now - self.arrived_at, 0.0)
        self.version = version
        self.arrived_at = now


class _Taking(NamedTuple):
    """A snapshot that a job takes of a frame."""

    frame: StreamFrame
    job: Job[_Outcome]


class _Outcome(NamedTuple):
    """The outcome of a job that takes a snapshot."""

    snapshot: SceneSnapshot | None
    """None: the frame was overwritten meanwhile."""
    packed: Packed
    cpu_seconds: float
    """Time of a processor."""


class Tape:
    """Records one stream. Belongs to the loop's thread."""

    def __init__(self, recorder: Recorder, folder: StreamFolder | None) -> None:
        self._recorder = recorder
        self._step_interval = recorder.options.every
        """Steps between two snapshots as the user asks for them; None: versions count.
        """
        self._first_interval = float(self._step_interval or DEFAULT_INTERVAL)
        self.recording = Recording(self._first_interval, folder=folder)
        self.player = Player(self.recording, recorder.wake)
        self.error = ""
        """Reason why nothing is recorded at the moment; "" if it is."""
        self._progress = StreamProgress()
        self._taking: _Taking | None = None
        """The snapshot that is being taken."""
        self._index_job: Job[None] | None = None
        """Done when the folder's index is written."""

    def start_next_run(self) -> None:
        """Finish the recording of a run and start that of the next one."""
        self.finish()
        self._progress = StreamProgress()
        self.player.has_live = True

    def allow(self, limit: int) -> None:
        """Set the limit of the recording, in bytes."""
        self.recording.limit = limit
        self._write_index(self.recording.fit())

    def tick(self, stream: RemoteStream, is_open: bool, now: float) -> None:
        """Play, and take a snapshot if one is due; once in each turn of the loop.

        Args:
            stream: the stream that is recorded.
            is_open: the stream is read; otherwise nothing is taken of it.
            now: the time.
        """
        self.player.tick(now)
        if self._taking is not None:
            if not self._taking.job.done:
                return
            self._take_in(now)
        progress = self._progress
        progress.notice(stream.version, now)
        if not is_open or now < progress.next_at:
            return
        is_last = self._is_last(stream, now)
        if not self._is_due(is_last, now):
            return
        frame = stream.read(after=progress.snapshot_version or progress.examined)
        if frame is None:
            if not stream.run.alive:
                # The version will not come any more.
                progress.examined = stream.version
            return
        progress.examined = frame.version
        is_taken = False
        try:
            is_taken = self._try_to_take(stream, frame, is_last, now)
        finally:
            if not is_taken:
                frame.close()

    def _is_last(self, stream: RemoteStream, now: float) -> bool:
        """Return whether the newest version seems to be the last one of the run."""
        progress = self._progress
        quiet = max(_QUIET, 3 * progress.period)
        return not stream.run.alive or now - progress.arrived_at >= quiet

    def _is_due(self, is_last: bool, now: float) -> bool:
        """Return whether a snapshot of the newest version is due.

        Steps are known only once the frame is read: `_comes_too_soon`.
        """
        progress = self._progress
        if progress.version <= progress.snapshot_version:
            return False
        if is_last and progress.snapshot_version:
            return True
        if progress.version <= progress.examined:
            return False
        if not progress.snapshot_version:
            return True
        if self._index_job is not None and not self._index_job.done:
            return False
        if self._step_interval is not None:
            return True
        interval = self.recording.interval
        max_wait = _MAX_WAIT * interval / self._first_interval
        has_waited = now >= progress.snapshot_at + max_wait
        return has_waited or progress.version >= progress.snapshot_version + interval

    def _comes_too_soon(self, step: int) -> bool:
        """Return whether fewer steps than the interval lie behind the last snapshot."""
        progress = self._progress
        if self._step_interval is None or not progress.snapshot_version:
            return False
        return 0 <= step - progress.snapshot_step < self.recording.interval

    def _try_to_take(
        self, stream: RemoteStream, frame: StreamFrame, is_last: bool, now: float
    ) -> bool:
        """Take a snapshot of a frame, unless it comes too soon.

        Returns False where no job took over the frame.
        """
        step = _step_of(frame)
        if not is_last and self._comes_too_soon(step):
            return False
        try:
            self._take(stream, frame, step)
        except (SharingError, ViewerError) as e:
            if isinstance(e, SharingError) and frame.on_gpu:
                # The same data may come in another way.
                stream.refuse(str(e))
            self._fail(str(e), now)
            return False
        progress = self._progress
        progress.snapshot_version = frame.version
        progress.snapshot_step = step
        progress.snapshot_at = now
        return True

    def _take(self, stream: RemoteStream, frame: StreamFrame, step: int) -> None:
        """Start a job that packs a frame, and writes it to a folder if there is one.

        Raises ViewerError if it would not fit.
        """
        import torch

        self._check_fits(stream, frame)
        recording = self.recording
        scene = None
        cuda = None
        file = recording.next_file
        folder = recording.folder
        if frame.on_gpu:
            scene, ready = scene_of(frame, in_place=True)
            cuda = _stream(scene.gpu)
            assert ready is not None
            ready(cuda.cuda_stream)
            self._recorder.governor.charge(_gpu_work(frame), "cuda")

        def make(_: Job[_Outcome]) -> _Outcome:
            started = time.thread_time()
            snapshot = None
            with torch.cuda.stream(cuda):
                background = background_of(frame)
            frame_scene = scene_of(frame)[0] if scene is None else scene
            packed = pack(frame_scene, background, cuda)
            if frame.intact():
                if folder is not None:
                    folder.check_in_place()
                    write_packed(folder.path / file, packed)
                snapshot = SceneSnapshot(
                    file=file,
                    step=step,
                    version=frame.version,
                    time_ns=frame.time_ns,
                    count=len(packed),
                    bytes=packed.data.nbytes,
                )
            return _Outcome(snapshot, packed, time.thread_time() - started)

        self._taking = _Taking(frame, self._recorder.jobs.submit(make))

    def _check_fits(self, stream: RemoteStream, frame: StreamFrame) -> None:
        """Raise ViewerError for a frame whose snapshot is over the limit by itself."""
        means = frame.tensors["means"]
        higher = frame.tensors.get("shN")
        needed = packed_bytes(
            means.shape[0],
            higher.shape[1] if higher is not None else 0,
            activated_in(frame),
            means.dtype == "float64",
        )
        limit = self.recording.limit
        if needed <= limit:
            return
        is_on_disk = self.recording.folder is not None
        option = "--record-disk" if is_on_disk else "--record-memory"
        raise ViewerError(
            f"a snapshot of {stream.name} takes {needed / 1e6:,.0f} MB, and "
            f"{limit / 1e6:,.0f} MB are allowed: see {option}"
        )

    def _take_in(self, now: float) -> None:
        """Add the snapshot of the finished job to the recording."""
        assert self._taking is not None
        frame, job = self._taking
        self._taking = None
        work = _gpu_work(frame)
        frame.close()
        progress = self._progress
        gap = _GAP if self._step_interval is None else 0.0
        progress.next_at = progress.snapshot_at + gap
        version = progress.snapshot_version
        # If it failed, or was overwritten meanwhile, the next version is taken.
        progress.snapshot_version = 0
        if job.fault:
            self._fail(job.fault, now)
            return
        outcome = job.result()
        pause = outcome.cpu_seconds / _SHARE
        gpu_ms = outcome.packed.gpu_ms
        if gpu_ms:
            governor = self._recorder.governor
            governor.record(work, gpu_ms)
            # The governor's cost leaves out what other processes did in between.
            cost = governor.cost(work) or gpu_ms
            pause = max(pause, cost * 1e-3 / (_SHARE * governor.account.share))
        progress.next_at = max(progress.next_at, now + pause)
        if outcome.snapshot is None:
            return
        self.error = ""
        progress.snapshot_version = version
        packed = outcome.packed if self.recording.path is None else None
        self._write_index(self.recording.add(outcome.snapshot, packed))

    def _write_index(self, dropped: list[SceneSnapshot]) -> None:
        """Start a job that writes the folder's index and removes dropped snapshots."""
        recording = self.recording
        folder = self.recording.folder
        if folder is None:
            return
        interval = recording.interval
        snapshots = list(recording.snapshots)

        def write(_: Job[None]) -> None:
            try:
                folder.write_index(interval, snapshots, dropped)
            except OSError as e:
                self._report(f"{folder.path}: its index cannot be written: {e}")

        self._index_job = self._recorder.jobs.submit(write)

    def _fail(self, text: str, now: float) -> None:
        """Report a snapshot that failed; pause before the next one."""
        self._report(f"a snapshot could not be recorded: {text}")
        self._progress.next_at = now + _ERROR_GAP

    def _report(self, text: str) -> None:
        """Log an error, once while it lasts."""
        if text != self.error:
            self.error = text
            log.warning("%s", text)

    def finish(self, wait: bool = False) -> None:
        """Wait until no job reads memory of a GPU, which is about to be freed.

        As a rule that takes some milliseconds. Memory of the host stays as long as a
        job needs it. Idempotent.

        Args:
            wait: also for a job that reads memory of the host.
        """
        if self._taking is None:
            return
        frame, job = self._taking
        if (wait or frame.on_gpu) and job.wait(_TIMEOUT):
            self._take_in(self._progress.snapshot_at)

    def close(self) -> None:
        """Release everything. Idempotent."""
        self.finish(wait=True)
        self.player.close()
        self._recorder.remove(self)
        if self.recording.folder is not None:
            if self._index_job is not None:
                self._index_job.wait(_TIMEOUT)
            self.recording.folder.close()


def _step_of(frame: StreamFrame) -> int:
    """Return the trainer's step of a frame, or its version if it names none."""
    step = frame.meta.get("step")
    if isinstance(step, (int, float)) and math.isfinite(step):
        return int(step)
    return frame.version


@functools.cache
def _stream(device: Any) -> Any:
    """Return a torch stream for reading on a GPU, after everything else there."""
    import torch

    return torch.cuda.Stream(device, priority=0)


def _gpu_work(frame: StreamFrame) -> tuple[object, ...]:
    """Return the governor's key for packing a frame.

    Scenes of similar counts share it, so that the last one's cost predicts the next.
    """
    return "record", frame.tensors["means"].shape[0].bit_length()
