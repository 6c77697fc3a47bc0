"""The panel's section of a script's own controls.

All rows are of one height, and those out of sight are not drawn: a script may have ten
thousand.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.kinds.controls.fields import FIELDS, Field, draw_resting
from splatview_viewer.kinds.controls.rows import (
    ControlRow,
    FolderRow,
    folder_path,
    parents_of,
    rows_of,
)
from splatview_viewer.ui import theme, widgets
from splatview_viewer.ui.drags import is_typing
from splatview_viewer.ui.folds import draw_small_head

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_ipc.kinds.controls import Value
    from splatview_viewer.kinds.controls.content import ScriptControls
    from splatview_viewer.kinds.controls.rows import Row

_INDENT = 12.0
_MAX_INDENTS = 4
_ROWS_BEYOND = 2
"""Rows out of sight that are drawn, so that the keyboard reaches them."""
_MAX_NOTED = 1000
"""Controls that a search finds."""
_ENDED = "The script has ended. These are its last values."


class ControlsPanel:
    """One user's rows of the controls of a script."""

    def __init__(self, content: ScriptControls, closed: set[str]) -> None:
        """Start with the rows at the top.

        closed: paths of the folders that the user has closed.
        """
        self._content = content
        self._closed = closed
        self._rows: list[Row] = []
        self._rows_state: object = None
        self._typed: tuple[str, Value] | None = None
        """The control that is being typed into, and what is typed so far."""

    def draw(self) -> None:
        """Draw the rows that are in sight, with imgui."""
        content = self._content
        if content.has_ended:
            widgets.wrapped(_ENDED, theme.FAINT)
        widgets.note_rows(content.labels[:_MAX_NOTED])
        sought_index = self._open_sought()
        rows = self._present_rows()
        corner = imgui.get_cursor_pos()
        height = (theme.ROW_HEIGHT + theme.ROW_GAP) * theme.scale()
        for row_index in _drawn_rows(rows, height, sought_index):
            imgui.set_cursor_pos(ImVec2(corner.x, corner.y + row_index * height))
            imgui.push_id(row_index)
            self._draw_row(rows[row_index])
            imgui.pop_id()
        end = corner.y + len(rows) * height - imgui.get_style().item_spacing.y
        imgui.set_cursor_pos(ImVec2(corner.x, end))
        imgui.dummy(ImVec2(0, 0))

    def _open_sought(self) -> int | None:
        """Open the folders around the control that is to have the focus.

        Returns its place in the list; None for none.
        """
        sought_label = widgets.sought_row()
        content = self._content
        if not sought_label or sought_label not in content.labels:
            return None
        control_index = content.labels.index(sought_label)
        folder = folder_path(content.controls[control_index])
        self._closed.difference_update(parents_of(folder))
        return control_index

    def _present_rows(self) -> list[Row]:
        state = self._content.layouts, frozenset(self._closed)
        if state != self._rows_state:
            self._rows_state = state
            self._rows = rows_of(self._content.controls, self._closed)
        return self._rows

    def _draw_row(self, row: Row) -> None:
        indent = min(row.depth, _MAX_INDENTS) * _INDENT
        if isinstance(row, FolderRow):
            self._draw_folder(row, indent)
            return
        content = self._content
        control = content.controls[row.control_index]
        value = content.value_of(control)
        typed = None
        if self._typed is not None and self._typed[0] == control.name:
            typed = self._typed[1]
        field = Field(
            control=control,
            label=content.labels[row.control_index],
            value=value if typed is None else typed,
            start=content.starts[row.control_index],
            components=row.components,
        )
        if control.form == "button":
            _move_right(indent)
        with widgets.indented_labels(indent):
            if content.has_ended:
                draw_resting(field)
                return
            new = FIELDS[control.form](field)
        self._take(field, new)

    def _draw_folder(self, row: FolderRow, indent: float) -> None:
        _move_right(indent)
        is_open = row.path not in self._closed
        if not draw_small_head(row.title, is_open):
            return
        if is_open:
            self._closed.add(row.path)
        else:
            self._closed.remove(row.path)

    def _take(self, field: Field, new: Value) -> None:
        """Take the value that a field has after this frame.

        What is typed counts once it is complete.
        """
        content = self._content
        control = field.control
        if control.form == "button":
            if new != field.value:
                content.click(control)
            return
        if imgui.is_item_active():
            content.hold(control)
        if is_typing():
            if new != field.value:
                self._typed = control.name, new
            return
        if self._typed is not None and self._typed[0] == control.name:
            self._typed = None
        content.set(control, new)


def _drawn_rows(
    rows: Sequence[Row], height: float, sought_index: int | None
) -> list[int]:
    """Return the numbers of the rows to draw, of which the first is at the cursor.

    Those are the rows in sight, some beside them, and the one of a sought control.

    Args:
        rows: all rows.
        height: pixels from one row to the next.
        sought_index: of the control; None for none.
    """
    draw = imgui.get_window_draw_list()
    top = imgui.get_cursor_screen_pos().y
    first = math.floor((draw.get_clip_rect_min().y - top) / height) - _ROWS_BEYOND
    last = math.ceil((draw.get_clip_rect_max().y - top) / height) + _ROWS_BEYOND
    first = min(max(first, 0), len(rows))
    row_indices = list(range(first, max(min(last, len(rows)), first)))
    if sought_index is None:
        return row_indices
    for row_index, row in enumerate(rows):
        is_sought = isinstance(row, ControlRow) and row.control_index == sought_index
        if is_sought and row_index not in row_indices:
            return sorted([*row_indices, row_index])
    return row_indices


def _move_right(points: float) -> None:
    imgui.set_cursor_pos_x(imgui.get_cursor_pos_x() + points * theme.scale())
