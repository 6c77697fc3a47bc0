"""Files as sources of values, which jobs read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from splatview_viewer.core.errors import FileError
from splatview_viewer.core.jobs import Job, JobPool
from splatview_viewer.formats import fault_text
from splatview_viewer.kinds import kind_of, recorded_kind
from splatview_viewer.kinds.files import recognise
from splatview_viewer.recording.player import Player
from splatview_viewer.recording.recording import Recording, is_recording, streams_in
from splatview_viewer.workspace.file_watch import FileWatch
from splatview_viewer.workspace.sources import ValueSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from splatview_viewer.core.settings import Entry
    from splatview_viewer.core.shown_view import ShownView
    from splatview_viewer.core.view import Value

_READERS = JobPool("read", 8)
"""Threads that read files; a folder of hundreds is read by a few at a time."""
_PAGE_READERS = JobPool("read of pages", 4)
"""The same for files that pages have sent, which keep no other file waiting."""
_PROGRESS_STEPS = 50
"""Different values of the progress of reading a file."""


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
