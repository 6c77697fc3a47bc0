"""Draws the frustums of a training's cameras, with their photographs in small: two draws, however many there are."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import moderngl
import numpy as np

from splatview_viewer.geometry.cameras import MODELS, bounds, project
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import tag

if TYPE_CHECKING:
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

_LINES = 0.87, 0.88, 0.90, 0.8
"""The colour of frustums. It lies on pictures, so it is the same in light and dark."""
_MARKED, _CURRENT = (
    (color.x, color.y, color.z, 1.0) for color in (theme.MARK, theme.NOW)
)


@dataclass(frozen=True)
class FrustumStyle:
    """Style of frustums."""

    depth: float
    """Length: distance of the photographs from the camera, world units."""
    width: float = 1.5
    """Width of lines, pixels."""
    marked: int | None = None
    """A camera that stands out."""
    current: int | None = None
    """The one that is trained with."""
    pictures: bool = True
    opacity: float = 0.9
    """Opacity of the photographs."""
    background: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """RGB in [0, 1], seen where a photograph is transparent."""


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
        if cameras.fine.any():
            self._origin = np.median(cameras.positions[cameras.fine], 0)
        else:
            self._origin = np.zeros(3)
        table[:, :3, 3] = (
            cameras.positions - self._origin
        )  # float32 would lose the detail of places far away
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
        self._cameras = cameras
        self._ordered = b""
        if cameras.fine.any():
            radius = bounds(cameras.positions[cameras.fine])[1]
        else:
            radius = 1.0
        self._fade = 1.5 * radius, 6.0 * radius

    def take_small(self, photos: PhotoStore) -> bool:
        """Bring small photographs that came to the GPU. True if there were any."""
        photos.want_small(self._side)
        came = photos.take_small(_AT_A_TIME)
        if not came or self._table is None:
            return False
        if self._atlas is None:
            rows = -(-len(self._flags) // (ATLAS // self._side))
            atlas = self._ctx.texture(
                (ATLAS, min(rows * self._side, ATLAS)), 4, alignment=1
            )
            self._atlas = atlas
            atlas.filter = moderngl.LINEAR_MIPMAP_LINEAR, moderngl.LINEAR
            atlas.repeat_x = False
            atlas.repeat_y = False
        per_row = ATLAS // self._side
        for number, photo in came:
            place = (
                number % per_row * self._side,
                number // per_row * self._side,
                self._side,
                self._side,
            )
            self._atlas.write(_multiplied(photo).tobytes(), place, alignment=1)
            self._flags[number, 0] = 1.0
            self._table.write(self._flags[number].tobytes(), (4, number, 1, 1))
        self._atlas.build_mipmaps(0, _LEVELS)
        return True

    def draw(
        self,
        framebuffer: moderngl.Framebuffer,
        rect: Rect,
        camera: Camera,
        look: FrustumStyle,
    ) -> None:
        """Draw over what is in a part of a framebuffer, as `camera`, of the size of `rect`, sees it."""
        cameras = self._cameras
        if cameras is None or self._table is None or not cameras.fine.any():
            return
        key = camera.viewmat.tobytes()
        if key != self._ordered and self._order is not None:  # far ones are drawn first
            depth = cameras.positions @ camera.viewmat[2, :3]
            self._order.write(np.argsort(-depth).astype(np.int32).tobytes())
            self._ordered = key
        ctx = self._ctx
        view = camera.viewmat.copy()
        view[:3, 3] += view[:3, :3] @ self._origin
        values: dict[str, Any] = {
            "u_view": tuple(view.T.ravel()),
            "u_K": (camera.K[0, 0], camera.K[1, 1], camera.K[0, 2], camera.K[1, 2]),
            "u_size": (camera.width, camera.height),
            "u_model": MODELS.index(camera.model),
            "u_near": max(camera.near, 0.02 * look.depth),
            "u_depth": look.depth,
            "u_fade": self._fade,
            "u_opacity": look.opacity,
            "u_background": look.background,
            "u_width": look.width,
            "u_color": _LINES,
            "u_marked_color": _MARKED,
            "u_current_color": _CURRENT,
            "u_marked": -1 if look.marked is None else look.marked,
            "u_current": -1 if look.current is None else look.current,
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

    def _render(
        self, which: str, values: dict[str, Any], vertices: int, count: int
    ) -> None:
        if which not in self._arrays:
            folder = files("splatview_viewer.render.cameras")
            text = (
                folder.joinpath("common.glsl").read_text()
                + folder.joinpath(f"{which}.glsl").read_text()
            )
            made = self._ctx.program(
                vertex_shader=f"#version 330\n#define VERTEX\n{text}",
                fragment_shader=f"#version 330\n{text}",
            )
            self._arrays[which] = self._ctx.vertex_array(
                made, [(self._order, "1i/i", "a_camera")]
            )
        array = self._arrays[which]
        program = array.program
        values |= {
            "u_cameras": 0,
            "u_atlas": 1,
            "u_per_row": ATLAS // self._side,
            "u_side": float(self._side),
            "u_levels": float(min(_LEVELS, self._side.bit_length() - 1)),
        }
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
        self._table = None
        self._order = None
        self._atlas = None

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._release_table()
        self._cameras = None


def _multiplied(photo: np.ndarray) -> np.ndarray:
    """Return (H, W, 4) uint8, colours multiplied by alpha, of a small photograph (H, W, 3) or (H, W, 4)."""
    height, width, channels = photo.shape
    out = np.full((height, width, 4), 255, np.uint8)
    out[..., :channels] = photo
    if channels == 4:
        colors = photo[..., :3].astype(np.uint16) * photo[..., 3:]
        out[..., :3] = (colors + 127) // 255
    return out


def named(
    cameras: CameraSet, number: int, camera: Camera, depth: float, rect: Rect
) -> None:
    """Write the name of the camera under the pointer, below it."""
    points = project(camera, cameras.outline(number, depth))
    if np.isfinite(points).all():
        (x, _), (_, y) = points.min(0), points.max(0)
        tag(cameras.called(number), rect.x + x, rect.y + y + 6 * theme.scale(), rect)


def camera_at(
    cameras: CameraSet, camera: Camera, depth: float, x: float, y: float, reach: float
) -> int | None:
    """The nearest of `cameras` whose picture, at `depth` in front of it, or whose centre, within `reach` pixels, lies
    under a pixel of `camera`'s picture.
    """
    e = cameras.extents * depth
    count = len(cameras)
    local = np.stack([e[:, [0, 1]], e[:, [2, 1]], e[:, [2, 3]], e[:, [0, 3]]], 1)
    local = np.concatenate([local, np.full((count, 4, 1), depth)], 2)
    turn = np.where(cameras.fine[:, None, None], cameras.viewmats[:, :3, :3], np.eye(3))
    off = project(camera, local @ turn + cameras.positions[:, None]) - (x, y)
    ahead = np.roll(off, -1, 1)
    turns = off[..., 0] * ahead[..., 1] - off[..., 1] * ahead[..., 0]
    depths = np.linalg.norm(cameras.positions - camera.position, axis=1)
    with np.errstate(invalid="ignore"):
        inside = (turns > 0).all(1) | (turns < 0).all(1)
        inside |= (np.abs(project(camera, cameras.positions) - (x, y)) <= reach).all(1)
        inside &= cameras.fine & (
            depths > 0.4 * depth
        )  # not the one that is looked through
    found = np.flatnonzero(inside)
    return int(found[np.argmin(depths[found])]) if len(found) else None
