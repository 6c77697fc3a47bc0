"""Films of a scene: pictures along a camera path, made while the loop goes on."""

from __future__ import annotations

import time
from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal

import numpy as np

from splatview_viewer.core.errors import error_text
from splatview_viewer.core.jobs import Job, JobQueue
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import PICTURE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import moderngl

    from splatview_viewer.core.settings import Color
    from splatview_viewer.formats.camera_paths import Film
    from splatview_viewer.formats.films import Writer
    from splatview_viewer.scene_view.protocol import SceneView

    Draw = Callable[[moderngl.Framebuffer, Color], None]

_MAX_WAITING = 5
"""Pictures that wait to be written, with the one that is being written."""
_MAX_WAITING_BYTES = 256 << 20
"""Bytes of these pictures; one picture may wait, whatever its size."""
_ABORT_S = 5.0
"""Seconds to wait until what is unfinished has been taken away, by a disk that may
hang."""
_TURN_S = 0.012
"""Seconds of drawing in one turn of the loop, if a picture does not take longer."""
_MIN_ALPHA = 1e-6
_DTYPES = {"f1": np.uint8, "f4": np.float32}


class Camerawork:
    """Draws pictures of a scene with the settings of a view, but without its tools."""

    def __init__(
        self, ctx: moderngl.Context, view: SceneView, width: int, height: int
    ) -> None:
        """Draw pictures of this size, as `view` shows the scene but for the camera."""
        self._view = view.bare_copy()
        self._background = self._view.background
        self.size = width, height
        self._ctx = ctx

    @property
    def fault_text(self) -> str:
        """Why the scene cannot be drawn now; "" where it can."""
        return self._view.fault_text

    def picture(
        self, film: Film, seconds: float, transparent: bool = False
    ) -> np.ndarray | None:
        """Return the picture at a time of the film, top row first.

        Args:
            film: the film.
            seconds: since its beginning.
            transparent: leave out the background.

        Returns:
            (H, W, 3) uint8; transparent: (H, W, 4), colours not multiplied by alpha.
            None while another program has not drawn it yet.
        """
        self._view.rig.reset_to(film.path.camera_at(seconds, *self.size))
        if self._view.awaits_picture(Rect(0, 0, *self.size)):
            return None
        if transparent:
            return see_through(self._ctx, self.size, self._draw)
        (picture,) = _draw_over(self._ctx, self.size, self._draw, self._background)
        return picture

    def _draw(self, framebuffer: moderngl.Framebuffer, background: Color) -> None:
        self._view.change(background=background)
        self._view.draw(framebuffer, Rect(0, 0, *self.size))

    def close(self) -> None:
        """Release everything. Idempotent."""
        self._view.release("closed")


def see_through(ctx: moderngl.Context, size: tuple[int, int], draw: Draw) -> np.ndarray:
    """Return what `draw` lays over any background: (H, W, 4) uint8, top row first.

    Colours are not multiplied by alpha. The picture is drawn over black and over white:
    what is brighter over white is seen through.
    """
    black, white = _draw_over(
        ctx, size, draw, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), dtype="f4"
    )
    alpha = np.clip(1 - (white - black).mean(axis=2, keepdims=True), 0, 1)
    is_visible = alpha > _MIN_ALPHA
    color = np.divide(black, alpha, out=np.zeros_like(black), where=is_visible)
    rgba = np.concatenate([np.clip(color, 0, 1), alpha], axis=2)
    return (rgba * 255 + 0.5).astype(np.uint8)


def _draw_over(
    ctx: moderngl.Context,
    size: tuple[int, int],
    draw: Draw,
    *backgrounds: Color,
    dtype: Literal["f1", "f4"] = "f1",
) -> list[np.ndarray]:
    """Return what `draw` lays over each of the backgrounds, top row first.

    The pictures are (H, W, 3) uint8, or float32 of "f4".
    """
    width, height = size
    pictures = []
    with ExitStack() as cleanup:
        texture = ctx.texture(size, 4, dtype=dtype)
        cleanup.callback(texture.release)
        framebuffer = ctx.framebuffer([texture])
        cleanup.callback(framebuffer.release)
        cleanup.callback(ctx.detect_framebuffer().use)
        for background in backgrounds:
            draw(framebuffer, background)
            data = framebuffer.read(components=3, alignment=1, dtype=dtype)
            values = np.frombuffer(data, _DTYPES[dtype])
            # OpenGL's bottom row comes first.
            pictures.append(values.reshape(height, width, 3)[::-1])
    return pictures


class Filming:
    """A film in the making.

    Call `advance` in each turn of the loop, and `close` at the end, in any case. A job
    writes each picture.
    """

    def __init__(
        self,
        camerawork: Camerawork,
        film: Film,
        writer: Writer,
        *,
        transparent: bool = False,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare the film; `wake` ends the loop's sleep, from any thread."""
        self.film = film
        self.total = film.path.frame_count(film.fps)
        """Number of pictures."""
        self.drawn = 0
        """Number of pictures drawn so far."""
        self.is_ended = False
        """Everything is written, or given up."""
        self.fault = ""
        """The reason why it was given up; "" without a reason."""
        self._writer = writer
        self._camerawork = camerawork
        self._transparent = transparent
        channels = 4 if transparent else 3
        picture_bytes = max(film.width * film.height * channels, 1)
        fitting = _MAX_WAITING_BYTES // picture_bytes
        self._max_waiting = max(min(_MAX_WAITING, fitting), 1)
        self._awaited_since: float | None = None
        """Time since which another program draws the next picture."""
        self._jobs = JobQueue("film", wake)
        self._written: deque[Job[None]] = deque()
        """Jobs that have not ended, the oldest first; after the last picture the one
        that completes the film."""
        self._is_complete = False
        """The job that completes the film is among them."""

    @property
    def out(self) -> Path:
        """The film's file or folder; its number is known at the end."""
        return self._writer.out

    def advance(self, seconds: float = _TURN_S) -> None:
        """Draw a picture, and more within these seconds.

        Nothing is drawn while the jobs are behind.
        """
        started_at = time.perf_counter()
        while self._can_draw():
            try:
                picture = self._camerawork.picture(
                    self.film, self.drawn / self.film.fps, self._transparent
                )
                if picture is None:
                    self._await_picture()
                    return
                self._awaited_since = None
                self._write(picture)
            except Exception as error:
                # Without an end the film would never be closed.
                self._give_up(error_text(error))
                return
            if time.perf_counter() - started_at >= seconds:
                return

    def _await_picture(self) -> None:
        """Give up where another program cannot draw the next picture, or does not."""
        fault_text = self._camerawork.fault_text
        now = time.perf_counter()
        if self._awaited_since is None:
            self._awaited_since = now
        if fault_text:
            self._give_up(f"the picture cannot be drawn: {fault_text}")
        elif now - self._awaited_since > PICTURE_S:
            self._give_up(f"no picture came within {PICTURE_S:g} s")

    def _can_draw(self) -> bool:
        """Account for written pictures; return whether to draw the next one now."""
        if self.is_ended or not self._collect_written():
            return False
        is_behind = len(self._written) >= self._max_waiting
        if not self._is_complete and not is_behind and self.drawn == self.total:
            self._written.append(self._jobs.submit(lambda _: self._writer.close()))
            self._is_complete = True
            if not self._collect_written():
                return False
        if self._is_complete:
            self.is_ended = not self._written
            return False
        return not is_behind

    def _collect_written(self) -> bool:
        """Remove the jobs that have ended; return whether all of them succeeded."""
        while self._written and self._written[0].done:
            job = self._written.popleft()
            if job.error is not None:
                self._give_up(error_text(job.error))
                return False
        return True

    def _write(self, picture: np.ndarray) -> None:
        """Have a job write the next picture."""
        job = self._jobs.submit(lambda _: self._writer.add(picture))
        self._written.append(job)
        self.drawn += 1

    def wait(self, timeout: float) -> None:
        """Sleep until a picture can be drawn, or the film has ended.

        Args:
            timeout: seconds to sleep at most.
        """
        is_behind = len(self._written) >= self._max_waiting
        if self._written and (self._is_complete or is_behind):
            self._written[0].wait(timeout)

    def _give_up(self, fault: str = "") -> None:
        """End the film unfinished: an mp4 is not written, written PNGs stay.

        The removal waits for the picture that is being written: this does not wait
        for a disk.
        """
        self.fault = fault
        self.is_ended = True
        self._jobs.close()
        self._written.clear()
        self._jobs.submit(lambda _: self._writer.abort())

    def close(self) -> None:
        """Release everything, and give up what is unfinished. Idempotent."""
        if not self.is_ended:
            self._give_up()
        self._jobs.wait(_ABORT_S)
        self._camerawork.close()
