"""Shows an image: one pass of a shader from the bytes as they lie to the screen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

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
from splatview_viewer.kinds.image.content import INTEGERS, ImageContent
from splatview_viewer.kinds.image.drawing import OverlayText

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.view import Value

UNIT = 0.0, 1.0
"""The range of floating point values that are colours as they are."""
_READOUT_PERIOD = 0.05
"""Seconds between looks at a value on a GPU that changes, which wait for it."""
_ALPHA = {"checkerboard": 0, "background": 1, "ignore": 2}


@dataclass(frozen=True)
class ImageState:
    """The part of an image that is seen, and how."""

    place: Place = FITTED
    exposure: float = 0.0
    """In stops: values are multiplied by 2 ** exposure. For floating point images."""
    gamma: float = 1.0
    """Values are raised to 1 / gamma. For floating point images."""
    range: tuple[float, float] | None = UNIT
    """Values shown as black and as white; None: the 1st and 99th percentile. For
    floating point images."""
    alpha: Literal["checkerboard", "background", "ignore"] = "checkerboard"
    """Ground seen through a picture with an alpha channel."""
    background: tuple[float, float, float] = BACKDROP
    """Around the picture, RGB in [0, 1]."""
    overlay: bool = True
    """Boxes, points and masks that others published about the picture are drawn over
    it."""
    labels: bool = True
    """Words stand at boxes."""
    threshold: float = 0.0
    """Boxes with a lower score are not drawn."""


class ImageView(View[ImageContent, ImageState]):
    """One user's view of an image: how it lies in the rectangle, how it is toned, what
    lies under the pointer.
    """

    kind: ClassVar[str] = "image"
    keys = PICTURE_KEYS

    def __init__(self, data: ImageContent, state: ImageState) -> None:
        super().__init__(data, state)
        self._hand = PanZoom()
        self._drawn = self._version
        """The version of the data that was drawn last, or for which drawing was asked.
        """
        self._words = OverlayText()
        self._pointer: tuple[float, float] | None = None
        self._readout: tuple[tuple[object, ...], str, float] = ((), "", 0.0)
        self._look_at = math.inf
        """When the value under the pointer is due to be looked at again."""
        self._rect = Rect(0, 0, 1, 1)

    def take(self, link: str, value: Value) -> bool:
        taken = self.data.update(value)
        if taken:
            self._drawn = self._version  # the caller draws it
        return taken

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self._rect = rect
        data = self.data
        s = self.state
        source = data.source
        assert source is not None
        data.ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        framebuffer.use()
        x, y, zoom = self.pan_zoom.placed(rect)
        near = zoom >= 1 and not self.is_float
        words = (
            (data.layout == "BGR", "BGR"),
            (near, "NEAR"),
            (self.is_float and s.range != UNIT, "RANGE"),
        )
        array = data.vertex_array(
            (*source.defines, *(word for holds, word in words if holds))
        )
        exposure, gamma = (s.exposure, s.gamma) if self.is_float else (0.0, 1.0)
        uniforms: dict[str, Any] = {
            "u_origin": (x, y),
            "u_zoom": zoom,
            "u_height": float(framebuffer.height),
            "u_background": s.background,
            "u_alpha": _ALPHA[s.alpha] if self.has_alpha else 2,
            "u_checker": 8.0 * self.host.scale,
            "u_gain": 2.0**exposure,
            "u_inv_gamma": 1.0 / gamma,
            "u_range": s.range or data.range,
        }
        for name, value in uniforms.items():
            set_uniform(array.program, name, value)
        source.bind(array.program, 0)
        framebuffer.viewport = rect.viewport(framebuffer.height)
        with data.work(
            "image", rect.width, rect.height, *source.size, round(math.log2(zoom))
        ):
            array.render(moderngl.TRIANGLES, vertices=3)
        data.last_drawing = data.work.submitted
        if data.layers and s.overlay and self.host.exact != "scene":
            self.draw_layers(framebuffer, rect, self.host.scale)
        self._drawn = self._version

    def draw_layers(
        self, framebuffer: moderngl.Framebuffer, rect: Rect, scale: float
    ) -> None:
        """Draw what lies over the picture, without words. `scale`: pixels per point."""
        framebuffer.use()
        framebuffer.viewport = rect.viewport(framebuffer.height)
        with self.data.work("overlay", rect.width, rect.height):
            self.data.layers.draw(rect, self._placed(rect), self.state, scale)

    def ui(self, rect: Rect, scale: float) -> bool:
        self.write_layers(rect, scale)
        hints = self.data.hints
        if (
            not self.host.exact
            and self.state.range == UNIT
            and hints.draw(rect, scale, self.host.name)
            and hints.hint
        ):
            self.state = replace(self.state, range=hints.hint.choice)
        return False

    def write_layers(self, rect: Rect, scale: float, *, corner: bool = True) -> None:
        """Write what is said about the picture over it, inside an imgui frame.

        `corner`: also how old that is.
        """
        layers = self.data.layers
        if layers or layers.camera:
            self._words.write(
                layers, self.state, rect, self._placed(rect), scale, corner=corner
            )

    def handle(self, event: Event, rect: Rect) -> bool:
        self._rect = rect
        before = self._pixel()
        if isinstance(event, (PointerMove, PointerLeave)):
            if isinstance(event, PointerMove):
                self._pointer = (event.x, event.y)
            else:
                self._pointer = None
        hand = self.pan_zoom
        hand.handle(event, rect)
        self.state = replace(self.state, place=hand.place)
        return self._pixel() != before

    def tick(self, now: float) -> bool:
        data = self.data
        data.tick(now)
        again = now >= self._look_at
        if again:
            self._look_at = math.inf
        if now >= self._words.due:
            self._words.due = math.inf
            again = True
        if self._drawn != self._version:
            self._drawn = self._version
            again = True
        return again

    def release(self, how: Literal["idle", "away", "closed", "last"]) -> None:
        if how == "last":
            self.data.close()

    # -- what is seen ------------------------------------------------------------------

    @property
    def pan_zoom(self) -> PanZoom:
        """Places the picture as the state has it."""
        self._hand.size = self.size
        self._hand.place = self.state.place
        return self._hand

    def _placed(self, rect: Rect) -> tuple[float, float, float]:
        """x, y and magnification of the published picture, which may be larger than
        what is shown of it.
        """
        x, y, zoom = self.pan_zoom.placed(rect)
        return (
            x,
            y,
            zoom / (self.data.source.stride if self.data.source is not None else 1),
        )

    @property
    def _version(self) -> tuple[int, int]:
        """Another one once something else is to be seen."""
        return self.data.changes, self.data.layers.changes

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture shown."""
        return self.data.source.size if self.data.source is not None else (1, 1)

    @property
    def zoom(self) -> float:
        """Pixels of the screen that a pixel of the picture takes."""
        return self.pan_zoom.placed(self._rect)[2]

    @property
    def is_float(self) -> bool:
        source = self.data.source
        return source is not None and source.dtype not in INTEGERS

    @property
    def has_alpha(self) -> bool:
        source = self.data.source
        return source is not None and source.channels in (2, 4)

    def _pixel(self) -> tuple[int, int] | None:
        """The picture's pixel (column, row) under the pointer."""
        if self._pointer is None or not self._rect.contains(*self._pointer):
            return None
        x, y = self.pan_zoom.to_picture(*self._pointer, self._rect)
        w, h = self.size
        return (math.floor(x), math.floor(y)) if 0 <= x < w and 0 <= y < h else None

    def value_at(self, x: int, y: int) -> tuple[float, ...]:
        """The stored values at a pixel: integers as such, floats before any tone
        mapping. Waits for the GPU.
        """
        source = self.data.source
        assert source is not None
        values = read_source(self.data.ctx, source, (x, y, 1, 1))[
            0, 0, : source.channels
        ]
        if self.data.layout == "BGR":
            values = values[[2, 1, 0, 3][: len(values)]]
        top = INTEGERS.get(source.dtype)
        return tuple(float(v) if top is None else round(float(v) * top) for v in values)

    # -- words -------------------------------------------------------------------------

    def _read(self) -> str:
        """The value under the pointer, in words."""
        pixel = self._pixel()
        source = self.data.source
        if pixel is None or source is None:
            return ""
        key = (pixel, self._version, self.state)
        now = self.data.now
        before, text, at = self._readout
        if before == key:
            return text
        if (
            self.data.on_gpu
            and before
            and before[0] == pixel
            and now - at < _READOUT_PERIOD
        ):
            self._look_at = at + _READOUT_PERIOD  # the last one must not stay away
            return text
        values = "  ".join(
            f"{v}" if isinstance(v, int) else f"{v:.4g}" for v in self.value_at(*pixel)
        )
        x = pixel[0] * source.stride
        y = pixel[1] * source.stride
        text = f"({x}, {y})   {values}"
        said = self.data.layers.box_text_at(x + 0.5, y + 0.5, self.state)
        if said:
            text += f"   {said}"
        self._readout = key, text, now
        return text

    def info(self) -> Info:
        data, source, (w, h) = self.data, self.data.source, self.size
        assert source is not None
        out = [f"{w} x {h}", source.dtype, data.layout, f"{self.zoom:.0%}"]
        if source.stride > 1:
            limit = data.ctx.info["GL_MAX_TEXTURE_SIZE"]
            out.append(
                f"1 pixel in {source.stride} per axis: larger than this GPU's {limit}"
            )
        if data.broken_count:
            out.append(
                f"{data.broken_count:,} NaN or inf "
                f"({'NaN: ' * (self.state.range is None)}magenta)"
            )
        bridge, reasons = (
            (data.gpu.name, data.gpu.reasons)
            if data.on_gpu and data.gpu is not None
            else ("host", {})
        )
        over = {"overlay": data.work.ms.get("overlay", 0.0)} if data.layers else {}
        return Info(
            [*out, *data.notes],
            bridge_phrases(reasons),
            self._read(),
            [BRIDGE_WORDS.get(bridge, bridge)],
            {**data.stopwatch.ms, "draw": data.work.ms.get("image", 0.0), **over},
        )

    @property
    def wants(self) -> Wants:
        return Wants(stale=self.data.stale)

    def covered(self, rect: Rect) -> Sequence[Rect]:
        return self.data.hints.covered(rect) if self.state.range == UNIT else ()

    def panel(self) -> Sequence[Section]:
        return (Section("", self._controls),)

    def _controls(self) -> None:
        from splatview_viewer.ui import widgets as ui

        s = self.state
        hand = self.pan_zoom
        zooms = [("Fit", 0.0), ("1:1", 1.0), ("2x", 2.0), ("4x", 4.0)]
        chosen = ui.buttons("Zoom", [label for label, _ in zooms])
        if chosen is not None:
            hand.set_zoom(zooms[chosen][1], self._rect) if chosen else hand.fit()
            s = replace(s, place=hand.place)
        if self.is_float:
            span = ui.choice(
                "Range",
                "The values that are shown as black and as white",
                s.range,
                {
                    UNIT: "0 to 1",
                    (0.0, 255.0): "0 to 255",
                    (-1.0, 1.0): "-1 to 1",
                    None: "Automatic",
                },
            )
            s = replace(
                s,
                range=span,
                exposure=ui.slider(
                    "Exposure",
                    "Brightness in stops: + 1 doubles the values",
                    s.exposure,
                    (-10.0, 10.0),
                    "%+.1f EV",
                    reset=0.0,
                ),
                gamma=ui.slider(
                    "Gamma",
                    "Exponent of the display: values are raised to 1 / gamma",
                    s.gamma,
                    (0.2, 4.0),
                    "%.2f",
                    reset=1.0,
                ),
            )
        if self.has_alpha:
            s = replace(
                s,
                alpha=ui.choice(
                    "Alpha",
                    "How transparent pixels are shown",
                    s.alpha,
                    {
                        "checkerboard": "Checkerboard",
                        "background": "Background",
                        "ignore": "Ignored",
                    },
                ),
            )
        s = replace(
            s,
            background=ui.color(
                "Background", "Colour around and behind the image", s.background
            ),
        )
        if self.data.layers:
            s = replace(
                s,
                overlay=ui.check(
                    "Overlay",
                    "Boxes, masks, points and lines that were published for the image",
                    s.overlay,
                ),
            )
            if s.overlay:
                s = replace(
                    s,
                    labels=ui.check(
                        "Labels", "Names and scores beside boxes", s.labels
                    ),
                    threshold=ui.slider(
                        "Threshold",
                        "Detections of a lower score (confidence) are hidden",
                        s.threshold,
                        (0.0, 1.0),
                        "%.2f",
                        reset=0.0,
                    ),
                )
        self.state = s
