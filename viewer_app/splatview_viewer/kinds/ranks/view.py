"""The view of a folder's memory snapshots: a row for each, which a click opens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import Key
from splatview_viewer.core.quantities import count_text, size_text
from splatview_viewer.core.screen import clear_rect
from splatview_viewer.core.view import Info, KeyHelp, View
from splatview_viewer.snapshot.loading.ranks import RankTable
from splatview_viewer.snapshot.model import device_text
from splatview_viewer.ui import choices, controls, theme
from splatview_viewer.ui.boards import board
from splatview_viewer.ui.words import write, write_right

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.view import Value
    from splatview_viewer.snapshot.loading.ranks import Rank

_HEAD = 48.0
_TITLES = 26.0
_ROW = theme.ROW_HEIGHT
_PAD = 12.0
_MIN_HEIGHT = 180.0
"""Points of height from which there is room for more than rows."""
_KEYS = {
    "up": -1.0,
    "down": 1.0,
    "page_up": -10.0,
    "page_down": 10.0,
    "e": 3.0,
    "q": -3.0,
}
"""Rows by which keys scroll."""
_WHEEL_ROWS = 3.0


class _Column(NamedTuple):
    """A column of the table."""

    title: str
    width: float
    """Points."""
    is_number: bool = True


_COLUMNS = (
    _Column("Rank", 56),
    _Column("Peak", 92),
    _Column("Reserved", 92),
    _Column("At the end", 92),
    _Column("Events", 88),
    _Column("Device", 150, is_number=False),
)
_CHECK_WIDTH = 34.0
_MIN_WIDTH = 420.0
"""Points of width from which there is room for columns."""


@dataclass
class RanksData:
    """The list that all views show."""

    table: RankTable | None = None

    @property
    def ranks(self) -> Sequence[Rank]:
        """All rows, by their ranks."""
        if self.table is None:
            return ()
        return self.table.ranks


@dataclass(frozen=True)
class RanksState:
    """One user's view."""

    top: float = 0.0
    """The row at the upper edge."""
    checked: tuple[Path, ...] = ()
    """Files that are to be compared, two at most. The folder may lose them, or get others
    before them."""


class RanksView(View[RanksData, RanksState]):
    """One user's view of a folder's snapshots."""

    kind: ClassVar[str] = "ranks"
    keys = (
        KeyHelp("Ranks", "Click", "Open the snapshot of a rank"),
        KeyHelp("Ranks", "Wheel, arrows", "Scroll"),
    )

    def take(self, link: str, value: Value) -> bool:
        if not isinstance(value, RankTable):
            raise ViewerError(
                f"ranks: {type(value).__name__} is no list of memory snapshots; open a "
                "folder of them by splatview memory FOLDER"
            )
        self.data.table = value
        return True

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        clear_rect(framebuffer, rect, theme.rgb(theme.PANEL))

    def ui(self, rect: Rect, scale: float) -> bool:
        previous_state = self.state
        pad = (min(_PAD * scale, rect.width / 4), 0.0)
        with board(f"ranks {id(self)}", rect, pad, theme.PANEL) as is_visible:
            if is_visible:
                _Table(self, rect, scale).draw()
        return self.state != previous_state

    def handle(self, event: Event, rect: Rect) -> bool:
        previous_state = self.state
        if isinstance(event, Key) and event.pressed and not event.mods:
            self.scroll(_KEYS.get(event.name, 0.0))
        return self.state != previous_state

    def scroll(self, rows: float) -> None:
        """Move the list by some rows; one stays in sight."""
        top = min(max(self.state.top + rows, 0.0), max(len(self.data.ranks) - 1.0, 0.0))
        self.state = replace(self.state, top=top)

    @property
    def checked_rows(self) -> list[int]:
        """The rows of the checked files that are still there, as they were checked."""
        table = self.data.table
        if table is None:
            return []
        rows = [table.index_of_path.get(path) for path in self.state.checked]
        return [row for row in rows if row is not None]

    def toggle(self, row: int) -> None:
        """Check a row, or uncheck it; a third one takes the place of the first."""
        rows = self.checked_rows
        if row in rows:
            rows.remove(row)
        else:
            rows = [*rows, row][-2:]
        paths = tuple(self.data.ranks[index].path for index in rows)
        self.state = replace(self.state, checked=paths)

    def open(self, row: int) -> None:
        """Show the snapshot of a row."""
        self.host.open(self.data.ranks[row].path)

    def compare(self) -> None:
        """Show the two checked snapshots, A the one of the lower rank."""
        first, second = (self.data.ranks[row].path for row in sorted(self.checked_rows))
        self.host.open_pair(first, second)

    def release(self, occasion: Literal["idle", "away", "closed", "last"]) -> None:
        """Release nothing: the view has no memory of the GPU."""

    def covered(self, rect: Rect) -> Sequence[Rect]:
        return (rect,)

    def info(self) -> Info:
        table = self.data.table
        if table is None:
            return Info()
        phrases = [count_text(len(table.ranks), "rank")]
        if table.unreadable_count:
            phrases.append(f"{table.unreadable_count:,} cannot be read")
        if table.hidden_count:
            phrases.append(f"{count_text(table.hidden_count, 'file')} more, not read")
        return Info(phrases, [str(table.folder)], "", ["file"], title="Ranks")


class _Table:
    """Draws the list for one picture."""

    def __init__(self, view: RanksView, rect: Rect, scale: float) -> None:
        self._view = view
        self._rect = rect
        self._scale = scale
        self._ranks = view.data.ranks
        self._checked_rows = view.checked_rows
        self._highest: int | None = None
        if view.data.table is not None:
            self._highest = view.data.table.highest
        self._is_narrow = rect.width < _MIN_WIDTH * scale
        self._left = imgui.get_cursor_screen_pos().x
        self._width = imgui.get_content_region_avail().x

    def draw(self) -> None:
        """Draw the head, the titles, and the rows that are in sight."""
        scale = self._scale
        top: float = self._rect.y
        if self._rect.height >= _MIN_HEIGHT * scale and not self._is_narrow:
            self._draw_head()
            top += (_HEAD + _TITLES) * scale
            self._draw_titles(top - _TITLES * scale)
        if imgui.is_window_hovered():
            wheel = imgui.get_io().mouse_wheel
            if wheel:
                self._view.scroll(-_WHEEL_ROWS * wheel)
        draw = imgui.get_window_draw_list()
        bottom = self._rect.y + self._rect.height
        corner = ImVec2(self._rect.x, top)
        draw.push_clip_rect(
            corner, ImVec2(self._rect.x + self._rect.width, bottom), True
        )
        first = int(self._view.state.top)
        offset = (self._view.state.top - first) * _ROW * scale
        for row in range(first, len(self._ranks)):
            y = top - offset + (row - first) * _ROW * scale
            if y >= bottom:
                break
            self._draw_row(row, y)
        draw.pop_clip_rect()

    def _draw_head(self) -> None:
        """Draw what is listed, and the button that compares the checked rows."""
        scale = self._scale
        middle = self._rect.y + _HEAD / 2 * scale
        checked = self._checked_rows
        reason = None
        if len(checked) < 2:
            reason = f"check {2 - len(checked)} more"
        elif any(self._ranks[row].memory is None for row in checked):
            reason = "one of the checked files cannot be read"
        width = 116.0
        right = self._left + self._width - width * scale
        imgui.set_cursor_screen_pos(ImVec2(right, middle - 15 * scale))
        hint = "Both timelines, A and B, and what grew"
        if controls.button(
            "Compare",
            "together",
            name="Compare both",
            width=width,
            height=30,
            reason=reason,
            hint=hint,
        ):
            self._view.compare()
        with theme.bold():
            x = write("Peaks of the ranks", self._left, middle, theme.TEXT)
        hint = "a click opens a snapshot"
        available_width = right - x - 24 * scale
        write(hint, x + 10 * scale, middle, theme.DIM, available_width)

    def _draw_titles(self, y: float) -> None:
        """Draw the titles of the columns over a line."""
        scale = self._scale
        middle = y + _TITLES / 2 * scale
        x = self._left + _CHECK_WIDTH * scale
        with theme.font_size(theme.SMALL_SIZE):
            for column in _COLUMNS:
                self._write_cell(column.title, x, column, middle, theme.DIM)
                x += column.width * scale
            write("File", x + 12 * scale, middle, theme.DIM)
        bottom = y + _TITLES * scale
        right = ImVec2(self._left + self._width, bottom)
        draw = imgui.get_window_draw_list()
        draw.add_line(ImVec2(self._left, bottom), right, theme.u32(theme.LINE))

    def _write_cell(
        self, text: str, x: float, column: _Column, middle: float, color: Any
    ) -> None:
        """Write the text of a cell; numbers end at the right."""
        if column.is_number:
            write_right(text, x + (column.width - 12) * self._scale, middle, color)
        else:
            write(
                text,
                x + 12 * self._scale,
                middle,
                color,
                (column.width - 12) * self._scale,
            )

    def _draw_row(self, row: int, y: float) -> None:
        """Draw one row, and take the pointer over it."""
        scale = self._scale
        rank = self._ranks[row]
        is_readable = rank.memory is not None
        imgui.set_cursor_screen_pos(ImVec2(self._left, y))
        is_checked = row in self._checked_rows
        imgui.push_id(row)
        x = self._left
        if not self._is_narrow:
            if choices.check_box("##check", is_checked) != is_checked:
                self._view.toggle(row)
            x += _CHECK_WIDTH * scale
        imgui.set_cursor_screen_pos(ImVec2(x, y))
        width = self._left + self._width - x
        name = f"rank {rank.name}"
        row_item = controls.item(name, width, _ROW * scale, enabled=is_readable)
        imgui.pop_id()
        controls.tip(rank.fault or str(rank.path))
        if is_readable and (row_item.hovered or row_item.is_held):
            controls.draw_ground(row_item)
        if row_item.pressed:
            self._view.open(row)
        self._write_row(row, x, y + _ROW / 2 * scale)

    def _write_row(self, row: int, x: float, middle: float) -> None:
        """Write the cells of a row."""
        scale = self._scale
        rank = self._ranks[row]
        memory = rank.memory
        rank_text = ""
        if rank.index is not None:
            rank_text = f"{rank.index:,}"
        right = self._left + self._width
        if self._is_narrow:
            fact = "cannot be read"
            if memory is not None:
                fact = size_text(memory.peak_bytes)
            line = f"{rank_text or rank.name}  {fact}"
            write(line, x, middle, theme.TEXT, right - x)
            return
        if memory is None:
            self._write_cell(rank_text, x, _COLUMNS[0], middle, theme.DIM)
            x += (_COLUMNS[0].width + 12) * scale
            line = f"{rank.name}: {rank.fault}"
            write(line, x, middle, theme.FAULT, right - x)
            return
        cells = (
            rank_text,
            size_text(memory.peak_bytes),
            size_text(memory.reserved_bytes),
            size_text(memory.end_bytes),
            f"{memory.events:,}",
            device_text(memory.device),
        )
        is_highest = row == self._highest
        for index, (column, cell) in enumerate(zip(_COLUMNS, cells, strict=True)):
            if index == 1:
                self._draw_bar(memory.peak_bytes, x, column.width * scale, middle)
            if index == 1 and is_highest:
                with theme.bold():
                    self._write_cell(cell, x, column, middle, theme.ACCENT)
            else:
                self._write_cell(cell, x, column, middle, theme.TEXT)
            x += column.width * scale
        x += 12 * scale
        if is_highest:
            line = f"{rank.name}  \u00b7  highest"
            write(line, x, middle, theme.ACCENT, right - x)
        else:
            write(rank.name, x, middle, theme.DIM, right - x)

    def _draw_bar(self, peak_bytes: int, x: float, width: float, middle: float) -> None:
        """Draw a bar of a peak, as long as a share of the highest one."""
        assert self._highest is not None
        highest = self._ranks[self._highest].memory
        assert highest is not None
        share = peak_bytes / max(highest.peak_bytes, 1)
        half = 10 * self._scale
        low = ImVec2(x, middle - half)
        high = ImVec2(x + max((width - 4 * self._scale) * share, 1), middle + half)
        draw = imgui.get_window_draw_list()
        draw.add_rect_filled(low, high, theme.u32(theme.ACCENT, 0.18), 3)
