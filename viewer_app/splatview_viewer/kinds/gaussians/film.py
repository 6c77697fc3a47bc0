"""Films a view of Gaussians along a path, picture by picture, while the loop goes on; a thread writes them."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import replace
from queue import Full, Queue
from threading import Event, Thread
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.geometry.controls import Rect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import moderngl

    from splatview_viewer.core.settings import Color
    from splatview_viewer.formats.nerfstudio import Film
    from splatview_viewer.formats.path_writers import Writer
    from splatview_viewer.kinds.gaussians.view import GaussianView

_AHEAD = 4
"""Pictures that wait to be written."""
_TURN = 0.012
"""Seconds that one turn of the loop is given to, if a picture does not take longer."""


class Camerawork:
    """Draws single pictures of a scene with the settings of a view, but none of what its tools draw over it."""

    def __init__(self, ctx: moderngl.Context, view: GaussianView, width: int, height: int) -> None:
        """Of the scene that `view` shows, as it is shown there now; a camera of its own."""
        settings = replace(view.settings, coarse_ms=math.inf, reproject=False,
                           selection=replace(view.settings.selection, marked=()))
        self._view = view.beside(settings)
        for tool in self._view.tools.values():
            tool.close()
        self._view.tools.clear()
        self._background = view.background
        self.size = width, height
        self._ctx = ctx
        self._target: tuple[moderngl.Framebuffer, moderngl.Texture] | None = None

    def picture(self, film: Film, seconds: float, transparent: bool = False) -> np.ndarray:
        """(H, W, 3) uint8, top row first; transparent: (H, W, 4), colours not multiplied by alpha."""
        view, (width, height) = self._view, self.size
        view.look_with(film.path.at(seconds, width, height))
        if transparent:
            return see_through(self._ctx, self.size, self._drawn)
        before = self._ctx.fbo
        if self._target is None:
            texture = self._ctx.texture(self.size, 4)
            self._target = self._ctx.framebuffer([texture]), texture
        framebuffer = self._target[0]
        self._drawn(framebuffer, self._background)
        data = framebuffer.read(components=3, alignment=1)
        before.use()
        return np.frombuffer(data, np.uint8).reshape(height, width, 3)[::-1]

    def _drawn(self, framebuffer: moderngl.Framebuffer, background: Color) -> None:
        self._view.settings.background = background
        self._view.draw(framebuffer, Rect(0, 0, *self.size))

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._view.close()
        if self._target is not None:
            for held in self._target:
                held.release()
            self._target = None


def see_through(ctx: moderngl.Context, size: tuple[int, int],
                draw: Callable[[moderngl.Framebuffer, Color], None]) -> np.ndarray:
    """(H, W, 4) uint8, top row first, colours not multiplied by alpha: what `draw` lays over any background.

    Drawn over black and over white: what the second shows more is what is seen through.
    """
    texture, before = ctx.texture(size, 4, dtype="f4"), ctx.fbo
    framebuffer = ctx.framebuffer([texture])
    try:
        over = []
        for background in ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)):
            draw(framebuffer, background)
            data = np.frombuffer(framebuffer.read(components=3, alignment=1, dtype="f4"), np.float32)
            over.append(data.reshape(size[1], size[0], 3)[::-1])
    finally:
        before.use()
        framebuffer.release()
        texture.release()
    black, white = over
    alpha = np.clip(1 - (white - black).mean(axis=2, keepdims=True), 0, 1)
    color = np.divide(black, alpha, out=np.zeros_like(black), where=alpha > 1e-6)
    return (np.concatenate([np.clip(color, 0, 1), alpha], axis=2) * 255 + 0.5).astype(np.uint8)


class Filming:
    """One film in the making: `turn` in each turn of the loop, `close` at the end, in any case."""

    def __init__(self, camerawork: Camerawork, film: Film, writer: Writer, *, transparent: bool = False,
                 wake: Callable[[], None] = lambda: None) -> None:
        """`wake` ends the loop's sleep, from any thread."""
        self.film = film
        self.total = film.path.frames(film.fps)
        self.drawn = 0
        self._writer = writer
        self.begun = time.monotonic()
        self._camerawork = camerawork
        self._transparent = transparent
        self._queue: Queue[np.ndarray | None] = Queue(_AHEAD)
        self._ended = Event()
        self._fault = ""
        self._given_up = False
        self._waiting: np.ndarray | None = None
        self._told_end = False
        self._wake = wake
        self._thread = Thread(target=self._write, args=(writer,), name="film", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether everything is written, or given up."""
        return self._ended.is_set()

    @property
    def out(self) -> Path:
        """The film's file or folder; its number is known at the end."""
        return self._writer.out

    @property
    def fault(self) -> str:
        """Why it was given up, or an empty text."""
        return self._fault

    @property
    def share(self) -> float:
        """How much of it is drawn, 0 to 1."""
        return self.drawn / self.total if self.total else 1.0

    def turn(self, seconds: float = _TURN) -> None:
        """Draw a picture, and more as long as there is time; nothing while the thread is behind."""
        end = time.monotonic() + seconds
        while not self.ended and not self._told_end:
            if self._waiting is None and self.drawn < self.total:
                try:
                    self._waiting = self._camerawork.picture(self.film, self.drawn / self.film.fps, self._transparent)
                except ViewerError as e:
                    self._fault = str(e)
                    self.give_up()
                    return
            try:
                self._queue.put_nowait(self._waiting)
            except Full:
                return
            if self._waiting is None:
                self._told_end = True
                return
            self._waiting = None
            self.drawn += 1
            if time.monotonic() >= end:
                return

    def wait(self, timeout: float) -> None:
        """Sleep until the thread has room again, or has ended, or for so many seconds."""
        self._ended.wait(timeout)

    def give_up(self) -> None:
        """End it unfinished: an mp4 is not written, PNGs that are written stay."""
        self._given_up = True
        with suppress(Full):
            self._queue.put_nowait(None)

    def close(self) -> None:
        """Give back everything; give up what is unfinished. Idempotent."""
        if not self._told_end:
            self.give_up()
        while not self._ended.wait(0.02):
            with suppress(Full):
                self._queue.put_nowait(None)
        self._thread.join()
        self._camerawork.close()

    def _write(self, writer: Writer) -> None:
        """In the thread: take pictures until there are no more."""
        from splatview_viewer.formats.path_writers import writing

        try:
            with writing(writer):
                while (picture := self._queue.get()) is not None and not self._given_up:
                    writer.add(picture)
                if self._given_up:
                    raise _GivenUp
        except _GivenUp:
            pass
        except Exception as e:
            self._fault = str(e) or type(e).__name__
        finally:
            self._ended.set()
            self._wake()


class _GivenUp(Exception):  # noqa: N818  (nothing went wrong)
    pass
