"""The files that can be opened: those of a folder, and those that were opened lately."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from splatview_ipc.system.files import write_output
from splatview_viewer.core.jobs import JobQueue
from splatview_viewer.core.quantities import size_text
from splatview_viewer.formats.pictures import output_path
from splatview_viewer.kinds.files import recognise
from splatview_viewer.recording.recording import is_recording
from splatview_viewer.snapshot.loading.ranks import RANKS_FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.core.host import Memo
    from splatview_viewer.core.jobs import Job
    from splatview_viewer.kinds.scalars.curves import Curves

_MEMO_KEY = "recent"
_MOST_RECENT = 8
_MOST_LOOKED_AT = 600
"""Files of a folder that are looked at; the newest ones."""
_MOST_LISTED = 200
_JOBS = JobQueue("list files")


@dataclass(frozen=True)
class FoundFile:
    """A file that can be opened, or a folder to look into."""

    path: Path
    text: str
    """Its size, or what it is."""
    is_folder: bool = False


def typed_path(folder: Path, text: str) -> tuple[Path, str]:
    """Return the folder of a path as it is typed, and the part of a name in it.

    It is relative to `folder`.
    """
    head, separator, name = text.rpartition("/")
    if not separator:
        return folder, name
    return folder / Path(head + separator).expanduser(), name


def list_later(folder: Path, wake: Callable[[], None]) -> Job[list[FoundFile]]:
    """Start to list what can be opened in a folder; `wake` is called at the end."""

    def list_files(job: Job[list[FoundFile]]) -> list[FoundFile]:
        return list_folder(folder, job)

    return _JOBS.submit(list_files, wake=wake)


def list_folder(folder: Path, job: Job[list[FoundFile]]) -> list[FoundFile]:
    """Return what can be opened in a folder, newest first, then folders to look into.

    For a worker thread. Raises OSError.
    """
    entries = [e for e in os.scandir(folder) if not e.name.startswith(".")]
    entries.sort(key=_changed_at, reverse=True)
    files = []
    folders = []
    if _is_rank_folder(folder):
        files.append(FoundFile(folder, "all ranks"))
    newest_entries = entries[:_MOST_LOOKED_AT]
    for count, entry in enumerate(newest_entries):
        job.report("looking", count / len(newest_entries))
        path = Path(entry.path)
        text = _description(path)
        if text and text != RANKS_FORMAT.name:
            files.append(FoundFile(path, text))
        elif entry.is_dir():
            folders.append(FoundFile(path, "folder", is_folder=True))
    folders.sort(key=_name_of)
    return [*files[:_MOST_LISTED], *folders[:_MOST_LISTED]]


def _is_rank_folder(folder: Path) -> bool:
    """Return whether a folder is opened whole; it can be looked into as well."""
    return _description(folder) == RANKS_FORMAT.name


def _name_of(file: FoundFile) -> str:
    return file.path.name.lower()


def _changed_at(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat().st_mtime
    except OSError:
        return 0.0


def _description(path: Path) -> str:
    """Return the size of a file that can be opened, or its format; "" for others."""
    try:
        if is_recording(path):
            return "recording"
        name = recognise(path)
        if path.is_dir():
            return name
        return size_text(path.stat().st_size)
    except Exception:
        # Readers may raise anything.
        return ""


def recent_files(memo: Memo) -> list[Path]:
    """Return the files that were opened lately, newest first."""
    value = memo.get(_MEMO_KEY)
    if not isinstance(value, list):
        return []
    return [Path(text) for text in value if isinstance(text, str)][:_MOST_RECENT]


def note_recent(memo: Memo, path: Path) -> None:
    """Remember that a file was opened."""
    text = str(path.absolute())
    if not text.isprintable():
        return
    others = [str(recent) for recent in recent_files(memo) if str(recent) != text]
    memo.put(_MEMO_KEY, [text, *others][:_MOST_RECENT])


def save_curves(curves: Curves, name: str) -> Path:
    """Write what a run logged as a .csv into the current folder; return the file.

    Raises FileError, OSError.
    """
    path = output_path(f"{name}-curves", ".csv")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["curve", "step", "time", "value", "lowest", "highest", "samples"])
    for curve in curves.all:
        columns = [
            curve[column].tolist()
            for column in ("step", "time", "value", "low", "high", "count")
        ]
        writer.writerows([curve.name, *row] for row in zip(*columns, strict=True))
    write_output(path, text.getvalue().encode())
    return path
