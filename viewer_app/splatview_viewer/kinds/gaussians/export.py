"""Saves a scene, or what is chosen of it, while the loop goes on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from splatview_viewer.core.errors import FileError, RendererError
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.formats.pictures import output_path
from splatview_viewer.scene import HIDDEN, flags

if TYPE_CHECKING:
    from splatview_viewer.kinds.gaussians.view import GaussianView


class Export:
    """One file at a time."""

    def __init__(self, view: GaussianView) -> None:
        self._view = view
        self._jobs = Jobs("export", lambda: view.desk.wake())
        self._job: Job[tuple[Path, int]] | None = None

    @property
    def progress(self) -> float | None:
        """0 to 1 while a file is written."""
        return None if self._job is None else self._job.progress

    def begin(self, chosen: bool) -> None:
        """Save what the selection does not hide, or all that can be drawn, as a .ply in the folder where the viewer
        runs. A scene on a GPU is copied to the host at once, which takes a tenth of a second per million."""
        view, facts = self._view, self._view.content.facts
        if facts is None or self._job is not None:
            return
        try:
            scene, path = view.content.renderer.scene(), self._path()
        except (RendererError, FileError) as e:
            view.desk.say(str(e))
            return
        selection, antialiased = view.settings.selection, facts.antialiased
        scene = scene.to_host()

        def work(job: Job[tuple[Path, int]]) -> tuple[Path, int]:
            from splatview_viewer.formats.ply import write_ply

            keep = (flags(scene, selection) & HIDDEN) == 0 if chosen else None
            return write_ply(scene, path, antialiased=antialiased, keep=keep, progress=job.report)

        self._job = self._jobs.submit(work)

    def tick(self) -> bool:
        """True when a picture has to say how far it is."""
        job, desk = self._job, self._view.desk
        if job is None or not job.done:
            return job is not None
        self._job = None
        try:
            path, count = job.result()
        except (FileError, MemoryError) as e:
            desk.say(f"Not saved: {str(e) or 'not enough memory'}")
            return True
        desk.say(f"Saved {count:,} Gaussians to {path}")
        desk.hand_over(path)
        return True

    def _path(self) -> Path:
        """Of a file named after what is shown, and its step if that is published."""
        facts = self._view.content.facts
        name = re.sub(r"[^\w.-]+", "-", Path(self._view.desk.name).name.split(".")[0]).strip("-.") or "scene"
        step = next((n[5:].replace(",", "") for n in (facts.notes if facts else ()) if re.fullmatch(r"step [\d,]+", n)),
                    "")
        return output_path(f"{name[:80]}{f'-step{step}' if step else ''}", ".ply")

    def close(self) -> None:
        """Drop the result; a file that is being written is finished."""
        self._job = None
