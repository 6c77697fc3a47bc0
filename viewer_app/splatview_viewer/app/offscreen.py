"""Pictures and films of a stream or a file without a window: `splatview shot`, `splatview video` and `splatview.grab`.

One pipeline for all: open a file or find a stream, wait until its value is there, draw it complete (`Still`),
hand over the pixels. `until` is the only place that waits.
"""

from __future__ import annotations

import math
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_ipc.system.files import check_picture
from splatview_viewer.core.errors import CameraError, ViewerError
from splatview_viewer.core.host import Host
from splatview_viewer.core.old_view import Adapted
from splatview_viewer.core.screen import MAX_SIZE, MIN_SIZE, Rect, parse_size, settled_pixels
from splatview_viewer.formats.camera_paths import Film, check_film, make_writer, read_path
from splatview_viewer.formats.pictures import check_writable, save_picture
from splatview_viewer.geometry.cameras import camera_from_json
from splatview_viewer.geometry.path import turntable
from splatview_viewer.kinds import SCENES, SHOWN, kind_named, kind_of, make_view
from splatview_viewer.kinds.gaussians.film import Camerawork, Filming, see_through
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.kinds.image.view import ImageView
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.workspace.links import LinkedFrames
from splatview_viewer.workspace.names import SETTLE, Finder, why_nothing
from splatview_viewer.workspace.sources import make_subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import moderngl
    import torch

    from splatview_ipc.control.frame import Frame
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_viewer.app.commands import Shot, Video
    from splatview_viewer.core.old_view import View
    from splatview_viewer.core.settings import Color
    from splatview_viewer.core.view import Value
    from splatview_viewer.shell.panel import Panel

T = TypeVar("T")

DEFAULT_SIZE = (1280, 720)
_ARRIVAL = 2.0
"""Seconds for the data of a picture in place to arrive; a view shows it after half a second in any case."""
_LATER = 0.1
"""Seconds to wait for an image that is read in place: the trainer's GPU may write it later than it was announced."""
_TIMEOUT = 10.0
"""Seconds to wait for a stream's first frame."""
_GLANCE = 0.0005
"""Seconds between two looks for what is on its way."""
_COMPLETE = 300.0
"""Seconds within which a plot is complete: ten million events take a few."""
_OVERLAY = 3.0
"""Seconds to wait for the first frame of an overlay that has been published. A trainer on a busy GPU answers late."""


def until(poll: Callable[[], T | None], end: float, pause: float = _GLANCE) -> T | None:
    """Return the first result of `poll` that is not None; None when there was none by `end` (time.monotonic())."""
    while True:
        result = poll()
        if result is not None or time.monotonic() >= end:
            return result
        time.sleep(pause)


def find(finder: Finder, name: str | None, run: str | None, end: float, *, sure: bool = False) -> RemoteStream:
    """Wait for a stream; `name` and `run` as for `Finder.find`. `sure`: there is such a stream, so wait until `end`."""
    settled = end if sure else min(time.monotonic() + SETTLE, end)
    stream = until(lambda: finder.find(name, run, time.monotonic(), settled, end), math.inf, 0.002)
    assert stream is not None
    return stream


def take_linked(stack: ExitStack, linked: LinkedFrames) -> list[Frame]:
    """Wait for the streams over another one; `stack` closes the frames."""
    frames = until(lambda: linked.poll(time.monotonic()), math.inf, 0.002)
    assert frames is not None
    return [stack.enter_context(frame) for frame in frames]


@dataclass(frozen=True)
class Look:
    """How a picture is drawn."""

    size: tuple[int, int] | None = None
    """Width and height in pixels; None: a picture's own, 1280x720 for others."""
    camera: str | None = None
    """JSON or the name of a file that holds it; None: the scene seen whole."""
    background: Color | None = None
    """RGB in [0, 1]; None: what comes with the stream, else black."""


def shoot(asked: Shot) -> tuple[int, int]:
    """Draw one stream or file into a picture, which appears whole or not at all. Returns its width and height.

    Raises ViewerError: nothing to draw, a camera or file that makes no sense, no graphics.
    """
    look = Look(_size(asked), asked.camera, parse_background(asked.background))
    check_writable(asked.out, check_picture, look.background is None)

    def shot(still: Still, value: Value, overlays: Sequence[Frame]) -> tuple[int, int] | None:
        size = still.prepare(value, look)
        if size is None:
            return None
        if look.background is None:
            pixels = still.see_through(size)
        else:
            still.draw(size, overlays)
            pixels = still.screen.pixels()[..., :3]
        if not still.whole():
            return None
        save_picture(pixels, asked.out)
        if still.lacks:  # a picture with less in it than people think, or nothing, is not left to be wondered at
            print(f"splatview: shot: Gaussians: {still.lacks}", file=sys.stderr)
        for note in value.notes if isinstance(value, GaussianScene) else ():
            print(f"splatview: shot: {asked.file}: {note}", file=sys.stderr)
        return size

    return _drawn("shot", "--camera", asked, shot)


def film(asked: Video) -> int:
    """Film a scene as it is when this begins; says on stderr how far it is. Returns how many pictures there are.

    Raises ViewerError: nothing to film, a path or file that makes no sense, no graphics.
    """
    look = Look(_size(asked), None, parse_background(asked.background))
    path = None if asked.path is None else read_path(asked.path)
    check_film(asked.out)
    return _drawn("video", "--path", asked, lambda still, value, _: _film(still, value, look, asked, path))


def _drawn(who: str, camera: str, asked: Shot | Video, use: Callable[[Still, Value, Sequence[Frame]], T | None]) -> T:
    """What `use` makes of the file or the newest frame of the stream. `camera`: the option that people call it by."""
    value = None
    if asked.file is not None:
        if asked.stream is not None or asked.run is not None:
            raise ViewerError(f"{who}: a file was named, and --stream or --run as well; name one or the other")
        from splatview_viewer.kinds.files import open_file

        value = open_file(asked.file)

    def attempt(kind: str, value: Value, overlays: Sequence[Frame]) -> T | None:
        still = Still(screen, kind, who, camera)
        try:
            return use(still, value, overlays)
        finally:
            still.close()

    screen = OffscreenScreen(MIN_SIZE, MIN_SIZE)
    try:
        if value is None:
            return _newest(screen, who, asked, attempt)
        made = attempt(kind_of(value), value, ())
    finally:
        screen.close()
    assert made is not None  # only a frame can be overwritten meanwhile
    return made


def _newest(screen: OffscreenScreen, who: str, asked: Shot | Video,
            use: Callable[[str, Frame, Sequence[Frame]], T | None]) -> T:
    """What `use` makes of the newest frame of a stream, of its kind and of the overlays that lie over it. It is called
    again with the next one when it returns None: the frame was overwritten meanwhile.

    Raises ViewerError when there is no such stream, or nothing comes of it.
    """
    subscriber = make_subscriber(screen.ctx, asked.run, client=who)
    try:
        end = time.monotonic() + _TIMEOUT
        finder = Finder(subscriber, who)
        stream = find(finder, asked.stream, asked.run, end)
        stream.open()

        def attempt() -> T | None:
            finder.look(asked.run, time.monotonic())
            frame = stream.read()
            if frame is None:
                return None
            with frame, ExitStack() as stack:
                patience = min(_OVERLAY, max(0.0, end - time.monotonic()))
                try:
                    overlays = take_linked(stack, LinkedFrames(subscriber, stream, time.monotonic(), patience))
                    return use(frame.kind, frame, overlays)
                except SharingError as e:
                    if not frame.on_gpu:
                        raise ViewerError(f"{who}: {e}") from e
                    stream.refuse(str(e))  # it may come in another way
                    return None

        made = until(attempt, end, 0.005)
        if made is None:
            raise why_nothing(stream, who, _TIMEOUT)
        return made
    finally:
        subscriber.close()


class Still:
    """Draws pictures of one stream or file, one at a time and each complete:

        size = still.prepare(value, look)        # None: the value was overwritten meanwhile
        still.draw(size)                         # into the screen's framebuffer, which is to be read now
        if still.whole(): ...                    # else what was read is to be thrown away, and the value comes again

    What was loaded stays for the next picture, until `close`.
    """

    def __init__(self, screen: OffscreenScreen, kind: str, who: str, camera: str) -> None:
        """`kind` of stream, or "snapshot"; `who` stands at the beginning of messages, `camera` is what people call the
        camera. Raises ViewerError for a kind that cannot be drawn."""
        if kind not in SHOWN:
            raise ViewerError(f"{who}: a stream of kind {kind!r} cannot be drawn; legal are {', '.join(SHOWN)}")
        self.screen = screen
        self.kind = kind
        self._plot = kind_named(kind).still == "plot"
        """Its picture is written over with words; each is of one value alone."""
        self._who = who
        self._camera = camera
        self.view: View | None = None
        """What draws it; None before `prepare`."""
        self._image: ImageView | None = None
        self._scene: GaussianView | None = None
        """The view, where it shows an image, or Gaussians."""

    def prepare(self, value: Value | None, look: Look) -> tuple[int, int] | None:
        """Get ready to draw this value, or with None the last one again; the picture's width and height.

        None: the writer overwrote the value meanwhile. Raises ViewerError for what makes no sense or cannot be drawn,
        SharingError for a frame that cannot be read here.
        """
        if look.camera is not None and self.kind not in SCENES:
            raise CameraError(f"{self._who}: a picture takes no {self._camera}; leave it out")
        size = look.size or DEFAULT_SIZE
        # A camera that makes no sense is told before anything is drawn.
        camera = None if look.camera is None else camera_from_json(look.camera, *size)
        if value is not None and self._plot:
            self.close()
        if (view := self.view) is None:
            view = self.view = make_view(self.kind, self.screen.ctx)
            self._image, self._scene = shown_by(view, ImageView), shown_by(view, GaussianView)
        if self._image is not None:
            background = look.background or (0.0, 0.0, 0.0)
            self._image.state = replace(self._image.state, alpha="background", background=background)
        if self._scene is not None:
            self._scene.host = Host(exact="scene")
            self._scene.change(background=look.background)
            self._scene.look_with(camera)
        if value is not None and not _take(view, value):
            return None
        if look.size is None and self._image is not None:
            size = min(self._image.size[0], MAX_SIZE), min(self._image.size[1], MAX_SIZE)
        return size

    def draw(self, size: tuple[int, int], overlays: Sequence[Frame] = (), panel: Panel | None = None) -> None:
        """Draw what was prepared into the screen's framebuffer, which gets this size, and over an image these frames of
        kind overlay; `panel` as for `draw_overlay_frame`.

        Raises ViewerError for a plot that cannot be shown or is not complete in time.
        """
        view = self.view
        assert view is not None
        self.screen.resize(*size)
        rect, framebuffer = Rect(0, 0, *size), self.screen.framebuffer
        if self._plot:
            _draw_plot(view, framebuffer, rect)
            return
        view.draw(framebuffer, rect)
        if overlays and self._image is not None:
            draw_overlay_frame(framebuffer, self._image, rect, overlays, panel=panel)

    @property
    def lacks(self) -> str:
        """Of what was drawn: which Gaussians are not in the picture, and why, in words; "" where all are."""
        view = self._scene
        if view is None or view.data.facts is None:
            return ""
        renderer, camera, sight = view.data.renderer, view.camera(), view.data.sight
        words = [renderer.left_out.words(view.data.facts.count), renderer.thinned]
        if camera is not None and sight is not None and len(sight.means):
            farthest = np.nanmax(sight.means @ camera.viewmat[2, :3], initial=-np.inf) + camera.viewmat[2, 3]
            if 0 < farthest < camera.near:
                words.append(f"everything is nearer than near {camera.near:g}: the farthest is {farthest:.3g} away; "
                             f"give {self._camera} a smaller near")
        return "; ".join(w for w in words if w)

    def tensor(self, size: tuple[int, int]) -> torch.Tensor | None:
        """The same as a tensor, (H, W, 3) uint8, top row first, for what torch's current stream does next. None where
        CUDA does not draw: then it is for `draw`."""
        return None if self._scene is None else self._scene.tensor(*size)

    def see_through(self, size: tuple[int, int]) -> np.ndarray:
        """What was prepared over no background: (H, W, 4) uint8, top row first, colours not multiplied by alpha.

        Raises ViewerError for what covers all of its background.
        """
        view, image, scene = self.view, self._image, self._scene
        if scene is None and image is None:
            raise ViewerError(f"{self._who}: a picture of kind {self.kind} cannot be transparent; leave that out")

        def draw(framebuffer: moderngl.Framebuffer, background: Color) -> None:
            if scene is not None:
                scene.change(background=background)
            elif image is not None:
                image.state = replace(image.state, background=background)
            assert view is not None
            view.draw(framebuffer, Rect(0, 0, *size))

        return see_through(self.screen.ctx, size, draw)

    def whole(self) -> bool:
        """What was drawn since `prepare` is one version; to be asked when the GPU has drawn it."""
        if self.view is None or self._plot:
            return True
        self.view.tick(time.monotonic())
        return not self.view.stale

    def close(self) -> None:
        """Give back everything. Idempotent."""
        if self.view is not None:
            self.view.close()
            self.view = self._scene = None


def shown_by(view: View | None, of: type[T]) -> T | None:
    """Return the view if it is of this class."""
    return view.view if isinstance(view, Adapted) and isinstance(view.view, of) else None


def _take(view: View, value: Value) -> bool:
    """Give a view the value, once its data has arrived; False when it was overwritten meanwhile."""
    def taken() -> bool | None:
        view.tick(time.monotonic())
        return True if view.update(value) else False if getattr(value, "complete", True) else None

    if not until(taken, time.monotonic() + _ARRIVAL):
        return False
    if shown_by(view, ImageView) is not None:
        until(lambda: getattr(value, "complete", True) or None, time.monotonic() + _LATER)
    return True


def _draw_plot(view: Any, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
    """Draw a plot with its axes and words, once everything in it is worked out."""
    from splatview_viewer.shell.panel import Panel

    panel, plot = Panel(), getattr(view, "view", view)

    def draw() -> None:
        view.draw(framebuffer, rect)
        panel.draw_over(framebuffer, view.over, 1.0)

    try:
        end = time.monotonic() + _COMPLETE
        while True:
            settled_pixels(framebuffer, draw)
            if getattr(plot, "complete", True):
                break
            if time.monotonic() > end:  # some work on a picture while others are drawn
                raise ViewerError(f"the picture was not complete within {_COMPLETE:g} s")
            plot.wait(end - time.monotonic())
        if fault := getattr(plot, "fault", ""):
            raise ViewerError(fault)
    finally:
        panel.close()


def draw_overlay_frame(framebuffer: moderngl.Framebuffer, view: ImageView, rect: Rect, frames: Iterable[Frame],
                       scale: float = 1.0, panel: Panel | None = None) -> None:
    """Draw frames of kind overlay over what `view.draw(framebuffer, rect)` drew before.

    scale: pixels per point, for lines and letters. panel: one whose imgui context is used; None: one is made for this
    picture, which takes a tenth of a second. Frames that cannot be read are left out; how old they are is not written.
    Not for views of the viewer.
    """
    layers, source = view.data.layers, view.data.source
    if source is None:
        return
    for number, frame in enumerate(frames):
        with suppress(ViewerError):
            layers.take(number, frame)
    try:
        view.draw_layers(framebuffer, rect, scale)
        if any(layer.result is not None and not layer.result.empty for layer in layers.all):
            from splatview_viewer.shell.panel import Panel

            own = panel or Panel(scale)
            try:
                own.draw_over(framebuffer, lambda _, s: view.write_layers(rect, s, corner=False) or False, scale)
            finally:
                if own is not panel:
                    own.close()
    finally:
        layers.clear()


def _film(still: Still, value: Value, look: Look, asked: Video, path: Film | None) -> int | None:
    """The number of pictures; None when the writer overwrote the frame before it was loaded."""
    if still.kind not in SCENES:
        raise ViewerError(f"video: this is of kind {still.kind}; only Gaussians can be filmed")
    size = look.size or ((path.width, path.height) if path is not None else DEFAULT_SIZE)
    if still.prepare(value, replace(look, size=size)) is None:
        return None
    still.draw((MIN_SIZE, MIN_SIZE))  # reads the scene
    if not still.whole():
        return None
    view = shown_by(still.view, GaussianView)
    assert view is not None
    if path is None:
        camera = view.camera(Rect(0, 0, *size))
        sight = view.data.sight
        if camera is None or sight is None:
            raise ViewerError("video: there are no Gaussians to film")
        path = Film(turntable(camera, sight.middle, view.orbit.up))
    made = Film(path.path, *size, asked.fps or path.fps)
    if asked.seconds is not None:
        made.path.stretch(asked.seconds)
    transparent = look.background is None
    camerawork = Camerawork(still.screen.ctx, view, *size)
    filming = Filming(camerawork, made, make_writer(asked.out, *size, made.fps, transparent), transparent=transparent)
    try:
        _until_done(filming)
    finally:
        filming.close()
    return filming.drawn


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


def _size(asked: Shot | Video) -> tuple[int, int] | None:
    return None if asked.size is None else parse_size(asked.size)


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
