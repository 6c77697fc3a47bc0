"""Overlays of one image stream: a layer for each overlay stream, shared by all views of
the image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
_REMEMBERED = 600
"""Frames of the image whose times are known."""
_FRESH = 1.0
"""Seconds until a result begins to fade; or ten times what lies between two results, if
that is longer."""
_FADE = 0.6
"""Seconds of that time in which it fades."""


class Layer:
    """Layer of one overlay stream."""

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
        """Time of the last turn, by the viewer's clock."""
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
        """The image is this frame now, so large; None: a file."""
        self.size = size
        before = self.version
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
        if frame.version < before:  # of another run: versions begin again
            self._times.clear()
        self._times[frame.version] = frame.time_ns
        if len(self._times) > _REMEMBERED:
            del self._times[next(iter(self._times))]

    def take(self, key: Hashable, frame: StreamFrame) -> bool:
        """The newest frame of an overlay stream; False when it was overwritten while it
        was read. Raises ViewerError for what is none. `key` names the stream.
        """
        result = read_result(frame, self.size)
        if result is None:
            return False
        layer = self._layers.setdefault(key, Layer(result))
        layer.release()
        layer.result, layer.time_ns = (
            result,
            result.time_ns or self._times.get(result.version, 0),
        )
        self.changes += 1
        return True

    def drop(self, key: Hashable) -> None:
        """An overlay stream is gone. Idempotent."""
        layer = self._layers.pop(key, None)
        if layer is not None:
            layer.release()
            self.changes += 1

    def get(self, key: Hashable) -> Layer | None:
        return self._layers.get(key)

    def age(self, layer: Layer) -> tuple[int | None, float | None]:
        """Return by how many frames and seconds a result is older than the picture, at
        least 0; None: not known.
        """
        version = layer.result.version
        if layer.time_ns and self.time_ns:
            seconds = max(self.time_ns - layer.time_ns, 0) * 1e-9
        else:
            seconds = None
        frames = max(self.version - version, 0) if self.version and version else None
        if (
            frames == 0 and seconds is not None and seconds > 1
        ):  # counted by another run
            frames = None
        return frames, seconds

    def opacity(self, layer: Layer) -> float:
        """1 for a result that is new enough, and less the older it is, down to 0."""
        seconds = self.age(layer)[1]
        if seconds is None:
            return 1.0
        rate = layer.result.rate_hz or layer.rate_hz
        fresh = max(_FRESH, 10 / rate) if rate > 0 else 10 * _FRESH
        return min(max(1 - (seconds - fresh) / (_FADE * fresh), 0.0), 1.0)

    def visible(self, settings: ImageState) -> list[tuple[Layer, float]]:
        """Return the layers that are seen, each with its opacity."""
        return [
            (layer, opacity)
            for layer in self.all
            if settings.overlay and (opacity := self.opacity(layer))
        ]

    def draw(
        self,
        rect: Rect,
        placed: tuple[float, float, float],
        settings: ImageState,
        scale: float,
    ) -> None:
        """Draw all shapes into the framebuffer in use, whose viewport is `rect`.

        `placed`: x, y of the image's upper left corner on the screen, and its
        magnification.
        """
        x, y, zoom = placed
        for layer, opacity in self.visible(settings):
            if layer.result.is_empty:
                continue
            self._programs = self._programs or make_programs(self._ctx)
            if layer.shapes is None:
                layer.shapes = Shapes(self._ctx, self._programs, layer.result)
            per_x, per_y = self.screen_scale(layer.result, zoom)
            layer.shapes.draw(
                rect,
                (x - rect.x, y - rect.y, per_x, per_y),
                scale,
                opacity=opacity,
                threshold=settings.threshold,
            )

    def box_text_at(self, x: float, y: float, settings: ImageState) -> str:
        """Text of the smallest box around a point of the image, in its pixels."""
        found = ""
        smallest = float("inf")
        for layer, _ in self.visible(settings):
            result = layer.result
            px = x * result.size[0] / self.size[0]
            py = y * result.size[1] / self.size[1]
            boxes = result.boxes
            inside = result.boxes_at(px, py)
            inside = inside[result.floors[inside] >= settings.threshold]
            areas = (boxes[inside, 2:] - boxes[inside, :2]).prod(1)
            if len(inside) and areas.min() < smallest:
                smallest = float(areas.min())
                found = result.box_text(int(inside[areas.argmin()]))
        return found

    def screen_scale(self, result: OverlayResult, zoom: float) -> tuple[float, float]:
        """Pixels of the screen for one of a result's picture, along x and y. `zoom`:
        for one of the image's.
        """
        return zoom * self.size[0] / result.size[0], zoom * self.size[1] / result.size[
            1
        ]

    def clear(self) -> None:
        """Nothing lies over the image any more. Idempotent."""
        for key in list(self._layers):
            self.drop(key)

    def release(self) -> None:
        """Give back everything. Idempotent."""
        self.clear()
        for program in self._programs.values():
            program.release()
        self._programs = {}
