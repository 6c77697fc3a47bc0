"""The rows of a script's controls: of the same height, so that many cost nothing."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from splatview_ipc.kinds.controls import Control

_MAX_DEPTH = 16
"""Folders within each other; what lies deeper is in the last of them."""
_IN_A_ROW = 4
"""Numbers of a vector beside each other at most."""


class FolderRow(NamedTuple):
    """The head of a folder."""

    path: str
    """The names of the folders around it and its own, with "/" between them."""
    title: str
    depth: int
    """Number of folders around it."""


class ControlRow(NamedTuple):
    """A control, or a part of a vector."""

    control_index: int
    """In the list of controls."""
    depth: int
    components: slice = slice(None)
    """The numbers of a vector that are in this row."""


Row = FolderRow | ControlRow


def folder_path(control: Control) -> str:
    """Return the path of the folder that a control is in; "" for none."""
    return _path_of(control.folder)


@lru_cache(16_384)
def _path_of(folder: str) -> str:
    names = [name for name in folder.split("/") if name]
    return "/".join(names[:_MAX_DEPTH])


def parents_of(path: str) -> list[str]:
    """Return the paths of a folder and of those around it, the outermost first."""
    names = path.split("/") if path else []
    return ["/".join(names[: count + 1]) for count in range(len(names))]


def rows_of(controls: Sequence[Control], closed: Collection[str]) -> list[Row]:
    """Return the rows of the panel, from the top.

    A folder is where the first of its controls is.

    Args:
        controls: in the order of their declaration.
        closed: paths of the folders of which only the head is a row.
    """
    members: dict[str, list[int | str]] = {"": []}
    for index, control in enumerate(controls):
        path = folder_path(control)
        if path not in members:
            _add_folders(members, path)
        members[path].append(index)
    rows: list[Row] = []
    waiting: list[int | str] = list(reversed(members[""]))
    while waiting:
        member = waiting.pop()
        if isinstance(member, int):
            rows += _rows_of_control(controls[member], member)
            continue
        *_, title = member.split("/")
        rows.append(FolderRow(member, printable(title), member.count("/")))
        if member not in closed:
            waiting += reversed(members[member])
    return rows


def _add_folders(members: dict[str, list[int | str]], path: str) -> None:
    """Add a folder, and those around it, to what is in each folder."""
    parent = ""
    for folder in parents_of(path):
        if folder not in members:
            members[folder] = []
            members[parent].append(folder)
        parent = folder


def _rows_of_control(control: Control, index: int) -> list[ControlRow]:
    """Return the rows of a control: several for a long vector."""
    path = folder_path(control)
    depth = path.count("/") + 1 if path else 0
    if not isinstance(control.value, tuple) or control.form != "vector":
        return [ControlRow(index, depth)]
    count = len(control.value)
    columns = min(count, _IN_A_ROW)
    if count > _IN_A_ROW and count % _IN_A_ROW:
        columns = 3
    starts = range(0, count, columns)
    return [ControlRow(index, depth, slice(i, i + columns)) for i in starts]
