"""The command `splatview export`, which needs no viewer."""

from __future__ import annotations

from dataclasses import dataclass

# tyro reads the annotations.
from pathlib import Path  # noqa: TC003
from typing import Annotated

import tyro

from splatview_ipc.system.terminal import printable


@dataclass(frozen=True)
class Export:
    """A scene of Gaussians as a file for other programs.

    Needs no display and no running viewer.

    Examples:

        splatview export scene.ply                    # what a training has by now
        splatview export scene.spz checkpoint.pt      # a file in another format
        splatview export small.compressed.ply scene.ply
        splatview export scene.html --path path.json  # a page to send to someone

    The end of the name says the format: .ply (all of it, as inria's and gsplat's
    programs), .compressed.ply (SuperSplat's, a quarter of the bytes), .spz (Niantic's, a
    tenth), .sog (PlayCanvas's, a tenth, and nearer to the original), or .html: the scene
    and its viewer in one page, which opens in any browser from a disk, without a server
    or a network.

    Paths are made in the viewer (the panel's tab "Film"); there the section "Save the
    scene" writes the same formats. A file of that name is replaced.
    """

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """The file to write. It appears whole or not at all."""
    file: Annotated[
        Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE]")
    ] = None
    """A scene, or a folder of serve --record, whose newest snapshot is taken. Default: a
    stream of a run."""
    stream: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The stream to take. Default: the only one, or the first."""
    run: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None
    """The run that publishes it: its id, the beginning of it, its name or its process
    id."""

    camera: Annotated[str | None, tyro.conf.arg(metavar="JSON")] = None
    """The first view of a page, as for splatview shot. Default: the scene seen whole."""
    path: Annotated[Path | None, tyro.conf.arg(metavar="JSON")] = None
    """A camera path for a page to play, as for splatview video."""

    def execute(self) -> None:
        from splatview_viewer.app.export import export
        from splatview_viewer.core.quantities import count_text, size_text

        count = count_text(export(self), "Gaussian")
        size = size_text(self.out.stat().st_size)
        print(f"{printable(self.out)}: {count}, {size}")
