"""The bar at the top: menu, run, its state, commands, latency.

Everything that can be pressed has a fixed place: at the left as wide as the panel, then
Pause and Step; at the right counted from the edge. Words between them may change.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.shell.bar_commands import (
    BUTTONS,
    run_command,
    shortcut_of,
    shortcuts_of_view,
)
from splatview_viewer.shell.commands import PALETTE, named, viewer_command
from splatview_viewer.shell.menu import (
    MAIN_MENU,
    RULE,
    MenuRow,
    draw_main_menu,
    draw_menu,
    open_menu,
)
from splatview_viewer.shell.runs import (
    RunTexts,
    entry_to_show,
    group_words,
    hue_color,
    run_texts,
    state_of,
    told_entry,
)
from splatview_viewer.ui import controls, icons, lettering, theme
from splatview_viewer.ui.boards import board
from splatview_viewer.ui.words import write, write_right

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.view import Info
    from splatview_viewer.shell.user import User

_RUNS_MENU = "runs"
_PHONE_MENU = "more of the phone"
_BUTTON = theme.BUTTON_HEIGHT
_GAP = 4.0
_PAUSE_WIDTH = 92.0
_STEP_WIDTH = 70.0
_FIELD_WIDTH = 226.0
_LATENCY_WIDTH = 58.0
_CHIP_HEIGHT = 24.0
_CHIP_WIDTH = 84.0
"""Points that the shortest words of a state take, so that what follows stays."""
_LEAST_CHOOSER = 120.0
_PHONE_BUTTON = 44.0
_NARROW = 600.0
"""Points of width below which the bar has a phone's form."""
_OPTIONAL = ("time", "rate", "field", "undo", "latency", "full", "step", "picture")
"""What goes where the bar is narrow, the first one first."""
_DROPPED: tuple[frozenset[str], ...] = tuple(
    frozenset(_OPTIONAL[:count]) for count in range(len(_OPTIONAL) + 1)
)


def draw(user: User, info: Info, rect: Rect, scale: float) -> None:
    """Draw the top bar in its rectangle.

    info: of what is shown.
    """
    with board("top bar", rect, color=theme.BAR, stays=True) as opened:
        if not opened:
            return
        user.interface.groups.update(user)
        bottom = rect.y + rect.height - 0.5 * scale
        left = ImVec2(rect.x, bottom)
        right = ImVec2(rect.x + rect.width, bottom)
        line = theme.u32(theme.LINE)
        imgui.get_window_draw_list().add_line(left, right, line, scale)
        bar = _Bar(user, info, rect, scale)
        if user.interface.zones.form == "phone" or rect.width < _NARROW * scale:
            bar.draw_phone()
        else:
            bar.draw()


class _Bar:
    """Draws the bar for one frame."""

    def __init__(self, user: User, info: Info, rect: Rect, scale: float) -> None:
        self.user = user
        self.rect = rect
        self.scale = scale
        self.middle = rect.y + rect.height / 2
        entry = told_entry(user)
        self.group = user.interface.groups.of(entry)
        self.state = state_of(self.group)
        self.texts = run_texts(user, self.group, self.state)
        if entry is not None and entry.is_file:
            self.texts = RunTexts(info.subtitle or entry.name, "", "")

    # -- on a desk ---------------------------------------------------------------------

    def draw(self) -> None:
        """Draw the bar of a wide screen, without what has no place."""
        scale = self.scale
        x = self._draw_left()
        dropped = _DROPPED[-1]
        for dropped in _DROPPED:
            words_end = x + self._words_width(dropped) * scale
            if words_end + 12 * scale <= self._right_start(dropped):
                break
        self._draw_words(x, dropped)
        self._draw_right(dropped)
        bottom = self.rect.y + self.rect.height
        draw_main_menu(self.user, (self.rect.x + 8 * scale, bottom))
        self._draw_runs_menu((self.rect.x + 42 * scale, bottom))

    def _draw_left(self) -> float:
        """Draw menu, run and its buttons; return the pixel x where they end."""
        scale = self.scale
        x = self.rect.x + 8 * scale
        self._go(x)
        if controls.icon_button("menu", "Menu", hint="Everything that can be done"):
            open_menu(MAIN_MENU)
        x += (_BUTTON + _GAP) * scale
        width = self._chooser_width() * scale
        self._draw_chooser(x, width)
        x += width + 6 * scale
        self._draw_separator(x)
        x += 15 * scale
        self._go(x)
        self._draw_pause(_PAUSE_WIDTH)
        x += (_PAUSE_WIDTH + 10) * scale
        self._go(x)
        self._draw_step(_STEP_WIDTH)
        return x + (_STEP_WIDTH + 13) * scale

    def _chooser_width(self) -> float:
        """Return the points of the run's name: together with the menu, the panel's."""
        width = self.user.interface.state.panel_width - 54
        if self.user.interface.zones.form == "desktop":
            return width
        return max(min(width, self.rect.width / self.scale * 0.24), _LEAST_CHOOSER)

    def _draw_chooser(self, x: float, width: float) -> None:
        """Draw the run's name, which opens the list of runs."""
        scale = self.scale
        self._go(x)
        target = controls.item("Choose a run", width, _BUTTON * scale)
        controls.tip("Show another run")
        draw = imgui.get_window_draw_list()
        if target.hovered or target.is_held:
            ground = theme.HOVER
            if target.is_held:
                ground = theme.DOWN
            rounding = theme.FIELD_ROUNDING * scale
            draw.add_rect_filled(target.low, target.high, theme.u32(ground), rounding)
        with theme.bold():
            available_width = width - 34 * scale
            title_end = write(
                self._title(), x + 6 * scale, self.middle, theme.TEXT, available_width
            )
        if self.group is not None and not self.group.is_run:
            count = f"{len(self.group.entries):,} open"
            words_x = title_end + 8 * scale
            with theme.font_size(theme.SMALL_SIZE):
                available_width = x + width - 28 * scale - words_x
                write(count, words_x, self.middle, theme.DIM, available_width)
        center = (x + width - 12 * scale, self.middle)
        icons.draw(draw, "caret_down", center, theme.DIM, icons.SIZE)
        if target.pressed:
            open_menu(_RUNS_MENU)

    def _title(self) -> str:
        if self.group is None:
            return "No run"
        return self.group.title

    def _draw_pause(self, width: float) -> None:
        state = self.state
        text = "Pause"
        if state.resumes:
            text = "Resume"
        icon = "pause"
        if state.resumes:
            icon = "play"
        reason = _sentence(state.pause_reason)
        hint = "Have the run go on (Space)"
        if not state.resumes:
            hint = "Pause the run at its next step (Space)"
        if controls.button(
            text, icon, width=width, height=_BUTTON, reason=reason, hint=hint
        ):
            self.user.do(self.user.pause, not state.resumes)

    def _draw_step(self, width: float) -> None:
        reason = _sentence(self.state.step_reason)
        hint = "Let the run take one step"
        if controls.button(
            "Step", "step", width=width, height=_BUTTON, reason=reason, hint=hint
        ):
            self.user.do(self.user.pause, "step")

    # -- the words ---------------------------------------------------------------------

    def _words_width(self, dropped: frozenset[str]) -> float:
        """Return the points that the words take at most in the present state."""
        width = max(_CHIP_WIDTH, self._chip_width(dropped)) + 8
        if "step" not in dropped and self.texts.step:
            width += 96
        if "rate" not in dropped and self.texts.rate:
            width += 104
        if "time" not in dropped and self.texts.time:
            width += 110
        return width

    def _chip_words(self, dropped: frozenset[str]) -> str:
        """Return the state's words, with the time where that has no place beside them."""
        if "rate" in dropped:
            return self.state.phrase
        return self.state.title

    def _chip_width(self, dropped: frozenset[str]) -> float:
        with theme.bold(15):
            words = self._chip_words(dropped)
            return lettering.measure(words).x / self.scale + 34

    def _draw_words(self, x: float, dropped: frozenset[str]) -> None:
        """Draw the state, the step, the rate and the time."""
        scale = self.scale
        self._draw_chip(x, self._right_start(dropped) - 8 * scale, dropped)
        x += (max(_CHIP_WIDTH, self._chip_width(dropped)) + 10) * scale
        if self.texts.step and "step" not in dropped:
            available_width = self._right_start(dropped) - x - 8 * scale
            x = write(self.texts.step, x, self.middle, theme.TEXT, available_width)
        x += 16 * scale
        phrases = []
        if "rate" not in dropped:
            phrases.append(self.texts.rate)
        if "time" not in dropped:
            phrases.append(self.texts.time)
        write(
            " \u00a0\u00b7\u00a0 ".join(filter(None, phrases)),
            x,
            self.middle,
            theme.DIM,
            self._right_start(dropped) - x - 8 * scale,
        )

    def _draw_chip(self, x: float, end: float, dropped: frozenset[str]) -> None:
        """Draw the run's state in a word up to a pixel, with a dot in its colour."""
        scale = self.scale
        low = ImVec2(x, self.middle - _CHIP_HEIGHT / 2 * scale)
        width = min(self._chip_width(dropped) * scale, end - x)
        high = ImVec2(x + width, low.y + _CHIP_HEIGHT * scale)
        draw = imgui.get_window_draw_list()
        draw.add_rect_filled(low, high, theme.u32(theme.FIELD), 12 * scale)
        dot = ImVec2(x + 13 * scale, self.middle)
        draw.add_circle_filled(dot, 4 * scale, theme.u32(hue_color(self.state)), 16)
        with theme.bold(15):
            room = width - 32 * scale
            words = self._chip_words(dropped)
            write(words, x + 24 * scale, self.middle, theme.TEXT, room)

    # -- at the right ------------------------------------------------------------------

    def _right_start(self, dropped: frozenset[str]) -> float:
        """Return the pixel x where the buttons at the right begin."""
        width = 8.0 + 2 * (_BUTTON + _GAP) + 21
        for name, points in (
            ("latency", _LATENCY_WIDTH + 17),
            ("full", _BUTTON + _GAP),
            ("picture", _BUTTON + _GAP),
            ("undo", 2 * (_BUTTON + _GAP) + 17),
        ):
            if name not in dropped:
                width += points
        if "field" in dropped:
            width += _BUTTON
        else:
            width += _FIELD_WIDTH
        return self.rect.x + self.rect.width - width * self.scale

    def _draw_right(self, dropped: frozenset[str]) -> None:
        """Draw the buttons at the right, from the edge."""
        scale = self.scale
        x = self.rect.x + self.rect.width - 8 * scale
        if "latency" not in dropped:
            self._draw_latency(x)
            x -= (_LATENCY_WIDTH + 10) * scale
            self._draw_separator(x - scale)
            x -= 7 * scale
        names = ["panel.toggle", "camera.frame"]
        if "picture" not in dropped:
            names.append("picture.save")
        if "full" not in dropped:
            names.append("screen.full")
        for name in reversed(names):
            x -= (_BUTTON + _GAP) * scale
            self._go(x)
            self._draw_command(name)
        x -= 10 * scale
        self._draw_separator(x - scale)
        x -= 7 * scale
        x = self._draw_field(x - _GAP * scale, "field" in dropped)
        if "undo" not in dropped:
            x -= 10 * scale
            self._draw_separator(x - scale)
            x -= 7 * scale
            for name in ("edit.redo", "edit.undo"):
                x -= (_BUTTON + _GAP) * scale
                self._go(x)
                self._draw_command(name)

    def _draw_latency(self, right: float) -> None:
        ms = self.user.screen.state.latency_ms
        tip = "From a press or a move to the picture that shows it"
        if ms is None and self.state.mode == "training":
            ms = self.user.state.displayed_timings.latency_ms
            tip = "From publish to the screen"
        width = _LATENCY_WIDTH * self.scale
        self._go(right - width)
        controls.item("latency", width, _BUTTON * self.scale, enabled=False)
        controls.tip(tip)
        if ms is not None:
            text = f"{ms / 1e3:.0f} s"
            if ms < 9999.5:
                text = f"{ms:.0f} ms"
            with theme.font_size(theme.SMALL_SIZE):
                write_right(text, right - 6 * self.scale, self.middle, theme.DIM)

    def _draw_field(self, right: float, is_icon: bool) -> float:
        """Draw what opens the palette; return the pixel x where it begins."""
        scale = self.scale
        command = named(PALETTE)
        if is_icon:
            x = right - _BUTTON * scale
            self._go(x)
            if controls.icon_button("find", command.title, hint="Ctrl K"):
                self.user.do(command.run, self.user)
            return x
        width = _FIELD_WIDTH * scale
        x = right - width
        self._go(x)
        target = controls.item(command.title, width, _BUTTON * scale)
        draw = imgui.get_window_draw_list()
        ground = theme.FIELD
        if target.hovered:
            ground = theme.HOVER
        rounding = theme.FIELD_ROUNDING * scale
        draw.add_rect_filled(target.low, target.high, theme.u32(ground), rounding)
        icons.draw(
            draw, "find", (x + 16 * scale, self.middle), theme.DIM, icons.TEXT_SIZE
        )
        write(command.title, x + 31 * scale, self.middle, theme.FAINT)
        keys = command.keys[0]
        with theme.font_size(theme.SMALL_SIZE):
            end = x + width - 16 * scale
            start = end - lettering.measure(keys).x
            low = ImVec2(start - 6 * scale, self.middle - 10 * scale)
            high = ImVec2(end + 6 * scale, self.middle + 10 * scale)
            draw.add_rect_filled(low, high, theme.u32(theme.PANEL), 3 * scale)
            write(keys, start, self.middle, theme.DIM)
        if target.pressed:
            self.user.do(command.run, self.user)
        return x

    def _draw_command(self, name: str, side: float = _BUTTON) -> None:
        """Draw the button of a command of the viewer, or of what is shown."""
        user = self.user
        button = BUTTONS[name]
        command = viewer_command(name)
        reason: str | None = None
        if command is not None:
            reason = command.reason(user)
        elif user.view is None or user.view.empty:
            reason = "nothing is shown"
        elif name not in shortcuts_of_view(user):
            reason = button.missing
        hint = button.hint
        shortcut = shortcut_of(user, name)
        if shortcut:
            hint = f"{hint} ({shortcut})"
        is_on = name == "panel.toggle" and user.has_panel
        if name == "screen.full" and user.screen.desktop.is_full:
            is_on = True
            hint = "Leave the full screen (Escape)"
        history = user.history
        steps = {"edit.undo": history.undo_words, "edit.redo": history.redo_words}
        if steps.get(name):
            hint = f"{hint}: {steps[name]}"
        if controls.icon_button(
            button.icon,
            name,
            side=side,
            on=is_on,
            reason=None if reason is None else f"{hint}: {reason}",
            hint=hint,
        ):
            user.do(run_command, user, name)

    # -- menus -------------------------------------------------------------------------

    def _draw_runs_menu(self, corner: tuple[float, float]) -> None:
        """Draw the list of runs while it is open."""
        if not imgui.is_popup_open(_RUNS_MENU):
            return
        user = self.user
        rows: list[MenuRow | None] = []
        for group in user.interface.groups.all:
            if rows and not group.is_run and RULE not in rows:
                rows.append(RULE)
            last = user.interface.state.last_shown.get(group.key, "")
            key = entry_to_show(group, last)
            icon = ""
            if group is self.group:
                icon = "check"
            choose = partial(user.do, user.choose, key)
            text = group_words(user, group, state_of(group))
            rows.append(MenuRow(group.title, choose, icon, fact=text))
        if not rows:
            reason = "none was seen yet"
            rows.append(MenuRow("No run", _do_nothing, reason=reason))
        draw_menu(_RUNS_MENU, rows, corner)

    # -- on a phone --------------------------------------------------------------------

    def draw_phone(self) -> None:
        """Draw the bar of a phone: its buttons are as large as a finger."""
        scale = self.scale
        user = self.user
        side = min(_PHONE_BUTTON * scale, self.rect.height)
        top = self.middle - side / 2
        step = side + 2 * scale
        x = self.rect.x + 4 * scale
        if self._draw_large(x, top, side, "menu", "Menu", None):
            open_menu(MAIN_MENU)
        right = self.rect.x + self.rect.width - 4 * scale
        if self._draw_large(right - side, top, side, "more", "More", None):
            open_menu(_PHONE_MENU)
        if self._draw_large(right - side - step, top, side, "find", "Find", None):
            user.do(named(PALETTE).run, user)
        icon = "pause"
        if self.state.resumes:
            icon = "play"
        reason = _sentence(self.state.pause_reason)
        x_pause = right - side - 2 * step
        if self._draw_large(x_pause, top, side, icon, "Pause", reason):
            user.do(user.pause, not self.state.resumes)
        self._draw_phone_words(x + step, x_pause - 4 * scale)
        bottom = self.rect.y + self.rect.height
        draw_main_menu(user, (x, bottom))
        self._draw_runs_menu((x + step, bottom))
        self._draw_phone_menu((right, bottom))

    def _draw_large(
        self, x: float, y: float, side: float, icon: str, name: str, reason: str | None
    ) -> bool:
        imgui.set_cursor_screen_pos(ImVec2(x, y))
        return controls.icon_button(icon, name, side=side / self.scale, reason=reason)

    def _draw_phone_words(self, x: float, right: float) -> None:
        """Draw the run's name, and its state and step below."""
        scale = self.scale
        imgui.set_cursor_screen_pos(ImVec2(x, self.rect.y))
        if controls.item("Choose a run", right - x, self.rect.height).pressed:
            open_menu(_RUNS_MENU)
        with theme.bold(17.5):
            write(self._title(), x, self.middle - 9 * scale, theme.TEXT, right - x)
        draw = imgui.get_window_draw_list()
        y = self.middle + 10 * scale
        dot = ImVec2(x + 4 * scale, y)
        draw.add_circle_filled(dot, 4 * scale, theme.u32(hue_color(self.state)), 16)
        step = self.texts.step[:1].lower() + self.texts.step[1:]
        text = " \u00b7 ".join(filter(None, (self.state.phrase, step)))
        with theme.font_size(theme.SMALL_SIZE):
            x += 14 * scale
            write(text, x, y, theme.DIM, right - x)

    def _draw_phone_menu(self, corner: tuple[float, float]) -> None:
        """Draw the menu of what has no button on a phone, while it is open."""
        user = self.user
        rows: list[MenuRow | None] = []
        names = ["camera.frame", "picture.save", "run.step", "screen.full"]
        if user.interface.zones.form != "phone":
            # There is no sheet to drag.
            names.insert(0, "panel.toggle")
        for name in names:
            command = viewer_command(name)
            is_known = command is not None or name in shortcuts_of_view(user)
            button = BUTTONS[name]
            if is_known:
                reason = None
                if command is not None:
                    reason = command.reason(user)
                run = partial(user.do, run_command, user, name)
                shortcut = shortcut_of(user, name)
                row = MenuRow(button.hint, run, button.icon, shortcut, reason)
                rows.append(row)
        draw_menu(_PHONE_MENU, rows, corner)

    # -- drawing -----------------------------------------------------------------------

    def _go(self, x: float) -> None:
        """Have the next button begin at a pixel x, in the middle of the bar."""
        y = self.middle - _BUTTON / 2 * self.scale
        imgui.set_cursor_screen_pos(ImVec2(x, y))

    def _draw_separator(self, x: float) -> None:
        half = 10 * self.scale
        draw = imgui.get_window_draw_list()
        draw.add_rect_filled(
            ImVec2(x, self.middle - half),
            ImVec2(x + self.scale, self.middle + half),
            theme.u32(theme.LINE),
        )


# -- words -----------------------------------------------------------------------------


def _sentence(reason: str | None) -> str | None:
    """Return a reason as a tip has it."""
    if reason is None:
        return None
    return reason[:1].upper() + reason[1:]


def _do_nothing() -> None:
    """Stand for a row that cannot be chosen."""
