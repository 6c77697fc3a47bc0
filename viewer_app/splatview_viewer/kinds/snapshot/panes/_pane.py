"""Parts of the panes: a window that fills a rectangle, chips to choose from, answers of jobs, a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.snapshot.analysis.frames import MACHINERY, frame_kinds, frame_text, sites, stack_text
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import board, colored, fitted, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.model import Events
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


def right(text: str) -> None:
    """Dim words at the end of the line."""
    on_the_right(imgui.calc_text_size(text).x)
    imgui.align_text_to_frame_padding()
    colored(text, theme.DIM)


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


def places(content: Content) -> Callable[[int], str]:
    """Return a function that names the place of a stack in a line; "" until the stacks were looked through."""
    snapshot = content.snapshot
    if content.ask(("sites",), lambda: sites(snapshot)) is None:
        return lambda _: ""
    return lambda stack: stack_text(snapshot, stack)


class Lamp:
    """Lights allocations in the timeline once a thread has found which they are."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._ids: Callable[[], np.ndarray] | None = None
        self._words = ""
        self._device = 0
        self.on: Hashable = None
        """What is lit."""

    def ask(self, look: Look, key: Hashable, ids: Callable[[], np.ndarray], words: str) -> None:
        """Light what `ids()` gives: numbers of allocations of the device that is shown. Called in a thread."""
        self._key, self._ids, self._words, self._device, self.on = key, ids, words, look.device, key

    def out(self, look: Look) -> None:
        """Light nothing any more."""
        self._key = self._ids = self.on = None
        look.light(None)

    def toggle(self, look: Look, key: Hashable, ids: Callable[[], np.ndarray], words: str) -> None:
        """Light this, or nothing if it is lit."""
        if self.on == key and look.lit is not None:
            self.out(look)
        else:
            self.ask(look, key, ids, words)

    def turn(self, content: Content, look: Look) -> bool:
        """Once in each drawing; True when something was lit."""
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


class Pane:
    """A tab of the view: fills a window exactly over a rectangle of the framebuffer."""

    name = ""
    scroll = False
    """What is drawn may be longer than the window."""
    ground = GROUND

    def __init__(self) -> None:
        self.lamp = Lamp()
        self._shown: Any = None
        self._shown_of: Hashable = None
        """The newest answer, and its device and what else it is of."""

    def draw(self, content: Content, look: Look, rect: Rect, scale: float) -> bool:
        """Draw it with imgui. True when another picture is needed."""
        with board(f"snapshot {self.name} {id(self)}", rect, (12 * scale, 9 * scale), self.ground, scroll=self.scroll):
            changed = self.lamp.turn(content, look)
            return self.fill(content, look, rect, scale) or changed

    def fill(self, content: Content, look: Look, rect: Rect, scale: float) -> bool:
        """Draw inside the window. True when another picture is needed."""
        raise NotImplementedError

    def latest(self, content: Content, look: Look, key: Hashable, found: T | None, of: Hashable = None,
               words: str = "Working it out\u2026") -> T | None:
        """The answer, or the one before for the same device and `of` while it is worked on; None, and why, where there
        is neither."""
        if found is not None:
            self._shown, self._shown_of = found, (look.device, of)
        elif self._shown_of != (look.device, of) or content.fault(key):
            trouble(content, key, words)
            return None
        return self._shown


_LEAST = 13
"""Units of the font's height that columns without a width of their own get at least, while others can be left out."""
_WHEEL = 3
"""Rows for a notch of the wheel."""


@dataclass(frozen=True)
class Column:
    title: str
    width: float
    """In units of the font's height; 0: what the others leave."""
    right: bool = False
    """Whether it holds numbers, which end at the same place."""
    tip: str = ""
    sorts: bool = True
    """Whether a click on its title means anything."""
    tail: bool = False
    """Whether the end of a long text matters more than its beginning: a path's."""
    gives: int = 0
    """Left out where there is no room for all columns, those with the highest number first; 0: never."""


class Cell(NamedTuple):
    text: str
    color: ImVec4 | None = None
    bar: float | None = None
    """0 to 1: how far a bar behind the text goes."""
    dot: int | None = None
    """A dot before the text, in a colour as draw lists take it."""
    spark: Sequence[float] | None = None
    """A row of small columns instead of a text, each 0 to 1."""
    paint: Callable[[imgui.ImDrawList, float, float, float, float], None] | None = None
    """Draws the cell instead: called with its left, right, top and height."""


@dataclass
class Touch:
    """Input of the user to a table in this turn."""

    row: int | None = None
    """Clicked."""
    double: bool = False
    right: int | None = None
    """Clicked with the right button."""
    over: int | None = None
    """Under the pointer."""
    title: int | None = None
    """The column whose title was clicked."""
    moved: bool = False
    """It was scrolled: another picture is needed."""

    @property
    def any(self) -> bool:
        return self.row is not None or self.right is not None or self.title is not None or self.moved


@dataclass
class Rows:
    """Content of a table."""

    count: int
    cells: Callable[[int], Sequence[Cell | str]]
    """The cells of a row, one for each column."""
    chosen: Callable[[int], bool] = lambda _: False
    tip: Callable[[int], str] | None = None
    """What is said of a row when the pointer rests on it; an empty text: nothing."""
    sorted_by: int | None = None
    descending: bool = True
    words: str = "Nothing"
    """What is said when there are no rows."""
    tints: Callable[[int], ImVec4 | None] | None = None
    """A colour under a whole row."""
    wide: bool = False
    """Whether columns keep their widths and are scrolled sideways where they do not all fit; else they give way."""


@dataclass
class _Bar:
    """A scroll bar along one axis."""

    held: float | None = None
    """Where in its thumb the pointer took it, in pixels."""

    def turn(self, at: float, most: float, place: tuple[float, float, float], mouse: float, *, over: bool) -> float:
        """Let it be dragged; how far it is scrolled after that, of `most`. place: where it begins, its length and that
        of its thumb. over: the pointer is on it."""
        begin, length, thumb = place
        if imgui.is_item_activated() and over:
            low = begin + (length - thumb) * at / most
            self.held = mouse - low if low <= mouse <= low + thumb else thumb / 2
        if not imgui.is_item_active():
            self.held = None
        elif self.held is not None:
            at = (mouse - self.held - begin) / max(length - thumb, 1) * most
        return min(max(at, 0.0), most)

    def color(self, *, lit: bool) -> int:
        return theme.u32(theme.DIM, 0.7 if self.held is not None else 0.45 if lit else 0.25)


@dataclass
class Grid:
    """The place where a table is scrolled to. One for each table of a pane."""

    top: float = 0.0
    """The row at the upper edge, with a fraction."""
    left: float = 0.0
    """How far it is scrolled sideways, in pixels."""
    place: tuple[float, float, float] = (0.0, 0.0, 1.0)
    """Where it was drawn last: x of its left edge and y of its first row, in pixels, and the height of a row."""
    _bar: _Bar = field(default_factory=_Bar)
    _bar_below: _Bar = field(default_factory=_Bar)
    _reveal: int | None = None

    def reveal(self, row: int) -> None:
        """Scroll so that this row is seen, if it is not, at the next drawing."""
        self._reveal = row

    def middle(self, row: int) -> tuple[float, float]:
        """A point in a row near its left edge, in pixels, as it was drawn last."""
        x, y, step = self.place
        return x + step, y + (row - self.top + 0.5) * step

    def draw(self, name: str, columns: Sequence[Column], rows: Rows, scale: float,
             height: float | None = None) -> Touch:
        """Draw in what is left of the window, or in so many pixels of its height."""
        touch = Touch()
        area = imgui.get_content_region_avail()
        area = ImVec2(max(area.x, 1), max(area.y if height is None else height, 1))
        corner = imgui.get_cursor_screen_pos()
        line = imgui.get_text_line_height()
        step = round(line + 6 * scale)
        head = round(line + 9 * scale)
        every = columns
        if not rows.wide:
            columns = fitting(columns, (area.x - 12 * scale) / imgui.get_font_size())
        places = [every.index(column) for column in columns]
        edges = _edges(columns, corner.x, area.x - 12 * scale, give=not rows.wide)
        imgui.invisible_button(f"##{name}", area)
        hovered = imgui.is_item_hovered()
        mouse = imgui.get_mouse_pos()
        if self._sideways(touch, edges, (corner.x, corner.y + area.y, area.x - 12 * scale), scale, hovered):
            area.y = max(area.y - 10 * scale, 1)
            edges = [(x0 - self.left, x1 - self.left) for x0, x1 in edges]
        visible = max((area.y - head) / step, 1.0)
        self._scroll(touch, rows.count, visible, (corner.x + area.x, corner.y + head, area.y - head), scale, hovered)
        draw = imgui.get_window_draw_list()
        draw.push_clip_rect(corner, ImVec2(corner.x + area.x, corner.y + area.y), True)
        held = self._bar.held is not None or self._bar_below.held is not None
        if hovered and not held and mouse.x < corner.x + area.x - 12 * scale and mouse.y < corner.y + area.y:
            self._touch(touch, rows.count, columns, edges, (mouse.x, mouse.y - corner.y), (head, step))
        right = corner.x + area.x - 12 * scale
        draw.push_clip_rect(corner, ImVec2(right, corner.y + head), True)
        here = places.index(rows.sorted_by) if rows.sorted_by in places else None
        self._titles(columns, (here, rows.descending), edges, (corner.y, head, right))
        draw.pop_clip_rect()
        body = corner.y + head
        self.place = corner.x, body, step
        draw.push_clip_rect(ImVec2(corner.x, body), ImVec2(right, corner.y + area.y), True)
        for row in range(int(self.top), min(int(self.top + visible) + 1, rows.count)):
            y = round(body + (row - self.top) * step)
            ground = (CHOSEN if rows.chosen(row) else OVER if row == touch.over
                      else (rows.tints and rows.tints(row)) or (STRIPE if row % 2 else None))
            if ground is not None:
                draw.add_rect_filled(ImVec2(corner.x, y), ImVec2(right, y + step), theme.u32(ground), 3 * scale)
            cells = rows.cells(row)
            for column, (x0, x1), place in zip(columns, edges, places, strict=True):
                cell = cells[place]
                _cell(draw, column, cell if isinstance(cell, Cell) else Cell(cell), (x0, x1, y, step), scale)
        draw.pop_clip_rect()
        if not rows.count:
            imgui.set_cursor_screen_pos(ImVec2(corner.x, body))
            centered(rows.words, theme.DIM)
            imgui.set_cursor_screen_pos(ImVec2(corner.x, corner.y + area.y))
            imgui.dummy(ImVec2(0, 0))
        draw.pop_clip_rect()
        touch.title = places[touch.title] if touch.title is not None else None
        if touch.over is not None and rows.tip is not None and (text := rows.tip(touch.over)):
            tooltip(text, scale)
        return touch

    def _scroll(self, touch: Touch, count: int, visible: float, place: tuple[float, float, float], scale: float,
                hovered: bool) -> None:
        """Scroll, and draw the bar for it along the right edge."""
        right, top, height = place
        most, before, io = max(count - visible, 0.0), self.top, imgui.get_io()
        if self._reveal is not None:
            if not self.top <= self._reveal <= self.top + visible - 1:
                self.top = float(int(self._reveal - visible / 2))
            self._reveal = None
        if hovered and io.mouse_wheel and not (io.key_shift and self.left):
            self.top -= io.mouse_wheel * _WHEEL
        self.top = min(max(self.top, 0.0), most)
        if most and height > 0:
            thumb, mouse = max(height * visible / count, 24 * scale), imgui.get_mouse_pos()
            self.top = self._bar.turn(self.top, most, (top, height, thumb), mouse.y, over=mouse.x >= right - 12 * scale)
            lit, y = hovered or self._bar.held is not None, top + (height - thumb) * self.top / most
            width = (7 if lit else 5) * scale
            imgui.get_window_draw_list().add_rect_filled(
                ImVec2(right - width - 1 * scale, y), ImVec2(right - 1 * scale, y + thumb), self._bar.color(lit=lit),
                width / 2)
        touch.moved |= self.top != before

    def _sideways(self, touch: Touch, edges: Sequence[tuple[float, float]], place: tuple[float, float, float],
                  scale: float, hovered: bool) -> bool:
        """Scroll sideways, and draw the bar for it along the lower edge; False where everything fits."""
        x, bottom, width = place
        whole = edges[-1][1] - edges[0][0] if edges else 0.0
        most, before, io = whole - width, self.left, imgui.get_io()
        if most < 1:
            self.left = 0.0
            return False
        if hovered:
            self.left -= (io.mouse_wheel_h or (io.mouse_wheel if io.key_shift else 0)) * 4 * imgui.get_font_size()
        thumb, mouse = max(width * width / whole, 24 * scale), imgui.get_mouse_pos()
        self.left = self._bar_below.turn(min(max(self.left, 0.0), most), most, (x, width, thumb), mouse.x,
                                         over=mouse.y >= bottom - 10 * scale)
        touch.moved |= self.left != before
        at = x + (width - thumb) * self.left / most
        imgui.get_window_draw_list().add_rect_filled(
            ImVec2(at, bottom - 6 * scale), ImVec2(at + thumb, bottom - 1 * scale),
            self._bar_below.color(lit=hovered), 2.5 * scale)
        return True

    def _touch(self, touch: Touch, count: int, columns: Sequence[Column], edges: Sequence[tuple[float, float]],
               mouse: tuple[float, float], sizes: tuple[int, int]) -> None:
        """Find the row under the pointer, and clicks."""
        x, y = mouse
        head, step = sizes
        if y < head:
            for i, (x0, x1) in enumerate(edges):
                if x0 <= x < x1:
                    if columns[i].tip:
                        imgui.set_tooltip(columns[i].tip)
                    if columns[i].sorts and imgui.is_mouse_clicked(0):
                        touch.title = i
            return
        row = int(self.top + (y - head) / step)
        if row >= count:
            return
        touch.over = row
        if imgui.is_mouse_clicked(0):
            touch.row = row
            touch.double = imgui.is_mouse_double_clicked(0)
        if imgui.is_mouse_clicked(1):
            touch.right = row

    def _titles(self, columns: Sequence[Column], order: tuple[int | None, bool], edges: Sequence[tuple[float, float]],
                place: tuple[float, int, float]) -> None:
        y, head, right = place
        draw = imgui.get_window_draw_list()
        line = imgui.get_text_line_height()
        text_y = round(y + (head - line) / 2 - 1)
        for i, (column, (x0, x1)) in enumerate(zip(columns, edges, strict=True)):
            here = i == order[0]
            color = theme.u32(theme.TEXT if here else theme.DIM)
            pad = line * 0.35
            arrow = line * 0.8 if here else 0
            title = fitted(column.title, x1 - x0 - 2 * pad - arrow)
            width = imgui.calc_text_size(title).x
            x = x1 - pad - width - arrow if column.right else x0 + pad
            draw.add_text(ImVec2(round(x), text_y), color, title)
            if here:
                r = line * 0.2
                cx, cy = x + width + line * 0.45, y + head / 2
                d = r if order[1] else -r
                draw.add_triangle_filled(ImVec2(cx - r, cy - d / 2), ImVec2(cx + r, cy - d / 2),
                                         ImVec2(cx, cy + d), color)
        if edges:
            bottom = y + head - 1
            draw.add_line(ImVec2(edges[0][0], bottom), ImVec2(right, bottom), theme.u32(LINE))


def fitting(columns: Sequence[Column], width: float) -> list[Column]:
    """The columns for which so many units of the font's height are enough."""
    left = list(columns)
    while sum(c.width or _LEAST for c in left) > width:
        first = max(left, key=lambda c: c.gives, default=None)
        if first is None or not first.gives:
            break
        left.remove(first)
    return left


def _edges(columns: Sequence[Column], left: float, width: float, *, give: bool) -> list[tuple[float, float]]:
    """Return the edges of the columns: those without a width share what the others leave, but get some in any case.
    `give`: they all get narrower where there is not room for them."""
    em = imgui.get_font_size()
    fixed = sum(c.width * em for c in columns)
    loose = sum(1 for c in columns if not c.width)
    share = max((width - fixed) / loose, 6 * em) if loose else 0.0
    squeeze = min(1.0, width / max(fixed + share * loose, 1)) if give else 1.0
    edges, x = [], left
    for column in columns:
        w = (column.width * em or share) * squeeze
        edges.append((x, x + w))
        x += w
    return edges


def _cell(draw: imgui.ImDrawList, column: Column, cell: Cell, place: tuple[float, float, float, float],
          scale: float) -> None:
    x0, x1, y, step = place
    line = imgui.get_text_line_height()
    pad = line * 0.35
    if cell.bar is not None:
        full = x1 - x0 - 4 * scale
        width = full * min(max(cell.bar, 0.0), 1.0)
        color = theme.u32(cell.color or theme.ACCENT, 0.22)
        draw.add_rect_filled(ImVec2(x0 + 2 * scale, y + 2 * scale),
                             ImVec2(x0 + 2 * scale + max(width, 1), y + step - 2 * scale), color, 2 * scale)
    if cell.paint is not None:
        cell.paint(draw, x0 + pad, x1 - pad, y + 2 * scale, step - 4 * scale)
        return
    if cell.spark is not None:
        _spark(draw, cell.spark, (x0 + pad, x1 - pad, y + 3 * scale, y + step - 3 * scale),
               theme.u32(cell.color or theme.ACCENT, 0.85))
        return
    text_y = round(y + (step - line) / 2)
    x = x0 + pad
    if cell.dot is not None:
        r = 3.5 * scale
        draw.add_rect_filled(ImVec2(x, y + step / 2 - r), ImVec2(x + 2 * r, y + step / 2 + r), cell.dot, 2 * scale)
        x += 2 * r + 6 * scale
    text = fitted(cell.text, x1 - x - pad, tail=column.tail)
    if column.right:
        x = max(x1 - pad - imgui.calc_text_size(text).x, x)
    draw.add_text(ImVec2(round(x), text_y), theme.u32(cell.color or theme.TEXT), text)


def _spark(draw: imgui.ImDrawList, values: Sequence[float], place: tuple[float, float, float, float],
           color: int) -> None:
    x0, x1, y0, y1 = place
    step = (x1 - x0) / max(len(values), 1)
    for i, value in enumerate(values):
        top = y1 - max((y1 - y0) * min(max(value, 0.0), 1.0), 1.0)
        draw.add_rect_filled(ImVec2(x0 + i * step, top), ImVec2(x0 + (i + 1) * step - max(step * 0.2, 0.5), y1), color)


def tooltip(text: str, scale: float) -> None:
    """Several lines beside the pointer, wrapped where they are too long."""
    imgui.push_style_var(imgui.StyleVar_.window_padding, ImVec2(10 * scale, 8 * scale))
    imgui.begin_tooltip()
    imgui.push_text_wrap_pos(imgui.get_font_size() * 42)
    imgui.text_unformatted(text)
    imgui.pop_text_wrap_pos()
    imgui.end_tooltip()
    imgui.pop_style_var()
