"""Takes snapshots of streams of Gaussians now and then, without delaying anything."""

from __future__ import annotations

import functools
import logging
import math
import operator
import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview_ipc.control.errors import SharingError
from splatview_ipc.system.files import OutputError
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, JobQueue
from splatview_viewer.recording.block_form import block_form_bytes
from splatview_viewer.recording.packed import Packed, pack, write_packed
from splatview_viewer.recording.player import Player
from splatview_viewer.recording.recording import Recording, SceneSnapshot, StreamFolder
from splatview_viewer.recording.schedule import SnapshotSchedule
from splatview_viewer.scene.frames import background_of, scene_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.control.frame import StreamFrame
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.recording.options import RecordOptions

log = logging.getLogger("splatview")

_SHARE = 0.05
"""Part of a processor, and of the viewer's share of the GPU, that snapshots may cost.
"""
_ERROR_GAP = 10.0
"""Seconds between a failed snapshot and the next attempt."""
_GAP_FACTOR = 2.0
"""Usual distances of snapshots from which on it is told that some were missed."""
_MAX_GAPS = 64
_TIMEOUT = 10.0
"""Seconds to wait for a job when memory that it reads is about to be freed."""


class Recorder:
    """The tapes of all streams, their jobs that pack and write, and their limits."""

    def __init__(
        self,
        options: RecordOptions,
        gpu_work: GpuWork,
        wake: Callable[[], None],
        notice: Callable[[str], None],
    ) -> None:
        """Start with no tape.

        Args:
            options: what is recorded, and where.
            gpu_work: limits what snapshots cost.
            wake: ends the loop's sleep, from any thread.
            notice: logs a fault and shows it to all users, once. On the loop's thread.
        """
        self.options = options
        self.wake = wake
        self.notice = notice
        self.governor = gpu_work.governor
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
        self._schedule = SnapshotSchedule(recorder.options.every)
        self.recording = Recording(self._schedule.first_interval, folder=folder)
        self.player = Player(self.recording, recorder.wake)
        self.error = ""
        """Reason why nothing is recorded at the moment; "" if it is."""
        self.has_missed = False
        """A snapshot was due since the last one, and the stream was not read."""
        self._taking: _Taking | None = None
        """The snapshot that is being taken."""
        self._index_job: Job[None] | None = None
        """Done when the folder's index is written."""

    def start_next_run(self) -> None:
        """Finish the recording of a run and start that of the next one."""
        self.finish()
        self._schedule = SnapshotSchedule(self._schedule.step_interval)
        self.player.has_live = True

    def allow(self, limit: int) -> None:
        """Set the limit of the recording, in bytes."""
        self.recording.limit = limit
        self._write_index(self.recording.fit())

    @property
    def at_work(self) -> bool:
        """True while it plays, or a snapshot is being taken."""
        return self.player.playing or self._taking is not None

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
        schedule = self._schedule
        self._check_index_job()
        schedule.notice(stream.version, now)
        if now < schedule.next_at:
            return
        if not is_open:
            interval = self.recording.interval
            self.has_missed |= schedule.is_due(False, False, interval, now)
            return
        is_last = not stream.run.alive or schedule.seems_last(now)
        is_writing = self._index_job is not None and not self._index_job.done
        interval = self.recording.interval
        if not schedule.is_due(is_last, is_writing, interval, now):
            return
        frame = stream.read(after=schedule.snapshot_version or schedule.examined)
        if frame is None:
            if not stream.run.alive:
                # The version will not come any more.
                schedule.examined = stream.version
            return
        schedule.examined = frame.version
        is_taken = False
        try:
            is_taken = self._try_to_take(stream, frame, is_last, now)
        finally:
            if not is_taken:
                frame.close()

    def _try_to_take(
        self, stream: RemoteStream, frame: StreamFrame, is_last: bool, now: float
    ) -> bool:
        """Take a snapshot of a frame, unless it comes too soon.

        Returns False where no job took over the frame.
        """
        step = _step_of(frame)
        interval = self.recording.interval
        if not is_last and self._schedule.comes_too_soon(step, interval):
            return False
        try:
            self._take(stream, frame, step)
        except (SharingError, ViewerError) as e:
            if isinstance(e, SharingError) and frame.on_gpu:
                # The same data may come in another way.
                stream.refuse(str(e))
            self._fail(str(e), now)
            return False
        self._schedule.note_snapshot(frame.version, step, now)
        return True

    def _take(self, stream: RemoteStream, frame: StreamFrame, step: int) -> None:
        """Start a job that packs a frame, and writes it to a folder if there is one.

        Raises ViewerError if it would not fit.
        """
        import torch

        recording = self.recording
        _check_fits(recording, stream.name, frame)
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
            if scene is None:
                frame_scene = scene_of(frame)[0]
            else:
                frame_scene = scene
            packed = pack(frame_scene, background, cuda)
            if frame.intact():
                if folder is not None:
                    _write_snapshot(folder, file, packed)
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

    def _take_in(self, now: float) -> None:
        """Add the snapshot of the finished job to the recording."""
        assert self._taking is not None
        frame, job = self._taking
        self._taking = None
        gpu_work = _gpu_work(frame)
        frame.close()
        schedule = self._schedule
        schedule.set_pause()
        version = schedule.snapshot_version
        # If it failed, or was overwritten meanwhile, the next version is taken.
        schedule.snapshot_version = 0
        if job.fault:
            self._fail(job.fault, now)
            return
        outcome = job.result()
        pause = outcome.cpu_seconds / _SHARE
        gpu_ms = outcome.packed.gpu_ms
        if gpu_ms:
            governor = self._recorder.governor
            governor.record(gpu_work, gpu_ms)
            # The governor's cost leaves out what other processes did in between.
            cost = governor.cost(gpu_work) or gpu_ms
            pause = max(pause, cost * 1e-3 / (_SHARE * governor.account.share))
        schedule.next_at = max(schedule.next_at, now + pause)
        if outcome.snapshot is None:
            return
        self.error = ""
        schedule.snapshot_version = version
        self._note_gap(outcome.snapshot.step)
        if self.recording.path is None:
            packed = outcome.packed
        else:
            packed = None
        self._write_index(self.recording.add(outcome.snapshot, packed))

    def _note_gap(self, step: int) -> None:
        """Note a gap before a snapshot of this step, if it is wider than usual ones."""
        has_missed = self.has_missed
        self.has_missed = False
        steps = [snapshot.step for snapshot in self.recording.snapshots]
        if not has_missed or not steps:
            return
        usual = 0.0
        if len(steps) > 1:
            usual = statistics.median(map(operator.sub, steps[1:], steps))
        if step - steps[-1] > _GAP_FACTOR * usual:
            self.recording.gaps.append((steps[-1], step))
            del self.recording.gaps[:-_MAX_GAPS]

    def _write_index(self, dropped: list[SceneSnapshot]) -> None:
        """Start a job that writes the folder's index and removes dropped snapshots."""
        recording = self.recording
        folder = self.recording.folder
        if folder is None:
            return
        interval = recording.interval
        snapshots = list(recording.snapshots)

        def write(_: Job[None]) -> None:
            folder.write_index(interval, snapshots, dropped)

        self._index_job = self._recorder.jobs.submit(write)

    def _check_index_job(self) -> None:
        """Tell why the folder's index could not be written, if so."""
        job = self._index_job
        if job is None or not job.done:
            return
        self._index_job = None
        if job.fault:
            self._report(f"what is recorded cannot be listed: {job.fault}")

    def _fail(self, text: str, now: float) -> None:
        """Tell that a snapshot failed; pause before the next one."""
        self._report(f"a snapshot could not be recorded: {text}")
        self._schedule.next_at = now + _ERROR_GAP

    def _report(self, text: str) -> None:
        """Tell all users of an error, once."""
        if text != self.error:
            self.error = text
            self._recorder.notice(text)

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
            self._take_in(self._schedule.snapshot_at)

    def close(self) -> None:
        """Release everything. Idempotent."""
        self.finish(wait=True)
        self.player.close()
        self._recorder.remove(self)
        if self.recording.folder is not None:
            if self._index_job is not None:
                self._index_job.wait(_TIMEOUT)
                self._check_index_job()
            self.recording.folder.close()


def _check_fits(recording: Recording, name: str, frame: StreamFrame) -> None:
    """Raise ViewerError for a frame whose snapshot is over the limit by itself."""
    means = frame.tensors["means"]
    needed = block_form_bytes(means.shape[0], _used_coefficients(frame))
    limit = recording.limit
    if needed <= limit:
        return
    is_on_disk = recording.folder is not None
    option = "--record-memory"
    if is_on_disk:
        option = "--record-disk"
    raise ViewerError(
        f"a snapshot of {name} takes {needed / 1e6:,.0f} MB, and "
        f"{limit / 1e6:,.0f} MB are allowed: see {option}"
    )


def _used_coefficients(frame: StreamFrame) -> int:
    """Return how many coefficients beyond degree 0 a frame's scene uses."""
    higher = frame.tensors.get("shN")
    if higher is None:
        return 0
    sh_degree = int(frame.meta.get("sh_degree", 0))
    return min((sh_degree + 1) ** 2 - 1, higher.shape[1])


def _write_snapshot(folder: StreamFolder, file: str, packed: Packed) -> None:
    """Write a snapshot into a folder.

    Raises OutputError that names the folder alone: the same fault of the next snapshot
    has the same text, and is told once.
    """
    folder.check_in_place()
    try:
        write_packed(folder.path / file, packed)
    except OutputError as e:
        raise OutputError(folder.path, e.reason) from e


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
