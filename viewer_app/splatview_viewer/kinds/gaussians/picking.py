"""Asks what lies under a pixel of a view, while the loop goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from splatview_viewer.core.jobs import Jobs
from splatview_viewer.render.picking import Hit, pick_later

if TYPE_CHECKING:
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.gaussians.view import GaussianView


@dataclass(frozen=True)
class Picked:
    """What came of a question."""

    hit: Hit | None
    """None: nothing is seen there."""
    at: tuple[float, float]
    """Where it was asked, pixels of the framebuffer."""


class Picker:
    """One question at a time; a later one takes the place of one that is not answered."""

    def __init__(self, view: GaussianView) -> None:
        self._view = view
        self._jobs = Jobs("pick", lambda: view.desk.wake())

    @property
    def busy(self) -> bool:
        return self._jobs.busy

    def ask(self, x: float, y: float, rect: Rect) -> None:
        """What is under this pixel of the framebuffer, where the picture fills `rect`? Of the scene as it is now."""
        view = self._view
        self.forget()
        camera = view.camera(rect)
        if camera is None:
            return
        tell = pick_later(view.content.renderer.scene(), camera, x - rect.x, y - rect.y, view.options)
        self._jobs.submit(lambda _: Picked(tell(), (x, y)), "pick")

    def take(self) -> Picked | None:
        """The answer, once; None while there is none. To be asked in each turn of the loop."""
        return self._jobs.take("pick")

    def forget(self) -> None:
        """Nobody wants the answer any more."""
        self._jobs.forget("pick")
