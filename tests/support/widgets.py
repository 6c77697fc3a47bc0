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
    "begin_combo",
    "slider_float",
    "slider_int",
    "table_header",
    "drag_float",
    "drag_float3",
    "drag_float_range2",
    "input_int",
    "input_double",
    "tree_node",
    "collapsing_header",
    "input_text_with_hint",
    "input_text_multiline",
)
drawn: dict[str, Rect] = {}
"""Widgets in the last pictures of all screens, by the name that imgui shows.

That is "Run", or "key" of "##key". Each test begins with none.
"""
_choices: dict[str, str] = {}
"""Entries that lists are to choose when they are drawn next, by the lists' names."""


def _noting(draw: Callable[..., Any]) -> Callable[..., Any]:
    def noted(name: str, *args: Any, **options: Any) -> Any:
        result = draw(name, *args, **options)
        _note(name)
        return result

    return noted


def _note(name: str) -> None:
    """Note the place of the last item."""
    low = imgui.get_item_rect_min()
    high = imgui.get_item_rect_max()
    drawn[_shown_name(name)] = Rect(
        round(low.x), round(low.y), round(high.x - low.x), round(high.y - low.y)
    )


def _shown_name(name: str) -> str:
    visible, _, hidden = name.partition("##")
    return visible or hidden


def _choosing(draw: Callable[..., Any]) -> Callable[..., Any]:
    def combo(
        name: str, index: int, entries: list[str], *args: Any, **options: Any
    ) -> tuple[bool, int]:
        result = draw(name, index, entries, *args, **options)
        entry = _choices.pop(_shown_name(name), None)
        if entry is None:
            return result
        return True, entries.index(entry)

    return combo


_open_choice: list[str] = []
"""The entry that the list that is being drawn is to choose, until it is found."""


def _beginning(begin: Callable[..., bool]) -> Callable[..., bool]:
    """Return `begin_combo`, which opens a list that is to choose an entry."""

    def begin_combo(name: str, preview: str, *args: Any, **options: Any) -> bool:
        is_open = begin(name, preview, *args, **options)
        if not is_open:
            _note(name)
        entry = _choices.pop(_shown_name(name), None)
        if entry is None:
            return is_open
        if is_open:
            imgui.close_current_popup()
            imgui.end_combo()
        _open_choice.append(entry)
        return True

    return begin_combo


def _selecting(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Return `selectable`, of which one chooses in a list that `choose` named."""

    def selectable(name: str, *args: Any, **options: Any) -> Any:
        if not _open_choice:
            return draw(name, *args, **options)
        is_open = _shown_name(name) == _open_choice[-1]
        if is_open:
            _open_choice[-1] = ""
        return is_open, is_open

    return selectable


def _ending(end: Callable[[], None]) -> Callable[[], None]:
    """Return `end_combo`, which ends a list that `choose` named as well."""

    def end_combo() -> None:
        if not _open_choice:
            end()
            return
        entry = _open_choice.pop()
        assert not entry, f"the list has no entry {entry!r}"

    return end_combo


imgui.combo = _choosing(imgui.combo)
for kind in KINDS:
    setattr(imgui, kind, _noting(getattr(imgui, kind)))
imgui.selectable = _selecting(imgui.selectable)
imgui.begin_combo = _beginning(imgui.begin_combo)
imgui.end_combo = _ending(imgui.end_combo)


def choose(label: str, entry: str) -> None:
    """Have a list choose an entry when it is drawn next, as if a user had."""
    _choices[label] = entry


def clear() -> None:
    """Forget the widgets that were drawn, and what lists were to choose.

    Raises AssertionError if a list was not drawn since `choose`.
    """
    drawn.clear()
    missing = dict(_choices)
    _choices.clear()
    assert not missing, f"no list was drawn to choose {missing}"


def middle(name: str) -> tuple[int, int]:
    """Return the middle of a widget in the last picture, in pixels of the screen."""
    assert name in drawn, f"no widget {name!r} is drawn; there are {sorted(drawn)}"
    rect = drawn[name]
    return rect.x + rect.width // 2, rect.y + rect.height // 2
