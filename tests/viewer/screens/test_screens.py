"""Conformance of all screens to what `splatview_viewer.core.screen.Screen` promises."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.wait import PATIENCE_S, polls, wait_until

from splatview_ipc.gl.glapi import gl_device_uuid
from splatview_viewer.app.loop import App, AppOptions, step
from splatview_viewer.core import events as ev
from splatview_viewer.core.events import Close, Key, Resize, Text
from splatview_viewer.core.screen import Caption, Rect, Screen, read_pixels
from splatview_viewer.screens.egl import devices
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.screens.window import WindowScreen
from splatview_viewer.web.browser import BrowserScreen

SCREENS = ["offscreen", pytest.param("window", marks=pytest.mark.display), "browser"]


@pytest.fixture(params=SCREENS)
def screen(request: pytest.FixtureRequest) -> Iterator[Screen]:
    if request.param == "offscreen":
        new_screen: Screen = OffscreenScreen(96, 64)
    elif request.param == "browser":
        new_screen = request.getfixturevalue("rig").open(96, 64)
    else:
        new_screen = request.getfixturevalue("window")
    yield new_screen
    new_screen.close()


def resize(
    screen: Screen, width: int, height: int, request: pytest.FixtureRequest
) -> None:
    """Resize a screen as its user would."""
    if isinstance(screen, OffscreenScreen):
        screen.push(Resize(width, height))
    elif isinstance(screen, BrowserScreen):
        request.getfixturevalue("rig").pages[screen].send(ev.Resize(width, height))
    else:
        import glfw

        glfw.set_window_size(screen._window, width, height)  # type: ignore[attr-defined]


def test_pixels_have_the_top_row_first(screen: Screen) -> None:
    screen.framebuffer.clear(0.0, 0.0, 1.0, 1.0)
    # OpenGL counts rows from the bottom.
    screen.framebuffer.clear(1.0, 0.0, 0.0, 1.0, viewport=(0, 54, 20, 10))
    pixels = read_pixels(screen.framebuffer)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (64, 96, 4)
    expected = np.full((64, 96, 4), (0, 0, 255, 255))
    expected[:10, :20] = 255, 0, 0, 255
    np.testing.assert_array_equal(pixels, expected)


def test_picture_of_cuda_lies_in_the_framebuffer_of_who_asks(screen: Screen) -> None:
    pictures = screen.device_pictures
    if pictures is None:
        pytest.skip("takes what OpenGL draws alone")
    screen.framebuffer.clear(0.0, 0.0, 1.0, 1.0)
    picture = torch.arange(30 * 20 * 3, dtype=torch.uint8).view(20, 30, 3)
    covered: list[Any] = []
    pictures.put(picture, Rect(10, 5, 30, 20), covered.append)
    screen.present(Caption())
    assert not covered
    pixels = read_pixels(screen.framebuffer)
    assert covered == [screen.framebuffer], "drawn over once"
    expected = np.full((64, 96, 4), (0, 0, 255, 255))
    expected[5:25, 10:40, :3] = picture
    np.testing.assert_array_equal(pixels, expected)


def test_resize_is_reported_and_followed(
    screen: Screen, request: pytest.FixtureRequest
) -> None:
    screen.framebuffer.clear(1.0, 0.0, 0.0, 1.0)
    screen.present(Caption())
    screen.poll(0)
    resize(screen, 140, 90, request)
    sizes: list[tuple[int, int]] = []

    def is_reported() -> bool:
        for event in screen.poll(0.05):
            if isinstance(event, Resize):
                sizes.append((event.width, event.height))
        return bool(sizes)

    wait_until(is_reported)
    assert sizes[-1] == (140, 90)
    assert screen.state.size == (140, 90)
    assert screen.framebuffer.size == (140, 90)
    screen.framebuffer.clear(0.0, 1.0, 0.0, 1.0)
    assert (read_pixels(screen.framebuffer)[..., :3] == (0, 255, 0)).all()


def test_wake_ends_a_sleep(screen: Screen) -> None:
    """Check also a sleep that starts after the call."""
    waker = threading.Thread(target=screen.wake)
    waker.start()
    assert isinstance(screen.poll(PATIENCE_S), list)
    waker.join()


def test_clipboard_returns_what_was_copied(screen: Screen) -> None:
    text = '{"position": [0, -1, -4]}  \u00e4\u4e16'
    screen.desktop.copy(text)

    def is_pasted() -> bool:
        screen.poll(0.01)
        return screen.desktop.pasted() == text

    wait_until(is_pasted)


def test_close_is_idempotent(screen: Screen) -> None:
    assert screen.state.visible
    assert not screen.state.closed
    assert screen.state.scale > 0
    screen.close()
    screen.close()
    assert screen.state.closed
    assert not screen.state.visible


@pytest.mark.parametrize("screen", SCREENS[:2], indirect=True)
def test_kept_picture_overwrites_no_file(
    screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pictures = [np.full((4, 6, 3), shade, np.uint8) for shade in (10, 200)]
    for picture in pictures:
        screen.desktop.keep(picture, "render/7")
    names = ["render-7.png", "render-7-2.png"]
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    for name, picture in zip(names, pictures, strict=True):
        pixels = np.asarray(Image.open(tmp_path / name))
        np.testing.assert_array_equal(pixels, picture)


# -- one implementation each ---------------------------------------------------


@pytest.fixture
def window(display: str) -> Iterator[WindowScreen]:
    from splatview_viewer.screens.window import WindowScreen

    screen = WindowScreen(96, 64, vsync=False)
    yield screen
    screen.close()


@pytest.mark.display
def test_window_reports_the_events_of_glfw(window: WindowScreen) -> None:
    """Call the functions that GLFW was given."""
    import glfw

    handle: Any = window._window
    window.poll(0)
    for name, args, event in (
        ("key", (glfw.KEY_W, 0, glfw.PRESS, 0), Key("w")),
        (
            "key",
            (glfw.KEY_TAB, 0, glfw.RELEASE, glfw.MOD_SHIFT),
            Key("tab", False, frozenset({"shift"})),
        ),
        ("char", (0x4E16,), Text("\u4e16")),
        ("window_close", (), Close()),
    ):
        set_callback = getattr(glfw, f"set_{name}_callback")
        callback = set_callback(handle, None)
        callback(handle, *args)
        set_callback(handle, callback)
        assert event in window.poll(0)
    assert window.state.closed


@pytest.mark.display
def test_window_shows_what_the_viewer_draws(display: str, tmp_path: Path) -> None:
    from splatview_viewer.screens.window import WindowScreen

    picture = np.random.default_rng(0).integers(0, 256, (320, 600, 3), dtype=np.uint8)
    Image.fromarray(picture).save(tmp_path / "in.png")
    app = App(
        WindowScreen(600, 320, vsync=False),
        AppOptions(files=(tmp_path / "in.png",), max_fps=500, panel=False),
    )
    for _ in polls("the picture in the window"):
        step(app)
        drawn = read_pixels(app.screen.framebuffer)[..., :3]
        if np.array_equal(drawn, picture):
            break
    app.close()


@pytest.mark.display
def test_window_larger_than_the_screen_is_fitted(
    display: str, caplog: pytest.LogCaptureFixture
) -> None:
    from splatview_viewer.screens.window import WindowScreen

    screen = WindowScreen(8000, 2000, vsync=False)
    width, height = screen.framebuffer.size
    screen.close()
    assert width < 8000
    assert abs(width / height - 4) < 0.05
    assert f"8000x2000 is larger than the screen ({width}x" in caplog.text


OLD = """
from splatview_viewer.core.errors import GraphicsError
from splatview_viewer.screens.{module} import {screen}
try:
    {screen}(64, 64)
except GraphicsError as e:
    print(e)
"""


@pytest.mark.parametrize(
    ("module", "screen", "display_name"),
    [
        ("offscreen", "OffscreenScreen", "EGL"),
        pytest.param(
            "window", "WindowScreen", "this display", marks=pytest.mark.display
        ),
    ],
)
@pytest.mark.programs
def test_old_opengl_is_refused_with_both_versions(
    module: str, screen: str, display_name: str, request: pytest.FixtureRequest
) -> None:
    if module == "window":
        request.getfixturevalue("display")
    program = subprocess.run(
        [sys.executable, "-c", OLD.format(module=module, screen=screen)],
        env={**os.environ, "MESA_GL_VERSION_OVERRIDE": "2.1"},
        capture_output=True,
        text=True,
        check=True,
    )
    if not program.stdout:
        pytest.skip("not Mesa's OpenGL, which can be had in an older version")
    message = f"OpenGL 3.3 or newer is needed, {display_name} offers 2.1 ("
    assert program.stdout.startswith(message)
    assert "update the graphics driver" in program.stdout


# -- which GPU the offscreen screen draws on -----------------------------------


def test_missing_gpu_is_no_fault() -> None:
    screen = OffscreenScreen(64, 48, gpu_uuid="a" * 32)
    assert screen.ctx.error == "GL_NO_ERROR"
    screen.close()


@pytest.mark.cuda
def test_every_gpu_of_cuda_can_be_drawn_on() -> None:
    import torch

    from splatview_ipc.cuda.driver import gpu_uuid

    assert any(device.nvidia for device in devices()), devices()
    for index in range(torch.cuda.device_count()):
        screen = OffscreenScreen(64, 48, gpu_uuid=gpu_uuid(index))
        assert gl_device_uuid(screen.ctx) == gpu_uuid(index), devices()
        screen.framebuffer.clear(0.0, 1.0, 0.0, 1.0)
        assert (screen.pixels() == (0, 255, 0, 255)).all()
        screen.close()
