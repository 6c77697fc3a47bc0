"""Places of everything in one picture of the interface, and the faults of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations, product
from typing import Any, NamedTuple

import pytest
from imgui_bundle import imgui

from splatview_viewer.shell.interface import Interface
from splatview_viewer.ui import lettering
from support import widgets
from support.viewer import Viewer

_SLACK = 1.5
"""Pixels that letters and lines may pass what they lie in."""
_BAR = 24.0
"""Pixels of a bar for scrolling at most."""


class Box(NamedTuple):
    """A part of the screen, in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def cut(self, box: Box) -> Box:
        """Return what both have."""
        return Box(
            max(self.left, box.left),
            max(self.top, box.top),
            min(self.right, box.right),
            min(self.bottom, box.bottom),
        )

    @property
    def is_visible(self) -> bool:
        return self.right - self.left > _SLACK and self.bottom - self.top > _SLACK

    def holds(self, box: Box) -> bool:
        """Return whether it has all of another box."""
        return (
            self.left <= box.left + _SLACK
            and self.top <= box.top + _SLACK
            and self.right >= box.right - _SLACK
            and self.bottom >= box.bottom - _SLACK
        )

    @property
    def text(self) -> str:
        return str(tuple(map(round, self)))


class Placed(NamedTuple):
    """A control or a text: its name, its place, its window and what that leaves."""

    name: str
    box: Box
    clip: Box
    window: str
    scrolls: bool

    @property
    def visible_box(self) -> Box:
        return self.box.cut(self.clip)


def _box(low: Any, high: Any) -> Box:
    return Box(low.x, low.y, high.x, high.y)


def _drawn(name: str, box: Box, clip: Box) -> Placed:
    window = imgui.internal.get_current_window_read()
    return Placed(name, box, clip, window.name, window.scroll_max.y > 0)


def _last_item(name: str) -> Placed:
    """Return the item that was drawn last, under a name."""
    box = _box(imgui.get_item_rect_min(), imgui.get_item_rect_max())
    window_clip = imgui.internal.get_current_window_read().clip_rect
    return _drawn(name, box, _box(window_clip.min, window_clip.max))


class Placement:
    """The controls and the texts of one picture."""

    def __init__(self) -> None:
        self.controls: list[Placed] = []
        self.texts: list[Placed] = []

    def faults(self) -> Iterator[str]:
        """Yield what lies over something else, or outside of its window."""
        seen_controls = [item for item in self.controls if item.visible_box.is_visible]
        for item in self.controls:
            clip = item.clip
            is_cut_across = (
                item.box.left < clip.left - _SLACK
                or item.box.right > clip.right + _SLACK
            )
            # The bar of a list lies over its margin.
            is_under_bar = item.scrolls and item.box.right <= clip.right + _BAR
            if not item.scrolls and not clip.holds(item.box):
                yield f"{item.name!r} is cut in {item.window}: {item.box.text}"
            elif is_cut_across and item.visible_box.is_visible and not is_under_bar:
                yield f"{item.name!r} is cut across in {item.window}"
        for first, second in combinations(seen_controls, 2):
            first_box = first.visible_box
            second_box = second.visible_box
            is_within = first_box.holds(second_box) or second_box.holds(first_box)
            is_apart = not first_box.cut(second_box).is_visible
            if first.window == second.window and not is_within and not is_apart:
                yield f"{first.name!r} and {second.name!r} overlap in {first.window}"
        yield from self._faults_of_texts()

    def _faults_of_texts(self) -> Iterator[str]:
        seen_texts = [text for text in self.texts if text.visible_box.is_visible]
        for text in seen_texts:
            box = text.box
            if box.left < text.clip.left - 2 or box.right > text.clip.right + 2:
                yield f"text {text.name!r} is cut in {text.window}: {box.text}"
        for text, item in product(seen_texts, self.controls):
            common = text.visible_box.cut(item.visible_box)
            if text.window != item.window or item.visible_box.holds(text.visible_box):
                continue
            if common.is_visible:
                yield f"text {text.name!r} lies over {item.name!r} in {text.window}"
        for first, second in combinations(seen_texts, 2):
            is_twice = first.name == second.name
            if first.window != second.window or is_twice:
                continue
            if first.visible_box.cut(second.visible_box).is_visible:
                yield f"texts {first.name!r} and {second.name!r} overlap"


@contextmanager
def _noting(placement: Placement) -> Iterator[None]:
    """Note all controls and texts that are drawn meanwhile."""
    note = widgets._note
    add_text = imgui.ImDrawList.add_text
    write_line = lettering._write_line
    text_unformatted = imgui.text_unformatted

    def note_control(name: str) -> None:
        note(name)
        placement.controls.append(_last_item(widgets._shown_name(name)))

    def note_text(draw: imgui.ImDrawList, x: float, y: float, text: str) -> None:
        if not text.strip():
            return
        size = lettering.measure(text)
        clip = _box(draw.get_clip_rect_min(), draw.get_clip_rect_max())
        box = Box(x, y, x + size.x, y + size.y)
        placement.texts.append(_drawn(text, box, clip))

    def note_added(draw: imgui.ImDrawList, *values: Any) -> None:
        # Icons are letters of a font that is named first.
        if hasattr(values[0], "x"):
            note_text(draw, values[0].x, values[0].y, values[2])
        add_text(draw, *values)

    def note_item(text: str) -> None:
        text_unformatted(text)
        placement.texts.append(_last_item(text))

    def note_line(
        draw: imgui.ImDrawList, corner: tuple[float, float], color: int, line: str
    ) -> None:
        note_text(draw, *corner, line)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(imgui.ImDrawList, "add_text", add_text)
            write_line(draw, corner, color, line)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(widgets, "_note", note_control)
        patch.setattr(imgui.ImDrawList, "add_text", note_added)
        patch.setattr(imgui, "text_unformatted", note_item)
        patch.setattr(lettering, "_write_line", note_line)
        yield


@contextmanager
def placed_by(interface: Interface) -> Iterator[Placement]:
    """Yield the places of the last picture of an interface that was drawn meanwhile."""
    draw = interface.draw
    last = Placement()

    def draw_noting(*values: Any, **options: Any) -> bool:
        last.controls.clear()
        last.texts.clear()
        with _noting(last):
            return draw(*values, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interface, "draw", draw_noting)
        yield last


def placement_of(viewer: Viewer) -> Placement:
    """Draw a viewer's interface until it rests, and return the last picture's places."""
    with placed_by(viewer.user.interface) as last:
        viewer.user.mark()
        viewer.do()
    return last
