"""Find the photographs of a data set; leave out views whose photograph is missing.

Other programs gave them their names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from splatview.demo import DemoError
from splatview_ipc.system.pictures import find_picture

if TYPE_CHECKING:
    from collections.abc import Iterator

_IMAGES = "images"
_REDUCED = re.compile(r"images_(\d{1,3})(?:_\w+)?")
"""A folder of smaller copies of the pictures in `images`, and by which factor they are
smaller."""
_WINDOWS_ROOT = re.compile(r"[A-Za-z]:|//")
_MAX_PARTS = 4
"""Parts of a path of another machine that are looked for here."""
_MAX_NAMES = 5
"""Names in one note."""
_MAX_NAME_LENGTH = 120
_MAX_FAULT_LENGTH = 400


class ViewError(DemoError):
    """One view of a data set cannot be used; the others can."""


class MissingPictureError(ViewError):
    """The picture of a view is not there."""


class FoundPicture(NamedTuple):
    """A file with the picture of a view."""

    path: Path
    reduced_by: int
    """The side of the picture that the data set names, in sides of this one."""


class PictureFinder:
    """Finds the pictures that a data set names below its folder.

    Names may be those of Windows, absolute ones of another machine, have an ending in
    letters of the other case or none (`find_picture`). Where `images` is missing, or
    one of its pictures, `images_2`, `images_4` and so on are looked at.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        reduced: list[tuple[int, str]] = []
        if folder.is_dir():
            for entry in folder.iterdir():
                match = _REDUCED.fullmatch(entry.name)
                if match is not None and entry.is_dir():
                    reduced.append((int(match[1]), entry.name))
        self._reduced = sorted(reduced)
        """Factors and names of the folders of smaller pictures, the largest first."""

    def find(self, name: str) -> FoundPicture:
        """Return the picture of a name in the data set. Raises MissingPictureError."""
        candidates = list(_candidates(name))
        for candidate in candidates:
            path = find_picture(self._folder / candidate)
            if path is not None:
                return FoundPicture(path, 1)
        for factor, folder in self._reduced:
            for candidate in candidates:
                path = find_picture(self._folder / _in_folder(candidate, folder))
                if path is not None:
                    return FoundPicture(path, factor)
        raise MissingPictureError(name)


def _candidates(name: str) -> Iterator[str]:
    """Yield the names that a name in a data set may stand for, below its folder."""
    yield name
    slashed = name.replace("\\", "/")
    if slashed != name:
        yield slashed
    if not slashed.startswith("/") and not _WINDOWS_ROOT.match(slashed):
        return
    # A path of the machine that wrote the data set: its end is here.
    path_parts = PurePosixPath(slashed).parts
    for count in range(min(len(path_parts) - 1, _MAX_PARTS), 0, -1):
        yield "/".join(path_parts[-count:])


def _in_folder(name: str, folder: str) -> str:
    """Return a name with another folder in place of the first that is `images`."""
    path_parts = list(PurePosixPath(name).parts)
    if _IMAGES in path_parts[:-1]:
        path_parts[path_parts.index(_IMAGES)] = folder
    return str(PurePosixPath(*path_parts))


@dataclass
class LeftOutViews:
    """The views of a data set that are not trained with, and the reasons."""

    missing: list[str] = field(default_factory=list)
    """Names of pictures that are not there."""
    faulty: list[str] = field(default_factory=list)
    """The faults of other views, each naming its file."""
    nameless: int = 0
    """Frames without a pose or a picture."""

    @property
    def count(self) -> int:
        """Number of views that are left out."""
        return len(self.missing) + len(self.faulty) + self.nameless

    def add(self, name: str, error: ViewError) -> None:
        """Leave out a view for an error, which names it."""
        if isinstance(error, MissingPictureError):
            self.missing.append(name)
        else:
            self.faulty.append(str(error))

    def notes(self, total: int) -> list[str]:
        """Return a line for each reason, of a data set of `total` views."""
        notes = []
        if self.missing:
            count = _count_text(len(self.missing), total, "picture")
            names = _listed(self.missing)
            notes.append(f"{count} missing, and left out: {names}")
        if self.nameless:
            count = _count_text(self.nameless, total, "frame")
            notes.append(f"{count} without a pose or a picture, and left out")
        if self.faulty:
            count = _count_text(len(self.faulty), total, "view")
            notes.append(f"{count} left out: {self.faulty[0][:_MAX_FAULT_LENGTH]}")
        return notes


def _count_text(count: int, total: int, noun: str) -> str:
    """Return the beginning of a sentence, such as "2 of 9 pictures are"."""
    verb = "is" if count == 1 else "are"
    return f"{count:,} of {total:,} {noun}s {verb}"


def _listed(names: list[str]) -> str:
    """Return the first names, and the number of the others."""
    text = ", ".join(name[-_MAX_NAME_LENGTH:] for name in names[:_MAX_NAMES])
    hidden_count = len(names) - _MAX_NAMES
    return f"{text} and {hidden_count:,} more" if hidden_count > 0 else text
