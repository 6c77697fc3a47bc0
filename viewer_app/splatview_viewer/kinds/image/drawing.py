"""Drawing over an image: the shapes of an overlay, and its text.

All shapes of a result are drawn by a few calls on the GPU, however many they are.
Widths are pixels of the screen, whatever the zoom. Lines have a dark rim, so that they
are seen on any picture: first all rims are drawn, then all lines.
"""

from __future__ import annotations

import math
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import moderngl
import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.image.overlay import NO_SCORE, is_light
from splatview_viewer.ui import theme
from splatview_viewer.ui.text_cards import card
from splatview_viewer.ui.widgets import faint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.image.layers import Age, ImageLayers, Layer
    from splatview_viewer.kinds.image.overlay import BoxMask, OverlayResult
    from splatview_viewer.kinds.image.view import ImageState

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


# -- text ------------------------------------------------------------------------------

_FONT_SIZE = 13.0
"""Size of the letters, points."""
_MAX_LABELS = 400
"""Labels in one picture: those of the highest scores."""
_CORNER_PERIOD_S = 0.5
"""Seconds for which the lines in the corner stay as they are while pictures come."""
_NOTE_REACH = (2000, 500)
"""Pixels right of and below a note's point that its text may take."""
_SEPARATOR = " \u00b7 "
_DARK = ImVec4(0.05, 0.06, 0.07, 1.0)
_LIGHT = ImVec4(0.97, 0.98, 0.99, 1.0)


class OverlayText:
    """Text over one view's image, and the lines in its corner."""

    def __init__(self) -> None:
        self.due = math.inf
        """When the lines in the corner are to be written again though nothing else
        changes."""
        self._lines: list[str] = []
        self._written_at = -math.inf

    def write(
        self,
        layers: ImageLayers,
        settings: ImageState,
        rect: Rect,
        placed: tuple[float, float, float],
        scale: float,
        *,
        corner: bool = True,
    ) -> None:
        """Write over the image in `rect`, inside an imgui frame.

        Args:
            layers: the layers of the image.
            settings: the settings of the view.
            rect: in pixels of the screen.
            placed: as for `ImageLayers.draw`.
            scale: pixels per point.
            corner: also write in the corner how fast and how old results are.
        """
        draw = imgui.get_background_draw_list()
        draw.push_clip_rect(
            ImVec2(rect.x, rect.y),
            ImVec2(rect.x + rect.width, rect.y + rect.height),
            True,
        )
        x, y, zoom = placed
        with theme.font_size(_FONT_SIZE):
            for layer, opacity in layers.visible(settings):
                result = layer.result
                to_screen = _ToScreen(
                    scale=np.array(layers.screen_scale(result, zoom)),
                    offset=np.array((x, y)),
                )
                if settings.labels:
                    _write_labels(result, to_screen, rect, opacity, settings.threshold)
                _write_notes(result, to_screen, rect, opacity)
            if corner:
                self._write_corner(layers, settings, rect, scale)
        draw.pop_clip_rect()

    def _write_corner(
        self, layers: ImageLayers, settings: ImageState, rect: Rect, scale: float
    ) -> None:
        """Write rates and ages in the lower left corner, calmly."""
        if layers.now < self._written_at + _CORNER_PERIOD_S:
            self.due = self._written_at + _CORNER_PERIOD_S
        else:
            self.due = math.inf
            self._written_at = layers.now
            self._lines = _corner_lines(layers, settings)
        y = rect.y + rect.height - 10 * scale
        for line in reversed(self._lines):
            card_rect = card(
                imgui.get_background_draw_list(),
                (rect.x + 10 * scale, y),
                [(line, theme.TEXT)],
                (0, 1),
                ground=faint(theme.BAR, 0.72),
                pad=0.35,
            )
            y = card_rect.y - 3 * scale


def _corner_lines(layers: ImageLayers, settings: ImageState) -> list[str]:
    """Return a line about the camera, and one about each layer."""
    lines = [layers.camera]
    if settings.overlay:
        for layer in layers.all:
            has_faded = layer.has_ended and layers.opacity(layer) == 0
            if not has_faded:
                lines.append(_describe_layer(layers, layer))
    return [line for line in lines if line]


class _ToScreen(NamedTuple):
    """From pixels of a result's picture to those of the screen."""

    scale: np.ndarray
    """(2,): pixels of the screen for one of the picture along x and y."""
    offset: np.ndarray
    """(2,): the picture's upper left corner."""


def _describe_layer(layers: ImageLayers, layer: Layer) -> str:
    """Describe a layer: its publisher, rate, work and age."""
    result = layer.result
    if result.is_empty and not result.publisher:
        return ""
    phrases = [result.publisher or "overlay"]
    rate = result.rate_hz or layer.rate_hz
    if layer.has_ended:
        phrases.append("ended")
    elif rate >= 0.05:
        phrases.append(f"{rate:.1f}/s")
    if result.work_ms > 0:
        digits = 0 if result.work_ms >= 9.95 else 1
        phrases.append(f"{result.work_ms:.{digits}f} ms")
    age = _age_text(layers.age(layer))
    if age:
        phrases.append(age)
    return _SEPARATOR.join(phrases)


def _age_text(age: Age) -> str:
    """Return how old a result is in words; empty where it is not known."""
    frames, seconds = age
    duration = _duration_text(seconds)
    if frames == 0:
        return "result of this frame"
    if frames is None:
        if duration:
            return f"result {duration} old"
        return ""
    unit = "frame" if frames == 1 else "frames"
    text = f"result {frames:,} {unit} old"
    if duration:
        text += f" ({duration})"
    return text


def _duration_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s"


def _write_notes(
    result: OverlayResult, to_screen: _ToScreen, rect: Rect, opacity: float
) -> None:
    """Write the notes whose text may reach into `rect`, each at its point."""
    scale_x, scale_y = to_screen.scale
    offset_x, offset_y = to_screen.offset
    reach_x, reach_y = _NOTE_REACH
    for x, y, text in result.notes:
        screen_x = offset_x + x * scale_x
        screen_y = offset_y + y * scale_y
        is_visible = (
            rect.x - reach_x < screen_x < rect.x + rect.width
            and rect.y - reach_y < screen_y < rect.y + rect.height
        )
        if is_visible:
            card(
                imgui.get_background_draw_list(),
                (screen_x, screen_y),
                [(text, faint(theme.TEXT, opacity))],
                ground=faint(theme.BAR, 0.82 * opacity),
                pad=0.3,
            )


def _write_labels(
    result: OverlayResult,
    to_screen: _ToScreen,
    rect: Rect,
    opacity: float,
    threshold: float,
) -> None:
    """Write each label above its box, or inside where there is no room above.

    Labels of the highest scores are written last, over the others.
    """
    scale, offset = to_screen
    screen_boxes = result.boxes * np.tile(scale, 2) + np.tile(offset, 2)
    anchors = result.anchors() * scale + offset
    floors = result.floors
    is_visible = (
        result.drawn
        & (floors >= threshold)
        & (screen_boxes[:, 0] < rect.x + rect.width)
        & (screen_boxes[:, 1] < rect.y + rect.height)
        & (screen_boxes[:, 2] > rect.x)
        & (screen_boxes[:, 3] > rect.y)
    )
    visible = is_visible.nonzero()[0]
    by_score = floors[visible].argsort(kind="stable")
    visible = visible[by_score][-_MAX_LABELS:]
    draw = imgui.get_background_draw_list()
    edge = theme.scale()
    for index, (x, y) in zip(visible.tolist(), anchors[visible].tolist(), strict=True):
        text = result.box_text(index)
        if not text:
            continue
        color = result.colors[index]
        r, g, b, _ = (float(channel) / 255 for channel in color)
        ink = _DARK if is_light(color) else _LIGHT
        card(
            draw,
            (x - edge, y - edge),
            [(text, faint(ink, opacity))],
            (0, 1),
            bounds=rect,
            pad=0.3,
            ground=ImVec4(r, g, b, 0.92 * opacity),
        )
