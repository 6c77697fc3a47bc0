"""Values that a shader reads from a source, read back: for trying bridges out, and for looking at single pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import moderngl
import numpy as np

from splatview_ipc.gl.base import fragment_head

if TYPE_CHECKING:
    from splatview_ipc.gl.base import PixelSource

VERTEX = """#version 330
void main() {  // one triangle over everything
    gl_Position = vec4(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0, 0.0, 1.0);
}
"""
_BODY = """
uniform ivec2 u_first;
out uvec4 f_bits;
void main() { f_bits = floatBitsToUint(stored(u_first + ivec2(gl_FragCoord.xy))); }
"""


def read_source(ctx: moderngl.Context, source: PixelSource,
                part: tuple[int, int, int, int] | None = None) -> np.ndarray:
    """(H, W, 4) float32, bit for bit what `stored` returns, top row first; waits for it.

    `part`: (column, row, width, height), by default everything.
    """
    x, y, w, h = part or (0, 0, *source.size)
    known = vars(ctx).setdefault("_splatview_programs", {})  # they hold the context: anywhere else would keep it
    if source.defines not in known:
        program = ctx.program(vertex_shader=VERTEX, fragment_shader=fragment_head(source.defines) + _BODY)
        known[source.defines] = ctx.vertex_array(program, [])
    array = known[source.defines]
    target = ctx.texture((w, h), 4, dtype="u4", alignment=1)
    framebuffer = ctx.framebuffer([target])
    try:
        array.program["u_first"] = x, y
        with ctx.scope(framebuffer, moderngl.NOTHING):
            source.bind(array.program)
            array.render(moderngl.TRIANGLES, vertices=3)
            return np.frombuffer(target.read(alignment=1), np.float32).reshape(h, w, 4)
    finally:
        framebuffer.release()
        target.release()
