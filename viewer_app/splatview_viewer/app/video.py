"""A film of a stream or a file along a camera path, without a screen: `splatview video`."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from splatview_viewer.app.film import Camerawork, Filming
from splatview_viewer.app.shot import newest
from splatview_viewer.app.still import DEFAULT_SIZE, Look, Still, kind_of
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.screen import MIN_SIZE
from splatview_viewer.formats.nerfstudio import Film, read_path
from splatview_viewer.formats.path_writers import check_film, make_writer
from splatview_viewer.geometry.controls import Rect
from splatview_viewer.geometry.path import turntable
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.core.settings import Color
    from splatview_viewer.core.view import Value


@dataclass(frozen=True)
class VideoOptions:
    """What to film, and how."""

    out: Path
    """An mp4, or a folder for PNGs."""
    file: Path | None = None
    """A scene; None: a stream."""
    path: Path | None = None
    """A camera path, as nerfstudio's viewer writes them; None: once around the scene."""
    stream: str | None = None
    """The stream's name; None: the only or first one of Gaussians."""
    run: str | None = None
    """A run's id, the beginning of it, its name or its process id; None: any."""
    size: tuple[int, int] | None = None
    """Width and height in pixels; None: the path's own, 1280x720 without one."""
    fps: float | None = None
    """Pictures a second; None: the path's own, 30 without one."""
    seconds: float | None = None
    """How long it is to be; None: as long as the path takes."""
    background: Color | None = (0.0, 0.0, 0.0)
    """RGB in [0, 1]; None: transparent."""
    timeout: float = 10.0
    """Seconds to wait for the stream's first frame."""


def film(options: VideoOptions) -> int:
    """Film a scene as it is when this begins; says on stderr how far it is. Returns how many pictures there are.

    Raises ViewerError: nothing to film, a path or file that makes no sense, no graphics.
    """
    wanted = None if options.path is None else read_path(options.path)
    check_film(options.out)
    screen = OffscreenScreen(MIN_SIZE, MIN_SIZE)
    try:
        if options.file is not None:
            if options.stream is not None or options.run is not None:
                raise ViewerError("video: a file was named, and --stream or --run as well; name one or the other")
            from splatview_viewer.formats import open_file

            value = open_file(options.file)
            count = _film(screen, kind_of(value), value, options, wanted)
        else:
            count = newest(screen, "video", options, lambda kind, frame, _: _film(screen, kind, frame, options, wanted))
    finally:
        screen.close()
    assert count is not None
    return count


def _film(screen: OffscreenScreen, kind: str, value: Value, options: VideoOptions, wanted: Film | None) -> int | None:
    """None when the writer overwrote the frame before it was loaded."""
    if kind != "gaussians":
        raise ViewerError(f"video: this is of kind {kind}; only Gaussians can be filmed")
    size = options.size or ((wanted.width, wanted.height) if wanted is not None else DEFAULT_SIZE)
    still = Still(screen, kind, "video", "--path")
    try:
        if still.prepare(value, Look(size, None, options.background)) is None:
            return None
        still.draw((MIN_SIZE, MIN_SIZE))  # reads the scene
        if not still.whole():
            return None
        view = still.view
        assert isinstance(view, GaussianView)
        if wanted is None:
            camera = view.camera(Rect(0, 0, *size))
            sight = view.content.sight
            if camera is None or sight is None:
                raise ViewerError("video: there are no Gaussians to film")
            wanted = Film(turntable(camera, sight.middle, view.orbit.up))
        made = Film(wanted.path, *size, options.fps or wanted.fps)
        if options.seconds is not None:
            made.path.stretch(options.seconds)
        transparent = options.background is None
        camerawork = Camerawork(screen.ctx, view, *size)
        writer = make_writer(options.out, *size, made.fps, transparent)
        filming = Filming(camerawork, made, writer, transparent=transparent)
        try:
            _until_done(filming)
        finally:
            filming.close()
        return filming.drawn
    finally:
        still.close()


def _until_done(filming: Filming) -> None:
    begun, told = time.monotonic(), -1.0
    while not filming.ended:
        filming.turn()
        filming.wait(0.001)
        now = time.monotonic()
        if now - told > (0.2 if sys.stderr.isatty() else 10.0):
            told = now
            _tell(filming, now - begun)
    if filming.fault:
        raise ViewerError(f"video: {filming.fault}")
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _tell(filming: Filming, seconds: float) -> None:
    rate = filming.drawn / max(seconds, 1e-3)
    left = f", {(filming.total - filming.drawn) / rate:.0f} s left" if filming.drawn > 2 else ""
    text = f"{filming.drawn} of {filming.total} pictures, {rate:.1f}/s{left}"
    end = "" if sys.stderr.isatty() else "\n"
    print(f"\r\x1b[K{text}" if sys.stderr.isatty() else f"splatview: {text}", end=end, file=sys.stderr, flush=True)

