"""How a chosen Gaussian is shown: its outline in the picture, and its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.ui import plots, theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imgui_bundle import ImVec2Like

    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.gaussians.inspect import Inspect
    from splatview_viewer.render.picking import Values

_SPARK = 22
"""Points: how high a curve of past values is."""
_CHANNELS = "R", "G", "B"


def outline(corners: np.ndarray | None, rect: Rect, scale: float) -> None:
    """Draw the ellipse (M, 2), pixels from the picture's corner, over the picture."""
    if corners is None or np.abs(corners).max() > 1e5:
        return
    draw = imgui.get_background_draw_list()
    draw.push_clip_rect(ImVec2(rect.x, rect.y), ImVec2(rect.x + rect.width, rect.y + rect.height), True)
    points: list[ImVec2Like] = [ImVec2(x + rect.x, y + rect.y) for x, y in corners.tolist()]
    closed = imgui.ImDrawFlags_.closed.value
    draw.add_polyline(points, theme.u32(ImVec4(0, 0, 0, 1), 0.55), 3.5 * scale, closed)
    draw.add_polyline(points, theme.u32(ImVec4(1, 1, 1, 1), 0.95), 1.5 * scale, closed)
    draw.pop_clip_rect()


def card(tool: Inspect, place: Rect, scale: float) -> bool:
    """The most important numbers over the picture. True when it was closed."""
    imgui.push_style_var(imgui.StyleVar_.window_rounding.value, 6 * scale)
    pad, closed = imgui.get_style().window_padding, False
    with ui.board(f"inspected {id(tool)}", place, (pad.x, pad.y)):
        ui.colored(f"Gaussian {tool.index:,}", theme.TEXT)
        side = imgui.get_frame_height()
        imgui.same_line(imgui.get_window_width() - side - imgui.get_style().window_padding.x / 2)
        closed = imgui.button("\u00d7##close", ImVec2(side, side))
        imgui.set_item_tooltip("Choose none (Escape)")
        values = tool.values
        if values is not None:
            _rows(tool, values, 3.6)
    imgui.pop_style_var()
    return bool(closed)


def panel(tool: Inspect) -> bool:
    """The panel's part. True when a picture has to follow."""
    ui.row("Index")
    flags = imgui.InputTextFlags_.enter_returns_true | imgui.InputTextFlags_.chars_decimal
    text = "" if tool.index is None else str(tool.index)
    entered, typed = imgui.input_text_with_hint("##index", "None", text, flags)
    imgui.set_item_tooltip("In the scene as it was published or saved. Type one and press Enter")
    changed = False
    if entered and typed != text:
        changed = _typed(tool, typed.strip())
    values = tool.values
    if tool.index is None or values is None:
        ui.wrapped("Click a Gaussian in the picture" if tool.index is None else "Reading", theme.DIM)
        return changed
    _rows(tool, values)
    _text("Rotation", "  ".join(f"{v:.3f}" for v in values.quat), "Quaternion w, x, y, z")
    if values.energies:
        _text("SH energy", "  ".join(f"{v:.3g}" for v in values.energies),
              "Sum of squares of the coefficients of each degree, from 1 on:\nhow much the colour depends on the view")
    if len(tool.history) > 1:
        _curves(tool)
    if imgui.tree_node("Coefficients"):
        _table(values)
        imgui.tree_pop()
    pressed = ui.buttons("", ["Look at it", "Clear"], ["Move the camera to it", "Choose none (Escape)"])
    if pressed == 0:
        tool.look_at()
    elif pressed == 1:
        tool.choose(None)
    return changed or pressed is not None


def _typed(tool: Inspect, text: str) -> bool:
    """Choose the one whose index was typed; none by nothing. True when it is chosen."""
    facts, index = tool.view.content.facts, int(text) if text.isdecimal() else -1
    if text and facts is not None and not 0 <= index < facts.count:
        tool.view.desk.say(f"{text[:20]} is no index: this scene's go from 0 to {facts.count - 1:,}")
        return False
    tool.choose(index if text else None)
    return True


def _rows(tool: Inspect, values: Values, label: float | None = None) -> None:
    facts = tool.view.content.facts
    if facts is not None and tool.index is not None and (shard := facts.shard_of(tool.index)) is not None:
        _text("Rank", f"{shard[0]}, index {shard[1]:,}", "Which process trains it, and its index there", label)
    _text("Position", "  ".join(f"{v:.4g}" if abs(v) < 1e4 else f"{v:.2f}" for v in values.mean), "World units", label)
    _text("Size", "  ".join(f"{v:.3g}" for v in values.scale),
          "Standard deviations along its three axes, world units", label)
    _text("Opacity", f"{values.opacity:.3f}", "", label)
    _row("Colour", label)
    side = imgui.get_text_line_height()
    at, color = imgui.get_cursor_screen_pos(), values.color
    imgui.dummy(ImVec2(side, side))
    draw, end = imgui.get_window_draw_list(), ImVec2(at.x + side, at.y + side)
    draw.add_rect_filled(at, end, theme.u32(ImVec4(*color, 1.0)), 3 * side / 15)
    draw.add_rect(at, end, theme.u32(theme.DIM, 0.6), 3 * side / 15)
    imgui.same_line()
    imgui.text_unformatted("  ".join(f"{v:.2f}" for v in color))
    if tool.hit is not None and tool.hit.index == tool.index:
        _text("Seen", f"{tool.hit.weight:.0%} of the pixel",
              f"Where you clicked it makes up so much of what is seen.\nThe surface is {tool.hit.depth:.4g} away there",
              label)


def _row(label: str, width: float | None) -> None:
    ui.dim(label)
    imgui.same_line((ui.LABEL_WIDTH if width is None else width + 1.0) * imgui.get_font_size())


def _text(label: str, text: str, tip: str = "", width: float | None = None) -> None:
    _row(label, width)
    imgui.text_unformatted(text)
    if tip:
        imgui.set_item_tooltip(tip)


_HISTORY: tuple[tuple[str, Callable[[Sequence[Values]], list[float]], str], ...] = (
    ("Opacity", lambda seen: [v.opacity for v in seen], ""),
    ("Size", lambda seen: [float(v.scale.max()) for v in seen], "Its largest standard deviation, world units"),
    ("Moved", lambda seen: [float(np.linalg.norm(v.mean - seen[0].mean)) for v in seen],
     "How far it is from where it was when you chose it, world units"),
    ("SH energy", lambda seen: [sum(v.energies) for v in seen], ""),
)


def _curves(tool: Inspect) -> None:
    """How some of the numbers went since it was chosen."""
    seen = list(tool.history)
    ui.dim(f"In {len(seen)} versions")
    for label, of, tip in _HISTORY:
        if label == "SH energy" and not seen[-1].energies:
            continue
        values = np.nan_to_num(np.array(of(seen)))
        low, high = float(values.min()), float(values.max())
        _row(label, None)
        room = 0.05 * (high - low) or 1.0
        with plots.bare(label, (imgui.get_content_region_avail().x, _SPARK * theme.scale()), (0, len(values) - 1),
                        (low - room, high + room)) as plot:
            if plot is not None:
                plot.line("##curve", np.arange(len(values), dtype=np.float64), values, theme.ACCENT, 1.4)
        imgui.set_item_tooltip("\n".join(filter(None, (tip, f"{low:.4g} to {high:.4g}, now {values[-1]:.4g}",
                                                       f"in {len(seen)} versions"))))


def _table(values: Values) -> None:
    """All coefficients of spherical harmonics, from degree 0 on."""
    rows = np.concatenate([values.sh0[None], values.shN])
    flags = imgui.TableFlags_.sizing_stretch_same.value | imgui.TableFlags_.row_bg.value
    if imgui.begin_table("##coefficients", 4, flags):
        for name in ("", *_CHANNELS):
            imgui.table_next_column()
            ui.dim(name)
        for i, row in enumerate(rows.tolist()):
            imgui.table_next_column()
            ui.dim(f"{int(i ** 0.5)}, {i - int(i ** 0.5) * (int(i ** 0.5) + 1)}")
            imgui.set_item_tooltip("Degree and order")
            for value in row:
                imgui.table_next_column()
                imgui.text_unformatted(f"{value:.3f}")
        imgui.end_table()
