"""Parts of the panes: chips to choose from, words about a moment and a stack, bars, answers that are worked out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.snapshot.analysis.frames import MACHINERY, frame_kinds, frame_text, stack_text
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import colored, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from splatview_viewer.kinds.snapshot.content import Key
    from splatview_viewer.kinds.snapshot.view import SnapshotView

HIT = ImVec4(0.98, 0.78, 0.32, 1.0)
"""Hits of a search, and notes."""
GROWN = ImVec4(0.95, 0.58, 0.42, 1.0)
SHRUNK = ImVec4(0.40, 0.75, 0.58, 1.0)
USED = ImVec4(0.36, 0.56, 0.80, 1.0)
WAITING = ImVec4(0.85, 0.70, 0.30, 1.0)
"""Blocks that are in use, and those freed that wait for another stream."""
FREE = ImVec4(0.165, 0.175, 0.195, 1.0)
_CLEAR = ImVec4(0, 0, 0, 0)
_TOLD = 14
"""Frames in a tip."""


def centered(text: str) -> None:
    """Words in the middle of what is left of the window, where there is nothing to show."""
    left = imgui.get_content_region_avail()
    size = imgui.calc_text_size(text)
    corner = imgui.get_cursor_pos()
    imgui.set_cursor_pos_y(corner.y + max((left.y - size.y) / 2, 0))
    for line in text.split("\n"):
        imgui.set_cursor_pos_x(corner.x + max((left.x - imgui.calc_text_size(line).x) / 2, 0))
        colored(line, theme.DIM)


def chip(text: str, on: bool) -> bool:
    """A flat button that is lit while `on`."""
    imgui.push_style_color(imgui.Col_.button, imgui.get_color_u32(theme.CHOSEN if on else _CLEAR))
    imgui.push_style_color(imgui.Col_.text, imgui.get_color_u32(theme.TEXT if on else theme.DIM))
    pressed = imgui.button(text)
    imgui.pop_style_color(2)
    return pressed


def choose(view: SnapshotView, name: str, options: Mapping[str, str], tips: Mapping[str, str] | None = None) -> str:
    """A line of words of which one is chosen: the first at first. What does not fit goes to the next line."""
    chosen = view.state.choice(name, "")
    chosen = chosen if chosen in options else next(iter(options))
    for i, (key, text) in enumerate(options.items()):
        if i:
            beside(imgui.calc_text_size(text).x + 2 * imgui.get_style().frame_padding.x, 2)
        if chip(f"{text}##{name}", key == chosen):
            chosen = key
            view.state = view.state.choosing(name, key)
        if tips and key in tips:
            imgui.set_item_tooltip(tips[key])
    return chosen


def label(text: str) -> None:
    """A dim word before what follows on the same line."""
    imgui.align_text_to_frame_padding()
    colored(text, theme.DIM)
    imgui.same_line()


def beside(width: float, space: float) -> None:
    """The next item, so many pixels wide, goes on the same line after some space, if there is room for it."""
    right = imgui.get_window_pos().x + imgui.get_window_width() - imgui.get_style().window_padding.x
    if imgui.get_item_rect_max().x + space + width <= right:
        imgui.same_line(0, space)


def on_the_right(*words: tuple[str, ImVec4]) -> None:
    """Words at the end of the line; if there is no room for them, of the next one."""
    imgui.same_line()
    space = imgui.get_style().item_spacing.x
    left = imgui.get_content_region_avail().x - sum(imgui.calc_text_size(text).x + space for text, _ in words) + space
    if left < 0:
        imgui.new_line()
    else:
        imgui.set_cursor_pos_x(imgui.get_cursor_pos_x() + left)
    for i, (text, color) in enumerate(words):
        if i:
            imgui.same_line()
        imgui.align_text_to_frame_padding()
        colored(text, color)


def parts_bar(parts: Iterable[tuple[int, ImVec4]], whole: int, height: float) -> float:
    """A bar as wide as the window: each part's bytes in its colour, of `whole` bytes. Returns its width in pixels."""
    corner, width = imgui.get_cursor_screen_pos(), imgui.get_content_region_avail().x
    draw, x = imgui.get_window_draw_list(), corner.x
    for size, color in parts:
        if size:
            end = x + width * size / whole
            draw.add_rect_filled(ImVec2(x, corner.y), ImVec2(max(end - 1, x + 1), corner.y + height),
                                 theme.u32(color), 2 * theme.scale())
            x = end
    imgui.dummy(ImVec2(width, height))
    return width


def tooltip(text: str) -> None:
    """Several lines beside the pointer, wrapped where they are too long."""
    if imgui.begin_tooltip():
        imgui.push_text_wrap_pos(imgui.get_font_size() * 42)
        imgui.text_unformatted(text)
        imgui.pop_text_wrap_pos()
        imgui.end_tooltip()


# -- answers -----------------------------------------------------------------------------------------------------------


class Shown(NamedTuple):
    """An answer, and the question."""

    key: Any
    answer: Any


def latest(view: SnapshotView, name: str, key: Key, words: str = "Working it out\u2026") -> Shown | None:
    """The answer to a question, or the one before, of another moment or allocation of the device, while it is worked
    on; None, and why on the screen, where there is neither."""
    found, place = view.content.answer(key), (name, "shown")
    before: Shown | None = view.memory.get(place)
    if found is not None:
        view.memory[place] = Shown(key, found)
    elif fault := view.content.fault(key):
        lines = fault.split("\n")  # a mark under a place lies elsewhere in letters of different widths
        wrapped("\n".join(line for line in lines if line.strip(" ^")), theme.FAULT)
        if imgui.button("Try again"):
            view.content.forget(key)
        return None
    elif before is None or _same_but_numbers(before.key) != _same_but_numbers(key):
        centered(words)
        return None
    return view.memory[place]


def _same_but_numbers(key: Key) -> tuple[object, ...]:
    return (*key[:2], *(part for part in key if isinstance(part, str)))


# -- words -------------------------------------------------------------------------------------------------------------


def places(view: SnapshotView) -> Callable[[int], str]:
    """Return a function that names the place of a stack in a line; "" until the stacks were looked through."""
    snapshot = view.content.snapshot
    return (lambda _: "") if view.content.sites() is None else lambda stack: stack_text(snapshot, stack)


def stack_tip(view: SnapshotView, stack: int) -> str:
    """The frames of a stack that tell something, innermost first; "" for NO_STACK."""
    snapshot, frames = view.content.snapshot, view.content.snapshot.stacks.of(stack)
    if not len(frames) or view.content.sites() is None:
        return ""
    kinds = frame_kinds(snapshot)
    told = [int(f) for f in frames if kinds[f] != MACHINERY][:_TOLD]
    lines = [frame_text(snapshot, f) for f in told]
    return "\n".join([*lines, f"and {len(frames) - len(told)} more frames"] if len(told) < len(frames) else lines)


def moment_text(view: SnapshotView, moment: int) -> str:
    """"after event 12,345, 1.234 s", the time from the first one on."""
    if moment <= 0:
        return "before the first event"
    axis, last = view.content.axis(view.device, "time"), len(view.trace.events)
    words = "at the end" if moment >= last else f"after event {moment - 1:,}"
    if axis is None or not axis.timed:
        return words
    return f"{words}, {(axis.time_us(moment) - axis.origin_us) / 1e6:.3f} s"


def moment_line(view: SnapshotView) -> int | None:
    """Say of which moment a pane tells, with a way to the peak; None until the moment is known."""
    moment, peak = view.moment, view.content.peak(view.device)
    if moment is None:
        centered("Looking for the peak\u2026")
        return None
    words = moment_text(view, moment)
    imgui.align_text_to_frame_padding()
    colored(f"At the peak, {words}" if peak == moment else words[:1].upper() + words[1:], theme.TEXT)
    if peak is not None and peak != moment:
        imgui.same_line(0, imgui.get_font_size() * 0.6)
        if imgui.small_button("To the peak"):
            view.go(peak)
    return moment
