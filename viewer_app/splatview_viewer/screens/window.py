"""A window on the desktop, through GLFW."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import warnings
from typing import TYPE_CHECKING, Any

import moderngl

from splatview_viewer.core.errors import GraphicsError
from splatview_viewer.core.events import Close
from splatview_viewer.core.screen import ScreenState
from splatview_viewer.screens import gl_versions
from splatview_viewer.screens.egl import let_go
from splatview_viewer.screens.glfw_library import glfw
from splatview_viewer.screens.offscreen import LocalDesktop
from splatview_viewer.screens.window_events import WindowEvents

if TYPE_CHECKING:
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Caption, Favour

log = logging.getLogger("splatview")


def _fit_screen(width: int, height: int) -> tuple[int, int]:
    """Return the size of a window, in proportion, for which the screen has room."""
    monitor = glfw.get_primary_monitor()
    if not monitor:
        return width, height
    *_, area_width, area_height = glfw.get_monitor_workarea(monitor)
    # On X11 the work area is in pixels, and a window gets its points times the scale of
    # them.
    is_wayland = "wayland" in os.environ.get("PYGLFW_LIBRARY", "")
    scale = 1.0
    if not is_wayland:
        scale = max(*glfw.get_monitor_content_scale(monitor), 1.0)
    max_width = area_width / scale
    max_height = area_height / scale
    fits = width <= max_width and height <= max_height
    if fits or min(max_width, max_height) < 1:
        return width, height
    factor = min(max_width / width, max_height / height)
    fitted_width = max(int(width * factor), 1)
    fitted_height = max(int(height * factor), 1)
    log.warning(
        "a window of %dx%d is larger than the screen (%dx%d): it is opened as %dx%d",
        width,
        height,
        int(max_width),
        int(max_height),
        fitted_width,
        fitted_height,
    )
    return fitted_width, fitted_height


def _offered_version() -> str:
    """Return the OpenGL version and renderer of a window that asks for none.

    "" where there is none.
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
    """Return the words for a window that could not be opened.

    Args:
        offered: the OpenGL version of the display; "" for none.
        faults: GLFW's.
    """
    if offered:
        return gl_versions.too_old(
            "this display",
            offered,
            "use --web, for a browser, which does not need the display (over ssh -X it "
            "is an old one), ",
        )
    fault = f" ({faults[0]})" if faults else ""
    return (
        f"no window could be opened{fault}. Is a display reachable (DISPLAY or "
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
        """Open the window.

        Args:
            width: in points.
            height: in points.
            title: the title of the window.
            vsync: wait for the display's refresh.
            visible: True to show it.

        Raises:
            GraphicsError: there is no display or no OpenGL 3.3.
        """
        self._closed = False
        self._title = title
        self._window: Any = None
        self.interface = None
        self.device_pictures = None
        self.scenes = None
        let_go()
        self._open(width, height, visible)
        glfw.make_context_current(self._window)
        glfw.swap_interval(1 if vsync else 0)
        try:
            self.ctx = moderngl.create_context(require=330)
        except Exception as e:
            # moderngl raises bare Exception here.
            glfw.terminate()
            raise GraphicsError(
                f"no OpenGL 3.3 for a window ({e}); update the graphics driver"
            ) from e
        self.desktop = _WindowDesktop(self._window)
        self._framebuffer = self.ctx.detect_framebuffer()
        self._framebuffer_size = self._framebuffer.size
        self._events = WindowEvents(self._window, self)

    def _open(self, width: int, height: int, visible: bool) -> None:
        """Open GLFW's window. Raises GraphicsError."""
        # pyGLFW reports errors as warnings.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            is_ready = glfw.init()
            if is_ready:
                _set_hints(visible)
                width, height = _fit_screen(width, height)
                self._window = glfw.create_window(
                    width, height, self._title, None, None
                )
        if self._window:
            return
        # pyGLFW writes its bytes as Python does: (65543) b'GLX: ...'
        faults = [re.sub(r" b'(.*)'$", r" \1", str(w.message)) for w in caught]
        offered = ""
        if is_ready:
            offered = _offered_version()
            glfw.terminate()
        raise GraphicsError(_why_no_window(offered, faults))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels; the last ones while it is minimised or closed."""
        if self._window:
            width, height = glfw.get_framebuffer_size(self._window)
            if width > 0 and height > 0:
                return width, height
        return self._framebuffer_size

    @property
    def scale(self) -> float:
        """Pixels per point."""
        if self._window:
            return max(glfw.get_window_content_scale(self._window)[0], 0.5)
        return 1.0

    @property
    def state(self) -> ScreenState:
        is_open = bool(self._window)
        is_minimised = is_open and glfw.get_window_attrib(self._window, glfw.ICONIFIED)
        return ScreenState(
            size=self.size,
            scale=self.scale,
            visible=is_open and not is_minimised,
            ready=is_open,
            closed=self._closed,
        )

    @property
    def framebuffer(self) -> moderngl.Framebuffer:
        if self.size != self._framebuffer_size:
            self._framebuffer_size = self.size
            # moderngl keeps the size that it saw first, and has no way to set another.
            self._framebuffer._size = self.size  # pyright: ignore[reportAttributeAccessIssue]
            self._framebuffer.viewport = (0, 0, *self.size)
        return self._framebuffer

    @property
    def has_events(self) -> bool:
        return bool(self._events.queue)

    def poll(self, timeout: float) -> list[Event]:
        if self._window:
            if timeout > 0 and not self._events.queue:
                glfw.wait_events_timeout(timeout)
            else:
                glfw.poll_events()
        events = self._events.take()
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


def _set_hints(visible: bool) -> None:
    """Ask for a window with an OpenGL 3.3 core context."""
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


class _WindowDesktop(LocalDesktop):
    """The user of a window: GLFW has the clipboard."""

    favours: frozenset[Favour] = frozenset({"fullscreen"})

    def __init__(self, window: Any) -> None:
        super().__init__()
        self._window = window
        self._windowed_rect: tuple[int, int, int, int] | None = None
        """Position and size of the window before it filled the monitor."""

    @property
    def is_full(self) -> bool:
        return self._windowed_rect is not None

    def ask(self, favour: Favour) -> None:
        if favour != "fullscreen":
            return
        if self._windowed_rect is not None:
            no_monitor: Any = None
            glfw.set_window_monitor(
                self._window, no_monitor, *self._windowed_rect, glfw.DONT_CARE
            )
            self._windowed_rect = None
            return
        monitor = glfw.get_primary_monitor()
        if monitor:
            self._windowed_rect = (
                *glfw.get_window_pos(self._window),
                *glfw.get_window_size(self._window),
            )
            mode = glfw.get_video_mode(monitor)
            width, height = mode.size
            glfw.set_window_monitor(
                self._window, monitor, 0, 0, width, height, mode.refresh_rate
            )

    def copy(self, text: str) -> None:
        glfw.set_clipboard_string(None, text)  # pyright: ignore[reportArgumentType]

    def pasted(self) -> str:
        # An empty clipboard, or one that holds no text, is an error to GLFW.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            text: bytes | str | None = glfw.get_clipboard_string(None)  # pyright: ignore[reportArgumentType]
        if isinstance(text, bytes):
            return text.decode("utf-8", "replace")
        return text or ""
