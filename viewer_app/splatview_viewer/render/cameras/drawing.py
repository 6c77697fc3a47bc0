"""Draws the frustums of a training's cameras, with thumbnails of their photographs.

Two draws, however many cameras there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import moderngl
import numpy as np

from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.geometry.cameras import MODELS, bounds, project
from splatview_viewer.ui import theme
from splatview_viewer.ui.text_cards import tag

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.training_cameras import CameraSet
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.render.cameras.photos import PhotoStore

ATLAS = 2048
"""Width of the texture that holds all thumbnails, and its largest height, in pixels."""
_MAX_THUMBNAIL_SIDE = 128
_MIN_THUMBNAIL_SIDE = 8
_LEVELS = 4
"""Levels in which the atlas is halved, so that nothing flickers that is far away."""
_UPLOADS = 24
"""Thumbnails that are brought to the GPU for one picture."""
_ROW = 5
"""Texels of one camera in the table: three rows of its pose, extents, flags."""
_FLAGS = 4
"""Texel of the flags: has a thumbnail, is valid."""
_PICTURE_VERTICES = 6
_LINE_VERTICES = 60
_LINES = 0.87, 0.88, 0.90, 0.8
"""The colour of frustums. It lies on pictures, so it is the same in light and dark."""
_MARKED = theme.MARK.x, theme.MARK.y, theme.MARK.z, 1.0
_CURRENT = theme.LIVE.x, theme.LIVE.y, theme.LIVE.z, 1.0


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
    """The camera that is trained with."""
    pictures: bool = True
    opacity: float = 0.9
    """Opacity of the photographs."""
    background: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """RGB in [0, 1], seen where a photograph is transparent."""


class TexturePart(NamedTuple):
    """A rectangle of a texture, in shares of its size."""

    texture: int
    """OpenGL's name of it."""
    low: tuple[float, float]
    high: tuple[float, float]


def thumbnail_side(count: int) -> int:
    """Return the pixels along the side of thumbnails, so that all fit into the atlas."""
    side = _MAX_THUMBNAIL_SIDE
    while (ATLAS // side) ** 2 < count and side > _MIN_THUMBNAIL_SIDE:
        side //= 2
    return side


class FrustumDrawing:
    """GPU data shared by all views of the same cameras.

    Belongs to the thread that holds the context.
    """

    def __init__(self, ctx: moderngl.Context, gpu_work: GpuWork) -> None:
        self._ctx = ctx
        self._gpu_work = gpu_work
        self._cameras: CameraSet | None = None
        self._table: moderngl.Texture | None = None
        self._atlas: moderngl.Texture | None = None
        self._order: moderngl.Buffer | None = None
        """Indices of the cameras, far ones first."""
        self._sorted_for = b""
        """The pose for which they were sorted."""
        self._flags = np.zeros((0, 4), np.float32)
        self._side = _MAX_THUMBNAIL_SIDE
        self._fade = (1.0, 2.0)
        """Distances from which frustums begin to fade, and are gone; world units."""
        self._origin = np.zeros(3)
        self._arrays: dict[str, moderngl.VertexArray] = {}

    def use(self, cameras: CameraSet, photos_stay: bool) -> None:
        """Draw these cameras from now on.

        Args:
            photos_stay: with the thumbnails that there are.
        """
        if self._cameras is cameras:
            return
        count = len(cameras)
        if not photos_stay or self._cameras is None or len(self._cameras) != count:
            self._flags = np.zeros((count, 4), np.float32)
        self._side = thumbnail_side(count)
        self._flags[:, 1] = cameras.is_valid
        positions = cameras.positions[cameras.is_valid]
        radius = 1.0
        self._origin = np.zeros(3)
        if len(positions):
            self._origin = np.median(positions, 0)
            _, radius = bounds(positions)
        self._fade = 1.5 * radius, 6.0 * radius
        if self._table is None or self._table.height != count:
            self._make_table(count)
        if self._table is not None:
            self._table.write(self._table_values(cameras).tobytes())
        self._cameras = cameras
        self._sorted_for = b""

    def _make_table(self, count: int) -> None:
        self._release_table()
        if not count:
            return
        self._table = self._ctx.texture((_ROW, count), 4, dtype="f4")
        self._table.filter = moderngl.NEAREST, moderngl.NEAREST
        self._order = self._ctx.buffer(reserve=4 * count, dynamic=True)

    def _table_values(self, cameras: CameraSet) -> np.ndarray:
        """Return the texels of all cameras, (N, _ROW, 4) float32."""
        table = np.zeros((len(cameras), _ROW, 4), np.float32)
        views = np.where(cameras.is_valid[:, None, None], cameras.viewmats, np.eye(4))
        table[:, :3, :3] = views[:, :3, :3].transpose(0, 2, 1)
        # float32 would lose the detail of places far away.
        table[:, :3, 3] = cameras.positions - self._origin
        table[:, 3] = cameras.extents
        table[:, _FLAGS] = self._flags
        return table

    def upload_thumbnails(self, photos: PhotoStore) -> bool:
        """Bring thumbnails that came to the GPU; return True if there were any."""
        photos.thumbnails.want(self._side)
        thumbnails = photos.thumbnails.take(_UPLOADS)
        if not thumbnails or self._table is None:
            return False
        if self._atlas is None:
            self._atlas = self._make_atlas()
        side = self._side
        per_row = ATLAS // side
        for index, photo in thumbnails:
            row, column = divmod(index, per_row)
            viewport = (column * side, row * side, side, side)
            self._atlas.write(_premultiplied(photo).tobytes(), viewport, alignment=1)
            self._flags[index, 0] = 1.0
            self._table.write(self._flags[index].tobytes(), (_FLAGS, index, 1, 1))
        self._atlas.build_mipmaps(0, _LEVELS)
        return True

    def thumbnail(self, index: int) -> TexturePart | None:
        """Return where the thumbnail of a camera is; None while it has not come."""
        if self._atlas is None or not 0 <= index < len(self._flags):
            return None
        if not self._flags[index, 0]:
            return None
        row, column = divmod(index, ATLAS // self._side)
        width, height = self._atlas.size
        low = (column * self._side / width, row * self._side / height)
        high = ((column + 1) * self._side / width, (row + 1) * self._side / height)
        return TexturePart(self._atlas.glo, low, high)

    def _make_atlas(self) -> moderngl.Texture:
        rows = ceil_div(len(self._flags), ATLAS // self._side)
        height = min(rows * self._side, ATLAS)
        atlas = self._ctx.texture((ATLAS, height), 4, alignment=1)
        atlas.filter = moderngl.LINEAR_MIPMAP_LINEAR, moderngl.LINEAR
        atlas.repeat_x = False
        atlas.repeat_y = False
        return atlas

    def draw(
        self,
        framebuffer: moderngl.Framebuffer,
        rect: Rect,
        camera: Camera,
        style: FrustumStyle,
    ) -> None:
        """Draw over a part of a framebuffer, as `camera` sees it, which has its size."""
        cameras = self._cameras
        if cameras is None or self._table is None or not cameras.is_valid.any():
            return
        count = len(cameras)
        self._sort(cameras, camera)
        ctx = self._ctx
        uniforms = self._uniforms(camera, style)
        framebuffer.use()
        framebuffer.viewport = rect.viewport(framebuffer.height)
        ctx.disable(moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        ctx.enable(moderngl.BLEND)
        ctx.blend_func = moderngl.ONE, moderngl.ONE_MINUS_SRC_ALPHA
        try:
            self._table.use(0)
            with self._gpu_work("frustums", rect.width, rect.height, count):
                if style.pictures and self._atlas is not None:
                    self._atlas.use(1)
                    self._render("pictures", uniforms, _PICTURE_VERTICES, count)
                self._render("lines", uniforms, _LINE_VERTICES, count)
        finally:
            ctx.disable(moderngl.BLEND)
            ctx.blend_func = moderngl.SRC_ALPHA, moderngl.ONE_MINUS_SRC_ALPHA

    def _sort(self, cameras: CameraSet, camera: Camera) -> None:
        """Have far frustums drawn first."""
        key = camera.viewmat.tobytes()
        if key != self._sorted_for and self._order is not None:
            depth = cameras.positions @ camera.viewmat[2, :3]
            self._order.write(np.argsort(-depth).astype(np.int32).tobytes())
            self._sorted_for = key

    def _uniforms(self, camera: Camera, style: FrustumStyle) -> dict[str, Any]:
        view = camera.viewmat.copy()
        view[:3, 3] += view[:3, :3] @ self._origin
        K = camera.K
        return {
            "u_view": tuple(view.T.ravel()),
            "u_K": (K[0, 0], K[1, 1], K[0, 2], K[1, 2]),
            "u_size": (camera.width, camera.height),
            "u_model": MODELS.index(camera.model),
            "u_near": max(camera.near, 0.02 * style.depth),
            "u_depth": style.depth,
            "u_fade": self._fade,
            "u_opacity": style.opacity,
            "u_background": style.background,
            "u_width": style.width,
            "u_color": _LINES,
            "u_marked_color": _MARKED,
            "u_current_color": _CURRENT,
            "u_marked": _shader_index(style.marked),
            "u_current": _shader_index(style.current),
            "u_cameras": 0,
            "u_atlas": 1,
            "u_per_row": ATLAS // self._side,
            "u_side": float(self._side),
            "u_levels": float(min(_LEVELS, self._side.bit_length() - 1)),
        }

    def _render(
        self, shader: str, uniforms: dict[str, Any], vertices: int, count: int
    ) -> None:
        """Draw `count` instances with the shader "pictures" or "lines"."""
        array = self._array(shader)
        program = array.program
        for name in program:
            if name in uniforms:
                program[name] = uniforms[name]
        array.render(moderngl.TRIANGLES, vertices=vertices, instances=count)

    def _array(self, shader: str) -> moderngl.VertexArray:
        if shader not in self._arrays:
            folder = files("splatview_viewer.render.cameras")
            common = folder.joinpath("common.glsl").read_text()
            text = common + folder.joinpath(f"{shader}.glsl").read_text()
            program = self._ctx.program(
                vertex_shader=f"#version 330\n#define VERTEX\n{text}",
                fragment_shader=f"#version 330\n{text}",
            )
            self._arrays[shader] = self._ctx.vertex_array(
                program, [(self._order, "1i/i", "a_camera")]
            )
        return self._arrays[shader]

    def _release_table(self) -> None:
        # The arrays read from the buffer.
        for array in self._arrays.values():
            array.program.release()
            array.release()
        self._arrays.clear()
        for resource in (self._table, self._order, self._atlas):
            if resource is not None:
                resource.release()
        self._table = None
        self._order = None
        self._atlas = None

    def close(self) -> None:
        """Release everything. Idempotent."""
        self._release_table()
        self._cameras = None


def _premultiplied(photo: np.ndarray) -> np.ndarray:
    """Return a thumbnail with its colours multiplied by alpha, (H, W, 4) uint8.

    Args:
        photo: (H, W, 3) or (H, W, 4) uint8.
    """
    height, width, channels = photo.shape
    rgba = np.full((height, width, 4), 255, np.uint8)
    rgba[..., :channels] = photo
    if channels == 4:
        products = photo[..., :3].astype(np.uint16) * photo[..., 3:]
        rgba[..., :3] = (products + 127) // 255
    return rgba


def draw_name_tag(
    cameras: CameraSet, index: int, camera: Camera, depth: float, rect: Rect
) -> None:
    """Write the name of a camera below it.

    Args:
        cameras: all cameras.
        index: the index of the camera to name.
        camera: the camera that sees it.
        depth: length of the frustums, world units.
        rect: rectangle of the picture on the screen.
    """
    points = project(camera, cameras.outline(index, depth))
    if not np.isfinite(points).all():
        return
    left = points[:, 0].min()
    bottom = points[:, 1].max()
    y = rect.y + bottom + 6 * theme.scale()
    tag(cameras.label(index), rect.x + left, y, rect)


def _shader_index(index: int | None) -> int:
    """Return an index of a camera as the shaders take it: -1 where there is none."""
    if index is None:
        return -1
    return index


def camera_at(
    cameras: CameraSet,
    camera: Camera,
    depth: float,
    x: float,
    y: float,
    max_distance: float,
) -> int | None:
    """Return the nearest camera under a pixel of `camera`'s picture; None if there is none.

    Its picture, at `depth` in front of it, or its centre, within `max_distance` pixels, lies
    there.
    """
    extents = cameras.extents * depth
    corners = np.full((len(cameras), 4, 3), depth)
    corners[..., :2] = extents[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
    is_valid = cameras.is_valid
    rotations = np.where(
        is_valid[:, None, None], cameras.viewmats[:, :3, :3], np.eye(3)
    )
    world_corners = corners @ rotations + cameras.positions[:, None]
    offsets = project(camera, world_corners) - (x, y)
    following = np.roll(offsets, -1, 1)
    # The pixel lies inside if all corners pass it on the same side.
    crosses = offsets[..., 0] * following[..., 1] - offsets[..., 1] * following[..., 0]
    distances = np.linalg.norm(cameras.positions - camera.position, axis=1)
    with np.errstate(invalid="ignore"):
        is_inside = (crosses > 0).all(1) | (crosses < 0).all(1)
        centers = project(camera, cameras.positions) - (x, y)
        is_hit = is_inside | (np.abs(centers) <= max_distance).all(1)
        # The camera that is looked through does not count.
        is_hit &= is_valid & (distances > 0.4 * depth)
    hits = np.flatnonzero(is_hit)
    if not len(hits):
        return None
    return int(hits[np.argmin(distances[hits])])
