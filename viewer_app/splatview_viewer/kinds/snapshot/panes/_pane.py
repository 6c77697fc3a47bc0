"""What the panes are made of: a window that fills a rectangle, quiet words, chips to choose from, answers of jobs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.snapshot.analysis import MACHINERY, frame_kinds, frame_text, live_ids, sites, stack_text
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import board, colored
from splatview_viewer.ui.widgets import fitted as fitted
from splatview_viewer.ui.widgets import wrapped as wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.model import Events, Trace
    from splatview_viewer.kinds.snapshot.state import Look

T = TypeVar("T")
GROUND = ImVec4(0.090, 0.096, 0.108, 1.0)
"""Under tables and graphs; a little darker than the panel."""
STRIPE = ImVec4(1.0, 1.0, 1.0, 0.018)
LINE = ImVec4(0.19, 0.20, 0.22, 1.0)
OVER = ImVec4(1.0, 1.0, 1.0, 0.06)
CHOSEN = ImVec4(0.19, 0.27, 0.37, 1.0)
HIT = ImVec4(0.98, 0.78, 0.32, 1.0)
"""What a search found."""
GROWN = ImVec4(0.95, 0.58, 0.42, 1.0)
SHRUNK = ImVec4(0.40, 0.75, 0.58, 1.0)


def centered(text: str, color: ImVec4 = theme.DIM) -> None:
    """Words in the middle of what is left of the window, where there is nothing to show."""
    left = imgui.get_content_region_avail()
    corner = imgui.get_cursor_screen_pos()
    draw = imgui.get_window_draw_list()
    lines = text.split("\n")
    height = imgui.get_text_line_height() * 1.35
    y = corner.y + max((left.y - height * len(lines)) / 2, 0)
    for line in lines:
        width = imgui.calc_text_size(line).x
        draw.add_text(ImVec2(round(corner.x + max((left.x - width) / 2, 0)), round(y)), theme.u32(color), line)
        y += height


def gap(points: float, scale: float) -> None:
    imgui.dummy(ImVec2(0, points * scale))


def chips(label: str, value: T, options: Mapping[T, str], tips: Mapping[T, str] | None = None) -> T:
    """A line of words of which one is chosen; the value after this turn. What does not fit goes to the next line."""
    for i, (key, text) in enumerate(options.items()):
        if i:
            beside(button_width(text), 2)
        if chip(f"{text}##{label}", key == value):
            value = key
        if tips and key in tips:
            imgui.set_item_tooltip(tips[key])
    return value


def chip(text: str, on: bool) -> bool:
    """A flat button that is lit while `on`."""
    clear = imgui.get_color_u32(ImVec4(0, 0, 0, 0))
    imgui.push_style_color(imgui.Col_.button, imgui.get_color_u32(CHOSEN) if on else clear)
    imgui.push_style_color(imgui.Col_.text, imgui.get_color_u32(theme.TEXT if on else theme.DIM))
    pressed = imgui.button(text)
    imgui.pop_style_color(2)
    return pressed


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


def on_the_right(width: float) -> None:
    """The next item, so many pixels wide, ends where the window's line ends; if there is no room for it, it goes to the
    next one."""
    imgui.same_line()
    left = imgui.get_content_region_avail().x - width
    if left >= 0:
        imgui.set_cursor_pos_x(imgui.get_cursor_pos_x() + left)
    else:
        imgui.new_line()


def button_width(text: str) -> float:
    return imgui.calc_text_size(text).x + 2 * imgui.get_style().frame_padding.x


_TOLD = 14
"""Frames in a tip."""
USED = ImVec4(0.36, 0.56, 0.80, 1.0)
WAITING = ImVec4(0.85, 0.70, 0.30, 1.0)
"""Blocks that are in use, and those freed that wait for another stream."""


def parts_bar(parts: Iterable[tuple[int, ImVec4]], whole: int, height: float, scale: float) -> float:
    """A bar as wide as the window at the cursor, which stays: each part's bytes in its colour, of `whole` bytes.
    Returns its width in pixels."""
    corner, width = imgui.get_cursor_screen_pos(), imgui.get_content_region_avail().x
    draw, x = imgui.get_window_draw_list(), corner.x
    for size, color in parts:
        if size:
            end = x + width * size / whole
            draw.add_rect_filled(ImVec2(x, corner.y), ImVec2(max(end - 1, x + 1), corner.y + height),
                                 theme.u32(color), 2 * scale)
            x = end
    return width


class Places:
    """Where stacks are, in a line each; asks for what that takes, and remembers what was said."""

    def __init__(self) -> None:
        self._of: object = None
        self._text: Callable[[int], str] = lambda _: ""

    def ready(self, content: Content) -> Callable[[int], str]:
        """What says where a stack is. Says nothing until the stacks were looked through."""
        if content.ask(("sites",), lambda: sites(content.snapshot)) is None:
            return lambda _: ""
        if self._of is not content:
            snapshot = content.snapshot
            self._of, self._text = content, lru_cache(4096)(lambda stack: stack_text(snapshot, stack))
        return self._text


class Lamp:
    """Lights allocations in the timeline once a thread has found which they are."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._ids: Callable[[], np.ndarray] | None = None
        self._words = ""
        self._device: int | None = None
        self.on: Hashable = None
        """What is lit."""

    def ask(self, key: Hashable, ids: Callable[[], np.ndarray], words: str) -> None:
        """Light what `ids()` gives: numbers of allocations of the device that is shown. Called in a thread."""
        self._key, self._ids, self._words, self._device, self.on = key, ids, words, None, key

    def out(self, look: Look) -> None:
        """Light nothing any more."""
        self._key = self._ids = self.on = None
        look.light(None)

    def toggle(self, look: Look, key: Hashable, ids: Callable[[], np.ndarray], words: str) -> None:
        """Light this, or nothing if it is lit."""
        if self.on == key and look.lit is not None:
            self.out(look)
        else:
            self.ask(key, ids, words)

    def turn(self, content: Content, look: Look) -> bool:
        """Once in each drawing; True when something was lit."""
        if self._device is None:
            self._device = look.device
        if self._device != look.device:
            self._ids = None
        if self._ids is None:
            self.on = self.on if look.lit is not None and self._device == look.device else None
            return False
        ids, count = self._ids, len(content.trace(look).allocations)

        def work() -> np.ndarray:
            mask = np.zeros(count, bool)
            mask[ids()] = True
            return mask

        key = ("lamp", look.device, self._key)
        mask = content.ask(key, work, slot=("lamp", id(self)))
        if mask is None:
            if content.fault(key):
                self._ids = None
            return False
        self._ids = None
        look.light(mask, self._words)
        return True


def stack_tip(content: Content, stack: int) -> str:
    """The frames of a stack that tell something, innermost first, for a tip beside the pointer; "" for NO_STACK."""
    snapshot, frames = content.snapshot, content.snapshot.stacks.of(stack)
    if content.peek(("sites",)) is None or not len(frames):
        return ""  # the frames were not looked through yet
    kinds = frame_kinds(snapshot)
    told = [int(f) for f in frames if kinds[f] != MACHINERY][:_TOLD]
    lines = [frame_text(snapshot, f) for f in told]
    return "\n".join([*lines, f"and {len(frames) - len(told)} more frames"] if len(told) < len(frames) else lines)


def trouble(content: Content, key: Hashable, words: str = "Working it out\u2026") -> None:
    """Say why there is no answer: that it failed, or that it is being worked on."""
    fault = content.fault(key)
    if fault:
        wrapped(fault, theme.FAULT)
        if imgui.button("Try again"):
            content.forget(key)
    else:
        centered(words)


def go(content: Content, look: Look, moment: int) -> None:
    """Choose a moment, and bring it into sight."""
    look.go(moment)
    content.reveal(look, moment)


def zoom(content: Content, look: Look, moment: int) -> None:
    """Choose a moment and see what is close to it: a two-hundredth of all, or what is seen if that is less."""
    look.go(moment)
    axis = content.axis(look.device, look.settings.unit)
    if axis is None:
        return
    (low, high), at = axis.extent, axis.x_of(moment)
    seen = look.x[1] - look.x[0] if look.x is not None else high - low
    width = min(seen, max((high - low) / 200, 1.0))
    begin = min(max(at - width / 2, low), max(high - width, low))
    look.x = begin, begin + width


def hover(look: Look, rect: Rect, allocation: int | None) -> None:
    """The allocation under the pointer, which is in a pane; where it is not, somebody else says it."""
    mouse = imgui.get_mouse_pos()
    if rect.contains(mouse.x, mouse.y):
        look.hovered = allocation if allocation is not None and allocation >= 0 else None


def first_time(events: Events) -> int:
    """The first time that the trace tells, in microseconds; 0 when it tells none."""
    for begin in range(0, len(events), 65536):
        told = np.flatnonzero(events.time_us[begin: begin + 65536])
        if len(told):
            return int(events.time_us[begin + told[0]])
    return 0


def moment_text(content: Content, look: Look, moment: int) -> str:
    """"after event 12,345, 1.234567 s", the time from the first one on."""
    events = content.trace(look).events
    if moment <= 0:
        return "before the first event"
    base = first_time(events)
    at = int(events.time_us[min(moment, len(events)) - 1]) if len(events) else 0
    words = "at the end" if moment >= len(events) else f"after event {moment - 1:,}"
    return f"{words}, {(at - base) / 1e6:.3f} s" if at and base else words


def moment_line(content: Content, look: Look, moment: int) -> bool:
    """Which moment is told of, with a way to the peak; True when another one was chosen."""
    peak = content.peak(look.device)
    at_peak = peak == moment
    imgui.align_text_to_frame_padding()
    words = moment_text(content, look, moment)
    colored(("At the peak, " if at_peak else "") + words[:1].upper() * (not at_peak) + words[not at_peak:],
                  theme.TEXT)
    if not at_peak and peak is not None:
        imgui.same_line(0, imgui.get_font_size() * 0.6)
        if imgui.small_button("To the peak"):
            go(content, look, peak)
            return True
    return False


def live_at(trace: Trace, moment: int) -> np.ndarray:
    """int32: what is live at a moment."""
    return live_ids(trace, moment)


class Pane:
    """A tab of the view: fills a window exactly over a rectangle of the framebuffer."""

    name = ""
    scroll = False
    """What is drawn may be longer than the window."""
    ground = GROUND

    def __init__(self) -> None:
        self.lamp = Lamp()
        self.places = Places()

    def draw(self, content: Content, look: Look, rect: Rect, scale: float) -> bool:
        """Draw it with imgui. True when another picture is needed."""
        with board(f"snapshot {self.name} {id(self)}", rect, (12 * scale, 9 * scale), self.ground, scroll=self.scroll):
            changed = self.lamp.turn(content, look)
            return self.fill(content, look, rect, scale) or changed

    def fill(self, content: Content, look: Look, rect: Rect, scale: float) -> bool:
        """Draw inside the window. True when another picture is needed."""
        raise NotImplementedError
