"""`splatview.Window` where there is no display, or nothing to be opened: what it says, and what it does not do."""

from __future__ import annotations

import gc
import os
import socket
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import splatview
from splatview import Window, publishing
from splatview.ipc.errors import SharingError
from splatview.ipc.segments import PAGE
from splatview.ipc.window_page import CLOSED, FAILED, IMAGE, OPEN, SCENE, STARTING, WindowPage
from splatview.viewer_app.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("few_objects")


@pytest.fixture(autouse=True)
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)


def streams() -> dict[str, Any]:
    publisher = publishing._publisher
    return {} if publisher is None else publisher.streams


@pytest.mark.parametrize(("arguments", "error", "words"), [
    (("500", 400), TypeError, "width is a str"), ((500, 400.0), TypeError, "height is a float"),
    ((True, 400), TypeError, "width is a bool"), ((0, 400), ValueError, "width is 0; legal are 16 to 16384"),
    ((500, 10**9), ValueError, "height is 1000000000"), ((500, 400, 3), TypeError, "title is a int"),
    ((500, 400, "a\nb"), ValueError, "printable"), ((500, 400, "x" * 201), ValueError, "200"),
])
def test_what_makes_no_window(arguments: tuple[Any, ...], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Window(*arguments)


def test_sizes_of_other_libraries() -> None:
    assert Window(np.int64(64), 48, "").size() == (64, 48)  # type: ignore[arg-type]


def test_without_a_display_the_way_out_is_told() -> None:
    window = Window(64, 64)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"no display.*splatview serve --web.*Xvfb"):
            window.start()
        assert not window.is_running()


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as taken:  # a number that no X server has meanwhile
        number = 20_000 + os.getpid() % 10_000
        taken.bind(f"\0/tmp/.X11-unix/X{number}")
        monkeypatch.setenv("DISPLAY", f":{number}.0")
        with pytest.raises(RuntimeError, match=rf"nothing answers at DISPLAY=':{number}.0'"):
            Window(64, 64).start()


def test_a_process_that_publishes_nothing_has_no_window(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DISPLAY", "elsewhere:0")
    monkeypatch.setenv("SPLATVIEW_DISABLE", "1")
    window = Window(64, 64)
    window.start(blocking=True)
    window.set_image(torch.zeros(64, 64, 3))
    assert not window.is_running()
    assert publishing._publisher is None
    monkeypatch.delenv("SPLATVIEW_DISABLE")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(RuntimeError, match="could not begin to publish"):
        Window(64, 64).start()


def test_what_is_set_before_is_published_under_its_title() -> None:
    image, scene = torch.zeros(8, 8, 3), _scene(5)
    splatview.publish(torch.zeros(4, 4), "taken scene")
    for title, names in (("splatview", ("window", "window scene")), ("", ("window 2", "window 2 scene")),
                         ("My / window", ("My window", "My window scene")),
                         ("taken", ("taken 2", "taken 2 scene")), ("x" * 200, ("x" * 180, "x" * 180 + " scene"))):
        window = Window(64, 64, title)
        window.set_image(image)
        window.set_gaussian_splatting_scene(*scene)
        assert [streams()[name].kind for name in names] == ["image", "gaussians"]
        assert all(streams()[name].live for name in names)
        _kept.append(window)
    for window in _kept:
        window.destroy()
    _kept.clear()
    again = Window(64, 64)
    again.set_image(image)
    assert again._streams == ("window", "window scene"), "free again"
    del again
    gc.collect()
    third = Window(64, 64)
    third.set_image(image)
    assert third._streams == ("window", "window scene"), "nobody holds the one before"


_kept: list[Window] = []


def test_what_was_shown_is_let_go_of() -> None:
    window, image = Window(64, 64), torch.zeros(8, 8, 3)
    window.set_image(image)
    splatview.publish(torch.ones(3, 3), "other")
    gone = weakref.ref(image)
    del image
    gc.collect()
    assert gone() is not None
    window.destroy()
    window.destroy()
    gc.collect()
    assert gone() is None
    assert streams()["other"].version == 1
    window.set_image(torch.zeros(8, 8, 3))
    assert streams()["window"].version == 1, "without effect"
    assert not window.is_running()


def _scene(n: int) -> tuple[Any, ...]:
    return (torch.zeros(3), torch.zeros(n, 3), torch.zeros(n, 16, 3), torch.zeros(n, 1), torch.ones(n, 3),
            torch.ones(n, 4))


@pytest.mark.parametrize(("place", "wrong", "words"), [
    (0, torch.zeros(4), "background has shape"), (1, torch.zeros(5, 2), "means3d has shape"),
    (2, torch.zeros(5, 7, 3), "shs has shape"), (3, torch.zeros(4), "opacity has shape"),
    (4, torch.zeros(5, 1), "scales has shape"), (5, torch.zeros(5, 3), "rotations has shape"),
    (2, torch.zeros(5, 16, 3, dtype=torch.int32), "shs is int32"),
])
def test_what_is_no_scene(place: int, wrong: torch.Tensor, words: str) -> None:
    parts = list(_scene(5))
    parts[place] = wrong
    with pytest.raises(ValueError, match=words):
        Window(64, 64).set_gaussian_splatting_scene(*parts)


def test_what_is_no_image() -> None:
    window = Window(64, 64)
    for wrong, error, words in (((torch.zeros(8, 8, 3, dtype=torch.float64),), ValueError, "float64"),
                                ((torch.zeros(8, 8, 2),), ValueError, r"\(8, 8, 2\)"),
                                (({"means": 1},), TypeError, "dict"), ((None,), TypeError, "NoneType"),
                                ((8, 8), TypeError, "width, height and data_ptr"),
                                ((8, 8, 0), ValueError, "data_ptr 0x0")):
        with pytest.raises(error, match=words):
            window.set_image(*wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="channels"):
        window.set_image(torch.zeros(8, 8, 3), channels=3)


def test_both_sides_of_a_page() -> None:
    caller = WindowPage()
    window = WindowPage(os.dup(caller.fd))
    assert (caller.state, caller.size, caller.fps, window.shown, window.switches) == (
        STARTING, (0, 0), 0.0, (0, ""), 0)
    caller.show(SCENE, "run-1")
    caller.show(IMAGE, "run-22")
    assert (window.shown, window.switches) == ((IMAGE, "run-22"), 2)
    window.tell(OPEN, (640, 480), 59.94)
    assert (caller.state, caller.size, caller.fps) == (OPEN, (640, 480), 59.94)
    window.end(FAILED, "ü" * 5000)
    assert (caller.state, caller.fps) == (FAILED, 0.0)
    assert caller.reason == "ü" * 1024
    window.end(CLOSED)
    assert (caller.state, caller.reason) == (CLOSED, "")
    window.close()
    caller.close()
    caller.close()


def test_a_page_that_is_none() -> None:
    for size in (PAGE, 10):
        fd = os.memfd_create("none")
        os.truncate(fd, size)
        with pytest.raises(SharingError, match="page"):
            WindowPage(fd)


def test_the_program_is_not_typed(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["{}"], ["nonsense"], ['{"width": 4}'], ["{}", "{}"]):
        assert main(["window", *arguments]) == 2
        assert "it is opened by splatview.Window" in capsys.readouterr().err
