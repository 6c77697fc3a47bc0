"""A window on the desktop, through GLFW.

`glfw` is loaded from its wheel: by default, pyGLFW searches a dozen folders and starts
a Python process for each library that it finds. Naming the library avoids that.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import moderngl

from splatview_viewer.core.errors import GraphicsError
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
from splatview_viewer.core.screen import ScreenState
from splatview_viewer.screens import gl_versions
from splatview_viewer.screens.offscreen import LocalDesktop, let_go

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.core.screen import Caption


def _bundled() -> Path | None:
    """Return the library in the installed wheel for this session's display server, if
    the wheel holds one.
    """
    spec = find_spec("glfw")
    if spec is None or spec.origin is None:
        return None
    wanted = os.environ.get("PYGLFW_LIBRARY_VARIANT", "").lower()
    if wanted in ("wayland", "x11"):
        wayland = wanted == "wayland"
    else:
        wayland = os.environ.get("XDG_SESSION_TYPE") == "wayland"
    library = (
        Path(spec.origin).parent / ("wayland" if wayland else "x11") / "libglfw.so"
    )
    return library if library.is_file() else None


if not os.environ.get("PYGLFW_LIBRARY") and (library := _bundled()) is not None:
    os.environ["PYGLFW_LIBRARY"] = str(library)

import glfw  # noqa: E402  (reads the variable)

log = logging.getLogger("splatview")
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


def _fit_screen(width: int, height: int) -> tuple[int, int]:
    """Return the size of a window, smaller in proportion where the screen has no room
    for it.
    """
    monitor = glfw.get_primary_monitor()
    if not monitor:
        return width, height
    *_, area_width, area_height = glfw.get_monitor_workarea(monitor)
    # On X11 the work area is in pixels, and a window gets its points times the scale of
    # them.
    is_wayland = "wayland" in os.environ.get("PYGLFW_LIBRARY", "")
    scale = 1.0 if is_wayland else max(glfw.get_monitor_content_scale(monitor))
    room = area_width / max(scale, 1.0), area_height / max(scale, 1.0)
    if min(room) < 1 or (width <= room[0] and height <= room[1]):
        return width, height
    factor = min(room[0] / width, room[1] / height)
    fitted = max(int(width * factor), 1), max(int(height * factor), 1)
    log.warning(
        "a window of %dx%d is larger than the screen (%dx%d): it is opened as %dx%d",
        width,
        height,
        *map(int, room),
        *fitted,
    )
    return fitted


def _offered_version() -> str:
    """Return the OpenGL version and renderer that a window gets which asks for none; ""
    where there is none.
    """
    glfw.default_window_hints()
    glfw.window_hint(glfw.VISIBLE, False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        window = glfw.create_window(64, 64, "splatview", None, None)
    if not window:
        return ""
    glfw.make_context_current(window)

    def load(name: str) -> int | None:
        return ctypes.cast(glfw.get_proc_address(name), ctypes.c_void_p).value

    return gl_versions.version_words(load)


def _why_no_window(offered: str, faults: list[str]) -> str:
    """Return the words for a window that could not be opened. `faults`: GLFW's."""
    if offered:
        return gl_versions.too_old(
            "this display",
            offered,
            "use --web, for a browser, which does not need the display (over ssh -X it "
            "is an old one), ",
        )
    why = f" ({faults[0]})" if faults else ""
    return (
        f"no window could be opened{why}. Is a display reachable (DISPLAY or "
        "WAYLAND_DISPLAY)? Without one use --web, for a browser, or splatview shot"
    )


class WindowScreen:
    """A resizable window with an OpenGL 3.3 core context (or newer).

    One at a time: GLFW ends with it.
    """

    def __init__(
        self,
        width: int = 1280,
        height: int = 720,
        *,
        title: str = "splatview",
        vsync: bool = True,
        visible: bool = True,
    ) -> None:
        """Sides in points.

        `visible`: it is seen. Raises GraphicsError when there is no display or no
        OpenGL 3.3.
        """
        self._events: list[Event] = []
        self._closed = False
        self._title = title
        self._window: Any = None
        self.desktop = _WindowDesktop()
        self._clicks = ClickCounter()
        self._mods: Mods = frozenset()
        faults: list[str] = []
        let_go()
        with warnings.catch_warnings(
            record=True
        ) as caught:  # pyGLFW reports errors as warnings
            warnings.simplefilter("always")
            ready = glfw.init()
            if ready:
                for hint, value in (
                    (glfw.CONTEXT_VERSION_MAJOR, 3),
                    (glfw.CONTEXT_VERSION_MINOR, 3),
                    (glfw.OPENGL_PROFILE, glfw.OPENGL_CORE_PROFILE),
                    (glfw.OPENGL_FORWARD_COMPAT, True),
                    (glfw.SCALE_TO_MONITOR, True),
                    (glfw.DEPTH_BITS, 0),
                    (glfw.STENCIL_BITS, 0),
                    (glfw.VISIBLE, visible),
                ):
                    glfw.window_hint(hint, value)
                width, height = _fit_screen(width, height)
                self._window = glfw.create_window(width, height, title, None, None)
            # pyGLFW writes its bytes as Python does: (65543) b'GLX: ...'
            faults = [re.sub(r" b'(.*)'$", r" \1", str(w.message)) for w in caught]
        if not self._window:
            offered = _offered_version() if ready else ""
            if ready:
                glfw.terminate()
            raise GraphicsError(_why_no_window(offered, faults))
        glfw.make_context_current(self._window)
        glfw.swap_interval(1 if vsync else 0)
        try:
            self.ctx = moderngl.create_context(require=330)
        except Exception as e:  # moderngl raises bare Exception here
            glfw.terminate()
            raise GraphicsError(
                f"no OpenGL 3.3 for a window ({e}); update the graphics driver"
            ) from e
        self._framebuffer = self.ctx.detect_framebuffer()
        self._framebuffer_size = self._framebuffer.size
        self._connect()

    def _connect(self) -> None:
        own = {
            "shift": "LEFT_SHIFT",
            "ctrl": "LEFT_CONTROL",
            "alt": "LEFT_ALT",
            "super": "LEFT_SUPER",
        }
        names = {
            getattr(glfw, "KEY_" + own.get(name, name.upper())): name for name in KEYS
        }
        # Both sides of the modifier keys share a name.
        names |= {
            getattr(glfw, "KEY_RIGHT_" + left.removeprefix("LEFT_")): name
            for name, left in own.items()
        }
        names[glfw.KEY_KP_ENTER] = "enter"

        def pixels(x: float, y: float) -> tuple[float, float]:
            points = glfw.get_window_size(self._window)
            width, height = self._size
            return x * width / max(points[0], 1), y * height / max(points[1], 1)

        def pointer() -> tuple[float, float]:
            return pixels(*glfw.get_cursor_pos(self._window))

        def button(_: Any, code: int, action: int, mods: int) -> None:
            which = _BUTTONS.get(code)
            if which is None:
                return
            x, y = pointer()
            if action == glfw.PRESS:
                clicks = self._clicks.count(glfw.get_time(), x, y, which, self._scale)
                self._events.append(PointerPress(x, y, which, _mods(mods), clicks))
            else:
                self._events.append(PointerRelease(x, y, which, _mods(mods)))

        def key(_: Any, code: int, _scan: int, action: int, mods: int) -> None:
            self._mods = _mods(mods)
            name = names.get(code)
            if name:
                self._events.append(
                    Key(name, action != glfw.RELEASE, self._mods, action == glfw.REPEAT)
                )

        def move(_: Any, x: float, y: float) -> None:
            if self._events and isinstance(
                self._events[-1], PointerMove
            ):  # a fast mouse sends a thousand a second
                self._events.pop()
            self._events.append(PointerMove(*pixels(x, y), self._mods))

        def resize(_: Any, width: int, height: int) -> None:
            if width > 0 and height > 0:  # a minimised window has neither
                self._events.append(Resize(width, height, self._scale))

        on: dict[str, Callable[..., None]] = {
            "cursor_pos": move,
            "cursor_enter": lambda _, inside: (
                None if inside else self._events.append(PointerLeave())
            ),
            "mouse_button": button,
            "scroll": lambda _, dx, dy: self._events.append(
                Wheel(*pointer(), dy, -dx, self._mods)
            ),
            "key": key,
            "char": lambda _, code: self._events.append(Text(chr(code))),
            "framebuffer_size": resize,
            "window_refresh": lambda _: self._events.append(Expose()),
            "window_close": lambda _: self._events.append(Close()),
        }
        for name, callback in on.items():
            getattr(glfw, f"set_{name}_callback")(self._window, callback)
        self._take_drops()

    def _take_drops(self) -> None:
        """Have dropped files become events.

        pyGLFW's own callback ends at names that are not UTF-8.
        """

        def drop(_: Any, count: int, paths: Any) -> None:
            names = tuple(os.fsdecode(paths[i]) for i in range(count))
            self._events.append(FileDrop(names))

        own: Any = glfw
        self._drop = own._GLFWdropfun(drop)  # kept alive for as long as GLFW calls it
        own._glfw.glfwSetDropCallback(self._window, self._drop)

    @property
    def _size(self) -> tuple[int, int]:
        width, height = (
            glfw.get_framebuffer_size(self._window) if self._window else (0, 0)
        )
        return (width, height) if width > 0 and height > 0 else self._framebuffer_size

    @property
    def _scale(self) -> float:
        if self._window:
            return max(glfw.get_window_content_scale(self._window)[0], 0.5)
        return 1.0

    @property
    def state(self) -> ScreenState:
        visible = bool(self._window) and not glfw.get_window_attrib(
            self._window, glfw.ICONIFIED
        )
        return ScreenState(
            self._size, self._scale, visible, bool(self._window), self._closed
        )

    @property
    def framebuffer(self) -> moderngl.Framebuffer:
        if self._size != self._framebuffer_size:
            self._framebuffer_size = self._size
            # moderngl keeps the size that it saw first, and has no way to be told
            # another
            self._framebuffer._size = self._size  # pyright: ignore[reportAttributeAccessIssue]
            self._framebuffer.viewport = (0, 0, *self._size)
        return self._framebuffer

    def poll(self, timeout: float) -> list[Event]:
        if self._window:
            if timeout > 0 and not self._events:
                glfw.wait_events_timeout(timeout)
            else:
                glfw.poll_events()
        events = self._events
        self._events = []
        if any(isinstance(e, Close) for e in events):
            self._closed = True
        return events

    def wake(self) -> None:
        if self._window:
            glfw.post_empty_event()

    def present(self, caption: Caption) -> None:
        glfw.swap_buffers(self._window)
        if caption.title != self._title:
            self._title = caption.title
            glfw.set_window_title(self._window, caption.title)

    def close(self) -> None:
        self._closed = True
        if self._window is None:
            return
        self.ctx.release()
        self._window = None
        glfw.terminate()


class _WindowDesktop(LocalDesktop):
    def copy(self, text: str) -> None:
        glfw.set_clipboard_string(None, text)  # pyright: ignore[reportArgumentType]

    def pasted(self) -> str:
        with (
            warnings.catch_warnings()
        ):  # an empty clipboard, or one that holds no text, is an error to GLFW
            warnings.simplefilter("ignore")
            text: bytes | str | None = glfw.get_clipboard_string(None)  # pyright: ignore[reportArgumentType]
        if isinstance(text, bytes):
            return text.decode("utf-8", "replace")
        return text or ""


def _mods(bits: int) -> Mods:
    return frozenset(name for bit, name in _MODS.items() if bits & bit)
