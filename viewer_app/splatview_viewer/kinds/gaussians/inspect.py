"""One Gaussian looked at: a click chooses it, its numbers are told, it stands out. The panel's part "Inspect"."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.errors import RendererError
from splatview_viewer.core.events import (
    Key,
    Pinch,
    PointerMove,
    PointerPress,
    PointerRelease,
)
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import KeyHelp, Section
from splatview_viewer.kinds.gaussians.scene_reader import SceneReader
from splatview_viewer.render.picking import values_later
from splatview_viewer.scene_view.lines import draw_line
from splatview_viewer.scene_view.questions import PointPicker
from splatview_viewer.scene_view.tool import Tool
from splatview_viewer.ui import plots, theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.render.picking import Hit, Values

_STILL = 4.0
"""Points that the pointer may move between press and release of a click."""
_VERSIONS = 240
"""Versions of which the values are remembered."""
_CARD_WIDTH = 250
_CARD_LINES = 6
"""Size of the card over the picture: points, and lines of text."""
_CHANNELS = ("R", "G", "B")
_SPARK = 22
"""Points: how high a curve of past values is."""
_HISTORY: tuple[tuple[str, Callable[[Sequence[Values]], list[float]], str], ...] = (
    ("Opacity", lambda seen: [v.opacity for v in seen], ""),
    (
        "Size",
        lambda seen: [float(v.scale.max()) for v in seen],
        "Its largest standard deviation, world units",
    ),
    (
        "Moved",
        lambda seen: [float(np.linalg.norm(v.mean - seen[0].mean)) for v in seen],
        "How far it is from where it was when you chose it, world units",
    ),
    ("SH energy", lambda seen: [sum(v.energies) for v in seen], ""),
)


class Inspect(Tool["GaussianView"]):
    """Knows which Gaussian is chosen, and its values over the versions seen since."""

    name: ClassVar[str] = "inspect"
    keys: ClassVar[Sequence[KeyHelp]] = (
        KeyHelp("Scene", "Alt + click", "Inspect a Gaussian"),
        KeyHelp("Scene", "Escape", "Choose none"),
    )

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self.hit: Hit | None = None
        """The hit of the pointer that chose it."""
        self.history: deque[Values] = deque(maxlen=_VERSIONS)
        """Its values, the newest last."""
        self._of: int | None = None
        """The Gaussian that `history` is about."""
        self._count = 0
        """Number of the scene's Gaussians when it was chosen."""
        self._picker = PointPicker(view, "pick")
        self._reader = SceneReader(view, "values")
        self._press: tuple[float, float] | None = None
        self.shown = False
        self._card = False
        """The panel's part is seen; the card lies over the picture."""

    # -- choosing ----------------------------------------------------------------------------------------------

    def choose(self, index: int | None, hit: Hit | None = None) -> None:
        """Have this one stand out; None: none. Those that the scene does not have are not chosen."""
        facts = self.view.data.facts
        if index is not None and (facts is None or not 0 <= index < facts.count):
            return
        self.view.change(
            selection=replace(
                self.view.state.selection, marked=() if index is None else (index,)
            )
        )
        self.hit = hit

    @property
    def index(self) -> int | None:
        """Index of the Gaussian that is chosen, in the published scene."""
        return next(iter(self.view.state.selection.marked), None)

    @property
    def values(self) -> Values | None:
        """The newest that are known."""
        return self.history[-1] if self.history and self._of == self.index else None

    def handle(self, event: Event, rect: Rect) -> bool | None:
        match event:
            case PointerPress(button="left", clicks=1) if (
                self.shown or "alt" in event.mods
            ):
                self._press = event.x, event.y
            case PointerPress() | Pinch():
                self._press = None
                self._picker.forget()  # of a double click, which means something else
            case PointerMove() if self._press is not None:
                far = max(abs(event.x - self._press[0]), abs(event.y - self._press[1]))
                if far > _STILL * self.view.host.scale:
                    self._press = None
            case PointerRelease(button="left") if self._press is not None:
                self._press = None
                if rect.contains(event.x, event.y):
                    try:
                        self._picker.ask(event.x, event.y, rect)
                    except RendererError as e:
                        self.view.host.say(str(e))
            case Key(name="escape", pressed=True) if (
                self.index is not None and not event.mods
            ):
                self.choose(None)
                return True
        return None  # the camera may move by it

    # -- time --------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> bool:
        again = False
        picked = self._picker.take()
        if picked is not None:
            self.choose(
                picked[0].index if picked else None, picked[0] if picked else None
            )
            again = True
        index = self.index
        data = self.view.data
        facts = self.view.data.facts
        count = 0 if facts is None else facts.count
        if index != self._of:
            self._of = index
            self._count = count
            self.history.clear()
            self._reader.forget()
        if index is None:
            return again
        if count != self._count:
            self.view.host.say(
                "The scene has another number of Gaussians now: none is chosen"
            )
            self.choose(None)
            return True
        loads = data.loads
        self._reader.read(
            now,
            index,
            lambda scene: (
                values_later(scene, index, loads) if index < len(scene) else None
            ),
        )
        come = self._reader.take()
        if come is not None and come[0] == index:
            self.history.append(come[1])
            again = True
        return again

    # -- what is seen ------------------------------------------------------------------------------------------

    def over(self, rect: Rect, scale: float) -> bool:
        self._card = not self.shown and self.index is not None
        self.shown = False
        if self.index is None:
            return False
        camera = self.view.rig.camera(rect)
        if camera is not None and self.values is not None:
            corners = self.values.outline(camera, self.view.state.scale)
            if corners is not None and np.abs(corners).max() <= 1e5:
                draw_line(corners, rect, scale, theme.INK, 0.95, closed=True)
        for place in self.covered(rect):
            imgui.push_style_var(imgui.StyleVar_.window_rounding.value, 6 * scale)
            pad = imgui.get_style().window_padding
            with ui.board(f"inspected {id(self)}", place, (pad.x, pad.y)):
                ui.colored(f"Gaussian {self.index:,}", theme.TEXT)
                side = imgui.get_frame_height()
                imgui.same_line(imgui.get_window_width() - side - pad.x / 2)
                closed = imgui.button("\u00d7##close", ImVec2(side, side))
                imgui.set_item_tooltip("Choose none (Escape)")
                if self.values is not None:
                    _rows(self, self.values, 3.6)
            imgui.pop_style_var()
            if closed:
                self.choose(None)
        return False

    def covered(self, rect: Rect) -> Sequence[Rect]:
        scale = self.view.host.scale
        width = round(_CARD_WIDTH * scale)
        height = round((22 * _CARD_LINES + 20) * scale)
        pad = round(12 * scale)
        if (
            not self._card
            or rect.width < width + 2 * pad
            or rect.height < height + 2 * pad
        ):
            return []
        return [Rect(rect.x + pad, rect.y + pad, width, height)]

    def sections(self) -> Sequence[Section]:
        return [
            Section(
                "Inspect",
                lambda: panel(self),
                tip="The numbers of one Gaussian. Click it while this is open",
            )
        ]

    def look_at(self) -> None:
        """Go where the chosen one fills a good part of the picture."""
        view = self.view
        values = self.values
        camera = view.rig.camera()
        if values is None or camera is None or not np.isfinite(values.mean).all():
            return
        mean = values.mean.astype(np.float64)
        distance = max(
            float(np.nan_to_num(values.scale.max(), posinf=1e6)) * 12.0, camera.near * 2
        )
        viewmat = camera.viewmat.copy()
        viewmat[:3, 3] = np.array([0.0, 0.0, distance]) - viewmat[:3, :3] @ mean
        view.rig.fly_to(replace(camera, viewmat=viewmat), pivot=mean)

    def close(self) -> None:
        self._picker.forget()
        self._reader.forget()


def panel(tool: Inspect) -> None:
    """Draw the panel's part."""
    tool.shown = True
    ui.row("Index")
    flags = (
        imgui.InputTextFlags_.enter_returns_true | imgui.InputTextFlags_.chars_decimal
    )
    text = "" if tool.index is None else str(tool.index)
    entered, typed = imgui.input_text_with_hint("##index", "None", text, flags)
    imgui.set_item_tooltip(
        "In the scene as it was published or saved. Type one and press Enter"
    )
    if entered and typed != text:
        facts = tool.view.data.facts
        index = int(typed) if typed.strip().isdecimal() else -1
        if typed.strip() and facts is not None and not 0 <= index < facts.count:
            tool.view.host.say(
                f"{typed[:20]} is no index: this scene's go from 0 to {facts.count - 1:,}"
            )
        else:
            tool.choose(index if typed.strip() else None)
    values = tool.values
    if tool.index is None or values is None:
        ui.wrapped(
            "Click a Gaussian in the picture" if tool.index is None else "Reading",
            theme.DIM,
        )
        return
    _rows(tool, values)
    _text(
        "Rotation", "  ".join(f"{v:.3f}" for v in values.quat), "Quaternion w, x, y, z"
    )
    if values.energies:
        _text(
            "SH energy",
            "  ".join(f"{v:.3g}" for v in values.energies),
            "Sum of squares of the coefficients of each degree, from 1 on:\nhow much the colour depends on the view",
        )
    if len(tool.history) > 1:
        _curves(tool)
    if imgui.tree_node("Coefficients"):
        _draw_coefficients(values)
        imgui.tree_pop()
    pressed = ui.buttons(
        "", ["Look at it", "Clear"], ["Move the camera to it", "Choose none (Escape)"]
    )
    if pressed == 0:
        tool.look_at()
    elif pressed == 1:
        tool.choose(None)


def _draw_coefficients(values: Values) -> None:
    """Draw a table of all coefficients of spherical harmonics, from degree 0 on."""
    rows = np.concatenate([values.sh0[None], values.shN])
    flags = imgui.TableFlags_.sizing_stretch_same.value | imgui.TableFlags_.row_bg.value
    if not imgui.begin_table("##coefficients", 1 + len(_CHANNELS), flags):
        return
    for name in ("", *_CHANNELS):
        imgui.table_next_column()
        ui.dim(name)
    for i, row in enumerate(rows.tolist()):
        degree = math.isqrt(i)
        imgui.table_next_column()
        ui.dim(f"{degree}, {i - degree * (degree + 1)}")
        imgui.set_item_tooltip("Degree and order")
        for value in row:
            imgui.table_next_column()
            imgui.text_unformatted(f"{value:.3f}")
    imgui.end_table()


def _rows(tool: Inspect, values: Values, label: float | None = None) -> None:
    _text(
        "Position",
        "  ".join(f"{v:.4g}" if abs(v) < 1e4 else f"{v:.2f}" for v in values.mean),
        "World units",
        label,
    )
    _text(
        "Size",
        "  ".join(f"{v:.3g}" for v in values.scale),
        "Standard deviations along its three axes, world units",
        label,
    )
    _text("Opacity", f"{values.opacity:.3f}", "", label)
    _row("Colour", label)
    side = imgui.get_text_line_height()
    imgui.color_button(
        "##colour",
        ImVec4(*values.color, 1.0),
        imgui.ColorEditFlags_.no_tooltip.value,
        ImVec2(side, side),
    )
    imgui.same_line()
    imgui.text_unformatted("  ".join(f"{v:.2f}" for v in values.color))
    if tool.hit is not None and tool.hit.index == tool.index:
        _text(
            "Seen",
            f"{tool.hit.weight:.0%} of the pixel",
            f"Where you clicked it makes up so much of what is seen.\nThe surface is {tool.hit.depth:.4g} away there",
            label,
        )


def _row(label: str, width: float | None) -> None:
    ui.dim(label)
    imgui.same_line(
        (ui.LABEL_WIDTH if width is None else width + 1.0) * imgui.get_font_size()
    )


def _text(label: str, text: str, tip: str = "", width: float | None = None) -> None:
    _row(label, width)
    imgui.text_unformatted(text)
    if tip:
        imgui.set_item_tooltip(tip)


def _curves(tool: Inspect) -> None:
    """Plot some of the numbers since it was chosen."""
    seen = list(tool.history)
    ui.dim(f"In {len(seen)} versions")
    for label, of, tip in _HISTORY:
        if label == "SH energy" and not seen[-1].energies:
            continue
        values = np.nan_to_num(np.array(of(seen)))
        low = float(values.min())
        high = float(values.max())
        _row(label, None)
        room = 0.05 * (high - low) or 1.0
        with plots.bare(
            label,
            (imgui.get_content_region_avail().x, _SPARK * theme.scale()),
            (0, len(values) - 1),
            (low - room, high + room),
        ) as plot:
            if plot is not None:
                plot.line(
                    "##curve",
                    np.arange(len(values), dtype=np.float64),
                    values,
                    theme.ACCENT,
                    1.4,
                )
        imgui.set_item_tooltip(
            "\n".join(
                filter(
                    None,
                    (
                        tip,
                        f"{low:.4g} to {high:.4g}, now {values[-1]:.4g}",
                        f"in {len(seen)} versions",
                    ),
                )
            )
        )
