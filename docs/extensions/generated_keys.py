"""The tables of keys, made from the viewer's tables of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from splatview_viewer.kinds.cameras import commands as cameras
from splatview_viewer.kinds.cameras.view import CamerasView
from splatview_viewer.kinds.gaussians import commands as gaussians
from splatview_viewer.kinds.gaussians.view import TOOLS
from splatview_viewer.kinds.image import commands as image
from splatview_viewer.kinds.image.view import ImageView
from splatview_viewer.kinds.memory import commands as memory
from splatview_viewer.kinds.memory.view import MemoryView
from splatview_viewer.kinds.ranks.view import RanksView
from splatview_viewer.kinds.rendered import commands as rendered
from splatview_viewer.kinds.scalars import commands as scalars
from splatview_viewer.kinds.scalars.view import ScalarsView
from splatview_viewer.kinds.snapshot import commands as snapshot
from splatview_viewer.kinds.snapshot.view import SnapshotView
from splatview_viewer.scene_view.frustums import Frustums
from splatview_viewer.scene_view.navigate import Navigate
from splatview_viewer.scene_view.path import PathTool
from splatview_viewer.shell.key_list import caps_of, lines_of_view, viewer_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.view import KeyHelp


class KeysOfKind(NamedTuple):
    """What the views of a kind say of their keys."""

    title: str
    helps: Sequence[KeyHelp]
    commands: Sequence[Command[Any]]

    @property
    def lines(self) -> list[KeyHelp]:
        """The lines of the viewer's list of keys, where such a view is shown."""
        return lines_of_view(self.helps, self.commands)


_SCENE_HELPS = [line for tool in (Navigate, *TOOLS, PathTool) for line in tool.keys]
_DRAWN_HELPS = [line for tool in (Navigate, Frustums, PathTool) for line in tool.keys]
KEYS_OF_KINDS = {
    "gaussians": KeysOfKind("Scenes of Gaussians", _SCENE_HELPS, gaussians.COMMANDS),
    "rendered": KeysOfKind(
        "Scenes that a function draws", _DRAWN_HELPS, rendered.COMMANDS
    ),
    "image": KeysOfKind("Images", ImageView.keys, image.COMMANDS),
    "scalars": KeysOfKind("Curves", ScalarsView.keys, scalars.COMMANDS),
    "memory": KeysOfKind("Live memory", MemoryView.keys, memory.COMMANDS),
    "snapshot": KeysOfKind("Memory snapshots", SnapshotView.keys, snapshot.COMMANDS),
    "ranks": KeysOfKind("Snapshots of several ranks", RanksView.keys, ()),
    "cameras": KeysOfKind("Cameras alone", CamerasView.keys, cameras.COMMANDS),
}
"""By the names of the kinds, in the order of the page."""


def keys() -> Iterator[str]:
    """Yield the lines of the page of keys."""
    yield from _section("Everywhere", viewer_lines())
    for kind in KEYS_OF_KINDS.values():
        yield from _section(kind.title, kind.lines)


def _section(title: str, lines: Sequence[KeyHelp]) -> Iterator[str]:
    """Yield a heading, and a table for each group of lines."""
    yield f"## {title}"
    yield ""
    groups: dict[str, list[KeyHelp]] = {}
    for line in lines:
        groups.setdefault(line.group, []).append(line)
    for group, group_lines in groups.items():
        yield f"| {group} | |"
        yield "|---|---|"
        for line in group_lines:
            caps = ", ".join(f"`{cap}`" for cap in caps_of(line))
            yield f"| {caps} | {line.does} |"
        yield ""
