"""Saves a scene, or what is chosen of it, while the loop goes on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from splatview_viewer.core.aside import Aside
from splatview_viewer.core.errors import FileError, RendererError
from splatview_viewer.formats.pictures import output_path
from splatview_viewer.scene import HIDDEN, flags

if TYPE_CHECKING:
    from splatview_viewer.kinds.gaussians.view import GaussianView


class Export:
    """One file at a time."""

    def __init__(self, view: GaussianView) -> None:
        self.progress: float | None = None
        """0 to 1 while a file is written."""
        self._view = view
        self._aside: Aside[tuple[Path, int]] = Aside("export")

    def begin(self, chosen: bool) -> None:
        """Save what the selection does not hide, or all that can be drawn, as a .ply in the folder where the viewer
        runs. A scene on a GPU is copied to the host at once, which takes a tenth of a second per million."""
        view, facts = self._view, self._view.content.facts
        if facts is None or self.progress is not None:
            return
        try:
            scene, path = view.content.renderer.scene(), self._path()
        except (RendererError, FileError) as e:
            view.desk.say(str(e))
            return
        selection, antialiased = view.settings.selection, facts.antialiased
        scene = scene.to_host()
        self.progress = 0.0

        def work() -> tuple[Path, int]:
            from splatview_viewer.formats.ply import write_ply

            keep = (flags(scene, selection) & HIDDEN) == 0 if chosen else None
            return write_ply(scene, path, antialiased=antialiased, keep=keep, progress=self._went)

        self._aside.ask(work, view.desk.wake)

    def tick(self) -> bool:
        """True when a picture has to say how far it is."""
        try:
            come = self._aside.take()
        except (FileError, MemoryError) as e:
            self.progress = None
            self._view.desk.say(f"Not saved: {e or 'not enough memory'}")
            return True
        if come is not None:
            self.progress = None
            self._view.desk.say(f"Saved {come[1]:,} Gaussians to {come[0]}")
            self._view.desk.hand_over(come[0])
        return come is not None or self.progress is not None

    def _path(self) -> Path:
        """Of a file named after what is shown, and its step if that is published."""
        facts = self._view.content.facts
        name = re.sub(r"[^\w.-]+", "-", Path(self._view.desk.name).name.split(".")[0]).strip("-.") or "scene"
        step = next((n[5:].replace(",", "") for n in (facts.notes if facts else ()) if re.fullmatch(r"step [\d,]+", n)),
                    "")
        return output_path(f"{name[:80]}{f'-step{step}' if step else ''}", ".ply")

    def _went(self, what: str, fraction: float) -> None:
        self.progress = fraction

    def close(self) -> None:
        """What is begun is finished, and not told."""
        self._aside.forget()
