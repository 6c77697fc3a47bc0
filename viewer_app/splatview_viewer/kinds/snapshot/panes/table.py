"""Tables of imgui's, and the table of groups of allocations."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.quantities import size_text
from splatview_viewer.kinds.snapshot.panes.parts import (
    draw_centered,
    draw_tooltip,
    stack_tip,
)
from splatview_viewer.ui import controls, theme
from splatview_viewer.ui.widgets import fitted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from splatview_viewer.kinds.snapshot.answers import Key
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.snapshot.analysis.tables import GroupTable

_MIN_WIDTH = 13
"""Width of columns that have none of their own, at least, in units of the font's height."""
_TABLE_FLAGS = (
    imgui.TableFlags_.scroll_y
    | imgui.TableFlags_.no_saved_settings
    | imgui.TableFlags_.sizing_fixed_fit
    | imgui.TableFlags_.sort_tristate
).value
_ROW_FLAGS = (
    imgui.SelectableFlags_.span_all_columns | imgui.SelectableFlags_.allow_double_click
).value
_ROW_HEIGHT = 26
"""Points of a row, and of the head."""


@dataclass(frozen=True)
class TableColumn:
    """The head of a column."""

    title: str
    width: float = 0.0
    """In units of the font's height; 0: what the others leave."""
    align_right: bool = False
    """It holds numbers, which end at the same x."""
    tooltip: str = ""
    sortable: bool = False
    """A click on its title sorts."""


class Cell(NamedTuple):
    """One cell of a table."""

    text: str
    color: ImVec4 | None = None
    bar: float | None = None
    """0 to 1: how far a bar behind the text goes."""
    spark: Sequence[float] | None = None
    """A row of small columns instead of a text, each 0 to 1."""
    paint: Callable[[imgui.ImDrawList, float, float, float, float], None] | None = None
    """Draws the cell instead: called with its left, right, top and height."""
    font: Literal["", "bold", "code"] = ""


@dataclass
class TableRows:
    """The rows of a table, and what they react to."""

    answer: Any
    """The object that the rows are of."""
    count: int
    columns: Sequence[TableColumn]
    cells: Callable[[int], Sequence[Cell | str]]
    """Returns the cells of a row, one for each column."""
    on_click: Callable[[int, bool], None] = lambda row, double: None
    """Called with a row that was clicked; True: it was a double click."""
    is_chosen: Callable[[int], bool] = lambda row: False
    tooltip: Callable[[int], str] = lambda row: ""
    """Returns a text about a row under the pointer."""
    allocation: Callable[[int], int | None] | None = None
    """Returns the allocation of a row, which the timeline brightens under the pointer."""
    sort_values: Callable[[int], Sequence[Any]] | None = None
    """Returns the values by which the rows are sorted, for a column."""
    empty_text: str = "Nothing"
    """Stands instead of a table without rows."""
    reveal: int | None = None
    """A row to scroll to once."""


def draw_table(view: SnapshotView, name: str, rows: TableRows) -> bool:
    """Draw a table in what is left of the window.

    Returns True when the picture has to be drawn again.
    """
    if not rows.count:
        draw_centered(rows.empty_text)
        return False
    em = imgui.get_font_size()
    available_width = (
        imgui.get_content_region_avail().x - imgui.get_style().scrollbar_size
    )
    min_width = sum(column.width or _MIN_WIDTH for column in rows.columns) * em
    scrolls_sideways = min_width > available_width
    flags = _TABLE_FLAGS
    if scrolls_sideways:
        flags |= imgui.TableFlags_.scroll_x.value
    if rows.sort_values is not None:
        flags |= imgui.TableFlags_.sortable.value
    row_height = _row_height(view)
    padding = ImVec2(8 * view.scale, (row_height - imgui.get_text_line_height()) / 2)
    imgui.push_style_var(imgui.StyleVar_.cell_padding, padding)
    # A chosen row is coloured over its whole height.
    spacing = ImVec2(imgui.get_style().item_spacing.x, 2 * padding.y)
    imgui.push_style_var(imgui.StyleVar_.item_spacing, spacing)
    imgui.push_style_var(imgui.StyleVar_.selectable_rounding, 0)
    imgui.push_style_color(imgui.Col_.table_header_bg, imgui.get_color_u32(theme.CLEAR))
    needs_redraw = False
    column_count = len(rows.columns)
    if imgui.begin_table(f"{name} {column_count}", column_count, flags):
        _draw_head(rows.columns, scrolls_sideways, row_height)
        hovered_row = _draw_rows(view, name, rows)
        needs_redraw = _scroll_to(view, rows.reveal)
        imgui.end_table()
        _react_to_pointer(view, rows, hovered_row)
    imgui.pop_style_color()
    imgui.pop_style_var(3)
    return needs_redraw


def _row_height(view: SnapshotView) -> float:
    """Return the height of a row in pixels."""
    return round(_ROW_HEIGHT * view.scale)


def _scroll_to(view: SnapshotView, row: int | None) -> bool:
    """Scroll the open table to a row that is not visible; True if it scrolls."""
    if row is None:
        return False
    row_height = _row_height(view)
    top = imgui.get_scroll_y()
    height = imgui.get_window_height()
    if top <= row * row_height <= top + height - 2 * row_height:
        return False
    imgui.set_scroll_y(max((row + 1) * row_height - height / 2, 0))
    return True


def _react_to_pointer(
    view: SnapshotView, rows: TableRows, hovered_row: int | None
) -> None:
    """Brighten the allocation of the row under the pointer, and draw its tooltip."""
    is_hovered = imgui.is_window_hovered(imgui.HoveredFlags_.child_windows.value)
    if rows.allocation is not None and is_hovered:
        if hovered_row is not None:
            allocation = rows.allocation(hovered_row)
        else:
            allocation = None
        view.change(hovered=allocation)
    if hovered_row is not None:
        text = rows.tooltip(hovered_row)
        if text:
            draw_tooltip(text)


def _draw_head(
    columns: Sequence[TableColumn], scrolls_sideways: bool, height: float
) -> None:
    """Set up the columns, and draw their titles over a line."""
    flags = imgui.TableColumnFlags_
    em = imgui.get_font_size()
    imgui.table_setup_scroll_freeze(0, 1)
    for column in columns:
        column_flags = flags.prefer_sort_descending.value
        if not column.sortable:
            column_flags |= flags.no_sort.value
        if not column.width and not scrolls_sideways:
            column_flags |= flags.width_stretch.value
            width = 0.0
        else:
            column_flags |= flags.width_fixed.value
            width = (column.width or _MIN_WIDTH) * em
        imgui.table_setup_column(column.title, column_flags, width)
    imgui.table_next_row(imgui.TableRowFlags_.headers.value, height)
    corner = imgui.get_window_pos()
    for i, column in enumerate(columns):
        imgui.table_set_column_index(i)
        _draw_title(column)
    right = ImVec2(corner.x + imgui.get_window_width(), corner.y + height)
    draw = imgui.get_window_draw_list()
    draw.push_clip_rect(corner, ImVec2(right.x, right.y + 1), False)
    line = ImVec2(corner.x, right.y - 0.5)
    draw.add_line(line, ImVec2(right.x, line.y), theme.u32(theme.LINE))
    draw.pop_clip_rect()


def _draw_title(column: TableColumn) -> None:
    """Draw the title of the open column; imgui draws the arrow of a sorted one."""
    corner = imgui.get_cursor_screen_pos()
    available_width = _seen_width(corner)
    imgui.table_header(f"##{column.title}")
    if column.tooltip:
        controls.tip(column.tooltip)
    sorted_flag = imgui.TableColumnFlags_.is_sorted.value
    is_sorted = bool(imgui.table_get_column_flags() & sorted_flag)
    if is_sorted:
        available_width -= imgui.get_font_size()
    if available_width < imgui.get_font_size():
        return
    line_height = imgui.get_text_line_height()
    with theme.font_size(theme.SMALL_SIZE):
        title = fitted(column.title, available_width)
        x = 0.0
        if column.align_right:
            x = max(available_width - imgui.calc_text_size(title).x, 0.0)
        y = corner.y + (line_height - imgui.get_text_line_height()) / 2
        imgui.get_window_draw_list().add_text(
            ImVec2(round(corner.x + x), round(y)),
            theme.u32(theme.TEXT if is_sorted else theme.DIM),
            title,
        )


class _SavedOrder(NamedTuple):
    """The order of a table's rows, kept from one picture to the next."""

    key: tuple[int, int, bool]
    """Identity of the answer, the column, and whether it descends."""
    answer: Any
    """Held, so that its identity stays its own."""
    order: Sequence[int]


def _row_order(view: SnapshotView, name: str, rows: TableRows) -> Sequence[int]:
    """Return the rows in the order of the column whose title was clicked."""
    natural_order = range(rows.count)
    if rows.sort_values is None:
        return natural_order
    specs = imgui.table_get_sort_specs()
    if specs is None or not specs.specs_count:
        return natural_order
    spec = specs.get_specs(0)
    descends = spec.get_sort_direction() == imgui.SortDirection.descending
    key = (id(rows.answer), spec.column_index, descends)
    saved: _SavedOrder | None = view.pane_memory.get((name, "order"))
    if saved is None or saved.key != key:
        values = rows.sort_values(spec.column_index)
        order = sorted(range(len(values)), key=values.__getitem__, reverse=descends)
        saved = _SavedOrder(key, rows.answer, order)
        view.pane_memory[name, "order"] = saved
    return saved.order


def _draw_rows(view: SnapshotView, name: str, rows: TableRows) -> int | None:
    """Draw the visible rows. Returns the one under the pointer."""
    hovered_row = None
    row_height = _row_height(view)
    order = _row_order(view, name, rows)
    clipper = imgui.ListClipper()
    clipper.begin(rows.count, row_height)
    while clipper.step():
        for position in range(clipper.display_start, clipper.display_end):
            row = order[position]
            imgui.table_next_row(0, row_height)
            if _draw_row(f"##{name} {position}", rows, row):
                hovered_row = row
    clipper.end()
    return hovered_row


def _draw_row(widget_id: str, rows: TableRows, row: int) -> bool:
    """Draw one row; return whether the pointer is over it."""
    is_hovered = False
    is_chosen = rows.is_chosen(row)
    columns_and_cells = zip(rows.columns, rows.cells(row), strict=True)
    for i, (column, cell) in enumerate(columns_and_cells):
        is_seen = imgui.table_set_column_index(i)
        corner = imgui.get_cursor_screen_pos()
        width = _seen_width(corner)
        if i == 0:
            size = ImVec2(0, imgui.get_text_line_height())
            if imgui.selectable(widget_id, is_chosen, _ROW_FLAGS, size)[0]:
                is_double = imgui.is_mouse_double_clicked(imgui.MouseButton_.left)
                rows.on_click(row, is_double)
            is_hovered = imgui.is_item_hovered()
        if not is_seen or width < imgui.get_font_size():
            continue
        if isinstance(cell, str):
            cell = Cell(cell)
        is_plain = cell.color is None or cell.color is theme.DIM
        if is_chosen and is_plain:
            cell = cell._replace(color=theme.ON_CHOSEN)
        _draw_cell(cell, column.align_right, corner, width)
    return is_hovered


def _seen_width(corner: ImVec2) -> float:
    """Return the pixels from a cell's corner to its end, or to that of the table.

    A table that is wider than the window is seen in part.
    """
    clip_right = imgui.get_window_draw_list().get_clip_rect_max().x
    return max(min(imgui.get_content_region_avail().x, clip_right - corner.x), 1.0)


def _draw_cell(cell: Cell, align_right: bool, corner: ImVec2, width: float) -> None:
    """Draw what a cell holds."""
    draw = imgui.get_window_draw_list()
    height = imgui.get_text_line_height()
    if cell.paint is not None:
        cell.paint(draw, corner.x, corner.x + width, corner.y, height)
        return
    if cell.spark is not None:
        _draw_spark(draw, cell.spark, cell.color or theme.ACCENT, corner, width)
        return
    if cell.bar is not None:
        scale = theme.scale()
        bar_width = max(width * min(max(cell.bar, 0.0), 1.0), 1)
        draw.add_rect_filled(
            ImVec2(corner.x, corner.y - scale),
            ImVec2(corner.x + bar_width, corner.y + height + scale),
            theme.u32(cell.color or theme.ACCENT, 0.22),
            2 * scale,
        )
    with _font_of(cell):
        text = fitted(cell.text, width)
        x = 0.0
        if align_right:
            x = max(width - imgui.calc_text_size(text).x, 0.0)
        position = ImVec2(round(corner.x + x), corner.y)
        draw.add_text(position, theme.u32(cell.color or theme.TEXT), text)


def _font_of(cell: Cell) -> AbstractContextManager[None]:
    """Return what draws in the letters of a cell."""
    if cell.font == "bold":
        return theme.bold()
    if cell.font == "code":
        return theme.code()
    return nullcontext()


def _draw_spark(
    draw: imgui.ImDrawList,
    values: Sequence[float],
    color: ImVec4,
    corner: ImVec2,
    width: float,
) -> None:
    """Draw a row of small columns, one for each value of 0 to 1."""
    height = imgui.get_text_line_height()
    step = width / max(len(values), 1)
    bottom = corner.y + height
    for i, value in enumerate(values):
        column_height = max(height * min(max(value, 0.0), 1.0), 1.0)
        draw.add_rect_filled(
            ImVec2(corner.x + i * step, bottom - column_height),
            ImVec2(corner.x + (i + 0.8) * step, bottom),
            theme.u32(color, 0.85),
        )


# -- groups of allocations -------------------------------------------------------------


def group_rows(
    view: SnapshotView, key: Key, table: GroupTable, title: str, empty_text: str
) -> TableRows:
    """Return the rows of groups; a click highlights a group in the timeline."""
    total = max(table.total, 1)
    largest = max(int(table.bytes.max(initial=1)), 1)

    def cells(row: int) -> list[Cell | str]:
        group = table[row]
        return [
            group.label,
            Cell(size_text(group.bytes), bar=group.bytes / largest),
            f"{group.bytes / total:.1%}",
            f"{group.count:,}",
            Cell(size_text(group.largest), theme.DIM),
        ]

    def on_click(row: int, double: bool) -> None:
        group = table[row]
        ids = table.allocations(group.key)
        label = f"{group.label}, {size_text(group.bytes)}"
        view.toggle_highlight(key, group.key, ids, label)

    def tooltip(row: int) -> str:
        if table.grouping == "stack":
            return stack_tip(view, int(table.keys[row]))
        return ""

    def sort_values(column: int) -> list[int]:
        values = {3: table.counts, 4: table.largest}.get(column, table.bytes)
        return values.tolist()

    columns = (
        TableColumn(title),
        TableColumn("Bytes", 7.5, True, sortable=True),
        TableColumn("Share", 4.6, True),
        TableColumn("Blocks", 5.2, True, "How many allocations", sortable=True),
        TableColumn("Largest", 6.2, True, sortable=True),
    )
    return TableRows(
        answer=table,
        count=len(table),
        columns=columns,
        cells=cells,
        on_click=on_click,
        is_chosen=lambda row: view.is_highlighted(key, int(table.keys[row])),
        tooltip=tooltip,
        sort_values=sort_values,
        empty_text=empty_text,
    )
