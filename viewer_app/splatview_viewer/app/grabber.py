"""Draws pictures that other programs ask for and publishes them back, for `splatview_viewer.app.grab`."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import moderngl
import numpy as np

from splatview_ipc.control.errors import IpcError, SharingError
from splatview_ipc.control.render_requests import GPU, HOST, RenderRequest, RenderResult
from splatview_ipc.publisher.publisher import Publisher
from splatview_viewer.app.offscreen import Look, Still, find, take_linked, until
from splatview_viewer.core.errors import LateError, ViewerError
from splatview_viewer.core.screen import MAX_SIZE, MIN_SIZE
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.screens.target import Target
from splatview_viewer.workspace.links import LinkedFrames, release_linked
from splatview_viewer.workspace.names import Finder, why_nothing
from splatview_viewer.workspace.sources import make_subscriber

if TYPE_CHECKING:
    import torch

    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_ipc.subscriber.subscriber import Subscriber
    from splatview_viewer.core.view import Value
    from splatview_viewer.shell.panel import Panel

log = logging.getLogger("splatview")

_IDLE = 5.0
"""Seconds after which what nobody asked for again is let go of."""
_GLANCE = 0.001
"""Seconds between two looks for what is on its way."""
_NEWER = 0.3
"""Seconds within which somebody else's stream should bring the version that it is at; then an older one does."""
_MOST = 4
"""Streams that are kept open at a time."""
_LARGE = 1 << 26
"""Bytes of a picture that is not kept after it was asked for."""


class _Kept:
    """A stream that was asked for lately, and what draws it."""

    def __init__(self, stream: RemoteStream, still: Still, subscriber: Subscriber) -> None:
        self.stream = stream
        self._subscriber = subscriber
        self.still = still
        self.version = 0
        """Of the frame that `still` shows; 0: none, or it was overwritten."""
        self.used = time.monotonic()
        stream.open()

    def close(self) -> None:
        self.still.close()
        self.stream.release()
        release_linked(self._subscriber, self.stream)


@dataclass(frozen=True)
class _Order:
    """A request as it is worked on."""

    request: RenderRequest
    look: Look
    deadline: float

    @property
    def own(self) -> float:
        """Seconds that overlays may take which are known to be on their way: the asking process published them."""
        return self.deadline - time.monotonic() if self.request.streams else 0.0


class Grabber:
    """Follows all runs, draws what is requested and publishes it in a hidden run of its own."""

    def __init__(self, gpu_uuid: str | None = None) -> None:
        """`gpu_uuid`: the GPU that is best drawn on, as `OffscreenScreen` takes it. Raises ViewerError, IpcError."""
        self._screen = OffscreenScreen(MIN_SIZE, MIN_SIZE, gpu_uuid=gpu_uuid)
        self._publisher = Publisher("grab", lambda e: log.warning("grab: %s", e), hidden=True)
        self._subscriber = make_subscriber(self._screen.ctx, None, client="grab")
        self._finder = Finder(self._subscriber, "grab")
        self._kept: dict[tuple[str, int, str], _Kept] = {}
        self._layouts: dict[str, _PictureLayout] = {}
        self._pixels = np.empty(0, np.uint8)
        self._shares: bool | None = None
        self._panel: Panel | None = None

    @property
    def run_id(self) -> str:
        """Of the hidden run."""
        return self._publisher.run_id

    def draw(self, request: RenderRequest) -> RenderResult:
        """Draw and publish. Raises ViewerError, of which NotFoundError, LateError and those for what makes no sense;
        SharingError."""
        size = request.size
        if size is not None and not all(MIN_SIZE <= n <= MAX_SIZE for n in size):
            raise ValueError(f"grab: a size of {size[0]} x {size[1]} is out of range; both sides must be {MIN_SIZE} to "
                             f"{MAX_SIZE} pixels")
        deadline = time.monotonic() + request.timeout
        kept = self._keep(find(self._finder, request.stream, request.run, deadline, sure=request.streams > 0))
        run = kept.stream.run

        def told() -> bool | None:
            self._subscriber.poll()
            return len(run.streams) >= request.streams or not run.alive or None

        until(told, deadline, _GLANCE)
        order = _Order(request, Look(size, request.camera, request.background), deadline)
        soft = min(time.monotonic() + _NEWER, deadline)
        wanted = kept.stream.version

        def attempt() -> RenderResult | bool | None:
            """False where nothing will come."""
            drawn = self._attempt(kept, request.after or (wanted if time.monotonic() < soft else 1), order)
            self._finder.look(request.run, time.monotonic())
            return drawn or (False if kept.stream.fault or not run.alive else None)

        drawn = until(attempt, deadline, _GLANCE)
        if not isinstance(drawn, RenderResult):
            raise self._late(kept.stream, request)
        kept.used = time.monotonic()
        return drawn

    def _late(self, stream: RemoteStream, request: RenderRequest) -> ViewerError:
        error = why_nothing(stream, "grab", request.timeout)
        if request.after and isinstance(error, LateError) and stream.version < request.after:
            return LateError(f"{error} (version {request.after} was waited for, {stream.version} is the newest)")
        return error

    def _keep(self, stream: RemoteStream) -> _Kept:
        key = stream.run.id, stream.info.index, stream.kind
        kept = self._kept.pop(key, None)
        if kept is None:
            kept = _Kept(stream, Still(self._screen, stream.kind, "grab", "camera"), self._subscriber)
        self._kept[key] = kept  # the last one is the newest
        while len(self._kept) > _MOST:
            self._kept.pop(next(iter(self._kept))).close()
        return kept

    def _attempt(self, kept: _Kept, after: int, order: _Order) -> RenderResult | None:
        """Draw this version or a later one; None while there is none, or if it was overwritten meanwhile."""
        stream = kept.stream
        if kept.version >= max(after, stream.version, 1) and not stream.live:
            return self._draw(kept, None, order)
        frame = stream.read(after=max(after - 1, 0))
        if frame is None:
            return None
        with frame:
            try:
                kept.version = 0
                drawn = self._draw(kept, frame, order)
                kept.version = frame.version if drawn is not None else 0
                return drawn
            except SharingError as e:
                if not frame.on_gpu:
                    raise
                stream.refuse(str(e))  # it may come in another way
                return None

    def _draw(self, kept: _Kept, value: Value | None, order: _Order) -> RenderResult | None:
        still, screen, request = kept.still, self._screen, order.request
        screen.shares = request.gpu and self._can_share()
        size = still.prepare(value, order.look)
        if size is None:
            return None
        picture = still.tensor(size)
        flipped = picture is None
        if picture is None:
            with ExitStack() as stack:
                linked = LinkedFrames(self._subscriber, kept.stream, time.monotonic(), own=order.own)
                overlays = take_linked(stack, linked)
                if overlays and self._panel is None:
                    from splatview_viewer.shell.panel import Panel

                    self._panel = Panel()
                still.draw(size, overlays, self._panel)
            picture = self._drawn()
        if not request.gpu and picture.is_cuda:
            picture = picture.cpu()
        if not still.whole():
            kept.version = 0
            return None
        return self._publish(picture, flipped)

    def _drawn(self) -> torch.Tensor:
        """What OpenGL has drawn, (H, W, 3 or 4) uint8, the lowest row first: on the GPU where CUDA can read it there.
        The drawing is complete then."""
        import torch

        screen = self._screen
        picture = screen.tensor()
        if picture is not None:
            screen.ctx.finish()  # whether a frame stayed whole that OpenGL reads in place is asked next
            return picture
        width, height = screen.size
        if self._pixels.shape != (height, width, 3):
            self._pixels = np.empty((height, width, 3), np.uint8)
        screen.framebuffer.read_into(self._pixels, components=3, alignment=1)
        return torch.from_numpy(self._pixels)

    def _can_share(self) -> bool:
        """Whether OpenGL's pictures come to CUDA without going through the host; tried once."""
        import torch

        if self._shares is None:
            self._shares = False
            if torch.cuda.is_available():
                try:
                    Target(self._screen.ctx, (MIN_SIZE, MIN_SIZE), shared=True).release()
                    self._shares = True
                except (IpcError, moderngl.Error, RuntimeError) as e:
                    log.warning("grab: what OpenGL draws goes through the host: %s", e)
        return self._shares

    def _publish(self, picture: torch.Tensor, flipped: bool) -> RenderResult:
        name = GPU if picture.is_cuda else HOST
        stream = self._publisher.stream(name, "image")
        layout = self._layouts.get(name)
        if layout is None or not layout.fits(picture):
            layout = self._layouts[name] = _PictureLayout(picture)
            stream.describe(layout, copy=True if picture.is_cuda else None)
        stream.publish(((picture,), {"layout": "HWC"}))
        return RenderResult(name, stream.version, flipped)

    def rest(self) -> float:
        """Do what is due while nobody asks; seconds after which there is something to do again."""
        self._subscriber.poll()
        now = time.monotonic()
        for key, kept in list(self._kept.items()):
            if now - kept.used > _IDLE or not kept.stream.run.alive:
                self._kept.pop(key).close()
                self._forget_large()
        return 0.25 if self._kept else 0.5

    def _forget_large(self) -> None:
        """Keep no picture that takes much memory."""
        import torch

        self._screen.shares = False
        self._screen.resize(MIN_SIZE, MIN_SIZE)
        self._pixels = np.empty(0, np.uint8)
        for name, layout in list(self._layouts.items()):
            if layout.bytes > _LARGE:
                self._publish(torch.zeros((1, 1, 3), dtype=torch.uint8, device=layout.device), False)
                self._layouts.pop(name)

    def close(self) -> None:
        for kept in self._kept.values():
            kept.close()
        self._kept.clear()
        if self._panel is not None:
            self._panel.close()
        self._subscriber.close()
        self._publisher.close()
        self._screen.close()


class _PictureLayout:
    """The layout of pictures of one size on one device (`splatview_ipc.kinds.ValueLayout`)."""

    kind = "image"
    dtype = "uint8"

    def __init__(self, picture: torch.Tensor) -> None:
        self.shape = tuple(picture.shape)
        self.device = str(picture.device)
        self.bytes = picture.numel()

    def fits(self, picture: torch.Tensor) -> bool:
        return tuple(picture.shape) == self.shape and str(picture.device) == self.device

    def frame(self, tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        return {"image": tensors[0]}
