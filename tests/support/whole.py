"""What the tests of the whole share: a trainer and a viewer, programs of their own, and what is to be seen of them."""

from __future__ import annotations

import base64
import json
import re
import shutil
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.app.restart import VARIABLE
from support.pages import CANVAS, state
from support.wait import PATIENCE

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from playwright.sync_api import Page

    from support.programs import Programs

SIZE = 900, 560
"""Of the pages, in CSS pixels."""
LEFT, BOTTOM = 280, 26
"""The panel beside the picture, and the status line below it, in CSS pixels."""
WIDTH, HEIGHT = SIZE[0] - LEFT, SIZE[1] - BOTTOM
BACKDROP = 19, 20, 23

IMAGE = """
import sys, time, numpy, torch, splatview
image, step = torch.from_numpy(numpy.load(sys.argv[1])), 0
while True:
    splatview.publish(image, "render", step=step)
    step += 1
    time.sleep(1)
"""
"""Argument: a file with (H, W, 3) uint8. In between the picture rests, and comes without loss."""


@dataclass
class Program:
    """A viewer that serves browsers."""

    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)
    url: str = ""
    _reader: threading.Thread | None = None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self._reader is not None:
            self._reader.join()

    def listen(self) -> Program:
        """Wait until it says where it is."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        end = time.monotonic() + PATIENCE
        while not self.url:
            assert time.monotonic() < end and self.process.poll() is None, f"no address; it said {self.said}"
            for line in list(self.said):
                if found := re.search(r"open (http://\S+) in a browser", line):
                    self.url = found[1]
            time.sleep(0.02)
        return self

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(iter(self.process.stderr.readline, ""))

    @property
    def port(self) -> int:
        return int(re.findall(r":(\d+)", self.url)[0])

    @property
    def token(self) -> str:
        return self.url.partition("?token=")[2]


class Stage:
    """Where trainers and viewers meet: a runtime folder of its own, for as long as it is open."""

    def __init__(self, programs: Programs):
        self.folder = Path("/tmp") / f"sv-page-{time.monotonic_ns() % 10**10:x}"  # short: sockets live in it
        self._programs = programs
        self._viewers: list[Program] = []

    @property
    def env(self) -> dict[str, str]:
        return {"SPLATVIEW_RUNTIME_DIR": str(self.folder)}

    def trainer(self, source: str, *args: Any, name: str = "training") -> subprocess.Popen[str]:
        return self._programs.code(source, *map(str, args), **self.env, SPLATVIEW_NAME=name)

    def viewer(self, *args: str, port: int = 0, after: Program | None = None) -> Program:
        """`splatview serve --web`. `after`: takes its port and token, as a viewer that restarts itself."""
        web = "serve", "--web", "--port", str(port)
        more = {} if after is None else {VARIABLE: json.dumps({"port": after.port, "token": after.token})}
        self._viewers.append(Program(self._programs.python("-m", "splatview_viewer", *web, *args, **self.env, **more)))
        return self._viewers[-1].listen()

    def close(self) -> None:
        for viewer in self._viewers:
            viewer.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


# ---- what is to be seen

_AT_REST = f"(before) => {{ const s = splatview.state(); return s.lossless && s.connected && s.frames !== before " \
           f"? [s.frames, ...({CANVAS})()] : null; }}"


def comes(page: Page, wrong: Callable[[np.ndarray], str], *, still: float = 0.0) -> np.ndarray:
    """(H, W, 3) uint8: what the canvas holds, as soon as that is without loss and `wrong` finds nothing wrong with it
    and has gone on to do so for `still` seconds, in which the picture stayed the same."""
    end, frames, complaint = time.monotonic() + PATIENCE, -1, "no picture without loss"
    picture, since = None, 0.0
    while True:
        found = page.evaluate(_AT_REST, frames)
        if found is not None:
            frames, width, height, data = found
            now = np.frombuffer(base64.b64decode(data), np.uint8).reshape(height, width, 4)[..., :3]
            complaint = wrong(now)
            if complaint:
                picture = None
            elif picture is None or not np.array_equal(inside(now), inside(picture)):
                picture, since = now, time.monotonic()
        if picture is not None and time.monotonic() >= since + still:
            return picture
        assert time.monotonic() < end, f"not within {PATIENCE:g} s: {complaint}; the page says {state(page)}"
        page.wait_for_timeout(30)


def inside(canvas: np.ndarray) -> np.ndarray:
    """The picture in a page of SIZE whose panel is open."""
    return canvas[:HEIGHT, LEFT:] if canvas.shape[:2] == SIZE[::-1] else canvas


def placed(image: np.ndarray, left: float, top: float, zoom: float, size: tuple[int, int] = (WIDTH, HEIGHT),
           ) -> np.ndarray:
    """What a picture of `size` (width, height) shows of an image (H, W, 3) whose corner lies at (left, top), nearest
    pixel by pixel."""
    x = np.floor((np.arange(size[0]) + 0.5 - left) / zoom).astype(int)
    y = np.floor((np.arange(size[1]) + 0.5 - top) / zoom).astype(int)
    shown = np.empty((size[1], size[0], 3), np.uint8)
    shown[:] = BACKDROP
    rows, columns = (y >= 0) & (y < image.shape[0]), (x >= 0) & (x < image.shape[1])
    shown[np.ix_(rows, columns)] = image[np.ix_(y[rows], x[columns])]
    return shown


def is_like(expected: np.ndarray, *, share: float = 1.0, part: Callable[[np.ndarray], np.ndarray] = inside,
            within: int = 0) -> Callable[[np.ndarray], str]:
    """For `comes`: at least this share of the pixels of a part of the canvas are as expected, `within` so many levels.
    Less than 1 where the image's pixels are no whole ones of the screen: their borders are rounded."""
    def wrong(canvas: np.ndarray) -> str:
        seen = part(canvas)
        if seen.shape != expected.shape:
            return f"the picture is {seen.shape}, not {expected.shape}"
        same = float((np.abs(seen.astype(int) - expected) <= within).all(-1).mean())
        return "" if same >= share else f"{same:.2%} of the pixels are as expected"

    return wrong


def open_at(url: str, open_page: Callable[..., Page], *args: Any, **options: Any) -> Page:
    """A page of SIZE with the pointer over the middle of the picture."""
    page = open_page(url, *(args or (SIZE,)), **options)
    if not args:
        page.mouse.move(LEFT + WIDTH / 2, HEIGHT / 2)
    return page


def drag(page: Page, dx: float, dy: float, *, button: Any = "left", start: tuple[float, float] | None = None) -> None:
    """From the middle of the picture, or from `start`, in a few moves."""
    x, y = start or (LEFT + WIDTH / 2, HEIGHT / 2)
    page.mouse.move(x, y)
    page.mouse.down(button=button)
    page.mouse.move(x + dx, y + dy, steps=4)
    page.mouse.up(button=button)


def press(page: Page, button: str) -> None:
    """Click one of the page's own buttons, which show themselves when the pointer moves."""
    box = page.locator(button).bounding_box()
    assert box is not None, f"{button} is not to be seen"
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.click(button)
