"""Commands of an image."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from splatview_viewer.core.command import Command

if TYPE_CHECKING:
    from splatview_viewer.kinds.image.view import ImageView

RANGES: dict[tuple[float, float] | None, str] = {
    (0.0, 1.0): "0 to 1",
    (0.0, 255.0): "0 to 255",
    (-1.0, 1.0): "-1 to 1",
    None: "Automatic",
}
"""The ranges of values that a user can choose, and their names."""


def _fit(view: ImageView) -> None:
    view.zoom_to(0.0)


def _why_no_range(view: ImageView) -> str | None:
    if view.is_float:
        return None
    return "its values are colours as they are"


def _why_no_overlay(view: ImageView) -> str | None:
    if view.data.layers:
        return None
    return "nothing is published over it"


def _why_no_labels(view: ImageView) -> str | None:
    reason = _why_no_overlay(view)
    if reason is None and not view.state.overlay:
        return "the overlay is hidden"
    return reason


def _switch_overlay(view: ImageView) -> None:
    view.state = replace(view.state, overlay=not view.state.overlay)


def _switch_labels(view: ImageView) -> None:
    view.state = replace(view.state, labels=not view.state.labels)


def _reset_tones(view: ImageView) -> None:
    view.state = replace(view.state, exposure=0.0, gamma=1.0)


def _choose_range(values: tuple[float, float] | None, view: ImageView) -> None:
    view.state = replace(view.state, range=values)


def _zoom_command(zoom: int) -> Command[ImageView]:
    def run(view: ImageView) -> None:
        view.zoom_to(float(zoom))

    title = "Zoom: 1:1" if zoom == 1 else f"Zoom: {zoom}x"
    keys = ("1",) if zoom == 1 else ()
    return Command(f"image.zoom.{zoom}", title, run, keys, icon="find")


COMMANDS: tuple[Command[ImageView], ...] = (
    Command("image.fit", "Zoom: fit into the pane", _fit, ("F",), icon="fit"),
    *(_zoom_command(zoom) for zoom in (1, 2, 4)),
    *(
        Command(
            f"image.range.{name}",
            f"Range: {name.lower()}",
            partial(_choose_range, values),
            icon="sliders",
            reason=_why_no_range,
        )
        for values, name in RANGES.items()
    ),
    Command(
        "image.tones",
        "Exposure and gamma: back to none",
        _reset_tones,
        icon="undo",
        reason=_why_no_range,
    ),
    Command(
        "image.overlay",
        "Show or hide the overlay",
        _switch_overlay,
        icon="layers",
        reason=_why_no_overlay,
    ),
    Command(
        "image.labels",
        "Show or hide the labels of boxes",
        _switch_labels,
        icon="layers",
        reason=_why_no_labels,
    ),
)
