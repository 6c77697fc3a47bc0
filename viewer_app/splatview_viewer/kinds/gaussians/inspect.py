"""One Gaussian looked at: a click chooses it, its numbers are told, it stands out. The panel's part "Inspect"."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from splatview_viewer.core.errors import RendererError
from splatview_viewer.core.events import Key, Pinch, PointerMove, PointerPress, PointerRelease
from splatview_viewer.core.jobs import Jobs
from splatview_viewer.core.view import KeyHelp, Section
from splatview_viewer.geometry.controls import Rect
from splatview_viewer.kinds.gaussians.picking import Picker
from splatview_viewer.kinds.gaussians.tool import Tool
from splatview_viewer.render.picking import values_later

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.render.picking import Hit, Values

_STILL = 4.0
"""Points that the pointer may move between press and release of a click."""
_PERIOD = 0.5
"""Seconds between looks at the values of a live scene."""
_SHARE = 0.05
"""Of the loop's time that may go into having the scene."""
_VERSIONS = 240
"""Of which the values are remembered."""
_CARD_WIDTH, _CARD_LINES = 250, 6
"""Of what lies over the picture: points, and lines of text."""


class Inspect(Tool):
    """Knows which Gaussian is chosen, and its values over the versions seen since."""

    name: ClassVar[str] = "inspect"
    keys: ClassVar[Sequence[KeyHelp]] = (
        KeyHelp("Scene", "Alt + click", "Inspect a Gaussian"),
        KeyHelp("Scene", "Escape", "Choose none"),
    )

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self.index: int | None = None
        """Of the Gaussian that is chosen, in the published scene."""
        self.hit: Hit | None = None
        """What was under the pointer when it was chosen with that."""
        self.history: deque[Values] = deque(maxlen=_VERSIONS)
        """Its values, the newest last."""
        self._count = 0
        """Of the scene's Gaussians when it was chosen."""
        self._picker = Picker(view)
        self._jobs = Jobs("values", lambda: view.desk.wake())
        self._read = (-1, -math.inf)
        """The last scene (`GaussianContent.loads`) whose values were asked for, and when the next may be."""
        self._press: tuple[float, float] | None = None
        self._shown = self._card = False
        """Whether the panel's part is seen; whether the card lies over the picture."""

    # -- choosing ----------------------------------------------------------------------------------------------

    def choose(self, index: int | None, hit: Hit | None = None) -> None:
        """Have this one stand out; None: none. Those that the scene does not have are not chosen."""
        facts = self.view.content.facts
        if index is not None and (facts is None or not 0 <= index < facts.count):
            return
        if index != self.index:
            self.history.clear()
            self._jobs.forget("values")
        self.index, self.hit = index, hit
        self._count = 0 if facts is None else facts.count
        self._read = (-1, -math.inf)
        settings = self.view.settings
        settings.selection = replace(settings.selection, marked=() if index is None else (index,))

    @property
    def values(self) -> Values | None:
        """The newest that are known."""
        return self.history[-1] if self.history else None

    def handle(self, event: Event, rect: Rect) -> bool | None:
        match event:
            case PointerPress(button="left", clicks=1) if self._shown or "alt" in event.mods:
                self._press = event.x, event.y
            case PointerPress() | Pinch():
                self._press = None
                self._picker.forget()  # of a double click, which means something else
            case PointerMove() if self._press is not None:
                far = max(abs(event.x - self._press[0]), abs(event.y - self._press[1]))
                if far > _STILL * self.view.desk.scale:
                    self._press = None
            case PointerRelease(button="left") if self._press is not None:
                self._press = None
                if rect.contains(event.x, event.y):
                    self._ask(event.x, event.y, rect)
            case Key(name="escape", pressed=True) if self.index is not None and not event.mods:
                self.choose(None)
                return True
        return None  # the camera may move by it

    def _ask(self, x: float, y: float, rect: Rect) -> None:
        try:
            self._picker.ask(x, y, rect)
        except RendererError as e:
            self.view.desk.say(str(e))

    # -- time --------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> bool:
        again = False
        try:
            picked = self._picker.take()
        except MemoryError:
            self.view.desk.say("There is not enough memory to find what lies there")
            return True
        if picked is not None:
            self.choose(None if picked.hit is None else picked.hit.index, picked.hit)
            again = True
        if self.index is None:
            return again
        content = self.view.content
        if content.facts is None or content.facts.count != self._count:
            self.view.desk.say("The scene has another number of Gaussians now: none is chosen")
            self.choose(None)
            return True
        self._look(now)
        if (come := self._jobs.take("values")) is not None and come[0] == self.index:
            self.history.append(come[1])
            again = True
        return again

    def _look(self, now: float) -> None:
        """Ask for the values in a new scene, once in a while."""
        loads = self.view.content.loads
        if loads == self._read[0] or now < self._read[1] or self._jobs.busy or self.index is None:
            return
        begin, index = time.perf_counter(), self.index
        try:
            scene = self.view.content.renderer.scene()
            if index < len(scene):
                tell = values_later(scene, index, loads)
                self._jobs.submit(lambda _: (index, tell()), "values")
        except RendererError:
            pass  # the picture says so
        self._read = loads, now + max(_PERIOD, (time.perf_counter() - begin) / _SHARE)

    # -- what is seen ------------------------------------------------------------------------------------------

    def over(self, rect: Rect, scale: float) -> bool:
        self._card, self._shown = not self._shown and self.index is not None, False
        if self.index is None:
            return False
        from splatview_viewer.kinds.gaussians import inspect_card

        camera = self.view.camera(rect)
        if camera is not None and self.values is not None:
            inspect_card.outline(self.values.outline(camera, self.view.settings.scale), rect, scale)
        if self._card and (place := self._board(rect)) is not None and inspect_card.card(self, place, scale):
            self.choose(None)
            return True
        return False

    def boards(self, rect: Rect) -> Sequence[Rect]:
        place = self._board(rect) if self._card else None
        return [] if place is None else [place]

    def _board(self, rect: Rect) -> Rect | None:
        """Where the card lies: in the upper left corner, if there is room."""
        scale = self.view.desk.scale
        width, height, pad = round(_CARD_WIDTH * scale), round((22 * _CARD_LINES + 20) * scale), round(12 * scale)
        if rect.width < width + 2 * pad or rect.height < height + 2 * pad:
            return None
        return Rect(rect.x + pad, rect.y + pad, width, height)

    def sections(self) -> Sequence[Section]:
        return [Section("Inspect", self._panel, tip="The numbers of one Gaussian. Click it while this is open")]

    def _panel(self) -> bool:
        from splatview_viewer.kinds.gaussians import inspect_card

        self._shown = True
        return inspect_card.panel(self)

    def look_at(self) -> None:
        """Go where the chosen one fills a good part of the picture."""
        view, values = self.view, self.values
        camera = view.camera()
        if values is None or camera is None or not np.isfinite(values.mean).all():
            return
        mean = values.mean.astype(np.float64)
        distance = max(float(np.nan_to_num(values.scale.max(), posinf=1e6)) * 12.0, camera.near * 2)
        viewmat = camera.viewmat.copy()
        viewmat[:3, 3] = np.array([0.0, 0.0, distance]) - viewmat[:3, :3] @ mean
        view.fly_to(replace(camera, viewmat=viewmat), pivot=mean)

    def like(self, other: Tool) -> None:
        if isinstance(other, Inspect) and other.index != self.index:
            self.choose(other.index, other.hit)

    def close(self) -> None:
        self._picker.forget()
        self._jobs.forget("values")
