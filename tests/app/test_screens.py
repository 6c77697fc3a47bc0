"""One conformance suite over all screens: what `splatview.viewer_app.screens.base.Screen` promises, each keeps."""

from __future__ import annotations

import pkgutil
import shutil
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.browser_rig import Rig
from support.wait import PATIENCE

from splatview.viewer_app import screens
from splatview.viewer_app.errors import GraphicsError, ViewerError
from splatview.viewer_app.events import (
    KEYS,
    ClickCounter,
    Close,
    FileDrop,
    Key,
    PointerMove,
    PointerPress,
    PointerRelease,
    Resize,
    Text,
    Wheel,
)
from splatview.viewer_app.screens.base import Caption, parse_size
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.web import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.programs import Programs

    from splatview.viewer_app.screens.base import Screen
    from splatview.viewer_app.screens.window import WindowScreen

SCREENS = ["offscreen", pytest.param("window", marks=pytest.mark.display), "browser"]
NAMES = {"offscreen", "window", "browser"}


@pytest.fixture
def rig() -> Iterator[Rig]:
    """What browser screens need around them."""
    with Rig() as made:
        yield made


def open_screen(name: str, rig: Rig | None = None, width: int = 96, height: int = 64) -> Screen:
    if name == "offscreen":
        return OffscreenScreen(width, height)
    if name == "browser":
        assert rig is not None
        return rig.open(width, height)
    from splatview.viewer_app.screens.window import WindowScreen

    return WindowScreen(width, height, vsync=False)


@pytest.fixture(params=SCREENS)
def screen(request: pytest.FixtureRequest) -> Iterator[Screen]:
    if request.param == "window":
        request.getfixturevalue("display")
    s = open_screen(request.param, request.getfixturevalue("rig") if request.param == "browser" else None)
    yield s
    s.close()


def resize(screen: Screen, width: int, height: int, request: pytest.FixtureRequest) -> None:
    """As its user would."""
    if isinstance(screen, OffscreenScreen):
        screen.push(Resize(width, height))
    elif screen.name == "browser":
        request.getfixturevalue("rig").pages[screen].send(messages.Resize(width, height))
    else:
        import glfw

        glfw.set_window_size(screen._window, width, height)  # type: ignore[attr-defined]


def test_no_screen_was_missed() -> None:
    modules = {m.name for m in pkgutil.iter_modules(screens.__path__) if not m.name.startswith("_")}
    modules -= {"base"}
    assert modules == NAMES, "a screen without a place in this suite, or the other way round"


def test_what_it_says_about_itself(screen: Screen) -> None:
    assert screen.name in NAMES
    assert screen.ctx.version_code >= 330
    assert screen.size == (96, 64)
    assert screen.framebuffer.size == (96, 64)
    assert screen.scale > 0
    assert screen.visible
    assert not screen.closed


def test_pixels_have_the_top_row_first(screen: Screen) -> None:
    screen.framebuffer.clear(0.0, 0.0, 1.0, 1.0)
    screen.framebuffer.clear(1.0, 0.0, 0.0, 1.0, viewport=(0, 54, 20, 10))  # OpenGL counts from the bottom
    pixels = screen.pixels()
    assert pixels.dtype == np.uint8
    assert pixels.shape == (64, 96, 4)
    assert (pixels[:10, :20, :3] == (255, 0, 0)).all()
    assert (pixels[10:, :, :3] == (0, 0, 255)).all()
    assert (pixels[:, 20:, :3] == (0, 0, 255)).all()
    assert (pixels[..., 3] == 255).all()


def test_every_picture_is_its_own(screen: Screen) -> None:
    for color in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)):
        screen.poll(0)
        screen.framebuffer.clear(*color, 1.0)
        assert (screen.pixels()[..., :3] == np.array(color) * 255).all()
        screen.present()


def test_resize_is_told_and_followed(screen: Screen, wait_until: Callable[..., object],
                                     request: pytest.FixtureRequest) -> None:
    screen.framebuffer.clear(1.0, 0.0, 0.0, 1.0)
    screen.present()
    screen.poll(0)
    resize(screen, 140, 90, request)
    told: list[Resize] = []
    wait_until(lambda: told.extend(e for e in screen.poll(0.05) if isinstance(e, Resize)) or told)
    assert (told[-1].width, told[-1].height) == (140, 90) == screen.size
    assert screen.framebuffer.size == (140, 90)
    screen.framebuffer.clear(0.0, 1.0, 0.0, 1.0)
    pixels = screen.pixels()
    assert pixels.shape == (90, 140, 4)
    assert (pixels[..., :3] == (0, 255, 0)).all()
    screen.present()


def test_poll_sleeps_instead_of_spinning(screen: Screen) -> None:
    for _ in range(20):  # what the window system has to say at first
        screen.poll(0.02)

    def cpu() -> float:
        before = time.process_time()
        for _ in range(5):
            screen.poll(0.1)
        return time.process_time() - before

    assert any(cpu() < 0.25 for _ in range(5)), "spinning takes twice that, each time"


def test_wake_ends_a_sleep(screen: Screen) -> None:
    for _ in range(5):
        screen.poll(0.02)
    waker = threading.Timer(0.2, screen.wake)
    waker.start()
    begin = time.monotonic()
    events = screen.poll(PATIENCE)
    waker.join()
    assert time.monotonic() - begin < PATIENCE / 2
    assert isinstance(events, list)


def test_it_takes_pictures_one_after_the_other(screen: Screen, wait_until: Callable[..., object]) -> None:
    for _ in range(3):
        wait_until(lambda: (screen.poll(0.01), screen.ready)[1])
        screen.framebuffer.clear(0.5, 0.5, 0.5, 1.0)
        screen.present()


def test_the_clipboard(screen: Screen, wait_until: Callable[..., object]) -> None:
    text = "{\"position\": [0, -1, -4]}  \u00e4\u4e16"
    screen.copy(text)
    wait_until(lambda: (screen.poll(0.01), screen.clipboard())[1] == text)


def test_a_caption_can_change_at_any_time(screen: Screen) -> None:
    for caption in (Caption(), Caption("render"), Caption("render", "The run has ended", typing=True)):
        screen.caption(caption)
        screen.poll(0)


def test_close_is_idempotent(screen: Screen) -> None:
    screen.close()
    screen.close()
    assert screen.closed
    assert not screen.visible


def test_another_one_can_be_opened_afterwards(screen: Screen, request: pytest.FixtureRequest) -> None:
    screen.close()
    again = open_screen(screen.name, request.getfixturevalue("rig") if screen.name == "browser" else None)
    again.framebuffer.clear(0.0, 1.0, 0.0, 1.0)
    assert (again.pixels()[..., 1] == 255).all()
    again.close()


@pytest.mark.parametrize("name", ["offscreen", pytest.param("window", marks=pytest.mark.display)])
def test_a_picture_to_keep_is_a_file_that_overwrites_none(
        name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "window":
        request.getfixturevalue("display")
    monkeypatch.chdir(tmp_path)
    screen = open_screen(name)
    pictures = [np.full((4, 6, 3), shade, np.uint8) for shade in (10, 200)]
    for picture in pictures:
        screen.keep(picture, "render/7")
    screen.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["render-7-2.png", "render-7.png"]
    for path, picture in zip(("render-7.png", "render-7-2.png"), pictures, strict=True):
        np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / path)), picture)


# -- one implementation each ---------------------------------------------------------------------------------


def test_offscreen_events_come_in_order_and_once() -> None:
    screen = OffscreenScreen(32, 32)
    sent = [PointerMove(1, 2), PointerPress(1, 2), Wheel(1, 2, -1.0), Key("f"), Text("f"), FileDrop(("a.ply",)),
            Close()]
    screen.push(*sent)
    assert screen.poll(10) == sent
    assert screen.closed
    assert screen.poll(0) == []
    screen.close()


def test_without_egl_the_message_names_the_mend(programs: Programs) -> None:
    code = "from splatview.viewer_app.screens.offscreen import create_context; create_context()"
    process = programs.code(code, GLCONTEXT_LINUX_LIBEGL="libEGL-that-is-not-there.so")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert "GraphicsError: EGL not found" in err
    assert "apt-get install libegl1" in err


@pytest.mark.display
def test_no_display_is_told_as_such(programs: Programs, display: str) -> None:
    code = "from splatview.viewer_app.screens.window import WindowScreen; WindowScreen()"
    process = programs.code(code, DISPLAY=":4567", WAYLAND_DISPLAY="")
    _, err = process.communicate(timeout=PATIENCE)
    assert "GraphicsError: no window could be opened" in err
    assert "--offscreen" in err


@pytest.fixture
def window(display: str) -> Iterator[WindowScreen]:
    from splatview.viewer_app.screens.window import WindowScreen

    screen = WindowScreen(200, 100, vsync=False)
    yield screen
    screen.close()


@pytest.mark.display
@pytest.mark.skipif(shutil.which("xdotool") is None, reason="xdotool moves the mouse: apt-get install xdotool")
def test_window_hears_mouse_and_keyboard(window: WindowScreen, wait_until: Callable[..., object]) -> None:
    window.framebuffer.clear()
    window.present()
    heard: list[object] = []

    def hear(kind: type, *, then: tuple[str, ...], check: Callable[[Any], bool] = lambda e: True) -> None:
        heard.clear()
        subprocess.run(["xdotool", *then], check=True, capture_output=True)
        wait_until(lambda: heard.extend(window.poll(0.02)) or any(isinstance(e, kind) and check(e) for e in heard),
                   what=f"{kind.__name__} after {then}, not {heard}")

    import glfw

    glfw.set_window_pos(window._window, 100, 100)
    for _ in range(10):
        window.poll(0.02)
    left, top = glfw.get_window_pos(window._window)
    hear(PointerMove, then=("mousemove", str(left + 30), str(top + 40)), check=lambda e: (e.x, e.y) == (30, 40))
    hear(PointerPress, then=("mousedown", "1"), check=lambda e: e.button == "left" and (e.x, e.y) == (30, 40))
    hear(PointerRelease, then=("mouseup", "1"), check=lambda e: e.button == "left")
    hear(PointerPress, then=("click", "3"), check=lambda e: e.button == "right")
    hear(Wheel, then=("click", "4"), check=lambda e: e.dy == 1)
    hear(Wheel, then=("click", "5"), check=lambda e: e.dy == -1)
    glfw.focus_window(window._window)
    hear(Key, then=("key", "h"), check=lambda e: e.name == "h" and e.pressed)
    hear(Text, then=("key", "g"), check=lambda e: e.text == "g")
    hear(Key, then=("key", "shift+Tab"), check=lambda e: e.name == "tab" and "shift" in e.mods)


@pytest.mark.display
def test_window_close_button(window: WindowScreen) -> None:
    import glfw

    callback = glfw.set_window_close_callback(window._window, None)  # type: ignore[arg-type]  # what the window manager's request ends in
    assert callback is not None
    callback(window._window)
    assert Close() in window.poll(0)
    assert window.closed


@pytest.mark.display
@pytest.mark.parametrize(("options", "interval"), [([], 1), (["--vsync"], 1), (["--no-vsync"], 0)])
def test_waiting_for_the_refresh_is_an_option(
        display: str, monkeypatch: pytest.MonkeyPatch, options: list[str], interval: int) -> None:
    import glfw

    from splatview.viewer_app.commands import Serve, parse

    asked: list[int] = []
    swap_interval = glfw.swap_interval
    monkeypatch.setattr(glfw, "swap_interval", lambda n: (asked.append(n), swap_interval(n))[-1])
    command = parse(["serve", "--window", *options])
    assert isinstance(command, Serve)
    command._open_screen((64, 64)).close()
    assert asked == [interval]


@pytest.mark.display
def test_window_keys_have_names(window: WindowScreen) -> None:
    from splatview.viewer_app.screens.window import _key_names

    assert set(_key_names().values()) == set(KEYS)


def test_double_clicks_are_counted() -> None:
    clicks = ClickCounter()
    assert clicks.count(10.0, 5, 5, "left") == 1
    assert clicks.count(10.2, 6, 5, "left") == 2
    assert clicks.count(10.4, 6, 5, "left") == 1  # a third press begins anew
    assert clicks.count(11.0, 6, 5, "left") == 1  # too late
    assert clicks.count(11.1, 40, 5, "left") == 1  # elsewhere
    assert clicks.count(11.2, 40, 5, "right") == 1  # another button


def test_sizes() -> None:
    assert parse_size("1280x720") == (1280, 720)
    assert parse_size("16X16") == (16, 16)
    for bad in ("", "x", "12", "12x", "axb", "-5x40", "0x0", "8x800", "99999x20", "1e3x20", "\u0661\u0662x20"):
        with pytest.raises(ViewerError, match="size: "):
            parse_size(bad)


def test_a_graphics_error_is_a_viewer_error() -> None:
    assert issubclass(GraphicsError, ViewerError)
