"""How a crop is drawn over the picture, and its numbers in the panel."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.scene import Box, Sphere, shapes
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    import numpy as np
    from imgui_bundle import ImVec2Like

    from splatview_viewer.core.selection import Vector
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.gaussians.crop import Crop

_FAR = 1e5
"""Pixels beyond which nothing is drawn."""
_AXES = ImVec4(0.93, 0.42, 0.42, 1), ImVec4(0.50, 0.80, 0.42, 1), ImVec4(0.43, 0.62, 0.98, 1)
"""Colours of the handles along x, y and z, over pictures, which are the same in light and dark."""
_ROUNDED = 1e6
"""Steps of dragging in a number from which on float32 has none so small."""
_LINE, _SHADE = ImVec4(1, 1, 1, 1), ImVec4(0, 0, 0, 1)


def draw(tool: Crop, camera: Camera, rect: Rect, scale: float) -> None:
    """The shape and its handles, over the picture in `rect`."""
    lines = imgui.get_background_draw_list()
    lines.push_clip_rect(ImVec2(rect.x, rect.y), ImVec2(rect.x + rect.width, rect.y + rect.height), True)
    if tool.box is not None:
        for corners, front in sorted(shapes.edges(tool.box, camera), key=lambda edge: edge[1]):
            _line(lines, corners, rect, (0.95 if front else 0.35), scale)
    elif tool.sphere is not None and (rim := shapes.silhouette(tool.sphere, camera)) is not None:
        _line(lines, rim, rect, 0.95, scale, closed=True)
    for handle, (x, y) in tool.handles(camera):
        if max(abs(x), abs(y)) > _FAR:
            continue
        color = _AXES[handle[0]] if isinstance(handle, tuple) else _LINE
        active = handle in (tool.hovered, tool.grabbed)
        at, radius = ImVec2(x + rect.x, y + rect.y), (6.5 if active else 5.0) * scale
        lines.add_circle_filled(at, radius + 1.5 * scale, theme.u32(_SHADE, 0.6), 24)
        lines.add_circle_filled(at, radius, theme.u32(color), 24)
        if handle == "center":
            lines.add_circle_filled(at, radius * 0.45, theme.u32(_SHADE, 0.8), 16)
    lines.pop_clip_rect()


def _line(lines: imgui.ImDrawList, corners: np.ndarray, rect: Rect, alpha: float, scale: float,
          closed: bool = False) -> None:
    if abs(corners).max() > _FAR:
        corners = corners.clip(-_FAR, _FAR)
    points: list[ImVec2Like] = [ImVec2(x + rect.x, y + rect.y) for x, y in corners.tolist()]
    flags = imgui.ImDrawFlags_.closed.value if closed else 0
    lines.add_polyline(points, theme.u32(_SHADE, 0.55 * alpha), 3.0 * scale, flags)
    lines.add_polyline(points, theme.u32(_LINE, alpha), 1.25 * scale, flags)


def panel(tool: Crop) -> bool:
    """The panel's part. True when a picture has to follow."""
    shape = tool.box or tool.sphere
    kind = "" if shape is None else "box" if isinstance(shape, Box) else "sphere"
    chosen = ui.choice("Shape", kind, {"": "None", "box": "Box", "sphere": "Sphere"})
    if chosen != kind:
        box, sphere = tool.fitted()
        tool.set({"": None, "box": box, "sphere": sphere}[chosen])
        return True
    if shape is None:
        return False
    new: Box | Sphere = replace(shape, outside=ui.choice("Keep", shape.outside, {False: "Inside", True: "Outside"}))
    size = max(new.half) if isinstance(new, Box) else new.radius
    fmt = f"%.{min(max(2 - math.floor(math.log10(size)), 0), 9)}f"
    new = replace(new, center=_three("Centre", new.center, size / 200, "World units. Drag, or Ctrl + click to type",
                                     fmt=fmt))
    if isinstance(new, Box):
        a, b, c = (2 * h for h in new.half)
        edge = _three("Size", (a, b, c), size / 200, "Lengths of its edges, world units", least=1e-6, fmt=fmt)
        if edge != (a, b, c):
            new = replace(new, half=(edge[0] / 2, edge[1] / 2, edge[2] / 2))
        angles = shapes.angles_of(new)
        turned = _three("Rotation", angles, 0.5, "Degrees around x, then y, then z", fmt="%.1f")
        if turned != angles:
            new = replace(new, axes=shapes.axes_of(turned))
    else:
        ui.row("Radius")
        edited, radius = imgui.drag_float("##radius", new.radius, size / 200, 1e-6, 1e9, "%.3g",
                                          imgui.SliderFlags_.always_clamp.value)
        imgui.set_item_tooltip("World units. Drag, or Ctrl + click to type")
        if edited:
            new = replace(new, radius=radius)
    if ui.buttons("", ["Fit to scene"], ["Around all but the outer hundredth of what can be seen"]) == 0:
        box, sphere = tool.fitted()
        new = replace(box if isinstance(new, Box) else sphere, outside=new.outside)
    if new == shape:
        return False
    tool.set(new)
    return True


def _three(label: str, values: Vector, speed: float, tip: str, *, least: float = -math.inf,
           fmt: str = "%.3g") -> Vector:
    """Three numbers after this turn, to drag or to type into."""
    ui.row(label)
    if max(map(abs, values)) > _ROUNDED * speed:  # to drag takes float32
        edited, new = ui.vector(label, values, fmt)
    else:
        edited, new = imgui.drag_float3(f"##{label}", list(values), speed, 0.0, 0.0, fmt)
    imgui.set_item_tooltip(tip)
    if not edited:
        return values  # not what came back, which was rounded to 32 bits
    x, y, z = (max(v, least) if math.isfinite(v) else w for v, w in zip(list(new)[:3], values, strict=True))
    return x, y, z
