"""The view of an image: one pass of a shader from its bytes to the screen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import moderngl

from splatview_ipc.gl.sources import read_source, set_uniform
from splatview_viewer.core.events import PointerLeave, PointerMove
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.settings import BACKDROP
from splatview_viewer.core.view import (
    BRIDGE_WORDS,
    PICTURE_KEYS,
    Info,
    Section,
    View,
    Wants,
    bridge_phrases,
)
from splatview_viewer.geometry.pan_zoom import FITTED, PanZoom, Place
from splatview_viewer.kinds.image.commands import COMMANDS
from splatview_viewer.kinds.image.content import INTEGERS, ImageContent
from splatview_viewer.kinds.image.measurement import (
    MAX_VALUE,
    draw_measurement_legend,
)
from splatview_viewer.kinds.image.overlay_text import OverlayText
from splatview_viewer.scene import color_maps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.view import Value

UNIT = (0.0, 1.0)
"""The range of floating point values that are colours as they are."""
_READOUT_PERIOD_S = 0.05
"""Seconds between looks at a value on a GPU that changes, which wait for it."""
_ALPHA = {"checkerboard": 0, "background": 1}
_BGR_ORDER = [2, 1, 0, 3]


@dataclass(frozen=True)
class ImageState:
    """The visible part of an image, and how it is drawn."""

    place: Place = FITTED
    exposure: float = 0.0
    """In stops: values are multiplied by 2 ** exposure. For floating point images."""
    gamma: float = 1.0
    """Values are raised to 1 / gamma. For floating point images."""
    range: tuple[float, float] | None = UNIT
    """Values shown as black and as white; None: the 1st and 99th percentile. For
    floating point images."""
    color_map: str = "turbo"
    """Of measurements."""
    measured_range: tuple[float, float] | None = None
    """Measurements at both ends of the colour map, in their unit; None: the 1st and 99th
    percentile."""
    alpha: Literal["checkerboard", "background", "ignore"] = "checkerboard"
    """Ground seen through a picture with an alpha channel."""
    background: tuple[float, float, float] = BACKDROP
    """Around the picture, RGB in [0, 1]."""
    overlay: bool = True
    """Boxes, points and masks that others published about the picture are drawn over
    it."""
    labels: bool = True
    """Boxes have text beside them."""
    threshold: float = 0.0
    """Boxes with a lower score are not drawn."""


class _Readout(NamedTuple):
    """The value under the pointer, as it was read last."""

    pixel: tuple[int, int] | None = None
    version: tuple[int, int] | None = None
    state: ImageState | None = None
    text: str = ""
    read_at: float = 0.0


class ImageView(View[ImageContent, ImageState]):
    """One user's view of an image.

    It has the image's place in the rectangle and its tones, and reads the value under
    the pointer.
    """

    kind: ClassVar[str] = "image"
    keys = PICTURE_KEYS

    def __init__(self, data: ImageContent, state: ImageState) -> None:
        super().__init__(data, state)
        self._pan_zoom = PanZoom()
        self._drawn_version = self._version
        """The version that was drawn last, or for which drawing was requested."""
        self._overlay_text = OverlayText()
        self._pointer: tuple[float, float] | None = None
        self._readout = _Readout()
        self._readout_due = math.inf
        """When the value under the pointer is due to be looked at again."""
        self._rect = Rect(0, 0, 1, 1)

    def take(self, link: str, value: Value) -> bool:
        is_shown = self.data.update(value)
        if is_shown:
            # The caller draws it.
            self._drawn_version = self._version
        return is_shown

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self._rect = rect
        data = self.data
        source = data.source
        assert source is not None
        data.values.find_range()
        data.ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        framebuffer.use()
        x, y, zoom = self.pan_zoom.placed(rect)
        drawing = data.passes.drawing((*source.defines, *self._defines(zoom)))
        uniforms = {
            **self._tone_uniforms(),
            "u_origin": (x, y),
            "u_zoom": zoom,
            "u_height": float(framebuffer.height),
        }
        for name, value in uniforms.items():
            set_uniform(drawing.program, name, value)
        if data.values.measurement is not None:
            table = color_maps.table(self.state.color_map)
            drawing.program["u_map"].write(table.tobytes())  # type: ignore[union-attr]
        source.bind(drawing.program, 0)
        framebuffer.viewport = rect.viewport(framebuffer.height)
        zoom_level = round(math.log2(zoom))
        with data.work("image", rect.width, rect.height, *source.size, zoom_level):
            drawing.draw(framebuffer.viewport)
        data.last_drawing = data.work.submitted
        if data.layers and self.state.overlay and self.host.exact != "scene":
            self.draw_layers(framebuffer, rect, self.host.scale)
        self._drawn_version = self._version

    def _defines(self, zoom: float) -> list[str]:
        """Return the shader's defines beside those of the source."""
        defines = []
        if self.data.layout == "BGR":
            defines.append("BGR")
        if zoom >= 1:
            defines.append("ENLARGED")
        elif zoom >= 0.5:
            defines.append("THREE_TAPS")
        if not self.is_float:
            defines.append("FINITE")
        elif self.state.range != UNIT:
            defines.append("RANGE")
        if self._alpha == "ignore":
            defines.append("OPAQUE")
        if self.data.values.measurement is not None:
            defines.append("MAPPED")
        return defines

    def _tone_uniforms(self) -> dict[str, Any]:
        """Return the shader's uniforms of tones and of the ground."""
        state = self.state
        exposure = 0.0
        gamma = 1.0
        if self.is_float:
            exposure = state.exposure
            gamma = state.gamma
        value_range = state.range or self.data.values.range
        measurement = self.data.values.measurement
        if measurement is not None:
            low, high = measurement.stored(self.measured_range)
            value_range = (low / MAX_VALUE, high / MAX_VALUE)
        return {
            "u_background": state.background,
            "u_alpha": _ALPHA.get(self._alpha, 0),
            "u_checker": 8.0 * self.host.scale,
            "u_gain": 2.0**exposure,
            "u_inv_gamma": 1.0 / gamma,
            "u_range": value_range,
        }

    def draw_layers(
        self, framebuffer: moderngl.Framebuffer, rect: Rect, scale: float
    ) -> None:
        """Draw what lies over the picture, without text.

        `scale` is in pixels per point.
        """
        framebuffer.use()
        framebuffer.viewport = rect.viewport(framebuffer.height)
        with self.data.work("overlay", rect.width, rect.height):
            self.data.layers.draw(rect, self._scale_and_corner(rect), self.state, scale)

    def ui(self, rect: Rect, scale: float) -> bool:
        self.write_layers(rect, scale)
        measurement = self.data.values.measurement
        if measurement is not None:
            draw_measurement_legend(
                measurement, self.state.color_map, self.measured_range, rect, scale
            )
        hints = self.data.hints
        may_hint = not self.host.exact and self.state.range == UNIT
        if may_hint and hints.draw(rect, scale, self.host.name) and hints.hint:
            self.state = replace(self.state, range=hints.hint.choice)
        return False

    def writes_about_picture(self) -> bool:
        data = self.data
        has_layers = bool(data.layers) or bool(data.layers.camera)
        return has_layers or data.values.measurement is not None

    def write_layers(self, rect: Rect, scale: float, *, corner: bool = True) -> None:
        """Write the text that lies over the picture, inside an imgui frame.

        Args:
            rect: the rectangle of the picture, in pixels.
            scale: pixels per point.
            corner: also write in the corner how fast and how old results are.
        """
        layers = self.data.layers
        if layers or layers.camera:
            self._overlay_text.write(
                layers,
                self.state,
                rect,
                self._scale_and_corner(rect),
                scale,
                corner=corner,
            )

    def handle(self, event: Event, rect: Rect) -> bool:
        self._rect = rect
        previous_pixel = self._pixel()
        if isinstance(event, PointerMove):
            self._pointer = (event.x, event.y)
        elif isinstance(event, PointerLeave):
            self._pointer = None
        pan_zoom = self.pan_zoom
        pan_zoom.handle(event, rect)
        self.state = replace(self.state, place=pan_zoom.place)
        return self._pixel() != previous_pixel

    def tick(self, now: float) -> bool:
        self.data.tick(now)
        needs_redraw = False
        if now >= self._readout_due:
            self._readout_due = math.inf
            needs_redraw = True
        if now >= self._overlay_text.due:
            self._overlay_text.due = math.inf
            needs_redraw = True
        if self._drawn_version != self._version:
            self._drawn_version = self._version
            needs_redraw = True
        return needs_redraw

    def release(self, occasion: Literal["idle", "away", "closed", "last"]) -> None:
        if occasion == "last":
            self.data.close()

    # -- the picture in the rectangle --------------------------------------------------

    @property
    def pan_zoom(self) -> PanZoom:
        """Return the placement of the picture in a rectangle, as the state has it."""
        self._pan_zoom.size = self.size
        self._pan_zoom.place = self.state.place
        return self._pan_zoom

    def _scale_and_corner(self, rect: Rect) -> tuple[float, float, float]:
        """Return x, y and magnification of the published picture.

        That may be larger than what is shown of it.
        """
        x, y, zoom = self.pan_zoom.placed(rect)
        source = self.data.source
        if source is not None:
            zoom /= source.stride
        return x, y, zoom

    @property
    def _version(self) -> tuple[int, int]:
        """Differs once a drawing would look different."""
        return self.data.changes, self.data.layers.changes

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture shown."""
        source = self.data.source
        if source is None:
            return (1, 1)
        return source.size

    @property
    def zoom(self) -> float:
        """Pixels of the screen that a pixel of the picture takes."""
        _, _, zoom = self.pan_zoom.placed(self._rect)
        return zoom

    @property
    def is_float(self) -> bool:
        source = self.data.source
        return source is not None and source.dtype not in INTEGERS

    @property
    def measured_range(self) -> tuple[float, float]:
        """The measurements at both ends of the colour map, in their unit."""
        measurement = self.data.values.measurement
        assert measurement is not None
        return self.state.measured_range or measurement.converted(
            self.data.values.range
        )

    @property
    def _alpha(self) -> Literal["checkerboard", "background", "ignore"]:
        """Return what is seen through the picture, as far as it has an alpha channel."""
        if self.data.values.measurement is not None:
            return "background"
        return self.state.alpha if self.has_alpha else "ignore"

    @property
    def has_alpha(self) -> bool:
        source = self.data.source
        return source is not None and source.channels in (2, 4)

    def _pixel(self) -> tuple[int, int] | None:
        """Return the picture's pixel (column, row) under the pointer."""
        if self._pointer is None or not self._rect.contains(*self._pointer):
            return None
        x, y = self.pan_zoom.to_picture(*self._pointer, self._rect)
        width, height = self.size
        if not (0 <= x < width and 0 <= y < height):
            return None
        return math.floor(x), math.floor(y)

    def value_at(self, x: int, y: int) -> tuple[float, ...]:
        """Return the stored values at a pixel; waits for the GPU.

        They are integers as such, or floats before any tone mapping.
        """
        source = self.data.source
        assert source is not None
        pixels = read_source(self.data.ctx, source, (x, y, 1, 1))
        values = pixels[0, 0, : source.channels]
        if self.data.layout == "BGR":
            values = values[_BGR_ORDER[: len(values)]]
        max_value = INTEGERS.get(source.dtype)
        if max_value is None:
            return tuple(float(value) for value in values)
        return tuple(round(float(value) * max_value) for value in values)

    # -- text --------------------------------------------------------------------------

    def _read(self) -> str:
        """Return the position and the value under the pointer as text."""
        pixel = self._pixel()
        source = self.data.source
        if pixel is None or source is None:
            return ""
        readout = self._readout
        now = self.data.now
        version = self._version
        if (readout.pixel, readout.version, readout.state) == (
            pixel,
            version,
            self.state,
        ):
            return readout.text
        was_just_read = now - readout.read_at < _READOUT_PERIOD_S
        if self.data.on_gpu and readout.pixel == pixel and was_just_read:
            # The newest value must be read in the end.
            self._readout_due = readout.read_at + _READOUT_PERIOD_S
            return readout.text
        values = [self._value_text(value) for value in self.value_at(*pixel)]
        x = pixel[0] * source.stride
        y = pixel[1] * source.stride
        text = f"({x}, {y})   {'  '.join(values)}"
        box_text = self.data.layers.box_text_at(x + 0.5, y + 0.5, self.state)
        if box_text:
            text += f"   {box_text}"
        self._readout = _Readout(pixel, version, self.state, text, now)
        return text

    def _value_text(self, value: float) -> str:
        if self.data.values.measurement is not None:
            return self.data.values.measurement.value_text(value)
        return _value_text(value)

    def info(self) -> Info:
        data = self.data
        source = data.source
        assert source is not None
        width, height = self.size
        fact_texts = [
            f"{width} x {height}",
            source.dtype,
            data.layout,
            f"{self.zoom:.0%}",
        ]
        if source.stride > 1:
            limit = data.ctx.info["GL_MAX_TEXTURE_SIZE"]
            fact_texts.append(
                f"1 pixel in {source.stride} per axis: larger than this GPU's {limit}"
            )
        if data.values.measurement is not None:
            fact_texts.append(data.values.measurement.range_text(self.measured_range))
        if data.values.broken_count:
            if self.state.range is None:
                color = "NaN: magenta"
            else:
                color = "magenta"
            fact_texts.append(f"{data.values.broken_count:,} NaN or inf ({color})")
        bridge = "host"
        reasons: dict[str, str] = {}
        if data.on_gpu and data.gpu is not None:
            bridge = data.gpu.name
            reasons = data.gpu.reasons
        return Info(
            [*fact_texts, *data.notes],
            bridge_phrases(reasons),
            self._read(),
            [BRIDGE_WORDS.get(bridge, bridge)],
        )

    @property
    def timings(self) -> Mapping[str, float]:
        data = self.data
        times = {**data.stopwatch.ms, "draw": data.work.ms.get("image", 0.0)}
        if data.layers:
            times["overlay"] = data.work.ms.get("overlay", 0.0)
        return times

    @property
    def wants(self) -> Wants:
        return Wants(stale=self.data.stale)

    def covered(self, rect: Rect) -> Sequence[Rect]:
        if self.state.range != UNIT:
            return ()
        return self.data.hints.covered(rect)

    def commands(self) -> Sequence[Command[Any]]:
        return COMMANDS

    def panel(self) -> Sequence[Section]:
        from splatview_viewer.kinds.image.panel import sections_of

        return sections_of(self)

    def zoom_to(self, zoom: float) -> None:
        """Show a pixel of the picture as so many of the screen; 0: all of the picture."""
        pan_zoom = self.pan_zoom
        if zoom:
            pan_zoom.set_zoom(zoom, self._rect)
        else:
            pan_zoom.fit()
        self.state = replace(self.state, place=pan_zoom.place)


def _value_text(value: float) -> str:
    if isinstance(value, int):
        return f"{value}"
    return f"{value:.4g}"
