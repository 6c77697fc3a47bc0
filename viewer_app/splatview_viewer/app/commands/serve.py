"""The command `splatview serve`."""

from __future__ import annotations

from dataclasses import dataclass

# tyro reads the annotations.
from pathlib import Path  # noqa: TC003
from typing import Annotated

import tyro

from splatview_viewer.app.commands.viewer import ViewerOptions


@dataclass(frozen=True)
class Serve(ViewerOptions):
    """Watch what training runs publish, and files.

    Shows every stream of every run of yours on this machine, as it comes. Start it
    before the script starts or while it runs, and restart either at will. Nothing has
    to be configured. Files can be dropped on the window as well.

    Examples:

        splatview serve                     # all runs, and those that begin later
        splatview serve --web               # over ssh: open the address it prints
        splatview serve scene.ply           # a file, without any training
        splatview serve --record kept       # keep the scenes that are published
        splatview serve kept                # and look at them again

    Mouse: wheel zooms, drag moves a picture; over Gaussians, left drag orbits, right
    drag moves. Touch: one finger drags, two zoom and move. Keys: Ctrl + K finds every
    command, stream and setting, F fits, H hides the panel, ? lists all keys.
    """

    files: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[FILE ...]")
    ] = ()
    """Scenes (PLY, compressed PLY, splat, SPZ, SOG, checkpoints), pictures, memory
    snapshots, or what --record kept, to show."""
    run: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None
    """Follow this run alone: its id, the beginning of it, its name or its process id;
    waits for one that is to begin. Default: all."""

    record: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Keep snapshots of every scene that is published here, whether it is shown or not,
    to look at again later: splatview serve FOLDER. A folder that was recorded into
    before is continued."""
    record_every: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Steps between two snapshots, at first. When there is no more room, every second
    one is dropped and N doubles. Default: 100 versions, or 10 seconds where they come
    slowly."""
    record_memory: Annotated[int, tyro.conf.arg(metavar="MB")] = 512
    """Room in memory for snapshots of the scenes that are shown: the bar under the
    picture goes back through them. 0: keep none."""
    record_disk: Annotated[int, tyro.conf.arg(metavar="MB")] = 20_000
    """The same for what --record keeps in its folder."""

    def execute(self) -> None:
        from splatview_viewer.recording.options import RecordOptions

        record = RecordOptions(
            self.record, self.record_every, self.record_memory, self.record_disk
        )
        record.check("serve")
        self._serve("serve", self.files, self.run, record)
