"""Takes snapshots of streams of Gaussians, now and then, without anybody waiting for it."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.recording.files import StreamFolder, write_packed
from splatview_viewer.recording.packed import Packed, pack, packed_bytes
from splatview_viewer.recording.player import Player
from splatview_viewer.recording.recording import EVERY, Recording, Snapshot
from splatview_viewer.scene.frames import background_of, scene_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from splatview_ipc.control.frame import Frame
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_viewer.core.settings import Color
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.recording.recording import RecordOptions
    from splatview_viewer.scene.scene import GaussianScene

log = logging.getLogger("splatview")

_SELDOM = 10.0
"""Seconds after which a new version is taken though fewer came than were to be waited for; grows as those do."""
_GAP = 1.0
"""Seconds between two snapshots at least."""
_SHARE = 0.05
"""Of a processor, what taking them may cost; and of the viewer's share of the GPU."""
_QUIET = 5.0
"""Seconds without a new version, or three times what lay between the last two, after which the last one is taken: as a
rule it is what the training came to."""
_TROUBLE_GAP = 10.0
"""Seconds until it is tried again after it has failed."""
_PATIENCE = 10.0
"""Seconds to wait for a job when memory that it reads is about to go."""


class Recorder:
    """The tapes of all streams, jobs that pack and write for them, and what all of them may take together."""

    def __init__(self, options: RecordOptions, work: GpuWork, wake: Callable[[], None]) -> None:
        """`wake` ends the loop's sleep, from any thread."""
        self.options = options
        self.wake = wake
        self.governor = work.governor
        self._tapes: list[Tape] = []
        self.jobs = Jobs("splatview recorder", wake)
        """At most two of each tape."""
        self._streams: dict[Any, Any] = {}

    def begin(self, run: str, name: str) -> Tape:
        """Record a stream from now on. Faults of the folder are logged: then it is recorded in memory."""
        folder = None
        if self.options.folder is not None:
            try:
                folder = StreamFolder(self.options.folder, run, name)
                log.warning("recording %s into %s, at most %s MB", name, folder.path, f"{self.options.disk_mb:,}")
            except (OSError, ViewerError) as e:
                log.warning("%s cannot be recorded into %s, so only in memory: %s", name, self.options.folder, e)
        tape = Tape(self, folder)
        self._tapes.append(tape)
        self._share()
        return tape

    def forget(self, tape: Tape) -> None:
        if tape in self._tapes:
            self._tapes.remove(tape)
            self._share()

    def _share(self) -> None:
        """Each may take as much as the others."""
        for tape in self._tapes:
            on_disk = tape.recording.folder is not None
            limit = self.options.limit if on_disk or self.options.folder is None else self.options.memory_mb * 1_000_000
            tape.allow(limit // len(self._tapes))

    def gpu_stream(self, device: Any) -> Any:
        """A torch stream for reading on a GPU, after everything else there."""
        if device not in self._streams:
            import torch

            self._streams[device] = torch.cuda.Stream(device, priority=0)
        return self._streams[device]

    def close(self) -> None:
        """Wait for the last job. Idempotent. The tapes have to be closed before."""
        self.jobs.close(_PATIENCE)
        self._streams.clear()


class _Taking:
    """One snapshot on its way: made in the loop's thread, packed by a job."""

    def __init__(self, frame: Frame, number: int, step: int, background: Color | None) -> None:
        self.frame = frame
        self.number, self.step, self.version, self.time_ns = number, step, frame.version, frame.time_ns
        self.background = background
        self.scene: GaussianScene | None = None
        """Of a frame on a GPU, with the stream that reads it."""
        self.stream: Any = None
        self.work: tuple[object, ...] = ()
        self.file: Path | None = None
        self.seconds = self.gpu_ms = 0.0

    def run(self, _: Job[Snapshot | None]) -> Snapshot | None:
        """The snapshot; None if the frame was overwritten meanwhile."""
        begin = time.thread_time()
        try:
            return self._packed()
        finally:
            self.scene = None
            self.seconds = time.thread_time() - begin

    def _packed(self) -> Snapshot | None:
        scene = scene_of(self.frame)[0] if self.scene is None else self.scene
        packed: Packed = pack(scene, self.background, self.stream)
        self.gpu_ms = packed.gpu_ms
        if not self.frame.intact():
            return None
        size = packed.nbytes if self.file is None else write_packed(self.file, packed)
        return Snapshot(self.number, self.step, self.version, self.time_ns, len(packed), size,
                        packed=packed if self.file is None else None, file=self.file)


class _Pace:
    """How soon versions follow each other, to tell when no more come."""

    def __init__(self) -> None:
        self.quiet = False
        """Whether there was none for long."""
        self._version = 0
        self._since, self._period = math.inf, 0.0

    def is_quiet(self, version: int, now: float) -> bool:
        if version != self._version:
            self._period = max(now - self._since, 0.0)
            self._version, self._since = version, now
        self.quiet = now - self._since >= max(_QUIET, 3 * self._period)
        return self.quiet


class Tape:
    """Records one stream. Belongs to the loop's thread."""

    def __init__(self, recorder: Recorder, folder: StreamFolder | None) -> None:
        self._recorder = recorder
        self._wanted_every = recorder.options.every
        self._first_every = float(self._wanted_every or EVERY)
        self.recording = Recording(self._first_every, folder=folder)
        self.player = Player(self.recording, recorder.wake)
        self.trouble = ""
        """Why nothing is recorded at the moment."""
        self._taking: tuple[_Taking, Job[Snapshot | None]] | None = None
        self._version = 0
        """The newest that was taken, or looked at for its step."""
        self._taken: tuple[int, int] | None = None
        """Version and step of the last snapshot of this run."""
        self._due_version = 0.0
        self._now = 0.0
        """Of the last turn."""
        self._not_before = 0.0
        self._taken_at = -math.inf
        self._pace = _Pace()
        self._per_version = 0.0
        """Steps that a version is on after the one before; 0: not known yet."""
        self._written: Job[None] | None = None
        """Done when the folder's index says what there is."""

    @property
    def on_disk(self) -> bool:
        return self.recording.folder is not None

    def anew(self) -> None:
        """Another run goes on with the stream: its versions count from 1."""
        self.finish()
        self._version, self._taken, self._due_version, self._not_before = 0, None, 0.0, 0.0
        self._pace = _Pace()
        self.player.has_live = True

    def allow(self, limit: int) -> None:
        """It may take so many bytes."""
        self.recording.limit = limit
        self._settle(self.recording.fit())

    def turn(self, stream: RemoteStream, wanted: bool, background: Color | None, now: float) -> None:
        """Once in each turn of the loop. `wanted`: whether the stream is open. `background`: that is shown with it."""
        self._now = now
        self.player.tick(now)
        if self._taking is not None:
            if not self._taking[1].done:
                return
            self._take_in()
        if wanted and self._is_due(stream, now):
            self._begin(stream, background, now)

    def _is_due(self, stream: RemoteStream, now: float) -> bool:
        version = stream.version
        if self._pace.is_quiet(version, now) and self._taken is not None and version > self._taken[0]:
            self._version = min(self._version, version - 1)  # also if it was looked at already
            return now >= self._not_before
        if version <= self._version:
            return False
        if not stream.run.alive or self._taken is None:
            return now >= self._not_before
        if now < self._not_before or not (self._written is None or self._written.done):
            return False
        if self._wanted_every is not None:
            return version >= self._due_version
        every = self.recording.every
        return version >= self._taken[0] + every or now >= self._taken_at + _SELDOM * every / self._first_every

    def _begin(self, stream: RemoteStream, background: Color | None, now: float) -> None:
        """Read the newest version; a job does the rest."""
        frame = stream.read(after=self._version)
        if frame is None:
            if not stream.run.alive:
                self._version = stream.version  # it will not come any more
            return
        self._version, keep = frame.version, False
        try:
            step = frame.meta.get("step")
            step = int(step) if isinstance(step, (int, float)) and math.isfinite(step) else frame.version
            if not (self._pace.quiet or self._enough(frame.version, step)) and stream.run.alive:
                return
            taking = self._prepare(stream, frame, step, background)
            if taking is None:
                self._not_before = now + _TROUBLE_GAP
                return
            self._taken, self._taken_at, keep = (frame.version, step), now, True
            self._due_version = frame.version + self._versions(self.recording.every)
            self._taking = taking, self._recorder.jobs.submit(taking.run)
        except (SharingError, ViewerError) as e:
            if isinstance(e, SharingError) and frame.on_gpu:
                stream.refuse(str(e))  # the same data may come in another way
            self._fault(str(e), now)
        finally:
            if not keep:
                frame.close()

    def _enough(self, version: int, step: int) -> bool:
        """Whether so many steps have gone by as were asked for. If not, guess at which version they will have."""
        if self._wanted_every is None or self._taken is None or step < self._taken[1]:
            return True
        self._per_version = (step - self._taken[1]) / max(version - self._taken[0], 1)
        missing = self._taken[1] + self.recording.every - step
        self._due_version = version + self._versions(missing)
        return missing <= 0

    def _versions(self, steps: float) -> float:
        """How many versions these steps take, as far as known."""
        return max(steps / self._per_version, 1.0) if self._per_version > 0 else 1.0

    def _prepare(self, stream: RemoteStream, frame: Frame, step: int, background: Color | None) -> _Taking | None:
        """None: it would not fit."""
        means = frame.tensors["means"]
        higher = frame.tensors.get("shN")
        activated = bool(frame.meta.get("activated"))
        needed = packed_bytes(means.shape[0], higher.shape[1] if higher is not None else 0, activated,
                              means.dtype == "float64")
        recording = self.recording
        if needed > recording.limit:
            option = "--record-disk" if self.on_disk else "--record-memory"
            self._say(f"{stream.name} is not recorded: a snapshot takes {needed / 1e6:,.0f} MB, and "
                      f"{recording.limit / 1e6:,.0f} MB are allowed: see {option}")
            return None
        taking = _Taking(frame, recording.next_number, step, background if frame.on_gpu else background_of(frame))
        if recording.folder is not None:
            taking.file = recording.folder.file(taking.number)
        if frame.on_gpu:
            taking.scene, ready = scene_of(frame, in_place=True)
            taking.stream = self._recorder.gpu_stream(taking.scene.gpu)
            assert ready is not None
            ready(taking.stream.cuda_stream)
            # Alike enough that the next ones are measured by the last.
            taking.work = "record", means.shape[0].bit_length()
            self._recorder.governor.gives(taking.work, "cuda")
        return taking

    def _take_in(self) -> None:
        """What the job has made belongs to the recording."""
        assert self._taking is not None
        (taking, job), self._taking = self._taking, None
        taking.frame.close()
        now = self._now
        rest = taking.seconds / _SHARE
        if taking.gpu_ms:
            governor = self._recorder.governor
            governor.took(taking.work, taking.gpu_ms)
            cost = governor.cost(taking.work) or taking.gpu_ms  # without what other processes did in between
            rest = max(rest, cost * 1e-3 / (_SHARE * governor.share))
        gap = _GAP if self._wanted_every is None else 0.0
        self._not_before = max(self._taken_at + gap, now + rest)
        snapshot = None if job.fault else job.result()
        if job.fault:
            self._fault(job.fault, now)
        elif snapshot is not None:
            self.trouble = ""
            self._settle(self.recording.add(snapshot))
        if snapshot is None:  # overwritten meanwhile, or failed: the next one that comes
            self._taken = None

    def _settle(self, dropped: list[Snapshot]) -> None:
        """Have the folder say what there is."""
        recording, folder = self.recording, self.recording.folder
        if folder is None:
            return
        every, lines, gone = recording.every, recording.lines(), [s.file for s in dropped if s.file is not None]

        def write(_: Job[None]) -> None:
            try:
                folder.write_index(every, lines, gone)
            except OSError as e:
                self._say(f"{folder.path}: its index cannot be written: {e}")

        self._written = self._recorder.jobs.submit(write)

    def _fault(self, text: str, now: float) -> None:
        self._say(f"a snapshot could not be recorded: {text}")
        self._not_before = now + _TROUBLE_GAP

    def _say(self, text: str) -> None:
        if text != self.trouble:
            self.trouble = text
            log.warning("%s", text)

    def finish(self, whole: bool = False) -> None:
        """Memory of the stream is about to go: wait until the job does not read a GPU's any more, some milliseconds
        as a rule; what lies on the host stays as long as it is held. `whole`: wait in any case. Idempotent."""
        if self._taking is not None:
            taking, job = self._taking
            if (whole or taking.stream is not None) and job.wait(_PATIENCE):
                self._take_in()

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self.finish(whole=True)
        self.player.close()
        self._recorder.forget(self)
        if self.recording.folder is not None:
            if self._written is not None:
                self._written.wait(_PATIENCE)
            self.recording.folder.close()
