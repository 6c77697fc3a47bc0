"""`splatview.Window` with tensors on a GPU: followed where they lie, shown by their addresses, copied where they are
new at every call. Without a display what would be the window draws offscreen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.desktop import Desktop
from support.wait import PATIENCE, turns

from splatview.adapters.images import picture_at
from splatview_ipc.control.render_requests import Show, WindowSettings, encode
from splatview_ipc.control.run_folder import list_runs, runtime_folder
from splatview_ipc.cuda import driver
from splatview_viewer.app.loop import step
from splatview_viewer.app.window_program import _OneWindow
from splatview_viewer.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Programs

pytestmark = pytest.mark.cuda
W, H = 64, 48

_TRAINER = """
import sys, torch
from splatview import Window

W, H, n = 64, 48, 400
window = Window(W, H)
image = torch.full((H, W, 3), 0.25, device="cuda")
g = torch.Generator().manual_seed(0)
shs = torch.zeros(n, 16, 3, device="cuda")
shs[:, 0] = torch.tensor([1.77, -1.77, -1.77])
scene = (torch.tensor([0.0, 0.0, 1.0]), (torch.randn(n, 3, generator=g) * 0.3).cuda(), shs,
         torch.full((n, 1), 0.95, device="cuda"), torch.full((n, 3), 0.1, device="cuda"),
         torch.tensor([[1.0, 0, 0, 0]], device="cuda").repeat(n, 1))
for line in sys.stdin:
    word, *numbers = line.split()
    values = [float(v) for v in numbers]
    if word == "start":
        window.start()
    elif word == "image":
        window.set_image(image)
    elif word == "fill":
        image.fill_(values[0])
    elif word == "anew":  # as fast as it goes, each in memory of its own
        for i in range(300):
            image = torch.full((H, W, 4), i / 400, device="cuda")
            image[:, :, 3] = 1.0
            window.set_image(image)
        image = torch.full((H, W, 4), values[0], device="cuda")
        image[:, :, 3] = 1.0
        window.set_image(image)
    elif word == "address":
        window.set_image(W, H, image.data_ptr())
    elif word == "scene":
        window.set_gaussian_splatting_scene(*scene)
    elif word == "color":
        shs[:, 0] = torch.tensor(values)
    elif word == "destroy":
        window.destroy()
    torch.cuda.synchronize()
    print("done", flush=True)
"""


class Caller:
    """The process that has a window, and does what it is told."""

    def __init__(self, programs: Programs) -> None:
        self.process = programs.code(_TRAINER, SPLATVIEW_STRICT="1")

    def __call__(self, words: str) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(words, file=self.process.stdin, flush=True)
        if self.process.stdout.readline() != "done\n":
            raise AssertionError(f"{words}: {self.process.communicate(timeout=PATIENCE)[1][-3000:]}")


@pytest.fixture
def caller(programs: Programs) -> Caller:
    return Caller(programs)


class Shown(_OneWindow):
    """What the window of a caller shows, without a display."""

    screen: OffscreenScreen  # type: ignore[assignment]

    def until(self, fits: Callable[[np.ndarray], Any]) -> None:
        for _ in turns("the window shows it"):
            step(self)
            if not self.user.dirty and self.user.view is not None and fits(self.screen.pixels()[..., :3]):
                return


class Wanted:
    """In place of the pipes between a caller and its window."""

    def __init__(self) -> None:
        self.line: bytes | None = None

    def newest(self) -> bytes | None:
        line, self.line = self.line, None
        return line

    def send(self, line: bytes) -> None:
        pass


@pytest.fixture
def show(caller: Caller) -> Iterator[Callable[[str], Shown]]:
    """`show(name)`: the window that shows this stream, when the caller has published it."""
    made: list[tuple[Shown, Wanted]] = []

    def switch(name: str) -> Shown:
        pid = caller.process.pid
        run = next(r.description.id for r in list_runs(runtime_folder()) if r.description.pid == pid)
        if not made:
            wanted = Wanted()
            settings = WindowSettings(W, H, "", pid)
            made.append((Shown(OffscreenScreen(W, H), settings, wanted), wanted))  # type: ignore[arg-type]
        made[0][1].line = encode(Show(name, run))
        return made[0][0]

    yield switch
    for app, _ in made:
        error = app.screen.ctx.error
        app.close()
        assert error == "GL_NO_ERROR"


def grey(value: float) -> Callable[[np.ndarray], bool]:
    return lambda pixels: bool((np.abs(pixels.astype(int) - round(value * 255)) <= 1).all())


def ball(color: str) -> Callable[[np.ndarray], bool]:
    which = "rgb".index(color)

    def fits(pixels: np.ndarray) -> bool:
        middle, corner = pixels[H // 2, W // 2].astype(int), pixels[1, 1].astype(int)
        others = [c for c in range(3) if c != which]
        return bool(middle[which] > 150 and middle[others].max() < 90 and corner[2] > 200 and corner[:2].max() < 60)

    return fits


def test_images_and_scenes_are_followed_where_they_lie(caller: Caller, show: Callable[[str], Shown]) -> None:
    caller("image")
    shown = show("window")
    shown.until(grey(0.25))
    for value in (0.5, 1.0, 0.0):
        caller(f"fill {value}")
        shown.until(grey(value))
    assert shown.user.shown is not None
    print(shown.user.shown.source.path, shown.user.shown.source.notes)
    caller("scene")  # its background lies on the CPU
    show("window scene").until(ball("r"))
    caller("color -1.77 1.77 -1.77")
    shown.until(ball("g"))
    caller("image")
    show("window").until(grey(0.0))
    caller("fill 0.75")
    shown.until(grey(0.75))


def test_gpu_memory_that_is_not_torchs() -> None:
    values = torch.rand(20, 30, 3, device="cuda")
    size = values.numel() * 4
    with driver.context(0):
        address = int(driver.handle("cuMemAlloc", size))
        try:
            driver.call("cuMemcpyDtoD", address, values.data_ptr(), size)
            picture = picture_at(address, 30, 20, 3)
            assert torch.equal(picture, values)
            with pytest.raises(ValueError, match="allocation"):
                picture_at(address, 3000, 2000, 3)
        finally:
            driver.call("cuMemFree", address)
    assert torch.equal(picture, values), "a copy"
    torch.cuda.synchronize()


@pytest.mark.display
def test_a_window_on_a_display(caller: Caller, display: str, wait_until: Callable[..., Any]) -> None:
    desktop = Desktop(display)

    def seen(fits: Callable[[np.ndarray], Any]) -> None:
        wait_until(lambda: (p := desktop.picture("splatview")) is not None and p.shape == (H, W, 3) and fits(p))

    caller("start")
    caller("image")
    seen(grey(0.25))
    caller("fill 0.5")
    seen(grey(0.5))
    caller("scene")
    seen(ball("r"))
    caller("color -1.77 1.77 -1.77")
    seen(ball("g"))
    caller("anew 0.75")
    seen(grey(0.75))
    caller("fill 0.375")
    caller("address")
    seen(grey(0.375))
    caller("destroy")
    wait_until(lambda: not desktop.shows("splatview"))
