"""Filming the camera path of a view while the loop goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import RunningJob
from splatview_viewer.formats.camera_paths import check_length
from splatview_viewer.formats.films import make_writer
from splatview_viewer.formats.pictures import output_path
from splatview_viewer.scene_view.film import Camerawork, Filming
from splatview_viewer.scene_view.path_storage import file_stem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.scene_view.path import PathTool


class FilmMaker:
    """Films the path of a tool into a file, one film at a time."""

    def __init__(self, tool: PathTool) -> None:
        self._tool = tool
        self.as_frames = False
        """Films are folders of PNGs."""
        self.transparent = False
        """Pictures of folders have no background."""
        self.filming: Filming | None = None
        """The film in the making."""

    def start(self) -> None:
        """Start to render the path into a file."""
        tool = self._tool
        view = tool.view
        if self.filming is not None or not tool.path.keys:
            return
        tool.stop()
        film = replace(tool.film, path=replace(tool.path, keys=list(tool.path.keys)))
        suffix = "" if self.as_frames else ".mp4"
        out = output_path(file_stem(view.host.name), suffix)
        transparent = self.transparent and self.as_frames
        try:
            check_length(film)
            writer = make_writer(
                out, film.width, film.height, film.fps, transparent, numbered=True
            )
        except ViewerError as error:
            view.host.notify(str(error))
            return
        camerawork = Camerawork(view.data.ctx, view, film.width, film.height)
        self.filming = Filming(
            camerawork, film, writer, transparent=transparent, wake=view.host.wake
        )

    def jobs(self) -> Sequence[RunningJob]:
        """Return the film in the making, if there is one."""
        filming = self.filming
        if filming is None:
            return ()
        share = filming.drawn / max(filming.total, 1)
        count = f"{filming.drawn} / {filming.total}"
        return [RunningJob("The film", share, self.cancel, count)]

    def cancel(self) -> None:
        """Give up the film."""
        if self.filming is not None:
            self.close()
            self._tool.view.host.notify("The film was given up")

    def advance(self) -> bool:
        """Advance the film; return whether it has advanced."""
        filming = self.filming
        if filming is None:
            return False
        drawn = filming.drawn
        filming.advance()
        if filming.is_ended:
            self.close()
            self._tell_end(filming)
        return filming.is_ended or filming.drawn != drawn

    def _tell_end(self, filming: Filming) -> None:
        host = self._tool.view.host
        if filming.fault:
            host.notify(filming.fault)
            return
        host.notify(f"Saved {filming.out}, {filming.drawn} pictures")
        host.hand_over(filming.out)

    def close(self) -> None:
        """Give up an unfinished film, and release everything. Idempotent."""
        if self.filming is not None:
            self.filming.close()
            self.filming = None
