"""Pictures with depth as another camera sees them, while the next one is drawn.

A picture is cut into cells, whose corners are put where their depth says. Where
something comes to light that the picture does not show, the cells beside it are stretched
over it: their corners lie a little beyond the edge of what is in front, so that it is the
colours behind it that are stretched.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import moderngl
import numpy as np

from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.geometry.cameras import MODELS
from splatview_viewer.render.gl.passes import Pass, RenderTarget

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.geometry.cameras import Camera

_MIN_CELL = 4
"""Pixels from corner to corner of the cells, at least."""
_MAX_CORNERS = 60_000
_FEW_CORNERS = 8_000
"""More than this many are never made: cells are larger then. The latter is for a
processor, which takes a microsecond for each triangle."""
_RING = 1.5
"""Size of the ring of cells around a picture, as a share of the picture's."""
_FAR = 1e4
"""Depth of what is not there, in distances of the scene."""
_MIN_TURN_COSINE = 0.7
"""Cosine of the turn from which on a picture shows too little of what is seen now."""


class _Passes(NamedTuple):
    """The passes that move a picture, one after the other."""

    find_corners: Pass
    move: Pass
    show: Pass


class _MovedTarget(NamedTuple):
    """Textures of a moved picture, and the framebuffer that writes them."""

    colors: moderngl.Texture
    distances: moderngl.Renderbuffer
    framebuffer: moderngl.Framebuffer


class MovedPicture:
    """Moves one picture at a time. Belongs to the thread that holds the context."""

    def __init__(self, ctx: moderngl.Context, *, has_few_cells: bool = False) -> None:
        """Start without a picture.

        Args:
            ctx: OpenGL's context.
            has_few_cells: a processor draws, and no graphics card.
        """
        self._ctx = ctx
        self._max_corners = _FEW_CORNERS if has_few_cells else _MAX_CORNERS
        self._passes: _Passes | None = None
        """None: not compiled yet."""
        self._grid: RenderTarget | None = None
        """How near the corners of the picture's cells are."""
        self._target: _MovedTarget | None = None

    def take(self, depth: np.ndarray | moderngl.Texture) -> None:
        """Take the depth of the picture that is moved from now on.

        It is camera z, (H, W) float32, row 0 at the top. Where it is not over 0, or not
        finite, nothing is.
        """
        if isinstance(depth, np.ndarray):
            size = (depth.shape[1], depth.shape[0])
            pixels = np.ascontiguousarray(depth, np.float32).tobytes()
            texture = self._ctx.texture(size, 1, pixels, alignment=1, dtype="f4")
            self._write_grid(texture)
            texture.release()
        else:
            self._write_grid(depth)

    def _write_grid(self, depth: moderngl.Texture) -> None:
        """Find how near the corners of the cells are, by the depth of each pixel."""
        cell = self._cell_of(depth.size)
        size = (ceil_div(depth.width, cell) + 1, ceil_div(depth.height, cell) + 1)
        if self._grid is None or self._grid.size != size:
            self._drop_grid()
            self._grid = RenderTarget(self._ctx, size, inverse=(1, "f4"))
        find = self._compiled.find_corners
        find.bind_textures(depth=depth)
        find.set_uniforms(cell=float(cell))
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        with self._ctx.scope(self._grid.framebuffer, moderngl.NOTHING):
            find.draw_fullscreen()

    def draw(
        self,
        framebuffer: moderngl.Framebuffer,
        rect: Rect,
        colors: moderngl.Texture,
        cameras: tuple[Camera, Camera],
        middle: float,
        background: tuple[float, float, float],
    ) -> None:
        """Draw what a camera sees of the picture into a part of a framebuffer.

        Args:
            framebuffer: the target.
            rect: the part, every pixel of which is drawn once.
            colors: the picture's, multiplied by alpha, row 0 at the top, with mipmaps.
            cameras: the one that took the picture, of its size; the one that looks now,
                of the size of `rect`. Both are of one model.
            middle: distance of the scene on the whole, more than 0.
            background: RGB in [0, 1], seen where the picture is transparent.
        """
        assert self._grid is not None, "the picture's depth is taken first"
        self._move(self._grid.textures["inverse"], colors, cameras, middle)
        show = self._compiled.show
        show.bind_textures(photo=self._target_of(rect.width, rect.height).colors)
        viewport = rect.viewport(framebuffer.height)
        show.set_uniforms(corner=viewport[:2], size=viewport[2:], background=background)
        framebuffer.use()
        framebuffer.viewport = viewport
        show.draw_fullscreen()

    def _move(
        self,
        grid: moderngl.Texture,
        colors: moderngl.Texture,
        cameras: tuple[Camera, Camera],
        middle: float,
    ) -> None:
        """Draw the cells of the picture into the target, each where it is seen now."""
        picture_camera, camera = cameras
        size = (picture_camera.width, picture_camera.height)
        motion = camera.viewmat @ np.linalg.inv(picture_camera.viewmat)
        is_ortho = camera.model == "ortho"
        move = self._compiled.move
        colors.filter = moderngl.LINEAR, moderngl.LINEAR
        move.bind_textures(grid=grid, photo=colors)
        move.set_uniforms(
            cell=float(self._cell_of(size)),
            picture_size=size,
            ring=(_RING * size[0], _RING * size[1]),
            from_lens=_lens(picture_camera),
            to_lens=_lens(camera),
            to_size=(camera.width, camera.height),
            motion=tuple(motion.T.ravel().tolist()),
            model=MODELS.index(camera.model),
            near_limit=camera.near,
            nowhere=middle if is_ortho else _FAR * middle,
        )
        framebuffer = self._target_of(camera.width, camera.height).framebuffer
        framebuffer.use()
        framebuffer.clear()
        self._ctx.disable(moderngl.BLEND | moderngl.CULL_FACE)
        self._ctx.enable(moderngl.DEPTH_TEST)
        cells = (grid.width + 1) * (grid.height + 1)
        move.vao.render(moderngl.TRIANGLES, vertices=6 * cells)
        self._ctx.disable(moderngl.DEPTH_TEST)

    @property
    def _compiled(self) -> _Passes:
        if self._passes is None:
            ctx = self._ctx
            self._passes = _Passes(
                Pass(ctx, "fullscreen.vert", "corners.frag"),
                Pass(ctx, "moved.vert", "moved.frag"),
                Pass(ctx, "fullscreen.vert", "photo.frag"),
            )
        return self._passes

    def _cell_of(self, size: tuple[int, int]) -> int:
        """Return the pixels from corner to corner of the cells of a picture."""
        corners = math.prod(size) / self._max_corners
        return max(_MIN_CELL, math.ceil(math.sqrt(corners)))

    def _target_of(self, width: int, height: int) -> _MovedTarget:
        if self._target is None or self._target.colors.size != (width, height):
            self._release_target()
            colors = self._ctx.texture((width, height), 4)
            colors.filter = moderngl.NEAREST, moderngl.NEAREST
            distances = self._ctx.depth_renderbuffer((width, height))
            framebuffer = self._ctx.framebuffer([colors], distances)
            self._target = _MovedTarget(colors, distances, framebuffer)
        return self._target

    def _release_target(self) -> None:
        if self._target is not None:
            for resource in self._target:
                resource.release()
        self._target = None

    def _drop_grid(self) -> None:
        if self._grid is not None:
            self._grid.release()
        self._grid = None

    def drop(self) -> None:
        """Release the picture, whose depth is taken again then. Idempotent."""
        self._release_target()
        self._drop_grid()

    def close(self) -> None:
        """Release everything. Idempotent."""
        self.drop()
        if self._passes is not None:
            for compiled in self._passes:
                compiled.release()
        self._passes = None


def can_be_moved(picture_camera: Camera, camera: Camera) -> bool:
    """Return whether a picture shows enough of what another camera sees."""
    if picture_camera.model != camera.model:
        return False
    rotation = picture_camera.viewmat[:3, :3].T @ camera.viewmat[:3, :3]
    return float(np.trace(rotation)) >= 1 + 2 * _MIN_TURN_COSINE


def _lens(camera: Camera) -> tuple[float, float, float, float]:
    """Return fx, fy, cx and cy of a camera."""
    K = camera.K
    return float(K[0, 0]), float(K[1, 1]), float(K[0, 2]), float(K[1, 2])
