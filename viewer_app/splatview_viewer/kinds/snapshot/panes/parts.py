"""Parts that several panes have: choices, texts about moments and stacks, answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.quantities import size_text
from splatview_viewer.kinds.snapshot.captions import event_text
from splatview_viewer.snapshot.analysis.frames import (
    MACHINERY,
    frame_kinds,
    frame_text,
)
from splatview_viewer.ui import choices, theme
from splatview_viewer.ui.widgets import colored, lines_of, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from splatview_viewer.kinds.snapshot.answers import Key
    from splatview_viewer.kinds.snapshot.view import SnapshotView

K = TypeVar("K", bound=str)
HIT = ImVec4(0.98, 0.78, 0.32, 1.0)
"""Hits of a search, and notes."""
USED = ImVec4(0.36, 0.56, 0.80, 1.0)
"""Blocks that are in use."""
WAITING = ImVec4(0.85, 0.70, 0.30, 1.0)
"""Blocks that were freed and wait for another stream."""
FREE = ImVec4(0.165, 0.175, 0.195, 1.0)
_MAX_TIP_FRAMES = 14
_MAX_LINES = 8
"""Lines of a sentence that stands in place of a table."""


def draw_centered(text: str) -> None:
    """Draw lines in the middle of what is left of the window, wrapped to its width."""
    available = imgui.get_content_region_avail()
    lines: list[str] = []
    for line in text.split("\n"):
        if imgui.calc_text_size(line).x <= available.x:
            lines.append(line)
        else:
            lines += lines_of(line, available.x, _MAX_LINES)
    height = imgui.calc_text_size("\n".join(lines)).y
    corner = imgui.get_cursor_pos()
    imgui.set_cursor_pos_y(corner.y + max((available.y - height) / 2, 0))
    for line in lines:
        margin = (available.x - imgui.calc_text_size(line).x) / 2
        imgui.set_cursor_pos_x(corner.x + max(margin, 0))
        colored(line, theme.DIM)


def chip(text: str, on: bool) -> bool:
    """Draw one of several words to choose from; return whether it was pressed.

    text: the word, and after "##" the name of all of them.
    """
    label, _, name = text.partition("##")
    height = theme.ROW_HEIGHT * theme.scale()
    return choices.choosable(label, name, on, chip_width(label), height)


def chip_width(label: str) -> float:
    """Return the pixels of width of a word to choose."""
    with theme.bold(15):
        return imgui.calc_text_size(label).x + 20 * theme.scale()


def draw_choice(view: SnapshotView, name: str, options: Mapping[K, str]) -> K:
    """Draw a line of words of which one is chosen, the first at first.

    Words that do not fit go to the next line. Returns the key of the chosen one.
    """
    saved = view.state.choice(name, "")
    choice = next((key for key in options if key == saved), next(iter(options)))
    for i, (key, text) in enumerate(options.items()):
        if i:
            continue_line(chip_width(text), 2)
        if chip(f"{text}##{name}", key == choice):
            choice = key
            view.state = view.state.with_choice(name, key)
    return choice


def draw_label(text: str) -> None:
    """Draw a dim word before an item on the same line."""
    imgui.align_text_to_frame_padding()
    colored(text, theme.DIM)
    imgui.same_line()


def continue_line(width: float, space: float) -> None:
    """Put the next item on the same line if it fits, after `space` pixels.

    Args:
        width: pixels of the item.
    """
    padding = imgui.get_style().window_padding.x
    right = imgui.get_window_pos().x + imgui.get_window_width() - padding
    if imgui.get_item_rect_max().x + space + width <= right:
        imgui.same_line(0, space)


def right_aligned_texts(*texts: tuple[str, ImVec4]) -> None:
    """Draw texts at the end of the line, or of the next one if they do not fit."""
    imgui.same_line()
    space = imgui.get_style().item_spacing.x
    widths = [imgui.calc_text_size(text).x for text, _ in texts]
    width = sum(widths) + space * (len(texts) - 1)
    margin = imgui.get_content_region_avail().x - width
    if margin < 0:
        imgui.new_line()
    else:
        imgui.set_cursor_pos_x(imgui.get_cursor_pos_x() + margin)
    for i, (text, color) in enumerate(texts):
        if i:
            imgui.same_line()
        imgui.align_text_to_frame_padding()
        colored(text, color)


def draw_size_bar(sizes: Mapping[str, tuple[int, ImVec4 | None]]) -> None:
    """Draw a bar of the bytes of several parts, and their texts below it.

    Args:
        sizes: bytes and colour by name; those without a colour have a text alone.
    """
    corner = imgui.get_cursor_screen_pos()
    width = imgui.get_content_region_avail().x
    scale = theme.scale()
    height = 8 * scale
    total = max(sum(size for size, color in sizes.values() if color is not None), 1)
    draw = imgui.get_window_draw_list()
    x = corner.x
    for size, color in sizes.values():
        if not size or color is None:
            continue
        end = x + width * size / total
        low = ImVec2(x, corner.y)
        high = ImVec2(max(end - 1, x + 1), corner.y + height)
        draw.add_rect_filled(low, high, theme.u32(color), 2 * scale)
        x = end
    imgui.dummy(ImVec2(width, height))
    is_first = True
    for name, (size, color) in sizes.items():
        if not size:
            continue
        text = f"{size_text(size)} {name}"
        if not is_first:
            continue_line(imgui.calc_text_size(text).x, 14 * scale)
        is_first = False
        colored(text, theme.DIM if color is None or color is FREE else color)


def draw_tooltip(text: str) -> None:
    """Draw lines beside the pointer, wrapped where they are too long."""
    if imgui.begin_tooltip():
        imgui.push_text_wrap_pos(imgui.get_font_size() * 42)
        imgui.text_unformatted(text)
        imgui.pop_text_wrap_pos()
        imgui.end_tooltip()


# -- answers ---------------------------------------------------------------------------


class PaneAnswer(NamedTuple):
    """An answer that a pane shows, and its key (`Content.request`)."""

    key: Any
    answer: Any


def latest_answer(
    view: SnapshotView,
    name: str,
    key: Key,
    work: Callable[..., Any],
    waiting_text: str = "Working it out\u2026",
    *,
    lane: Literal["analysis", "query"] = "analysis",
) -> PaneAnswer | None:
    """Return the answer to a question (`Content.request`).

    While it is worked on, the answer before is returned, if it is of another moment or
    allocation of the same device. Otherwise None, and the screen says why.
    """
    answer = view.content.request(key, work, newest=True, lane=lane)
    memory_key = (name, "shown")
    if answer is not None:
        view.pane_memory[memory_key] = PaneAnswer(key, answer)
        return view.pane_memory[memory_key]
    fault = view.content.fault(key)
    if fault:
        # A line that marks a position by "^" is left out: it does not fit letters of
        # different widths.
        lines = [line for line in fault.split("\n") if line.strip(" ^")]
        wrapped("\n".join(lines), theme.FAULT)
        return None
    previous: PaneAnswer | None = view.pane_memory.get(memory_key)
    if previous is None or _question(previous.key) != _question(key):
        draw_centered(waiting_text)
        return None
    return previous


def _question(key: Key) -> tuple[object, ...]:
    """Return a key without its moment and its allocation."""
    return (*key[:2], *(key_text for key_text in key if isinstance(key_text, str)))


# -- texts -----------------------------------------------------------------------------


def size_or_blank(size: int) -> str:
    """Return bytes as a text; "" for 0."""
    if size:
        return size_text(size)
    return ""


def stack_tip(view: SnapshotView, stack: int) -> str:
    """Return the frames of a stack that tell something, innermost first.

    "" for NO_STACK.
    """
    snapshot = view.content.snapshot
    frames = snapshot.stacks.frames_of(stack).tolist()
    kinds = frame_kinds(snapshot)
    telling = [frame for frame in frames if kinds[frame] != MACHINERY]
    telling = telling[:_MAX_TIP_FRAMES]
    lines = [frame_text(snapshot, frame) for frame in telling]
    if len(telling) < len(frames):
        lines.append(f"and {len(frames) - len(telling)} more frames")
    return "\n".join(lines)


def moment_text(view: SnapshotView, event_index: int) -> str:
    """Return a moment for users: "after event 12,345, 1.234 s".

    The time counts from the first event on.
    """
    if event_index <= 0:
        return event_text(event_index)
    axis = view.content.axis(view.device, "time")
    text = "at the end"
    if event_index < len(view.trace.events):
        text = event_text(event_index)
    if axis is None or not axis.has_times:
        return text
    return f"{text}, {(axis.time_us(event_index) - axis.origin_us) / 1e6:.3f} s"


def draw_moment_line(view: SnapshotView, *, is_after: bool = False) -> int | None:
    """Draw which moment a pane is of, with a way to the peak.

    is_after: on the line of the item before, if it fits there.

    Returns the moment; None until it is known.
    """
    event_index = view.moment
    peak = view.content.peak(view.device)
    if event_index is None:
        draw_centered("Looking for the peak\u2026")
        return None
    text = moment_text(view, event_index)
    if peak == event_index:
        text = f"At the peak, {text}"
    text = text[:1].upper() + text[1:]
    if is_after:
        continue_line(imgui.calc_text_size(text).x, 16 * view.scale)
    imgui.align_text_to_frame_padding()
    wrapped(text, theme.TEXT)
    if peak is not None and peak != event_index:
        way = "To the peak"
        continue_line(imgui.calc_text_size(way).x, imgui.get_font_size() * 0.6)
        if imgui.small_button(way):
            view.choose_moment(peak)
    return event_index
