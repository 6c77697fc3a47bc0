"""The section "Select", the bar of chosen Gaussians, and regions while they are drawn."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.gaussians.script_selection import SendSelection
from splatview_viewer.scene_view.frustums import Frustums
from splatview_viewer.scene_view.lines import push_clip_rect
from splatview_viewer.scene_view.tool import ORBIT
from splatview_viewer.ui import boards, choices, controls, icons, lettering, theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgui_bundle import ImVec2Like

    from splatview_viewer.kinds.gaussians.region_tools import RegionKind
    from splatview_viewer.kinds.gaussians.select import Select, SelectMode

_MODES: dict[SelectMode, str] = {
    "new": "New",
    "add": "Add",
    "remove": "Take away",
    "intersect": "Intersect",
}
_MODE_TIPS = (
    "A region replaces what was chosen before it",
    "A region adds to what is chosen (Shift)",
    "A region takes away from what is chosen (Ctrl)",
    "A region keeps only what is chosen within it (Shift + Ctrl)",
)
_TOOLS = {"box": "Box", "lasso": "Lasso", "brush": "Brush"}
_DASH = (6.0, 4.0)
_PAD = 14.0
_BOTTOM = 14.0
_GAP = 6.0
_BUTTONS = (
    ("hide", "Hide", 78.0),
    ("eye", "Only these", 116.0),
    ("save", "Save them", 112.0),
)
"""Icons, texts and widths of the buttons of the bar, points."""


class _BarForm(NamedTuple):
    """A form of the bar of chosen Gaussians; lengths in points."""

    height: float
    button: float
    """Height of its buttons, and the width of those without a text."""
    words: float
    """Width of the number, and of what follows it."""
    has_texts: bool

    def button_width(self, width: float) -> float:
        """Return the width of a button that has this one with its text."""
        return width if self.has_texts else self.button

    @property
    def width(self) -> float:
        buttons = [self.button_width(width) for _, _, width in _BUTTONS]
        buttons.append(self.button)
        return _PAD + self.words + sum(buttons) + len(buttons) * _GAP + 8


_WIDE = _BarForm(42.0, 28.0, 172.0, has_texts=True)
_NARROW = _BarForm(42.0, 28.0, 96.0, has_texts=False)
_TOUCH = _BarForm(52.0, 44.0, 84.0, has_texts=False)


def state_words(tool: Select) -> str:
    """Return how many are chosen: "3,118 chosen"."""
    mask = tool.mask
    if mask is None:
        return "none"
    return f"{mask.count:,} chosen"


def draw_panel(tool: Select) -> bool:
    """Draw the section; return True to draw the picture again."""
    view = tool.view
    tools = view.tools
    previous_state = view.state
    ui.row("With")
    tool_name = choices.segments("With", tools.chosen, _TOOLS)
    if tool_name != tools.chosen:
        tools.choose(tool_name)
    elif tools.chosen == ORBIT:
        controls.tip("Keys: B, L, N")
    tool.mode = choices.segments("Mode", tool.mode, _MODES, _MODE_TIPS)
    tool.through = ui.segments(
        "Take",
        "In front: only what is seen. Through: also what is behind it",
        tool.through,
        {False: "In front", True: "Through"},
    )
    if tools.chosen == "brush":
        tool.radius = ui.slider(
            "Brush",
            "Radius of the brush",
            tool.radius,
            (4.0, 120.0),
            "%.0f",
            reset=24.0,
        )
    pressed = ui.buttons(
        "",
        ["Invert", "Choose none"],
        ["Choose those that are not chosen", "Escape"],
        ["swap", "close"],
        [None, tool.why_none],
    )
    if pressed == 0:
        tool.invert()
    elif pressed == 1:
        tool.choose_none()
    script = tools.of(SendSelection)
    if script.is_read:
        script.is_shared = ui.check(
            "Script",
            "splatview.selection() gives it the chosen Gaussians as a mask; where none is "
            "chosen, those that filter, crop and hiding leave",
            script.is_shared,
            "The script reads this selection",
        )
    hidden = view.state.selection.hidden
    if hidden is not None:
        ui.wrapped(f"{hidden.count:,} are hidden: Show all brings them back", theme.DIM)
    return previous_state is not view.state


def place_bar(tool: Select, rect: Rect, scale: float) -> Rect | None:
    """Return where the bar of the chosen Gaussians lies; None while none are."""
    view = tool.view
    around = view.host.around
    if tool.mask is None or around == "none" or not view.host.in_active_pane:
        return None
    # A photograph has all of a phone, and its line is moved there.
    through = view.tools.of(Frustums).through
    if around == "phone" and through.index is not None:
        return None
    form = _choose_form(tool, rect, scale)
    if form.width > rect.width / scale or rect.height < 3 * form.height * scale:
        return None
    bottom = _BOTTOM * scale
    if around == "phone":
        bottom += theme.PHONE_TIME_HEIGHT * scale
    bottom += view.tools.bars_height
    pixels = round(form.width * scale)
    height = round(form.height * scale)
    x = rect.x + (rect.width - pixels) // 2
    legend = view.legend_place(rect, scale)
    if legend is not None and legend.x < x + pixels + _GAP * scale:
        bottom = max(bottom, rect.y + rect.height - legend.y + _GAP * scale)
    return Rect(x, round(rect.y + rect.height - bottom - height), pixels, height)


def _choose_form(tool: Select, rect: Rect, scale: float) -> _BarForm:
    if tool.view.host.around == "phone":
        return _TOUCH
    if _WIDE.width + 2 * _PAD > rect.width / scale:
        return _NARROW
    return _WIDE


def draw_bar(tool: Select, rect: Rect, scale: float) -> bool:
    """Draw how many are chosen, and what can be done with them."""
    bar = place_bar(tool, rect, scale)
    mask = tool.mask
    if bar is None or mask is None:
        return False
    form = _choose_form(tool, rect, scale)
    imgui.push_style_var(imgui.StyleVar_.window_rounding.value, 6 * scale)
    with boards.board(f"chosen {id(tool)}", bar, color=theme.CARD) as is_open:
        imgui.pop_style_var()
        if not is_open:
            return False
        _write_count(bar, f"{mask.count:,}", has_words=form.has_texts, scale=scale)
        x = bar.x + (_PAD + form.words) * scale
        y = bar.y + (bar.height - form.button * scale) / 2
        height = form.button * scale
        pressed = ""
        for icon, text, width in _BUTTONS:
            size = (form.button_width(width) * scale, height)
            imgui.set_cursor_screen_pos(ImVec2(x, y))
            if _draw_button(icon, text if form.has_texts else "", text, size, scale):
                pressed = text
            x += size[0] + _GAP * scale
        imgui.set_cursor_screen_pos(ImVec2(x, y))
        if _draw_button("close", "", "choose none", (height, height), scale):
            pressed = "choose none"
        actions = {
            "Hide": tool.hide,
            "Only these": tool.show_only,
            "Save them": tool.save,
            "choose none": tool.choose_none,
        }
        if pressed:
            actions[pressed]()
        return bool(pressed)


def _write_count(bar: Rect, count: str, *, has_words: bool, scale: float) -> None:
    """Write the number of chosen Gaussians at the left of the bar."""
    draw = imgui.get_window_draw_list()
    x = bar.x + _PAD * scale
    with theme.bold():
        y = round(bar.y + (bar.height - imgui.get_text_line_height()) / 2)
        lettering.write(draw, round(x), y, theme.u32(theme.INK), count)
        x += lettering.measure(count).x + 5 * scale
    if has_words:
        ink = theme.u32(theme.INK)
        lettering.write(draw, round(x), y, ink, "Gaussians chosen")


def _draw_button(
    icon: str, text: str, name: str, size: tuple[float, float], scale: float
) -> bool:
    """Draw a button on the bar, whose colours are those over pictures."""
    button = controls.item(f"{name}##chosen", *size)
    ground = ImVec4(0x28 / 255, 0x2C / 255, 0x33 / 255, 1)
    if button.hovered:
        ground = theme.CARD_HOVERED
    draw = imgui.get_window_draw_list()
    if text or button.hovered:
        rounding = theme.FIELD_ROUNDING * scale
        draw.add_rect_filled(button.low, button.high, theme.u32(ground), rounding)
    middle_x, middle_y = button.middle
    if not text:
        icons.draw(draw, icon, (middle_x, middle_y), theme.INK_DIM, 14)
        controls.tip("Choose none (Escape)" if name == "choose none" else name)
        return button.pressed
    content = 20 * scale + lettering.measure(text).x
    x = middle_x - content / 2
    icons.draw(draw, icon, (x + 7 * scale, middle_y), theme.INK_DIM, 14)
    top = round(middle_y - imgui.get_text_line_height() / 2)
    lettering.write(draw, round(x + 20 * scale), top, theme.u32(theme.INK), text)
    return button.pressed


# -- regions ---------------------------------------------------------------------------


def draw_region(
    kind: RegionKind,
    points: Sequence[tuple[float, float]],
    radius: float,
    rect: Rect,
    scale: float,
) -> None:
    """Draw the region that the pointer draws, over the picture in `rect`."""
    draw = imgui.get_background_draw_list()
    push_clip_rect(draw, rect)
    outline = list(points)
    if kind == "box":
        (x0, y0), (x1, y1) = points[0], points[-1]
        outline = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    corners: list[ImVec2Like] = [ImVec2(x, y) for x, y in outline]
    if kind == "brush":
        line = theme.u32(theme.SELECTED, 0.12)
        draw.add_polyline(corners, line, 2 * radius, 0)
        for corner in (corners[0], corners[-1]):
            draw.add_circle_filled(corner, radius, line, 32)
    elif len(points) > 1:
        draw.add_concave_poly_filled(corners, theme.u32(theme.SELECTED, 0.07))
        shade = theme.u32(theme.STAGE, 0.7)
        draw.add_polyline([*corners, corners[0]], shade, 4 * scale, 0)
        _draw_dashes(draw, [*outline, outline[0]], scale)
    draw.pop_clip_rect()


def _draw_dashes(
    draw: imgui.ImDrawList, corners: Sequence[tuple[float, float]], scale: float
) -> None:
    """Draw a dashed line through corners."""
    dash, gap = (points * scale for points in _DASH)
    color = theme.u32(theme.SELECTED)
    path_length = 0.0
    for a, b in itertools.pairwise(corners):
        length = math.dist(a, b)
        position = 0.0
        while position < length:
            phase = (path_length + position) % (dash + gap)
            step = (dash if phase < dash else dash + gap) - phase
            end = min(position + max(step, 0.5), length)
            if phase < dash:
                start_at = _interpolate(a, b, position / length)
                draw.add_line(
                    start_at, _interpolate(a, b, end / length), color, 1.6 * scale
                )
            position = end
        path_length += length


def _interpolate(
    a: tuple[float, float], b: tuple[float, float], share: float
) -> ImVec2:
    return ImVec2(a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share)


def draw_brush(
    point: tuple[float, float], radius: float, rect: Rect, scale: float
) -> None:
    """Draw the circle of the brush around the pointer."""
    if not rect.contains(*point):
        return
    draw = imgui.get_background_draw_list()
    middle = ImVec2(*point)
    draw.add_circle(middle, radius, theme.u32(theme.STAGE, 0.7), 48, 3.5 * scale)
    draw.add_circle(middle, radius, theme.u32(theme.SELECTED), 48, 1.6 * scale)
