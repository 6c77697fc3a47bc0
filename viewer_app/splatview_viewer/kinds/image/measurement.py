"""Pictures of one channel of uint16: measurements, such as a depth camera's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_ipc.control.dtypes import DTYPES
from splatview_ipc.kinds.image import IMAGE_AXES, holds_measurements
from splatview_viewer.core.quantities import number_labels

if TYPE_CHECKING:
    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.image.view import ImageState

MEASUREMENT_META = ("unit", "scale")
MAX_VALUE = DTYPES["uint16"].one
"""The value that a shader sees as 1."""


class Measurement(NamedTuple):
    """The meaning of a picture's values, as its publisher says."""

    unit: str = ""
    scale: float = 1.0
    """How many of the unit a value of 1 is."""

    def converted(self, values: tuple[float, float]) -> tuple[float, float]:
        """Return stored values in the unit."""
        low, high = values
        return low * self.scale, high * self.scale

    def stored(self, values: tuple[float, float]) -> tuple[float, float]:
        """Return values in the unit as they would be stored."""
        low, high = values
        return low / self.scale, high / self.scale

    def value_text(self, value: float) -> str:
        """Return a stored value, and what it is in the unit where that is another."""
        if not value or (not self.unit and self.scale == 1.0):
            return f"{value}"
        if self.scale == 1.0:
            return f"{value} {self.unit}"
        return f"{value}   {value * self.scale:.5g} {self.unit}".rstrip()

    def range_text(self, values: tuple[float, float]) -> str:
        """Return a range in the unit."""
        low, high = values
        return f"{low:.4g} to {high:.4g} {self.unit}".rstrip()


def measurement_of(frame: StreamFrame | None) -> Measurement | None:
    """Return what the values of an image stand for; None for brightness.

    Files of 16 bits are photographs.
    """
    if frame is None:
        return None
    tensor = frame.tensors["image"]
    axes = IMAGE_AXES[str(frame.meta["layout"])]
    if not holds_measurements(tensor.dtype, tensor.shape, axes):
        return None
    unit = str(frame.meta.get("unit", ""))
    return Measurement(unit, float(frame.meta.get("scale", 1.0)))


def automatic_range(values: np.ndarray) -> tuple[float, float]:
    """Return the 1st and 99th percentile of stored values that are not 0."""
    measured = values[values > 0]
    if not len(measured):
        return (0.0, 1.0)
    low, high = np.percentile(measured, (1, 99)).tolist()
    return (low, max(high, low + 1))


def draw_measurement_legend(
    measurement: Measurement,
    color_map: str,
    values: tuple[float, float],
    rect: Rect,
    scale: float,
) -> None:
    """Draw what the colours of a picture in `rect` stand for.

    Args:
        measurement: of the picture.
        color_map: its name.
        values: at both ends of it, in the unit.
        rect: of the picture.
        scale: pixels per point.
    """
    from splatview_viewer.ui.legend import draw_legend

    if measurement.unit:
        title = f"Values in {measurement.unit}"
    else:
        title = "Values"
    low, high = values
    labels = number_labels((low, (low + high) / 2, high))
    draw_legend(title, color_map, labels, rect, scale)


def draw_measurement_controls(
    state: ImageState, automatic: tuple[float, float]
) -> ImageState:
    """Draw how measurements become colours; return the state as the user edited it.

    automatic: the range of the picture's values, in the unit.
    """
    from splatview_viewer.scene import color_maps
    from splatview_viewer.ui import widgets as ui

    tip = "Colours that stand for numbers"
    color_map = ui.choice("Colour map", tip, state.color_map, color_maps.NAMES)
    tip = "The values at both ends of the colour map"
    measured_range = ui.value_range(tip, state.measured_range, automatic)
    return replace(state, color_map=color_map, measured_range=measured_range)
