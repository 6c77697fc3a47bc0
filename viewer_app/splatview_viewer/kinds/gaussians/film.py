"""Films a view of Gaussians along a path, picture by picture, while the loop goes on; jobs write them."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Literal

import numpy as np

from splatview_viewer.core.errors import ViewerError, words_of
from splatview_viewer.core.host import Host
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.core.screen import Rect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import moderngl

    from splatview_viewer.core.settings import Color
    from splatview_viewer.formats.camera_paths import Film, Writer
    from splatview_viewer.kinds.gaussians.view import GaussianView

    Draw = Callable[[moderngl.Framebuffer, Color], None]

_AHEAD = 5
"""Pictures that wait to be written, with the one that is being written."""
_TURN = 0.012
"""Seconds that one turn of the loop is given to, if a picture does not take longer."""


class Camerawork:
    """Draws single pictures of a scene with the settings of a view, but none of what its tools draw over it."""

    def __init__(self, ctx: moderngl.Context, view: GaussianView, width: int, height: int) -> None:
        """view: shows the scene, in the way in which pictures show it, but for the camera."""
        self._view = type(view)(view.data, view.state)
        self._view.host = Host(exact="scene")
        for tool in self._view.tools.values():
            tool.close()
        self._view.tools.clear()
        self._background = view.background
        self.size = width, height
        self._ctx = ctx

    def picture(self, film: Film, seconds: float, transparent: bool = False) -> np.ndarray:
        """(H, W, 3) uint8, top row first; transparent: (H, W, 4), colours not multiplied by alpha."""
        self._view.look_with(film.path.at(seconds, *self.size))
        if transparent:
            return see_through(self._ctx, self.size, self._draw)
        return _drawn(self._ctx, self.size, self._draw, self._background)[0]

    def _draw(self, framebuffer: moderngl.Framebuffer, background: Color) -> None:
        self._view.change(background=background)
        self._view.draw(framebuffer, Rect(0, 0, *self.size))

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._view.release("closed")


def see_through(ctx: moderngl.Context, size: tuple[int, int], draw: Draw) -> np.ndarray:
    """(H, W, 4) uint8, top row first, colours not multiplied by alpha: what `draw` lays over any background.

    Drawn over black and over white: what the second shows more is what is seen through.
    """
    black, white = _drawn(ctx, size, draw, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), dtype="f4")
    alpha = np.clip(1 - (white - black).mean(axis=2, keepdims=True), 0, 1)
    color = np.divide(black, alpha, out=np.zeros_like(black), where=alpha > 1e-6)
    return (np.concatenate([np.clip(color, 0, 1), alpha], axis=2) * 255 + 0.5).astype(np.uint8)


def _drawn(ctx: moderngl.Context, size: tuple[int, int], draw: Draw, *backgrounds: Color,
           dtype: Literal["f1", "f4"] = "f1") -> list[np.ndarray]:
    """(H, W, 3) uint8, or float32 of "f4", top row first: what `draw` lays over each of the backgrounds."""
    texture, before = ctx.texture(size, 4, dtype=dtype), ctx.fbo
    framebuffer, out = ctx.framebuffer([texture]), []
    try:
        for background in backgrounds:
            draw(framebuffer, background)
            data = framebuffer.read(components=3, alignment=1, dtype=dtype)
            values = np.frombuffer(data, {"f1": np.uint8, "f4": np.float32}[dtype])
            out.append(values.reshape(size[1], size[0], 3)[::-1])
        return out
    finally:
        before.use()
        framebuffer.release()
        texture.release()


class Filming:
    """One film in the making: `turn` in each turn of the loop, `close` at the end, in any case. A job writes each
    picture."""

    def __init__(self, camerawork: Camerawork, film: Film, writer: Writer, *, transparent: bool = False,
                 wake: Callable[[], None] = lambda: None) -> None:
        """`wake` ends the loop's sleep, from any thread."""
        self.film = film
        self.total = film.path.frames(film.fps)
        self.drawn = 0
        self.ended = False
        """Everything is written, or given up."""
        self.fault = ""
        """Why it was given up; "" without a reason."""
        self._writer = writer
        self._camerawork = camerawork
        self._transparent = transparent
        self._jobs = Jobs("film", wake)
        self._written: deque[Job[None]] = deque()
        """Jobs that have not ended, the oldest first; behind the last picture the one that completes the film."""
        self._complete = False
        """The last one is among them."""

    @property
    def out(self) -> Path:
        """The film's file or folder; its number is known at the end."""
        return self._writer.out

    def turn(self, seconds: float = _TURN) -> None:
        """Draw a picture, and more as long as there is time; nothing while the jobs are behind."""
        begin = time.perf_counter()
        while not self.ended:
            while self._written and self._written[0].done:
                if (job := self._written.popleft()).error is not None:
                    self._give_up(words_of(job.error))
                    return
            if self._complete:
                self.ended = not self._written
                return
            if len(self._written) >= _AHEAD:
                return
            if self.drawn == self.total:
                self._written.append(self._jobs.submit(lambda _: self._writer.close()))
                self._complete = True
                continue
            try:
                picture = self._camerawork.picture(self.film, self.drawn / self.film.fps, self._transparent)
            except ViewerError as e:
                self._give_up(str(e))
                return
            self._written.append(self._jobs.submit(lambda _, picture=picture: self._writer.add(picture)))
            self.drawn += 1
            if time.perf_counter() - begin >= seconds:
                return

    def wait(self, timeout: float) -> None:
        """Sleep until there is room for a picture, or the film has ended, or for so many seconds."""
        if self._written and (self._complete or len(self._written) >= _AHEAD):
            self._written[0].wait(timeout)

    def _give_up(self, fault: str = "") -> None:
        """End it unfinished: an mp4 is not written, PNGs that are written stay."""
        self.fault, self.ended = fault, True
        self._jobs.close(None)
        self._writer.abort()

    def close(self) -> None:
        """Give back everything; give up what is unfinished. Idempotent."""
        if not self.ended:
            self._give_up()
        self._camerawork.close()
