"""Sources of the entries' data: a stream of a run, or a file or recording that a job reads."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda.driver import device_of, torch_with_cuda
from splatview_ipc.transports import TRANSPORTS, ZERO_COPY
from splatview_viewer.core.errors import FileError
from splatview_viewer.core.jobs import Job, JobPool
from splatview_viewer.formats import fault_text
from splatview_viewer.kinds import about, kind_of, recorded_kind
from splatview_viewer.kinds.files import recognise
from splatview_viewer.recording.recording import (
    Player,
    Recording,
    is_recording,
    streams_in,
)
from splatview_viewer.workspace.file_watch import FileWatch
from splatview_viewer.workspace.shards import notes_of, runs_of, streams_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import moderngl

    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_ipc.subscriber.subscriber import Subscriber
    from splatview_viewer.core.settings import Entry, Wish
    from splatview_viewer.core.view import ShownView, Value
    from splatview_viewer.recording.recorder import Recorder, Tape

LIVE_PERIOD = 1 / 30
"""Seconds between looks at tensors that change in place all the time."""
_READERS = JobPool("read", 8)
"""Threads that read files; a folder of hundreds is read by a few at a time."""
_PAGE_READERS = JobPool("read of pages", 4)
"""The same of files that pages have sent, which keep no other file waiting."""
_PROGRESS_STEPS = 50
"""Different values of the progress of reading a file."""


def make_subscriber(
    ctx: moderngl.Context, run: str | None, client: str = "viewer"
) -> Subscriber:
    """Return a subscriber that takes what can be shown with this context: memory of a GPU that CUDA sees or OpenGL
    draws on. Neither is asked to do anything: no CUDA context is made.
    """
    from splatview_ipc.gl.glapi import gl_device_uuid
    from splatview_ipc.subscriber.subscriber import Subscriber, can_take

    drawn_on = gl_device_uuid(ctx)
    return Subscriber(
        run=run, client=client, transports=lambda way, gpu: can_take(way, gpu, drawn_on)
    )


class ValueSource:
    """The source of an entry's data. Defaults: it brings nothing."""

    path: str = ""
    """The way in which the data is shared."""
    notes: Sequence[str] = ()
    """Why it is not shared in a better way, and where it is."""
    time_ns: int = 0
    """Time of publication of what was handed out last, ns since the epoch; 0: none."""
    stream: Any = None
    """The stream of a run; None: it is none."""
    streams: Sequence[RemoteStream] = ()
    """The streams that runs are to share for it now."""
    trouble: str = ""
    """The publisher's report of what is wrong with the value handed out last."""
    uses: Sequence[str] = ()
    """Keys of the entries that it shows in one picture."""
    identity: str = ""
    """As of `Host`: what is remembered of it belongs to this."""
    rests: bool = False
    """`refresh` would change nothing. Of a thousand files that is what all but a few are asked in each turn."""

    def refresh(self, entry: Entry, now: float) -> None:
        """Bring an entry of the list up to date, once in each turn of the loop."""

    def follow(self, stream: Any) -> None:
        """Continue with another run's stream."""

    def set_paused(self, paused: Wish) -> None:
        """Pause its run, have it continue, or have a paused run take a step."""

    def open(self) -> None:
        """Its entry is seen from now on."""

    def release(self) -> None:
        """Its entry is not seen any more."""

    def has_news(self) -> bool:
        """Return whether `feed` would bring something new. Cheap."""
        return False

    def again(self) -> None:
        """Count what was handed out last as new: it was overwritten."""

    def feed(self, view: ShownView) -> bool:
        """Give the newest whole value to a view. True when it was taken."""
        return False

    def close(self) -> None:
        """Give back everything. Idempotent."""


class StreamSource(ValueSource):
    """A stream of a run; after a restart of the trainer, the stream of the same name of the next run.

    What is recorded of it can be handed out instead of what comes (`Tape.player`).
    """

    def __init__(self, stream: Any, recorder: Recorder | None = None) -> None:
        """`stream`: a RemoteStream, or a ShardedStream. `recorder`: takes snapshots of it, if it is one of scenes."""
        self.stream = stream
        self.tape: Tape | None = None
        """The recording of it."""
        self._recorder = recorder if about(stream.kind).recorded else None
        self._is_seen = False
        self._confirmed = True
        self._seen = 0
        """The version that was handed out last; 0: none, or something recorded."""
        self._live_at = 0.0

    def follow(self, stream: Any) -> None:
        if self.tape is not None:
            self.tape.anew()
        self.stream = stream
        self._seen = 0
        self.trouble = ""

    def refresh(self, entry: Entry, now: float) -> None:
        stream = self.stream
        runs = [run for run in runs_of(self.stream) if run.alive]
        entry.alive = stream.run.alive
        entry.version = stream.version
        entry.rate_hz = stream.rate_hz if entry.alive else 0.0
        entry.kind = stream.kind
        entry.fault_of_source = stream.fault or stream.run.refused or ""
        entry.paused = any(run.paused for run in runs) if entry.alive else None
        entry.waits = max((run.waits for run in runs), default=0)
        if self._recorder is not None and self.tape is None and self.streams:
            self.tape = self._recorder.begin(stream.run.name, stream.name)
        if self.tape is not None:
            self.tape.turn(stream, bool(self.streams), now)

    @property
    def streams(self) -> Sequence[RemoteStream]:  # type: ignore[override]
        """The processes' streams while the entry is seen, or written to disk."""
        on_disk = (
            self._recorder is not None and self._recorder.options.folder is not None
        )
        return streams_of(self.stream) if self._is_seen or on_disk else ()

    @property
    def _player(self) -> Player | None:
        """The player that brings what is shown; None: the run does."""
        player = self.tape.player if self.tape is not None else None
        return player if player is not None and player.position is not None else None

    def open(self) -> None:
        self._is_seen = True

    def release(self) -> None:
        self._is_seen = False
        if self.tape is not None and not self.streams:
            self.tape.finish()

    def has_news(self) -> bool:
        player = self._player
        if player is not None:
            return player.has_news()
        stream = self.stream
        if stream.version > self._seen:
            return True
        # In place what is seen changes without a version; of copies a changed one is a new version.
        return (
            stream.live
            and stream.sharing in ZERO_COPY
            and stream.run.alive
            and self._seen > 0
            and time.monotonic() >= self._live_at
        )

    def again(self) -> None:
        self._seen = 0
        player = self._player
        if player is not None:
            player.again()

    def feed(self, view: ShownView) -> bool:
        if self.tape is not None:
            view.content.player = self.tape.player
        player = self._player
        if player is not None:
            self._seen = 0  # what comes is new again afterwards
            return player.feed(view)
        stream = self.stream
        if stream.live and stream.version == self._seen:
            after = self._seen - 1
        else:
            after = self._seen
        frame = stream.read(after=max(after, 0))
        if frame is None:
            if not stream.run.alive:  # a version without a mark will not come any more
                self._seen = stream.version
                if after == 0 and self.tape is not None and len(self.tape.recording):
                    self.tape.player.end()
            return False
        with frame:
            try:
                taken = view.update(frame)
            except SharingError as e:
                if not frame.on_gpu:
                    raise
                stream.refuse(
                    str(e)
                )  # the same data may be shown when it comes in another way
                return False
            except Exception:
                self._seen = (
                    frame.version
                )  # the same frame would fail again; the next one may not
                raise
        if taken:
            self._live_at = time.monotonic() + LIVE_PERIOD
            self._seen = frame.version
            self.time_ns = frame.time_ns
            self._confirmed = frame.confirmed
            trouble = frame.meta.get("trouble")
            self.trouble = trouble if isinstance(trouble, str) else ""
        return taken

    def set_paused(self, paused: Wish) -> None:
        for run in runs_of(
            self.stream
        ):  # what trains together would wait for the one that is paused
            if paused == "step":
                run.step()
            else:
                run.set_paused(paused)

    @property
    def path(self) -> str:  # type: ignore[override]
        transport = TRANSPORTS.get(self.stream.sharing)
        return transport.words if transport is not None else self.stream.sharing

    @property
    def notes(self) -> list[str]:  # type: ignore[override]
        stream = self.stream
        out = [
            *notes_of(stream),
            *([f"sharing: {stream.fallback}"] if stream.fallback else []),
        ]
        if not self._confirmed:
            out.append(
                "copied while nothing was published: the script may have been writing into it"
            )
        if not stream.gpu:
            return out
        # CUDA is not begun for a name
        words = f"tensors on {stream.device}"
        torch = torch_with_cuda()
        index = None if torch is None else device_of(stream.gpu)
        return [
            *out,
            words
            if torch is None or index is None
            else f"{words}, {torch.cuda.get_device_name(index)}",
        ]

    def close(self) -> None:
        self._is_seen = False
        if self.tape is not None:
            self.tape.close()
        self.tape = None
        self._recorder = None


class FileSource(ValueSource):
    """A file, or a folder with a recorded stream: read by a job so that the picture never stands still, and read again
    when it is another file while it is shown.
    """

    path = "file"
    done: Callable[[Path], None] | None = None
    """Called with the file when it is not needed any more, where it is only lent."""

    def __init__(
        self,
        path: Path,
        wake: Callable[[], None] = lambda: None,
        *,
        apart: bool = False,
    ) -> None:
        """`wake` ends the loop's sleep; it may be given later. `apart`: have the file decoded by a bounded program, as
        every file that the user of this machine did not name.
        """
        self.file = path
        self.wake = wake
        self.value: Value | None = None
        self.player: Player | None = None
        """Brings a recording's snapshots, at first the newest."""
        self.error = ""
        """The reason why it could not be read, for people."""
        self._kind = ""
        self._fault = ""
        """The reason why the file in its place cannot be read."""
        self._is_seen = False
        # A file that is lent is a copy that does not change.
        self._watch = None if apart else FileWatch(path)
        self._resolved = os.path.realpath(path)

        def read(job: Job[Value]) -> Value:
            from splatview_viewer.kinds.files import read_untrusted

            if apart:
                return read_untrusted(path, job.report)
            if is_recording(path):
                return Recording.opened(path)
            return self._read_noted(job)

        self._job: Job[Value] | None = self._submit(read)

    def _read_noted(self, job: Job[Value]) -> Value:
        """Read the file, and remember which it is."""
        from splatview_viewer.kinds.files import open_file

        assert self._watch is not None
        self._watch.note()
        return open_file(self.file, job.report)

    def _submit(self, read: Callable[[Job[Value]], Value]) -> Job[Value]:
        readers = _PAGE_READERS if self._watch is None else _READERS
        return readers.submit(read, wake=lambda: self.wake())

    @property
    def identity(self) -> str:  # type: ignore[override]
        # What is lent is a copy, which lies elsewhere the next time.
        return "" if self.done is not None else self._resolved

    @property
    def rests(self) -> bool:  # type: ignore[override]
        return self._job is None and self.player is None and not self._is_seen

    def refresh(self, entry: Entry, now: float) -> None:
        job = self._job
        if job is not None and job.done:
            self._job = None
            self._take(job)
        if self.player is not None:
            self.player.tick(now)
        elif self._is_seen and self._job is None and self._watch is not None:
            if self._watch.turn(now):
                self._job = self._submit(self._read_noted)
        entry.kind = self._kind
        entry.fault_of_source = self.error or self._fault
        # Each new value is drawn, and drawing may take what reading needs. While a file is read again, what was in its
        # place stays in the picture.
        is_first = self._job is not None and not self._kind
        entry.progress = None
        if self._job is not None and is_first:
            entry.progress = int(self._job.progress * _PROGRESS_STEPS) / _PROGRESS_STEPS

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

    def has_news(self) -> bool:
        return self.value is not None if self.player is None else self.player.has_news()

    def again(self) -> None:
        if self.player is not None:
            self.player.again()

    def feed(self, view: ShownView) -> bool:
        if self.player is not None:
            view.content.player = self.player
            return self.player.feed(view)
        # the view holds it from here on
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
    """Return what is to be opened of these: in the place of a folder with recordings each stream's in it."""
    return [
        entry
        for path in paths
        for entry in (os.path.isdir(path) and streams_in(path)) or [path]
    ]


def check_files(paths: Sequence[Path]) -> None:
    """Raise FileError, with a line for each, if none of these can be opened: before a viewer does."""
    faults = []
    for path in paths:
        try:
            if not is_recording(path):
                recognise(path)
        except Exception as e:  # as of a reader
            faults.append(f"{path}: {fault_text(e)}")
    if faults and len(faults) == len(paths):
        raise FileError("\n".join(faults))
