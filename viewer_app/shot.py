"""One picture of a stream or a file, without a screen: `splatview shot`."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipc.errors import SharingError
from viewer_app.cameras import camera_from_json
from viewer_app.controls import Rect
from viewer_app.errors import FileError, ViewerError
from viewer_app.memory.model import Snapshot
from viewer_app.pictures import save_png
from viewer_app.scene import GaussianScene
from viewer_app.screens.base import MAX_SIZE, MIN_SIZE
from viewer_app.screens.offscreen import OffscreenScreen
from viewer_app.sources import make_subscriber
from viewer_app.state import Color, ViewSettings
from viewer_app.views.gaussians import GaussianView
from viewer_app.views.image import ImageView

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from ipc import Frame, RemoteStream, Subscriber

DEFAULT_SIZE = (1280, 720)
_ARRIVAL = 2.0
"""Seconds for the data of a picture in place to arrive; a view shows it after half a second in any case."""
_LATER = 0.1
"""Seconds to wait for an image that is read in place: the trainer's GPU may write it later than it was announced."""
_PREFERRED = ("gaussians", "image", "memory")
"""The kinds of streams, what is drawn first if none is named first."""
_SETTLE = 1.0
"""Seconds after which a run that was found has told its streams."""


@dataclass(frozen=True)
class ShotOptions:
    """What to draw, and how."""

    out: Path
    """A PNG file."""
    file: Path | None = None
    """A scene, a picture or a snapshot of memory; None: a stream."""
    stream: str | None = None
    """The stream's name; None: the only or first one, Gaussians preferred."""
    run: str | None = None
    """A run's id, the beginning of it, its name or its process id; None: any."""
    size: tuple[int, int] | None = None
    """Width and height in pixels; None: a picture's own, 1280x720 for others."""
    camera: str | None = None
    """JSON or the name of a file that holds it; None: the scene seen whole."""
    background: Color = (0.0, 0.0, 0.0)
    """RGB in [0, 1]."""
    timeout: float = 10.0
    """Seconds to wait for the stream's first frame."""


def shoot(options: ShotOptions) -> tuple[int, int]:
    """Draw one stream or file into a PNG, which appears whole or not at all. Returns its width and height.

    Raises ViewerError: nothing to draw, a camera or file that makes no sense, no graphics.
    """
    folder = options.out.absolute().parent
    if not folder.is_dir():
        raise FileError(f"{options.out}: there is no folder {folder}; make it first")
    if options.file is not None:
        if options.stream is not None or options.run is not None:
            raise ViewerError("shot: a file was named, and --stream or --run as well; name one or the other")
        from viewer_app.files import open_file

        value = open_file(options.file)
        screen = OffscreenScreen(MIN_SIZE, MIN_SIZE)
        try:
            size = _draw(screen, value, options)
        finally:
            screen.close()
        assert size is not None  # nobody writes to it meanwhile
        return size
    return _shoot_stream(options)


def _shoot_stream(options: ShotOptions) -> tuple[int, int]:
    screen = OffscreenScreen(MIN_SIZE, MIN_SIZE)
    subscriber = make_subscriber(screen.ctx, options.run, client="shot")
    try:
        deadline = time.monotonic() + options.timeout
        stream = find_stream(subscriber, options.stream, options.run, deadline)
        stream.open()
        while True:
            subscriber.poll()
            frame = stream.read()
            if frame is not None:
                with frame:
                    try:
                        size = _draw(screen, frame, options)
                    except SharingError as e:
                        if not frame.on_gpu:
                            raise ViewerError(f"shot: {e}") from e
                        size = None
                        stream.refuse(str(e))  # it may come in another way
                if size is not None:
                    return size
            if time.monotonic() >= deadline:
                raise ViewerError(_why_nothing(stream, options.timeout))
            time.sleep(0.005)
    finally:
        subscriber.close()
        screen.close()


def find_stream(subscriber: Subscriber, name: str | None, run: str | None, deadline: float) -> RemoteStream:
    """The stream of this name, or the one to show when no name is given: Gaussians first, memory last, of the rest the
    newest run's.

    Waits for a run that has just started to tell its streams. Raises ViewerError that lists what there is.
    """
    settled = min(time.monotonic() + _SETTLE, deadline)
    while True:
        subscriber.poll()
        found = [s for s in subscriber.streams if s.run.alive and name in (None, s.name)]
        now = time.monotonic()
        runs = [r for r in subscriber.runs if r.alive]
        told = bool(runs) and all(r.welcomed or r.refused for r in runs)
        if found and (told or now > settled):
            newest_first = found[::-1]
            return min(newest_first, key=lambda s: {"gaussians": 0, "memory": 2}.get(s.kind, 1))
        # A run without the stream may publish it any moment; no run at all is known at once.
        if now > (settled if not runs or name is None else min(settled + 1.0, deadline)):
            raise ViewerError(_nothing_found(subscriber, name, run))
        time.sleep(0.01)


def _nothing_found(subscriber: Subscriber, name: str | None, run: str | None) -> str:
    if subscriber.fault:
        return f"shot: runs cannot be found: {subscriber.fault}"
    runs = [r for r in subscriber.runs if r.alive]
    if not runs:
        if run is not None:
            return f"shot: there is no run {run!r}; splatview status lists those there are"
        return ("shot: no run is publishing. Start one (splatview.publish(tensor) in a training script, or "
                "splatview demo), or name a file")
    if refused := [f"{r.name} ({r.id}): {r.refused}" for r in runs if r.refused]:
        return "shot: " + "; ".join(refused)
    listing = [f"{s.name} ({s.kind}, run {s.run.id})" for s in subscriber.streams if s.run.alive]
    if name is not None and listing:
        return f"shot: there is no stream {name!r}; there are: {', '.join(listing)}"
    return f"shot: no stream is published yet by {', '.join(f'{r.name} ({r.id})' for r in runs)}"


def _why_nothing(stream: RemoteStream, timeout: float) -> str:
    if stream.fault:
        return f"shot: stream {stream.name!r} cannot be read: {stream.fault}"
    if not stream.run.alive:
        return f"shot: the run of stream {stream.name!r} ended before it could be read"
    return (f"shot: stream {stream.name!r} brought no frame within {timeout:g} s. A trainer shares its data when it "
            "publishes next: is it still running?")


def _draw(screen: OffscreenScreen, value: Frame | GaussianScene | Snapshot | np.ndarray,
          options: ShotOptions) -> tuple[int, int] | None:
    """Draw and save; None when the writer overwrote the frame meanwhile."""
    is_scene = isinstance(value, GaussianScene) or getattr(value, "kind", "") == "gaussians"
    if options.camera is not None and not is_scene:
        raise ViewerError("shot: a picture takes no --camera; leave it out")
    width, height = options.size or DEFAULT_SIZE
    if isinstance(value, Snapshot) or getattr(value, "kind", "") == "memory":
        from viewer_app.plots import draw_plot

        plot = draw_plot(screen, "snapshot" if isinstance(value, Snapshot) else "memory", value, (width, height))
        if plot is None:
            return None
        save_png(plot[..., :3], options.out)
        return width, height
    # A camera that makes no sense is told before anything is drawn.
    camera = None if options.camera is None else camera_from_json(options.camera, width, height)
    settings = ViewSettings()
    settings.gaussians.background = options.background
    settings.gaussians.coarse_ms = math.inf
    settings.image.background = options.background
    settings.image.alpha = "background"
    view: GaussianView | ImageView | None = None
    try:
        if is_scene:
            view = GaussianView(screen.ctx, settings.gaussians)
        else:
            view = ImageView(screen.ctx, settings.image)
        end = time.monotonic() + _ARRIVAL
        while not view.update(value):
            if getattr(value, "complete", True) or time.monotonic() > end:
                return None
            time.sleep(0.005)
        if options.size is None and isinstance(view, ImageView):
            width, height = (min(n, MAX_SIZE) for n in view.size)
        if camera is not None and isinstance(view, GaussianView):
            view.use_camera(camera)
        screen.resize(width, height)
        rect = Rect(0, 0, width, height)
        if isinstance(view, ImageView) and not getattr(value, "complete", True):
            time.sleep(_LATER)
        view.draw(screen.framebuffer, rect)
        pixels = screen.pixels()
        view.tick(time.monotonic())
        if view.stale:
            return None
        save_png(pixels[..., :3], options.out)
        return width, height
    finally:
        if view is not None:
            view.close()


def parse_background(text: str) -> Color:
    """RGB in [0, 1] from "R,G,B": fractions, or 0 to 255 if any is over 1. Raises ViewerError otherwise."""
    try:
        r, g, b = (float(part) for part in text.split(","))
    except ValueError:
        raise ViewerError(f"background: {text!r} is not R,G,B, such as 0.1,0.2,0.3 or 25,50,75") from None
    top = 255.0 if max(r, g, b) > 1 else 1.0
    if not all(0 <= c <= top for c in (r, g, b)):  # refuses NaN as well
        raise ViewerError(f"background: {text!r} is out of range: three numbers from 0 to 1, or from 0 to 255")
    return r / top, g / top, b / top

