"""Places of imgui's widgets by their names, noted as the widgets are drawn.

So no test clicks at literal pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from imgui_bundle import imgui

from splatview_viewer.core.screen import Rect

KINDS = (
    "button",
    "small_button",
    "invisible_button",
    "selectable",
    "menu_item",
    "checkbox",
    "combo",
    "slider_float",
    "slider_int",
    "table_header",
    "drag_float",
    "drag_float3",
    "input_int",
    "input_double",
    "tree_node",
    "input_text_with_hint",
    "input_text_multiline",
)
drawn: dict[str, Rect] = {}
"""Widgets in the last pictures of all screens, by the name that imgui shows.

That is "Run", or "key" of "##key".
"""


def _noting(draw: Callable[..., Any]) -> Callable[..., Any]:
    def noted(name: str, *args: Any, **options: Any) -> Any:
        result = draw(name, *args, **options)
        low = imgui.get_item_rect_min()
        high = imgui.get_item_rect_max()
        visible, _, hidden = name.partition("##")
        drawn[visible or hidden] = Rect(
            round(low.x), round(low.y), round(high.x - low.x), round(high.y - low.y)
        )
        return result

    return noted


for kind in KINDS:
    setattr(imgui, kind, _noting(getattr(imgui, kind)))


def middle(name: str) -> tuple[int, int]:
    """Return the middle of a widget in the last picture, in pixels of the screen."""
    assert name in drawn, f"no widget {name!r} is drawn; there are {sorted(drawn)}"
    rect = drawn[name]
    return rect.x + rect.width // 2, rect.y + rect.height // 2
