"""The sections of the panel about an image: how it is shown, and what lies over it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from imgui_bundle import imgui

from splatview_viewer.core.view import Section
from splatview_viewer.geometry.pan_zoom import FITTED
from splatview_viewer.kinds.image.commands import RANGES
from splatview_viewer.kinds.image.measurement import draw_measurement_controls
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.color_field import draw_color

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.kinds.image.view import ImageView

_FIT = 0.0
_ZOOMS = {_FIT: "Fit", 1.0: "1:1", 2.0: "2x", 4.0: "4x"}
"""Pixels of the screen for one of the picture, and what that is called."""
_ALPHA_LABELS = {
    "checkerboard": "Checkerboard",
    "background": "Background",
    "ignore": "Ignored",
}
_SHOW_FIELDS = (
    "exposure",
    "gamma",
    "range",
    "color_map",
    "measured_range",
    "alpha",
    "background",
)
"""Fields of the state that the section "Show" is about."""
_OVERLAY_FIELDS = ("overlay", "labels", "threshold")


def sections_of(view: ImageView) -> Sequence[Section]:
    """Return the sections of the panel for an image."""
    sections = [
        Section(
            "Show",
            partial(_draw_show, view),
            opened=True,
            tip="Where the picture lies, and how its values become colours",
            state=_zoom_text(view),
            reset=partial(_reset, view, _SHOW_FIELDS),
        )
    ]
    if view.data.layers:
        sections.append(
            Section(
                "Overlay",
                partial(_draw_overlay, view),
                opened=True,
                tip="Boxes, masks, points and lines that were published for the image",
                state="shown" if view.state.overlay else "hidden",
                reset=partial(_reset, view, _OVERLAY_FIELDS),
            )
        )
    return sections


def _reset(view: ImageView, names: Sequence[str]) -> None:
    """Set fields of the state back to their defaults."""
    default = type(view.state)()
    changes: dict[str, Any] = {name: getattr(default, name) for name in names}
    view.state = replace(view.state, **changes)


def _zoom_text(view: ImageView) -> str:
    """Return how large the picture is shown: "Fit", "200%"."""
    if view.state.place == FITTED:
        return "Fit"
    return f"{view.zoom:.0%}"


def _draw_show(view: ImageView) -> None:
    """Draw zoom, tones and grounds."""
    _draw_zoom(view)
    if view.is_float:
        _draw_tones(view)
    measurement = view.data.values.measurement
    if measurement is not None:
        automatic = measurement.converted(view.data.values.range)
        view.state = draw_measurement_controls(view.state, automatic)
    if view.has_alpha:
        alpha: Any = ui.choice(
            "Alpha",
            "How transparent pixels are shown",
            view.state.alpha,
            _ALPHA_LABELS,
        )
        view.state = replace(view.state, alpha=alpha)
    background = draw_color(
        "Background", "Colour around and behind the image", view.state.background
    )
    view.state = replace(view.state, background=background)


def _draw_zoom(view: ImageView) -> None:
    """Draw the choice of magnifications; none is chosen where it is another one."""
    shown_zoom = _FIT
    if view.state.place != FITTED:
        shown_zoom = next(
            (z for z in _ZOOMS if z and abs(view.zoom / z - 1) < 1e-3), -1.0
        )
    zoom = ui.segments(
        "Zoom", "All of it (F), or pixel for pixel (1) and larger", shown_zoom, _ZOOMS
    )
    if zoom != shown_zoom:
        view.zoom_to(zoom)


def _draw_tones(view: ImageView) -> None:
    """Draw how floating point values become colours."""
    value_range = ui.choice(
        "Range",
        "The values that are shown as black and as white",
        view.state.range,
        RANGES,
    )
    exposure = ui.slider(
        "Exposure",
        "Brightness in stops: + 1 doubles the values",
        view.state.exposure,
        (-10.0, 10.0),
        "%+.1f EV",
        reset=0.0,
    )
    gamma = ui.slider(
        "Gamma",
        "Exponent of the display: values are raised to 1 / gamma",
        view.state.gamma,
        (0.2, 4.0),
        "%.2f",
        reset=1.0,
    )
    view.state = replace(view.state, range=value_range, exposure=exposure, gamma=gamma)


def _draw_overlay(view: ImageView) -> None:
    """Draw what is shown over the picture."""
    overlay = ui.check(
        "Overlay",
        "Boxes, masks, points and lines that were published for the image",
        view.state.overlay,
    )
    view.state = replace(view.state, overlay=overlay)
    reason = "" if overlay else "\nThe overlay is hidden"
    imgui.begin_disabled(not overlay)
    labels = ui.check(
        "Labels", f"Names and scores beside boxes{reason}", view.state.labels
    )
    threshold = ui.slider(
        "Threshold",
        f"Detections of a lower score (confidence) are hidden{reason}",
        view.state.threshold,
        (0.0, 1.0),
        "%.2f",
        reset=0.0,
    )
    imgui.end_disabled()
    view.state = replace(view.state, labels=labels, threshold=threshold)
