"""Text over an image: labels at their boxes, notes, and ages. With imgui."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.image.overlay.result import is_light
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import card, faint

if TYPE_CHECKING:
    import numpy as np

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.image.overlay.layers import Layer, Layers
    from splatview_viewer.kinds.image.overlay.result import Result
    from splatview_viewer.kinds.image.view import ImageState

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
