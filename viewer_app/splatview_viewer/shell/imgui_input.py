"""A user's events for Dear ImGui: pointer, fingers, keys, text.

A press decides for the whole drag. Keys reach imgui only while something in the
interface has the focus: a text field, a popup, or a control that the keyboard chose.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import imgui

from splatview_ipc.system.terminal import without_surrogates
from splatview_viewer.core import events as ev
from splatview_viewer.geometry.pan_zoom import ZOOM_STEP
from splatview_viewer.shell.early_keys import EarlyKeys
from splatview_viewer.shell.finger import BUTTONS, Finger, hover

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import KeysOwner, Rect
    from splatview_viewer.shell.surface import Surface

_NOWHERE = float(np.finfo(np.float32).max)
"""Less than it on both axes, the pointer is nowhere: imgui's FLT_MAX."""
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
_WITH_MODIFIERS = (ev.PointerMove, ev.PointerPress, ev.PointerRelease, ev.Wheel)
_FOCUS_KEYS = frozenset(
    [
        "tab",
        "left",
        "right",
        "up",
        "down",
        "enter",
        "escape",
        "space",
        "home",
        "end",
        "page_up",
        "page_down",
        "backspace",
        "delete",
        "menu",
        "f10",
    ]
)
"""Keys of a control that the keyboard chose."""


class ImguiInput:
    """Gives imgui what is meant for the interface."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._is_inside = False
        """True while the pointer is over the interface."""
        self._held_buttons: set[str] = set()
        """The buttons that were pressed on the interface."""
        self._keys: set[str] = set()
        """The keys that went down for the interface."""
        self._presses: defaultdict[int, deque[int]] = defaultdict(deque)
        """For each of imgui's buttons, `PointerPress.clicks` of the presses that no
        frame has shown yet."""
        self._early = EarlyKeys()
        self._unclaimed: list[Event] = []
        """Keys that were held back for a field, and are for none."""
        self._finger = Finger()
        self._picture: Rect | None = None
        """Where the panes lie; None: there is no interface around them."""
        self._covered: Sequence[Rect] = ()
        self.lists: Sequence[Rect] = ()
        """Parts of the popup that is open which a finger scrolls."""
        self.grips: Sequence[Rect] = ()
        """Parts of the interface that a finger drags in every direction."""
        self.hides_tips = False
        """True from a key or a press on, until the pointer moves."""
        self.clipboard = ""
        """The text of imgui's clipboard that the user's own has as well."""

    @property
    def has_focus(self) -> bool:
        """True while keys are for the interface, and not for the picture."""
        io = imgui.get_io()
        return bool(io.want_text_input or io.nav_visible or self._surface.has_popup)

    def handle(
        self,
        event: Event,
        picture: Rect | None,
        clipboard: Callable[[], str] = str,
        covered: Sequence[Rect] = (),
    ) -> tuple[bool, bool]:
        """Take a user's event.

        Args:
            event: any event.
            picture: the part of the screen outside of which all is the interface's.
                None: nothing is.
            clipboard: returns the text to paste.
            covered: the parts of the picture that are the interface's as well.

        Returns:
            True if the event was meant for the interface, and True if the interface
            changes by it.
        """
        self._picture = picture
        self._covered = covered
        self._surface.use()
        had_tips = not self.hides_tips
        self._hide_tips(event)
        is_ours, changes = self._take(event, clipboard)
        return is_ours, changes or (had_tips and self.hides_tips)

    def _hide_tips(self, event: Event) -> None:
        """End tips at a key or a press, until the pointer moves."""
        if isinstance(event, ev.PointerMove):
            self.hides_tips = False
        elif isinstance(event, ev.PointerPress) or (
            isinstance(event, ev.Key) and event.pressed
        ):
            self.hides_tips = True

    def _take(self, event: Event, clipboard: Callable[[], str]) -> tuple[bool, bool]:
        """Give imgui an event; return as `handle`."""
        if isinstance(event, (ev.Key, ev.Text)):
            is_typing = imgui.get_io().want_text_input
            if not is_typing and self._early.hold(event):
                return True, True
            is_ours = self._handle_key(event, clipboard)
            return is_ours, is_ours
        on_interface = isinstance(event, ev.PointerPress) and self._can_scroll(event)
        scale = self._surface.scale
        drags = any(grip.contains(*_place_of(event)) for grip in self.grips)
        if self._finger.handle(event, self._held_buttons, scale, on_interface, drags):
            return True, True
        moves = isinstance(event, (ev.PointerMove, ev.PointerLeave))
        was_over = self._surface.has_popup or (self._is_inside and moves)
        is_ours = self._handle_pointer(event)
        return is_ours, is_ours or was_over

    def leave_keys_to_picture(self) -> None:
        """Take the keyboard from controls: the user has moved in a picture."""
        if self._surface.is_open:
            self._surface.use()
            imgui.set_nav_cursor_visible(False)

    def wait(self, now: float) -> bool:
        """Take a long press of a finger as the right button.

        Called in each turn of the loop. Returns whether to draw the interface again.
        """
        if not self._finger.is_waiting:
            return False
        self._surface.use()
        return self._finger.wait(now, self._held_buttons)

    def expect_field(self) -> None:
        """Keep what is typed from now on for a field that is about to open."""
        self._early.expect_field()

    @property
    def keys_owner(self) -> KeysOwner:
        """The part that takes keys just now, as `_is_key_ours`."""
        if not self._surface.is_open:
            return "picture"
        self._surface.use()
        if self._surface.has_popup:
            return "popup"
        return "control" if imgui.get_io().nav_visible else "picture"

    @property
    def holds_keys(self) -> bool:
        """True while keys wait for frames, to see whether a field opens."""
        return self._early.holds_any

    def take_unclaimed(self) -> list[Event]:
        """Return the keys that waited for a field which did not open."""
        events = self._unclaimed
        self._unclaimed = []
        return events

    @property
    def ring(self) -> tuple[float, float, float] | None:
        """x, y and the share of a long press that is over; None for no ring."""
        return self._finger.ring

    def let_go(self) -> None:
        """Release what is held on the interface; nothing is clicked by that."""
        if not self._surface.is_open:
            return
        self._surface.use()
        io = imgui.get_io()
        io.clear_events_queue()
        io.clear_input_keys()
        io.clear_input_mouse()
        self._held_buttons.clear()
        self._keys.clear()
        self._presses.clear()
        self._early.clear()
        self._finger = Finger()
        self._is_inside = False

    def begin_frame(self) -> None:
        """Tell imgui which of its presses are double clicks, once a frame has begun.

        imgui shows one press of a button in a frame. It tells double clicks by the time
        between frames, which a busy machine pulls apart.
        """
        io = imgui.get_io()
        for button, clicks in self._presses.items():
            if clicks and io.mouse_clicked[button]:
                count = clicks.popleft()
                io.mouse_clicked_count[button] = count
                io.mouse_clicked_last_count[button] = count
        if imgui.get_current_context().input_events_queue:
            # What opens a field may be among them.
            return
        is_typing = bool(io.want_text_input)
        early_keys = self._early.count_frame(is_typing=is_typing)
        if is_typing:
            for event in early_keys:
                self._handle_key(event, str)
        else:
            self._unclaimed += early_keys

    def copied_text(self) -> str | None:
        """Return the text that the interface copied since the last call, if any."""
        text = imgui.get_clipboard_text() or ""
        if text == self.clipboard:
            return None
        self.clipboard = text
        return text

    # -- the pointer -------------------------------------------------------------------

    def _can_scroll(self, press: ev.PointerPress) -> bool:
        """Return whether a finger may scroll what it presses."""
        if self._surface.has_popup:
            return any(rect.contains(press.x, press.y) for rect in self.lists)
        return self._is_over(press.x, press.y)

    def _is_over(self, x: float, y: float) -> bool:
        """Return whether a point is over the interface."""
        if any(rect.contains(x, y) for rect in self._covered):
            return True
        return self._picture is not None and not self._picture.contains(x, y)

    def _handle_pointer(self, event: Event) -> bool:
        """Give imgui an event of the pointer; return whether it was meant for it."""
        io = imgui.get_io()
        is_typing = io.want_text_input
        has_popup = self._surface.has_popup
        if isinstance(event, _WITH_MODIFIERS):
            # Keys by themselves may be for a pane.
            _add_modifiers(event.mods)
        match event:
            case ev.PointerMove():
                io.add_mouse_pos_event(event.x, event.y)
                self._is_inside = self._is_over(event.x, event.y)
                is_pointed = self._is_inside and not is_typing
                return bool(self._held_buttons) or is_pointed or has_popup
            case ev.PointerLeave():
                io.add_mouse_pos_event(-_NOWHERE, -_NOWHERE)
                self._is_inside = False
            case ev.PointerPress():
                return self._handle_press(event, is_typing or has_popup)
            case ev.PointerRelease():
                is_ours = event.button in self._held_buttons
                self._held_buttons.discard(event.button)
                io.add_mouse_pos_event(event.x, event.y)
                io.add_mouse_button_event(BUTTONS[event.button], False)
                return is_ours
            case ev.Wheel() | ev.Pinch():
                if has_popup or self._is_over(event.x, event.y):
                    self._scroll(event)
                    return True
        return False

    def _handle_press(self, event: ev.PointerPress, is_asked_for: bool) -> bool:
        io = imgui.get_io()
        if (io.mouse_pos.x, io.mouse_pos.y) != (event.x, event.y):
            hover(event.x, event.y)
        self._is_inside = self._is_over(event.x, event.y)
        if not (self._is_inside or is_asked_for):
            self.leave_keys_to_picture()
            return False
        button = BUTTONS[event.button]
        # imgui drops a press without a release before it.
        if event.button not in self._held_buttons:
            self._presses[button].append(event.clicks)
        self._held_buttons.add(event.button)
        io.add_mouse_button_event(button, True)
        if event.button == "left":
            self._early.expect_field()
        return True

    def _scroll(self, event: ev.Wheel | ev.Pinch) -> None:
        io = imgui.get_io()
        io.add_mouse_pos_event(event.x, event.y)
        # imgui: left is positive, as in GLFW.
        dx = -event.dx
        dy = event.dy
        if isinstance(event, ev.Pinch):
            # A plot zooms by the wheel, a list scrolls.
            dx = event.dx / (40 * self._surface.scale)
            dy = event.dy / (40 * self._surface.scale)
            dy += math.log(max(event.factor, 1e-3), ZOOM_STEP)
        io.add_mouse_wheel_event(dx, dy)

    # -- the keyboard ------------------------------------------------------------------

    def _handle_key(
        self, event: ev.Key | ev.Text, clipboard: Callable[[], str]
    ) -> bool:
        """Give imgui an event of the keyboard; return whether it was meant for it."""
        io = imgui.get_io()
        is_typing = bool(io.want_text_input)
        if isinstance(event, ev.Text):
            if is_typing:
                # A paste comes while Ctrl is down: imgui would take no characters.
                io.add_key_event(imgui.Key.mod_ctrl, False)
                io.add_input_characters_utf8(without_surrogates(event.text))
            return is_typing
        if not event.pressed and event.name not in self._keys:
            if event.name in _MODIFIERS:
                io.add_key_event(_MODIFIERS[event.name], False)
            return False
        if event.pressed and not self._is_key_ours(event, is_typing):
            return False
        if event.pressed:
            self._keys.add(event.name)
        else:
            self._keys.discard(event.name)
        # In a popup, imgui goes from one control to the next.
        starts = not self._surface.has_popup and not self._surface.focus.has_focus
        if event.name == "tab" and starts:
            if event.pressed:
                step = -1 if "shift" in event.mods else 1
                self._surface.focus.start(step)
            return True
        if is_typing and event.pressed and event.name == "v" and "ctrl" in event.mods:
            self.clipboard = clipboard()
            imgui.set_clipboard_text(self.clipboard)
        _add_key(event)
        if event.name == "enter" and event.pressed and not is_typing:
            self._early.expect_field()
        return is_typing or event.pressed

    def _is_key_ours(self, event: ev.Key, is_typing: bool) -> bool:
        """Return whether a key that went down is for the interface."""
        if is_typing or self._surface.has_popup:
            return True
        if event.name == "tab":
            return not event.mods & {"ctrl", "alt", "super"}
        io = imgui.get_io()
        return bool(io.nav_visible) and event.name in _FOCUS_KEYS


def _place_of(event: Event) -> tuple[float, float]:
    """Return where a press is; nowhere for other events."""
    if isinstance(event, ev.PointerPress):
        return event.x, event.y
    return math.nan, math.nan


def _add_key(event: ev.Key) -> None:
    """Give imgui a key and the modifiers that are down with it."""
    io = imgui.get_io()
    name = _KEY_NAMES.get(event.name, event.name)
    if event.name.isdigit():
        name = f"_{event.name}"
    code = getattr(imgui.Key, name, None)
    if code is not None:
        io.add_key_event(code, event.pressed)
    _add_modifiers(event.mods)


def _add_modifiers(mods: ev.Mods) -> None:
    """Give imgui the modifiers that are down."""
    io = imgui.get_io()
    for mod, modifier in _MODIFIERS.items():
        io.add_key_event(modifier, mod in mods)
