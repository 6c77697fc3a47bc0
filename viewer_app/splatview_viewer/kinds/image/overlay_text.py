"""Text over an image: the labels and notes of its overlay, and lines in a corner."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.image.overlay import is_light
from splatview_viewer.ui import theme
from splatview_viewer.ui.text_cards import card
from splatview_viewer.ui.widgets import faint

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.image.layers import Age, ImageLayers, Layer
    from splatview_viewer.kinds.image.overlay import OverlayResult
    from splatview_viewer.kinds.image.view import ImageState

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
