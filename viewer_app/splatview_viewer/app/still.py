"""Single pictures of a stream or a file, without a screen: what `splatview shot` saves and `splatview.grab` returns."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.errors import CameraError, ViewerError
from splatview_viewer.core.screen import MAX_SIZE
from splatview_viewer.core.settings import ViewSettings
from splatview_viewer.geometry.cameras import camera_from_json
from splatview_viewer.geometry.controls import Rect
from splatview_viewer.kinds import SHOWN, kind_named
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.kinds.image.view import ImageView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import moderngl
    import torch

    from splatview_ipc.control.frame import Frame
    from splatview_viewer.core.settings import Color
    from splatview_viewer.core.view import Value
    from splatview_viewer.screens.offscreen import OffscreenScreen
    from splatview_viewer.shell.panel import Panel

DEFAULT_SIZE = (1280, 720)
_ARRIVAL = 2.0
"""Seconds for the data of a picture in place to arrive; a view shows it after half a second in any case."""
_LATER = 0.1
"""Seconds to wait for an image that is read in place: the trainer's GPU may write it later than it was announced."""
_GLANCE = 0.0005
"""Seconds between two looks whether it has."""


@dataclass(frozen=True)
class Look:
    """How a picture is drawn."""

    size: tuple[int, int] | None = None
    """Width and height in pixels; None: a picture's own, 1280x720 for others."""
    camera: str | None = None
    """JSON or the name of a file that holds it; None: the scene seen whole."""
    background: Color | None = None
    """RGB in [0, 1]; None: what comes with the stream, else black."""


class Still:
    """Draws pictures of one stream or file, one at a time and each complete:

        size = still.prepare(value, look)        # None: the value was overwritten meanwhile
        still.draw()                             # into the screen's framebuffer, which is to be read now
        if still.whole(): ...                    # else what was read is to be thrown away, and the value comes again

    What was loaded stays for the next picture, until `close`.
    """

    def __init__(self, screen: OffscreenScreen, kind: str, who: str, camera: str) -> None:
        """`kind` of stream, or "snapshot"; `who` stands at the beginning of messages, `camera` is what people call the
        camera. Raises ViewerError for a kind that cannot be drawn."""
        if kind not in SHOWN:
            raise ViewerError(f"{who}: a stream of kind {kind!r} cannot be drawn; legal are {', '.join(SHOWN)}")
        self._screen = screen
        self._kind = kind
        self._who = who
        self._camera = camera
        self._settings = settings = ViewSettings()
        settings.gaussians.coarse_ms, settings.gaussians.reproject = math.inf, False
        settings.image.alpha = "background"
        self._view: GaussianView | ImageView | None = None

    def prepare(self, value: Value | None, look: Look) -> tuple[int, int] | None:
        """Get ready to draw this value, or with None the last one again; the picture's width and height.

        None: the writer overwrote the value meanwhile. Raises ViewerError for what makes no sense or cannot be drawn,
        SharingError for a frame that cannot be read here.
        """
        if look.camera is not None and self._kind != "gaussians":
            raise CameraError(f"{self._who}: a picture takes no {self._camera}; leave it out")
        size = look.size or DEFAULT_SIZE
        if kind_named(self._kind).still == "plot":
            from splatview_viewer.app.plots import draw_plot

            assert value is not None
            return None if draw_plot(self._screen, self._kind, value, size) is None else size
        # A camera that makes no sense is told before anything is drawn.
        camera = None if look.camera is None else camera_from_json(look.camera, *size)
        settings = self._settings
        settings.gaussians.background = look.background
        settings.image.background = look.background or (0.0, 0.0, 0.0)
        if (view := self._view) is None:
            made = GaussianView(self._screen.ctx, settings.gaussians) if self._kind == "gaussians" else ImageView(
                self._screen.ctx, settings.image)
            self._view = view = made
        if isinstance(view, GaussianView):
            view.look_with(camera)
        if value is not None and not self._take(view, value):
            return None
        if look.size is None and isinstance(view, ImageView):
            size = min(view.size[0], MAX_SIZE), min(view.size[1], MAX_SIZE)
        return size

    def _take(self, view: GaussianView | ImageView, value: Value) -> bool:
        end = time.monotonic() + _ARRIVAL
        while not view.update(value):
            if getattr(value, "complete", True) or time.monotonic() > end:
                return False
            time.sleep(_GLANCE)
        if isinstance(view, ImageView):
            end = time.monotonic() + _LATER
            while not getattr(value, "complete", True) and time.monotonic() < end:
                time.sleep(_GLANCE)
        return True

    def draw(self, size: tuple[int, int], overlays: Sequence[Frame] = (), panel: Panel | None = None) -> None:
        """Draw what was prepared into the screen's framebuffer, which gets this size, and over an image these frames of
        kind overlay; `panel` as for `draw_overlay_frame`."""
        view = self._view
        if view is None:  # a plot is drawn already
            return
        self._screen.resize(*size)
        rect, framebuffer = Rect(0, 0, *size), self._screen.framebuffer
        view.draw(framebuffer, rect)
        if overlays and isinstance(view, ImageView):
            draw_overlay_frame(framebuffer, view, rect, overlays, panel=panel)

    @property
    def view(self) -> GaussianView | ImageView | None:
        """What draws it; None of plots, and before `prepare`."""
        return self._view

    @property
    def lacks(self) -> str:
        """Of what was drawn: which Gaussians are not in the picture, and why, in words; "" where all are."""
        if not isinstance(self._view, GaussianView) or self._view.content.facts is None:
            return ""
        renderer, camera, sight = self._view.content.renderer, self._view.camera(), self._view.content.sight
        words = [renderer.left_out.words(self._view.content.facts.count), renderer.thinned]
        if camera is not None and sight is not None and len(sight.means):
            farthest = np.nanmax(sight.means @ camera.viewmat[2, :3], initial=-np.inf) + camera.viewmat[2, 3]
            if 0 < farthest < camera.near:
                words.append(f"everything is nearer than near {camera.near:g}: the farthest is {farthest:.3g} away; "
                             f"give {self._camera} a smaller near")
        return "; ".join(w for w in words if w)

    def tensor(self, size: tuple[int, int]) -> torch.Tensor | None:
        """The same as a tensor, (H, W, 3) uint8, top row first, for what torch's current stream does next. None where
        CUDA does not draw: then it is for `draw`."""
        return self._view.tensor(*size) if isinstance(self._view, GaussianView) else None

    def see_through(self, size: tuple[int, int]) -> np.ndarray:
        """What was prepared over no background: (H, W, 4) uint8, top row first, colours not multiplied by alpha.

        Raises ViewerError for what covers all of its background.
        """
        from splatview_viewer.kinds.gaussians.film import see_through

        view = self._view
        if view is None:
            raise ViewerError(f"{self._who}: a picture of kind {self._kind} cannot be transparent; leave that out")

        def draw(framebuffer: moderngl.Framebuffer, background: Color) -> None:
            view.settings.background = background
            view.draw(framebuffer, Rect(0, 0, *size))

        return see_through(self._screen.ctx, size, draw)

    def whole(self) -> bool:
        """Whether what was drawn since `prepare` is one version; asked when the GPU has drawn it."""
        if self._view is None:
            return True
        self._view.tick(time.monotonic())
        return not self._view.stale

    def close(self) -> None:
        """Give back everything. Idempotent."""
        if self._view is not None:
            self._view.close()
            self._view = None


def draw_overlay_frame(framebuffer: moderngl.Framebuffer, view: ImageView, rect: Rect, frames: Iterable[Frame],
                       scale: float = 1.0, panel: Panel | None = None) -> None:
    """Draw frames of kind overlay over what `view.draw(framebuffer, rect)` drew before.

    scale: pixels per point, for lines and letters. panel: one whose imgui context is used; None: one is made for this
    picture, which takes a tenth of a second. Frames that cannot be read are left out; how old they are is not written.
    Not for views of the viewer.
    """
    layers, source = view.content.layers, view.content.source
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
