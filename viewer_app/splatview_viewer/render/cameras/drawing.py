"""Draws the frustums of a training's cameras, with their photographs in small: two draws, however many there are."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import moderngl
import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.geometry.cameras import MODELS, bounds, project
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.training_cameras import CameraSet
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.render.cameras.content import PhotoStore

ATLAS = 2048
"""Width of the texture that holds all small photographs, and its largest height, in pixels."""
_LEVELS = 4
"""In which it is halved, so that nothing flickers that is far away."""
_AT_A_TIME = 24
"""Small photographs that are brought to the GPU for one picture."""
_ROW = 5

Color = tuple[float, float, float, float]


@dataclass(frozen=True)
class Look:
    """Style of frustums."""

    color: Color
    marked_color: Color
    current_color: Color
    depth: float
    """Length: distance of the photographs from the camera, world units."""
    width: float = 1.5
    """Width of lines, pixels."""
    marked: int = -1
    """A camera that stands out."""
    current: int = -1
    pictures: bool = True
    opacity: float = 0.9
    """Opacity of the photographs."""


@dataclass(frozen=True)
class Grid:
    """Grid of small photographs, in pixels."""

    columns: int
    cell: tuple[float, float]
    """A photograph with the gap beside and below it."""
    gap: float
    scroll: float = 0.0
    """Pixels above the upper edge."""

    def seen(self, height: int, count: int) -> tuple[int, int]:
        """The first camera of `count` that is seen in this height, and how many are."""
        top = max(int((self.scroll - self.gap) / self.cell[1]), 0)
        bottom = int((self.scroll + height) / self.cell[1]) + 1
        first = min(top * self.columns, count)
        return first, min(bottom * self.columns, count) - first

    def height(self, count: int) -> float:
        """Height of all rows."""
        return -(-count // self.columns) * self.cell[1] + self.gap

    def place(self, number: int) -> tuple[float, float, float, float]:
        """x, y, width and height of one, from the upper left of what is seen."""
        row, column = divmod(number, self.columns)
        return (column * self.cell[0] + self.gap, row * self.cell[1] + self.gap - self.scroll,
                self.cell[0] - self.gap, self.cell[1] - self.gap)

    def at(self, x: float, y: float, count: int) -> int | None:
        """Which one lies under a pixel."""
        column, row = int((x - self.gap) // self.cell[0]), int((y + self.scroll - self.gap) // self.cell[1])
        number = row * self.columns + column
        if not (0 <= column < self.columns and row >= 0 and number < count):
            return None
        left, top, width, height = self.place(number)
        return number if left <= x < left + width and top <= y < top + height else None


def side_of(count: int) -> int:
    """Pixels along the side of small photographs, so that all fit into the atlas."""
    side = 128
    while (ATLAS // side) ** 2 < count and side > 8:
        side //= 2
    return side


class FrustumDrawing:
    """GPU data shared by all views of the same cameras. Belongs to the thread that holds the context."""

    def __init__(self, ctx: moderngl.Context, work: GpuWork) -> None:
        self._ctx = ctx
        self._work = work
        self._cameras: CameraSet | None = None
        self._table: moderngl.Texture | None = None
        self._atlas: moderngl.Texture | None = None
        self._order: moderngl.Buffer | None = None
        self._ordered = b""
        """From where it was looked when they were sorted."""
        self._flags = np.zeros((0, 4), np.float32)
        self._side = 128
        self._fade = (1.0, 2.0)
        self._origin = np.zeros(3)
        self._arrays: dict[str, moderngl.VertexArray] = {}

    def use(self, cameras: CameraSet, photos_stay: bool) -> None:
        """Draw these from now on. `photos_stay`: with the small photographs that there are."""
        if self._cameras is cameras:
            return
        count = len(cameras)
        if not photos_stay or self._cameras is None or len(self._cameras) != count:
            self._flags = np.zeros((count, 4), np.float32)
        self._side = side_of(count)
        self._flags[:, 1] = cameras.fine
        table = np.zeros((count, _ROW, 4), np.float32)
        views = np.where(cameras.fine[:, None, None], cameras.viewmats, np.eye(4))
        table[:, :3, :3] = views[:, :3, :3].transpose(0, 2, 1)
        self._origin = np.median(cameras.positions[cameras.fine], 0) if cameras.fine.any() else np.zeros(3)
        table[:, :3, 3] = cameras.positions - self._origin  # float32 would lose the detail of places far away
        table[:, 3] = cameras.extents
        table[:, 4] = self._flags
        if self._table is None or self._table.height != count:
            self._release_table()
            if count:
                self._table = self._ctx.texture((_ROW, count), 4, dtype="f4")
                self._table.filter = moderngl.NEAREST, moderngl.NEAREST
                self._order = self._ctx.buffer(reserve=4 * count, dynamic=True)
        if self._table is not None:
            self._table.write(table.tobytes())
        self._cameras, self._ordered = cameras, b""
        radius = bounds(cameras.positions[cameras.fine])[1] if cameras.fine.any() else 1.0
        self._fade = 1.5 * radius, 6.0 * radius

    def take_small(self, photos: PhotoStore) -> bool:
        """Bring small photographs that came to the GPU. True if there were any."""
        photos.want_small(self._side)
        came = photos.take_small(_AT_A_TIME)
        if not came or self._table is None:
            return False
        if self._atlas is None:
            rows = -(-len(self._flags) // (ATLAS // self._side))
            atlas = self._atlas = self._ctx.texture((ATLAS, min(rows * self._side, ATLAS)), 3, alignment=1)
            atlas.filter = moderngl.LINEAR_MIPMAP_LINEAR, moderngl.LINEAR
            atlas.repeat_x = atlas.repeat_y = False
        per_row = ATLAS // self._side
        for number, photo in came:
            if number >= len(self._flags) or photo.shape[:2] != (self._side, self._side):
                continue
            place = number % per_row * self._side, number // per_row * self._side, self._side, self._side
            self._atlas.write(np.ascontiguousarray(photo).tobytes(), place, alignment=1)
            self._flags[number, 0] = 1.0
            self._table.write(self._flags[number].tobytes(), (4, number, 1, 1))
        self._atlas.build_mipmaps(0, _LEVELS)
        return True

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect, camera: Camera, look: Look) -> None:
        """Draw over what is in a part of a framebuffer, as `camera`, of the size of `rect`, sees it."""
        cameras = self._cameras
        if cameras is None or self._table is None or not cameras.fine.any():
            return
        key = camera.viewmat.tobytes()
        if key != self._ordered and self._order is not None:  # far ones are drawn first
            depth = cameras.positions @ camera.viewmat[2, :3]
            self._order.write(np.argsort(-depth).astype(np.int32).tobytes())
            self._ordered = key
        ctx, view = self._ctx, camera.viewmat.copy()
        view[:3, 3] += view[:3, :3] @ self._origin
        values: dict[str, Any] = {
            "u_view": tuple(view.T.ravel()),
            "u_K": (camera.K[0, 0], camera.K[1, 1], camera.K[0, 2], camera.K[1, 2]),
            "u_size": (camera.width, camera.height), "u_model": MODELS.index(camera.model),
            "u_near": max(camera.near, 0.02 * look.depth), "u_depth": look.depth, "u_fade": self._fade,
            "u_opacity": look.opacity, "u_width": look.width,
            "u_color": look.color, "u_marked_color": look.marked_color, "u_current_color": look.current_color,
            "u_marked": look.marked, "u_current": look.current,
        }
        framebuffer.use()
        framebuffer.viewport = rect.viewport(framebuffer.height)
        ctx.disable(moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        ctx.enable(moderngl.BLEND)
        ctx.blend_func = moderngl.ONE, moderngl.ONE_MINUS_SRC_ALPHA
        try:
            self._table.use(0)
            with self._work("frustums", rect.width, rect.height, len(cameras)):
                if look.pictures and self._atlas is not None:
                    self._atlas.use(1)
                    self._render("pictures", values, 6, len(cameras))
                self._render("lines", values, 60, len(cameras))
        finally:
            ctx.disable(moderngl.BLEND)
            ctx.blend_func = moderngl.SRC_ALPHA, moderngl.ONE_MINUS_SRC_ALPHA

    def draw_gallery(self, framebuffer: moderngl.Framebuffer, rect: Rect, grid: Grid, ground: Sequence[float]) -> None:
        """Draw the small photographs in rows, as many as are seen in `rect`. `ground`: RGB of what has not come."""
        cameras = self._cameras
        if cameras is None or self._table is None:
            return
        first, count = grid.seen(rect.height, len(cameras))
        if count < 1:
            return
        framebuffer.use()
        framebuffer.viewport = rect.viewport(framebuffer.height)
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        self._table.use(0)
        if self._atlas is not None:
            self._atlas.use(1)
        values: dict[str, Any] = {
            "u_size": (rect.width, rect.height), "u_cell": grid.cell, "u_gap": grid.gap, "u_scroll": grid.scroll,
            "u_columns": grid.columns, "u_first": first, "u_ground": tuple(ground),
        }
        with self._work("frustums", rect.width, rect.height, count):
            self._render("gallery", values, 6, count)

    def _render(self, which: str, values: dict[str, Any], vertices: int, count: int) -> None:
        if which not in self._arrays:
            folder = files("splatview_viewer.render.cameras")
            common = "uniform int u_per_row;\n" if which == "gallery" else folder.joinpath("common.glsl").read_text()
            text = common + folder.joinpath(f"{which}.glsl").read_text()
            made = self._ctx.program(vertex_shader=f"#version 330\n#define VERTEX\n{text}",
                                     fragment_shader=f"#version 330\n{text}")
            content = [] if which == "gallery" else [(self._order, "1i/i", "a_camera")]
            self._arrays[which] = self._ctx.vertex_array(made, content)
        array = self._arrays[which]
        program = array.program
        values |= {"u_cameras": 0, "u_atlas": 1, "u_per_row": ATLAS // self._side, "u_side": float(self._side),
                   "u_levels": float(min(_LEVELS, self._side.bit_length() - 1))}
        for name in program:
            if name in values:
                program[name] = values[name]
        array.render(moderngl.TRIANGLES, vertices=vertices, instances=count)

    def _release_table(self) -> None:
        for array in self._arrays.values():
            array.program.release()
            array.release()
        self._arrays.clear()  # they read from the buffer
        for held in (self._table, self._order, self._atlas):
            if held is not None:
                held.release()
        self._table = self._order = self._atlas = None

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._release_table()
        self._cameras = None


_LINE = 22.0
"""Points of height for a name below a photograph."""


def title(name: str, trouble: str, rect: Rect, scale: float) -> None:
    """Write the open photograph's name and trouble."""
    gap = 12 * scale
    tag(name, rect.x + gap, rect.y + gap, rect)
    if trouble:
        tag(trouble, rect.x + gap, rect.y + gap + 1.9 * imgui.get_text_line_height(), rect)


def named(cameras: CameraSet, number: int, camera: Camera, depth: float, rect: Rect) -> None:
    """Write the name of the camera under the pointer, below it."""
    scale = theme.scale()
    points = project(camera, cameras.outline(number, depth))
    if np.isfinite(points).all():
        (x, _), (_, y) = points.min(0), points.max(0)
        if 0 <= x < rect.width and 0 <= y < rect.height:
            tag(cameras.called(number), rect.x + x, rect.y + y + 6 * scale, rect)


def rows(cameras: CameraSet, grid: Grid, rect: Rect, marked: tuple[int | None, int | None], scale: float) -> None:
    """Frames around the photograph under the pointer and the one that is trained with; a bar that says how far down one
    is."""
    draw, count = imgui.get_background_draw_list(), len(cameras)
    draw.push_clip_rect(ImVec2(rect.x, rect.y), ImVec2(rect.x + rect.width, rect.y + rect.height), True)
    for number, color in zip(marked[::-1], (theme.ALIVE, theme.ACCENT), strict=True):
        if number is None or number >= count:
            continue
        x, y, width, height = grid.place(number)
        edge = 1.5 * scale
        draw.add_rect(ImVec2(rect.x + x - edge, rect.y + y - edge),
                      ImVec2(rect.x + x + width + edge, rect.y + y + height + edge), theme.u32(color),
                      rounding=2 * scale, thickness=2 * scale)
    hovered = marked[0]
    if hovered is not None and hovered < count:
        x, y, width, height = grid.place(hovered)
        below = y + height - (_LINE + 4) * scale
        tag(cameras.called(hovered), rect.x + x + 4 * scale, rect.y + below, rect)
    whole = grid.height(count)
    if whole > rect.height:
        share = rect.height / whole
        top = rect.y + grid.scroll / whole * rect.height
        right = rect.x + rect.width - 3 * scale
        draw.add_rect_filled(ImVec2(right - 4 * scale, top),
                             ImVec2(right, top + max(share * rect.height, 20 * scale)), theme.u32(theme.DIM, 0.8),
                             2 * scale)
    draw.pop_clip_rect()


class Outlines:
    """Frustums' outlines on the screen, kept until the camera moves."""

    def __init__(self) -> None:
        self._of: CameraSet | None = None
        self._key: tuple[object, ...] = ()
        self._corners = np.empty((0, 4, 2))
        self._centres = np.empty((0, 2))
        self._depths = np.empty(0)

    def at(self, cameras: CameraSet, camera: Camera, depth: float, x: float, y: float, reach: float) -> int | None:
        """The nearest camera whose picture, at `depth` in front of it, or whose centre, within `reach` pixels, lies
        under a pixel of `camera`'s picture."""
        key = camera.key, depth
        if key != self._key or cameras is not self._of:
            self._key, self._of = key, cameras
            e, count = cameras.extents * depth, len(cameras)
            local = np.stack([e[:, [0, 1]], e[:, [2, 1]], e[:, [2, 3]], e[:, [0, 3]]], 1)
            local = np.concatenate([local, np.full((count, 4, 1), depth)], 2)
            turn = np.where(cameras.fine[:, None, None], cameras.viewmats[:, :3, :3], np.eye(3))
            self._corners = project(camera, local @ turn + cameras.positions[:, None])
            self._centres = project(camera, cameras.positions)
            self._depths = np.linalg.norm(cameras.positions - camera.position, axis=1)
        off = self._corners - (x, y)
        ahead = np.roll(off, -1, 1)
        turns = off[..., 0] * ahead[..., 1] - off[..., 1] * ahead[..., 0]
        with np.errstate(invalid="ignore"):
            inside = (turns > 0).all(1) | (turns < 0).all(1)
            inside |= (np.abs(self._centres - (x, y)) <= reach).all(1)
            inside &= cameras.fine & (self._depths > 0.4 * depth)  # not the one that is looked through
        found = np.flatnonzero(inside)
        return int(found[np.argmin(self._depths[found])]) if len(found) else None
