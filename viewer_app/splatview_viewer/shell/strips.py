"""The strips above the panes: what each shows, facts of it, and buttons for the pane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.shell.layout import Layout
from splatview_viewer.ui import controls, icons, lettering, theme
from splatview_viewer.ui.widgets import board, fitted

if TYPE_CHECKING:
    from splatview_viewer.core.view import Info
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport

_TIP = "Double click: this one alone, and back. Ctrl + Tab: the next one."
_BUTTON = 24.0


def draw_strips(user: User, info: Info, scale: float) -> None:
    """Draw the strips of the panes that are seen.

    info: of the active one.
    """
    for viewport in user.layout.seen:
        if not viewport.head.height:
            continue
        number = user.layout.all.index(viewport)
        own = info if viewport is user.layout.active else viewport.info()
        with board(f"strip {number}", viewport.head, color=theme.BAR) as opened:
            if opened:
                _draw_strip(viewport, own, user, scale)


def _draw_strip(viewport: Viewport, info: Info, user: User, scale: float) -> None:
    """Draw one strip: a name and a run at the left, facts and buttons at the right."""
    strip = viewport.head
    layout = user.layout
    number = layout.all.index(viewport)
    is_active = viewport is layout.active
    right = _draw_buttons(viewport, user, scale)
    entry = viewport.entry
    name = "Empty" if entry is None else entry.name
    group = "" if entry is None else entry.group
    imgui.set_cursor_screen_pos(ImVec2(strip.x, strip.y))
    of = controls.item(f"name {number}", right - strip.x, strip.height)
    if of.hovered and imgui.is_mouse_double_clicked(imgui.MouseButton_.left):
        user.do(user.on_viewport, Layout.maximise, viewport)
    elif of.pressed:
        user.do(user.on_viewport, Layout.activate, viewport)
    controls.tip(f"{name}, {group}\n{_TIP}" if group else _TIP)
    draw = imgui.get_window_draw_list()
    middle = strip.y + strip.height / 2
    x = strip.x + 12 * scale
    kind = "" if entry is None else entry.kind
    icons.draw(draw, icons.of_kind(kind), (x + 7 * scale, middle), theme.DIM, 14)
    x += 20 * scale
    room = right - x - 12 * scale
    top = round(middle - imgui.get_text_line_height() / 2)
    with theme.bold():
        title = fitted(name, room)
        ink = theme.TEXT if is_active or len(layout) == 1 else theme.DIM
        lettering.write(draw, round(x), top, theme.u32(ink), title)
        x += lettering.measure(title).x + 10 * scale
    if group and x + lettering.measure(group).x <= right - 12 * scale:
        lettering.write(draw, round(x), top, theme.u32(theme.DIM), group)
        x += lettering.measure(group).x + 12 * scale
    _draw_facts(_facts(info, user, is_active), x, right - 8 * scale, middle)
    if is_active and len(layout.seen) > 1:
        draw.add_rect_filled(
            ImVec2(strip.x, strip.y + strip.height - 2 * scale),
            ImVec2(strip.x + strip.width, strip.y + strip.height),
            theme.u32(theme.ACCENT),
        )


def _facts(info: Info, user: User, is_active: bool) -> list[str]:
    """Return the facts of a pane, the most important ones first."""
    facts = list(info.details)
    rate = user.state.displayed_timings.fps
    if is_active and rate >= 2:
        facts.append(f"{rate:.0f} pictures/s")
    return facts


def _draw_facts(facts: list[str], left: float, right: float, middle: float) -> None:
    """Write as many facts as fit, ending at a pixel x."""
    with theme.font_size(theme.SMALL_SIZE):
        for count in range(len(facts), 0, -1):
            text = " \u00b7 ".join(facts[:count])
            width = lettering.measure(text).x
            if left + width > right:
                continue
            draw = imgui.get_window_draw_list()
            y = round(middle - imgui.get_text_line_height() / 2)
            lettering.write(draw, round(right - width), y, theme.u32(theme.DIM), text)
            return


def _draw_buttons(viewport: Viewport, user: User, scale: float) -> float:
    """Draw the buttons at the right of a strip; return the pixel x where they begin."""
    layout = user.layout
    strip = viewport.head
    number = layout.all.index(viewport)
    side = min(_BUTTON * scale, strip.height)
    x = strip.x + strip.width - side - 4 * scale
    y = strip.y + (strip.height - side) / 2
    several = len(layout) > 1
    buttons = [("panel", f"beside {number}", "Show another stream beside it")]
    if several:
        alone = "All panes again" if layout.maximised else "This pane alone"
        buttons.append(("alone", f"alone {number}", alone))
        buttons.append(
            (
                "close",
                f"close {number}",
                "Close this pane; its stream stays in the list",
            )
        )
    actions = {
        "panel": lambda: user.do(user.show_beside, viewport.key),
        "alone": lambda: user.do(user.on_viewport, Layout.maximise, viewport),
        "close": lambda: user.do(user.on_viewport, Layout.remove, viewport),
    }
    for icon, name, hint in reversed(buttons):
        imgui.set_cursor_screen_pos(ImVec2(x, y))
        if controls.icon_button(icon, name, side=side / scale, hint=hint):
            actions[icon]()
        x -= side + 2 * scale
    return x + side
