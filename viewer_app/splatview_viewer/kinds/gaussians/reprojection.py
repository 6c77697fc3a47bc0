"""A picture moved to where the camera is by now: a mesh over it, each corner at its depth, seen by the other camera."""

from __future__ import annotations

import math
from importlib.resources import files
from typing import TYPE_CHECKING

import moderngl
import numpy as np

from splatview_ipc.gl.base import fragment_head
from splatview_ipc.gl.sources import set_uniform
from splatview_viewer.core.view import VERTEX
from splatview_viewer.geometry.cameras import MODELS
from splatview_viewer.render.base import FAINT
from splatview_viewer.render.gl.textures import texture_source
from splatview_viewer.render.gsplat.warp_rules import CELL, EDGE, cell_of

if TYPE_CHECKING:
    from splatview_ipc.gl.base import PixelSource
    from splatview_ipc.gl.sources import TextureSource
    from splatview_viewer.geometry.cameras import Camera

_RING = 0.75
"""How far a picture's edges go on beyond it, in its widths and heights."""


class Surface:
    """Where the things in a picture are: inverse depth on a coarse grid, in a texture of its own, so that neither the
    picture's depth nor the renderer that made it has to stay."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._programs: dict[tuple[str, ...], moderngl.VertexArray] = {}
        self._framebuffer: moderngl.Framebuffer | None = None
        self.cell = float(CELL)
        """Pixels of the picture from corner to corner."""

    @property
    def grid(self) -> moderngl.Texture | None:
        """1 / depth at the corners, float32; 0 where nothing is."""
        return None if self._framebuffer is None else self._framebuffer.color_attachments[0]  # type: ignore[return-value]

    def take(self, depth: PixelSource) -> None:
        """Of a picture of one channel: expected depth along the line of sight, 0 where nothing is."""
        array = self._program(depth.defines)
        self._begin(depth.size)
        depth.bind(array.program)
        self._draw(array)

    def take_textures(self, color: moderngl.Texture, depth: moderngl.Texture) -> None:
        """Of a picture with alpha and its accumulated depth, in the first channel."""
        array = self._program(("TEXTURES",))
        self._begin(color.size)
        for unit, (name, texture) in enumerate((("u_color", color), ("u_depth", depth))):
            texture.use(unit)
            array.program[name] = unit
        self._draw(array)

    def _begin(self, size: tuple[int, int]) -> None:
        self.cell = cell_of(*size)
        extent = math.ceil(size[0] / self.cell) + 1, math.ceil(size[1] / self.cell) + 1
        if self._framebuffer is None or self._framebuffer.size != extent:
            self.close_grid()
            texture = self._ctx.texture(extent, 1, dtype="f4", alignment=1)
            texture.filter = moderngl.NEAREST, moderngl.NEAREST
            self._framebuffer = self._ctx.framebuffer([texture])

    def _draw(self, array: moderngl.VertexArray) -> None:
        for name, value in (("u_cell", self.cell), ("u_edge", EDGE), ("u_faint", FAINT)):
            set_uniform(array.program, name, value)
        with self._ctx.scope(self._framebuffer, moderngl.NOTHING):
            array.render(moderngl.TRIANGLES, vertices=3)

    def _program(self, defines: tuple[str, ...]) -> moderngl.VertexArray:
        if defines not in self._programs:
            text = _text("warp_grid.glsl")
            head = "#version 330\n#define TEXTURES\n" if defines == ("TEXTURES",) else fragment_head(defines)
            program = self._ctx.program(vertex_shader=VERTEX, fragment_shader=head + text)
            self._programs[defines] = self._ctx.vertex_array(program, [])
        return self._programs[defines]

    def close_grid(self) -> None:
        """Know nothing. Idempotent."""
        grid = self.grid
        if self._framebuffer is not None and grid is not None:
            self._framebuffer.release()
            grid.release()
        self._framebuffer = None

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self.close_grid()
        _release(self._programs)


class Warp:
    """Moves one picture at a time.

    What the picture does not show is filled from beside it: behind an edge with what lies behind the near thing, beyond
    the picture with its edge, softened.
    """

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._programs: dict[tuple[str, ...], moderngl.VertexArray] = {}
        self._mesh: tuple[tuple[int, int], moderngl.Buffer] | None = None
        self._flat: moderngl.Texture | None = None
        self._target: moderngl.Framebuffer | None = None
        self._source: TextureSource | None = None

    def take(self, source: PixelSource, surface: Surface | None, seen: Camera, camera: Camera,
             middle: float) -> TextureSource:
        """The picture as `camera` sees it, four channels of float16, valid until the next `take`.

        Args:
            source: the picture: four channels, colour premultiplied by alpha.
            surface: where its things are; None: all of them at `middle`.
            seen: the camera that took it.
            camera: the one that looks now; what comes back has its size.
            middle: how far away the scene's middle is from `seen`, world units, more than 0.
        """
        known = surface.grid if surface is not None else None
        grid = known or self._plain()
        columns, rows = grid.width + 2, grid.height + 2
        array = self._array(source.defines, (columns, rows))
        program = array.program
        there = camera.viewmat @ np.linalg.inv(seen.viewmat)
        values = {
            "u_columns": columns, "u_from_size": (seen.width, seen.height),
            "u_to_size": (camera.width, camera.height),
            "u_cell": surface.cell if surface is not None and known else float(max(seen.width, seen.height)),
            "u_rotation": there[:3, :3].T.ravel().tolist(), "u_translation": there[:3, 3].tolist(),
            "u_plane": 0.0 if known else middle,
            "u_nowhere": middle,  # no matter, as nothing is seen there; so that nothing is drawn out to it
            "u_near": camera.near, "u_ring": _RING,
        }
        for name, c in (("from", seen), ("to", camera)):
            values |= {f"u_{name}_focal": (c.K[0, 0], c.K[1, 1]), f"u_{name}_center": (c.K[0, 2], c.K[1, 2]),
                       f"u_{name}_model": MODELS.index(c.model)}
        for name, value in values.items():
            set_uniform(program, name, value)
        source.bind(program, 1)
        grid.use(0)
        set_uniform(program, "u_grid", 0)
        target = self._room((camera.width, camera.height))
        with self._ctx.scope(target, moderngl.DEPTH_TEST):
            target.depth_mask = True
            target.clear(depth=1.0)
            array.render(moderngl.TRIANGLES, vertices=6 * (columns - 1) * (rows - 1))
        assert self._source is not None
        return self._source

    def _plain(self) -> moderngl.Texture:
        """The grid of a picture of which nothing is known: its four corners."""
        if self._flat is None:
            self._flat = self._ctx.texture((2, 2), 1, data=bytes(16), dtype="f4", alignment=1)
            self._flat.filter = moderngl.NEAREST, moderngl.NEAREST
        return self._flat

    def _array(self, defines: tuple[str, ...], size: tuple[int, int]) -> moderngl.VertexArray:
        """The program for such a picture, over a mesh of so many corners."""
        if self._mesh is None or self._mesh[0] != size:
            programs = {known: array.program for known, array in self._programs.items()}
            for array in self._programs.values():
                array.release()
            if self._mesh is not None:
                self._mesh[1].release()
            self._mesh = size, self._ctx.buffer(_triangles(*size))
            self._programs = {known: self._over_mesh(program) for known, program in programs.items()}
        if defines not in self._programs:
            program = self._ctx.program(vertex_shader=_text("warp.vert"),
                                        fragment_shader=fragment_head(defines) + _text("warp.glsl"))
            self._programs[defines] = self._over_mesh(program)
        return self._programs[defines]

    def _over_mesh(self, program: moderngl.Program) -> moderngl.VertexArray:
        assert self._mesh is not None
        return self._ctx.vertex_array(program, [], index_buffer=self._mesh[1], index_element_size=4)

    def _room(self, size: tuple[int, int]) -> moderngl.Framebuffer:
        if self._target is None or self._target.size != size:
            self._drop_room()
            texture = self._ctx.texture(size, 4, dtype="f2", alignment=1)
            texture.filter = moderngl.NEAREST, moderngl.NEAREST
            self._target = self._ctx.framebuffer([texture], self._ctx.depth_renderbuffer(size))
            self._source = texture_source(texture)
        return self._target

    def _drop_room(self) -> None:
        if self._target is not None and self._source is not None:
            depth = self._target.depth_attachment
            self._target.release()
            self._source.texture.release()
            if depth is not None:
                depth.release()
        self._target = self._source = None

    def drop(self) -> None:
        """Give back what depends on the picture's size. Idempotent."""
        self._drop_room()
        _release(self._programs)
        if self._mesh is not None:
            self._mesh[1].release()
            self._mesh = None

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self.drop()
        if self._flat is not None:
            self._flat.release()
            self._flat = None


def _triangles(columns: int, rows: int) -> bytes:
    """Two for each cell of a mesh, as numbers of corners, row by row."""
    corner = np.arange(columns * rows, dtype=np.uint32).reshape(rows, columns)
    a, b, c, d = corner[:-1, :-1], corner[:-1, 1:], corner[1:, :-1], corner[1:, 1:]
    return np.stack([a, b, c, c, b, d], axis=-1).tobytes()


def _release(programs: dict[tuple[str, ...], moderngl.VertexArray]) -> None:
    for array in programs.values():
        array.program.release()
        array.release()
    programs.clear()


def _text(name: str) -> str:
    return files("splatview_viewer.kinds.gaussians").joinpath(f"{name}").read_text(encoding="utf-8")
