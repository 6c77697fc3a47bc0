"""One picture of a stream or a file, without a screen: `splatview shot`."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from splatview_ipc.control.errors import SharingError
from splatview_ipc.system.files import check_picture
from splatview_viewer.app.still import Look, Still
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.screen import MIN_SIZE
from splatview_viewer.formats.pictures import check_writable, save_picture
from splatview_viewer.kinds import kind_of
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.workspace.finding import Finder, why_nothing
from splatview_viewer.workspace.overlays import newest_overlays
from splatview_viewer.workspace.sources import make_subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from splatview_ipc.control.frame import Frame
    from splatview_viewer.core.settings import Color
    from splatview_viewer.core.view import Value


T = TypeVar("T")


@dataclass(frozen=True)
class ShotOptions:
    """What to draw, and how."""

    out: Path
    """A picture file, whose suffix names the format."""
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
    background: Color | None = (0.0, 0.0, 0.0)
    """RGB in [0, 1]; None: transparent, without what is drawn over an image."""
    timeout: float = 10.0
    """Seconds to wait for the stream's first frame."""


def shoot(options: ShotOptions) -> tuple[int, int]:
    """Draw one stream or file into a picture, which appears whole or not at all. Returns its width and height.

    Raises ViewerError: nothing to draw, a camera or file that makes no sense, no graphics.
    """
    check_writable(options.out, check_picture, options.background is None)
    value = None
    if options.file is not None:
        if options.stream is not None or options.run is not None:
            raise ViewerError("shot: a file was named, and --stream or --run as well; name one or the other")
        from splatview_viewer.kinds.files import open_file

        value = open_file(options.file)
    screen = OffscreenScreen(MIN_SIZE, MIN_SIZE)
    try:
        if value is None:
            return newest(screen, "shot", options, lambda kind, frame, overlays: _draw(screen, kind, frame, options,
                                                                                       overlays))
        size = _draw(screen, kind_of(value), value, options)
    finally:
        screen.close()
    assert size is not None  # only a frame can be overwritten meanwhile
    for note in value.notes if isinstance(value, GaussianScene) else ():
        print(f"splatview: shot: {options.file}: {note}", file=sys.stderr)
    return size


class Asked(Protocol):
    """Which stream is meant, and how long to wait for it."""

    @property
    def stream(self) -> str | None: ...

    @property
    def run(self) -> str | None: ...

    @property
    def timeout(self) -> float: ...


OVERLAY_PATIENCE = 3.0
"""Seconds to wait for the first frame of an overlay that has been published. A trainer on a busy GPU answers late."""


def newest(screen: OffscreenScreen, who: str, asked: Asked,
           use: Callable[[str, Frame, Sequence[Frame]], T | None]) -> T:
    """What `use` makes of the newest frame of a stream, of its kind and of the overlays that lie over it. It is asked
    again with the next one when it returns None: the frame was overwritten meanwhile.

    `who` stands at the beginning of messages. Raises ViewerError when there is no such stream, or nothing comes of it.
    """
    subscriber = make_subscriber(screen.ctx, asked.run, client=who)
    try:
        deadline = time.monotonic() + asked.timeout
        finder = Finder(subscriber, who)
        stream = finder.find(asked.stream, asked.run, deadline)
        stream.open()
        while True:
            finder.look(asked.run)
            frame = stream.read()
            if frame is not None:
                with frame:
                    try:
                        with ExitStack() as stack:
                            patience = min(OVERLAY_PATIENCE, max(0.0, deadline - time.monotonic()))
                            overlays = [stack.enter_context(o) for o in newest_overlays(subscriber, stream, patience)]
                            made = use(frame.kind, frame, overlays)
                    except SharingError as e:
                        if not frame.on_gpu:
                            raise ViewerError(f"{who}: {e}") from e
                        made = None
                        stream.refuse(str(e))  # it may come in another way
                if made is not None:
                    return made
            if time.monotonic() >= deadline:
                raise why_nothing(stream, who, asked.timeout)
            time.sleep(0.005)
    finally:
        subscriber.close()


def _draw(screen: OffscreenScreen, kind: str, value: Value, options: ShotOptions,
          overlays: Sequence[Frame] = ()) -> tuple[int, int] | None:
    """Draw and save; None when the writer overwrote the frame meanwhile."""
    still = Still(screen, kind, "shot", "--camera")
    try:
        size = still.prepare(value, Look(options.size, options.camera, options.background))
        if size is None:
            return None
        if options.background is None:
            pixels = still.see_through(size)
        else:
            still.draw(size, overlays)
            pixels = screen.pixels()[..., :3]
        if not still.whole():
            return None
        save_picture(pixels, options.out)
        if still.lacks:  # a picture with less in it than people think, or nothing, is not left to be wondered at
            print(f"splatview: shot: Gaussians: {still.lacks}", file=sys.stderr)
        return size
    finally:
        still.close()


def parse_background(text: str) -> Color | None:
    """RGB in [0, 1] from "R,G,B": fractions, or 0 to 255 if any is over 1; None for "transparent". Raises ViewerError
    otherwise."""
    if text.strip().lower() in ("transparent", "none"):
        return None
    try:
        r, g, b = (float(part) for part in text.split(","))
    except ValueError:
        raise ViewerError(f"background: {text!r} is not R,G,B, such as 0.1,0.2,0.3 or 25,50,75, nor "
                          "transparent") from None
    top = 255.0 if max(r, g, b) > 1 else 1.0
    if not all(0 <= c <= top for c in (r, g, b)):  # refuses NaN as well
        raise ViewerError(f"background: {text!r} is out of range: three numbers from 0 to 1, or from 0 to 255")
    return r / top, g / top, b / top

