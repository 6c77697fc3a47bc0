"""Drawing over an image: the shapes of an overlay.

All shapes of a result are drawn by a few calls on the GPU, however many they are.
Widths are pixels of the screen, whatever the zoom. Lines have a dark rim, so that they
are seen on any picture: first all rims are drawn, then all lines.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import moderngl
import numpy as np

from splatview_viewer.kinds.image.overlay import NO_SCORE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.image.overlay import BoxMask, OverlayResult

_STROKE = np.dtype(
    [
        ("a", "f4", 2),
        ("b", "f4", 2),
        ("color", "u1", 4),
        ("floor", "f4"),
        ("thick", "f4"),
    ]
)
_STROKE_FORMAT = "2f 2f 4f1 1f 1f /i"
_MASK = np.dtype(
    [("place", "f4", 4), ("part", "f4", 4), ("color", "u1", 4), ("floor", "f4")]
)
_MASK_FORMAT = "4f 4f 4f1 1f /i"
_LINE = 1.0
"""Thickness of lines and bones, in units of a box's lines."""
_DOT = 3.0
"""Thickness of points, likewise."""
_BLEND = (
    moderngl.SRC_ALPHA,
    moderngl.ONE_MINUS_SRC_ALPHA,
    moderngl.ONE,
    moderngl.ONE_MINUS_SRC_ALPHA,
)
"""The last two keep opaque what is opaque."""
_MAX_ATLAS_SIDE = 4096
"""Texels along the longest side of all masks together."""


def make_programs(ctx: moderngl.Context) -> dict[str, moderngl.Program]:
    """Compile the shaders BOX, SEGMENT and MASK.

    All overlays of a context share them.
    """
    source = files("splatview_viewer.kinds.image").joinpath("overlay.glsl").read_text()
    head = "#version 330\n#define"
    programs = {}
    for name in ("BOX", "SEGMENT", "MASK"):
        programs[name] = ctx.program(
            vertex_shader=f"{head} {name}\n#define VERTEX\n{source}",
            fragment_shader=f"{head} {name}\n{source}",
        )
    return programs


class _Batch(NamedTuple):
    """Instances that one call draws."""

    program: moderngl.Program
    array: moderngl.VertexArray
    vertices: int
    """Vertices of an instance."""
    instances: int
    """Number of instances."""


class _PackedMask(NamedTuple):
    """A mask and its upper left texel in the atlas."""

    mask: BoxMask
    x: int
    y: int


class Shapes:
    """Shapes of one result on the GPU."""

    def __init__(
        self,
        ctx: moderngl.Context,
        programs: Mapping[str, moderngl.Program],
        result: OverlayResult,
    ) -> None:
        self._ctx = ctx
        self._programs = programs
        self._result = result
        self._owned: list[Any] = []
        self._batches: list[_Batch] = []
        self._atlas: moderngl.Texture | None = None
        if result.masks:
            self._add("MASK", 6, self._upload_masks(result.masks), _MASK_FORMAT)
        upright = np.flatnonzero(result.drawn & ~result.is_rotated)
        boxes = result.boxes[upright]
        strokes = _strokes(
            boxes[:, :2],
            boxes[:, 2:],
            result.colors[upright],
            result.floors[upright],
            _LINE,
        )
        self._add("BOX", 24, strokes, _STROKE_FORMAT)
        # Points are drawn last, over all else.
        segments = [
            _rotated_boxes(result),
            _line_pieces(result),
            *_bones_and_points(result),
        ]
        self._add("SEGMENT", 6, np.concatenate(segments), _STROKE_FORMAT)

    def _add(
        self, program_name: str, vertices: int, instances: np.ndarray, layout: str
    ) -> None:
        """Upload the instances of a shape; each has `vertices` vertices.

        `layout` is that of an instance, as moderngl writes it.
        """
        if not len(instances):
            return
        program = self._programs[program_name]
        buffer = self._ctx.buffer(instances.tobytes())
        inputs = [f"in_{name}" for name in instances.dtype.names or ()]
        array = self._ctx.vertex_array(program, [(buffer, layout, *inputs)])
        self._owned += [array, buffer]
        self._batches.append(_Batch(program, array, vertices, len(instances)))

    def draw(
        self,
        rect: Rect,
        placement: tuple[float, float, float, float],
        scale: float,
        *,
        opacity: float,
        threshold: float,
    ) -> None:
        """Draw into the framebuffer in use, whose viewport is `rect`.

        Args:
            rect: in pixels of the framebuffer.
            placement: x, y of the picture's upper left corner in `rect`, and pixels of
                the screen for one of the result's picture along x and y.
            scale: pixels per point.
            opacity: the opacity of everything, 0 to 1.
            threshold: shapes of a lower score are not drawn.
        """
        ctx = self._ctx
        half = max(scale, 0.5)
        ctx.enable_only(moderngl.BLEND)
        # moderngl's stubs know two of the four factors.
        ctx.blend_func = _BLEND  # type: ignore[assignment]
        if self._atlas is not None:
            self._atlas.use(0)
        uniforms = {
            "u_place": placement,
            "u_size": (rect.width, rect.height),
            "u_threshold": threshold,
            "u_opacity": opacity,
            "u_half": half,
            "u_rim": 1.1 * half,
            "u_picture": self._result.size,
            "u_atlas": 0,
        }
        for batch in self._batches:
            if batch.program is self._programs["SEGMENT"]:
                _draw_batch(batch, {**uniforms, "u_core": 0.0})
            _draw_batch(batch, {**uniforms, "u_core": 1.0})
        ctx.disable(moderngl.BLEND)

    def _upload_masks(self, masks: list[BoxMask]) -> np.ndarray:
        """Put all masks into one texture; return their instances."""
        limit = min(int(self._ctx.info["GL_MAX_TEXTURE_SIZE"]), _MAX_ATLAS_SIDE)
        width = _atlas_width(masks, limit)
        packed, height = _pack_masks(masks, width, limit)
        atlas = np.zeros((max(height, 1), width), np.uint8)
        instances = np.zeros(len(packed), _MASK)
        owners = np.array([item.mask.box_index for item in packed], np.int64)
        for i, (mask, x, y) in enumerate(packed):
            h, w = mask.inside.shape
            texels = atlas[y : y + h, x : x + w]
            np.multiply(mask.inside, 255, out=texels, casting="unsafe")
            instances["place"][i] = mask.bounds
            instances["part"][i] = (x, y, x + w, y + h)
        instances["color"] = self._result.colors[owners]
        instances["floor"] = self._result.floors[owners]
        self._atlas = self._ctx.texture(
            (width, len(atlas)), 1, atlas.tobytes(), alignment=1
        )
        self._atlas.filter = moderngl.LINEAR, moderngl.LINEAR
        self._owned.append(self._atlas)
        return instances

    def release(self) -> None:
        """Free everything on the GPU. Idempotent."""
        for owned in self._owned:
            owned.release()
        self._owned.clear()
        self._batches.clear()
        self._atlas = None


def _draw_batch(batch: _Batch, uniforms: Mapping[str, Any]) -> None:
    """Draw a batch with those of the uniforms that its program has."""
    for name, value in uniforms.items():
        if name in batch.program:
            batch.program[name] = value
    batch.array.render(
        moderngl.TRIANGLES, vertices=batch.vertices, instances=batch.instances
    )


def _atlas_width(masks: list[BoxMask], limit: int) -> int:
    """Return a width at which the masks fill about a square."""
    sizes = [mask.inside.shape for mask in masks]
    side = int(1.1 * sum(h * w for h, w in sizes) ** 0.5)
    widest = max(w + 2 for _, w in sizes)
    return min(max(64, side, widest), limit)


def _pack_masks(
    masks: list[BoxMask], width: int, limit: int
) -> tuple[list[_PackedMask], int]:
    """Put masks row by row into an atlas, with an empty texel around each.

    Args:
        masks: those without room are left out.
        width: the width of the atlas, in texels.
        limit: its height at most.

    Returns:
        The masks in the order of their boxes, and the height that they take.
    """
    packed: list[_PackedMask] = []
    x = 0
    y = 0
    row_height = 0
    for mask in sorted(masks, key=lambda mask: -mask.inside.shape[0]):
        h = mask.inside.shape[0] + 2
        w = mask.inside.shape[1] + 2
        if x + w > width:
            x = 0
            y += row_height
            row_height = 0
        if w <= width and y + h <= limit:
            packed.append(_PackedMask(mask, x + 1, y + 1))
            x += w
            row_height = max(row_height, h)
    packed.sort(key=lambda item: item.mask.box_index)
    return packed, y + row_height


def _rotated_boxes(result: OverlayResult) -> np.ndarray:
    """Return the strokes of rotated boxes, four for each."""
    rotated = np.flatnonzero(result.is_rotated)
    corners = result.corners[rotated]
    next_corners = np.roll(corners, -1, 1)
    owners = np.repeat(rotated, 4)
    return _strokes(
        corners.reshape(-1, 2),
        next_corners.reshape(-1, 2),
        result.colors[owners],
        result.floors[owners],
        _LINE,
    )


def _line_pieces(result: OverlayResult) -> np.ndarray:
    """Return the strokes of lines, which are over every threshold."""
    lines = result.lines
    floors = np.full(len(lines), NO_SCORE)
    return _strokes(lines[:, :2], lines[:, 2:], result.line_colors, floors, _LINE)


def _bones_and_points(result: OverlayResult) -> tuple[np.ndarray, np.ndarray]:
    """Return the strokes of bones and those of points."""
    points = result.points
    skeleton = result.skeleton
    colors = result.point_colors
    if result.points_have_boxes:
        floors = result.floors
    else:
        floors = np.full(len(points), NO_SCORE, np.float32)
    is_visible = points[..., 2] > 0
    positions = points[..., :2]
    has_bone = is_visible[:, skeleton[:, 0]] & is_visible[:, skeleton[:, 1]]
    group, bone = np.nonzero(has_bone)
    start = positions[group, skeleton[bone, 0]]
    end = positions[group, skeleton[bone, 1]]
    bones = _strokes(start, end, colors[group], floors[group], _LINE)
    group, point = np.nonzero(is_visible)
    dots = positions[group, point]
    return bones, _strokes(dots, dots, colors[group], floors[group], _DOT)


def _strokes(
    start: np.ndarray,
    end: np.ndarray,
    color: np.ndarray,
    floor: np.ndarray,
    thickness: float,
) -> np.ndarray:
    """Return strokes (N,) between points (N, 2), of type `_STROKE`."""
    strokes = np.zeros(len(start), _STROKE)
    strokes["a"] = start
    strokes["b"] = end
    strokes["color"] = color
    strokes["floor"] = floor
    strokes["thick"] = thickness
    return strokes
