"""Overlays of one image stream: a layer for each overlay stream.

All views of the image share them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.kinds.image.drawing import Shapes, make_programs
from splatview_viewer.kinds.image.overlay import read_result

if TYPE_CHECKING:
    from collections.abc import Hashable

    import moderngl

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.image.overlay import OverlayResult
    from splatview_viewer.kinds.image.view import ImageState

CAMERA_META = ("camera_hz", "dropped", "trouble")
"""Metadata keys of an image that describe its camera."""
_MAX_TIMES = 600
"""Frames of the image whose times are known."""
_FRESH_S = 1.0
"""Seconds until a result begins to fade; or ten times what lies between two results, if
that is longer."""
_FADE_RATIO = 0.6
"""Seconds in which it fades, for each second until it begins to."""


class Age(NamedTuple):
    """By how much a result is older than the picture, at least 0; None: not known."""

    frames: int | None
    seconds: float | None


class Layer:
    """The newest result of one overlay stream, and its shapes on the GPU."""

    def __init__(self, result: OverlayResult) -> None:
        self.result = result
        self.shapes: Shapes | None = None
        self.rate_hz = 0.0
        """Rate of the stream's versions, as the viewer sees them."""
        self.has_ended = False
        """True if its run publishes no more."""
        self.time_ns = 0
        """Version of the picture that the result was computed on; 0: not known."""

    def release(self) -> None:
        if self.shapes is not None:
            self.shapes.release()
            self.shapes = None


class ImageLayers:
    """All layers over one image.

    Belongs to the thread that holds the OpenGL context.
    """

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._programs: dict[str, moderngl.Program] = {}
        self._layers: dict[Hashable, Layer] = {}
        self._times: dict[int, int] = {}
        """When the last frames of the image were published, ns, by version."""
        self.now = 0.0
        """Time of the last tick, by the viewer's clock."""
        self.size = (1, 1)
        """Width and height of the image, as it was published."""
        self.version = 0
        """Version of the shown image."""
        self.time_ns = 0
        self.camera = ""
        """Text of the image's own stream about a camera, for users."""
        self.changes = 0
        """Count of visible changes."""

    def __bool__(self) -> bool:
        return bool(self._layers)

    @property
    def all(self) -> list[Layer]:
        return list(self._layers.values())

    def set_image(self, frame: StreamFrame | None, size: tuple[int, int]) -> None:
        """Note which image lies below the layers from now on.

        Args:
            frame: the frame of the image; None for a file.
            size: its width and height.
        """
        self.size = size
        previous_version = self.version
        self.camera = ""
        if frame is None:
            self.version = 0
            self.time_ns = 0
            return
        self.version = frame.version
        self.time_ns = frame.time_ns
        hz = frame.meta.get("camera_hz")
        dropped = frame.meta.get("dropped", 0)
        if isinstance(hz, (int, float)) and type(dropped) is int and 0 <= hz < 1e6:
            self.camera = f"camera {hz:.1f}/s \u00b7 {dropped:,} dropped"
        # Versions of another run start again from 1.
        if frame.version < previous_version:
            self._times.clear()
        self._times[frame.version] = frame.time_ns
        if len(self._times) > _MAX_TIMES:
            oldest_version = next(iter(self._times))
            del self._times[oldest_version]

    def take(self, key: Hashable, frame: StreamFrame) -> bool:
        """Show the newest frame of an overlay stream.

        Args:
            key: names the stream.
            frame: of kind overlay.

        Returns:
            False when the frame was overwritten while it was read.

        Raises:
            ViewerError: the frame is no overlay that can be read.
        """
        result = read_result(frame, self.size)
        if result is None:
            return False
        layer = self._layers.setdefault(key, Layer(result))
        layer.release()
        layer.result = result
        layer.time_ns = result.time_ns or self._times.get(result.version, 0)
        self.changes += 1
        return True

    def drop(self, key: Hashable) -> None:
        """Remove the layer of an overlay stream that is gone. Idempotent."""
        layer = self._layers.pop(key, None)
        if layer is not None:
            layer.release()
            self.changes += 1

    def get(self, key: Hashable) -> Layer | None:
        return self._layers.get(key)

    def age(self, layer: Layer) -> Age:
        """Return by how much the layer's result is older than the picture."""
        version = layer.result.version
        seconds = None
        if layer.time_ns and self.time_ns:
            seconds = max(self.time_ns - layer.time_ns, 0) * 1e-9
        frames = None
        if self.version and version:
            frames = max(self.version - version, 0)
        # Such a result belongs to a version of another run.
        if frames == 0 and seconds is not None and seconds > 1:
            frames = None
        return Age(frames, seconds)

    def opacity(self, layer: Layer) -> float:
        """Return 1 for a result that is new enough, down to 0 the older it is."""
        seconds = self.age(layer).seconds
        if seconds is None:
            return 1.0
        rate = layer.result.rate_hz or layer.rate_hz
        fresh = 10 * _FRESH_S
        if rate > 0:
            fresh = max(_FRESH_S, 10 / rate)
        return min(max(1 - (seconds - fresh) / (_FADE_RATIO * fresh), 0.0), 1.0)

    def visible(self, settings: ImageState) -> list[tuple[Layer, float]]:
        """Return the layers that can be seen, each with its opacity."""
        if not settings.overlay:
            return []
        layers = [(layer, self.opacity(layer)) for layer in self.all]
        return [(layer, opacity) for layer, opacity in layers if opacity]

    def draw(
        self,
        rect: Rect,
        placed: tuple[float, float, float],
        settings: ImageState,
        scale: float,
    ) -> None:
        """Draw all shapes into the framebuffer in use, whose viewport is `rect`.

        Args:
            rect: in pixels of the framebuffer.
            placed: x, y of the image's upper left corner on the screen, and its
                magnification.
            settings: the settings of the view.
            scale: pixels of the screen per point.
        """
        x, y, zoom = placed
        for layer, opacity in self.visible(settings):
            if layer.result.is_empty:
                continue
            if not self._programs:
                self._programs = make_programs(self._ctx)
            if layer.shapes is None:
                layer.shapes = Shapes(self._ctx, self._programs, layer.result)
            scale_x, scale_y = self.screen_scale(layer.result, zoom)
            layer.shapes.draw(
                rect,
                (x - rect.x, y - rect.y, scale_x, scale_y),
                scale,
                opacity=opacity,
                threshold=settings.threshold,
            )

    def box_text_at(self, x: float, y: float, settings: ImageState) -> str:
        """Return the text of the smallest box around a point of the image, in pixels."""
        text = ""
        min_area = math.inf
        for layer, _ in self.visible(settings):
            result = layer.result
            boxes_around = result.boxes_at(
                x * result.size[0] / self.size[0], y * result.size[1] / self.size[1]
            )
            is_over = result.floors[boxes_around] >= settings.threshold
            boxes_around = boxes_around[is_over]
            boxes = result.boxes[boxes_around]
            areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
            if len(areas) and areas.min() < min_area:
                min_area = float(areas.min())
                text = result.box_text(int(boxes_around[areas.argmin()]))
        return text

    def screen_scale(self, result: OverlayResult, zoom: float) -> tuple[float, float]:
        """Return pixels of the screen for one of a result's picture, along x and y.

        Args:
            result: its picture may have another size than the image.
            zoom: pixels of the screen for one of the image's.
        """
        width, height = self.size
        result_width, result_height = result.size
        return zoom * width / result_width, zoom * height / result_height

    def clear(self) -> None:
        """Remove all layers. Idempotent."""
        for key in list(self._layers):
            self.drop(key)

    def release(self) -> None:
        """Free everything on the GPU. Idempotent."""
        self.clear()
        for program in self._programs.values():
            program.release()
        self._programs = {}
