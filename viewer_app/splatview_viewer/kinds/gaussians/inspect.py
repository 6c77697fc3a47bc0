"""One Gaussian looked at: a click chooses it, and it stands out with its numbers."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from splatview_viewer.core.events import (
    Key,
    Pinch,
    PointerMove,
    PointerPress,
    PointerRelease,
)
from splatview_viewer.core.view import KeyHelp, Section
from splatview_viewer.geometry.cameras import project
from splatview_viewer.kinds.gaussians import inspect_card
from splatview_viewer.kinds.gaussians.inspect_card import covers
from splatview_viewer.kinds.gaussians.inspect_panel import draw_panel
from splatview_viewer.kinds.gaussians.recorded_values import Course, RecordedValues
from splatview_viewer.kinds.gaussians.scene_reader import SceneReader
from splatview_viewer.render.picking import values_later
from splatview_viewer.scene_view.clicks import ClickGesture
from splatview_viewer.scene_view.lines import draw_line
from splatview_viewer.scene_view.questions import PointPicker
from splatview_viewer.scene_view.tool import Tool, ToolButton
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.render.picking import GaussianValues, Hit
    from splatview_viewer.scene.scene import GaussianScene

_MAX_VERSIONS = 240
"""Versions of which the values are remembered."""
_MAX_OUTLINE = 1e5
"""Pixels beyond which no outline is drawn."""
_VIEW_DISTANCE = 12.0
"""Distance from which a Gaussian is looked at, in its standard deviations."""


class Inspect(Tool["GaussianView"]):
    """Shows the chosen Gaussian, and its values over the training."""

    name: ClassVar[str] = "inspect"
    button: ClassVar[ToolButton | None] = ToolButton(
        "inspect", "Inspect", "I", "A click chooses a Gaussian; else Alt + click does"
    )
    keys: ClassVar[Sequence[KeyHelp]] = (
        KeyHelp("Scene", "Alt + click", "Inspect a Gaussian"),
        KeyHelp("Scene", "Escape", "Choose none"),
    )

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self.hit: Hit | None = None
        """The hit of the pointer that chose it."""
        self.history: deque[GaussianValues] = deque(maxlen=_MAX_VERSIONS)
        """Its values, the newest last."""
        self._history_index: int | None = None
        """The Gaussian that `history` is about."""
        self._count_at_choice = 0
        """Number of the scene's Gaussians when it was chosen."""
        self._picker = PointPicker(view, "pick")
        self._reader = SceneReader(view, "values")
        self._recorded = RecordedValues(view)
        self._click = ClickGesture()
        self._on_left = False
        """The card is at the picture's left, since the Gaussian is at its right."""

    # -- choosing ------------------------------------------------------------------

    @property
    def index(self) -> int | None:
        """Index of the Gaussian that is chosen, in the published scene."""
        return next(iter(self.view.state.selection.marked), None)

    @property
    def values(self) -> GaussianValues | None:
        """The newest values that are known."""
        if not self.history or self._history_index != self.index:
            return None
        return self.history[-1]

    @property
    def course(self) -> Course:
        """Its values over the training: in the recorded snapshots, as far as known.

        Where fewer than two are recorded, in the versions since it was chosen.
        """
        recorded = self._recorded.values
        if len(recorded) < 2 or not self.history:
            return Course(self.history)
        points = list(recorded)
        if self._recorded.is_live_newer:
            points.append(self.history[-1])
        return Course(points, len(recorded), self._recorded.first_step)

    def choose(self, index: int | None, hit: Hit | None = None) -> None:
        """Have this Gaussian stand out; None for none.

        An index that the scene does not have changes nothing.
        """
        summary = self.view.data.summary
        if index is not None and (summary is None or not 0 <= index < summary.count):
            return
        marked = () if index is None else (index,)
        self.view.change(selection=replace(self.view.state.selection, marked=marked))
        self.hit = hit

    def handle(self, event: Event, rect: Rect) -> bool | None:
        match event:
            case PointerPress(button="left", clicks=1) if (
                self.is_chosen or "alt" in event.mods
            ):
                self._click.press(event.x, event.y)
            case PointerPress() | Pinch():
                self._click.cancel()
                # A double click means something else.
                self._picker.forget()
            case PointerMove():
                self._click.move(event.x, event.y, self.view.host.scale)
            case PointerRelease(button="left") if self._click.release():
                if rect.contains(event.x, event.y):
                    self._picker.search(event.x, event.y, rect)
            case Key(name="escape", pressed=True) if (
                self.index is not None and not event.mods
            ):
                self.choose(None)
                return True
        # The camera may move by the same events.
        return None

    # -- time ----------------------------------------------------------------------

    def tick(self, now: float) -> bool:
        needs_redraw = False
        hits = self._picker.take()
        if hits is not None:
            needs_redraw = True
            self._choose_hit(hits)
        index = self.index
        summary = self.view.data.summary
        count = 0 if summary is None else summary.count
        if index != self._history_index:
            self._history_index = index
            self._count_at_choice = count
            self.history.clear()
            self._reader.forget()
            self._recorded.forget()
        if index is None:
            return needs_redraw
        if count != self._count_at_choice:
            self.view.host.notify(
                "The scene has another number of Gaussians now: none is chosen"
            )
            self.choose(None)
            return True
        needs_redraw |= self._recorded.follow(index, count)
        return self._read_values(now, index) or needs_redraw

    def _choose_hit(self, hits: Sequence[Hit]) -> None:
        """Choose what the picker has found: one Gaussian, or none."""
        if hits:
            self.choose(hits[0].index, hits[0])
        else:
            self.choose(None)

    def _read_values(self, now: float, index: int) -> bool:
        """Have each version's values read; return whether some have arrived."""
        loads = self.view.data.loads

        def start(scene: GaussianScene) -> Callable[[], GaussianValues] | None:
            if index >= len(scene):
                return None
            return values_later(scene, index, loads)

        self._reader.read(now, index, start)
        answer = self._reader.take()
        if answer is None:
            return False
        read_index, values = answer
        if read_index != index:
            return False
        self.history.append(values)
        return True

    # -- drawing -------------------------------------------------------------------

    def draw_over(self, rect: Rect, scale: float) -> bool:
        if self.index is None:
            return False
        point = self._draw_outline(rect, scale)
        cards = self.covered(rect)
        if point is not None and any(covers(card, point, scale) for card in cards):
            self._on_left = not self._on_left
            cards = self.covered(rect)
        for card in cards:
            if point is not None:
                inspect_card.draw_line(card, point, scale)
            key = f"inspected {id(self)}"
            if inspect_card.draw_card(key, card, self.index, self.values, self.course):
                self.choose(None)
        return False

    def _draw_outline(self, rect: Rect, scale: float) -> tuple[float, float] | None:
        """Draw the ellipse around the Gaussian.

        Returns the pixel of the screen in its middle; None where it is not seen.
        """
        camera = self.view.rig.seen_camera(rect)
        if camera is None or self.values is None:
            return None
        _draw_outline(self.values, camera, self.view.state.scale, rect, scale)
        ((x, y),) = project(camera, self.values.mean[None].astype(np.float64)).tolist()
        point = (x + rect.x, y + rect.y)
        if rect.contains(*point):
            return point
        return None

    def covered(self, rect: Rect) -> Sequence[Rect]:
        if self.index is None:
            return []
        card = inspect_card.place_card(
            rect, self.view.host.scale, on_left=self._on_left
        )
        if card is None:
            return []
        return [card]

    def sections(self) -> Sequence[Section]:
        section = Section(
            "Inspect",
            partial(draw_panel, self),
            tip="The numbers of one Gaussian: Alt + click it, or choose Inspect (I)",
            tab="data",
            state="Alt + click" if self.index is None else f"{self.index:,}",
        )
        return [section]

    def fly_to_chosen(self) -> None:
        """Fly to where the chosen Gaussian fills a good part of the picture."""
        rig = self.view.rig
        values = self.values
        camera = rig.camera()
        if values is None or camera is None or not np.isfinite(values.mean).all():
            return
        mean = values.mean.astype(np.float64)
        size = float(np.nan_to_num(values.scale.max(), posinf=1e6))
        distance = max(size * _VIEW_DISTANCE, camera.near * 2)
        viewmat = camera.viewmat.copy()
        viewmat[:3, 3] = np.array([0.0, 0.0, distance]) - viewmat[:3, :3] @ mean
        rig.fly_to(replace(camera, viewmat=viewmat), pivot=mean)

    def close(self) -> None:
        self._picker.forget()
        self._reader.forget()
        self._recorded.forget()


def _draw_outline(
    values: GaussianValues, camera: Camera, size: float, rect: Rect, scale: float
) -> None:
    """Draw the ellipse around a Gaussian, which is drawn `size` times as large."""
    corners = values.outline(camera, size)
    if corners is not None and np.abs(corners).max() <= _MAX_OUTLINE:
        draw_line(corners, rect, scale, theme.INK, 0.95, closed=True)
