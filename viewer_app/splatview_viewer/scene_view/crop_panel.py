"""The section "Crop": the numbers of the shape."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from imgui_bundle import imgui

from splatview_viewer.scene import Box, Cylinder, Shape, Sphere, shapes
from splatview_viewer.ui import controls
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.drags import drag, drag_all

if TYPE_CHECKING:
    from splatview_viewer.core.selection import Vector
    from splatview_viewer.scene_view.crop import Crop

B = TypeVar("B", Box, Cylinder)
R = TypeVar("R", Sphere, Cylinder)

_MAX_DRAG_STEPS = 1e6
"""Steps of dragging in a number from which on float32 has none so small."""
_MIN_LENGTH = 1e-6
_MAX_LENGTH = 1e9
_WORLD_UNITS_TIP = "World units. Drag, or Ctrl + click to type"
_NO_SHAPE = type(None)
_KINDS: dict[type[Shape | None], str] = {
    _NO_SHAPE: "None",
    Box: "Box",
    Sphere: "Sphere",
    Cylinder: "Cylinder",
}
"""Names of the shapes to choose from."""


def state_words(tool: Crop) -> str:
    """Return what is cropped, in a few words."""
    shape = tool.shape
    if shape is None:
        return "none"
    name = _KINDS[type(shape)].lower()
    if shape.outside:
        return f"outside a {name}"
    return f"in a {name}"


def draw_panel(tool: Crop) -> None:
    """Draw the section "Crop"."""
    tool.is_open = True
    shape = _draw_kind(tool)
    if shape is None:
        return
    edited = _draw_place(shape)
    match edited:
        case Box():
            edited = _draw_rotation(_draw_size(edited))
        case Cylinder():
            edited = _draw_rotation(_draw_height(_draw_radius(edited)))
        case Sphere():
            edited = _draw_radius(edited)
    if edited != shape:
        tool.set_shape(edited)
    _draw_fit(tool)


def _draw_fit(tool: Crop) -> None:
    """Draw the button that fits the shape to the scene, and what it leaves out."""
    ui.row("Fit")
    tip = "Around all that is seen of the scene"
    if controls.button("Fit to scene", "fit", width=-1, hint=tip):
        tool.fit_shape()
    tool.without_far = ui.check(
        "",
        "Floaters count no more: Fit leaves out the farthest hundredth of what is seen",
        tool.without_far,
        "without the farthest 1 %",
    )


def _draw_kind(tool: Crop) -> Shape | None:
    """Draw the choice of the shape; return the chosen one."""
    shape = tool.shape
    kind = type(shape)
    choice = ui.segments("Shape", "The region that the scene is cut to", kind, _KINDS)
    if choice == kind:
        return shape
    if choice is _NO_SHAPE:
        tool.end()
        return None
    shape = tool.fit(choice)
    tool.set_shape(shape)
    return shape


def _size(shape: Shape) -> float:
    """Return a length that fits the shape, for steps and decimals."""
    if isinstance(shape, Sphere):
        return shape.radius
    return max(shape.half)


def _number_format(size: float) -> str:
    decimals = min(max(2 - math.floor(math.log10(size)), 0), 9)
    return f"%.{decimals}f"


def _draw_place(shape: Shape) -> Shape:
    """Draw the side that stays and the centre; return the edited shape."""
    outside = ui.segments(
        "Keep",
        "The side of the region whose Gaussians stay",
        shape.outside,
        {False: "Inside", True: "Outside"},
    )
    size = _size(shape)
    center = _draw_vector(
        "Centre",
        shape.center,
        size / 200,
        _WORLD_UNITS_TIP,
        number_format=_number_format(size),
    )
    return replace(shape, outside=outside, center=center)


def _draw_size(box: Box) -> Box:
    """Draw the lengths of the edges; return the edited box."""
    size = _size(box)
    a, b, c = box.half
    lengths = (2 * a, 2 * b, 2 * c)
    edited_lengths = _draw_vector(
        "Size",
        lengths,
        size / 200,
        "Lengths of its edges, world units",
        minimum=_MIN_LENGTH,
        number_format=_number_format(size),
    )
    if edited_lengths != lengths:
        a, b, c = edited_lengths
        box = replace(box, half=(a / 2, b / 2, c / 2))
    return box


def _draw_rotation(shape: B) -> B:
    """Draw the rotation; return the edited shape."""
    angles = shapes.angles_of(shape)
    edited_angles = _draw_vector(
        "Rotation",
        angles,
        0.5,
        "Degrees around x, then y, then z",
        number_format="%.1f",
    )
    if edited_angles != angles:
        return replace(shape, axes=shapes.axes_of(edited_angles))
    return shape


def _draw_radius(shape: R) -> R:
    """Draw the radius; return the edited shape."""
    radius = _draw_length("Radius", shape.radius, _WORLD_UNITS_TIP)
    return replace(shape, radius=radius)


def _draw_height(cylinder: Cylinder) -> Cylinder:
    """Draw the height; return the edited cylinder."""
    height = 2 * cylinder.half_height
    edited_height = _draw_length("Height", height, "From end to end, world units")
    return replace(cylinder, half_height=edited_height / 2)


def _draw_length(label: str, length: float, tip: str) -> float:
    """Draw a length to drag or to type; return it as the user edited it."""
    ui.row(label)
    edited_length = drag(
        f"##{label}",
        length,
        length / 200,
        "%.3g",
        (_MIN_LENGTH, _MAX_LENGTH),
        imgui.SliderFlags_.always_clamp.value,
    )
    controls.tip(tip)
    return edited_length


def _draw_vector(
    label: str,
    values: Vector,
    step: float,
    tip: str,
    *,
    minimum: float = -math.inf,
    number_format: str,
) -> Vector:
    """Draw three numbers to drag or to type; return them as the user edited them."""
    ui.row(label)
    # Dragging goes through float32, where such a step would be lost.
    if max(map(abs, values)) > _MAX_DRAG_STEPS * step:
        is_edited, components = ui.vector(label, values, number_format)
    else:
        is_edited, components = drag_all(label, values, step, number_format)
    controls.tip(tip)
    if not is_edited:
        # What came back was rounded to 32 bits.
        return values
    x, y, z = (
        max(component, minimum) if math.isfinite(component) else value
        for component, value in zip(list(components)[:3], values, strict=True)
    )
    return x, y, z
