"""Colours allocations by their stack, size, category, stream or pool."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from splatview_viewer.snapshot.analysis import frames as _frames
from splatview_viewer.snapshot.analysis.tables import classes, group_allocations
from splatview_viewer.snapshot.model import cached, live_mask, peak_moment

if TYPE_CHECKING:
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

ColorBy = Literal["stack", "size", "category", "stream", "pool"]
"""Groupings whose groups are painted in one colour each."""

_GREY = (104, 108, 116)
_STACK_COLORS = 36
_MAX_LEGEND = 12
_MIN_LEGEND_SHARE = 1e-3
"""Share of all bytes from which a group is named in the legend."""
_CATEGORY_HUES = (
    (0.60, 0.10, 250),
    (0.62, 0.11, 55),
    (0.55, 0.11, 305),
    (0.64, 0.10, 150),
    (0.70, 0.09, 90),
    (0.55, 0.05, 200),
    (0.68, 0.09, 200),
    (0.58, 0.09, 350),
    (0.60, 0.12, 25),
    (0.47, 0.03, 250),
    (0.52, 0.008, 260),
)
"""Lightness, chroma and hue of CATEGORIES."""


class Colors(NamedTuple):
    """A class for each allocation, and a colour for each class."""

    classes: np.ndarray
    """uint16 (A,)"""
    palette: np.ndarray
    """uint8 (K, 3), sRGB"""
    legend: list[tuple[str, int]]
    """Names of classes, the most important first; not every class needs one."""


def color_allocations(
    snapshot: MemorySnapshot, trace: Trace, color_by: ColorBy
) -> Colors:
    """Colour the allocations of a device.

    The same stack has the same colour at every time, and nearly always in every snapshot.
    """
    if color_by == "stack":
        return _color_by_stack(snapshot, trace)
    groups, label = classes(snapshot, trace, color_by)
    count = int(groups.max(initial=0)) + 1
    # The class after the groups is for allocations of none, and grey.
    groups = np.where(groups < 0, count, groups)
    group_bytes = np.bincount(groups, trace.allocations.size, count + 1)
    large = np.flatnonzero(group_bytes > _MIN_LEGEND_SHARE * group_bytes.sum())
    if color_by == "size":
        palette = _gradient(count, large)
        order = large[::-1]
    else:
        if color_by == "category":
            palette = _category_colors(count)
        else:
            palette = _distinct(count)
        order = large[np.argsort(-group_bytes[large], kind="stable")]
    legend = [
        (label(group if group < count else -1), group)
        for group in order[:_MAX_LEGEND].tolist()
    ]
    palette = np.concatenate([palette, np.array([_GREY], np.uint8)])
    return Colors(groups.astype(np.uint16), palette, legend)


@cached
def _color_by_stack(snapshot: MemorySnapshot, trace: Trace) -> Colors:
    """Colour allocations by a hash of their stack; grey without a stack."""
    color = (_frames.stack_keys(snapshot) % np.uint64(_STACK_COLORS)).astype(np.int64)
    grey = np.array([_GREY], np.uint8)
    palette = np.concatenate([_distinct(_STACK_COLORS), grey])
    at_peak = live_mask(trace, peak_moment(trace))
    holders = group_allocations(snapshot, trace, at_peak, "stack")
    # Of stacks that share a colour, the largest names it.
    names: dict[int, str] = {}
    for row in islice(holders, _MAX_LEGEND):
        if row.key >= 0:
            color_class = int(color[row.key])
        else:
            color_class = _STACK_COLORS
        if color_class not in names:
            text = _frames.stack_text(snapshot, row.key, caller=False)
            names[color_class] = text
    color_of_stack = np.append(color, _STACK_COLORS).astype(np.uint16)
    return Colors(
        classes=color_of_stack[trace.allocations.stack],
        palette=palette,
        legend=[(name, color_class) for color_class, name in names.items()],
    )


def _gradient(count: int, large: np.ndarray) -> np.ndarray:
    """Return colours from deep blue to light yellow, uint8 (count, 3).

    They are spread over the groups that are worth seeing, `large`, ascending.
    """
    span = int(np.ptp(large)) if len(large) else 0
    position = (np.arange(count) - large.min(initial=0)) / max(span, 1)
    t = np.clip(position, 0, 1)
    return _srgb(
        lightness=0.38 + 0.44 * t,
        chroma=0.09 + 0.03 * np.sin(np.pi * t),
        hue=(270 - 190 * t) % 360,
    )


def _category_colors(count: int) -> np.ndarray:
    """Return the colours of the first categories, uint8 (count, 3)."""
    lightness, chroma, hue = np.array(_CATEGORY_HUES[:count]).T
    return _srgb(lightness, chroma, hue)


def _distinct(count: int) -> np.ndarray:
    """Return colours that differ from their neighbours, uint8 (count, 3)."""
    i = np.arange(count)
    return _srgb(
        lightness=np.array([0.66, 0.53, 0.60])[i % 3],
        chroma=np.array([0.095, 0.105, 0.08])[i % 3],
        hue=(250 + i * 137.508) % 360,
    )


_OKLAB_TO_LMS = np.array(
    [
        [1.0, 0.3963377774, 0.2158037573],
        [1.0, -0.1055613458, -0.0638541728],
        [1.0, -0.0894841775, -1.2914855480],
    ]
)
"""To the cube roots of the cones' responses (Ottosson, "A perceptual color space")."""
_LMS_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


def _srgb(lightness: np.ndarray, chroma: np.ndarray, hue: np.ndarray) -> np.ndarray:
    """Convert OKLCh (hue in degrees) to sRGB, uint8 (K, 3)."""
    a = chroma * np.cos(np.radians(hue))
    b = chroma * np.sin(np.radians(hue))
    lms = (_OKLAB_TO_LMS @ np.stack([lightness, a, b])) ** 3
    linear = np.clip(_LMS_TO_RGB @ lms, 0, 1)
    low = 12.92 * linear
    high = 1.055 * linear ** (1 / 2.4) - 0.055
    encoded = np.where(linear <= 0.0031308, low, high)
    return (encoded.T * 255 + 0.5).astype(np.uint8)
