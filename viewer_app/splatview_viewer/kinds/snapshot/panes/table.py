"""A pane that is one question: its answer in a table of imgui's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.snapshot.panes.parts import Shown, centered, latest, tooltip
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import fitted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.kinds.snapshot.content import Key
    from splatview_viewer.kinds.snapshot.view import SnapshotView

_LEAST, _NARROW = 13, 6
"""Units of the font's height that columns without a width of their own get at least: while others can be left out, and
once they can only get narrower."""
_FLAGS = (imgui.TableFlags_.scroll_y | imgui.TableFlags_.row_bg | imgui.TableFlags_.no_saved_settings
          | imgui.TableFlags_.sizing_fixed_fit | imgui.TableFlags_.sort_tristate).value
_ROW = imgui.SelectableFlags_.span_all_columns.value


@dataclass(frozen=True)
class Column:
    title: str
    width: float = 0.0
    """In units of the font's height; 0: what the others leave."""
    right: bool = False
    """It holds numbers, which end at the same place."""
    tip: str = ""
    gives: int = 0
    """Left out where there is no room for all columns, those with the highest number first; 0: never."""
    sorts: bool = False
    """A click on its title sorts."""


class Cell(NamedTuple):
    text: str
    color: ImVec4 | None = None
    bar: float | None = None
    """0 to 1: how far a bar behind the text goes."""
    dot: ImVec4 | None = None
    """The colour of a dot before the text."""
    spark: Sequence[float] | None = None
    """A row of small columns instead of a text, each 0 to 1."""
    paint: Callable[[imgui.ImDrawList, float, float, float, float], None] | None = None
    """Draws the cell instead: called with its left, right, top and height."""


@dataclass
class Rows:
    """The table of an answer."""

    of: Any
    """The answer."""
    count: int
    columns: Sequence[Column]
    cells: Callable[[int], Sequence[Cell | str]]
    """The cells of a row, one for each column."""
    click: Callable[[int, bool], None] = lambda row, double: None
    """Called with a row that was clicked; True: for the second time."""
    chosen: Callable[[int], bool] = lambda row: False
    tip: Callable[[int], str] = lambda row: ""
    """Words about a row under the pointer."""
    tint: Callable[[int], ImVec4 | None] = lambda row: None
    """A colour under a whole row."""
    allocation: Callable[[int], int | None] | None = None
    """The allocation that a row is about, which the timeline lights under the pointer."""
    sort: Callable[[int], Sequence[Any]] | None = None
    """The values by which the rows are sorted, for a column."""
    words: str = "Nothing"
    """Words instead of a table without rows."""
    wide: bool = False
    """Columns that do not all fit are scrolled sideways; otherwise they get narrower."""
    reveal: int | None = None
    """A row to scroll to once."""


class QueryPane(NamedTuple):
    """A pane that asks one question."""

    key: Callable[[SnapshotView], Key | None]
    """Draws what is to be chosen, and returns the question; None while that is not known."""
    rows: Callable[[SnapshotView, Shown], Rows | None]
    """Draws what stands above the table of an answer, and returns the table."""
    words: str = "Working it out\u2026"

    def draw(self, view: SnapshotView, name: str) -> bool:
        """Draw inside a window; True when the picture has to be drawn again."""
        key = self.key(view)
        found = latest(view, name, key, self.words) if key is not None else None
        rows = self.rows(view, found) if found is not None else None
        return rows is not None and draw_table(view, name, rows)


def draw_table(view: SnapshotView, name: str, rows: Rows) -> bool:
    """Draw in what is left of the window; True when the picture has to be drawn again."""
    if not rows.count:
        centered(rows.words)
        return False
    em, width = imgui.get_font_size(), imgui.get_content_region_avail().x - imgui.get_style().scrollbar_size
    places = _fitting(rows.columns, width / em)
    columns = [rows.columns[i] for i in places]
    wide = rows.wide and sum(column.width or _LEAST for column in columns) * em > width
    unit = em if wide else em * min(1.0, width / em / sum(column.width or _NARROW for column in columns))
    imgui.push_style_var(imgui.StyleVar_.cell_padding, ImVec2(0.35 * em, 3 * view.scale))
    imgui.push_style_color(imgui.Col_.table_header_bg, imgui.get_color_u32(ImVec4(0, 0, 0, 0)))
    imgui.push_style_color(imgui.Col_.table_row_bg_alt, imgui.get_color_u32(ImVec4(1, 1, 1, 0.018)))
    flags = _FLAGS | (imgui.TableFlags_.scroll_x.value if wide else 0) | (
        imgui.TableFlags_.sortable.value if rows.sort is not None else 0)
    again = False
    if imgui.begin_table(f"{name} {len(columns)}", len(columns), flags):
        _head(columns, wide, unit)
        over = _body(view, name, rows, places, _order(view, name, rows, places))
        step, at, seen = imgui.get_text_line_height() + 6 * view.scale, imgui.get_scroll_y(), imgui.get_window_height()
        if rows.reveal is not None and not at <= rows.reveal * step <= at + seen - 2 * step:
            imgui.set_scroll_y(max((rows.reveal + 1) * step - seen / 2, 0))
            again = True
        imgui.end_table()
        if rows.allocation is not None and imgui.is_window_hovered(imgui.HoveredFlags_.child_windows.value):
            view.see(hovered=rows.allocation(over) if over is not None else None)
        if over is not None and (text := rows.tip(over)):
            tooltip(text)
    imgui.pop_style_color(2)
    imgui.pop_style_var()
    return again


def _fitting(columns: Sequence[Column], width: float) -> list[int]:
    """The columns for which so many units of the font's height are enough."""
    left = list(range(len(columns)))
    while sum(columns[i].width or _LEAST for i in left) > width:
        first = max(left, key=lambda i: columns[i].gives)
        if not columns[first].gives:
            break
        left.remove(first)
    return left


def _head(columns: Sequence[Column], wide: bool, unit: float) -> None:
    """Set up the columns, whose widths are in units of so many pixels, and write their titles."""
    flags, em = imgui.TableColumnFlags_, imgui.get_font_size()
    imgui.table_setup_scroll_freeze(0, 1)
    for column in columns:
        stretch = not column.width and not wide
        imgui.table_setup_column(column.title, (
            (flags.width_stretch if stretch else flags.width_fixed).value | flags.prefer_sort_descending.value
            | (0 if column.sorts else flags.no_sort.value)), 0 if stretch else (column.width or _LEAST) * unit)
    imgui.table_next_row(imgui.TableRowFlags_.headers.value)
    for i, column in enumerate(columns):
        imgui.table_set_column_index(i)
        at, room = imgui.get_cursor_screen_pos(), imgui.get_content_region_avail().x
        imgui.table_header(f"##{column.title}")
        if column.tip:
            imgui.set_item_tooltip(column.tip)
        here = bool(imgui.table_get_column_flags() & flags.is_sorted.value)
        title = fitted(column.title, room - (em if here else 0))
        x = room - imgui.calc_text_size(title).x - (em if here else 0) if column.right else 0
        imgui.get_window_draw_list().add_text(ImVec2(round(at.x + max(x, 0)), at.y),
                                              theme.u32(theme.TEXT if here else theme.DIM), title)


def _order(view: SnapshotView, name: str, rows: Rows, places: Sequence[int]) -> Sequence[int] | None:
    """The rows in the order of the column whose title was clicked; None: as they are."""
    specs = imgui.table_get_sort_specs() if rows.sort is not None else None
    if specs is None or not specs.specs_count or rows.sort is None:
        return None
    spec = specs.get_specs(0)
    down = spec.get_sort_direction() == imgui.SortDirection.descending
    key, place = (id(rows.of), places[spec.column_index], down), (name, "order")
    if place not in view.memory or view.memory[place][0] != key:
        values = rows.sort(key[1])
        order = sorted(range(len(values)), key=values.__getitem__, reverse=down)
        view.memory[place] = key, rows.of, order
    return view.memory[place][2]


def _body(view: SnapshotView, name: str, rows: Rows, places: Sequence[int], order: Sequence[int] | None) -> int | None:
    """Draw the rows that are seen; the one under the pointer."""
    over, line = None, imgui.get_text_line_height()
    clipper = imgui.ListClipper()
    clipper.begin(rows.count, line + 6 * view.scale)
    while clipper.step():
        for number in range(clipper.display_start, clipper.display_end):
            row = order[number] if order is not None else number
            imgui.table_next_row(0, line + 6 * view.scale)
            if (color := rows.tint(row)) is not None:
                imgui.table_set_bg_color(imgui.TableBgTarget_.row_bg1.value, theme.u32(color))
            cells = rows.cells(row)
            for i, place in enumerate(places):
                imgui.table_set_column_index(i)
                at, room = imgui.get_cursor_screen_pos(), imgui.get_content_region_avail().x
                if not i:
                    if imgui.selectable(f"##{name} {number}", rows.chosen(row), _ROW, ImVec2(0, line))[0]:
                        rows.click(row, imgui.get_io().mouse_clicked_last_count[0] > 1)
                    over = row if imgui.is_item_hovered() else over
                cell = cells[place]
                _cell(rows.columns[place].right, cell if isinstance(cell, Cell) else Cell(cell), at, room)
    clipper.end()
    return over


def _cell(right: bool, cell: Cell, at: ImVec2, room: float) -> None:
    draw, line, scale = imgui.get_window_draw_list(), imgui.get_text_line_height(), theme.scale()
    if cell.paint is not None:
        cell.paint(draw, at.x, at.x + room, at.y, line)
        return
    if cell.spark is not None:
        color, step = theme.u32(cell.color or theme.ACCENT, 0.85), room / max(len(cell.spark), 1)
        for i, value in enumerate(cell.spark):
            high = max(line * min(max(value, 0.0), 1.0), 1.0)
            draw.add_rect_filled(ImVec2(at.x + i * step, at.y + line - high),
                                 ImVec2(at.x + (i + 0.8) * step, at.y + line), color)
        return
    if cell.bar is not None:
        width = max(room * min(max(cell.bar, 0.0), 1.0), 1)
        draw.add_rect_filled(ImVec2(at.x, at.y - scale), ImVec2(at.x + width, at.y + line + scale),
                             theme.u32(cell.color or theme.ACCENT, 0.22), 2 * scale)
    x = 0.0
    if cell.dot is not None:
        r, y = 3.5 * scale, at.y + line / 2
        draw.add_rect_filled(ImVec2(at.x, y - r), ImVec2(at.x + 2 * r, y + r), theme.u32(cell.dot), 2 * scale)
        x = 2 * r + 6 * scale
    text = fitted(cell.text, room - x)
    x = max(room - imgui.calc_text_size(text).x, x) if right else x
    draw.add_text(ImVec2(round(at.x + x), at.y), theme.u32(cell.color or theme.TEXT), text)
