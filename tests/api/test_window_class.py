"""`splatview.Window` on a display: what its user sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.programs import ROOT
from support.repetitions import exhaustive
from support.wait import PATIENCE
from support.window_cases import (
    SIZE,
    Seen,
    desktop_fixture,  # noqa: F401
    image,
    red_ball,
    scene,
    seen_fixture,  # noqa: F401
    windows_fixture,  # noqa: F401
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.desktop import Desktop
    from support.programs import Programs

    from splatview import Window

pytestmark = pytest.mark.display


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


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
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


@pytest.mark.parametrize("forked", [True, exhaustive(False)])
def test_the_loop_of_the_readme(programs: Programs, seen: Seen, desktop: Desktop, forked: bool) -> None:
    """With another import. (And without a GPU.)"""
    code = _README.replace("async_torchwindow", "splatview").replace(".cuda()", "")
    program = programs.python("-c", code) if forked else programs.code(code)
    reds: set[int] = set()

    def changes(picture: np.ndarray) -> bool:
        if len(np.unique(picture[..., 0])) == 1 and picture[..., 1].std() > 60:
            reds.add(int(picture[0, 0, 0]))
        return len(reds) >= 5

    seen("splatview", changes)
    desktop.close("splatview")
    out, err = program.communicate(timeout=PATIENCE)
    assert (program.returncode, out, err) == (0, "the end\n", "")


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "title"), [("window_image", "splatview"), ("window_scene", "A knot")])
def test_examples(name: str, title: str, programs: Programs, seen: Seen, desktop: Desktop) -> None:
    start = programs.python if name == "window_image" else programs.python
    program = start(str(ROOT / f"examples/{name}.py"))
    first = seen(title, lambda p: len(np.unique(p.reshape(-1, 3), axis=0)) > 500)
    seen(title, lambda p: p.shape == first.shape and np.abs(p.astype(int) - first).max() > 8)
    desktop.close(title)
    _, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0, err
    short = programs.python(str(ROOT / f"examples/{name}.py"), "--steps", "3", SPLATVIEW_STRICT="1")
    _, err = short.communicate(timeout=PATIENCE)
    assert short.returncode == 0, err
