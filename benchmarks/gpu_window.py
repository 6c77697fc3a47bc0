"""A window on the GPU at full rate, vsync off, 1920x1080, against the same window only cleared; offscreen beside it.

The viewer is `splatview serve --window --no-vsync --gpu-budget 1`. A new picture is published 1000 times a second, the
most that --max-fps lets through; over a scene of 1M Gaussians that is published in place ten times a second, a mouse is
dragged that tells of 1000 moves a second. A picture counts when the swap of the window's buffers has returned. "cleared
and swapped" is what the very same window does before and after, while the trainer goes on, with a loop that does
nothing else and knows no --max-fps; "ratio" is the viewer's pictures over that. At the end the pixel in the middle of
the framebuffer must have the colour that was published last.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

import splatview
from benchmarks.gpu import Skipped, require_gpu, tried
from benchmarks.gpu.clocks import until
from benchmarks.gpu.scenes import ORBIT, ball, paint
from benchmarks.gpu.viewer import Viewer

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICE = "cuda"
SIZE = (1920, 1080)
GAUSSIANS = 1_000_000
SECONDS, LIMIT_SECONDS = 2.5, 0.5
MOUSE_HZ = 1000.0
COLOUR = (200, 40, 90)


@dataclass(frozen=True)
class Mode:
    screen: str
    fps: int
    vsync: bool = False
    limited: bool = False
    """Whether to hold it against the window that is only cleared."""


MODES = Mode("window", 1000, limited=True), Mode("window", 60), Mode("offscreen", 1000)


@dataclass(frozen=True)
class Content:
    what: str
    counted: str
    """What the viewer reports of it: a key of `report`."""
    publish: Callable[[int], object]
    hz: float
    paint: Callable[[], object]
    """Publishes what the middle is recognised by."""
    painted: Callable[[int, int, int], bool]
    moving: bool = False


def run() -> list[dict[str, str]]:
    require_gpu()
    require_display()
    rows = []
    for make, modes in ((_pictures, (*MODES, Mode("window", 1000, vsync=True))), (_scene, MODES)):
        content = make()
        try:
            for mode in modes:
                rows += tried(f"{content.what}, {mode.screen}, --max-fps {mode.fps}",
                              lambda mode=mode, content=content: [_measure(content, mode)])
        finally:
            splatview.close()
    return rows


def require_display() -> None:
    """Raises Skipped where no window can be opened."""
    import glfw

    with warnings.catch_warnings():  # pyGLFW reports errors as warnings
        warnings.simplefilter("ignore")
        ready = glfw.init()
    if not ready:
        named = os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY")
        raise Skipped(f"needs a display; {f'{named} cannot be reached' if named else 'DISPLAY names none'}")
    glfw.terminate()


def _pictures() -> Content:
    """A new picture of one colour at every call."""
    blank = torch.zeros(SIZE[1], SIZE[0], 4, dtype=torch.uint8, device=DEVICE)
    colour = torch.tensor([1, 2, 3, 0], dtype=torch.uint8, device=DEVICE)
    last = torch.tensor([*COLOUR, 255], dtype=torch.uint8, device=DEVICE)
    blank[..., 3] = 255
    return Content("new 1080p RGBA8 picture", "versions_s",
                   lambda i: splatview.publish(blank + colour * (i % 64), "frame"), 1000.0,
                   lambda: splatview.publish(torch.zeros_like(blank) + last, "frame"),
                   lambda *rgb: all(abs(a - b) <= 1 for a, b in zip(rgb, COLOUR, strict=True)))


def _scene() -> Content:
    """Gaussians that are published, in place, ten times a second."""
    scene = ball(GAUSSIANS, DEVICE)
    grey = scene["sh0"].clone()

    def publish(i: int) -> None:
        if i == 0:
            scene["sh0"].copy_(grey)
        splatview.publish(scene)

    def make_green() -> None:
        paint(scene, (0.05, 0.9, 0.05))
        splatview.publish(scene)

    return Content(f"camera around {GAUSSIANS:,} Gaussians", "moved_s", publish, 10.0, make_green,
                   lambda r, g, b: g > 100 and g > 2 * max(r, b), moving=True)


class _Trainer:
    """Publishes from a thread of its own, as a context manager."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        i, due = 1, time.perf_counter()
        while not self._stop.is_set():
            self._content.publish(i)
            i += 1
            due = max(due + 1 / self._content.hz, time.perf_counter() - 0.01)
            time.sleep(max(due - time.perf_counter(), 0))

    def __enter__(self) -> None:
        self._content.publish(0)
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()


def _measure(content: Content, mode: Mode) -> dict[str, str]:
    options = ["--max-fps", str(mode.fps), "--gpu-budget", "1"]
    if mode.screen == "window":
        options.append("--vsync" if mode.vsync else "--no-vsync")
    limits = []
    with Viewer(*options, size=SIZE, screen=mode.screen) as viewer:
        with _Trainer(content):
            viewer.ready()
            if content.moving:
                viewer.ask("closer", distance=ORBIT)
                viewer.ask("hands", how="drag", hz=MOUSE_HZ)
            if mode.limited:
                limits.append(viewer.ask("limit", seconds=LIMIT_SECONDS)["pictures_s"])
            time.sleep(1)  # until speeds have settled
            viewer.ask("begin")
            time.sleep(SECONDS)
            report, state = viewer.ask("report"), viewer.ask("state")
            if mode.limited:
                limits.append(viewer.ask("limit", seconds=LIMIT_SECONDS)["pictures_s"])
        content.paint()
        until(f"the colour that was published last, not {viewer.pixel()}", lambda: content.painted(*viewer.pixel()), 10)
        pixel = viewer.pixel()
    limit = sum(limits) / len(limits) if limits else 0.0
    return {"what": content.what, "screen": f"{mode.screen}{', vsync' * mode.vsync}, --max-fps {mode.fps}",
            "pictures/s": f"{report['pictures_s']:.1f}",
            "of them with a new version or camera": f"{report[content.counted]:.1f}",
            "cleared and swapped/s": ", ".join(f"{one:.0f}" for one in limits),
            "ratio": f"{report['pictures_s'] / limit:.3f}" if limits else "",
            "longest gap ms": f"{report['gap_ms']:.1f}",
            "drawn in": ", ".join(size for size, _ in report["sizes"][:2]) or f"{SIZE[0]}x{SIZE[1]}",
            "way": " > ".join(state["path"]), "drawn by": state["screen"], "pixel at the end": str(pixel)}
