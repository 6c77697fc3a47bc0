"""The plot of a timeline on the screen: what threads paint is uploaded, moved to where it belongs, and refined."""

from __future__ import annotations

import math
import time
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import moderngl
import numpy as np

from splatview_ipc.gl.glapi import DRAW_FRAMEBUFFER, GL, READ_FRAMEBUFFER
from splatview_ipc.gl.sources import set_uniform
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import VERTEX
from splatview_viewer.kinds.snapshot.painting import Painting, paint
from splatview_viewer.kinds.snapshot.timeline.index import Peaks
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.core.settings import Color
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.painting import Material, Sheet
    from splatview_viewer.kinds.snapshot.state import Look
    from splatview_viewer.kinds.snapshot.world import Window

_COLOR_BUFFER_BIT, _NEAREST = 0x4000, 0x2600
_AT_ONCE, _AT_ONCE_SOFTWARE = 0.02, 0.07
"""Seconds for which a drawing waits for the picture that it shows: most are there by then. The second where stretching
an older one is the processor's work, and takes as long."""
RESERVED: Color = (0.098, 0.108, 0.127)
EDGE: Color = (0.30, 0.335, 0.40)
"""Bytes that are reserved and not live, and the line where they end."""


def program(ctx: moderngl.Context, name: str) -> moderngl.VertexArray:
    """Return a vertex array that draws with a shader of this folder over a viewport."""
    source = files("splatview_viewer.kinds.snapshot").joinpath(f"{name}.glsl").read_text()
    made = ctx.program(vertex_shader=VERTEX, fragment_shader="#version 330\n" + source)
    return ctx.vertex_array(made, [])


class Plot:
    """One user's picture. Every call comes from the thread that holds the context; `draw` waits a moment at most."""

    def __init__(self, ctx: moderngl.Context, work: GpuWork, wake: Callable[[], None] = lambda: None) -> None:
        """`wake`: called from a thread when a picture is painted."""
        self.error = ""
        """Why the picture cannot be painted."""
        self.shown: Painting | None = None
        """What the textures hold."""
        self.ms: dict[str, float] = {}
        self._ctx = ctx
        self._work = work
        self._jobs = Jobs("picture", wake)
        self._job: Job[Painting] | None = None
        self._job_of: Sheet | None = None
        self._wanted: Sheet | None = None
        self._array: moderngl.VertexArray | None = None
        self._textures: dict[str, moderngl.Texture] = {}
        self._framebuffer: moderngl.Framebuffer | None = None
        """Over the texture of colours."""
        self._ids_of: Painting | None = None
        """Whose ids the texture of ids holds."""
        self._boxes: dict[int, tuple[int, int, int, int] | None] = {}
        """Where allocations are in the picture shown: columns and rows of its canvas from and to."""

    # -- what is painted -----------------------------------------------------------------------------------------

    def want(self, sheet: Sheet, material: Material) -> None:
        """Have this painted, and take over what is done. Waits for it a moment."""
        self._wanted = sheet
        self._take()
        if self._job_of is not None and (self._job_of.world, self._job_of.colors) != (sheet.world, sheet.colors):
            self._cancel()
        for _ in range(2):  # first an older one may have to be done
            if self.shown is not None and self.shown.sheet == sheet:
                return
            if self._job is None:
                self._job_of = sheet
                self._job = self._jobs.submit(lambda job, before=self.shown: paint(sheet, material, before,
                                                                                   lambda: job.cancelled))
            if not self._job.wait(_AT_ONCE_SOFTWARE if self._work.software else _AT_ONCE):
                return
            self._take()
            if self.error:
                return

    def _cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()
        self._job = self._job_of = None

    def _take(self) -> None:
        """Upload what is done."""
        job = self._job
        if job is None or not job.done:
            return
        self._job = self._job_of = None
        self.error = job.fault
        if self.error:
            return
        since = time.perf_counter()
        self.shown = job.result()
        self._upload("u_rows", self.shown.rows, "f1", 4)
        self._boxes.clear()
        self.ms["upload"] = (time.perf_counter() - since) * 1e3
        self.ms["paint"] = self.shown.seconds * 1e3

    def _upload(self, name: str, array: np.ndarray, dtype: str, components: int) -> None:
        size = array.shape[1], array.shape[0]
        texture = self._textures.get(name)
        if texture is None or texture.size != size:
            if texture is not None:
                texture.release()
            if name == "u_rows" and self._framebuffer is not None:
                self._framebuffer.release()
                self._framebuffer = None
            texture = self._textures[name] = self._ctx.texture(size, components, dtype=dtype, alignment=4)
            texture.filter = moderngl.NEAREST, moderngl.NEAREST
        texture.write(np.ascontiguousarray(array))

    @property
    def complete(self) -> bool:
        """True if the wanted picture is shown, or cannot be."""
        return self._wanted is None or bool(self.error) or (
            self.shown is not None and self.shown.sheet == self._wanted)

    def tick(self) -> bool:
        """Return True if drawing again would show more."""
        return self._job.done if self._job is not None else not self.complete

    # -- drawing -------------------------------------------------------------------------------------------------

    def draw(self, framebuffer: moderngl.Framebuffer, window: Window, look: Look, line: int) -> None:
        """Draw what there is of the world in `window`: as it should be, or what was painted before, stretched. What is
        under the pointer or selected is lifted out, by outlines of `line` pixels."""
        painted, rect = self.shown, window.rect
        if painted is None or self._wanted is None or painted.sheet.world != self._wanted.world:
            framebuffer.clear(*look.settings.background, 1.0, viewport=rect.viewport(framebuffer.height))
            return
        s = painted.sheet
        place = (window.step / s.step, (window.x0 - s.x0) / s.step,
                 window.per_pixel / s.per_pixel, (window.y0 - s.low) / s.per_pixel)
        exact = ((s.width, s.height) == (rect.width, rect.height) and abs(place[0] - 1) < 1e-6 and abs(place[1]) < 1e-3
                 and abs(place[2] - 1) < 1e-6 and abs(place[3]) < 1e-3)
        with self._work("timeline", rect.width, rect.height, exact):
            if exact and framebuffer.samples == 0:
                self._copy(framebuffer, rect)
                for allocation in {look.hovered, look.selected}:
                    if allocation is not None and (part := self._part(allocation, rect)) is not None:
                        self._shade(framebuffer, window, look, line, (1.0, 0.0, 1.0, 0.0), part)
            else:
                self._shade(framebuffer, window, look, line, (1.0, 0.0, 1.0, 0.0) if exact else place, rect)

    def _copy(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """The picture as it is: much quicker than any shader where the processor draws."""
        gl = GL.current()
        if self._framebuffer is None:
            self._framebuffer = self._ctx.framebuffer([self._textures["u_rows"]])
        x, y, w, h = rect.viewport(framebuffer.height)
        gl.glBindFramebuffer(READ_FRAMEBUFFER, self._framebuffer.glo)
        gl.glBindFramebuffer(DRAW_FRAMEBUFFER, framebuffer.glo)
        gl.glBlitFramebuffer(0, 0, w, h, x, y, x + w, y + h, _COLOR_BUFFER_BIT, _NEAREST)
        framebuffer.use()  # tells moderngl what is bound

    def _part(self, allocation: int, rect: Rect) -> Rect | None:
        """Return the part of an allocation in `rect`; None: nowhere."""
        assert self.shown is not None
        canvas = self.shown.canvas
        if allocation not in self._boxes:
            found = canvas.ids == allocation
            columns, rows = np.flatnonzero(found.any(axis=1)), np.flatnonzero(found.any(axis=0))
            self._boxes[allocation] = (
                int(columns[0]), int(columns[-1]) + 1, int(rows[0]), int(rows[-1]) + 1) if len(columns) else None
        box = self._boxes[allocation]
        if box is None:
            return None
        # The canvas' lowest row lies on the rectangle's, its highest one may be cut.
        spare = canvas.height - rect.height
        left, right = box[0], min(box[1], rect.width)
        top, bottom = max(box[2] - spare, 0), box[3] - spare
        return Rect(rect.x + left, rect.y + top, right - left, bottom - top) if bottom > top else None

    def _shade(self, framebuffer: moderngl.Framebuffer, window: Window, look: Look, line: int,
               place: tuple[float, float, float, float], part: Rect) -> None:
        """Draw `part` of the window's rectangle."""
        rect, painted = window.rect, self.shown
        assert painted is not None
        array = self._array = self._array or program(self._ctx, "timeline")
        hovered, selected = (-1 if number is None else number for number in (look.hovered, look.selected))
        if max(hovered, selected) >= 0 and self._ids_of is not painted:
            self._upload("u_ids", painted.canvas.ids, "i4", 1)
            self._ids_of = painted
        elif "u_ids" not in self._textures:
            self._upload("u_ids", np.full((1, 1), -1, np.int32), "i4", 1)
        s = painted.sheet
        uniforms: dict[str, Any] = {
            "u_corner": (float(rect.x), float(framebuffer.height - rect.y - rect.height)), "u_place": place,
            "u_sheet": (s.width, s.height), "u_ground": look.settings.background,
            "u_hovered": hovered, "u_selected": selected, "u_line": line,
        }
        for name, value in uniforms.items():
            set_uniform(array.program, name, value)
        for unit, name in enumerate(("u_rows", "u_ids")):
            set_uniform(array.program, name, unit)
            self._textures[name].use(unit)
        framebuffer.viewport = part.viewport(framebuffer.height)
        array.render(moderngl.TRIANGLES, vertices=3)

    def moment_at(self, window: Window, px: float) -> int | None:
        """The moment that the column under a point of the screen shows; None while nothing is painted there."""
        painted = self.shown
        if painted is None or self._wanted is None or painted.sheet.world != self._wanted.world:
            return None
        return painted.moment_at(window.x_at(math.floor(px) + 0.5))

    def drop(self) -> None:
        """Give back the picture and its textures. Idempotent."""
        self._cancel()
        self.shown = self._wanted = self._ids_of = None
        self._boxes.clear()
        if self._framebuffer is not None:
            self._framebuffer.release()
            self._framebuffer = None
        for texture in self._textures.values():
            texture.release()
        self._textures.clear()

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self.drop()
        if self._array is not None:
            self._array.program.release()
            self._array.release()
            self._array = None


GROUND: Color = (0.075, 0.081, 0.093)
_LIVE: Color = (0.31, 0.41, 0.54)


class Minimap:
    """Every call comes from the thread that holds the context."""

    def __init__(self, ctx: moderngl.Context, work: GpuWork) -> None:
        self._ctx = ctx
        self._work = work
        self._array: moderngl.VertexArray | None = None
        self._texture: moderngl.Texture | None = None

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect, content: Content, look: Look) -> None:
        """Draw into `rect`: the ground alone while nothing is laid out."""
        curves = self._curves(rect, content, look)
        axis = content.axis(look.device, look.settings.unit)
        if curves is None or axis is None:
            framebuffer.clear(*GROUND, 1.0, viewport=rect.viewport(framebuffer.height))
            return
        array = self._array = self._array or program(self._ctx, "strip")
        if self._texture is None or self._texture.size != (rect.width, 1):
            self.drop()
            self._texture = self._ctx.texture((rect.width, 1), 2, dtype="f4")
            self._texture.filter = moderngl.NEAREST, moderngl.NEAREST
        self._texture.write(np.ascontiguousarray(curves))
        pixels = np.subtract(look.x or axis.extent, axis.extent[0]) * rect.width / (axis.extent[1] - axis.extent[0])
        spare = max(2.0 - (pixels[1] - pixels[0]), 0.0) / 2  # at least two pixels wide
        uniforms: dict[str, Any] = {
            "u_curves": 0, "u_corner": (float(rect.x), float(framebuffer.height - rect.y)),
            "u_size": (float(rect.width), float(rect.height)), "u_window": (pixels[0] - spare, pixels[1] + spare),
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
        curve = content.reserved(device) if reserved else None
        if axis is None or bands is None:
            return None

        def work() -> np.ndarray:
            edges = axis.edges(*axis.extent, rect.width)
            live = bands.peaks.most(edges).astype(np.float64)
            held = Peaks(curve).most(edges).astype(np.float64) if curve is not None else np.zeros(len(live))
            top = max(float(live.max(initial=0)), float(held.max(initial=0)), 1.0) * 1.06
            return (np.stack([live, held], axis=1) * (rect.height / top)).astype(np.float32)

        key = ("minimap", device, unit, rect.width, rect.height, curve is not None)
        return content.ask(key, work, slot="minimap", lane="layout")

    def drop(self) -> None:
        """Give back what is made again when it is drawn. Idempotent."""
        if self._texture is not None:
            self._texture.release()
            self._texture = None

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self.drop()
        if self._array is not None:
            self._array.program.release()
            self._array.release()
            self._array = None
