"""Cards over a pane with buttons: what to do while there is no run, and its end.

A file that cannot be opened has one as well.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_ipc.system.terminal import printable
from splatview_viewer import kinds
from splatview_viewer.core.screen import Rect
from splatview_viewer.ui import controls, icons, lettering, theme
from splatview_viewer.ui.boards import board
from splatview_viewer.ui.widgets import lines_of
from splatview_viewer.ui.words import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.core.settings import Entry
    from splatview_viewer.shell.opening import Refusal
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport

LINES = """\
import splatview

for step in range(30_000):
    ...
    splatview.publish(splats, meta={"step": step})
    splatview.log(step, loss=loss)
    splatview.wait_while_paused()
"""
"""What a training script needs, to be pasted."""


def _rgb(red: int, green: int, blue: int) -> ImVec4:
    return ImVec4(red / 255, green / 255, blue / 255, 1.0)


_KEYWORD = _rgb(0xC7, 0x92, 0xEA)
_CALL = _rgb(0x82, 0xB1, 0xFF)
_DIGITS = _rgb(0xF2, 0xB8, 0x5C)
_COMMENT = _rgb(0x8B, 0x93, 0xA1)
_BOX = _rgb(0x16, 0x18, 0x1C)
_EDGE = _rgb(0x2E, 0x32, 0x3A)
_BUTTON = _rgb(0x28, 0x2C, 0x33)
_BUTTON_OVER = _rgb(0x33, 0x38, 0x42)
# All of this lies over pictures, which are dark in both themes.
_CODE: tuple[tuple[tuple[tuple[str, ImVec4], ...], str], ...] = (
    ((("import ", _KEYWORD), ("splatview", theme.INK)), ""),
    ((), ""),
    (
        (
            ("for ", _KEYWORD),
            ("step ", theme.INK),
            ("in ", _KEYWORD),
            ("range", _CALL),
            ("(", theme.INK),
            ("30_000", _DIGITS),
            ("):", theme.INK),
        ),
        "",
    ),
    ((("    ...", theme.INK),), "# your training step, as it is"),
    (
        (
            ("    splatview.", theme.INK),
            ("publish", _CALL),
            ('(splats, meta={"step": step})', theme.INK),
        ),
        "# the scene",
    ),
    (
        (
            ("    splatview.", theme.INK),
            ("log", _CALL),
            ("(step, loss=loss)", theme.INK),
        ),
        "# its curves",
    ),
    (
        (
            ("    splatview.", theme.INK),
            ("wait_while_paused", _CALL),
            ("()", theme.INK),
        ),
        "# the Pause button",
    ),
)
"""The lines in colours, and the comment behind each."""
_WIDTH = 640.0
_LINE = 23.0
_COMMENTS_AT = 52
"""Letters before the comments."""
_HEIGHT = 318.0
_END_HEIGHT = 48.0
_TOOLS = 52.0
"""Points at the left of a picture that its tools have."""
_PHONE_TOOLS = 60.0
"""Points at the right of a phone's picture that its tools have."""
_REASON_LINES = 2
"""Lines of why a file cannot be opened."""
_DETAIL_LINES = 8
_DETAILS_WIDTH = 76.0
"""Points of the button that shows all of the reason."""


def seen_part(viewport: Viewport) -> Rect:
    """Return the part of a pane's picture that a panel over it leaves free."""
    picture = viewport.rect
    zones = viewport.user.interface.zones
    if zones.form != "narrow":
        return picture
    hidden = min(max(zones.panel.x + zones.panel.width - picture.x, 0), picture.width)
    return Rect(picture.x + hidden, picture.y, picture.width - hidden, picture.height)


def free_part(viewport: Viewport, scale: float) -> Rect:
    """Return the part of a pane's picture in which a card covers no tools."""
    picture = seen_part(viewport)
    if viewport.user.interface.zones.form == "phone":
        tools_width = round(_PHONE_TOOLS * scale)
        return Rect(picture.x, picture.y, picture.width - tools_width, picture.height)
    tools_width = round(_TOOLS * scale)
    return Rect(
        picture.x + tools_width,
        picture.y,
        picture.width - tools_width,
        picture.height,
    )


@contextmanager
def dark_card(
    name: str, viewport: Viewport, rect: Rect, *, ground: ImVec4 = theme.CARD
) -> Iterator[bool]:
    """Open a dark card over a picture, the same in both themes.

    Yields False if nothing of it can be seen.
    """
    viewport.cards.append(rect)
    index = viewport.user.layout.all.index(viewport)
    with board(f"{name} {index}", rect, color=theme.CLEAR) as opened:
        if opened:
            high = ImVec2(rect.x + rect.width, rect.y + rect.height)
            imgui.get_window_draw_list().add_rect_filled(
                ImVec2(rect.x, rect.y),
                high,
                theme.u32(ground),
                6 * theme.scale(),
            )
        yield opened


# -- no run yet ------------------------------------------------------------------------


def draw_empty(user: User, viewport: Viewport, scale: float) -> None:
    """Draw the lines that a training script needs, and copy them at a press."""
    picture = seen_part(viewport)
    width = min(_WIDTH * scale, picture.width - 24 * scale)
    height = min(_HEIGHT * scale, picture.height)
    if width < 120 * scale or height < 60 * scale:
        return
    x = round(picture.x + (picture.width - width) / 2)
    y = round(picture.y + max((picture.height - height) / 2, 0))
    rect = Rect(x, y, round(width), round(height))
    with dark_card("empty", viewport, rect, ground=theme.CLEAR) as opened:
        if opened:
            _draw_empty(user, rect, scale)


def _draw_empty(user: User, rect: Rect, scale: float) -> None:
    x = rect.x
    y = rect.y + 13 * scale
    with theme.bold(23.5):
        write("Waiting for a run", x, y, theme.INK, rect.width)
    y += 28 * scale
    text = (
        "Three lines in your training script. They take it a few microseconds a step."
    )
    write(text, x, y, theme.INK_DIM, rect.width)
    y += 27 * scale
    height = (30 + _LINE * len(_CODE)) * scale
    draw = imgui.get_window_draw_list()
    low = ImVec2(x, y)
    high = ImVec2(x + rect.width, y + height)
    draw.add_rect_filled(low, high, theme.u32(_BOX), 7 * scale)
    draw.add_rect(low, high, theme.u32(_EDGE), 7 * scale)
    draw.push_clip_rect(low, high, True)
    _draw_code(x + 16 * scale, y + 14 * scale, rect.width)
    draw.pop_clip_rect()
    corner = (high.x - 10 * scale - 74 * scale, y + 10 * scale)
    if dark_button("Copy", "copy", corner, 74):
        user.do(user.screen.desktop.copy, LINES)
        user.do(user.say, "Copied the lines")
    y += height + 24 * scale
    with theme.font_size(theme.SMALL_SIZE):
        text = (
            "Looked for in the run folder of this user. A script on another machine, or "
            "of another user, is not seen:"
        )
        write(text, x, y, theme.INK_DIM, rect.width)
        y += 20 * scale
        for text, is_code in (
            ("run ", False),
            ("splatview serve --web", True),
            (" there, and ", False),
            ("splatview doctor", True),
            (" if it stays empty.", False),
        ):
            if is_code:
                with theme.code(theme.SMALL_SIZE):
                    x = write(text, x, y, theme.INK)
            else:
                x = write(text, x, y, theme.INK_DIM)


def _draw_code(x: float, y: float, width: float) -> None:
    """Draw the lines of code, with comments where there is room."""
    scale = theme.scale()
    with theme.code(14.5):
        letter = lettering.measure("0").x
        has_comments = (_COMMENTS_AT + 30) * letter + 24 * scale <= width
        for pieces, comment in _CODE:
            middle = y + _LINE / 2 * scale
            end = x
            for text, color in pieces:
                end = write(text, end, middle, color)
            if comment and has_comments:
                write(comment, x + _COMMENTS_AT * letter, middle, _COMMENT)
            y += _LINE * scale


# -- the end of a run ------------------------------------------------------------------


def draw_end(user: User, viewport: Viewport, entry: Entry, scale: float) -> None:
    """Say once that the run of what is shown ended, and offer to save it."""
    picture = seen_part(viewport)
    title = _end_title(entry)
    remark = f"{_LAST.get(entry.kind, 'This is the last that')} it published."
    save = _save_button(entry)
    with theme.bold():
        said_width = lettering.measure(title).x
    more_width = lettering.measure(remark).x + 6 * scale
    save_width = 0.0
    if save is not None:
        save_width = (save[2] + 14) * scale
    available_width = picture.width - 120 * scale
    margins = 16 * scale + 14 * scale + 40 * scale
    if said_width + more_width + save_width + margins > available_width:
        remark = ""
        more_width = 0.0
    if said_width + save_width + margins > available_width:
        save = None
        save_width = 0.0
    width = round(said_width + more_width + save_width + margins)
    height = round(_END_HEIGHT * scale)
    if width > picture.width or height > picture.height / 2:
        return
    x = round(picture.x + (picture.width - width) / 2)
    rect = Rect(x, round(picture.y + 14 * scale), width, height)
    with dark_card("end", viewport, rect) as opened:
        if not opened:
            return
        middle = rect.y + rect.height / 2
        with theme.bold():
            end = write(title, rect.x + 16 * scale, middle, theme.INK)
        if remark:
            write(remark, end + 6 * scale, middle, theme.INK_DIM)
        right = rect.x + rect.width - 40 * scale
        corner = (right, middle - 15 * scale)
        if dark_button("", "close", corner, 30, name="close the card"):
            user.do(_dismiss, viewport, entry)
        if save is not None and _draw_save_button(save, corner, scale):
            user.do(_save, viewport, entry)


def _end_title(entry: Entry) -> str:
    if entry.step is None:
        return "The run ended."
    return f"The run ended at step {entry.step:,.12g}."


def _draw_save_button(
    save: tuple[str, str, float], corner: tuple[float, float], scale: float
) -> bool:
    """Draw the button that saves, left of a corner; return True if it was pressed."""
    text, icon, points = save
    right, top = corner
    return dark_button(text, icon, (right - (points + 6) * scale, top), points)


def draw_refusal(
    user: User, viewport: Viewport, refusal: Refusal, scale: float
) -> None:
    """Say that a file could not be opened, and why, over what stays.

    All of the reason, and where the file is, come with "Details".
    """
    picture = seen_part(viewport)
    free = free_part(viewport, scale)
    width = round(min(560 * scale, free.width - 24 * scale))
    line = imgui.get_text_line_height()
    is_whole = viewport.shows_details
    lines = _lines_of_refusal(refusal, width - 32 * scale, is_whole=is_whole)
    height = round(_END_HEIGHT * scale + len(lines) * line + 12 * scale)
    if width < 120 * scale or height > picture.height:
        return
    centered_x = picture.x + (picture.width - width) / 2
    last_x = free.x + free.width - 12 * scale - width
    x = round(min(max(centered_x, free.x + 12 * scale), last_x))
    rect = Rect(x, round(picture.y + 14 * scale), width, height)
    with dark_card("refusal", viewport, rect) as opened:
        if not opened:
            return
        middle = rect.y + _END_HEIGHT / 2 * scale
        left = rect.x + 16 * scale
        buttons_width = (_DETAILS_WIDTH + 52) * scale
        with theme.bold():
            title = f"{refusal.name} cannot be opened"
            title_width = width - 16 * scale - buttons_width
            write(title, left, middle, theme.INK_FAULT, title_width)
        top = rect.y + _END_HEIGHT * scale
        for text in lines:
            write(text, left, top + line / 2, theme.INK)
            top += line
        right = rect.x + rect.width
        corner = (right - buttons_width, middle - 15 * scale)
        text = "Details"
        if is_whole:
            text = "Less"
        if dark_button(text, "", corner, _DETAILS_WIDTH, name="details of the refusal"):
            user.do(_switch_details, viewport)
        corner = (right - 40 * scale, middle - 15 * scale)
        if dark_button("", "close", corner, 30, name="close the refusal"):
            user.do(_put_away, viewport)


def _lines_of_refusal(refusal: Refusal, width: float, *, is_whole: bool) -> list[str]:
    """Return why a file could not be opened, in lines of `width` pixels."""
    reason = refusal.reason.removeprefix(f"{refusal.path}: ")
    if not is_whole:
        return lines_of(reason, width, _REASON_LINES)
    path = lines_of(printable(refusal.path), width, _REASON_LINES)
    return [*lines_of(reason, width, _DETAIL_LINES), *path]


def _switch_details(viewport: Viewport) -> None:
    viewport.shows_details = not viewport.shows_details
    viewport.user.mark_interface()


def _put_away(viewport: Viewport) -> None:
    viewport.refusal = None
    viewport.shows_details = False
    viewport.user.mark_interface()


_LAST = {
    "gaussians": "This is the last scene",
    "rendered": "This is the last picture",
    "image": "This is the last picture",
    "cameras": "These are the last cameras",
    "scalars": "These are the last curves",
    "memory": "This is the last memory",
}
"""What is shown of a run that ended, by kind."""


_SAVED = {"image": ("Save the picture", "camera", 146.0)}
"""Text, icon and points of the button that saves the last picture, by kind."""


def has_end_card(viewport: Viewport, entry: Entry) -> bool:
    """Return whether a viewport is to say that the run of its entry ended."""
    return not entry.alive and viewport.dismissed != _end_of(entry)


def _end_of(entry: Entry) -> str:
    return f"{entry.key} {entry.ended_at}"


def _dismiss(viewport: Viewport, entry: Entry) -> None:
    viewport.dismissed = _end_of(entry)
    viewport.user.mark_interface()


def _save_button(entry: Entry) -> tuple[str, str, float] | None:
    """Return text, icon and points of the button that saves what is shown."""
    if kinds.about(entry.kind).filmed:
        return "Save the scene", "save", 130
    return _SAVED.get(entry.kind)


def _save(viewport: Viewport, entry: Entry) -> None:
    if kinds.about(entry.kind).filmed:
        viewport.run_named("scene.save")
    else:
        viewport.keep_picture()


# -- drawing ---------------------------------------------------------------------------


def dark_button(
    text: str, icon: str, corner: tuple[float, float], width: float, name: str = ""
) -> bool:
    """Draw a button over a picture; return True if it was pressed.

    Args:
        text: on it; "" for an icon alone.
        icon: one of `ui.icons`; "" for a text alone.
        corner: the pixel of its corner.
        width: points.
        name: for imgui; without, the text.
    """
    scale = theme.scale()
    imgui.set_cursor_screen_pos(ImVec2(round(corner[0]), round(corner[1])))
    height = 30
    if text == "Copy":
        height = 28
    target = controls.item(name or text, width * scale, height * scale)
    draw = imgui.get_window_draw_list()
    ground = theme.CLEAR
    if text:
        ground = _BUTTON
    if target.hovered or target.is_held:
        ground = _BUTTON_OVER
    rounding = theme.FIELD_ROUNDING * scale
    draw.add_rect_filled(target.low, target.high, theme.u32(ground), rounding)
    if not text:
        icons.draw(draw, icon, target.middle, theme.INK_DIM, icons.TEXT_SIZE)
        return target.pressed
    icon_width = 0.0
    if icon:
        icon_width = 22 * scale
    x = target.x + (target.width - lettering.measure(text).x - icon_width) / 2
    if icon:
        center = (x + 7 * scale, target.middle[1])
        icons.draw(draw, icon, center, theme.INK_DIM, icons.TEXT_SIZE)
    write(text, x + icon_width, target.middle[1], theme.INK)
    return target.pressed
