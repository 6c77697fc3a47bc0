"""Takes snapshots of streams of Gaussians, now and then; nothing waits for it."""

from __future__ import annotations

import functools
import logging
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview_ipc.control.errors import SharingError
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, Jobs
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

_SELDOM = 10.0
"""Seconds after which a new version is taken though fewer came than were to be waited
for; grows as those do."""
_GAP = 1.0
"""Seconds between two snapshots at least."""
_SHARE = 0.05
"""Part of a processor, and of the viewer's share of the GPU, that taking them may cost.
"""
_QUIET = 5.0
"""Seconds without a new version, or three times what lay between the last two, after
which the last one is taken: as a rule it is what the training came to."""
_TROUBLE_GAP = 10.0
"""Seconds until it is tried again after it has failed."""
_PATIENCE = 10.0
"""Seconds to wait for a job when memory that it reads is about to go."""


class Recorder:
    """The tapes of all streams, the jobs that pack and write for them, and their
    limits.
    """

    def __init__(
        self, options: RecordOptions, work: GpuWork, wake: Callable[[], None]
    ) -> None:
        """`wake` ends the loop's sleep, from any thread."""
        self.options = options
        self.wake = wake
        self.governor = work.governor
        self._tapes: list[Tape] = []
        self.jobs = Jobs("splatview recorder", wake)
        """At most two of each tape."""

    def start_tape(self, run: str, name: str) -> Tape:
        """Record a stream from now on.

        Faults of the folder are logged: then it is recorded in memory.
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
        if tape in self._tapes:
            self._tapes.remove(tape)
            self._share()

    def _share(self) -> None:
        """Each may take as much as the others."""
        for tape in self._tapes:
            if tape.recording.folder is None:
                mb = self.options.memory_mb
            else:
                mb = self.options.disk_mb
            tape.allow(mb * 1_000_000 // len(self._tapes))

    def close(self) -> None:
        """Wait for the last job. Idempotent. The tapes have to be closed before."""
        self.jobs.close(_PATIENCE)


@dataclass
class _Seen:
    """State of recording one run, whose versions count from 1."""

    version: int = 0
    since: float = math.inf
    """When the newest version was seen first, and the time between it and the one
    before."""
    period: float = 0.0
    looked: int = 0
    """The newest version of which a snapshot was begun, or whose step came too soon."""
    version_taken: int = 0
    """Of the last snapshot; 0: there is none, or it failed."""
    step_taken: int = 0
    taken_at: float = -math.inf
    not_before: float = 0.0


class _Made(NamedTuple):
    """The outcome of a job that takes a snapshot."""

    snapshot: SceneSnapshot | None
    """None: the frame was overwritten meanwhile."""
    packed: Packed
    seconds: float
    """Of a processor's time."""


class Tape:
    """Records one stream. Belongs to the loop's thread."""

    def __init__(self, recorder: Recorder, folder: StreamFolder | None) -> None:
        self._recorder = recorder
        self._wanted_every = recorder.options.every
        self._first_every = float(self._wanted_every or DEFAULT_INTERVAL)
        self.recording = Recording(self._first_every, folder=folder)
        self.player = Player(self.recording, recorder.wake)
        self.error = ""
        """Why nothing is recorded at the moment."""
        self._seen = _Seen()
        self._taking: tuple[StreamFrame, Job[_Made]] | None = None
        """The frame of which a job takes a snapshot."""
        self._written: Job[None] | None = None
        """Done when the folder's index is written."""

    def start_next_run(self) -> None:
        """Continue with another run."""
        self.finish()
        self._seen = _Seen()
        self.player.has_live = True

    def allow(self, limit: int) -> None:
        """Take so many bytes at most."""
        self.recording.limit = limit
        self._settle(self.recording.fit())

    def tick(self, stream: RemoteStream, wanted: bool, now: float) -> None:
        """Work once in each turn of the loop. `wanted`: the stream is open."""
        self.player.tick(now)
        if self._taking is not None:
            if not self._taking[1].done:
                return
            self._take_in(now)
        seen = self._seen
        version = stream.version
        if version != seen.version:
            seen.period = max(now - seen.since, 0.0)
            seen.version = version
            seen.since = now
        if not wanted or now < seen.not_before or version <= seen.version_taken:
            return
        every = self.recording.interval
        steps = self._wanted_every is not None
        last = not stream.run.alive or now - seen.since >= max(_QUIET, 3 * seen.period)
        enough = (
            steps
            or version >= seen.version_taken + every
            or now >= seen.taken_at + _SELDOM * every / self._first_every
        )
        due = not seen.version_taken or (
            enough and (self._written is None or self._written.done)
        )
        if not ((last and seen.version_taken) or (version > seen.looked and due)):
            return
        frame = stream.read(after=seen.version_taken or seen.looked)
        if frame is None:
            if not stream.run.alive:
                seen.looked = stream.version  # it will not come any more
            return
        seen.looked = frame.version
        keep = False
        step = frame.meta.get("step")
        if isinstance(step, (int, float)) and math.isfinite(step):
            step = int(step)
        else:
            step = frame.version
        try:
            if (
                seen.version_taken
                and not last
                and steps
                and 0 <= step - seen.step_taken < every
            ):
                return
            self._take(stream, frame, step)
            keep = True
            seen.version_taken = frame.version
            seen.step_taken = step
            seen.taken_at = now
        except (SharingError, ViewerError) as e:
            if isinstance(e, SharingError) and frame.on_gpu:
                stream.refuse(str(e))  # the same data may come in another way
            self._fault(str(e), now)
        finally:
            if not keep:
                frame.close()

    def _take(self, stream: RemoteStream, frame: StreamFrame, step: int) -> None:
        """Have a job pack a frame, and write it where a folder is recorded into.

        Raises ViewerError if it would not fit.
        """
        import torch

        means = frame.tensors["means"]
        higher = frame.tensors.get("shN")
        needed = packed_bytes(
            means.shape[0],
            higher.shape[1] if higher is not None else 0,
            activated_in(frame),
            means.dtype == "float64",
        )
        recording = self.recording
        if needed > recording.limit:
            if recording.folder is not None:
                option = "--record-disk"
            else:
                option = "--record-memory"
            raise ViewerError(
                f"a snapshot of {stream.name} takes {needed / 1e6:,.0f} MB, and "
                f"{recording.limit / 1e6:,.0f} MB are allowed: see {option}"
            )
        scene = None
        cuda = None
        file = recording.next_file
        folder = recording.folder
        if frame.on_gpu:
            scene, ready = scene_of(frame, in_place=True)
            cuda = _stream(scene.gpu)
            assert ready is not None
            ready(cuda.cuda_stream)
            self._recorder.governor.charge(_work(frame), "cuda")

        def make(_: Job[_Made]) -> _Made:
            begin = time.thread_time()
            snapshot = None
            with torch.cuda.stream(cuda):
                background = background_of(frame)
            packed = pack(
                scene_of(frame)[0] if scene is None else scene, background, cuda
            )
            if frame.intact():
                if folder is not None:
                    folder.check_in_place()
                    write_packed(folder.path / file, packed)
                snapshot = SceneSnapshot(
                    file,
                    step,
                    frame.version,
                    frame.time_ns,
                    len(packed),
                    packed.data.nbytes,
                )
            return _Made(snapshot, packed, time.thread_time() - begin)

        self._taking = frame, self._recorder.jobs.submit(make)

    def _take_in(self, now: float) -> None:
        """Add what the job has made to the recording."""
        assert self._taking is not None
        (frame, job), self._taking = self._taking, None
        work = _work(frame)
        frame.close()
        seen = self._seen
        recording = self.recording
        seen.not_before = seen.taken_at + (_GAP if self._wanted_every is None else 0.0)
        taken = seen.version_taken
        seen.version_taken = (
            0  # if it failed, or was overwritten meanwhile: the next one that comes
        )
        if job.fault:
            self._fault(job.fault, now)
            return
        made = job.result()
        rest = job.result().seconds / _SHARE
        if made.packed.gpu_ms:
            governor = self._recorder.governor
            governor.record(work, made.packed.gpu_ms)
            cost = (
                governor.cost(work) or made.packed.gpu_ms
            )  # without what other processes did in between
            rest = max(rest, cost * 1e-3 / (_SHARE * governor.share))
        seen.not_before = max(seen.not_before, now + rest)
        if made.snapshot is not None:
            self.error = ""
            seen.version_taken = taken
            self._settle(
                recording.add(
                    made.snapshot, made.packed if recording.path is None else None
                )
            )

    def _settle(self, dropped: list[SceneSnapshot]) -> None:
        """Have the folder's index written."""
        recording = self.recording
        folder = self.recording.folder
        if folder is None:
            return
        every = recording.interval
        snapshots = list(recording.snapshots)

        def write(_: Job[None]) -> None:
            try:
                folder.write_index(every, snapshots, dropped)
            except OSError as e:
                self._say(f"{folder.path}: its index cannot be written: {e}")

        self._written = self._recorder.jobs.submit(write)

    def _fault(self, text: str, now: float) -> None:
        self._say(f"a snapshot could not be recorded: {text}")
        self._seen.not_before = now + _TROUBLE_GAP

    def _say(self, text: str) -> None:
        if text != self.error:
            self.error = text
            log.warning("%s", text)

    def finish(self, whole: bool = False) -> None:
        """Wait until the job does not read a GPU's memory any more, some milliseconds
        as a rule, because that memory is about to go; what is on the host stays as long
        as it is held. `whole`: wait in any case. Idempotent.
        """
        if self._taking is not None:
            frame, job = self._taking
            if (whole or frame.on_gpu) and job.wait(_PATIENCE):
                self._take_in(self._seen.taken_at)

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self.finish(whole=True)
        self.player.close()
        self._recorder.remove(self)
        if self.recording.folder is not None:
            if self._written is not None:
                self._written.wait(_PATIENCE)
            self.recording.folder.close()


@functools.cache
def _stream(device: Any) -> Any:
    """A torch stream for reading on a GPU, after everything else there."""
    import torch

    return torch.cuda.Stream(device, priority=0)


def _work(frame: StreamFrame) -> tuple[object, ...]:
    """Return the GPU's work for a snapshot: of scenes alike enough that the next ones
    are measured by the last.
    """
    return "record", frame.tensors["means"].shape[0].bit_length()
