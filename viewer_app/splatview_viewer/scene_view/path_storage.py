"""The files of camera paths, and the path that is remembered of a scene."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from splatview_ipc.system.files import output_file
from splatview_viewer.core.errors import CameraError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.camera_paths import (
    parse_path,
    path_values,
    read_path,
    write_path,
)
from splatview_viewer.formats.pictures import output_path
from splatview_viewer.geometry.path import MAX_KEYS

if TYPE_CHECKING:
    from splatview_viewer.scene_view.path import PathTool


_MAX_FILES = 20
"""Files that are listed."""
_MAX_LOOKED_AT = 500
_START_BYTES = 4096
_NAMES = (b"keyframes", b"camera_path", b"camera_type")
"""Names in the beginning of a file of a path."""


class PathStorage:
    """Saves, reads and remembers the path of a tool."""

    def __init__(self, tool: PathTool) -> None:
        self._tool = tool
        self._name = ""
        """The name under which the path is remembered."""
        self._remembered_state = tool.edited_state
        self.files: list[Path] = []
        """The files of the current folder that may be paths, the newest first."""

    def list_files(self) -> None:
        """Look for files of paths in the current folder."""
        dated_files: list[tuple[float, Path]] = []
        with suppress(OSError):
            for file in Path.cwd().glob("*.json"):
                if len(dated_files) >= _MAX_LOOKED_AT:
                    break
                if _may_be_path(file):
                    dated_files.append((file.stat().st_mtime, file))
        dated_files.sort(reverse=True)
        self.files = [file for _, file in dated_files[:_MAX_FILES]]

    def save(self) -> None:
        """Save the path in the current folder, as nerfstudio's viewer writes paths."""
        host = self._tool.view.host
        path = output_path(f"{file_stem(host.name)}-path", ".json")
        try:
            text = write_path(self._tool.film).encode()
            with output_file(path, numbered=True) as out:
                out.file.write(text)
        except (OSError, CameraError) as error:
            host.notify(f"The path is not saved: {error}")
            return
        host.notify(f"Saved {out.path}")
        host.hand_over(out.path)

    def take_file(self, file: Path) -> bool:
        """Read a path from a file that was dropped over the picture.

        Returns False for a file of something else, which is to be opened by itself.
        """
        if file.suffix.lower() != ".json":
            return False
        host = self._tool.view.host
        try:
            self._tool.use(read_path(file))
        except CameraError as error:
            host.notify(str(error))
            return False
        host.notify(f"{len(self._tool.path.keys)} keyframes from {file.name}")
        return True

    def remember(self) -> None:
        """Keep an edited path, or recall one when the scene's name is known."""
        tool = self._tool
        host = tool.view.host
        name = host.identity or host.name
        if not name:
            return
        if name != self._name:
            self._name = name
            self._recall()
            self._remembered_state = tool.edited_state
            return
        state = tool.edited_state
        # What the pointer moves is remembered once it lets go.
        if state != self._remembered_state and not tool.timeline.is_dragging:
            self._remembered_state = state
            self._remember_edits()

    def _recall(self) -> None:
        """Take the path that is remembered, if there is none yet."""
        values = self._tool.view.host.recall("path")
        if values is None or self._tool.path.keys:
            return
        # Any program may have written the memo.
        with suppress(CameraError):
            self._tool.film = parse_path(json.dumps(values))

    def _remember_edits(self) -> None:
        tool = self._tool
        values = None
        if 0 < len(tool.path.keys) <= MAX_KEYS:
            values = path_values(tool.film, frames=False)
        tool.view.host.remember("path", values)


def _may_be_path(file: Path) -> bool:
    """Return whether a file begins as one of a camera path, as far as can be seen."""
    try:
        with open_regular(file) as content:
            start = content.read(_START_BYTES)
    except OSError:
        return False
    return any(name in start for name in _NAMES)


def file_stem(name: str) -> str:
    """Return the start of a file's name, for what is called `name`.

    Folders of a stream's name stay in it: `output_path` makes them letters.
    """
    folder, slash, last_part = name.rpartition("/")
    stem = Path(last_part).stem or "scene"
    return f"{folder}{slash}{stem}"
