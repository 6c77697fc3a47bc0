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
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.render_requests import RenderRequest
from splatview_ipc.system.files import check_picture
from splatview_viewer.core.errors import CameraError, LateError, ViewerError
from splatview_viewer.core.host import Host
from splatview_viewer.core.screen import (
    MAX_SIZE,
    MIN_SIZE,
    Rect,
    parse_size,
    settled_pixels,
)
from splatview_viewer.core.view import has_arrived
from splatview_viewer.formats.camera_paths import (
    Film,
    check_film,
    check_length,
    make_writer,
    read_path,
)
from splatview_viewer.formats.pictures import check_writable, save_picture
from splatview_viewer.geometry.cameras import camera_from_json
from splatview_viewer.geometry.path import turntable
from splatview_viewer.kinds import about, kind_of, make_view, shown
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.kinds.image.view import ImageView
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.scene_view.film import Camerawork, Filming
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.viewport import transparent_picture
from splatview_viewer.snapshot.model import MemorySnapshot, device_name
from splatview_viewer.workspace.links import linked_to, open_linked
from splatview_viewer.workspace.names import SETTLE, Finder, why_nothing
from splatview_viewer.workspace.sources import make_subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from splatview_ipc.control.frame import StreamFrame
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_viewer.app.commands import Shot, Video
    from splatview_viewer.core.settings import Color
    from splatview_viewer.core.view import ShownView, Value
    from splatview_viewer.shell.panel import Panel

T = TypeVar("T")
if TYPE_CHECKING:
    Use = Callable[["Still", Value | None, Sequence[StreamFrame]], T | None]
    """Takes the pixels of a value that a still is to draw; None: it was overwritten meanwhile."""

DEFAULT_SIZE = (1280, 720)
_GLANCE_S = 0.001  # between two looks for what is on its way
_TIMEOUT_S = 10.0  # for a stream's first frame
_NEWER_S = (
    0.3  # for the version that another run's stream is at; then an older one is drawn
)
_ARRIVAL_S = 2.0  # for the data of a picture in place; a view shows it after half a second in any case
_LATER_S = 0.1  # for an image in place: the trainer's GPU may write it later than it was announced
_COMPLETE_S = 300.0  # for a plot to be complete: ten million events take a few
_IDLE_S = 5.0  # from the last request for a stream to its release
_MOST_OPEN = 4  # streams


def until(poll: Callable[[], T | None], end: float) -> T | None:
    """Return the first result of `poll` that is not None; None when there was none by `end` (time.monotonic())."""
    while True:
        result = poll()
        if result is not None or time.monotonic() >= end:
            return result
        time.sleep(_GLANCE_S)


def find(
    finder: Finder, name: str | None, run: str | None, end: float, *, sure: bool = False
) -> RemoteStream:
    """Wait for a stream; `name` and `run` as for `Finder.find`. `sure`: there is such a stream, so wait until `end`."""
    settled = end if sure else min(time.monotonic() + SETTLE, end)
    stream = until(
        lambda: finder.find(name, run, time.monotonic(), settled, end), math.inf
    )
    assert stream is not None
    return stream


@dataclass(frozen=True)
class StillOptions:
    """Size, camera and background of a picture."""

    size: tuple[int, int] | None = None
    """Width and height in pixels; None: a picture's own, 1280x720 for others."""
    camera: str | None = None
    """JSON or the name of a file that holds it; None: the scene seen whole."""
    background: Color | None = None
    """RGB in [0, 1]; None: what comes with the stream, else black."""
    device: str | None = None
    """The device of a memory snapshot: "1", "host". None: the busiest GPU."""


# -- shot and video ---------------------------------------------------------------------------------------------------


def shoot(asked: Shot) -> tuple[int, int]:
    """Draw one stream or file into a picture, which appears whole or not at all. Returns its width and height.

    Raises ViewerError: nothing to draw, a camera or file that makes no sense, no graphics.
    """
    look = replace(_look(asked, asked.camera), device=asked.device)
    check_writable(asked.out, check_picture, look.background is None)

    def shot(
        still: Still, value: Value | None, overlays: Sequence[StreamFrame]
    ) -> tuple[int, int] | None:
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
        if isinstance(value, MemorySnapshot) and asked.device is None:
            _name_devices(value, asked)
        return size

    return _drawn("shot", "--camera", asked, shot)


def _name_devices(snapshot: MemorySnapshot, asked: Shot) -> None:
    """Say on stderr which devices a snapshot has, where a picture shows one of several."""
    if len(snapshot.traces) > 1:
        devices = ", ".join(
            f"{device_name(trace.device)} ({len(trace.events):,} events)"
            for trace in snapshot.traces
        )
        print(
            f"splatview: shot: {asked.file}: the picture shows one of the devices {devices}; choose with --device",
            file=sys.stderr,
        )


def film(asked: Video) -> int:
    """Film a scene as it is when this begins; says on stderr how far it is. Returns how many pictures there are.

    Raises ViewerError: nothing to film, a path or file that makes no sense, no graphics.
    """
    look = _look(asked)
    path = None if asked.path is None else read_path(asked.path)
    check_film(asked.out)
    return _drawn(
        "video",
        "--path",
        asked,
        lambda still, value, _: _film(still, value, look, asked, path),
    )


def _look(asked: Shot | Video, camera: str | None = None) -> StillOptions:
    return StillOptions(
        None if asked.size is None else parse_size(asked.size),
        camera,
        parse_background(asked.background),
    )


def _drawn(who: str, camera: str, asked: Shot | Video, use: Use[T]) -> T:
    """Return the result of `use` for the file or the newest frame of the stream. `camera`: the option's name."""
    with ExitStack() as stack:
        if asked.file is None:
            stills = Stills(who, camera, asked.run, overlays_s=3.0)
            stack.callback(stills.close)
            return stills.draw(RenderRequest(_TIMEOUT_S, asked.run, asked.stream), use)
        if asked.stream is not None or asked.run is not None:
            raise ViewerError(
                f"{who}: a file was named, and --stream or --run as well; name one or the other"
            )
        from splatview_viewer.kinds.files import open_file

        value = open_file(asked.file)
        screen = OffscreenScreen(MIN_SIZE, MIN_SIZE)
        stack.callback(screen.close)
        still = Still(screen, kind_of(value), who, camera)
        stack.callback(still.close)
        made = use(still, value, ())
        assert made is not None  # only a frame can be overwritten meanwhile
        return made


# -- streams ----------------------------------------------------------------------------------------------------------


@dataclass
class _Open:
    """A stream that was drawn lately, and what draws it."""

    stream: RemoteStream
    still: Still
    version: int = 0
    """The version that `still` shows; 0: none."""
    used: float = 0.0


class Stills:
    """Draws single pictures of streams, of which the last few stay open for the next picture."""

    def __init__(
        self,
        who: str,
        camera: str,
        run: str | None = None,
        *,
        gpu_uuid: str | None = None,
        overlays_s: float = 0.5,
    ) -> None:
        """`who` and `camera` as for `Still`. run: the only one that is followed. gpu_uuid: as for `OffscreenScreen`.
        overlays_s: to wait for overlays' frames; a trainer on a busy GPU answers late. Raises ViewerError, IpcError.
        """
        self.screen = OffscreenScreen(MIN_SIZE, MIN_SIZE, gpu_uuid=gpu_uuid)
        self._subscriber = make_subscriber(self.screen.ctx, run, client=who)
        self._finder = Finder(self._subscriber, who)
        self._who = who
        self._camera = camera
        self._overlays_s = overlays_s
        self._open: dict[tuple[str, int, str], _Open] = {}

    def draw(self, request: RenderRequest, use: Use[T]) -> T:
        """Return the result of `use` for the newest frame of the requested stream and the frames over it; None in place
        of a frame that the still shows already. `use` returns None for a frame that was overwritten meanwhile, and is
        called again with the next one.

        Raises ViewerError: NotFoundError without such a stream, LateError when it brings nothing in time.
        """
        end = time.monotonic() + request.timeout
        stream = find(
            self._finder, request.stream, request.run, end, sure=request.streams > 0
        )
        key = (stream.run.id, stream.info.index, stream.kind)
        run = stream.run
        opened = self._open.pop(key, None)
        if opened is None:
            opened = _Open(
                stream, Still(self.screen, stream.kind, self._who, self._camera)
            )
            stream.open()
        self._open[key] = opened  # the last one is the newest
        while len(self._open) > _MOST_OPEN:
            self._release(next(iter(self._open)))

        def told() -> bool | None:
            self._subscriber.poll()
            return len(run.streams) >= request.streams or not run.alive or None

        until(told, end)
        soft = min(time.monotonic() + _NEWER_S, end)
        newest = stream.version

        def attempt() -> list[T] | None:
            """Return [] where nothing will come."""
            self._finder.look(
                request.run, time.monotonic()
            )  # parts of a sharded scene may come late
            after = request.after or (newest if time.monotonic() < soft else 1)
            drawn = self._attempt(opened, after, end, request, use)
            if drawn is not None:
                return [drawn]
            if stream.fault or not run.alive:
                return []
            return None

        found = until(attempt, end)
        if not found:
            error = why_nothing(stream, self._who, request.timeout)
            if isinstance(error, LateError) and stream.version < request.after:
                error = LateError(
                    f"{error} (version {request.after} was waited for, {stream.version} is the newest)"
                )
            raise error
        opened.used = time.monotonic()
        return found[0]

    def _attempt(
        self, opened: _Open, after: int, end: float, request: RenderRequest, use: Use[T]
    ) -> T | None:
        """Draw version `after` or a later one; None while there is none, or if it was overwritten meanwhile."""
        stream = opened.stream
        frame = None
        version = opened.version
        if version < max(after, stream.version, 1) or stream.live:
            frame = stream.read(after=max(after - 1, 0))
            if frame is None:
                return None
            version = frame.version
        opened.version = 0
        with ExitStack() as stack:
            if frame is not None:
                stack.enter_context(frame)
            overlays = self._overlays(stream, end, request.streams > 0)
            for overlay in overlays:
                stack.enter_context(overlay)
            try:
                drawn = use(opened.still, frame, overlays)
            except SharingError as e:
                if frame is None or not frame.on_gpu:
                    raise ViewerError(f"{self._who}: {e}") from e
                stream.refuse(str(e))  # it may come in another way
                return None
        opened.version = version if drawn is not None else 0
        return drawn

    def _overlays(
        self, stream: RemoteStream, end: float, own: bool
    ) -> list[StreamFrame]:
        """Return the newest frames of the streams over this one, which the caller closes. `own`: its process published
        some that are on their way; they are awaited until `end`.
        """
        soon = min(time.monotonic() + self._overlays_s, end)
        frames = list["StreamFrame"]()
        waiting = [
            fed
            for link, fed in linked_to(stream, self._subscriber.streams)
            if link.still
        ]

        def poll() -> bool | None:
            self._subscriber.poll()
            for fed in list(waiting):
                open_linked(fed)
                late = time.monotonic() > (
                    end if own and fed.run is stream.run else soon
                )  # then an older one does
                done = late or not fed.version or fed.fault or not fed.run.alive
                frame = fed.read(0 if done else fed.version - 1)
                if frame is not None:
                    frames.append(frame)
                if frame is not None or done:
                    waiting.remove(fed)
            return not waiting or None

        until(poll, math.inf)
        return frames

    def rest(self) -> bool:
        """Look for new runs, and release streams that are not in use. Returns whether there were any."""
        self._subscriber.poll()
        now = time.monotonic()
        idle = [
            key
            for key, o in self._open.items()
            if now - o.used > _IDLE_S or not o.stream.run.alive
        ]
        for key in idle:
            self._release(key)
        return bool(idle)

    def _release(self, key: tuple[str, int, str]) -> None:
        opened = self._open.pop(key)
        opened.still.close()
        opened.stream.release()
        for _, fed in linked_to(opened.stream, self._subscriber.streams):
            fed.release()

    def close(self) -> None:
        for key in list(self._open):
            self._release(key)
        self._subscriber.close()
        self.screen.close()


# -- one picture ------------------------------------------------------------------------------------------------------


class Still:
    """Draws pictures of one stream or file, one at a time and each complete:

        size = still.prepare(value, look)        # None: the value was overwritten meanwhile
        still.draw(size)                         # into the screen's framebuffer, which is to be read now
        if still.whole(): ...                    # else what was read is to be thrown away, and the value comes again

    What was loaded stays for the next picture, until `close`.
    """

    def __init__(
        self, screen: OffscreenScreen, kind: str, who: str, camera: str
    ) -> None:
        """`kind` of stream, or "snapshot"; `who` stands at the beginning of messages, `camera` is what people call the
        camera. Raises ViewerError for a kind that cannot be drawn.
        """
        if not about(kind).shown:
            raise ViewerError(
                f"{who}: a stream of kind {kind!r} cannot be drawn; legal are {', '.join(shown())}"
            )
        self.screen = screen
        self.kind = kind
        self._plot = about(kind).still == "plot"
        """Its picture is written over with words; each is of one value alone."""
        self._who = who
        self._camera = camera
        self.view: ShownView | None = None
        """The view that draws it; None before `prepare`."""
        self._image: ImageView | None = None
        self.scene: GaussianView | None = None
        """The view, where it shows an image, or Gaussians."""
        self._panel: Panel | None = None
        """Writes over the picture, once that was needed: a tenth of a second."""

    def prepare(
        self, value: Value | None, look: StillOptions
    ) -> tuple[int, int] | None:
        """Get ready to draw this value, or with None the last one again; the picture's width and height.

        None: the writer overwrote the value meanwhile. Raises ViewerError for what makes no sense or cannot be drawn,
        SharingError for a frame that cannot be read here.
        """
        if look.camera is not None and not about(self.kind).filmed:
            raise CameraError(
                f"{self._who}: a picture takes no {self._camera}; leave it out"
            )
        size = look.size or DEFAULT_SIZE
        # A camera that makes no sense is told before anything is drawn.
        camera = None if look.camera is None else camera_from_json(look.camera, *size)
        if value is not None and self._plot:
            self.close()
        view = self.view
        if view is None:
            view = make_view(self.kind, self.screen.ctx)
            self.view = view
            self._image = view.view if isinstance(view.view, ImageView) else None
            self.scene = view.view if isinstance(view.view, GaussianView) else None
        if self._image is not None:
            background = look.background or (0.0, 0.0, 0.0)
            self._image.state = replace(
                self._image.state, alpha="background", background=background
            )
        if self.scene is not None:
            self.scene.host = Host(exact="scene")
            self.scene.change(background=look.background)
            self.scene.rig.reset_to(camera)

        def taken() -> bool | None:
            view.tick(time.monotonic())
            if view.update(value):
                return True
            return False if has_arrived(value) else None

        if value is not None:
            if not until(taken, time.monotonic() + _ARRIVAL_S):
                return None
            if self._image is not None:
                until(
                    lambda: has_arrived(value) or None,
                    time.monotonic() + _LATER_S,
                )
        if look.device is not None:
            self._choose_device(look.device)
        if look.size is None and self._image is not None:
            size = (
                min(self._image.size[0], MAX_SIZE),
                min(self._image.size[1], MAX_SIZE),
            )
        return size

    def _choose_device(self, device: str) -> None:
        """Have a device of a memory snapshot shown. Raises ViewerError for anything else."""
        from splatview_viewer.kinds.snapshot.view import SnapshotView

        assert self.view is not None
        view = self.view.view
        if not isinstance(view, SnapshotView):
            raise ViewerError(
                f"{self._who}: --device chooses a device of a memory snapshot; leave it out"
            )
        view.choose_device(device)

    def draw(
        self,
        size: tuple[int, int],
        overlays: Sequence[StreamFrame] = (),
        *,
        shared: bool = False,
    ) -> None:
        """Draw what was prepared into the screen's framebuffer, which gets this size, and over an image these frames of
        kind overlay. shared: CUDA reads the framebuffer.

        Frames that cannot be read are left out; how old they are is not written. Raises ViewerError for a plot that
        cannot be shown or is not complete in time.
        """
        view = self.view
        image = self._image
        assert view is not None
        self.screen.resize(*size, shared=shared)
        rect = Rect(0, 0, *size)
        framebuffer = self.screen.framebuffer
        plot = view.view

        def draw_plot() -> None:
            view.draw(framebuffer, rect)
            self._write(view.over)

        if self._plot:
            end = time.monotonic() + _COMPLETE_S
            settled_pixels(framebuffer, draw_plot)
            while not plot.complete:
                if (
                    time.monotonic() > end
                ):  # some work on a picture while others are drawn
                    raise ViewerError(
                        f"the picture was not complete within {_COMPLETE_S:g} s"
                    )
                plot.wait(end - time.monotonic())
                settled_pixels(framebuffer, draw_plot)
            return
        view.draw(framebuffer, rect)
        if not overlays or image is None:
            return
        layers = image.data.layers
        for number, frame in enumerate(overlays):
            with suppress(ViewerError):
                layers.take(number, frame)
        try:
            image.draw_layers(framebuffer, rect, 1.0)
            if any(not layer.result.empty for layer in layers.all):
                self._write(
                    lambda _, scale: (
                        image.write_layers(rect, scale, corner=False) or False
                    )
                )
        finally:
            layers.clear()

    def _write(self, over: Callable[[Rect, float], bool]) -> None:
        """Draw over the picture with imgui."""
        if self._panel is None:
            from splatview_viewer.shell.panel import Panel

            self._panel = Panel()
        self._panel.draw_over(self.screen.framebuffer, over, 1.0)

    @property
    def lacks(self) -> str:
        """The Gaussians that are not in the picture, and why, in words; "" where all are."""
        view = self.scene
        if view is None or view.data.summary is None:
            return ""
        renderer = view.data.renderer
        camera = view.rig.camera()
        sight = view.data.sample
        words = [renderer.left_out.words(view.data.summary.count), renderer.thinned]
        if camera is not None and sight is not None and len(sight.means):
            farthest = (
                np.nanmax(sight.means @ camera.viewmat[2, :3], initial=-np.inf)
                + camera.viewmat[2, 3]
            )
            if 0 < farthest < camera.near:
                words.append(
                    f"everything is nearer than near {camera.near:g}: the farthest is {farthest:.3g} away; "
                    f"give {self._camera} a smaller near"
                )
        return "; ".join(w for w in words if w)

    def tensor(self, size: tuple[int, int]) -> torch.Tensor | None:
        """The same as a tensor, (H, W, 3) uint8, top row first, for what torch's current stream does next. None where
        CUDA does not draw: then it is for `draw`.
        """
        return None if self.scene is None else self.scene.tensor(*size)

    def see_through(self, size: tuple[int, int]) -> np.ndarray:
        """Return the picture over no background: (H, W, 4) uint8, top row first, colours not multiplied by alpha.

        Raises ViewerError for what covers all of its background.
        """
        assert self.view is not None
        if self.scene is None and self._image is None:
            raise ViewerError(
                f"{self._who}: a picture of kind {self.kind} cannot be transparent; leave that out"
            )
        pixels = transparent_picture(self.view, self.screen.ctx, size)
        assert pixels is not None
        return pixels

    def whole(self) -> bool:
        """Return whether the picture is of one version, once the GPU has drawn it."""
        if self.view is None or self._plot:
            return True
        self.view.tick(time.monotonic())
        return not self.view.wants.stale

    def close(self) -> None:
        """Give back everything. Idempotent."""
        for part in (self.view, self._panel):
            if part is not None:
                part.close()
        self.view = None
        self.scene = None
        self._panel = None


# -- films ------------------------------------------------------------------------------------------------------------


def _film(
    still: Still, value: Value, look: StillOptions, asked: Video, path: Film | None
) -> int | None:
    """The number of pictures; None when the writer overwrote the frame before it was loaded."""
    if not about(still.kind).filmed:
        raise ViewerError(
            f"video: this is of kind {still.kind}; only Gaussians can be filmed"
        )
    size = look.size or (
        (path.width, path.height) if path is not None else DEFAULT_SIZE
    )
    if still.prepare(value, replace(look, size=size)) is None:
        return None
    still.draw((MIN_SIZE, MIN_SIZE))  # reads the scene
    if not still.whole():
        return None
    view = still.scene
    assert view is not None
    if path is None:
        camera = view.rig.camera(Rect(0, 0, *size))
        sight = view.data.sample
        if camera is None or sight is None:
            raise ViewerError("video: there are no Gaussians to film")
        path = Film(turntable(camera, sight.middle, view.rig.orbit.up))
    made = Film(path.path, *size, asked.fps or path.fps)
    if asked.seconds is not None:
        made.path.stretch(asked.seconds)
    check_length(made)
    transparent = look.background is None
    camerawork = Camerawork(still.screen.ctx, view, *size)
    filming = Filming(
        camerawork,
        made,
        make_writer(asked.out, *size, made.fps, transparent),
        transparent=transparent,
    )
    terminal = sys.stderr.isatty()
    begun = time.monotonic()
    told = -1.0
    try:
        while not filming.is_ended:
            filming.advance()
            filming.wait(0.001)
            now = time.monotonic()
            if now - told > (
                0.2 if terminal else 10.0
            ):  # on one line of a terminal, else every ten seconds
                told = now
                rate = filming.drawn / max(now - begun, 1e-3)
                if filming.drawn > 2:
                    left = f", {(filming.total - filming.drawn) / rate:.0f} s left"
                else:
                    left = ""
                text = (
                    f"{filming.drawn} of {filming.total} pictures, {rate:.1f}/s{left}"
                )
                before, end = ("\r\x1b[K", "") if terminal else ("splatview: ", "\n")
                print(f"{before}{text}", end=end, file=sys.stderr, flush=True)
        if filming.fault:
            raise ViewerError(f"video: {filming.fault}")
        if terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    finally:
        filming.close()
    return filming.drawn


def parse_background(text: str) -> Color | None:
    """RGB in [0, 1] from "R,G,B": fractions, or 0 to 255 if any is over 1; None for "transparent". Raises ViewerError
    otherwise.
    """
    if text.strip().lower() in ("transparent", "none"):
        return None
    try:
        r, g, b = (float(part) for part in text.split(","))
    except ValueError:
        raise ViewerError(
            f"background: {text!r} is not R,G,B, such as 0.1,0.2,0.3 or 25,50,75, nor "
            "transparent"
        ) from None
    top = 255.0 if max(r, g, b) > 1 else 1.0
    if not all(0 <= c <= top for c in (r, g, b)):  # refuses NaN as well
        raise ViewerError(
            f"background: {text!r} is out of range: three numbers from 0 to 1, or from 0 to 255"
        )
    return r / top, g / top, b / top
