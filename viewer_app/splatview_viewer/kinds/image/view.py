"""Shows an image: one pass of a shader from the bytes as they lie to the screen."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import moderngl

from splatview_ipc.gl.sources import read_source, set_uniform
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import PointerLeave, PointerMove
from splatview_viewer.core.old_view import Simple, Steady
from splatview_viewer.core.settings import UNIT, ImageSettings
from splatview_viewer.core.view import BRIDGE_WORDS, PICTURE_KEYS, bridge_phrases
from splatview_viewer.geometry.controls import PanZoom, Rect
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.kinds.image.content import ImageContent
from splatview_viewer.kinds.image.values import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.old_view import View
    from splatview_viewer.core.view import KeyHelp, Value
    from splatview_viewer.kinds.image.overlay.words import Words

_READOUT_PERIOD = 0.05
"""Seconds between looks at a value on a GPU that changes, which wait for it."""
_ALPHA = {"checkerboard": 0, "background": 1, "ignore": 2}


class ImageView(Steady, Simple):
    """One user's look at an image: how it lies in the rectangle, how it is toned, what lies under the pointer."""

    kind: ClassVar[str] = "image"
    keys: Sequence[KeyHelp] = PICTURE_KEYS

    def __init__(self, ctx: moderngl.Context, settings: ImageSettings | None = None, *, scale: float = 1.0,
                 work: GpuWork | None = None, beside: ImageView | None = None) -> None:
        """`beside`: a view of the same image, whose context and `work` this one takes."""
        self.settings = settings or ImageSettings()
        self.pan_zoom = PanZoom()
        self.scale = scale
        self._ctx = ctx
        self._work = beside._work if beside is not None else work or GpuWork(ctx)
        self._limit = int(ctx.info["GL_MAX_TEXTURE_SIZE"])
        self.content = beside.content if beside is not None else ImageContent(ctx, self._work)
        """What it may share with other views."""
        self._told = self._state
        """The state of it that was drawn last, or for which drawing was asked."""
        self._words: Words | None = None
        """What writes over it, once there is something to write."""
        self._pointer: tuple[float, float] | None = None
        self._readout: tuple[tuple[object, ...], str, float] = ((), "", 0.0)
        self._look_at = math.inf
        """When the value under the pointer is due to be looked at again."""
        self._rect = Rect(0, 0, 1, 1)
        self.content.views.append(self)
        if self.content.source is not None:
            self.pan_zoom.resize_picture(*self.content.source.size)

    def beside(self, settings: ImageSettings) -> ImageView:
        return ImageView(self._ctx, settings, scale=self.scale, beside=self)

    def like(self, other: View) -> None:
        if not isinstance(other, ImageView):
            raise ViewerError(f"image: a view of {other.kind} cannot be followed")
        self.pan_zoom.look_like(other.pan_zoom, other._rect)
        self.settings.take(other.settings)

    def update(self, value: Value) -> bool:
        taken = self.content.update(value)
        if taken:
            self._told = self._state  # whoever calls knows
        return taken

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self._rect = rect
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        viewport = rect.viewport(framebuffer.height)
        framebuffer.use()
        content = self.content
        source = content.source
        if source is None:
            framebuffer.clear(*self.settings.background, 1.0, viewport=viewport)
            return
        s = self.settings
        x, y, zoom = self.pan_zoom.placed(rect)
        near = zoom >= 1 and not self.is_float
        words = (content.layout == "BGR", "BGR"), (near, "NEAR"), (self.is_float and s.range != UNIT, "RANGE")
        array = content.vertex_array((*source.defines, *(word for holds, word in words if holds)))
        uniforms: dict[str, Any] = {
            "u_origin": (x, y), "u_zoom": zoom, "u_height": float(framebuffer.height),
            "u_background": s.background, "u_alpha": _ALPHA[s.alpha] if self.has_alpha else 2,
            "u_checker": 8.0 * self.scale,
            "u_gain": 2.0**s.exposure if self.is_float else 1.0,
            "u_inv_gamma": 1.0 / s.gamma if self.is_float else 1.0,
            "u_range": s.range or content.range,
        }
        for name, value in uniforms.items():
            set_uniform(array.program, name, value)
        source.bind(array.program, 0)
        framebuffer.viewport = viewport
        with self._work("image", rect.width, rect.height, *source.size, round(math.log2(zoom))):
            array.render(moderngl.TRIANGLES, vertices=3)
        content.drawn = self._work.submitted
        if content.layers and s.overlay:
            self.draw_layers(framebuffer, rect, self.scale)
        self._told = self._state

    def draw_layers(self, framebuffer: moderngl.Framebuffer, rect: Rect, scale: float) -> None:
        """Draw what lies over the picture, without words. `scale`: pixels per point."""
        source = self.content.source
        if source is None:
            return
        framebuffer.use()
        framebuffer.viewport = rect.viewport(framebuffer.height)
        x, y, zoom = self.pan_zoom.placed(rect)
        with self._work("overlay", rect.width, rect.height):
            self.content.layers.draw(rect, (x, y, zoom / source.stride), self.settings, scale)

    def over(self, rect: Rect, scale: float) -> bool:
        if scale != self.scale:
            self.scale, self._look_at = scale, -math.inf  # what was drawn was for another one
        self.write_layers(rect, scale)
        hints, s = self.content.hints, self.settings
        if self.desk.exact or s.range != UNIT or not hints.draw(rect, scale, self.desk.name) or hints.hint is None:
            return False
        s.range = hints.hint.choice
        return True

    def boards(self, rect: Rect) -> Sequence[Rect]:
        return self.content.hints.boards(rect) if self.settings.range == UNIT else ()

    def write_layers(self, rect: Rect, scale: float, *, corner: bool = True) -> None:
        """Write what is said about the picture over it, inside an imgui frame. `corner`: also how old that is."""
        layers, source = self.content.layers, self.content.source
        if source is None or not (layers or layers.camera):
            return
        if self._words is None:
            from splatview_viewer.kinds.image.overlay.words import Words

            self._words = Words()
        x, y, zoom = self.pan_zoom.placed(rect)
        self._words.write(layers, self.settings, rect, (x, y, zoom / source.stride), scale, corner=corner)

    def handle(self, event: Event, rect: Rect) -> bool:
        self._rect = rect
        before = self._pixel()
        if isinstance(event, PointerMove):
            self._pointer = event.x, event.y
        elif isinstance(event, PointerLeave):
            self._pointer = None
        return self.pan_zoom.handle(event, rect) or self._pixel() != before

    def tick(self, now: float) -> bool:
        content = self.content
        content.tick(now)
        again = now >= self._look_at
        if again:
            self._look_at = math.inf
        if self._words is not None and now >= self._words.due:
            self._words.due, again = math.inf, True
        if self._told != self._state:
            self._told, again = self._state, True
        return again or (bool(content.layers) and content.layers.settling(self.settings))

    @property
    def _state(self) -> tuple[int, int]:
        """Changes when what is seen does."""
        return self.content.changes, self.content.layers.changes

    def _pixel(self) -> tuple[int, int] | None:
        """The picture's pixel (column, row) under the pointer."""
        source = self.content.source
        if self._pointer is None or source is None or not self._rect.contains(*self._pointer):
            return None
        x, y = self.pan_zoom.to_picture(*self._pointer, self._rect)
        w, h = source.size
        return (math.floor(x), math.floor(y)) if 0 <= x < w and 0 <= y < h else None

    def value_at(self, x: int, y: int) -> tuple[float, ...]:
        """The stored values at a pixel: integers as such, floats before any tone mapping. Waits for the GPU."""
        source = self.content.source
        assert source is not None
        values = read_source(self._ctx, source, (x, y, 1, 1))[0, 0, : source.channels]
        if self.content.layout == "BGR":
            values = values[[2, 1, 0, 3][: len(values)]]
        top = INTEGERS.get(source.dtype)
        return tuple(float(v) if top is None else round(float(v) * top) for v in values)

    @property
    def readout(self) -> str:
        pixel, source = self._pixel(), self.content.source
        if pixel is None or source is None:
            return ""
        key, now = (pixel, self._state), time.monotonic()
        before, text, at = self._readout
        if before == key:
            return text
        if self.content.on_gpu and before and before[0] == pixel and now - at < _READOUT_PERIOD:
            self._look_at = at + _READOUT_PERIOD  # the last one must not stay away
            return text
        values = "  ".join(f"{v}" if isinstance(v, int) else f"{v:.4g}" for v in self.value_at(*pixel))
        x, y = pixel[0] * source.stride, pixel[1] * source.stride
        text = f"({x}, {y})   {values}"
        if said := self.content.layers.at(x + 0.5, y + 0.5, self.settings):
            text += f"   {said}"
        self._readout = key, text, now
        return text

    def drop(self) -> None: ...

    def panel(self) -> bool:
        from splatview_viewer.ui import widgets as ui

        s, before = self.settings, replace(self.settings)
        moved = False
        zooms = [("Fit", 0.0), ("1:1", 1.0), ("2x", 2.0), ("4x", 4.0)]
        chosen = ui.buttons("Zoom", [label for label, _ in zooms])
        if chosen is not None:
            moved = True
            zoom = zooms[chosen][1]
            self.pan_zoom.set_zoom(zoom, self._rect) if zoom else self.pan_zoom.fit()
        if self.is_float:
            s.range = ui.choice("Values", s.range, {UNIT: "0 to 1", (0.0, 255.0): "0 to 255", (-1.0, 1.0): "-1 to 1",
                                                    None: "Automatic"})
            s.exposure = ui.slider("Exposure", s.exposure, (-10.0, 10.0), "%+.1f EV", reset=0.0)
            s.gamma = ui.slider("Gamma", s.gamma, (0.2, 4.0), "%.2f", reset=1.0)
        if self.has_alpha:
            s.alpha = ui.choice("Alpha", s.alpha, {"checkerboard": "Checkerboard", "background": "Background",
                                                   "ignore": "Ignored"})
        s.background = ui.color("Backdrop", s.background)
        if self.content.layers:
            self._overlay_controls()
        return moved or s != before

    def _overlay_controls(self) -> None:
        from splatview_viewer.ui import widgets as ui

        s = self.settings
        s.overlay = ui.check("Overlay", s.overlay)
        if s.overlay:
            s.labels = ui.check("Labels", s.labels)
            as_told = any(layer.result is not None and layer.result.motion for layer in self.content.layers.all)
            moves = ui.check("Motion", as_told if s.motion is None else s.motion)
            if moves != (as_told if s.motion is None else s.motion):
                s.motion = moves
            s.threshold = ui.slider("Score from", s.threshold, (0.0, 1.0), "%.2f", reset=0.0)

    @property
    def stale(self) -> bool:
        return self.content.stale

    @property
    def empty(self) -> bool:
        return self.content.source is None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture shown."""
        source = self.content.source
        return source.size if source is not None else (0, 0)

    @property
    def is_float(self) -> bool:
        source = self.content.source
        return source is not None and source.dtype not in INTEGERS

    @property
    def has_alpha(self) -> bool:
        source = self.content.source
        return source is not None and source.channels in (2, 4)

    @property
    def zoom(self) -> float:
        return self.pan_zoom.placed(self._rect)[2]

    @property
    def details(self) -> list[str]:
        source = self.content.source
        if source is None:
            return []
        w, h = source.size
        out = [f"{w} x {h}", source.dtype, self.content.layout, f"{self.zoom:.0%}"]
        if source.stride > 1:
            out.append(f"1 pixel in {source.stride} per axis: larger than this GPU's {self._limit}")
        if self.content.broken:
            out.append(f"{self.content.broken:,} NaN or inf ({'NaN: ' * (self.settings.range is None)}magenta)")
        return [*out, *self.content.notes]

    @property
    def extras(self) -> list[str]:
        gpu = self.content.gpu
        return bridge_phrases(gpu.reasons) if self.content.on_gpu and gpu is not None else []

    @property
    def path(self) -> list[str]:
        gpu = self.content.gpu
        bridge = gpu.name if self.content.on_gpu and gpu is not None else "host"
        return [BRIDGE_WORDS.get(bridge, bridge)]

    @property
    def timings(self) -> dict[str, float]:
        over = {"overlay": self._work.ms.get("overlay", 0.0)} if self.content.layers else {}
        return {**self.content.stopwatch.ms, "draw": self._work.ms.get("image", 0.0), **over}

    def close(self) -> None:
        self.content.release(self)
