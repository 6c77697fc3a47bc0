"""`splatview.Window`: what its user sees, its end, and what it refuses where nothing can be opened."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.desktop import Desktop
from support.programs import children

from splatview import Window
from splatview_ipc.control.registry import viewers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Seen = Callable[[str, Callable[[np.ndarray], Any]], None]

W, H = 320, 200
SIZE = 120, 90


def image(value: float, size: tuple[int, int] = SIZE) -> torch.Tensor:
    return torch.full((size[1], size[0], 3), value)


def scene(n: int = 400) -> tuple[torch.Tensor, ...]:
    """A red ball before a blue background, as the arguments of `set_gaussian_splatting_scene`."""
    g = torch.Generator().manual_seed(0)
    shs = torch.zeros(n, 4, 3)
    shs[:, 0] = torch.tensor([1.77, -1.77, -1.77])  # (0.5, -0.5, -0.5) over Y00: pure red
    rotations = torch.tensor([[1.0, 0, 0, 0]]).repeat(n, 1)
    return (torch.tensor([0.0, 0.0, 1.0]), torch.randn(n, 3, generator=g) * 0.3, shs, torch.full((n, 1), 0.95),
            torch.full((n, 3), 0.1), rotations)


def grey(value: float) -> Callable[[np.ndarray], Any]:
    """All of a picture is of this grey."""
    return lambda p: (np.abs(p.astype(int) - round(value * 255)) <= 1).all()


def red_ball(picture: np.ndarray) -> bool:
    h, w = picture.shape[:2]
    middle, corner = picture[h // 2, w // 2].astype(int), picture[2, 2].astype(int)
    return bool(middle[0] > 150 and middle[1:].max() < 90 and corner[2] > 200 and corner[:2].max() < 40)


@pytest.fixture
def desktop(display: str) -> Desktop:
    return Desktop(display)


@pytest.fixture
def windows(display: str) -> Iterator[Callable[..., Window]]:
    """`windows(title)`: a window of 120 x 90 that does not outlive its test."""
    made: list[Window] = []

    def make(title: str, size: tuple[int, int] = SIZE) -> Window:
        made.append(Window(*size, title))
        return made[-1]

    yield make
    for window in made:
        window.destroy()


@pytest.fixture
def seen(desktop: Desktop, wait_until: Callable[..., Any]) -> Seen:
    """`seen(title, fits)`: wait until a window shows a picture that fits."""
    def look(title: str, fits: Callable[[np.ndarray], Any]) -> Any:
        picture = desktop.picture(title)
        return picture is not None and picture.size and fits(picture)

    return lambda title, fits: wait_until(lambda: look(title, fits), what=title)


def programs_of_windows() -> list[int]:
    return [pid for pid, command in children(os.getpid()).items() if " window " in command]


def user(desktop: Desktop, title: str, look: Callable[[], Any]) -> threading.Thread:
    """Close the window after this look, in a thread; where that fails, end it."""
    def use() -> None:
        try:
            look()
            desktop.close(title)
        except BaseException:
            for pid in programs_of_windows():
                os.kill(pid, signal.SIGKILL)
            raise

    thread = threading.Thread(target=use)
    thread.start()
    return thread


# ---- on a display


@pytest.mark.display
def test_window_shows_images_and_scenes(windows: Callable[..., Window], seen: Seen, desktop: Desktop,
                                                  wait_until: Callable[..., Any]) -> None:
    y, x = np.mgrid[0:H, 0:W]
    pixels = np.stack([x % 256, y, (x + y) % 256], -1).astype(np.uint8)
    window = windows("shown", (W, H))
    assert (window.size(), window.fps(), window.is_running()) == ((W, H), 0.0, False)
    window.set_image(pixels)
    window.start()
    assert window.is_running()
    seen("shown", lambda p: np.array_equal(p, pixels))
    assert window.size() == (W, H)

    picture = image(0.25, (W, H))
    window.set_image(picture)
    seen("shown", grey(0.25))
    for value in (0.5, 1.0, 0.0):
        picture[:] = value  # and no call
        seen("shown", grey(value))

    names = "background", "means3d", "shs", "opacity", "scales", "rotations"
    arguments = dict(zip(names, scene(), strict=True))
    window.set_gaussian_splatting_scene(*arguments.values())
    seen("shown", red_ball)
    shs = torch.zeros(400, 16, 3)
    shs[:, :1] = arguments["shs"][:, :1] * -1
    window.set_gaussian_splatting_scene(**{**arguments, "shs": shs, "opacity": arguments["opacity"][:, 0],
                                           "background": (0.0, 0.0, 1.0)})
    seen("shown", lambda p: not red_ball(p))
    shs[:, :1] *= -1
    seen("shown", red_ball)
    window.set_image(picture.fill_(0.5))
    seen("shown", grey(0.5))

    wait_until(lambda: picture.add_(0.001) is picture and window.fps() > 0)
    desktop.resize("shown", 200, 160)
    wait_until(lambda: window.size() == (200, 160))


@pytest.mark.display
def test_window_is_killed_opened_again_and_closed(windows: Callable[..., Window], seen: Seen, desktop: Desktop,
                                                  wait_until: Callable[..., Any],
                                                  caplog: pytest.LogCaptureFixture) -> None:
    window, picture = windows("life"), image(0.5)
    window.set_image(picture)
    window.start()
    seen("life", grey(0.5))
    with pytest.raises(RuntimeError, match="already started"):
        window.start()

    (pid,) = programs_of_windows()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not window.is_running())
    window.set_image(picture.fill_(0.75))
    assert caplog.text.count("code -9") == 1

    def look() -> None:
        wait_until(lambda: desktop.shows("life"))
        window.set_image(picture)
        seen("life", grey(0.75))

    thread = user(desktop, "life", look)
    window.start(blocking=True)
    thread.join()
    assert not window.is_running()
    window.set_image(image(1.0))
    window.set_gaussian_splatting_scene(*scene())
    assert (window.size(), window.fps(), window.is_running()) == (SIZE, 0, False)
    assert not desktop.shows("life")


# ---- without one


@pytest.mark.programs
def test_without_a_display_a_page_shows_it(monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any],
                                           capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    window = Window(64, 64)
    window.set_image(image(0.5))
    window.start()
    said: list[str] = []
    wait_until(lambda: said.append(capfd.readouterr().err) or "http://127.0.0.1" in "".join(said))
    assert window.is_running()
    assert window.size() == (64, 64)
    (viewer,) = viewers()
    assert viewer.run == str(os.getpid())
    window.destroy()
    assert not window.is_running()


def test_a_picture_at_an_address(arrived: Callable[[str], dict[str, np.ndarray]]) -> None:
    array = np.random.default_rng(0).random((20, 30, 4), np.float32)
    window = Window(64, 64)
    window.set_image(30, 20, array.ctypes.data)
    np.testing.assert_array_equal(arrived("window")["image"], array)
    window.set_image(torch.from_numpy(array)[None])
    np.testing.assert_array_equal(arrived("window")["image"], array)
