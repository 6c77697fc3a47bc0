"""The life of a `splatview.Window`: closed, killed, stopped, forgotten, forked, and nothing of it is left behind."""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from support.open_files import open_files
from support.repetitions import exhaustive
from support.wait import PATIENCE
from support.window_cases import (
    SIZE,
    Seen,
    desktop_fixture,  # noqa: F401
    image,
    scene,
    seen_fixture,  # noqa: F401
    windows_fixture,  # noqa: F401
)

import splatview
from splatview import Window, publishing

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.desktop import Desktop
    from support.programs import Programs

pytestmark = pytest.mark.display


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


def test_blocking_lasts_until_it_is_closed(windows: Callable[..., Window], seen: Seen, desktop: Desktop) -> None:
    window = windows("blocking")
    window.set_image(image(0.5))
    user = threading.Thread(target=lambda: (seen.grey("blocking", 0.5), desktop.close("blocking")))
    user.start()
    window.start(blocking=True)
    user.join()
    assert not window.is_running()


@pytest.mark.exhaustive
def test_another_run_of_this_process_is_followed(windows: Callable[..., Window], seen: Seen) -> None:
    window = windows("runs")
    window.start()
    window.set_image(image(0.25))
    seen.grey("runs", 0.25)
    splatview.close()
    window.set_image(image(0.75))
    seen.grey("runs", 0.75)


@pytest.mark.parametrize("forked", [True, exhaustive(False)])
def test_nothing_is_left_behind(seen: Seen, wait_until: Callable[..., Any], request: pytest.FixtureRequest,
                                forked: bool) -> None:
    if forked:
        request.getfixturevalue("forked_programs")
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


@pytest.mark.exhaustive
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


@pytest.mark.parametrize("forked", [True, exhaustive(False)])
def test_forked_children_and_a_sudden_end(programs: Programs, seen: Seen, forked: bool) -> None:
    program = programs.python("-c", _FORKS) if forked else programs.code(_FORKS)
    assert program.stdin is not None and program.stdout is not None
    assert program.stdout.readline() == "started\n"
    seen.grey("forked", 0.5)
    print(file=program.stdin, flush=True)
    assert program.stdout.readline() == "forked\n"
    seen.grey("forked", 0.75)
    print(file=program.stdin, flush=True)
    assert program.stdout.readline() == "True\n"
    seen.gone("forked")


_ENDS = """
import sys, torch, warnings
warnings.simplefilter("error")
from splatview import Window
window, other = Window(120, 90, "ends"), Window(120, 90, "ends as well")
for w in (window, other):
    w.set_image(torch.full((90, 120, 3), 0.5))
    w.start()
del other
sys.stdin.readline()
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("forked", [True, exhaustive(False)])
def test_a_program_that_ends_takes_its_windows_with_it(programs: Programs, seen: Seen, forked: bool) -> None:
    program = programs.python("-c", _ENDS) if forked else programs.python("-W", "error", "-c", _ENDS)
    seen.grey("ends", 0.5)
    _, err = program.communicate("\n", timeout=PATIENCE)
    assert (program.returncode, err) == (0, "")
    seen.gone("ends")
    seen.gone("ends as well")


def test_a_display_that_lets_nobody_in(windows: Callable[..., Window], monkeypatch: pytest.MonkeyPatch,
                                       wait_until: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """Something answers, and it is no X server."""
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
