"""Shows an image: one upload of the bytes as they lie, one pass of a shader to the screen."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, ClassVar

import moderngl
import numpy as np

from viewer_app.controls import PanZoom, Rect
from viewer_app.events import PointerLeave, PointerMove
from viewer_app.state import ImageSettings
from viewer_app.views._image_texture import ImageData, ImageTexture, count_broken
from viewer_app.views.base import GpuTimer, Stopwatch, meta_phrases

if TYPE_CHECKING:
    from ipc import Frame
    from viewer_app.events import Event
    from viewer_app.scene import GaussianScene

_VERTEX = """
#version 330
void main() {  // one triangle over everything
    gl_Position = vec4(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0, 0.0, 1.0);
}
"""
_COUNT_PERIOD = 0.5
"""Seconds between counts of NaNs: one costs about as much as an upload."""
_ALPHA = {"checkerboard": 0, "background": 1, "ignore": 2}


class ImageView:
    kind: ClassVar[str] = "image"

    def __init__(self, ctx: moderngl.Context, settings: ImageSettings | None = None, *, scale: float = 1.0) -> None:
        self.settings = settings or ImageSettings()
        self.pan_zoom = PanZoom()
        self.scale = scale
        self._ctx = ctx
        self._limit = int(ctx.info["GL_MAX_TEXTURE_SIZE"])
        self._programs: dict[tuple[str, ...], moderngl.Program] = {}
        self._arrays: dict[tuple[str, ...], moderngl.VertexArray] = {}
        self._front: ImageTexture | None = None
        self._back: ImageTexture | None = None
        self._stride = 1
        self._notes: list[str] = []
        self._pointer: tuple[float, float] | None = None
        self._readout: tuple[tuple[object, ...], str] = ((), "")
        self._rect = Rect(0, 0, 1, 1)
        self._uploads = 0
        self._broken = 0
        self._counted_at = -math.inf
        self._count_due = False
        self._stopwatch = Stopwatch()
        self._gpu = GpuTimer(ctx)
        self._probe_texture = ctx.texture((1, 1), 4, dtype="f4")
        self._probe = ctx.framebuffer([self._probe_texture])
        self._closed = False

    def update(self, value: Frame | GaussianScene | np.ndarray) -> bool:
        data = ImageData.of(value)  # type: ignore[arg-type]  # a scene has no array and is refused there
        with self._stopwatch("upload"):
            data = data.fitting(self._limit)
            if self._back is None or self._back.form != ImageTexture.form_of(data):
                if self._back is not None:
                    self._back.release()
                self._back = ImageTexture(self._ctx, data)
            self._back.write(data)
        counted = None
        now = time.monotonic()
        if data.is_float and now - self._counted_at >= _COUNT_PERIOD:
            with self._stopwatch("count"):
                counted = data.count_broken()
        if not isinstance(value, np.ndarray) and not value.intact():  # type: ignore[union-attr]
            return False
        self._front, self._back = self._back, self._front
        self._stride = data.stride
        self._notes = [] if isinstance(value, np.ndarray) else meta_phrases(value.meta, ("layout",))  # type: ignore[union-attr]
        self._uploads += 1
        self._count_due = data.is_float and counted is None
        if not data.is_float:
            self._broken = 0
        elif counted is not None:
            self._broken, self._counted_at = counted, now
        self.pan_zoom.resize_picture(*data.size)
        return True

    def _vertex_array(self, defines: tuple[str, ...]) -> moderngl.VertexArray:
        if defines not in self._arrays:
            source = files("viewer_app.views").joinpath("shaders/image.glsl").read_text()
            head = "#version 330\n" + "".join(f"#define {d}\n" for d in defines)
            self._programs[defines] = self._ctx.program(vertex_shader=_VERTEX, fragment_shader=head + source)
            self._arrays[defines] = self._ctx.vertex_array(self._programs[defines], [])
        return self._arrays[defines]

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self._rect = rect
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        viewport = rect.viewport(framebuffer.height)
        framebuffer.use()
        if self._front is None:
            framebuffer.clear(*self.settings.background, 1.0, viewport=viewport)
            return
        s, front = self.settings, self._front
        array = self._vertex_array(front.defines)
        x, y, zoom = self.pan_zoom.placed(rect)
        has_alpha = front.channels in (2, 4)
        uniforms = {
            "u_size": front.size, "u_origin": (x, y), "u_zoom": zoom, "u_height": float(framebuffer.height),
            "u_background": s.background, "u_alpha": _ALPHA[s.alpha] if has_alpha else 2,
            "u_checker": 8.0 * self.scale,
            "u_gain": 2.0**s.exposure if self.is_float else 1.0,
            "u_inv_gamma": 1.0 / s.gamma if self.is_float else 1.0,
        }
        for name, value in uniforms.items():
            array.program[name] = value
        front.texture.use(0)
        framebuffer.viewport = viewport
        with self._gpu:
            array.render(moderngl.TRIANGLES, vertices=3)

    @property
    def is_float(self) -> bool:
        return self._front is not None and self._front.dtype in ("float16", "bfloat16", "float32")

    def handle(self, event: Event, rect: Rect) -> bool:
        self._rect = rect
        before = self._pixel()
        if isinstance(event, PointerMove):
            self._pointer = event.x, event.y
        elif isinstance(event, PointerLeave):
            self._pointer = None
        return self.pan_zoom.handle(event, rect) or self._pixel() != before

    def tick(self, now: float) -> bool:
        """Counts NaNs of a frame that came too soon after another."""
        if not self._count_due or self._front is None or now - self._counted_at < _COUNT_PERIOD:
            return False
        self._count_due, self._counted_at = False, now
        before, self._broken = self._broken, count_broken(self._front.read(), self._front.dtype)
        return self._broken != before

    def _pixel(self) -> tuple[int, int] | None:
        """The picture's pixel (column, row) under the pointer."""
        if self._pointer is None or self._front is None or not self._rect.contains(*self._pointer):
            return None
        x, y = self.pan_zoom.to_picture(*self._pointer, self._rect)
        w, h = self._front.size
        return (math.floor(x), math.floor(y)) if 0 <= x < w and 0 <= y < h else None

    def value_at(self, x: int, y: int) -> tuple[float, ...]:
        """The stored values at a pixel, as uploaded: integers as such, floats before any tone mapping."""
        assert self._front is not None
        array = self._vertex_array((*self._front.defines, "PROBE"))
        array.program["u_at"] = (x, y)
        if "u_size" in array.program:  # optimised away unless the image is planar
            array.program["u_size"] = self._front.size
        self._front.texture.use(0)
        with self._ctx.scope(self._probe, moderngl.NOTHING):
            array.render(moderngl.TRIANGLES, vertices=3)
        values = np.frombuffer(self._probe.read(components=4, dtype="f4"), np.float32)[: self._front.channels]
        top = {"uint8": 255.0, "uint16": 65535.0}.get(self._front.dtype)
        return tuple(float(v) if top is None else round(float(v) * top) for v in values)

    @property
    def readout(self) -> str:
        pixel = self._pixel()
        if pixel is None or self._front is None:
            return ""
        key = (pixel, self._uploads)
        if self._readout[0] != key:
            values = "  ".join(f"{v}" if isinstance(v, int) else f"{v:.4g}" for v in self.value_at(*pixel))
            self._readout = key, f"({pixel[0] * self._stride}, {pixel[1] * self._stride})   {values}"
        return self._readout[1]

    def panel(self) -> bool:
        from viewer_app import widgets as ui

        s, before = self.settings, replace(self.settings)
        moved = False
        zooms = [("Fit", 0.0), ("1:1", 1.0), ("2x", 2.0), ("4x", 4.0)]
        chosen = ui.buttons("Zoom", [label for label, _ in zooms])
        if chosen is not None:
            moved = True
            zoom = zooms[chosen][1]
            self.pan_zoom.set_zoom(zoom, self._rect) if zoom else self.pan_zoom.fit()
        if self.is_float:
            s.exposure = ui.slider("Exposure", s.exposure, (-10.0, 10.0), "%+.1f EV", reset=0.0)
            s.gamma = ui.slider("Gamma", s.gamma, (0.2, 4.0), "%.2f", reset=1.0)
        if self.has_alpha:
            s.alpha = ui.choice("Alpha", s.alpha, {"checkerboard": "Checkerboard", "background": "Background",
                                                   "ignore": "Ignored"})
        s.background = ui.color("Backdrop", s.background)
        return moved or s != before

    @property
    def empty(self) -> bool:
        return self._front is None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture shown."""
        return self._front.size if self._front is not None else (0, 0)

    @property
    def has_alpha(self) -> bool:
        return self._front is not None and self._front.channels in (2, 4)

    @property
    def zoom(self) -> float:
        return self.pan_zoom.placed(self._rect)[2]

    @property
    def details(self) -> list[str]:
        front = self._front
        if front is None:
            return []
        w, h = front.size
        out = [f"{w} x {h}", front.dtype, front.layout, f"{self.zoom:.0%}"]
        if self._stride > 1:
            out.append(f"1 pixel in {self._stride} per axis: larger than this GPU's {self._limit}")
        if self._broken:
            out.append(f"{self._broken:,} NaN or inf (magenta)")
        return [*out, *self._notes]

    @property
    def extras(self) -> list[str]:
        return []

    @property
    def path(self) -> list[str]:
        return ["texture upload"]

    @property
    def timings(self) -> dict[str, float]:
        return {**self._stopwatch.ms, "draw": self._gpu.ms}

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for texture in (self._front, self._back):
            if texture is not None:
                texture.release()
        self._front = self._back = None
        for array in self._arrays.values():
            array.program.release()
            array.release()
        self._arrays.clear()
        self._programs.clear()
        self._probe.release()
        self._probe_texture.release()
