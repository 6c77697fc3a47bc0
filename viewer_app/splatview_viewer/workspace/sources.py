"""Sources of the entries' values: a stream of a run, or a file that a job reads."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda.driver import find_device, torch_with_cuda
from splatview_ipc.transports import TRANSPORTS, ZERO_COPY
from splatview_viewer.core.errors import FileError
from splatview_viewer.core.jobs import Job, JobPool
from splatview_viewer.formats import fault_text
from splatview_viewer.kinds import about, kind_of, recorded_kind
from splatview_viewer.kinds.files import recognise
from splatview_viewer.recording.player import Player
from splatview_viewer.recording.recording import Recording, is_recording, streams_in
from splatview_viewer.workspace.file_watch import FileWatch
from splatview_viewer.workspace.shards import notes_of, runs_of, streams_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    import moderngl

    from splatview_ipc.control.frame import StreamFrame
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_ipc.subscriber.subscriber import Subscriber
    from splatview_viewer.core.settings import Entry, Wish
    from splatview_viewer.core.shown_view import ShownView
    from splatview_viewer.core.view import Value
    from splatview_viewer.recording.recorder import Recorder, Tape

LIVE_PERIOD = 1 / 30
"""Seconds between looks at tensors that change in place all the time."""
_READERS = JobPool("read", 8)
"""Threads that read files; a folder of hundreds is read by a few at a time."""
_PAGE_READERS = JobPool("read of pages", 4)
"""The same for files that pages have sent, which keep no other file waiting."""
_PROGRESS_STEPS = 50
"""Different values of the progress of reading a file."""


def make_subscriber(
    ctx: moderngl.Context, run: str | None, client: str = "viewer"
) -> Subscriber:
    """Return a subscriber to what can be shown with an OpenGL context.

    That is memory of a GPU that CUDA sees or OpenGL draws on. Neither is asked to do
    anything: no CUDA context is made.
    """
    from splatview_ipc.gl.glapi import gl_device_uuid
    from splatview_ipc.subscriber.subscriber import Subscriber, can_take

    gl_gpu = gl_device_uuid(ctx)

    def is_takable(transport: str, gpu: str) -> bool:
        return can_take(transport, gpu, gl_gpu)

    return Subscriber(run=run, client=client, transports=is_takable)


class ValueSource:
    """The source of an entry's values. By default it brings none."""

    path: str = ""
    """The way in which the data is shared."""
    notes: Sequence[str] = ()
    """Why it is not shared in a better way, and where it is."""
    time_ns: int = 0
    """Time of publication of the value handed out last, ns since the epoch; 0: none."""
    step: float | None = None
    """The step of the value handed out last, as its publisher says."""
    stream: Any = None
    """The stream of a run; None for a source that has none, such as a file."""
    streams: Sequence[RemoteStream] = ()
    """The streams that runs are to share for it now."""
    trouble: str = ""
    """The publisher's report of what is wrong with the value handed out last."""
    uses: Sequence[str] = ()
    """Keys of the entries that it shows in one picture."""
    identity: str = ""
    """As of `Host`: what is remembered of it belongs to this."""
    rests: bool = False
    """`refresh` would change nothing: in each turn, a thousand files are asked for this
    alone."""
    at_work: bool = False
    """`refresh` goes on by the clock, such as to play: it must not wait for the pointer
    to rest."""

    def refresh(self, entry: Entry, now: float) -> None:
        """Bring an entry of the list up to date, at least ten times a second."""

    def follow(self, stream: Any) -> None:
        """Continue with another run's stream."""

    def set_paused(self, paused: Wish) -> None:
        """Pause its run, have it continue, or have a paused run take a step."""

    def open(self) -> None:
        """Begin to bring values: the entry is visible from now on."""

    def release(self) -> None:
        """Bring no more values: the entry is not visible any more."""

    def has_new_value(self) -> bool:
        """Return whether `feed` would bring something new. Cheap."""
        return False

    def resend(self) -> None:
        """Count the value handed out last as new: it was overwritten."""

    def feed(self, view: ShownView) -> bool:
        """Give the newest complete value to a view; return whether it was taken."""
        return False

    def close(self) -> None:
        """Release everything. Idempotent."""


class StreamSource(ValueSource):
    """A stream of a run.

    After a restart of the trainer it is the stream of the same name of the next run.
    What is recorded of it can be handed out instead of what comes (`Tape.player`).
    """

    def __init__(self, stream: Any, recorder: Recorder | None = None) -> None:
        """Follow a stream: a RemoteStream, or a ShardedStream.

        Args:
            recorder: records its versions, if it is of a kind that is recorded.
        """
        self.stream = stream
        self.tape: Tape | None = None
        """The recording of it."""
        self._recorder: Recorder | None = None
        if about(stream.kind).recorded:
            self._recorder = recorder
        self._is_seen = False
        self._confirmed = True
        self._last_version = 0
        """The version that was handed out last; 0: none, or something recorded."""
        self._next_live_look = 0.0
        self._offered: StreamFrame | None = None
        """The last frame that was not taken."""
        self._refreshed: object = None
        """What the entry was brought up to date with last; None: nothing."""

    def follow(self, stream: Any) -> None:
        if self.tape is not None:
            self.tape.start_next_run()
        self.stream = stream
        self._refreshed = None
        self._offered = None
        self._last_version = 0
        self.time_ns = 0
        self.trouble = ""
        self.step = None

    @property
    def rests(self) -> bool:  # type: ignore[override]
        if self.tape is not None or (self._recorder is not None and self.streams):
            return False
        return self._refreshed == (self.stream.changes, self.time_ns)

    def refresh(self, entry: Entry, now: float) -> None:
        stream = self.stream
        self._refreshed = stream.changes, self.time_ns
        runs = [run for run in runs_of(stream) if run.alive]
        entry.alive = stream.run.alive
        entry.version = stream.version
        entry.rate_hz = 0.0
        entry.paused = None
        if entry.alive:
            entry.rate_hz = stream.rate_hz
            entry.paused = any(run.paused for run in runs)
        entry.kind = stream.kind
        entry.fault_of_source = stream.fault or stream.run.refused or ""
        entry.waits = max((run.waits for run in runs), default=0)
        entry.started_at = stream.run.folder.description.started
        entry.ended_at = 0.0 if entry.alive else stream.run.ended_at
        entry.step = self.step
        entry.count = _count_of(stream)
        if self._recorder is not None and self.tape is None and self.streams:
            self.tape = self._recorder.start_tape(stream.run.name, stream.name)
        if self.tape is not None:
            self.tape.tick(stream, bool(self.streams), now)

    @property
    def at_work(self) -> bool:  # type: ignore[override]
        return self.tape is not None and self.tape.at_work

    @property
    def streams(self) -> Sequence[RemoteStream]:  # type: ignore[override]
        """The processes' streams while the entry is visible, or written to disk."""
        recorder = self._recorder
        is_on_disk = recorder is not None and recorder.options.folder is not None
        if self._is_seen or is_on_disk:
            return streams_of(self.stream)
        return ()

    @property
    def _player(self) -> Player | None:
        """The player that brings the values; None: the run does."""
        if self.tape is None or self.tape.player.position is None:
            return None
        return self.tape.player

    def open(self) -> None:
        self._is_seen = True

    def release(self) -> None:
        self._is_seen = False
        if self.tape is not None and not self.streams:
            self.tape.finish()

    def has_new_value(self) -> bool:
        player = self._player
        if player is not None:
            return player.has_new_value()
        stream = self.stream
        if stream.version > self._last_version:
            return True
        # Tensors in place change without a version; a copy that changes is a new
        # version.
        changes_in_place = stream.live and stream.sharing in ZERO_COPY
        if not changes_in_place or not stream.run.alive or self._last_version == 0:
            return False
        return time.monotonic() >= self._next_live_look

    def resend(self) -> None:
        self._last_version = 0
        player = self._player
        if player is not None:
            player.resend()

    def feed(self, view: ShownView) -> bool:
        if self.tape is not None:
            view.content.player = self.tape.player
        player = self._player
        if player is not None:
            # What the run publishes is new once the player is done.
            self._last_version = 0
            return player.feed(view)
        stream = self.stream
        newer_than = self._last_version
        if stream.live and stream.version == newer_than:
            newer_than = max(newer_than - 1, 0)
        frame = self._offered
        if frame is None or view.wants.copied_frame is not frame:
            frame = stream.read(after=newer_than)
        self._offered = None
        if frame is None:
            if not stream.run.alive:
                self._skip_lost_version(newer_than)
            return False
        with frame:
            return self._hand_out(frame, view)

    def _skip_lost_version(self, newer_than: int) -> None:
        """Wait no more for a version that an ended run announced and did not complete."""
        self._last_version = self.stream.version
        if newer_than == 0 and self.tape is not None and len(self.tape.recording):
            self.tape.player.end()

    def _hand_out(self, frame: StreamFrame, view: ShownView) -> bool:
        """Give a frame to a view; return whether it was taken."""
        try:
            is_taken = view.update(frame)
        except SharingError as e:
            if not frame.on_gpu:
                raise
            # The same data may be shown when it comes by another transport.
            self.stream.refuse(str(e))
            return False
        except Exception:
            # The same frame would fail once more; the next one may not.
            self._last_version = frame.version
            raise
        if not is_taken:
            self._offered = frame
            return False
        self._next_live_look = time.monotonic() + LIVE_PERIOD
        self._last_version = frame.version
        self.time_ns = frame.time_ns
        if self.tape is not None:
            self.tape.recording.live_time_ns = frame.time_ns
        self._confirmed = frame.confirmed
        self.step = _step_of(frame.meta)
        trouble = frame.meta.get("trouble")
        if isinstance(trouble, str):
            self.trouble = trouble
        else:
            self.trouble = ""
        return True

    def set_paused(self, paused: Wish) -> None:
        # Processes that train together would wait for the one that is paused.
        for run in runs_of(self.stream):
            if paused == "step":
                run.step()
            else:
                run.set_paused(paused)

    @property
    def path(self) -> str:  # type: ignore[override]
        transport = TRANSPORTS.get(self.stream.sharing)
        if transport is None:
            return self.stream.sharing
        return transport.label

    @property
    def notes(self) -> list[str]:  # type: ignore[override]
        stream = self.stream
        notes = notes_of(stream)
        if stream.fallback:
            notes.append(f"sharing: {stream.fallback}")
        if not self._confirmed:
            notes.append(
                "copied while nothing was published: the script may have been writing "
                "into it"
            )
        if stream.gpu:
            notes.append(_device_note(stream))
        return notes

    def close(self) -> None:
        self._is_seen = False
        if self.tape is not None:
            self.tape.close()
        self.tape = None
        self._recorder = None


def _count_of(stream: Any) -> int | None:
    """Return the number of a stream's Gaussians or cameras; None for others."""
    shape = stream.shape
    if about(stream.kind).holds_many and shape:
        return shape[0]
    return None


def _step_of(metadata: Mapping[str, Any]) -> float | None:
    """Return the step that the metadata of a frame state."""
    step = metadata.get("step")
    if isinstance(step, bool) or not isinstance(step, (int, float)):
        return None
    if math.isfinite(step):
        return step
    return None


def _device_note(stream: Any) -> str:
    """Return which GPU a stream's tensors are on, by name if CUDA is in use already."""
    note = f"tensors on {stream.device}"
    torch = torch_with_cuda()
    if torch is None:
        index = None
    else:
        index = find_device(stream.gpu)
    if torch is None or index is None:
        return note
    return f"{note}, {torch.cuda.get_device_name(index)}"


def file_key(path: Path) -> str:
    """Return the key of the entry that shows a file."""
    return str(path.absolute())


class FileSource(ValueSource):
    """A file, or a folder with a recorded stream.

    A job reads it, so that the picture never stands still, and reads it again when it
    becomes another file while it is visible.
    """

    path = "file"
    done: Callable[[Path], None] | None = None
    """Called with the file when it is not needed any more; None if it is kept."""

    def __init__(
        self,
        path: Path,
        wake: Callable[[], None] = lambda: None,
        *,
        sandboxed: bool = False,
    ) -> None:
        """Start to read the file.

        Args:
            path: the file or folder.
            wake: ends the loop's sleep; may be set later.
            sandboxed: have the file decoded by a bounded program, as every file that
                the user of this machine did not name.
        """
        self.file = path
        self.wake = wake
        self.value: Value | None = None
        self.player: Player | None = None
        """Brings a recording's snapshots, at first the newest."""
        self.error = ""
        """The reason why it could not be read, for users."""
        self._kind = ""
        self._fault = ""
        """The reason why the file in its place cannot be read."""
        self._is_seen = False
        # A file that is decoded apart is a copy, which does not change.
        self._watch = None if sandboxed else FileWatch(path)
        self._resolved = os.path.realpath(path)
        self._job: Job[Value] | None = self._submit(self._read)

    def _read(self, job: Job[Value]) -> Value:
        """Read the file. For a worker thread."""
        from splatview_viewer.kinds.files import read_untrusted

        if self._watch is None:
            return read_untrusted(self.file, job.report)
        if is_recording(self.file):
            return Recording.opened(self.file)
        return self._read_noted(job)

    def _read_noted(self, job: Job[Value]) -> Value:
        """Read the file, and remember which it is."""
        from splatview_viewer.kinds.files import open_file

        assert self._watch is not None
        self._watch.note()
        return open_file(self.file, job.report)

    def _submit(self, read: Callable[[Job[Value]], Value]) -> Job[Value]:
        readers = _READERS
        if self._watch is None:
            readers = _PAGE_READERS
        return readers.submit(read, wake=lambda: self.wake())

    @property
    def identity(self) -> str:  # type: ignore[override]
        # A file with `done` is a copy, which lies elsewhere the next time.
        if self.done is not None:
            return ""
        return self._resolved

    @property
    def rests(self) -> bool:  # type: ignore[override]
        return self._job is None and self.player is None and not self._is_seen

    @property
    def at_work(self) -> bool:  # type: ignore[override]
        is_playing = self.player is not None and self.player.playing
        return is_playing or self._job is not None

    def refresh(self, entry: Entry, now: float) -> None:
        job = self._job
        if job is not None and job.done:
            self._job = None
            self._take(job)
        if self.player is not None:
            self.player.tick(now)
        elif self._has_changed_on_disk(now):
            self._job = self._submit(self._read_noted)
        entry.kind = self._kind
        entry.fault_of_source = self.error or self._fault
        # Each new value of the progress is drawn, and drawing may take what reading
        # needs. While a file is read again, the previous value stays in the picture.
        entry.progress = None
        if self._job is not None and not self._kind:
            entry.progress = int(self._job.progress * _PROGRESS_STEPS) / _PROGRESS_STEPS

    def _has_changed_on_disk(self, now: float) -> bool:
        if not self._is_seen or self._job is not None or self._watch is None:
            return False
        return self._watch.tick(now)

    def _take(self, job: Job[Value]) -> None:
        """Take the outcome of reading."""
        if job.fault:
            if self._kind:
                self._fault = job.fault
            else:
                self.error = job.fault
            return
        self.error = ""
        self._fault = ""
        value = job.result()
        if isinstance(value, Recording):
            self.player = Player(value, self.wake, live=False)
            self._kind = recorded_kind()
        else:
            self.value = value
            self._kind = kind_of(value)

    def open(self) -> None:
        self._is_seen = True

    def release(self) -> None:
        self._is_seen = False

    def has_new_value(self) -> bool:
        if self.player is not None:
            return self.player.has_new_value()
        return self.value is not None

    def resend(self) -> None:
        if self.player is not None:
            self.player.resend()

    def feed(self, view: ShownView) -> bool:
        if self.player is not None:
            view.content.player = self.player
            return self.player.feed(view)
        # The view holds it from here on.
        value = self.value
        self.value = None
        return value is not None and view.update(value)

    def close(self) -> None:
        if self._job is not None:
            self._job.cancel()
        if self._watch is not None:
            self._watch.close()
        if self.player is not None:
            self.player.close()
        self.value = None
        self._job = None
        if self.done is not None:
            self.done(self.file)


def entries_of(paths: Iterable[Path]) -> list[Path]:
    """Return the files to open; each recorded stream in place of a folder with several."""
    entries: list[Path] = []
    for path in paths:
        recordings: list[Path] = []
        if os.path.isdir(path):
            recordings = streams_in(path)
        entries += recordings or [path]
    return entries


def check_files(paths: Sequence[Path]) -> None:
    """Raise FileError, with a line for each, if none of the files can be opened."""
    faults = []
    for path in paths:
        try:
            if not is_recording(path):
                recognise(path)
        except Exception as e:
            # Readers may raise anything.
            faults.append(f"{path}: {fault_text(e)}")
    if faults and len(faults) == len(paths):
        raise FileError("\n".join(faults))
