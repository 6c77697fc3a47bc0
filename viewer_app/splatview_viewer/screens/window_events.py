"""The events of a window, made of what GLFW reports."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from splatview_viewer.core.events import (
    KEYS,
    Button,
    ClickCounter,
    Close,
    Event,
    Expose,
    FileDrop,
    Key,
    Mod,
    Mods,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
    Resize,
    Text,
    Wheel,
)
from splatview_viewer.screens.glfw_library import glfw

if TYPE_CHECKING:
    from splatview_viewer.screens.window import WindowScreen

_BUTTONS: dict[int, Button] = {
    glfw.MOUSE_BUTTON_LEFT: "left",
    glfw.MOUSE_BUTTON_RIGHT: "right",
    glfw.MOUSE_BUTTON_MIDDLE: "middle",
}
_MODS: dict[int, Mod] = {
    glfw.MOD_SHIFT: "shift",
    glfw.MOD_CONTROL: "ctrl",
    glfw.MOD_ALT: "alt",
    glfw.MOD_SUPER: "super",
}


_KEY_OF_MODIFIER = {
    "shift": "LEFT_SHIFT",
    "ctrl": "LEFT_CONTROL",
    "alt": "LEFT_ALT",
    "super": "LEFT_SUPER",
}
"""GLFW's names of the left modifier keys, by the names of events."""


def _key_names() -> dict[int, str]:
    """Return the names of events' keys by GLFW's codes."""
    names = {}
    for name in KEYS:
        glfw_name = _KEY_OF_MODIFIER.get(name, name.upper())
        names[getattr(glfw, f"KEY_{glfw_name}")] = name
    # Both sides of the modifier keys share a name.
    for name, left in _KEY_OF_MODIFIER.items():
        right = left.replace("LEFT_", "RIGHT_")
        names[getattr(glfw, f"KEY_{right}")] = name
    names[glfw.KEY_KP_ENTER] = "enter"
    return names


def _mods(bits: int) -> Mods:
    return frozenset(name for bit, name in _MODS.items() if bits & bit)


class WindowEvents:
    """Makes events of what GLFW reports about a window."""

    def __init__(self, window: Any, screen: WindowScreen) -> None:
        self._window = window
        self._screen = screen
        self.queue: list[Event] = []
        """The events since the last `take`, in their order."""
        self._clicks = ClickCounter()
        self._mods: Mods = frozenset()
        self._key_names = _key_names()
        self._connect()

    def take(self) -> list[Event]:
        """Return the queued events, and start another queue."""
        events = self.queue
        self.queue = []
        return events

    def _connect(self) -> None:
        """Have GLFW call the methods that make events."""
        window = self._window
        glfw.set_cursor_pos_callback(window, self._on_move)
        glfw.set_cursor_enter_callback(window, self._on_enter)
        glfw.set_mouse_button_callback(window, self._on_button)
        glfw.set_scroll_callback(window, self._on_scroll)
        glfw.set_key_callback(window, self._on_key)
        glfw.set_char_callback(window, self._on_char)
        glfw.set_framebuffer_size_callback(window, self._on_resize)
        glfw.set_window_refresh_callback(window, self._on_refresh)
        glfw.set_window_close_callback(window, self._on_close)
        self._take_drops()

    def _to_pixels(self, x: float, y: float) -> tuple[float, float]:
        """Return a point of the window, given in GLFW's points, in pixels."""
        window_width, window_height = glfw.get_window_size(self._window)
        width, height = self._screen.size
        return x * width / max(window_width, 1), y * height / max(window_height, 1)

    def _pointer(self) -> tuple[float, float]:
        return self._to_pixels(*glfw.get_cursor_pos(self._window))

    def _on_move(self, _: Any, x: float, y: float) -> None:
        # A fast mouse sends a thousand a second: the last one counts.
        if self.queue and isinstance(self.queue[-1], PointerMove):
            self.queue.pop()
        self.queue.append(PointerMove(*self._to_pixels(x, y), self._mods))

    def _on_enter(self, _: Any, is_inside: int) -> None:
        if not is_inside:
            self.queue.append(PointerLeave())

    def _on_button(self, _: Any, code: int, action: int, mods: int) -> None:
        button = _BUTTONS.get(code)
        if button is None:
            return
        x, y = self._pointer()
        if action == glfw.PRESS:
            clicks = self._clicks.count(
                glfw.get_time(), x, y, button, self._screen.scale
            )
            self.queue.append(PointerPress(x, y, button, _mods(mods), clicks))
        else:
            self.queue.append(PointerRelease(x, y, button, _mods(mods)))

    def _on_scroll(self, _: Any, dx: float, dy: float) -> None:
        self.queue.append(Wheel(*self._pointer(), dy, -dx, self._mods))

    def _on_key(self, _: Any, code: int, _scan: int, action: int, mods: int) -> None:
        self._mods = _mods(mods)
        name = self._key_names.get(code)
        if name:
            is_pressed = action != glfw.RELEASE
            is_repeat = action == glfw.REPEAT
            self.queue.append(Key(name, is_pressed, self._mods, is_repeat))

    def _on_char(self, _: Any, code: int) -> None:
        self.queue.append(Text(chr(code)))

    def _on_resize(self, _: Any, width: int, height: int) -> None:
        # A minimised window has neither.
        if width > 0 and height > 0:
            self.queue.append(Resize(width, height, self._screen.scale))

    def _on_refresh(self, _: Any) -> None:
        self.queue.append(Expose())

    def _on_close(self, _: Any) -> None:
        self.queue.append(Close())

    def _take_drops(self) -> None:
        """Have dropped files become events.

        pyGLFW's own callback ends at names that are not UTF-8.
        """

        def drop(_: Any, count: int, paths: Any) -> None:
            names = tuple(os.fsdecode(paths[i]) for i in range(count))
            self.queue.append(FileDrop(names))

        untyped_glfw: Any = glfw
        # It lives for as long as GLFW calls it.
        self._drop = untyped_glfw._GLFWdropfun(drop)
        untyped_glfw._glfw.glfwSetDropCallback(self._window, self._drop)
