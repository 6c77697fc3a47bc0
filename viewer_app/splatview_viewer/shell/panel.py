"""The panel on the left, the status line and what is written over the picture, drawn
with Dear ImGui.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, imgui, implot

from splatview_ipc.system.terminal import without_surrogates
from splatview_viewer.core import events as ev
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import Info
from splatview_viewer.geometry.pan_zoom import ZOOM_STEP
from splatview_viewer.shell.layout import draw_heads
from splatview_viewer.shell.overlay import (
    KEYS,
    draw_help,
    draw_overlay,
    draw_status,
    draw_toasts,
    latency_phrases,
    status_phrases,
)
from splatview_viewer.shell.stream_list import draw_list, draw_run_controls, strips_of
from splatview_viewer.ui import lettering, plots, theme
from splatview_viewer.ui.recovery import Faults, end_frame, prepare, recovering
from splatview_viewer.ui.widgets import board, buttons, colored, fold, gap, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.view import Section
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport

PANEL_WIDTH = 280
STATUS_HEIGHT = 26
SHEET_HEIGHT = 330
"""In points; the last is that of a panel that lies under the picture."""
NARROW = 600
"""Points of width below which the panel lies under the picture, not beside it: a phone
that is held upright."""

REACH = 8.0
"""Points that a finger goes until it is told what it does."""
_NOTCH = 5.0
"""Heights of a letter by which imgui scrolls for a notch of a wheel."""
_NOWHERE = float(np.finfo(np.float32).max)
"""Less than it on both axes, the pointer is nowhere: imgui's FLT_MAX."""
_BUTTONS = {"left": 0, "right": 1, "middle": 2}
_KEY_NAMES = {
    "left": "left_arrow",
    "right": "right_arrow",
    "up": "up_arrow",
    "down": "down_arrow",
    "ctrl": "left_ctrl",
    "shift": "left_shift",
    "alt": "left_alt",
    "super": "left_super",
}
_MODIFIERS = {
    "ctrl": imgui.Key.mod_ctrl,
    "shift": imgui.Key.mod_shift,
    "alt": imgui.Key.mod_alt,
    "super": imgui.Key.mod_super,
}


class Panel:
    """Owns an imgui context that draws into framebuffers of the OpenGL context current
    at its making.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self._imgui = imgui.create_context()
        self._implot = implot.create_context()
        self._lettering = lettering.Lettering()
        self._use()
        io = imgui.get_io()
        io.set_ini_filename("")  # the user's folder is not ours to write in
        io.set_log_filename("")
        prepare()
        io.config_input_text_cursor_blink = (
            False  # nothing is drawn while nothing happens
        )
        self._scale = scale
        self._light = False
        self._styled: tuple[float, bool] | None = None
        theme.load_font()
        imgui.backends.opengl3_init("#version 330")
        self._ready = True
        self._last_time = time.perf_counter()
        self._inside = False
        self._popup = False
        self._held: set[str] = set()
        self._presses: defaultdict[int, deque[int]] = defaultdict(deque)
        """For each of imgui's buttons, `PointerPress.clicks` of the presses that no
        frame has shown yet."""
        self._finger = Finger()
        self._open = True
        self._covered: Sequence[Rect] = ()
        self._copied = ""
        """The text of imgui's clipboard that the user's own has as well."""
        self.size = (1, 1)
        self.faults = Faults("panel")
        """Faults of its parts."""

    def _use(self) -> None:
        """Have imgui and ImPlot draw for this user."""
        imgui.set_current_context(self._imgui)
        implot.set_current_context(self._implot)
        lettering.use(self._lettering)

    def layout(self, size: tuple[int, int], scale: float, panel_open: bool) -> Rect:
        """The part of the screen that is left for the picture."""
        width, height = size
        self._open = panel_open
        if not panel_open:
            return Rect(0, 0, width, height)
        if width < NARROW * scale and height > width:
            return Rect(
                0, 0, width, height - min(height // 2, round(SHEET_HEIGHT * scale))
            )
        bottom = min(round(STATUS_HEIGHT * scale), height // 4)
        left = min(round(PANEL_WIDTH * scale), width // 2)
        return Rect(left, 0, width - left, height - bottom)

    @property
    def typing(self) -> bool:
        """True while a text field has the focus."""
        imgui.set_current_context(self._imgui)
        return bool(imgui.get_io().want_text_input)

    def handle(
        self,
        event: Event,
        picture: Rect,
        clipboard: Callable[[], str] = str,
        covered: Sequence[Rect] = (),
    ) -> tuple[bool, bool]:
        """Take a user's event.

        Returns whether it was meant for the panel, and whether the panel changes by it.

        A press decides for the whole drag; otherwise what lies outside the picture is
        the panel's, and in it what lies in `covered`. `clipboard` says what is pasted.
        """
        self._covered = covered
        imgui.set_current_context(self._imgui)
        on_panel = isinstance(event, ev.PointerPress) and not (
            self._popup or picture.contains(event.x, event.y)
        )
        if self._finger.handle(event, self._held, self._scale, on_panel and self._open):
            return True, True
        was = self._popup or (
            self._inside and isinstance(event, (ev.PointerMove, ev.PointerLeave))
        )
        keys = isinstance(event, (ev.Key, ev.Text))
        ours = self._typed(event, clipboard) if keys else self._pointed(event, picture)
        return ours, ours or was

    def let_go(self) -> None:
        """Release what is held on the panel; nothing is clicked by that."""
        if not self._ready:
            return
        imgui.set_current_context(self._imgui)
        io = imgui.get_io()
        io.clear_events_queue()
        io.clear_input_keys()
        io.clear_input_mouse()
        self._held.clear()
        self._presses.clear()
        self._finger = Finger()
        self._inside = False

    def _pointed(self, event: Event, picture: Rect) -> bool:
        """Give imgui an event of the pointer; return whether it was meant for the
        panel.
        """
        io = imgui.get_io()
        typing = io.want_text_input
        match event:
            case ev.PointerMove():
                io.add_mouse_pos_event(event.x, event.y)
                self._inside = self._over(event.x, event.y, picture)
                return bool(self._held) or (self._inside and not typing) or self._popup
            case ev.PointerLeave():
                io.add_mouse_pos_event(-_NOWHERE, -_NOWHERE)
                self._inside = False
            case ev.PointerPress():
                io.add_mouse_pos_event(event.x, event.y)
                if (io.mouse_pos.x, io.mouse_pos.y) != (
                    event.x,
                    event.y,
                ):  # a finger, which does not hover before:
                    io.add_mouse_wheel_event(
                        1e-30, 0.0
                    )  # imgui takes a press behind a wheel in the next frame
                self._inside = self._over(event.x, event.y, picture)
                if self._inside or self._popup or typing:
                    button = _BUTTONS[event.button]
                    if (
                        event.button not in self._held
                    ):  # imgui drops a press without a release before it
                        self._presses[button].append(event.clicks)
                    self._held.add(event.button)
                    io.add_mouse_button_event(button, True)
                    return True
            case ev.PointerRelease():
                ours = event.button in self._held
                self._held.discard(event.button)
                io.add_mouse_pos_event(event.x, event.y)
                io.add_mouse_button_event(_BUTTONS[event.button], False)
                return ours
            case ev.Wheel() | ev.Pinch():
                if self._popup or self._over(event.x, event.y, picture):
                    io.add_mouse_pos_event(event.x, event.y)
                    # imgui: left is positive, as in GLFW
                    dx = -event.dx
                    dy = event.dy
                    if isinstance(
                        event, ev.Pinch
                    ):  # a plot zooms by the wheel, a list scrolls
                        dx = event.dx / (40 * self._scale)
                        dy = event.dy / (40 * self._scale)
                        dy += math.log(max(event.factor, 1e-3), ZOOM_STEP)
                    io.add_mouse_wheel_event(dx, dy)
                    return True
        return False

    def _typed(self, event: ev.Key | ev.Text, clipboard: Callable[[], str]) -> bool:
        """Give imgui an event of the keyboard; return whether a text field has the
        focus.
        """
        io = imgui.get_io()
        typing = bool(io.want_text_input)
        if isinstance(event, ev.Key):
            if typing and event.pressed and event.name == "v" and "ctrl" in event.mods:
                self._copied = clipboard()
                imgui.set_clipboard_text(self._copied)
            name = _KEY_NAMES.get(
                event.name, f"_{event.name}" if event.name.isdigit() else event.name
            )
            code = getattr(imgui.Key, name, None)
            if code is not None:
                io.add_key_event(code, event.pressed)
            for mod, modifier in _MODIFIERS.items():
                io.add_key_event(modifier, mod in event.mods)
        elif typing:  # a paste comes while Ctrl is down: imgui would take no characters
            io.add_key_event(imgui.Key.mod_ctrl, False)
            io.add_input_characters_utf8(without_surrogates(event.text))
        return typing

    def _over(self, x: float, y: float, picture: Rect) -> bool:
        if not picture.contains(x, y):
            return self._open
        return any(board.contains(x, y) for board in self._covered)

    def draw(
        self,
        user: User,
        framebuffer: moderngl.Framebuffer,
        work: Callable[[], AbstractContextManager[object]],
    ) -> bool:
        """Draw over a user's pictures in the framebuffer, with a description of the
        active one. Commands go to `user.do`. OpenGL is given anything only inside
        `work()`, and only if there is anything to be seen. True when a setting changed:
        the picture has to be drawn again.
        """
        state = user.state
        layout = user.layout
        scale = user.screen.state.scale
        sections, info = layout.active.describe() if state.panel_open else ((), Info())
        self._light = state.light
        self._use()
        names = [name for entry in state.entries for name in (entry.name, entry.group)]
        self._lettering.cover([*names, info.readout])
        changed = False
        with self._frame(framebuffer, scale, work):
            picture = self.layout(self.size, scale, state.panel_open)
            for viewport in layout.seen:
                changed |= self._part("overlay", partial(self._over_it, user, viewport))
            self._part("heads", partial(draw_heads, user, scale))
            if state.help:
                self._part("keys", partial(_help, user, picture, scale))
            self._part("messages", partial(draw_toasts, state, picture, scale))
            if state.panel_open:
                draw_left = partial(self._left, user, sections, info, picture)
                changed |= self._part("panel", draw_left)
            if state.panel_open and picture.x > 0:
                draw = partial(draw_status, state, info, picture, self.size, scale)
                self._part("status line", draw)
            self._popup = imgui.is_popup_open("", imgui.PopupFlags_.any_popup)
            text = imgui.get_clipboard_text() or ""
            if text != self._copied:
                self._copied = text
                user.do(user.screen.desktop.copy, text)
        return changed

    def _part(self, name: str, draw: Callable[[], object]) -> bool:
        """Draw a part of the picture, and return its result; False where it failed."""
        changed = False
        with self.faults.guard(name):
            changed = bool(draw())
        return changed

    def _row(self, name: str, draw: Callable[[], object]) -> bool:
        """Draw a part of the panel; one that fails is followed by its reason."""
        changed = self._part(name, draw)
        reason = self.faults.reason(name)
        if reason:
            wrapped(f"The {name} failed: {reason}", theme.FAULT)
        return changed

    def _over_it(self, user: User, viewport: Viewport) -> bool:
        """Draw what lies over the picture of a viewport, and nothing beside it."""
        scale = user.screen.state.scale
        changed = False
        several = len(user.layout.seen) > 1
        r = viewport.rect if several else Rect(0, 0, *self.size)
        lists = imgui.get_background_draw_list(), imgui.get_foreground_draw_list()
        with ExitStack() as clipped:
            for draw in lists:
                corner = ImVec2(r.x + r.width, r.y + r.height)
                draw.push_clip_rect(ImVec2(r.x, r.y), corner, True)
                clipped.callback(draw.pop_clip_rect)
            changed = viewport.draw_over(scale)
        draw_overlay(user.state, viewport, scale)
        return changed

    def draw_over(
        self,
        framebuffer: moderngl.Framebuffer,
        over: Callable[[Rect, float], bool],
        scale: float,
    ) -> bool:
        """Draw only what a view writes over its picture, which fills the framebuffer;
        return its result.
        """
        with self._frame(framebuffer, scale, nullcontext):
            changed = over(Rect(0, 0, *self.size), scale)
            self._popup = imgui.is_popup_open("", imgui.PopupFlags_.any_popup)
            return changed

    @contextmanager
    def _frame(
        self,
        framebuffer: moderngl.Framebuffer,
        scale: float,
        work: Callable[[], AbstractContextManager[object]],
    ) -> Iterator[None]:
        """One frame of imgui's, over what is in the framebuffer."""
        self._use()
        self._scale = scale
        theme.use(self._light)
        if self._styled != (scale, self._light):
            self._styled = scale, self._light
            theme.apply(scale)
            plots.apply(scale)
        io = imgui.get_io()
        self.size = framebuffer.width, framebuffer.height
        io.display_size = ImVec2(*self.size)
        now = time.perf_counter()
        io.delta_time = min(max(now - self._last_time, 1e-4), 0.5)
        self._last_time = now
        imgui.backends.opengl3_new_frame()
        imgui.new_frame()
        for button, clicks in self._presses.items():
            # imgui shows one press of a button in a frame. It tells double clicks by
            # the time between frames, which a busy machine pulls apart.
            if clicks and io.mouse_clicked[button]:
                io.mouse_clicked_count[button] = io.mouse_clicked_last_count[button] = (
                    clicks.popleft()
                )
        try:
            with recovering():
                yield
        finally:
            end_frame()
            drawn = imgui.get_draw_data()
            if drawn.total_vtx_count:
                with work():
                    framebuffer.use()
                    imgui.backends.opengl3_render_draw_data(drawn)
                    framebuffer.use()  # tells moderngl what imgui left bound

    def _left(
        self, user: User, sections: Sequence[Section], info: Info, picture: Rect
    ) -> bool:
        below = picture.y + picture.height
        height = self.size[1]
        if picture.x > 0:
            rect = Rect(0, 0, picture.x, height)
        else:
            rect = Rect(0, below, picture.width, height - below)
        pad = imgui.get_style().window_padding
        changed = False
        with board("panel", rect, (pad.x, pad.y), scroll=True) as opened:
            if not opened:
                return False
            self._row("list", partial(draw_list, user))
            self._row("plots of the run", partial(self._strips, user))
            self._row("controls of the run", partial(self._run_controls, user))
            if sections:
                gap(self._scale * 6)
            for section in sections:
                if fold(section.title, section.opened, section.tip):
                    changed |= bool(section.draw())
            self._row("details", partial(_details, user, info))
            if sections:
                self._row("buttons for pictures", partial(_keep, user))
            for notice in user.state.notices:
                gap(self._scale * 6)
                wrapped(notice, theme.FAULT)
            room = imgui.get_content_region_avail().y - imgui.get_text_line_height()
            if room > 0 and picture.x > 0:  # a phone has a button for it, and no H
                imgui.set_cursor_pos_y(imgui.get_cursor_pos_y() + room)
                self._row("last line", partial(_last_line, user))
        return changed

    def _strips(self, user: User) -> None:
        """Draw small plots of the run of what is shown; a click shows the large one."""
        found = user.layout.active.working()
        if found is None:
            return
        key = strips_of(user.catalogue, found[0]).draw(self._scale)
        if key:
            user.do(user.choose, key)

    def _run_controls(self, user: User) -> None:
        """Draw the buttons that pause the run of what is shown, if it can be paused."""
        entry = user.state.selected_entry
        if entry is not None and entry.paused is not None:
            gap(self._scale * 4)
            draw_run_controls(entry, user)

    def close(self) -> None:
        """Give back everything.

        Idempotent. The OpenGL context must still be current.
        """
        if not self._ready:
            return
        self._ready = False
        self._use()
        imgui.backends.opengl3_shutdown()
        implot.destroy_context(self._implot)
        imgui.destroy_context(self._imgui)


class Finger:
    """A finger on the panel: it scrolls when it goes up or down, and is the left button
    when it taps or goes sideways. Holds a press back until that is clear.
    """

    def __init__(self) -> None:
        self._from: tuple[float, float] | None = None
        """The place of the press, while it is not the left button."""
        self._y = 0.0
        self._scrolls = False

    def handle(
        self, event: Event, held: set[str], scale: float, on_panel: bool
    ) -> bool:
        """Give imgui what an event of a finger means, True if it is one.

        `held`: the buttons that the panel has.
        """
        io = imgui.get_io()
        if isinstance(event, ev.PointerPress) and event.touch and on_panel:
            self._from = (event.x, event.y)
            self._y = event.y
            self._scrolls = False
            io.add_mouse_pos_event(event.x, event.y)
            held.add("left")
            return True
        if self._from is None or not isinstance(
            event, (ev.PointerMove, ev.PointerRelease)
        ):
            return False
        x, y = self._from
        if isinstance(event, ev.PointerRelease):
            if event.button != "left":
                return False
            if not self._scrolls:
                io.add_mouse_pos_event(x, y)
                io.add_mouse_button_event(0, True)
                io.add_mouse_button_event(0, False)
            self._from = None
            held.discard("left")
            return True
        dx = abs(event.x - x)
        dy = abs(event.y - y)
        if self._scrolls or dy >= max(REACH * scale, dx):
            self._scrolls = True
            io.add_mouse_wheel_event(
                0.0, (event.y - self._y) / (_NOTCH * theme.FONT_SIZE * scale)
            )
            self._y = event.y
        elif dx >= REACH * scale:  # a slider
            io.add_mouse_pos_event(x, y)
            io.add_mouse_button_event(0, True)
            io.add_mouse_pos_event(event.x, event.y)
            self._from = None
        return True


def _help(user: User, picture: Rect, scale: float) -> None:
    """Draw the list of keys, those of the view that is shown first."""
    own = user.view.view.keys if user.view is not None else ()
    draw_help(picture, scale, [*own, *KEYS])


def _details(user: User, info: Info) -> None:
    """Draw all that is known of how the picture came to the screen."""
    state = user.state
    if state.selected_entry is None or not info.details or not fold("Details"):
        return
    for line in [*status_phrases(state, info), *latency_phrases(state), *info.extras]:
        wrapped(line, theme.DIM)


def _keep(user: User) -> None:
    """Draw the buttons that keep a picture."""
    if not fold("Picture", tip="What is shown, without the panel"):
        return
    tips = [
        "Into the current folder, or as a download (Ctrl + S)",
        "With nothing behind it, and nothing of what is drawn over it (Ctrl + Shift + "
        "S)",
    ]
    pressed = buttons("Keep", ["As shown", "Transparent"], tips)
    if pressed is not None:
        user.do(user.layout.active.keep_picture, pressed == 1)


def _last_line(user: User) -> None:
    """Draw the hint for new users, and the button for light and dark."""
    colored("H hides this panel, ? lists the keys", theme.ENDED)
    word = "Dark" if user.state.light else "Light"
    size = imgui.calc_text_size(word)
    imgui.same_line(
        imgui.get_window_width() - imgui.get_style().window_padding.x - size.x
    )
    at = imgui.get_cursor_screen_pos()
    if imgui.invisible_button("light", ImVec2(size.x, max(size.y, 1))):
        user.do(user.set_light, not user.state.light)
    color = theme.TEXT if imgui.is_item_hovered() else theme.DIM
    imgui.set_item_tooltip("Colours of the panel; pictures stay as they are")
    imgui.get_window_draw_list().add_text(
        ImVec2(round(at.x), round(at.y)), theme.u32(color), word
    )
