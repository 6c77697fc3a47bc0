"""The interface's own controls: buttons, segments, heads of sections, tabs, tips.

Each is an imgui item that the keyboard reaches, drawn in the theme's colours. Their names
are for imgui, unlike all others of a window; a text for the user comes beside.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.ui import icons, lettering, theme

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

BADGE_SIDE = 18.0
"""Points of a badge's sides."""
_TIP_WIDTH = 300.0
"""Points of a tip's text at most."""
_TIP_GAP = 8.0
_REACHABLE = imgui.ButtonFlags_.enable_nav.value
"""The flag of items that the keyboard reaches."""
UNDERLINE = 2.0
"""Points of the line below what is chosen."""


# -- tips ------------------------------------------------------------------------------

_tip_rect: Rect | None = None
"""Where tips lie; None: below their control."""
_allows_tips = True


@contextmanager
def tips_in(rect: Rect) -> Iterator[None]:
    """Put the tips of what is drawn inside into a rectangle, next to their control.

    So a tip covers neither the control that it explains nor those around it.
    """
    global _tip_rect
    previous = _tip_rect
    _tip_rect = rect
    try:
        yield
    finally:
        _tip_rect = previous


def tips_beside(x: float) -> AbstractContextManager[None]:
    """Put the tips of what is drawn inside right of x, at the height of their control."""
    screen = imgui.get_io().display_size
    left = round(x)
    return tips_in(Rect(left, 0, round(screen.x) - left, round(screen.y)))


def allow_tips(allowed: bool) -> None:
    """Show tips from now on, or none.

    Every screen has its own pointer, so this is called before each frame.
    """
    global _allows_tips
    _allows_tips = allowed


def tip(text: str) -> None:
    """Explain the last item once the pointer has rested on it; "" for nothing.

    None is shown while a popup is open or a button is held.
    """
    if not text or not imgui.is_item_hovered(_TIP_FLAGS):
        return
    if not _allows_tips or imgui.is_any_mouse_down():
        return
    tell(text, imgui.get_item_rect_min().x)


def tell(text: str, x: float) -> None:
    """Tell of the last item, at once: of a pixel x of it.

    Nothing is told while a popup is open.
    """
    if imgui.is_popup_open("", imgui.PopupFlags_.any_popup):
        return
    imgui.set_next_window_pos(_tip_corner(text, x))
    if imgui.begin_tooltip():
        lettering.show(text, _TIP_WIDTH * theme.scale())
        imgui.end_tooltip()


def _tip_corner(text: str, x: float) -> ImVec2:
    """Return the pixel of the corner of a tip at x, all of it on the screen."""
    low = imgui.get_item_rect_min()
    high = imgui.get_item_rect_max()
    gap = _TIP_GAP * theme.scale()
    pad = imgui.get_style().window_padding
    extent = lettering.extent(text, _TIP_WIDTH * theme.scale())
    width = extent.x + 2 * pad.x
    height = extent.y + 2 * pad.y
    screen = imgui.get_io().display_size
    rect = _tip_rect
    if rect is not None and gap + width <= rect.width:
        right = rect.x + rect.width - width
        bottom = rect.y + rect.height - height
        place_x = max(min(x, right), rect.x + gap)
        return ImVec2(place_x, max(min(low.y, bottom), rect.y))
    y = high.y + gap
    if y + height > screen.y:
        y = low.y - gap - height
    return ImVec2(max(min(x, screen.x - width), 0), max(y, 0))


_TIP_FLAGS = (
    imgui.HoveredFlags_.for_tooltip | imgui.HoveredFlags_.allow_when_disabled
).value


# -- items -----------------------------------------------------------------------------


# Not frozen: there are a hundred in a frame, and setting fields of those is slow.
@dataclass(slots=True)
class Item:
    """An item of imgui's, and its state in this frame."""

    x: float
    y: float
    width: float
    height: float
    pressed: bool
    """True if it was clicked, or chosen by the keyboard."""
    hovered: bool
    is_held: bool

    @property
    def middle(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height / 2

    @property
    def low(self) -> ImVec2:
        return ImVec2(self.x, self.y)

    @property
    def high(self) -> ImVec2:
        return ImVec2(self.x + self.width, self.y + self.height)


def item(name: str, width: float, height: float, *, enabled: bool = True) -> Item:
    """Place an item that the pointer and the keyboard reach, with nothing drawn.

    Args:
        name: for imgui.
        width: pixels; with `height`, at least one is taken.
        height: pixels.
        enabled: False for one that does nothing, but has a tip.
    """
    corner = imgui.get_cursor_screen_pos()
    width = max(width, 1.0)
    height = max(height, 1.0)
    if not enabled:
        imgui.begin_disabled()
    pressed = imgui.invisible_button(name, ImVec2(width, height), _REACHABLE)
    if not enabled:
        imgui.end_disabled()
    return Item(
        corner.x,
        corner.y,
        width,
        height,
        pressed,
        imgui.is_item_hovered(),
        imgui.is_item_active(),
    )


def focus_next() -> None:
    """Give the next item the focus of the keyboard, without pressing it."""
    imgui.set_keyboard_focus_here()
    context = imgui.get_current_context()
    flags = imgui.internal.NavMoveFlags_
    unwanted = flags.activate | flags.no_set_nav_cursor_visible
    context.nav_move_flags &= ~unwanted.value
    imgui.set_nav_cursor_visible(True)


def open_head(title: str) -> None:
    """Open the section of this title from now on, before its head is drawn."""
    key = imgui.get_id(f"{title} is open")
    imgui.get_state_storage().set_bool(key, True)


def ground_of(target: Item, resting: ImVec4) -> ImVec4:
    """Return the colour of an item's ground."""
    if target.is_held:
        return theme.DOWN
    if target.hovered:
        return theme.HOVER
    return resting


def fill(target: Item, color: ImVec4, rounding: float = theme.FIELD_ROUNDING) -> None:
    if color.w > 0:
        imgui.get_window_draw_list().add_rect_filled(
            target.low, target.high, theme.u32(color), rounding * theme.scale()
        )


def draw_ground(target: Item, resting: ImVec4 | None = None) -> None:
    """Draw the ground of an item in the colour of its state.

    resting: its colour while it rests; none without.
    """
    fill(target, ground_of(target, resting or theme.CLEAR))


def _underline(target: Item, inset: float = 0.0) -> None:
    """Draw the line below what is chosen, so that this is not colour alone."""
    scale = theme.scale()
    bottom = target.y + target.height
    imgui.get_window_draw_list().add_rect_filled(
        ImVec2(target.x + inset * scale, bottom - UNDERLINE * scale),
        ImVec2(target.x + target.width - inset * scale, bottom),
        theme.u32(theme.ACCENT),
        theme.scale(),
    )


def write_around(text: str, x: float, middle: float, color: ImVec4) -> None:
    """Write a text from a pixel x on, around a pixel y, in the font in use."""
    # Halves are rounded down the screen, as browsers do.
    y = math.floor(middle - imgui.get_text_line_height() / 2 + 0.5)
    draw = imgui.get_window_draw_list()
    lettering.write(draw, round(x), y, theme.u32(color), text)


# -- buttons ---------------------------------------------------------------------------

ButtonLook = Literal["field", "primary", "flat"]
_BUTTON_PADS: dict[ButtonLook, float] = {"field": 12.0, "primary": 12.0, "flat": 10.0}
"""Points at both sides of what is on a button."""
_SMALL_BUTTON = 28.0
_FINGER_BUTTON = 40.0
"""Points of a button below, or above, which its icon has another size."""
_ICON_BOX = 14.0
"""Points that an icon has before the text of a button."""
_ICON_GAP = 8.0
"""Points between an icon and its text."""


def button(
    text: str,
    icon: str = "",
    *,
    name: str = "",
    width: float = 0.0,
    height: float = 0.0,
    look: ButtonLook = "field",
    reason: str | None = None,
    hint: str = "",
) -> bool:
    """Draw a button; return True if it was pressed.

    Args:
        text: on it; "" for an icon alone.
        icon: before the text, one of `icons`; "" for none.
        name: for imgui; without, the text.
        width: points; 0: as wide as its content, -1: what is left of the line.
        height: points; 0: that of a row.
        look: "primary" for the one that most people look for, at most one in a zone;
            "flat" for no ground while it rests.
        reason: why it cannot be pressed now; None: it can.
        hint: its tip.
    """
    scale = theme.scale()
    content = _content_width(text, icon)
    if width < 0:
        pixels = imgui.get_content_region_avail().x
    elif width > 0:
        pixels = width * scale
    else:
        pixels = content + 2 * _BUTTON_PADS[look] * scale
    enabled = reason is None
    height = height or theme.ROW_HEIGHT
    target = item(name or text or icon, pixels, height * scale, enabled=enabled)
    if look == "flat":
        resting_ground = theme.CLEAR
    else:
        resting_ground = theme.FIELD
    if not enabled:
        ground = resting_ground
        ink = theme.FAINT
    elif look == "primary":
        ground = theme.ACCENT
        ink = theme.ON_ACCENT
    else:
        ground = ground_of(target, resting_ground)
        ink = theme.TEXT
    fill(target, ground)
    if look == "primary" or not enabled:
        icon_ink = ink
    else:
        icon_ink = theme.DIM
    _draw_content(target, text, icon, (ink, icon_ink), content)
    tip(reason or hint)
    return target.pressed and enabled


def _content_width(text: str, icon: str) -> float:
    """Return the pixels of an icon and a text beside it."""
    width = 0.0
    if text:
        width = lettering.measure(text).x
    if icon:
        width += _ICON_BOX * theme.scale()
    if icon and text:
        width += _ICON_GAP * theme.scale()
    return width


def _draw_content(
    target: Item, text: str, icon: str, inks: tuple[ImVec4, ImVec4], width: float
) -> None:
    """Draw an icon and a text in the middle of an item; the text is cut where it ends.

    Args:
        target: the item.
        text: "" for none.
        icon: "" for none.
        inks: the colours of text and icon.
        width: pixels of both together.
    """
    scale = theme.scale()
    x = target.x + max((target.width - width) / 2, 4 * scale)
    middle = target.y + target.height / 2
    draw = imgui.get_window_draw_list()
    if icon:
        center = (x + _ICON_BOX / 2 * scale, middle)
        icons.draw(draw, icon, center, inks[1], icons.TEXT_SIZE)
        x += (_ICON_BOX + _ICON_GAP) * scale
    if text and width > target.width - 4 * scale:
        text = lettering.fitted(text, target.x + target.width - 2 * scale - x)
    if text:
        write_around(text, x, middle, inks[0])


def draw_text(target: Item, text: str, ink: ImVec4) -> None:
    """Draw a text in the middle of an item."""
    _draw_content(target, text, "", (ink, ink), lettering.measure(text).x)


def icon_button(
    icon: str,
    name: str,
    *,
    side: float = 0.0,
    on: bool = False,
    ground: ImVec4 | None = None,
    reason: str | None = None,
    hint: str = "",
) -> bool:
    """Draw a square button with an icon; return True if it was pressed.

    Args:
        icon: one of `icons`.
        name: for imgui.
        side: points; 0: that of a button.
        on: True for what is on or chosen.
        ground: its colour while it rests; none without.
        reason: why it cannot be pressed now; None: it can.
        hint: its tip.
    """
    side = side or theme.BUTTON_HEIGHT
    pixels = side * theme.scale()
    enabled = reason is None
    target = item(name, pixels, pixels, enabled=enabled)
    color = ground_of(target, ground or theme.CLEAR)
    ink = theme.TEXT if target.hovered else theme.DIM
    if on:
        color = theme.CHOSEN_GROUND
        ink = theme.ON_CHOSEN
    if not enabled:
        color = ground or theme.CLEAR
        ink = theme.FAINT
    fill(target, color)
    points = icons.SIZE
    if side < _SMALL_BUTTON:
        points = icons.TEXT_SIZE
    elif side > _FINGER_BUTTON:
        points = icons.TOUCH_SIZE
    icons.draw(imgui.get_window_draw_list(), icon, target.middle, ink, points)
    tip(reason or hint)
    return target.pressed and enabled


# -- heads, tabs -----------------------------------------------------------------------


def head(title: str, opened: bool, state: str = "", hint: str = "") -> bool:
    """Draw the head of a section; return True while it is open.

    Args:
        title: its name, also for imgui.
        opened: True to open it at first.
        state: a few words at the right, so that a closed one still tells.
        hint: its tip.
    """
    scale = theme.scale()
    storage = imgui.get_state_storage()
    key = imgui.get_id(f"{title} is open")
    is_open = storage.get_bool(key, opened)
    width = imgui.get_content_region_avail().x
    target = item(title, width, theme.HEAD_HEIGHT * scale)
    if target.pressed:
        is_open = not is_open
        storage.set_bool(key, is_open)
    draw = imgui.get_window_draw_list()
    middle = target.middle[1]
    caret = "down" if is_open else "right"
    ink = theme.TEXT if target.hovered else theme.DIM
    icons.draw(draw, caret, (target.x + 6 * scale, middle), ink, icons.CARET_SIZE)
    with theme.bold():
        write_around(title, target.x + 20 * scale, middle, theme.TEXT)
        used = lettering.measure(title).x + 28 * scale
    if state:
        with theme.font_size(theme.SMALL_SIZE):
            size = lettering.measure(state).x
            if used + size <= target.width:
                write_around(state, target.x + target.width - size, middle, theme.FAINT)
    tip(hint)
    return is_open


def tabs(names: Sequence[str], chosen_tab: str, height: float) -> str:
    """Draw tabs over the width of the window; return the chosen one's name now."""
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    tab_width = imgui.get_content_region_avail().x / max(len(names), 1)
    for index, name in enumerate(names):
        imgui.set_cursor_screen_pos(ImVec2(corner.x + index * tab_width, corner.y))
        target = item(name, tab_width, height * scale)
        if target.pressed:
            chosen_tab = name
        is_chosen = name == chosen_tab
        ink = theme.TEXT if is_chosen or target.hovered else theme.DIM
        if is_chosen:
            _underline(target, 10)
            with theme.bold():
                draw_text(target, name, ink)
        else:
            draw_text(target, name, ink)
    return chosen_tab


def badge(letter: str, color: ImVec4, corner: tuple[float, float]) -> None:
    """Draw the letter of a run that is compared on a square of `BADGE_SIDE`."""
    scale = theme.scale()
    side = BADGE_SIDE * scale
    draw = imgui.get_window_draw_list()
    x = round(corner[0])
    y = round(corner[1])
    draw.add_rect_filled(
        ImVec2(x, y), ImVec2(x + side, y + side), theme.u32(color), 4 * scale
    )
    with theme.bold(13.5):
        width = imgui.calc_text_size(letter).x
        write_around(letter, x + (side - width) / 2, y + side / 2, theme.ON_ACCENT)
