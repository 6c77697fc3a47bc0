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

    def cut(self, other: Box) -> Box:
        """Return what both have."""
        return Box(
            max(self.left, other.left),
            max(self.top, other.top),
            min(self.right, other.right),
            min(self.bottom, other.bottom),
        )

    @property
    def is_seen(self) -> bool:
        return self.right - self.left > _SLACK and self.bottom - self.top > _SLACK

    def holds(self, other: Box) -> bool:
        """Return whether it has all of another one."""
        return (
            self.left <= other.left + _SLACK
            and self.top <= other.top + _SLACK
            and self.right >= other.right - _SLACK
            and self.bottom >= other.bottom - _SLACK
        )

    @property
    def words(self) -> str:
        return str(tuple(map(round, self)))


class Placed(NamedTuple):
    """A control or a text: its name, its place, its window and what that leaves."""

    name: str
    place: Box
    room: Box
    window: str
    scrolls: bool

    @property
    def seen(self) -> Box:
        return self.place.cut(self.room)


def _box(low: Any, high: Any) -> Box:
    return Box(low.x, low.y, high.x, high.y)


def _place(name: str, place: Box, room: Box) -> Placed:
    window = imgui.internal.get_current_window_read()
    return Placed(name, place, room, window.name, window.scroll_max.y > 0)


class Placement:
    """The controls and the texts of one picture."""

    def __init__(self) -> None:
        self.controls: list[Placed] = []
        self.texts: list[Placed] = []

    def faults(self) -> Iterator[str]:
        """Yield what lies over something else, or outside of its window."""
        seen_controls = [item for item in self.controls if item.seen.is_seen]
        for item in self.controls:
            room = item.room
            is_cut_across = (
                item.place.left < room.left - _SLACK
                or item.place.right > room.right + _SLACK
            )
            # The bar of a list lies over its margin.
            is_under_bar = item.scrolls and item.place.right <= room.right + _BAR
            if not item.scrolls and not room.holds(item.place):
                yield f"{item.name!r} is cut in {item.window}: {item.place.words}"
            elif is_cut_across and item.seen.is_seen and not is_under_bar:
                yield f"{item.name!r} is cut across in {item.window}"
        for first, second in combinations(seen_controls, 2):
            is_within = first.seen.holds(second.seen) or second.seen.holds(first.seen)
            is_apart = not first.seen.cut(second.seen).is_seen
            if first.window == second.window and not is_within and not is_apart:
                yield f"{first.name!r} and {second.name!r} overlap in {first.window}"
        yield from self._faults_of_texts()

    def _faults_of_texts(self) -> Iterator[str]:
        seen_texts = [text for text in self.texts if text.seen.is_seen]
        for text in seen_texts:
            place = text.place
            if place.left < text.room.left - 2 or place.right > text.room.right + 2:
                yield f"text {text.name!r} is cut in {text.window}: {place.words}"
        for text, item in product(seen_texts, self.controls):
            common = text.seen.cut(item.seen)
            if text.window != item.window or item.seen.holds(text.seen):
                continue
            if common.is_seen:
                yield f"text {text.name!r} lies over {item.name!r} in {text.window}"
        for first, second in combinations(seen_texts, 2):
            is_twice = first.name == second.name
            if first.window != second.window or is_twice:
                continue
            if first.seen.cut(second.seen).is_seen:
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
        place = _box(imgui.get_item_rect_min(), imgui.get_item_rect_max())
        clip = imgui.internal.get_current_window_read().clip_rect
        shown_name = widgets._shown_name(name)
        placement.controls.append(_place(shown_name, place, _box(clip.min, clip.max)))

    def note_text(draw: imgui.ImDrawList, x: float, y: float, text: str) -> None:
        if not text.strip():
            return
        size = lettering.measure(text)
        room = _box(draw.get_clip_rect_min(), draw.get_clip_rect_max())
        place = Box(x, y, x + size.x, y + size.y)
        placement.texts.append(_place(text, place, room))

    def note_added(draw: imgui.ImDrawList, *values: Any) -> None:
        # Icons are letters of a font that is named first.
        if hasattr(values[0], "x"):
            note_text(draw, values[0].x, values[0].y, values[2])
        add_text(draw, *values)

    def note_item(text: str) -> None:
        text_unformatted(text)
        place = _box(imgui.get_item_rect_min(), imgui.get_item_rect_max())
        clip = imgui.internal.get_current_window_read().clip_rect
        placement.texts.append(_place(text, place, _box(clip.min, clip.max)))

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
