"""Parts of the panes: chips, words about a moment and a stack, bars, answers, and tables of imgui's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.format import size_text
from splatview_viewer.snapshot.analysis.frames import MACHINERY, frame_kinds, frame_text
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import colored, fitted, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from splatview_viewer.kinds.snapshot.content import Key
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.snapshot.analysis.tables import GroupTable

K = TypeVar("K", bound=str)
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


def draw_centered(text: str) -> None:
    """Words in the middle of what is left of the window, where there is nothing to show."""
    left = imgui.get_content_region_avail()
    size = imgui.calc_text_size(text)
    corner = imgui.get_cursor_pos()
    imgui.set_cursor_pos_y(corner.y + max((left.y - size.y) / 2, 0))
    for line in text.split("\n"):
        imgui.set_cursor_pos_x(
            corner.x + max((left.x - imgui.calc_text_size(line).x) / 2, 0)
        )
        colored(line, theme.DIM)


def chip(text: str, on: bool) -> bool:
    """A flat button that is lit while `on`."""
    imgui.push_style_color(
        imgui.Col_.button, imgui.get_color_u32(theme.CHOSEN if on else _CLEAR)
    )
    imgui.push_style_color(
        imgui.Col_.text, imgui.get_color_u32(theme.TEXT if on else theme.DIM)
    )
    pressed = imgui.button(text)
    imgui.pop_style_color(2)
    return pressed


def draw_choice(view: SnapshotView, name: str, options: Mapping[K, str]) -> K:
    """A line of words of which one is chosen: the first at first. What does not fit goes to the next line."""
    before = view.state.choice(name, "")
    chosen = next((key for key in options if key == before), next(iter(options)))
    for i, (key, text) in enumerate(options.items()):
        if i:
            continue_line(
                imgui.calc_text_size(text).x + 2 * imgui.get_style().frame_padding.x, 2
            )
        if chip(f"{text}##{name}", key == chosen):
            chosen = key
            view.state = view.state.with_choice(name, key)
    return chosen


def draw_label(text: str) -> None:
    """A dim word before what follows on the same line."""
    imgui.align_text_to_frame_padding()
    colored(text, theme.DIM)
    imgui.same_line()


def continue_line(width: float, space: float) -> None:
    """The next item, so many pixels wide, goes on the same line after some space, if there is room for it."""
    right = (
        imgui.get_window_pos().x
        + imgui.get_window_width()
        - imgui.get_style().window_padding.x
    )
    if imgui.get_item_rect_max().x + space + width <= right:
        imgui.same_line(0, space)


def right_aligned_texts(*words: tuple[str, ImVec4]) -> None:
    """Words at the end of the line; if there is no room for them, of the next one."""
    imgui.same_line()
    space = imgui.get_style().item_spacing.x
    left = (
        imgui.get_content_region_avail().x
        - sum(imgui.calc_text_size(text).x + space for text, _ in words)
        + space
    )
    if left < 0:
        imgui.new_line()
    else:
        imgui.set_cursor_pos_x(imgui.get_cursor_pos_x() + left)
    for i, (text, color) in enumerate(words):
        if i:
            imgui.same_line()
        imgui.align_text_to_frame_padding()
        colored(text, color)


def draw_size_bar(parts: Mapping[str, tuple[int, ImVec4 | None]]) -> None:
    """A bar as wide as the window, of the bytes of all parts that have a colour; and all parts in words below it."""
    corner = imgui.get_cursor_screen_pos()
    width = imgui.get_content_region_avail().x
    whole = max(sum(size for size, color in parts.values() if color is not None), 1)
    draw = imgui.get_window_draw_list()
    x = corner.x
    height = 8 * theme.scale()
    for size, color in parts.values():
        if size and color is not None:
            end = x + width * size / whole
            draw.add_rect_filled(
                ImVec2(x, corner.y),
                ImVec2(max(end - 1, x + 1), corner.y + height),
                theme.u32(color),
                2 * theme.scale(),
            )
            x = end
    imgui.dummy(ImVec2(width, height))
    for i, (what, (size, color)) in enumerate(
        (what, part) for what, part in parts.items() if part[0]
    ):
        words = f"{size_text(size)} {what}"
        if i:
            continue_line(imgui.calc_text_size(words).x, 14 * theme.scale())
        colored(words, theme.DIM if color is None or color is FREE else color)


def draw_tooltip(text: str) -> None:
    """Several lines beside the pointer, wrapped where they are too long."""
    if imgui.begin_tooltip():
        imgui.push_text_wrap_pos(imgui.get_font_size() * 42)
        imgui.text_unformatted(text)
        imgui.pop_text_wrap_pos()
        imgui.end_tooltip()


# -- answers -----------------------------------------------------------------------------------------------------------


class PaneAnswer(NamedTuple):
    """An answer, and the question."""

    key: Any
    answer: Any


def latest_answer(
    view: SnapshotView,
    name: str,
    key: Key,
    work: Callable[..., Any],
    words: str = "Working it out\u2026",
    *,
    lane: Literal["analysis", "query"] = "analysis",
) -> PaneAnswer | None:
    """The answer to a question (`Content.ask`), or the one before, of another moment or allocation of the device, while
    it is worked on; None, and why on the screen, where there is neither.
    """
    found = view.content.request(key, work, newest=True, lane=lane)
    place = (name, "shown")
    before: PaneAnswer | None = view.pane_memory.get(place)
    if found is not None:
        view.pane_memory[place] = PaneAnswer(key, found)
    elif fault := view.content.fault(key):
        lines = fault.split(
            "\n"
        )  # a mark under a place lies elsewhere in letters of different widths
        wrapped("\n".join(line for line in lines if line.strip(" ^")), theme.FAULT)
        return None
    elif before is None or _same_but_numbers(before.key) != _same_but_numbers(key):
        draw_centered(words)
        return None
    return view.pane_memory[place]


def _same_but_numbers(key: Key) -> tuple[object, ...]:
    return (*key[:2], *(part for part in key if isinstance(part, str)))


# -- words -------------------------------------------------------------------------------------------------------------


def stack_tip(view: SnapshotView, stack: int) -> str:
    """The frames of a stack that tell something, innermost first; "" for NO_STACK."""
    snapshot = view.content.snapshot
    frames = view.content.snapshot.stacks.frames_of(stack)
    if not len(frames):
        return ""
    kinds = frame_kinds(snapshot)
    told = [int(f) for f in frames if kinds[f] != MACHINERY][:_TOLD]
    lines = [frame_text(snapshot, f) for f in told]
    return "\n".join(
        [*lines, f"and {len(frames) - len(told)} more frames"]
        if len(told) < len(frames)
        else lines
    )


def moment_text(view: SnapshotView, moment: int) -> str:
    """ "after event 12,345, 1.234 s", the time from the first one on."""
    if moment <= 0:
        return "before the first event"
    axis = view.content.axis(view.device, "time")
    last = len(view.trace.events)
    words = "at the end" if moment >= last else f"after event {moment - 1:,}"
    if axis is None or not axis.has_times:
        return words
    return f"{words}, {(axis.time_us(moment) - axis.origin_us) / 1e6:.3f} s"


def draw_moment_line(view: SnapshotView) -> int | None:
    """Say of which moment a pane tells, with a way to the peak; None until the moment is known."""
    moment = view.moment
    peak = view.content.peak(view.device)
    if moment is None:
        draw_centered("Looking for the peak\u2026")
        return None
    words = moment_text(view, moment)
    imgui.align_text_to_frame_padding()
    colored(
        f"At the peak, {words}" if peak == moment else words[:1].upper() + words[1:],
        theme.TEXT,
    )
    if peak is not None and peak != moment:
        imgui.same_line(0, imgui.get_font_size() * 0.6)
        if imgui.small_button("To the peak"):
            view.choose_moment(peak)
    return moment


_LEAST = 13
"""Units of the font's height that columns without a width of their own get at least."""
_FLAGS = (
    imgui.TableFlags_.scroll_y
    | imgui.TableFlags_.row_bg
    | imgui.TableFlags_.no_saved_settings
    | imgui.TableFlags_.sizing_fixed_fit
    | imgui.TableFlags_.sort_tristate
).value
_ROW = (
    imgui.SelectableFlags_.span_all_columns | imgui.SelectableFlags_.allow_double_click
).value


@dataclass(frozen=True)
class TableColumn:
    title: str
    width: float = 0.0
    """In units of the font's height; 0: what the others leave."""
    align_right: bool = False
    """It holds numbers, which end at the same place."""
    tooltip: str = ""
    sortable: bool = False
    """A click on its title sorts."""


class Cell(NamedTuple):
    text: str
    color: ImVec4 | None = None
    bar: float | None = None
    """0 to 1: how far a bar behind the text goes."""
    spark: Sequence[float] | None = None
    """A row of small columns instead of a text, each 0 to 1."""
    paint: Callable[[imgui.ImDrawList, float, float, float, float], None] | None = None
    """Draws the cell instead: called with its left, right, top and height."""


@dataclass
class TableRows:
    """The table of an answer."""

    answer: Any
    """The answer."""
    count: int
    columns: Sequence[TableColumn]
    cells: Callable[[int], Sequence[Cell | str]]
    """The cells of a row, one for each column."""
    on_click: Callable[[int, bool], None] = lambda row, double: None
    """Called with a row that was clicked; True: for the second time."""
    is_chosen: Callable[[int], bool] = lambda row: False
    tooltip: Callable[[int], str] = lambda row: ""
    """Words about a row under the pointer."""
    allocation: Callable[[int], int | None] | None = None
    """The allocation that a row is about, which the timeline lights under the pointer."""
    sort_values: Callable[[int], Sequence[Any]] | None = None
    """The values by which the rows are sorted, for a column."""
    empty_text: str = "Nothing"
    """Words instead of a table without rows."""
    reveal: int | None = None
    """A row to scroll to once."""


def draw_table(view: SnapshotView, name: str, rows: TableRows) -> bool:
    """Draw in what is left of the window; True when the picture has to be drawn again."""
    if not rows.count:
        draw_centered(rows.empty_text)
        return False
    em = imgui.get_font_size()
    width = imgui.get_content_region_avail().x - imgui.get_style().scrollbar_size
    wide = (
        sum(column.width or _LEAST for column in rows.columns) * em > width
    )  # it is scrolled sideways
    imgui.push_style_var(
        imgui.StyleVar_.cell_padding, ImVec2(0.35 * em, 3 * view.scale)
    )
    imgui.push_style_color(imgui.Col_.table_header_bg, imgui.get_color_u32(_CLEAR))
    imgui.push_style_color(
        imgui.Col_.table_row_bg_alt, imgui.get_color_u32(ImVec4(1, 1, 1, 0.018))
    )
    flags = (
        _FLAGS
        | (imgui.TableFlags_.scroll_x.value if wide else 0)
        | (imgui.TableFlags_.sortable.value if rows.sort_values is not None else 0)
    )
    again = False
    if imgui.begin_table(f"{name} {len(rows.columns)}", len(rows.columns), flags):
        _head(rows.columns, wide)
        over = _body(view, name, rows)
        step = imgui.get_text_line_height() + 6 * view.scale
        at = imgui.get_scroll_y()
        seen = imgui.get_window_height()
        if (
            rows.reveal is not None
            and not at <= rows.reveal * step <= at + seen - 2 * step
        ):
            imgui.set_scroll_y(max((rows.reveal + 1) * step - seen / 2, 0))
            again = True
        imgui.end_table()
        if rows.allocation is not None and imgui.is_window_hovered(
            imgui.HoveredFlags_.child_windows.value
        ):
            view.change(hovered=rows.allocation(over) if over is not None else None)
        if over is not None and (text := rows.tooltip(over)):
            draw_tooltip(text)
    imgui.pop_style_color(2)
    imgui.pop_style_var()
    return again


def _head(columns: Sequence[TableColumn], wide: bool) -> None:
    """Set up the columns, and write their titles."""
    flags = imgui.TableColumnFlags_
    em = imgui.get_font_size()
    imgui.table_setup_scroll_freeze(0, 1)
    for column in columns:
        stretch = not column.width and not wide
        imgui.table_setup_column(
            column.title,
            (
                (flags.width_stretch if stretch else flags.width_fixed).value
                | flags.prefer_sort_descending.value
                | (0 if column.sortable else flags.no_sort.value)
            ),
            0 if stretch else (column.width or _LEAST) * em,
        )
    imgui.table_next_row(imgui.TableRowFlags_.headers.value)
    for i, column in enumerate(columns):
        imgui.table_set_column_index(i)
        at = imgui.get_cursor_screen_pos()
        room = imgui.get_content_region_avail().x
        imgui.table_header(f"##{column.title}")
        if column.tooltip:
            imgui.set_item_tooltip(column.tooltip)
        here = bool(imgui.table_get_column_flags() & flags.is_sorted.value)
        title = fitted(column.title, room - (em if here else 0))
        if column.align_right:
            x = room - imgui.calc_text_size(title).x - (em if here else 0)
        else:
            x = 0
        imgui.get_window_draw_list().add_text(
            ImVec2(round(at.x + max(x, 0)), at.y),
            theme.u32(theme.TEXT if here else theme.DIM),
            title,
        )


def _body(view: SnapshotView, name: str, rows: TableRows) -> int | None:
    """Draw the rows that are seen, in the order of the column whose title was clicked; the one under the pointer."""
    over = None
    line = imgui.get_text_line_height()
    order = range(rows.count)
    specs = imgui.table_get_sort_specs() if rows.sort_values is not None else None
    if specs is not None and specs.specs_count and rows.sort_values is not None:
        spec = specs.get_specs(0)
        place = (name, "order")
        down = spec.get_sort_direction() == imgui.SortDirection.descending
        key = id(rows.answer), spec.column_index, down
        if place not in view.pane_memory or view.pane_memory[place][0] != key:
            values = rows.sort_values(spec.column_index)
            view.pane_memory[place] = (
                key,
                rows.answer,
                sorted(range(len(values)), key=values.__getitem__, reverse=down),
            )
        order = view.pane_memory[place][2]
    clipper = imgui.ListClipper()
    clipper.begin(rows.count, line + 6 * view.scale)
    while clipper.step():
        for number in range(clipper.display_start, clipper.display_end):
            row = order[number]
            imgui.table_next_row(0, line + 6 * view.scale)
            for i, (column, cell) in enumerate(
                zip(rows.columns, rows.cells(row), strict=True)
            ):
                imgui.table_set_column_index(i)
                at = imgui.get_cursor_screen_pos()
                room = imgui.get_content_region_avail().x
                if not i:
                    if imgui.selectable(
                        f"##{name} {number}", rows.is_chosen(row), _ROW, ImVec2(0, line)
                    )[0]:
                        rows.on_click(
                            row, imgui.is_mouse_double_clicked(imgui.MouseButton_.left)
                        )
                    over = row if imgui.is_item_hovered() else over
                _cell(
                    column.align_right,
                    cell if isinstance(cell, Cell) else Cell(cell),
                    at,
                    room,
                )
    clipper.end()
    return over


def _cell(right: bool, cell: Cell, at: ImVec2, room: float) -> None:
    draw = imgui.get_window_draw_list()
    line = imgui.get_text_line_height()
    scale = theme.scale()
    if cell.paint is not None:
        cell.paint(draw, at.x, at.x + room, at.y, line)
        return
    if cell.spark is not None:
        color = theme.u32(cell.color or theme.ACCENT, 0.85)
        step = room / max(len(cell.spark), 1)
        for i, value in enumerate(cell.spark):
            high = max(line * min(max(value, 0.0), 1.0), 1.0)
            draw.add_rect_filled(
                ImVec2(at.x + i * step, at.y + line - high),
                ImVec2(at.x + (i + 0.8) * step, at.y + line),
                color,
            )
        return
    if cell.bar is not None:
        width = max(room * min(max(cell.bar, 0.0), 1.0), 1)
        draw.add_rect_filled(
            ImVec2(at.x, at.y - scale),
            ImVec2(at.x + width, at.y + line + scale),
            theme.u32(cell.color or theme.ACCENT, 0.22),
            2 * scale,
        )
    text = fitted(cell.text, room)
    x = max(room - imgui.calc_text_size(text).x, 0.0) if right else 0.0
    draw.add_text(
        ImVec2(round(at.x + x), at.y), theme.u32(cell.color or theme.TEXT), text
    )


# -- holders of memory -------------------------------------------------------------------------------------------------


def group_rows(
    view: SnapshotView, key: Key, table: GroupTable, title: str, words: str
) -> TableRows:
    """The rows of a table of groups; a click lights a group in the timeline."""
    total = max(table.total, 1)
    most = max(int(table.bytes.max(initial=1)), 1)

    def cells(index: int) -> list[Cell | str]:
        row = table[index]
        return [
            row.label,
            Cell(size_text(row.bytes), bar=row.bytes / most),
            f"{row.bytes / total:.1%}",
            f"{row.count:,}",
            Cell(size_text(row.largest), theme.DIM),
        ]

    columns = (
        TableColumn(title),
        TableColumn("Bytes", 7.5, True, sortable=True),
        TableColumn("Share", 4.6, True),
        TableColumn("Blocks", 5.2, True, "How many allocations", sortable=True),
        TableColumn("Largest", 6.2, True, sortable=True),
    )
    return TableRows(
        table,
        len(table),
        columns,
        cells,
        lambda i, double: view.toggle_highlight(
            key,
            int(table.keys[i]),
            table.allocations(int(table.keys[i])),
            f"{table[i].label}, {size_text(table[i].bytes)}",
        ),
        lambda i: view.is_highlighted(key, int(table.keys[i])),
        lambda i: stack_tip(view, int(table.keys[i])) if table.by == "stack" else "",
        sort_values=lambda column: {3: table.counts, 4: table.largest}.get(
            column, table.bytes
        ).tolist(),
        empty_text=words,
    )
