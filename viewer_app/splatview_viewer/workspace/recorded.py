"""A folder with what was recorded of a stream, as an entry of the list."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats import fault_text
from splatview_viewer.kinds.files import recognise
from splatview_viewer.recording.files import is_recording, streams_in
from splatview_viewer.recording.player import Player
from splatview_viewer.recording.recording import Recording
from splatview_viewer.workspace.sources import FileSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from splatview_viewer.core.old_view import View
    from splatview_viewer.core.settings import Entry


def entries_of(paths: Iterable[Path]) -> list[Path]:
    """Return what is to be opened of these: in the place of a folder with recordings each stream's in it."""
    return [entry for path in paths for entry in (os.path.isdir(path) and streams_in(path)) or [path]]


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


def file_source(path: Path) -> FileSource:
    """Begin to read a file, or a folder with what was recorded of a stream."""
    return RecordedSource(path) if is_recording(path) else FileSource(path)


class RecordedSource(FileSource):
    """Shows one snapshot of a recording, at first the newest."""

    def __init__(self, path: Path, wake: Callable[[], None] = lambda: None) -> None:
        """As FileSource."""
        self.file = path
        self.wake = wake
        self.error = ""
        self.player: Player | None = None
        self._last: tuple[object, ...] = ()
        try:
            self.player = Player(Recording.opened(path), lambda: self.wake(), live=False)
        except FileError as e:
            self.error = str(e)

    @property
    def reading(self) -> bool:  # type: ignore[override]
        return False

    def refresh(self, entry: Entry, now: float) -> bool:
        if self.player is not None:
            self.player.tick(now)
        entry.kind, entry.progress, entry.fault_of_source = "gaussians", None, self.error
        seen = entry.kind, entry.fault_of_source
        changed, self._last = seen != self._last, seen
        return changed

    def has_news(self) -> bool:
        return self.player is not None and self.player.has_news()

    def again(self) -> None:
        assert self.player is not None  # it has brought something
        self.player.again()

    def feed(self, view: View) -> bool:
        assert self.player is not None  # as it has news
        view.content.player = self.player  # type: ignore[attr-defined]
        return self.player.feed(view)

    def close(self) -> None:
        if self.player is not None:
            self.player.close()
