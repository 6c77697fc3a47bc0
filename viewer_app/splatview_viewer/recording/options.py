"""What is recorded, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.formats.pictures import make_output_folder

if TYPE_CHECKING:
    from pathlib import Path

EVERY = 100
"""Versions between two snapshots, at first, if nothing else is asked for."""


@dataclass(frozen=True)
class RecordOptions:
    """Snapshots of scenes that are shown, in memory; or of all scenes that runs publish, on disk."""

    folder: Path | None = None
    every: int | None = None
    """Steps between two snapshots, at first; None: EVERY versions, or a few seconds."""
    memory_mb: int = 512
    """For all scenes together; 0: none is recorded."""
    disk_mb: int = 20_000
    """The same of what goes to the folder."""

    def check(self, command: str) -> None:
        """Raise ViewerError for numbers that make no sense."""
        if self.every is not None and self.every < 1:
            raise ViewerError(f"{command}: --record-every is {self.every}, not a number of steps from 1 on")
        if self.memory_mb < 0:
            raise ViewerError(f"{command}: --record-memory is {self.memory_mb}, not a number of MB from 0 (none) on")
        if self.disk_mb < 1:
            raise ViewerError(f"{command}: --record-disk is {self.disk_mb}, not a number of MB from 1 on")
        if self.folder is not None and self.folder.exists() and not self.folder.is_dir():
            raise ViewerError(f"{command}: --record {self.folder} is a file; name a folder, which is made if need be")
        if self.folder is not None:
            try:
                make_output_folder(self.folder)
            except OSError as e:
                raise ViewerError(f"{command}: --record: {e}") from e

    @property
    def on(self) -> bool:
        return self.folder is not None or self.memory_mb > 0

    @property
    def limit(self) -> int:
        """Bytes for all scenes together."""
        return (self.memory_mb if self.folder is None else self.disk_mb) * 1_000_000
