"""The options of recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.formats.pictures import make_output_folder

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class RecordOptions:
    """Options of recording: displayed scenes in memory, or all scenes on disk."""

    folder: Path | None = None
    every: int | None = None
    """Steps between two snapshots, at first; None: EVERY versions, or a few seconds."""
    memory_mb: int = 512
    """MB for all scenes together; 0: none is recorded."""
    disk_mb: int = 20_000
    """MB for all scenes in the folder."""

    def check(self, command: str) -> None:
        """Raise ViewerError for numbers that make no sense."""
        if self.every is not None and self.every < 1:
            raise ViewerError(
                f"{command}: --record-every is {self.every}, not a number of steps "
                "from 1 on"
            )
        if self.memory_mb < 0:
            raise ViewerError(
                f"{command}: --record-memory is {self.memory_mb}, not a number of MB "
                "from 0 (none) on"
            )
        if self.disk_mb < 1:
            raise ViewerError(
                f"{command}: --record-disk is {self.disk_mb}, not a number of MB from "
                "1 on"
            )
        if self.folder is not None:
            try:
                make_output_folder(self.folder, private=True)
            except OSError as e:
                raise ViewerError(f"{command}: --record: {e}") from e

    @property
    def on(self) -> bool:
        """True if scenes are recorded at all."""
        return self.folder is not None or self.memory_mb > 0
