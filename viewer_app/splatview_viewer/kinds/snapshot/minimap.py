"""The whole timeline in a low strip, with the window that the plot shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import moderngl
import numpy as np

from splatview_ipc.gl.sources import set_uniform
from splatview_viewer.kinds.snapshot.plot import RESERVED, program
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from splatview_viewer.core.settings import Color
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.state import Look, Range

GROUND: Color = (0.075, 0.081, 0.093)
_LIVE: Color = (0.31, 0.41, 0.54)


class Minimap:
    """Every call comes from the thread that holds the context."""

    def __init__(self, ctx: moderngl.Context, work: GpuWork) -> None:
        self._ctx = ctx
        self._work = work
        self._array: moderngl.VertexArray | None = None
        self._texture: moderngl.Texture | None = None
        self._holds: tuple[object, ...] = ()

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect, content: Content, look: Look) -> None:
        """Draw into `rect`: the ground alone while nothing is laid out."""
        curves = self._curves(rect, content, look)
        axis = content.axis(look.device, look.settings.unit)
        if curves is None or axis is None:
            framebuffer.clear(*GROUND, 1.0, viewport=rect.viewport(framebuffer.height))
            return
        array = self._array = self._array or program(self._ctx, "strip")
        if self._texture is None or self._texture.size != (rect.width, 1):
            self._release_texture()
            self._texture = self._ctx.texture((rect.width, 1), 2, dtype="f4")
            self._texture.filter = moderngl.NEAREST, moderngl.NEAREST
        self._texture.write(np.ascontiguousarray(curves))
        window = (0.0, 0.0) if look.x is None else window_of(look.x, axis.extent, rect.width)
        uniforms: dict[str, Any] = {
            "u_curves": 0, "u_corner": (float(rect.x), float(framebuffer.height - rect.y)),
            "u_size": (float(rect.width), float(rect.height)), "u_window": window,
            "u_windowed": int(look.x is not None), "u_line": max(round(rect.height / 44), 1),
            "u_ground": GROUND, "u_reserved": RESERVED, "u_live": _LIVE,
            "u_accent": (theme.ACCENT.x, theme.ACCENT.y, theme.ACCENT.z),
        }
        for name, value in uniforms.items():
            set_uniform(array.program, name, value)
        self._texture.use(0)
        framebuffer.viewport = rect.viewport(framebuffer.height)
        with self._work("minimap", rect.width, rect.height):
            array.render(moderngl.TRIANGLES, vertices=3)

    def _curves(self, rect: Rect, content: Content, look: Look) -> np.ndarray | None:
        """float32 (W, 2): live and reserved bytes at most in each column, in rows from the bottom."""
        device, unit, reserved = look.device, look.settings.unit, look.settings.reserved
        axis, bands = content.axis(device, unit), content.bands(device)
        curve = content.reserved_envelope(device) if reserved else None
        if axis is None or bands is None:
            return None

        def work() -> np.ndarray:
            edges = axis.edges(*axis.extent, rect.width)
            live = bands.envelope(edges)[1].astype(np.float64)
            held = curve(edges)[1].astype(np.float64) if curve is not None else np.zeros(len(live))
            top = max(float(live.max(initial=0)), float(held.max(initial=0)), 1.0) * 1.06
            return (np.stack([live, held], axis=1) * (rect.height / top)).astype(np.float32)

        key = ("minimap", device, unit, rect.width, rect.height, curve is not None)
        return content.ask(key, work, slot="minimap", lane="layout")

    def drop(self) -> None:
        """Give back what is made again when it is drawn. Idempotent."""
        self._release_texture()

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._release_texture()
        if self._array is not None:
            self._array.program.release()
            self._array.release()
            self._array = None

    def _release_texture(self) -> None:
        if self._texture is not None:
            self._texture.release()
            self._texture = None


def window_of(x: Range, extent: Range, width: int) -> Range:
    """Where a range of the axis lies in a strip of `width` pixels that shows `extent`: at least two pixels wide."""
    scale = width / (extent[1] - extent[0])
    begin, end = (x[0] - extent[0]) * scale, (x[1] - extent[0]) * scale
    spare = max(2.0 - (end - begin), 0.0) / 2
    return begin - spare, end + spare
