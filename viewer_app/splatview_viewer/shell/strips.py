"""The strips above the panes: what each shows, facts of it, and buttons for the pane."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from imgui_bundle import ImVec2, imgui

from splatview_viewer.kinds import about
from splatview_viewer.shell.commands import named
from splatview_viewer.shell.layout import Layout
from splatview_viewer.shell.menu import (
    RULE,
    MenuRow,
    command_row,
    draw_menu,
    open_menu,
    open_on_item,
)
from splatview_viewer.ui import controls, icons, lettering, theme
from splatview_viewer.ui.boards import board
from splatview_viewer.ui.sides import draw_badge
from splatview_viewer.ui.widgets import fitted
from splatview_viewer.ui.words import write_right
from splatview_viewer.workspace.feature import PaneNote

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.view import Info
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport

_TIP = "Double click: this one alone, and back. Right click: the menu of the pane."
_BUTTON = 24.0
_BUTTON_GAP = 8.0
_RUN_WIDTH = 48.0
"""Points that the name of a run has at least, or it is left out."""
_FACT_WIDTH = 180.0
"""Points that a title leaves to facts, of a strip that is wide."""
_NAME_WIDTH = 110.0
"""Points that a title has before facts and its run."""
_LEAST_TITLE = 100.0
"""Points of a strip that its buttons leave to the title; else one menu has them all."""
_MENU = "menu of the pane"


def draw_strips(user: User, info: Info, scale: float) -> None:
    """Draw the strips of the panes that are seen.

    info: of the active one.
    """
    for viewport in user.layout.visible_viewports:
        if not viewport.head.height:
            continue
        pane_index = user.layout.all.index(viewport)
        pane_info = info
        if viewport is not user.layout.active:
            pane_info = viewport.info()
        name = f"strip {pane_index}"
        with board(name, viewport.head, color=theme.BAR, stays=True) as is_open:
            if is_open:
                _draw_strip(viewport, pane_info, user, scale)


def _draw_strip(viewport: Viewport, info: Info, user: User, scale: float) -> None:
    """Draw one strip: a name and a run at the left, facts and buttons at the right."""
    strip = viewport.head
    layout = user.layout
    is_active = viewport is layout.active
    note = _note_of(viewport)
    right = _draw_buttons(viewport, note, user, scale)
    name, group = _names_of(viewport, user)
    _take_clicks(viewport, (name, group), right, user)
    middle = strip.y + strip.height / 2
    x = _draw_sign(viewport, note, middle, scale)
    subtitle = note.subtitle or info.subtitle or group
    title_left = _draw_title(info.title or name, subtitle, (x, right), middle)
    phrases = _phrases(viewport, info, note, user)
    _draw_phrases(phrases, title_left, right - 8 * scale, middle)
    if is_active and (len(layout.visible_viewports) > 1 or note.tied is not None):
        draw = imgui.get_window_draw_list()
        draw.add_rect_filled(
            ImVec2(strip.x, strip.y + strip.height - 2 * scale),
            ImVec2(strip.x + strip.width, strip.y + strip.height),
            theme.u32(theme.ACCENT),
        )


def _names_of(viewport: Viewport, user: User) -> tuple[str, str]:
    """Return the names of what a pane shows and of its run; "" for none."""
    entry = viewport.entry
    if entry is None:
        return "Empty", ""
    run = user.interface.groups.of(entry)
    if run is None:
        return entry.name, ""
    return entry.name, run.title


def _take_clicks(
    viewport: Viewport, names: tuple[str, str], right: float, user: User
) -> None:
    """Take clicks on a strip up to a pixel x, and open its menu."""
    strip = viewport.head
    pane_index = user.layout.all.index(viewport)
    imgui.set_cursor_screen_pos(ImVec2(strip.x, strip.y))
    target = controls.item(f"name {pane_index}", right - strip.x, strip.height)
    if target.hovered and imgui.is_mouse_double_clicked(imgui.MouseButton_.left):
        user.do(user.on_viewport, Layout.maximise, viewport)
    elif target.pressed:
        user.do(user.on_viewport, Layout.activate, viewport)
    open_on_item(_MENU)
    if imgui.is_popup_open(_MENU):
        draw_menu(_MENU, _menu_rows(viewport, user))
    name, group = names
    tip = _TIP
    if group:
        tip = f"{name}, {group}\n{_TIP}"
    controls.tip(tip)


def _draw_sign(
    viewport: Viewport, note: PaneNote, middle: float, scale: float
) -> float:
    """Draw a badge or the icon of a kind; return the pixel x after it."""
    x = viewport.head.x + 12 * scale
    if note.badge:
        draw_badge(note.badge, x, middle)
        return x + 26 * scale
    kind = "gaussians"
    if viewport.entry is not None:
        kind = viewport.entry.kind
    draw = imgui.get_window_draw_list()
    icons.draw(
        draw, icons.of_kind(kind), (x + 7 * scale, middle), theme.DIM, icons.TEXT_SIZE
    )
    return x + 20 * scale


def _draw_title(
    title: str, subtitle: str, x_range: tuple[float, float], middle: float
) -> float:
    """Write what a pane shows and of which run; return the pixel x after it."""
    scale = theme.scale()
    x, right = x_range
    draw = imgui.get_window_draw_list()
    top = round(middle - imgui.get_text_line_height() / 2)
    with theme.bold():
        # A long name leaves room for a fact, where there is room for both.
        most = right - x
        least = min(most, _NAME_WIDTH * scale)
        title_width = max(most - _FACT_WIDTH * scale, most / 2, least)
        text = fitted(title, title_width - 12 * scale)
        lettering.write(draw, round(x), top, theme.u32(theme.TEXT), text)
        x += lettering.measure(text).x + 8 * scale
    is_whole = text == title or most > _FACT_WIDTH * scale
    run_width = right - 12 * scale - x
    fits = lettering.measure(subtitle).x <= run_width
    if not fits:
        # Its beginning tells more than nothing, beside the most important fact.
        run_width -= _FACT_WIDTH * scale
    if subtitle and is_whole and (fits or run_width >= _RUN_WIDTH * scale):
        run = fitted(subtitle, run_width)
        lettering.write(draw, round(x), top, theme.u32(theme.DIM), run)
        x += lettering.measure(run).x + 12 * scale
    return x


def _note_of(viewport: Viewport) -> PaneNote:
    """Return what comparisons tell of a pane."""
    for feature in viewport.user.catalogue.features:
        note = feature.note(viewport)
        if note != PaneNote():
            return note
    inner_tie = viewport.inner_tie
    if inner_tie is None:
        return PaneNote()
    if inner_tie:
        tip = "A and B move together. Click: each by itself"
    else:
        tip = "A and B move by themselves. Click: together again"
    return PaneNote(tied=inner_tie, tip=tip)


def _phrases(viewport: Viewport, info: Info, note: PaneNote, user: User) -> list[str]:
    """Return the facts of a pane, the most important ones first."""
    is_alone = len(user.layout.visible_viewports) == 1
    step = _past_step(viewport)
    # The top bar says at which step the run is.
    live_words = _step_words(_live_step(viewport))
    phrases = [phrase for phrase in info.details if phrase != live_words]
    if not is_alone and info.facts:
        phrases = list(info.facts)
        if step is None and live_words:
            phrases.insert(0, live_words)
    if step is not None:
        step_phrase = _step_words(step)
        step_phrases = (step_phrase, "recorded")
        phrases = [step_phrase, *(p for p in phrases if p not in step_phrases)]
    if note.label:
        phrases.insert(0, note.label)
    rate = user.state.displayed_timings.fps
    if is_alone and rate >= 2:
        phrases.append(f"{rate:.0f} pictures/s")
    return phrases


def _live_step(viewport: Viewport) -> float | None:
    """Return the step of the live version in a pane; None: it names none."""
    entry = viewport.entry
    if entry is None or about(entry.kind).strip:
        return None
    return entry.step


def _step_words(step: float | None) -> str:
    """Return a step in words; "" without one."""
    if step is None:
        return ""
    return f"step {step:,.12g}"


def _past_step(viewport: Viewport) -> int | None:
    """Return the recorded step that a pane shows; None: what comes."""
    working = viewport.working()
    if working is None or working[1].view.playback is None:
        return None
    return working[1].view.playback.step


def _draw_phrases(phrases: list[str], left: float, right: float, middle: float) -> None:
    """Write as many facts as fit, ending at a pixel x."""
    with theme.font_size(theme.SMALL_SIZE):
        for count in range(len(phrases), 0, -1):
            text = "  \u00b7  ".join(phrases[:count])
            width = lettering.measure(text).x
            if left + width > right:
                continue
            write_right(text, right, middle, theme.DIM)
            return


class _Button(NamedTuple):
    """A button of a strip."""

    icon: str
    name: str
    hint: str
    press: Callable[[], object]
    on: bool = False


def _draw_buttons(
    viewport: Viewport, note: PaneNote, user: User, scale: float
) -> float:
    """Draw the buttons at the right of a strip; return the pixel x where they begin."""
    strip = viewport.head
    side = min(_BUTTON * scale, strip.height)
    gap = _BUTTON_GAP * scale
    if user.interface.surroundings == "phone":
        side = strip.height
        gap = 0.0
    x = strip.x + strip.width - side - 4 * scale
    y = strip.y + (strip.height - side) / 2
    buttons = _buttons_of(viewport, note, user)
    if len(buttons) * (side + gap) > strip.width - _LEAST_TITLE * scale:
        buttons = [_more_button(user.layout.all.index(viewport))]
    for button in reversed(buttons):
        imgui.set_cursor_screen_pos(ImVec2(x, y))
        if controls.icon_button(
            button.icon, button.name, side=side / scale, on=button.on, hint=button.hint
        ):
            button.press()
        x -= side + gap
    return x + side


def _buttons_of(viewport: Viewport, note: PaneNote, user: User) -> list[_Button]:
    """Return the buttons of a strip, from the left."""
    layout = user.layout
    pane_index = layout.all.index(viewport)
    buttons = []
    if note.tied is not None:
        icon = "untied"
        if note.tied:
            icon = "tied"
        press = partial(user.do, user.switch_tie, viewport)
        buttons.append(_Button(icon, f"tie {pane_index}", note.tip, press, note.tied))
    show = partial(user.do, _show_beside, user, viewport)
    hint = "Another pane beside it, which begins as this one"
    buttons.append(_Button("panel", f"beside {pane_index}", hint, show))
    if len(layout) == 1:
        buttons.append(_more_button(pane_index))
        return buttons
    hint = "This pane alone"
    if layout.maximised:
        hint = "All panes again"
    press = partial(user.do, user.on_viewport, Layout.maximise, viewport)
    buttons.append(_Button("alone", f"alone {pane_index}", hint, press))
    hint = "Close this pane; its stream stays in the list"
    press = partial(user.do, user.on_viewport, Layout.remove, viewport)
    buttons.append(_Button("close", f"close {pane_index}", hint, press))
    return buttons


def _more_button(pane_index: int) -> _Button:
    """Return the button of the menu, which has what the other buttons do as well."""
    press = partial(open_menu, _MENU)
    return _Button("more", f"more {pane_index}", "More of this pane", press)


def _show_beside(user: User, viewport: Viewport) -> None:
    """Show what a pane shows once more, beside it."""
    user.on_viewport(Layout.activate, viewport)
    user.show_beside(viewport.key)


def _menu_rows(viewport: Viewport, user: User) -> list[MenuRow | None]:
    """Return the rows of the menu of a pane."""
    rows: list[MenuRow | None] = []
    for group in _MENU_GROUPS:
        if rows:
            rows.append(RULE)
        for name in group:
            command = named(name)
            row = command_row(user, command)
            run = partial(user.do, _run_for, user, viewport, command)
            rows.append(replace(row, run=run))
    return rows


def _run_for(user: User, viewport: Viewport, command: Command[User]) -> None:
    """Run a command of the viewer for a pane, which becomes the active one."""
    user.on_viewport(Layout.activate, viewport)
    command.run(user)


_MENU_GROUPS = (
    ("pane.beside", "pane.tie", "pane.alone", "pane.close"),
    ("picture.save", "picture.save_transparent"),
)
"""Names of commands of the menu of a pane."""
