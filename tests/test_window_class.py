"""`splatview.Window` on a display: what its user sees, and what the calls say of it."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from desktop import Desktop
from open_files import open_files
from patience import PATIENCE
from programs import ROOT

import splatview
from splatview import Window, publishing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Processes

pytestmark = pytest.mark.display
SIZE = 120, 90


@pytest.fixture
def desktop(display: str) -> Desktop:
    return Desktop(display)


@pytest.fixture
def windows() -> Iterator[Callable[..., Window]]:
    """`windows(title)`: a window of 120 x 90 that does not outlive its test."""
    made: list[Window] = []

    def make(title: str, size: tuple[int, int] = SIZE) -> Window:
        made.append(Window(*size, title))
        return made[-1]

    yield make
    for window in made:
        window.destroy()


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


class Seen:
    """Waits until a window shows something."""

    def __init__(self, desktop: Desktop, wait_until: Callable[..., Any]) -> None:
        self._desktop = desktop
        self._wait = wait_until

    def __call__(self, title: str, fits: Callable[[np.ndarray], Any]) -> np.ndarray:
        def look() -> list[np.ndarray]:
            picture = self._desktop.picture(title)
            return [picture] if picture is not None and picture.size and fits(picture) else []

        return self._wait(look, what=title)[0]

    def grey(self, title: str, value: float) -> np.ndarray:
        """The whole of it in one colour."""
        return self(title, lambda p: (np.abs(p.astype(int) - round(value * 255)) <= 1).all())

    def gone(self, title: str) -> None:
        self._wait(lambda: not self._desktop.shows(title))


@pytest.fixture
def seen(desktop: Desktop, wait_until: Callable[..., Any]) -> Seen:
    return Seen(desktop, wait_until)


def red_ball(picture: np.ndarray) -> bool:
    h, w = picture.shape[:2]
    middle, corner = picture[h // 2, w // 2].astype(int), picture[2, 2].astype(int)
    return bool(middle[0] > 150 and middle[1:].max() < 90 and corner[2] > 200 and corner[:2].max() < 40)


def test_an_image_lies_as_it_is(windows: Callable[..., Window], seen: Seen) -> None:
    y, x = np.mgrid[0:SIZE[1], 0:SIZE[0]]
    pixels = np.stack([x * 2, y * 2, (x + y) % 256], -1).astype(np.uint8)
    window = windows("as it is")
    window.set_image(pixels)
    window.start()
    seen("as it is", lambda p: np.array_equal(p, pixels))
    assert window.size() == SIZE


def test_changes_in_place_are_seen(windows: Callable[..., Window], seen: Seen) -> None:
    window, picture = windows("in place"), image(0.25)
    window.start()
    window.set_image(picture)
    seen.grey("in place", 0.25)
    for value in (0.5, 1.0, 0.0):
        picture[:] = value
        seen.grey("in place", value)
    assert window.is_running()


def test_image_scene_image(windows: Callable[..., Window], seen: Seen) -> None:
    window = windows("both")
    window.start()
    shown = scene()
    for round_ in range(3):
        window.set_gaussian_splatting_scene(*shown)
        seen("both", red_ball)
        window.set_image(image(0.5))
        seen.grey("both", 0.5)
        assert window.is_running(), round_
    window.set_gaussian_splatting_scene(*shown)
    for _ in range(50):  # as fast as it goes: what was set last stays
        window.set_image(image(0.5))
        window.set_gaussian_splatting_scene(*shown)
    seen("both", red_ball)
    shown[2][:, 0] = torch.tensor([-1.77, 1.77, -1.77])
    seen("both", lambda p: p[45, 60, 1] > 150 and p[45, 60, 0] < 90)


def test_keywords_and_what_lies_elsewhere(windows: Callable[..., Window], seen: Seen) -> None:
    names = "background", "means3d", "shs", "opacity", "scales", "rotations"
    arguments = dict(zip(names, scene(), strict=True))
    arguments["opacity"] = arguments["opacity"][:, 0]
    window = windows("keywords")
    window.start()
    for m in (1, 4, 9, 16):
        shs = torch.zeros(400, m, 3)
        shs[:, :1] = arguments["shs"][:, :1]
        window.set_gaussian_splatting_scene(**{**arguments, "shs": shs, "background": (0.0, 0.0, 1.0)})
        seen("keywords", red_ball)


def test_an_address_is_followed_as_a_tensor(windows: Callable[..., Window], seen: Seen) -> None:
    window = windows("address")
    window.start(False)
    picture = torch.full((SIZE[1], SIZE[0], 4), 0.5)
    picture[..., 3] = 1
    for _ in range(20):
        window.set_image(*SIZE, picture.data_ptr())
    seen.grey("address", 0.5)
    picture[..., :3] = 0.75
    seen.grey("address", 0.75)
    with pytest.raises(ValueError, match="can be read there"):
        window.set_image(*SIZE, 4096, channels=3)
    assert window.is_running()


def test_the_user_closes_it(windows: Callable[..., Window], seen: Seen, desktop: Desktop,
                            wait_until: Callable[..., Any]) -> None:
    window, picture = windows("to close"), image(0.5)
    window.start()
    window.set_image(picture)
    seen.grey("to close", 0.5)
    desktop.close("to close")
    wait_until(lambda: not window.is_running())
    gone = weakref.ref(picture)
    del picture
    gc.collect()
    assert gone() is None, "let go of"
    for _ in range(3):
        window.set_image(image(1.0))
        window.set_gaussian_splatting_scene(*scene())
        assert not window.is_running()
        assert window.size() == SIZE
        assert window.fps() == 0
    assert not desktop.shows("to close")
    window.start()  # and opens it again
    window.set_image(image(0.75))
    seen.grey("to close", 0.75)
    with pytest.raises(RuntimeError, match="already started"):
        window.start()


def test_several_at_once(windows: Callable[..., Window], seen: Seen, desktop: Desktop,
                         wait_until: Callable[..., Any]) -> None:
    values = {"one": 0.2, "two": 0.4, "three": 0.6}
    made = {title: windows(title) for title in values}
    for title, window in made.items():
        window.set_image(image(values[title]))
        window.start()
    for i, title in enumerate(values):
        wait_until(lambda t=title: desktop.shows(t))
        desktop.place(title, 10 + 150 * i, 300)
    for title, value in values.items():
        seen.grey(title, value)
    made["two"].destroy()
    seen.gone("two")
    made["three"].set_image(image(0.9))
    seen.grey("three", 0.9)
    seen.grey("one", 0.2)
    assert [w.is_running() for w in made.values()] == [True, False, True]


def test_the_panel_comes_with_h(windows: Callable[..., Window], seen: Seen, desktop: Desktop) -> None:
    window = windows("panel", (600, 300))
    window.set_image(image(0.5, (600, 300)))
    window.start()
    seen.grey("panel", 0.5)
    desktop.press("panel", "h")
    seen("panel", lambda p: p[:, :200].std() > 5)
    desktop.press("panel", "h")
    seen.grey("panel", 0.5)


def test_it_tells_its_size_and_how_fast_it_draws(windows: Callable[..., Window], seen: Seen, desktop: Desktop,
                                                 wait_until: Callable[..., Any]) -> None:
    window = windows("facts")
    assert (window.size(), window.fps(), window.is_running()) == (SIZE, 0.0, False)
    window.start()
    assert window.is_running(), "from the start on, though it takes its time to open"
    picture = image(0.5)
    window.set_image(picture)
    seen.grey("facts", 0.5)

    def draws() -> bool:
        picture.add_(0.001)
        return window.fps() >= 5

    wait_until(draws)
    wait_until(lambda: window.fps() == 0, what="nothing changes any more")
    desktop.place("facts", 20, 30, (200, 160))
    wait_until(lambda: window.size() == (200, 160))


def test_blocking_lasts_until_it_is_closed(windows: Callable[..., Window], seen: Seen, desktop: Desktop) -> None:
    window = windows("blocking")
    window.set_image(image(0.5))
    user = threading.Thread(target=lambda: (seen.grey("blocking", 0.5), desktop.close("blocking")))
    user.start()
    window.start(blocking=True)
    user.join()
    assert not window.is_running()


def test_another_run_of_this_process_is_followed(windows: Callable[..., Window], seen: Seen) -> None:
    window = windows("runs")
    window.start()
    window.set_image(image(0.25))
    seen.grey("runs", 0.25)
    splatview.close()
    window.set_image(image(0.75))
    seen.grey("runs", 0.75)


def test_nothing_is_left_behind(seen: Seen, wait_until: Callable[..., Any]) -> None:
    splatview.publish(image(0.1), "other")  # its run stays open
    with Window(*SIZE, "left") as window:  # what the first of all loads
        window.start()
    before, names = open_files(), None
    for _ in range(3):
        with Window(*SIZE, "left") as window:
            window.set_image(image(0.5))
            window.start()
            seen.grey("left", 0.5)
            streams = set(publishing._publisher.streams)  # type: ignore[union-attr]
            names = names or streams
            assert streams == names, "the same names again"
        window.destroy()
        assert not window.is_running()
        seen.gone("left")
    abandoned = Window(*SIZE, "left")
    abandoned.start()
    wait_until(lambda: seen._desktop.shows("left"))
    del abandoned
    gc.collect()
    seen.gone("left")
    wait_until(lambda: Window(*SIZE) and open_files() <= before, what="the next window sees to the last ones")


def test_a_window_that_is_killed(windows: Callable[..., Window], seen: Seen, wait_until: Callable[..., Any],
                                 caplog: pytest.LogCaptureFixture) -> None:
    window = windows("killed")
    window.start()
    window.set_image(image(0.5))
    seen.grey("killed", 0.5)
    assert window._process is not None
    window._process.kill()
    wait_until(lambda: not window.is_running())
    window.set_image(image(0.5))
    assert caplog.text.count("code -9") == 1
    window.start()
    window.set_image(image(0.25))
    seen.grey("killed", 0.25)


def test_nobody_waits_for_a_window_that_stands_still(windows: Callable[..., Window], seen: Seen) -> None:
    """Nor fills a pipe: 20000 changes of what is to be seen."""
    window = windows("stopped")
    window.start()
    picture, shown = image(0.5), scene(2)
    window.set_image(picture)
    seen.grey("stopped", 0.5)
    assert window._process is not None
    window._process.send_signal(signal.SIGSTOP)
    for _ in range(10_000):
        window.set_gaussian_splatting_scene(*shown)
        window.set_image(picture)
        assert window.is_running()
    process = window._process
    window.destroy()
    assert process.returncode == -signal.SIGKILL


_FORKS = """
import os, sys, torch
from splatview import Window
window = Window(120, 90, "forked")
window.set_image(torch.full((90, 120, 3), 0.5))
window.start()
print("started", flush=True)
sys.stdin.readline()
child = os.fork()
if child == 0:
    assert not window.is_running() and window.fps() == 0
    window.set_image(torch.ones(90, 120, 3))
    window.destroy()
    del window
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert window.is_running()
window.set_image(torch.full((90, 120, 3), 0.75))
print("forked", flush=True)
sys.stdin.readline()
print(window.is_running(), flush=True)
os.kill(os.getpid(), 9)
"""


def test_forked_children_and_a_sudden_end(processes: Processes, seen: Seen) -> None:
    program = processes.code(_FORKS)
    assert program.stdin is not None and program.stdout is not None
    assert program.stdout.readline() == "started\n"
    seen.grey("forked", 0.5)
    print(file=program.stdin, flush=True)
    assert program.stdout.readline() == "forked\n"
    seen.grey("forked", 0.75)
    print(file=program.stdin, flush=True)
    assert program.stdout.readline() == "True\n"
    seen.gone("forked")


_README = """
from time import time, sleep
from math import *

import torch

from async_torchwindow import Window

H = 500
W = 500

window = Window(W, H)
window.start()

image = torch.rand((H, W, 3), dtype=torch.float32).cuda()

window.set_image(image)

try:
    while window.is_running():
        # Update the image
        image[:, :, 0] = abs(sin(time()))

        sleep(0.01)
except:
    pass

window.destroy()
print("the end")
"""


def test_the_loop_of_the_readme(processes: Processes, seen: Seen, desktop: Desktop) -> None:
    """With another import. (And without a GPU.)"""
    program = processes.code(_README.replace("async_torchwindow", "splatview").replace(".cuda()", ""))
    reds: set[int] = set()

    def changes(picture: np.ndarray) -> bool:
        if len(np.unique(picture[..., 0])) == 1 and picture[..., 1].std() > 60:
            reds.add(int(picture[0, 0, 0]))
        return len(reds) >= 5

    seen("splatview", changes)
    desktop.close("splatview")
    out, err = program.communicate(timeout=PATIENCE)
    assert (program.returncode, out, err) == (0, "the end\n", "")


@pytest.mark.parametrize(("name", "title"), [("window_image", "splatview"), ("window_scene", "A knot")])
def test_examples(name: str, title: str, processes: Processes, seen: Seen, desktop: Desktop) -> None:
    program = processes.python(str(ROOT / f"examples/{name}.py"))
    first = seen(title, lambda p: len(np.unique(p.reshape(-1, 3), axis=0)) > 500)
    seen(title, lambda p: p.shape == first.shape and np.abs(p.astype(int) - first).max() > 8)
    desktop.close(title)
    _, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0, err
    short = processes.python(str(ROOT / f"examples/{name}.py"), "--steps", "3", SPLATVIEW_STRICT="1")
    _, err = short.communicate(timeout=PATIENCE)
    assert short.returncode == 0, err


def test_a_display_that_lets_nobody_in(windows: Callable[..., Window], monkeypatch: pytest.MonkeyPatch,
                                       wait_until: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """Something answers, and it is no X server."""
    import socket

    number = 4000 + os.getpid() % 10_000
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0/tmp/.X11-unix/X{number}")
        server.listen()
        threading.Thread(target=lambda: [server.accept()[0].close() for _ in range(50)], daemon=True).start()
        monkeypatch.setenv("DISPLAY", f":{number}")
        monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
        window = windows("none")
        window.start()
        wait_until(lambda: not window.is_running())
        assert "no window could be opened" in caplog.text
        with pytest.raises(RuntimeError, match="no window could be opened"):
            window.start(blocking=True)

