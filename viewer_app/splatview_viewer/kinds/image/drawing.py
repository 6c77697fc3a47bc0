"""What is drawn over an image: the shapes of an overlay, by a few calls on the GPU however many, and its text.

Widths are pixels of the screen, whatever the zoom. Lines have a dark rim, so that they are seen on any picture: first
all rims are drawn, then all lines.
"""

from __future__ import annotations

import math
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import moderngl
import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.image.overlay import is_light
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import card, faint

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.image.layers import Layer, Layers
    from splatview_viewer.kinds.image.overlay import Mask, Result
    from splatview_viewer.kinds.image.view import ImageState

_STROKE = np.dtype([("a", "f4", 2), ("b", "f4", 2), ("color", "u1", 4), ("floor", "f4"), ("thick", "f4")])
_FORMAT = "2f 2f 4f1 1f 1f /i"
_MASK = np.dtype([("place", "f4", 4), ("part", "f4", 4), ("color", "u1", 4), ("floor", "f4")])
_LINE, _DOT = 1.0, 3.0
"""Thickness in units of a box's lines: lines and bones, points."""
_BLEND = moderngl.SRC_ALPHA, moderngl.ONE_MINUS_SRC_ALPHA, moderngl.ONE, moderngl.ONE_MINUS_SRC_ALPHA
"""The last two: what is opaque stays so."""
_ATLAS = 4096
"""Texels along the longest side of all masks together."""


class Programs:
    """The shaders, shared by all overlays of a context."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._made: dict[str, moderngl.Program] = {}

    def __getitem__(self, name: str) -> moderngl.Program:
        """BOX, SEGMENT or MASK."""
        if name not in self._made:
            source = files("splatview_viewer.kinds.image").joinpath("overlay.glsl").read_text()
            head = f"#version 330\n#define {name}\n"
            self._made[name] = self._ctx.program(vertex_shader=f"{head}#define VERTEX\n{source}",
                                                 fragment_shader=head + source)
        return self._made[name]

    def release(self) -> None:
        """Idempotent."""
        for program in self._made.values():
            program.release()
        self._made.clear()


class Shapes:
    """Drawable shapes of one result."""

    def __init__(self, ctx: moderngl.Context, programs: Programs, result: Result) -> None:
        self._ctx = ctx
        self._result = result
        self._owned: list[Any] = []
        self._batches: list[_Batch] = []
        self._atlas: moderngl.Texture | None = None
        if result.masks:
            instances, owners = self._masks(result.masks)
            self._add(programs["MASK"], _Batch(6), instances, owners, "4f 4f 4f1 1f /i")
        instances, owners = _boxes(result)
        self._add(programs["BOX"], _Batch(24), instances, owners, _FORMAT)
        instances, owners = _segments(result)
        self._add(programs["SEGMENT"], _Batch(6, rims=True), instances, owners, _FORMAT)

    def _add(self, program: moderngl.Program, batch: _Batch, instances: np.ndarray, owners: np.ndarray,
             form: str) -> None:
        if not len(instances):
            return
        buffer = self._ctx.buffer(instances.tobytes())
        shift = self._ctx.buffer(bytes(8 * len(instances)))
        names = [f"in_{name}" for name in instances.dtype.names or ()]
        array = self._ctx.vertex_array(program, [(buffer, form, *names), (shift, "2f /i", "in_shift")])
        self._owned += [array, buffer, shift]
        batch.begin(program, array, owners, shift)
        self._batches.append(batch)

    def draw(self, rect: Rect, place: tuple[float, float, float, float], style: Style) -> None:
        """Draw into the framebuffer in use, whose viewport is `rect`.

        place: x, y of the picture's upper left corner in `rect`, and pixels of the screen for one of the result's
        picture along x and y.
        """
        ctx = self._ctx
        ctx.enable_only(moderngl.BLEND)
        ctx.blend_func = _BLEND  # type: ignore[assignment]  (moderngl's stubs know two of the four)
        if self._atlas is not None:
            self._atlas.use(0)
        for batch in self._batches:
            batch.move(style.shift)
            values: dict[str, Any] = {
                "u_place": place, "u_size": (float(rect.width), float(rect.height)), "u_threshold": style.threshold,
                "u_opacity": style.opacity, "u_half": style.half, "u_rim": style.rim,
                "u_picture": (float(self._result.size[0]), float(self._result.size[1])), "u_atlas": 0,
            }
            for core in (0.0, 1.0) if batch.rims else (1.0,):
                for name, value in {**values, "u_core": core}.items():
                    if name in batch.program:
                        batch.program[name] = value
                batch.array.render(moderngl.TRIANGLES, vertices=batch.vertices, instances=batch.count)
        ctx.disable(moderngl.BLEND)

    def _masks(self, masks: list[Mask]) -> tuple[np.ndarray, np.ndarray]:
        """Put all masks beside each other into one texture, with an empty texel around each."""
        limit = min(int(self._ctx.info["GL_MAX_TEXTURE_SIZE"]), _ATLAS)
        corners, (width, height) = _packed([m.inside.shape for m in masks], limit)
        atlas = np.zeros((height, width), np.uint8)
        instances = np.zeros(len(masks), _MASK)
        kept = np.zeros(len(masks), bool)
        for i, (mask, corner) in enumerate(zip(masks, corners, strict=True)):
            if corner is None:
                continue
            x, y = corner
            h, w = mask.inside.shape
            np.multiply(mask.inside, 255, out=atlas[y: y + h, x: x + w], casting="unsafe")
            x0, y0, x1, y1 = mask.place
            instances[i] = ((x0, y0, x1, y1), (x, y, x + w, y + h), self._result.colors[mask.box],
                            self._result.floors[mask.box])
            kept[i] = True
        texture = self._ctx.texture((width, height), 1, atlas.tobytes(), alignment=1)
        texture.filter = moderngl.LINEAR, moderngl.LINEAR
        self._atlas = texture
        self._owned.append(texture)
        return instances[kept], np.array([m.box for m in masks])[kept]

    def release(self) -> None:
        """Idempotent."""
        for owned in self._owned:
            owned.release()
        self._owned.clear()
        self._batches.clear()
        self._atlas = None


class Style:
    """Parameters of one drawing of shapes."""

    def __init__(self, scale: float, *, opacity: float = 1.0, threshold: float = 0.0,
                 shift: np.ndarray | None = None) -> None:
        """`scale`: pixels per point. `shift`: (N, 2) float32, how far the boxes have moved, in the result's pixels."""
        self.half = max(scale, 0.5)
        self.rim = 1.1 * max(scale, 0.5)
        self.opacity = opacity
        self.threshold = threshold
        self.shift = shift


class _Batch:
    """Instances of one kind."""

    program: moderngl.Program
    array: moderngl.VertexArray

    def __init__(self, vertices: int, *, rims: bool = False) -> None:
        """`vertices`: of one instance. `rims`: those of all are drawn first."""
        self.vertices, self.rims = vertices, rims
        self.count = 0

    def begin(self, program: moderngl.Program, array: moderngl.VertexArray, owners: np.ndarray,
              shift: moderngl.Buffer) -> None:
        """`owners`: (N,) the box that each instance moves with, -1: none; `shift` holds how far, which is zero."""
        self.program, self.array, self.count = program, array, len(owners)
        self._owners, self._shift = owners, shift
        self._now: np.ndarray | None = None

    def move(self, shift: np.ndarray | None) -> None:
        if shift is None and self._now is None:
            return
        if shift is None:
            shift = np.zeros((max(int(self._owners.max()) + 1, 1), 2), np.float32)
        if self._now is not None and np.array_equal(shift, self._now):
            return
        moved = np.concatenate([shift, np.zeros((1, 2), np.float32)])[self._owners]  # -1 is the last, which rests
        self._shift.write(np.ascontiguousarray(moved, np.float32).tobytes())
        self._now = shift


def _boxes(result: Result) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.flatnonzero(result.drawn)
    out = np.zeros(len(numbers), _STROKE)
    out["a"], out["b"] = result.boxes[numbers, :2], result.boxes[numbers, 2:]
    out["color"], out["floor"], out["thick"] = result.colors[numbers], result.floors[numbers], _LINE
    return out, numbers


def _segments(result: Result) -> tuple[np.ndarray, np.ndarray]:
    """Lines, then bones, then points over them."""
    lines = np.zeros(len(result.lines), _STROKE)
    lines["a"], lines["b"], lines["color"] = result.lines[:, :2], result.lines[:, 2:], result.line_colors
    lines["floor"], lines["thick"] = 1e9, _LINE
    points, owned = result.points, result.owned_points
    floors = result.floors if owned else np.full(len(points), 1e9, np.float32)
    seen = points[..., 2] > 0
    group, which = np.nonzero(seen)
    dots = np.zeros(len(group), _STROKE)
    dots["a"] = dots["b"] = points[group, which, :2]
    dots["color"], dots["floor"], dots["thick"] = result.point_colors[group], floors[group], _DOT
    both = seen[:, result.skeleton[:, 0]] & seen[:, result.skeleton[:, 1]]
    person, bone = np.nonzero(both)
    bones = np.zeros(len(person), _STROKE)
    bones["a"] = points[person, result.skeleton[bone, 0], :2]
    bones["b"] = points[person, result.skeleton[bone, 1], :2]
    bones["color"], bones["floor"], bones["thick"] = result.point_colors[person], floors[person], _LINE
    none = np.full(len(lines), -1)
    owners = [none, person, group] if owned else [none, np.full(len(bones), -1), np.full(len(dots), -1)]
    return np.concatenate([lines, bones, dots]), np.concatenate(owners)


def _packed(shapes: list[tuple[int, ...]], limit: int) -> tuple[list[tuple[int, int] | None], tuple[int, int]]:
    """Pack rectangles of these heights and widths into one texture, row by row; None for those without room."""
    width = min(max([64, int(1.1 * sum(h * w for h, w in shapes) ** 0.5), *(w + 2 for _, w in shapes)]), limit)
    corners: list[tuple[int, int] | None] = [None] * len(shapes)
    x = y = row = 0
    for i in sorted(range(len(shapes)), key=lambda i: -shapes[i][0]):
        h, w = shapes[i][0] + 2, shapes[i][1] + 2
        if x + w > width:
            x, y, row = 0, y + row, 0
        if w > width or y + h > limit:
            continue
        corners[i] = x + 1, y + 1
        x, row = x + w, max(row, h)
    return corners, (width, max(y + row, 1))


# -- text ----------------------------------------------------------------------------------------------------

_SIZE = 13.0
"""Size of the letters, points."""
_MOST = 400
"""Labels in one picture: those of the highest scores."""
_SAID_FOR = 0.5
"""Seconds for which the lines in the corner stay as they are while pictures come."""
_DARK = ImVec4(0.05, 0.06, 0.07, 1.0)
_LIGHT = ImVec4(0.97, 0.98, 0.99, 1.0)


class Words:
    """Text state of one view: what was shown lately."""

    def __init__(self) -> None:
        self.due = math.inf
        """When the lines in the corner are to be written anew though nothing else changes."""
        self._lines: list[str] = []
        self._said_at = -math.inf
        self._key: object = None

    def write(self, layers: Layers, settings: ImageState, rect: Rect, placed: tuple[float, float, float],
              scale: float, *, corner: bool = True) -> None:
        """Write over the image in `rect`, inside an imgui frame. `placed`: as for `Layers.draw`. `corner`: also how
        fast things go and how old they are."""
        draw = imgui.get_background_draw_list()
        draw.push_clip_rect(ImVec2(rect.x, rect.y), ImVec2(rect.x + rect.width, rect.y + rect.height), True)
        with theme.font_size(_SIZE):
            for layer in layers.all if settings.overlay else ():
                opacity = layers.opacity(layer)
                if opacity > 0 and layer.result is not None:
                    place = (*placed[:2], *layers.per(layer.result, placed[2]))
                    if settings.labels:
                        _labels(opacity, layer.result, place, rect, settings.threshold, layers.shift(layer, settings))
                    _notes(opacity, layer.result, place, rect)
            if corner:
                self._corner(layers, settings, rect, scale)
        draw.pop_clip_rect()

    def _corner(self, layers: Layers, settings: ImageState, rect: Rect, scale: float) -> None:
        """Write rates and ages in the lower left corner, calmly."""
        now, key = layers.now, (layers.version, layers.time_ns, layers.changes, settings.overlay)
        if key != self._key and now < self._said_at + _SAID_FOR:
            self.due = self._said_at + _SAID_FOR
        else:
            self.due = math.inf
            if key != self._key:
                self._said_at, self._key = now, key
                self._lines = corner_lines(layers, settings)
        y = rect.y + rect.height - 10 * scale
        for line in reversed(self._lines):
            y = card(imgui.get_background_draw_list(), (rect.x + 10 * scale, y), [(line, theme.TEXT)], (0, 1),
                     ground=faint(theme.BAR, 0.72), pad=0.35).y - 3 * scale


def corner_lines(layers: Layers, settings: ImageState) -> list[str]:
    """Text about each layer, after that about the camera, if the image comes from one."""
    out = [layers.camera] if layers.camera else []
    for layer in layers.all if settings.overlay else ():
        if not (layer.ended and layers.opacity(layer) == 0) and (line := _about(layers, layer)):
            out.append(line)
    return out


def _about(layers: Layers, layer: Layer) -> str:
    result = layer.result
    assert result is not None
    if result.empty and not result.by:
        return ""
    words = [result.by or "overlay"]
    rate = result.rate_hz or layer.rate_hz
    if layer.ended:
        words.append("ended")
    elif rate >= 0.05:
        words.append(f"{rate:.1f}/s")
    if result.work_ms > 0:
        words.append(f"{result.work_ms:.0f} ms" if result.work_ms >= 9.95 else f"{result.work_ms:.1f} ms")
    age = layers.age(layer)
    times = "" if age.seconds is None else _duration(age.seconds)
    if age.frames == 0:
        words.append("result of this frame")
    elif age.frames is not None:
        frames = f"{age.frames:,} frame{'s' if age.frames != 1 else ''}"
        words.append(f"result {frames} old" + (f" ({times})" if times else ""))
    elif times:
        words.append(f"result {times} old")
    return " \u00b7 ".join(words)


def _duration(seconds: float) -> str:
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"


def _labels(opacity: float, result: Result, place: tuple[float, float, float, float], rect: Rect, threshold: float,
            shift: np.ndarray | None) -> None:
    """Above each box, or inside where there is no room above; the highest scores last, over the others."""
    x, y, per_x, per_y = place
    boxes = result.boxes if shift is None else result.boxes + shift[:, [0, 1, 0, 1]]
    screen = boxes * (per_x, per_y, per_x, per_y) + (x, y, x, y)
    floors = result.floors
    seen = (result.drawn & (floors >= threshold) & (screen[:, 0] < rect.x + rect.width)
            & (screen[:, 1] < rect.y + rect.height) & (screen[:, 2] > rect.x) & (screen[:, 3] > rect.y))
    numbers = seen.nonzero()[0]
    numbers = numbers[floors[numbers].argsort(kind="stable")][-_MOST:]
    draw, edge = imgui.get_background_draw_list(), theme.scale()
    for n, (x0, y0, _, _) in zip(numbers.tolist(), screen[numbers].tolist(), strict=True):
        if text := result.words(n):
            r, g, b, _ = (float(c) / 255 for c in result.colors[n])
            ink = faint(_DARK if is_light(result.colors[n]) else _LIGHT, opacity)
            card(draw, (x0 - edge, y0 - edge), [(text, ink)], (0, 1), within=rect, pad=0.3,
                 ground=ImVec4(r, g, b, 0.92 * opacity))


def _notes(opacity: float, result: Result, place: tuple[float, float, float, float], rect: Rect) -> None:
    x, y, per_x, per_y = place
    for at_x, at_y, text in result.notes:
        sx, sy = x + at_x * per_x, y + at_y * per_y
        if rect.x - 2000 < sx < rect.x + rect.width and rect.y - 500 < sy < rect.y + rect.height:
            card(imgui.get_background_draw_list(), (sx, sy), [(text, faint(theme.TEXT, opacity))],
                 ground=faint(theme.BAR, 0.82 * opacity), pad=0.3)
