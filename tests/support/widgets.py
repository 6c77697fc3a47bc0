"""Where widgets of Dear ImGui are on the screen, by their names: tests press them without knowing the layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imgui_bundle import imgui

from splatview_viewer.core.events import PointerLeave, PointerMove, PointerPress, PointerRelease

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from splatview_viewer.core.events import Event

_DRAW = "button", "selectable", "invisible_button", "menu_item", "checkbox", "slider_float"


class Widgets:
    """Notes the middle of each widget that is drawn. A name is what is written on it, else what follows "##"."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._middles: dict[str, tuple[float, float]] = {}
        for name in _DRAW:
            patch.setattr(imgui, name, self._noting(getattr(imgui, name)))

    def _noting(self, draw: Callable[..., Any]) -> Callable[..., Any]:
        def noted(label: str, *args: Any) -> Any:
            result = draw(label, *args)
            low, high = imgui.get_item_rect_min(), imgui.get_item_rect_max()
            written, _, name = label.partition("##")
            self._middles[written or name] = (low.x + high.x) / 2, (low.y + high.y) / 2
            return result

        return noted

    def at(self, name: str) -> tuple[float, float]:
        return self._middles[name]

    def click(self, name: str, *, clicks: int = 1) -> list[Event]:
        """The events of a click, after which the pointer leaves: a tooltip would lie over the picture."""
        x, y = self.at(name)
        return [PointerMove(x, y), PointerPress(x, y, clicks=clicks), PointerRelease(x, y), PointerLeave()]
