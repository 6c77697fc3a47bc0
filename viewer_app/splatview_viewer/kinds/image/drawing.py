"""What is drawn over an image: the shapes of an overlay, by a few calls on the GPU
however many, and its text.

Widths are pixels of the screen, whatever the zoom. Lines have a dark rim, so that they
are seen on any picture: first all rims are drawn, then all lines.
"""

from __future__ import annotations

import math
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import moderngl
import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.image.overlay import NO_SCORE, is_light
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import card, faint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.image.layers import ImageLayers, Layer
    from splatview_viewer.kinds.image.overlay import Mask, OverlayResult
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
_FORMAT = "2f 2f 4f1 1f 1f /i"
_MASK = np.dtype(
    [("place", "f4", 4), ("part", "f4", 4), ("color", "u1", 4), ("floor", "f4")]
)
_LINE = 1.0
_DOT = 3.0
"""Thickness in units of a box's lines: lines and bones, points."""
_BLEND = (
    moderngl.SRC_ALPHA,
    moderngl.ONE_MINUS_SRC_ALPHA,
    moderngl.ONE,
    moderngl.ONE_MINUS_SRC_ALPHA,
)
"""The last two: what is opaque stays so."""
_ATLAS = 4096
"""Texels along the longest side of all masks together."""


def make_programs(ctx: moderngl.Context) -> dict[str, moderngl.Program]:
    """Compile the shaders BOX, SEGMENT and MASK, which all overlays of a context share."""
    source = files("splatview_viewer.kinds.image").joinpath("overlay.glsl").read_text()
    head = "#version 330\n#define"
    return {
        name: ctx.program(
            vertex_shader=f"{head} {name}\n#define VERTEX\n{source}",
            fragment_shader=f"{head} {name}\n{source}",
        )
        for name in ("BOX", "SEGMENT", "MASK")
    }


class Shapes:
    """Drawable shapes of one result."""

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
        self._batches: list[
            tuple[moderngl.Program, moderngl.VertexArray, int, int]
        ] = []
        """With the vertices of an instance, and the number of instances."""
        self._atlas: moderngl.Texture | None = None
        if result.masks:
            self._add("MASK", 6, self._masks(result.masks), "4f 4f 4f1 1f /i")
        numbers = np.flatnonzero(result.drawn & ~result.is_turned)
        boxes = result.boxes[numbers]
        strokes = _strokes(
            boxes[:, :2],
            boxes[:, 2:],
            result.colors[numbers],
            result.floors[numbers],
            _LINE,
        )
        self._add("BOX", 24, strokes, _FORMAT)
        # Turned boxes, then lines, then bones, then points over them.
        turned = np.flatnonzero(result.is_turned)
        begin_corners = result.corners[turned].reshape(-1, 2)
        end_corners = np.roll(result.corners[turned], -1, 1).reshape(-1, 2)
        sides_of = np.repeat(turned, 4)
        lines = result.lines
        points = result.points
        skeleton = result.skeleton
        colors = result.point_colors
        if result.points_have_boxes:
            floors = result.floors
        else:
            floors = np.full(len(points), NO_SCORE, np.float32)
        found = points[..., 2] > 0
        at = points[..., :2]
        group, which = np.nonzero(found)
        person, bone = np.nonzero(found[:, skeleton[:, 0]] & found[:, skeleton[:, 1]])
        dots = at[group, which]
        begin = at[person, skeleton[bone, 0]]
        end = at[person, skeleton[bone, 1]]
        strokes = np.concatenate(
            [
                _strokes(
                    begin_corners,
                    end_corners,
                    result.colors[sides_of],
                    result.floors[sides_of],
                    _LINE,
                ),
                _strokes(
                    lines[:, :2],
                    lines[:, 2:],
                    result.line_colors,
                    np.full(len(lines), NO_SCORE),
                    _LINE,
                ),
                _strokes(begin, end, colors[person], floors[person], _LINE),
                _strokes(dots, dots, colors[group], floors[group], _DOT),
            ]
        )
        self._add("SEGMENT", 6, strokes, _FORMAT)

    def _add(self, name: str, vertices: int, instances: np.ndarray, form: str) -> None:
        """`vertices`: of one instance."""
        if not len(instances):
            return
        program = self._programs[name]
        buffer = self._ctx.buffer(instances.tobytes())
        names = [f"in_{name}" for name in instances.dtype.names or ()]
        array = self._ctx.vertex_array(program, [(buffer, form, *names)])
        self._owned += [array, buffer]
        self._batches.append((program, array, vertices, len(instances)))

    def draw(
        self,
        rect: Rect,
        place: tuple[float, float, float, float],
        scale: float,
        *,
        opacity: float,
        threshold: float,
    ) -> None:
        """Draw into the framebuffer in use, whose viewport is `rect`.

        place: x, y of the picture's upper left corner in `rect`, and pixels of the
        screen for one of the result's picture along x and y. scale: pixels per point.
        """
        ctx = self._ctx
        half = max(scale, 0.5)
        ctx.enable_only(moderngl.BLEND)
        ctx.blend_func = _BLEND  # type: ignore[assignment]  (moderngl's stubs know two of the four)
        if self._atlas is not None:
            self._atlas.use(0)
        values = {
            "u_place": place,
            "u_size": (rect.width, rect.height),
            "u_threshold": threshold,
            "u_opacity": opacity,
            "u_half": half,
            "u_rim": 1.1 * half,
            "u_picture": self._result.size,
            "u_atlas": 0,
        }
        for program, array, vertices, count in self._batches:
            for core in (0.0, 1.0) if program is self._programs["SEGMENT"] else (1.0,):
                for name, value in {**values, "u_core": core}.items():
                    if name in program:
                        program[name] = value
                array.render(moderngl.TRIANGLES, vertices=vertices, instances=count)
        ctx.disable(moderngl.BLEND)

    def _masks(self, masks: list[Mask]) -> np.ndarray:
        """Put all masks row by row into one texture, with an empty texel around each;
        those without room are left out.
        """
        limit = min(int(self._ctx.info["GL_MAX_TEXTURE_SIZE"]), _ATLAS)
        sizes = [m.inside.shape for m in masks]
        width = min(
            max(
                [
                    64,
                    int(1.1 * sum(h * w for h, w in sizes) ** 0.5),
                    *(w + 2 for _, w in sizes),
                ]
            ),
            limit,
        )
        kept: list[tuple[Mask, int, int]] = []
        x = 0
        y = 0
        row = 0
        for mask in sorted(masks, key=lambda mask: -mask.inside.shape[0]):
            h = mask.inside.shape[0] + 2
            w = mask.inside.shape[1] + 2
            if x + w > width:
                x = 0
                y = y + row
                row = 0
            if w <= width and y + h <= limit:
                kept.append((mask, x + 1, y + 1))
                x = x + w
                row = max(row, h)
        kept.sort(key=lambda found: found[0].box_index)
        atlas = np.zeros((max(y + row, 1), width), np.uint8)
        instances = np.zeros(len(kept), _MASK)
        owners = np.array([mask.box_index for mask, _, _ in kept], np.int64)
        for i, (mask, x, y) in enumerate(kept):
            h, w = mask.inside.shape
            np.multiply(
                mask.inside, 255, out=atlas[y : y + h, x : x + w], casting="unsafe"
            )
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
        """Idempotent."""
        for owned in self._owned:
            owned.release()
        self._owned.clear()
        self._batches.clear()
        self._atlas = None


def _strokes(
    a: np.ndarray, b: np.ndarray, color: np.ndarray, floor: np.ndarray, thick: float
) -> np.ndarray:
    out = np.zeros(len(a), _STROKE)
    out["a"] = a
    out["b"] = b
    out["color"] = color
    out["floor"] = floor
    out["thick"] = thick
    return out


# -- text ------------------------------------------------------------------------------

_SIZE = 13.0
"""Size of the letters, points."""
_MOST = 400
"""Labels in one picture: those of the highest scores."""
_SAID_FOR = 0.5
"""Seconds for which the lines in the corner stay as they are while pictures come."""
_DARK = ImVec4(0.05, 0.06, 0.07, 1.0)
_LIGHT = ImVec4(0.97, 0.98, 0.99, 1.0)


class OverlayText:
    """Text state of one view: what was shown lately."""

    def __init__(self) -> None:
        self.due = math.inf
        """When the lines in the corner are to be written anew though nothing else
        changes."""
        self._lines: list[str] = []
        self._said_at = -math.inf

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

        `placed`: as for `Layers.draw`. `corner`: also how fast things go and how old
        they are.
        """
        draw = imgui.get_background_draw_list()
        draw.push_clip_rect(
            ImVec2(rect.x, rect.y),
            ImVec2(rect.x + rect.width, rect.y + rect.height),
            True,
        )
        with theme.font_size(_SIZE):
            for layer, opacity in layers.visible(settings):
                result = layer.result
                per = np.array(layers.screen_scale(layer.result, placed[2]))
                if settings.labels:
                    to_screen = per, np.array(placed[:2])
                    _labels(result, to_screen, rect, opacity, settings.threshold)
                for x, y, text in result.notes:
                    sx = placed[0] + x * per[0]
                    sy = placed[1] + y * per[1]
                    if (
                        rect.x - 2000 < sx < rect.x + rect.width
                        and rect.y - 500 < sy < rect.y + rect.height
                    ):
                        card(
                            draw,
                            (sx, sy),
                            [(text, faint(theme.TEXT, opacity))],
                            ground=faint(theme.BAR, 0.82 * opacity),
                            pad=0.3,
                        )
            if corner:
                self._corner(layers, settings, rect, scale)
        draw.pop_clip_rect()

    def _corner(
        self, layers: ImageLayers, settings: ImageState, rect: Rect, scale: float
    ) -> None:
        """Write rates and ages in the lower left corner, calmly."""
        if layers.now < self._said_at + _SAID_FOR:
            self.due = self._said_at + _SAID_FOR
        else:
            self.due = math.inf
            self._said_at = layers.now
            seen = [
                layer
                for layer in layers.all
                if not (layer.has_ended and layers.opacity(layer) == 0)
            ]
            self._lines = [
                layers.camera,
                *(
                    _about(layers, layer)
                    for layer in (seen if settings.overlay else ())
                ),
            ]
        y = rect.y + rect.height - 10 * scale
        for line in reversed([line for line in self._lines if line]):
            y = (
                card(
                    imgui.get_background_draw_list(),
                    (rect.x + 10 * scale, y),
                    [(line, theme.TEXT)],
                    (0, 1),
                    ground=faint(theme.BAR, 0.72),
                    pad=0.35,
                ).y
                - 3 * scale
            )


def _about(layers: ImageLayers, layer: Layer) -> str:
    """Describe a layer: its publisher, rate, work and age."""
    result = layer.result
    if result.is_empty and not result.publisher:
        return ""
    words = [result.publisher or "overlay"]
    rate = result.rate_hz or layer.rate_hz
    if layer.has_ended:
        words.append("ended")
    elif rate >= 0.05:
        words.append(f"{rate:.1f}/s")
    if result.work_ms > 0:
        words.append(
            f"{result.work_ms:.0f} ms"
            if result.work_ms >= 9.95
            else f"{result.work_ms:.1f} ms"
        )
    (frames, seconds), times = layers.age(layer), ""
    if seconds is not None:
        if seconds < 0.9995:
            times = f"{seconds * 1e3:.0f} ms"
        else:
            times = f"{seconds:.{int(seconds < 100)}f} s"
    if frames == 0:
        words.append("result of this frame")
    elif frames is not None:
        words.append(
            f"result {frames:,} frame{'s' if frames != 1 else ''} old"
            + (f" ({times})" if times else "")
        )
    elif times:
        words.append(f"result {times} old")
    return " \u00b7 ".join(words)


def _labels(
    result: OverlayResult,
    to_screen: tuple[np.ndarray, np.ndarray],
    rect: Rect,
    opacity: float,
    threshold: float,
) -> None:
    """Write above each box, or inside where there is no room above; the highest scores
    last, over the others.

    to_screen: pixels of the screen for one of the picture along x and y, and the place
    of its corner.
    """
    scale, offset = to_screen
    screen = result.boxes * np.tile(scale, 2) + np.tile(offset, 2)
    anchors = result.anchors() * scale + offset
    floors = result.floors
    seen = (
        result.drawn
        & (floors >= threshold)
        & (screen[:, 0] < rect.x + rect.width)
        & (screen[:, 1] < rect.y + rect.height)
        & (screen[:, 2] > rect.x)
        & (screen[:, 3] > rect.y)
    )
    numbers = seen.nonzero()[0]
    numbers = numbers[floors[numbers].argsort(kind="stable")][-_MOST:]
    draw = imgui.get_background_draw_list()
    edge = theme.scale()
    for n, (x0, y0) in zip(numbers.tolist(), anchors[numbers].tolist(), strict=True):
        text = result.box_text(n)
        if text:
            r, g, b, _ = (float(c) / 255 for c in result.colors[n])
            ink = faint(_DARK if is_light(result.colors[n]) else _LIGHT, opacity)
            card(
                draw,
                (x0 - edge, y0 - edge),
                [(text, ink)],
                (0, 1),
                within=rect,
                pad=0.3,
                ground=ImVec4(r, g, b, 0.92 * opacity),
            )
