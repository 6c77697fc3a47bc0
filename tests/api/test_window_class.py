"""`splatview.Window`: what its user sees, its end, and what it refuses where nothing
can be opened.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_long, c_uint, c_ulong, c_void_p
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from PIL import ImageGrab
from support.programs import children
from support.wait import wait_until

from splatview import Window
from splatview_ipc.control.registry import list_viewers
from splatview_ipc.system.child_program import ChildProgram

ShowsPicture = Callable[[str, Callable[[np.ndarray], Any]], None]

W = 320
H = 200
SIZE = 120, 90


def image(value: float, size: tuple[int, int] = SIZE) -> torch.Tensor:
    return torch.full((size[1], size[0], 3), value)


def scene(n: int = 400) -> tuple[torch.Tensor, ...]:
    """A red ball before a blue background, as the arguments of
    `set_gaussian_splatting_scene`.
    """
    g = torch.Generator().manual_seed(0)
    shs = torch.zeros(n, 4, 3)
    shs[:, 0] = torch.tensor(
        [1.77, -1.77, -1.77]
    )  # (0.5, -0.5, -0.5) over Y00: pure red
    rotations = torch.tensor([[1.0, 0, 0, 0]]).repeat(n, 1)
    return (
        torch.tensor([0.0, 0.0, 1.0]),
        torch.randn(n, 3, generator=g) * 0.3,
        shs,
        torch.full((n, 1), 0.95),
        torch.full((n, 3), 0.1),
        rotations,
    )


def grey(value: float) -> Callable[[np.ndarray], bool]:
    """Return a test of whether all of a picture is of this grey."""

    def is_grey(picture: np.ndarray) -> bool:
        difference = picture.astype(int) - round(value * 255)
        return bool(np.abs(difference).max() <= 1)

    return is_grey


def red_ball(picture: np.ndarray) -> bool:
    h, w = picture.shape[:2]
    middle = picture[h // 2, w // 2].astype(int)
    corner = picture[2, 2].astype(int)
    return bool(
        middle[0] > 150
        and middle[1:].max() < 90
        and corner[2] > 200
        and corner[:2].max() < 40
    )


def lacks_red_ball(picture: np.ndarray) -> bool:
    return not red_ball(picture)


@ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
def passed_over(display: Any, event: Any) -> int:
    """Ignore an error of Xlib.

    A window that closes while it is looked up would else end the process.
    """
    return 0


class Desktop:
    """The windows of a display, by their titles."""

    def __init__(self, display: str) -> None:
        self._name = display
        self._x: Any = ctypes.CDLL("libX11.so.6")
        for name in ("XOpenDisplay", "XDefaultRootWindow", "XInternAtom"):
            getattr(self._x, name).restype = c_ulong
        self._x.XSetErrorHandler(passed_over)

    def picture(self, title: str) -> np.ndarray | None:
        """Return what is visible of a window on the screen, (H, W, 3) uint8.

        None while there is no such window.
        """
        with self._window(title) as (display, window):
            if window is None:
                return None
            root = c_ulong()
            child = c_ulong()
            x = c_int()
            y = c_int()
            width, height, border, depth = (c_uint() for _ in range(4))
            self._x.XGetGeometry(
                display,
                window,
                byref(root),
                byref(x),
                byref(y),
                byref(width),
                byref(height),
                byref(border),
                byref(depth),
            )
            self._x.XTranslateCoordinates(
                display, window, root, 0, 0, byref(x), byref(y), byref(child)
            )
        box = x.value, y.value, x.value + width.value, y.value + height.value
        return np.asarray(ImageGrab.grab(box, xdisplay=self._name).convert("RGB"))

    def close(self, title: str) -> None:
        """Close a window as the button in its frame does."""
        with self._window(title) as (display, window):
            assert window is not None, f"no window {title!r}"
            kind, delete = (
                self._x.XInternAtom(display, name, 0)
                for name in (b"WM_PROTOCOLS", b"WM_DELETE_WINDOW")
            )
            # An XClientMessageEvent.
            event = (c_long * 24)(
                33, 0, 1, display.value, window.value, kind, 32, delete
            )
            self._x.XSendEvent(display, window, 0, c_long(0), byref(event))

    def resize(self, title: str, width: int, height: int) -> None:
        with self._window(title) as (display, window):
            self._x.XResizeWindow(display, window, width, height)

    @contextmanager
    def _window(self, title: str) -> Iterator[tuple[c_ulong, c_ulong | None]]:
        """Open a connection to the display; yield it with the window of this title."""
        display = c_ulong(self._x.XOpenDisplay(os.fsencode(self._name)))
        assert display.value, f"display {self._name} does not answer"
        todo = [self._x.XDefaultRootWindow(display)]
        match = None
        while todo and match is None:
            window = c_ulong(todo.pop())
            name = c_char_p()
            if (
                self._x.XFetchName(display, window, byref(name))
                and name.value == title.encode()
            ):
                match = window
            root = c_ulong()
            parent = c_ulong()
            children = POINTER(c_ulong)()
            count = c_uint()
            if self._x.XQueryTree(
                display,
                window,
                byref(root),
                byref(parent),
                byref(children),
                byref(count),
            ):
                todo += children[: count.value]
        yield display, match
        self._x.XSync(display, 0)
        self._x.XCloseDisplay(display)


@pytest.fixture
def desktop(display: str) -> Desktop:
    return Desktop(display)


@pytest.fixture
def windows(display: str) -> Iterator[Callable[..., Window]]:
    """`windows(title)`: a window of 120 x 90 that does not outlive its test."""
    with ExitStack() as opened:

        def make(title: str, size: tuple[int, int] = SIZE) -> Window:
            window = Window(*size, title)
            opened.callback(window.destroy)
            return window

        yield make


@pytest.fixture
def shows(desktop: Desktop) -> ShowsPicture:
    """`seen(title, fits)`: wait until a window shows a picture that fits."""

    def wait(title: str, fits: Callable[[np.ndarray], Any]) -> None:
        def shows_it() -> bool:
            picture = desktop.picture(title)
            return picture is not None and picture.size > 0 and bool(fits(picture))

        wait_until(shows_it, expected=title)

    return wait


def programs_of_windows() -> list[int]:
    return [
        pid for pid, command in children(os.getpid()).items() if " window " in command
    ]


def user(
    desktop: Desktop, title: str, wait_for_picture: Callable[[], Any]
) -> threading.Thread:
    """Close the window, in a thread, once a picture is there; end it where that fails."""

    def use() -> None:
        try:
            wait_for_picture()
            desktop.close(title)
        except BaseException:
            for pid in programs_of_windows():
                os.kill(pid, signal.SIGKILL)
            raise

    thread = threading.Thread(target=use)
    thread.start()
    return thread


@pytest.mark.display
def test_window_shows_images_and_scenes(
    windows: Callable[..., Window], shows: ShowsPicture, desktop: Desktop
) -> None:
    y, x = np.mgrid[0:H, 0:W]
    pixels = np.stack([x % 256, y, (x + y) % 256], -1).astype(np.uint8)
    window = windows("shown", (W, H))
    assert (window.size(), window.fps(), window.is_running()) == ((W, H), 0.0, False)
    window.set_image(pixels)
    window.start()
    assert window.is_running()
    shows("shown", partial(np.array_equal, pixels))
    assert window.size() == (W, H)

    picture = image(0.25, (W, H))
    window.set_image(picture)
    shows("shown", grey(0.25))
    for value in (0.5, 1.0, 0.0):
        picture[:] = value  # The window follows without a call.
        shows("shown", grey(value))

    names = "background", "means3d", "shs", "opacity", "scales", "rotations"
    arguments = dict(zip(names, scene(), strict=True))
    window.set_gaussian_splatting_scene(*arguments.values())
    shows("shown", red_ball)
    shs = torch.zeros(400, 16, 3)
    shs[:, :1] = arguments["shs"][:, :1] * -1
    window.set_gaussian_splatting_scene(
        **{
            **arguments,
            "shs": shs,
            "opacity": arguments["opacity"][:, 0],
            "background": (0.0, 0.0, 1.0),
        }
    )
    shows("shown", lacks_red_ball)
    shs[:, :1] *= -1
    shows("shown", red_ball)
    window.set_image(picture.fill_(0.5))
    shows("shown", grey(0.5))

    def draws_changes() -> bool:
        picture.add_(0.001)
        return window.fps() > 0

    wait_until(draws_changes)
    desktop.resize("shown", 200, 160)
    wait_until(lambda: window.size() == (200, 160))


@pytest.mark.display
@pytest.mark.soak
def test_window_opens_again_after_its_program_is_killed(
    windows: Callable[..., Window],
    shows: ShowsPicture,
    desktop: Desktop,
    caplog: pytest.LogCaptureFixture,
) -> None:
    window = windows("life")
    picture = image(0.5)
    window.set_image(picture)
    window.start()
    shows("life", grey(0.5))
    with pytest.raises(RuntimeError, match="already started"):
        window.start()

    (pid,) = programs_of_windows()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not window.is_running())
    window.set_image(picture.fill_(0.75))
    assert caplog.text.count("code -9") == 1

    def wait_for_picture() -> None:
        wait_until(lambda: desktop.picture("life") is not None)
        window.set_image(picture)
        shows("life", grey(0.75))

    thread = user(desktop, "life", wait_for_picture)
    window.start(blocking=True)
    thread.join()
    assert not window.is_running()
    window.set_image(image(1.0))
    window.set_gaussian_splatting_scene(*scene())
    assert (window.size(), window.fps(), window.is_running()) == (SIZE, 0, False)
    assert desktop.picture("life") is None


@pytest.mark.programs
def test_window_opens_a_page_where_no_display_exists(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    window = Window(64, 64)
    window.set_image(image(0.5))
    window.start()
    error_output: list[str] = []

    def prints_an_address() -> bool:
        error_output.append(capfd.readouterr().err)
        return "http://127.0.0.1" in "".join(error_output)

    wait_until(prints_an_address)
    assert window.is_running()
    assert window.size() == (64, 64)
    (viewer,) = list_viewers()
    assert viewer.run == str(os.getpid())

    def broken(program: ChildProgram) -> bool:
        raise OSError("too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(ChildProgram, "is_running", broken)
        assert window.size() == (64, 64)
        assert window.fps() == 0.0
        assert not window.is_running(), "a fault is no answer"
    window.destroy()
    assert not window.is_running()


def test_set_image_reads_a_picture_at_an_address(
    arrived: Callable[[str], dict[str, np.ndarray]],
) -> None:
    array = np.random.default_rng(0).random((20, 30, 4), np.float32)
    window = Window(64, 64)
    window.set_image(30, 20, array.ctypes.data)
    np.testing.assert_array_equal(arrived("window")["image"], array)
    window.set_image(torch.from_numpy(array)[None])
    np.testing.assert_array_equal(arrived("window")["image"], array)
