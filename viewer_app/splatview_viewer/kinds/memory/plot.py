"""The plot of live memory: areas over time, one pass of a shader over values per column of pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import moderngl
import numpy as np

from splatview_viewer.core.view import VERTEX

if TYPE_CHECKING:
    from splatview_viewer.core.settings import Color
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.memory.live import Columns

RESERVED: Color = (0.125, 0.137, 0.16)
"""Reserved, and neither active nor allocated: cached."""
ACTIVE: Color = (0.26, 0.24, 0.34)
"""Waits to be freed."""
PEAK: Color = (0.15, 0.25, 0.37)
"""Was allocated for a part of the time."""
ALLOCATED: Color = (0.21, 0.39, 0.59)
LINE: Color = (0.50, 0.72, 0.98)
RESERVED_LINE: Color = (0.52, 0.56, 0.62)
HOST: Color = (0.86, 0.71, 0.42)

_FRAGMENT = """
#version 330
uniform sampler2D u_values;      // per column: low, peak, active, reserved; the row above: host, whether there is any
uniform ivec2 u_corner;          // of the plot, from the bottom left
uniform float u_per_pixel;       // bytes
uniform float u_host;            // 1: a line; 2: an area
uniform float u_thick;           // pixels
uniform vec3 u_ground, u_reserved, u_active, u_peak, u_allocated, u_line, u_reserved_line, u_host_color;
out vec4 o_color;
float y;

float below(float v) { return clamp(v / u_per_pixel - y + 0.5, 0.0, 1.0); }

float line(float v, float before) {  // of that thickness; fainter, upright where the value jumps
    v /= u_per_pixel, before /= u_per_pixel;
    float level = abs(y - v), jump = max(max(min(v, before) - y, y - max(v, before)), 0.0);
    vec2 covered = clamp(0.5 + 0.5 * u_thick - vec2(level, jump), 0.0, 1.0);
    return max(covered.x, 0.35 * covered.y);
}

void main() {
    ivec2 at = ivec2(gl_FragCoord.xy) - u_corner;
    int x = clamp(at.x, 0, textureSize(u_values, 0).x - 1), w = max(x - 1, 0);
    y = float(at.y) + 0.5;
    vec4 v = texelFetch(u_values, ivec2(x, 0), 0), before = texelFetch(u_values, ivec2(w, 0), 0);
    vec2 h = texelFetch(u_values, ivec2(x, 1), 0).xy, hb = texelFetch(u_values, ivec2(w, 1), 0).xy;
    if (hb.y < 0.5) { before = v; hb = h; }
    vec3 c = u_ground;
    if (h.y > 0.5 && at.y >= 0) {
        c = mix(c, u_reserved, below(v.w));
        c = mix(c, u_active, below(max(v.z, v.y)));
        c = mix(c, u_peak, below(v.y));
        c = mix(c, u_allocated, below(v.x));
        if (v.w > 0.0) {
            c = mix(c, u_reserved_line, line(v.w, before.w));
            c = mix(c, u_line, line(v.y, before.y));
        }
        if (u_host > 1.5) c = mix(c, u_host_color * 0.5, below(h.x));
        if (u_host > 0.5) c = mix(c, u_host_color, line(h.x, hb.x));
    }
    o_color = vec4(c, 1.0);
}
"""


class MemoryPlot:
    """Draws columns of values. Shared by the views of a stream."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._array: moderngl.VertexArray | None = None
        self._texture: moderngl.Texture | None = None

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect, columns: Columns, top: float, *,
             ground: Color, host: int, thick: float = 1.0, bottom: int = 0) -> None:
        """Draw over `rect`: `columns`, as many as it is wide, from 0 bytes to `top` in what lies over its `bottom`
        pixels, which are left to the axis. `host`: 1: its memory is a line, 2: an area, 0: it is not seen."""
        if self._array is None:
            program = self._ctx.program(vertex_shader=VERTEX, fragment_shader=_FRAGMENT)
            self._array = self._ctx.vertex_array(program, [])
            for name, color in (("reserved", RESERVED), ("active", ACTIVE), ("peak", PEAK),
                                ("allocated", ALLOCATED), ("line", LINE), ("reserved_line", RESERVED_LINE),
                                ("host_color", HOST)):
                program[f"u_{name}"].value = color  # type: ignore[union-attr]
        values = np.zeros((2, rect.width, 4), np.float32)
        for place, band in enumerate((columns.low, columns.peak, columns.active, columns.reserved)):
            values[0, :, place] = band
        values[1, :, 0] = columns.host
        values[1, columns.first: columns.last, 1] = 1
        if self._texture is None or self._texture.width != rect.width:
            if self._texture is not None:
                self._texture.release()
            self._texture = self._ctx.texture((rect.width, 2), 4, dtype="f4")
            self._texture.filter = moderngl.NEAREST, moderngl.NEAREST
        self._texture.write(values)
        self._texture.use(0)
        x, y, width, height = rect.viewport(framebuffer.height)
        program = self._array.program
        program["u_corner"].value = (x, y + bottom)  # type: ignore[union-attr]
        program["u_per_pixel"].value = max(top, 1.0) / max(height - bottom, 1)  # type: ignore[union-attr]
        program["u_ground"].value = ground  # type: ignore[union-attr]
        program["u_host"].value = float(host)  # type: ignore[union-attr]
        program["u_thick"].value = thick  # type: ignore[union-attr]
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        framebuffer.use()
        framebuffer.viewport = (x, y, width, height)
        self._array.render(moderngl.TRIANGLES, vertices=3)

    def close(self) -> None:
        """Give back everything. Idempotent."""
        if self._array is not None:
            self._array.program.release()
            self._array.release()
        if self._texture is not None:
            self._texture.release()
        self._array = self._texture = None
