"""Single pictures of one stream or file, each complete, drawn without a window."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from splatview_viewer.core.errors import CameraError, LateError, ViewerError
from splatview_viewer.core.screen import MAX_SIZE, Rect, settled_pixels
from splatview_viewer.core.view import PICTURE_S, GradualView, has_arrived
from splatview_viewer.geometry.camera_text import camera_from_json
from splatview_viewer.kinds import about, make_view, shown_kinds
from splatview_viewer.kinds.gaussians.state import SHOWS
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.kinds.image.view import ImageView
from splatview_viewer.scene_view.base import SceneViewBase
from splatview_viewer.shell.kept_pictures import transparent_picture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.core.settings import Color
    from splatview_viewer.core.shown_view import ShownView
    from splatview_viewer.core.view import Value
    from splatview_viewer.screens.offscreen import OffscreenScreen
    from splatview_viewer.shell.surface import Surface

T = TypeVar("T")

DEFAULT_SIZE = (1280, 720)
_PAUSE_SHARE = 1 / 8
"""Pause between two looks for what is on its way, in the time that was waited so far."""
_SHORTEST_PAUSE_S = 2e-5
_LONGEST_PAUSE_S = 1e-3
"""Bounds of that pause, seconds."""
_ARRIVAL_S = 2.0
"""Seconds for the data of a picture in place; a view shows it after half a second in
any case."""
_LATE_WRITE_S = 0.1
"""Seconds for an image in place: the trainer's GPU may write it later than it was
announced."""
_COMPLETE_S = 300.0
"""Seconds for a plot to be complete: ten million events take a few."""


def wait_until(poll: Callable[[], T | None], end: float) -> T | None:
    """Call `poll` until it returns something, and return that.

    No other function here waits. What comes soon is seen soon, and a long wait costs
    little.

    Args:
        end: `time.monotonic()`; None is returned if there was nothing by then.
    """
    started_at = time.monotonic()
    while True:
        result = poll()
        now = time.monotonic()
        if result is not None or now >= end:
            return result
        pause = _PAUSE_SHARE * (now - started_at)
        time.sleep(min(max(pause, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S))


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
    show: str | None = None
    """The way in which Gaussians are shown, a key of `SHOWS`; None: by their colours."""
    picture_s: float = PICTURE_S
    """Seconds for a picture that another program draws."""


class Still:
    """Draws pictures of one stream or file, one at a time and each complete.

        size = still.prepare(value, options)     # None: the value was overwritten meanwhile
        still.draw(size)                         # into the screen's framebuffer, to be read now
        if still.is_intact(): ...                # else it is to be thrown away and drawn again

    What was loaded stays for the next picture, until `close`.
    """

    def __init__(
        self, screen: OffscreenScreen, kind: str, command: str, camera: str
    ) -> None:
        """Prepare to draw on a screen.

        Args:
            screen: its framebuffer gets the size of each picture.
            kind: the kind of the stream, or "snapshot".
            command: the name of the command, with which messages begin.
            camera: the name that messages give the camera.

        Raises:
            ViewerError: the kind cannot be drawn.
        """
        if not about(kind).has_view:
            raise ViewerError(
                f"{command}: a stream of kind {kind!r} cannot be drawn; expected "
                f"{', '.join(shown_kinds())}"
            )
        self.screen = screen
        self.kind = kind
        self._is_plot = about(kind).still == "plot"
        """Its picture has texts and axes; each is of one value alone."""
        self._command = command
        self._camera_name = camera
        self.view: ShownView | None = None
        """The view that draws it; None before `prepare`."""
        self._image: ImageView | None = None
        """The view, where it shows an image."""
        self.scene: GaussianView | None = None
        """The view, where it shows Gaussians."""
        self.camera_view: SceneViewBase[Any, Any] | None = None
        """The view, where it shows a scene by a camera."""
        self.read_links: Callable[[], object] = _read_nothing
        """Reads the streams over the one that is drawn, of which every frame counts."""
        self.trouble = ""
        """Why no picture comes, as the publisher says since the value was taken."""
        self._picture_s = PICTURE_S
        self._surface: Surface | None = None
        """Writes over the picture. Making it takes a tenth of a second."""

    def load(self) -> None:
        """Load what draws, which takes many seconds on a busy machine.

        To be called before a frame is read: its writer may overwrite it meanwhile.
        """
        if self._is_plot or self.view is not None:
            return
        self._make_view()
        if self.scene is not None:
            import torch  # noqa: F401 - the first scene would load it

    def prepare(
        self, value: Value | None, options: StillOptions
    ) -> tuple[int, int] | None:
        """Get ready to draw a value, and return the picture's width and height.

        Args:
            value: None: the last one once more.
            options: the options of the picture.

        Returns:
            None when the writer overwrote the value meanwhile.

        Raises:
            ViewerError: the value cannot be drawn, or an option makes no sense.
            SharingError: a frame cannot be read here.
        """
        if options.camera is not None and not about(self.kind).filmed:
            raise CameraError(
                f"{self._command}: a picture takes no {self._camera_name}; leave it out"
            )
        size = options.size or DEFAULT_SIZE
        self._picture_s = options.picture_s
        # A camera that makes no sense is reported before anything is drawn.
        camera = None
        if options.camera is not None:
            camera = camera_from_json(options.camera, *size)
        if value is not None and self._is_plot:
            self.close()
        view = self.view or self._make_view()
        image = self._image
        if image is not None:
            background = options.background or (0.0, 0.0, 0.0)
            image.state = replace(
                image.state, alpha="background", background=background
            )
        if options.show is not None:
            _choose_show(self.scene, options.show, self._command, self.kind)
        if value is not None and not self._take(view, value):
            return None
        if self.scene is not None:
            self.scene.data.read_ahead()
        if self.camera_view is not None:
            if self.camera_view.state.background != options.background:
                self.camera_view.change(background=options.background)
            self.camera_view.rig.reset_to(camera)
        if options.device is not None:
            _choose_device(view, options.device, self._command)
        if options.size is None and image is not None:
            width, height = image.size
            size = min(width, MAX_SIZE), min(height, MAX_SIZE)
        return size

    def _make_view(self) -> ShownView:
        view = make_view(self.kind, self.screen.ctx)
        self.view = view
        if isinstance(view.view, ImageView):
            self._image = view.view
        if isinstance(view.view, GaussianView):
            self.scene = view.view
        if isinstance(view.view, SceneViewBase):
            self.camera_view = view.view
            self.camera_view.draw_exactly()
        return view

    @property
    def content(self) -> Any:
        """The content of the view; None before there is one."""
        if self.view is None:
            return None
        return self.view.content

    def _take(self, view: ShownView, value: Value) -> bool:
        """Give a value to the view once its data has arrived.

        Returns whether the view took it.
        """

        def take() -> bool | None:
            view.tick(time.monotonic())
            if view.update(value):
                return True
            # None: its data may still arrive.
            if not has_arrived(value):
                return None
            return False

        if not wait_until(take, time.monotonic() + _ARRIVAL_S):
            return False
        if self._image is not None:
            end = time.monotonic() + _LATE_WRITE_S
            wait_until(lambda: has_arrived(value) or None, end)
        return True

    def draw(
        self,
        size: tuple[int, int],
        overlays: Sequence[StreamFrame] = (),
        *,
        shared: bool = False,
    ) -> None:
        """Draw what was prepared into the screen's framebuffer.

        Args:
            size: that the framebuffer gets.
            overlays: frames to draw over an image. Those that cannot be read are left
                out, and their age is not written.
            shared: CUDA reads the framebuffer.

        Raises:
            ViewerError: a plot cannot be shown or is not complete in time.
        """
        view = self.view
        assert view is not None
        self.screen.resize(*size, shared=shared)
        rect = Rect(0, 0, *size)
        if self._is_plot:
            self._draw_plot(view, rect)
            return
        self._await_picture(view, rect)
        view.draw(self.screen.framebuffer, rect)
        if overlays and self._image is not None:
            self._draw_overlays(self._image, rect, overlays)

    def _await_picture(self, view: ShownView, rect: Rect) -> None:
        """Wait until another program has drawn the picture, where one does.

        Raises ViewerError if it says that it cannot, or does not come in time.
        """

        def outcome() -> str | None:
            """Return why none comes, "" where it has come; None: not known yet."""
            if not view.view.awaits_picture(rect):
                return ""
            self.read_links()
            return view.view.fault_text or self.trouble or None

        self.trouble = ""
        fault_text = wait_until(outcome, time.monotonic() + self._picture_s)
        if fault_text is None:
            raise LateError(
                f"{self._command}: no picture came within {self._picture_s:g} s; is the "
                "training under way and not paused, and does the function return?"
            )
        if fault_text:
            raise ViewerError(
                f"{self._command}: the picture cannot be drawn: {fault_text}"
            )

    def _draw_plot(self, view: ShownView, rect: Rect) -> None:
        """Draw a plot until it is complete."""
        framebuffer = self.screen.framebuffer

        def draw() -> None:
            view.draw(framebuffer, rect)
            self._write(view.draw_ui)

        end = time.monotonic() + _COMPLETE_S
        settled_pixels(framebuffer, draw)
        plot = view.view
        if not isinstance(plot, GradualView):
            return
        while not plot.complete:
            if time.monotonic() > end:
                raise ViewerError(
                    f"the picture was not complete within {_COMPLETE_S:g} s"
                )
            plot.wait(end - time.monotonic())
            settled_pixels(framebuffer, draw)
        if plot.fault:
            raise ViewerError(f"the picture cannot be drawn: {plot.fault}")

    def _draw_overlays(
        self, image: ImageView, rect: Rect, overlays: Sequence[StreamFrame]
    ) -> None:
        """Draw frames of kind overlay over an image that has been drawn."""

        def write(_: Rect, scale: float) -> bool:
            return image.write_layers(rect, scale, corner=False) or False

        layers = image.data.layers
        for index, frame in enumerate(overlays):
            with suppress(ViewerError):
                layers.take(index, frame)
        try:
            image.draw_layers(self.screen.framebuffer, rect, 1.0)
            if any(not layer.result.is_empty for layer in layers.all):
                self._write(write)
        finally:
            layers.clear()

    def _write(self, draw: Callable[[Rect, float], bool]) -> None:
        """Draw over the picture with imgui."""
        if self._surface is None:
            from splatview_viewer.shell.surface import Surface

            self._surface = Surface()
        self._surface.draw_over(self.screen.framebuffer, draw, 1.0)

    @property
    def missing(self) -> str:
        """The Gaussians that are not in the picture, with the reasons; "" for none."""
        view = self.scene
        if view is None or view.data.summary is None:
            return ""
        renderer = view.data.renderer
        reasons = [renderer.left_out.summary(view.data.summary.count), renderer.thinned]
        reasons.append(_nearness(view, self._camera_name))
        return "; ".join(filter(None, reasons))

    def tensor(self, size: tuple[int, int]) -> torch.Tensor | None:
        """Return the queued picture as a tensor, (H, W, 3) uint8, top row first.

        It is for what torch's current stream does next; call `finish_tensor` then. None
        where CUDA does not draw: then it is for `draw`.
        """
        if self.scene is None:
            return None
        return self.scene.tensor(*size)

    def finish_tensor(self) -> bool:
        """Wait for the picture of `tensor`; return False if it has to be queued again."""
        assert self.scene is not None
        return self.scene.finish_tensor()

    def see_through(self, size: tuple[int, int]) -> np.ndarray:
        """Return the picture over no background.

        (H, W, 4) uint8, top row first, colours not multiplied by alpha. Raises
        ViewerError for a kind that covers all of its background.
        """
        assert self.view is not None
        if self.camera_view is None and self._image is None:
            raise ViewerError(
                f"{self._command}: a picture of kind {self.kind} cannot be "
                "transparent; "
                "leave that out"
            )
        self._await_picture(self.view, Rect(0, 0, *size))
        pixels = transparent_picture(self.view, self.screen.ctx, size)
        assert pixels is not None
        return pixels

    def is_intact(self) -> bool:
        """Return whether the picture is of one version, once the GPU has drawn it."""
        if self.view is None or self._is_plot:
            return True
        if self.scene is None:
            # A scene has looked when its picture was finished.
            self.view.tick(time.monotonic())
        return not self.view.wants.stale

    def close(self) -> None:
        """Release everything. Idempotent."""
        if self.view is not None:
            self.view.close()
        if self._surface is not None:
            self._surface.close()
        self.view = None
        self.scene = None
        self.camera_view = None
        self._surface = None


def _read_nothing() -> None:
    """Read no streams: there are none over what is drawn."""


def _choose_show(
    scene: GaussianView | None, show: str, command: str, kind: str
) -> None:
    """Show Gaussians in a way. Raises ViewerError for anything else."""
    if show not in SHOWS:
        raise ViewerError(
            f"{command}: --show is {show!r}; expected one of {', '.join(SHOWS)}"
        )
    if scene is None:
        raise ViewerError(
            f"{command}: --show is for Gaussians, and this is of kind {kind}; leave it "
            "out"
        )
    scene.change(show=show)


def _choose_device(view: ShownView, device: str, command: str) -> None:
    """Show a device of a memory snapshot. Raises ViewerError for anything else."""
    from splatview_viewer.kinds.snapshot.view import SnapshotView

    if not isinstance(view.view, SnapshotView):
        raise ViewerError(
            f"{command}: --device chooses a device of a memory snapshot; leave it out"
        )
    view.view.choose_device(device)


def _nearness(scene: GaussianView, camera_name: str) -> str:
    """Return that all Gaussians are nearer than the camera sees; "" otherwise."""
    camera = scene.rig.camera()
    sample = scene.data.sample
    if camera is None or sample is None or not len(sample.means):
        return ""
    depths = sample.means @ camera.viewmat[2, :3] + camera.viewmat[2, 3]
    farthest = np.nanmax(depths, initial=-np.inf)
    if not 0 < farthest < camera.near:
        return ""
    return (
        f"everything is nearer than near {camera.near:g}: the farthest is "
        f"{farthest:.3g} away; give {camera_name} a smaller near"
    )
