"""Runs whose curves are drawn together, and the table that chooses them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from imgui_bundle import ImVec2, imgui

from splatview_viewer.compare.arrangement import panes_of
from splatview_viewer.compare.ties import playbacks_of
from splatview_viewer.core.quantities import value_text
from splatview_viewer.core.view import Section
from splatview_viewer.kinds.scalars.runs import PlottedRun
from splatview_viewer.kinds.scalars.view import ScalarsData, ScalarsView
from splatview_viewer.ui import controls, theme
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.words import write, write_right

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.compare.comparisons import Comparisons
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.kinds.scalars.curves import Curve
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport
    from splatview_viewer.workspace.slot import Slot

_KIND = "scalars"
_MAX_RUNS = 24
"""Runs in the table."""
_ROW_HEIGHT = 26.0
_NAME_X = 30.0
_RIGHT_EDGES = (127.0, 66.0, 1.0)
"""Points from the right of the table to the right of loss, PSNR and step."""
_NUMBER_WIDTH = 58.0
_SQUARE = 12.0


class RunRow(NamedTuple):
    """A run in the table."""

    key: str
    """Of the entry of its curves."""
    name: str
    data: ScalarsData | None
    """None until its curves are read."""
    color: int
    is_checked: bool


class RunsInPlots:
    """Has the plots of each user draw the curves of the runs that are checked."""

    def __init__(self, comparisons: Comparisons) -> None:
        self._comparisons = comparisons
        self._catalogue = comparisons.catalogue
        self._choices: WeakKeyDictionary[User, dict[str, bool]] = WeakKeyDictionary()
        """The runs that a user checked or unchecked, by the keys of their curves."""

    # -- which runs --------------------------------------------------------------------

    def rows(self, viewport: Viewport) -> list[RunRow]:
        """Return the runs with curves: A, B, the one that is shown, then the others."""
        user = viewport.user
        slots = [s for s in self._catalogue.slots.values() if s.entry.kind == _KIND]
        if not slots:
            return []
        compared = self._compared_groups(viewport)
        shown_group = self._shown_group(viewport)
        first_groups = [*compared, *shown_group]

        def position(slot: Slot) -> int:
            group = slot.entry.group
            if group in first_groups:
                return first_groups.index(group)
            return len(first_groups)

        slots = sorted(slots, key=position)[:_MAX_RUNS]
        is_checked = self._checked_keys(user, slots, first_groups)
        names = [slot.entry.run_name for slot in slots]
        rows = []
        for color, slot in enumerate(slots):
            entry = slot.entry
            name = entry.run_name
            if not name or names.count(name) > 1:
                name = entry.group
            if isinstance(slot.content, ScalarsData):
                data = slot.content
            else:
                data = None
            if data is not None and not data.curves.all:
                data = None
            rows.append(RunRow(entry.key, name, data, color, is_checked[entry.key]))
        return rows

    def _checked_keys(
        self, user: User, slots: Sequence[Slot], first_groups: Sequence[str]
    ) -> dict[str, bool]:
        """Return whether the curves of entries are drawn, by their keys.

        What is remembered is for the newest run of a name alone, so that it never opens
        all of a script that was started often.
        """
        choices = self._choices.get(user, {})
        remembered = user.interface.state.plotted
        by_age = sorted((slot.entry for slot in slots), key=_started_at)
        newest = {entry.lasting_name: entry.key for entry in by_age}
        is_checked = {}
        for slot in slots:
            entry = slot.entry
            name = entry.lasting_name
            is_drawn = entry.group in first_groups
            if newest[name] == entry.key:
                is_drawn = remembered.get(name, is_drawn)
            is_checked[entry.key] = choices.get(entry.key, is_drawn)
        return is_checked

    def _compared_groups(self, viewport: Viewport) -> list[str]:
        """Return the groups of A and B, if a user sees both."""
        user = viewport.user
        pairing = self._comparisons.of_user(user).pairing
        slots = self._catalogue.slots
        if pairing is None or any(key not in slots for key in pairing):
            return []
        panes = panes_of(user, pairing)
        if panes.arrangement is None and panes.difference is None:
            return []
        return [slots[key].entry.group for key in pairing]

    def _shown_group(self, viewport: Viewport) -> list[str]:
        """Return the group of the run that a viewport shows."""
        slot: Slot | None = viewport.slot
        slots = self._catalogue.slots
        while slot is not None and slot.source.uses:
            slot = slots.get(slot.source.uses[0])
        if slot is None or slot.entry.is_file:
            return []
        return [slot.entry.group]

    def uses(self, viewport: Viewport) -> list[str]:
        """Return the keys of curves that are drawn in a viewport, or in the table."""
        user = viewport.user
        is_table = viewport.has_panel and user.interface.state.tab == "compare"
        entry = viewport.entry
        is_plot = entry is not None and entry.kind == _KIND
        if not (is_table or is_plot):
            return []
        rows = self.rows(viewport)
        return [row.key for row in rows if is_table or row.is_checked]

    def pull(self, user: User) -> None:
        """Give the plots of a user the runs that they draw, and the step that is shown."""
        for viewport in user.layout.visible_viewports:
            view = _plots_in(viewport)
            if view is None:
                continue
            rows = self.rows(viewport)
            view.runs = [
                PlottedRun(row.name, row.color, row.data)
                for row in rows
                if row.data is not None and (row.is_checked or row.data is view.data)
            ]
            view.at_step = self._shown_step(user, viewport)
            view.go_to = partial(self._catalogue.do, user.go_to_step)

    def _shown_step(self, user: User, viewport: Viewport) -> float | None:
        """Return the step of the scene of a run that a user sees beside its plots."""
        if viewport.entry is None:
            group = None
        else:
            group = viewport.entry.group
        for pane in user.layout.visible_viewports:
            if pane is viewport:
                continue
            for playback in playbacks_of(pane):
                if playback.step is not None:
                    return float(playback.step)
            entry = pane.entry
            if entry is not None and entry.group == group and entry.step is not None:
                return entry.step
        record = viewport.record_view()
        if record is None or record.view.playback is None:
            return None
        return record.view.playback.step

    # -- the panel ---------------------------------------------------------------------

    def sections(self, viewport: Viewport) -> list[Section]:
        """Return the table of runs, and what decides how their curves look."""
        user = viewport.user
        if user.interface.state.tab != "compare":
            return []
        is_snapshot = viewport.entry is not None and viewport.entry.kind == "snapshot"
        if is_snapshot and len(user.layout) == 1:
            # Neither a run nor a plot is seen.
            return []
        rows = self.rows(viewport)
        if not rows:
            return []
        count = sum(row.is_checked for row in rows)
        return [
            Section(
                "Runs in the plots",
                partial(self._draw_table, user, rows),
                opened=True,
                tip="The runs whose curves are drawn together",
                tab="compare",
                state=f"{count} of {len(rows)}",
            ),
            Section(
                "Curves",
                partial(self._draw_curves, viewport, rows),
                opened=True,
                tip="Which curves are drawn, and how",
                tab="compare",
            ),
        ]

    def check(self, user: User, key: str, is_checked: bool) -> None:
        """Draw the curves of a run in the plots of a user, or no longer; remembered."""
        self._choices.setdefault(user, {})[key] = is_checked
        slot = self._catalogue.slots.get(key)
        if slot is not None:
            state = user.interface.state
            # The one that was chosen last is forgotten last.
            state.plotted.pop(slot.entry.lasting_name, None)
            state.plotted[slot.entry.lasting_name] = is_checked
            state.remember(self._catalogue.memo)
        user.mark()

    def _draw_table(self, user: User, rows: Sequence[RunRow]) -> None:
        """Draw a line for each run, which a click checks."""
        imgui.push_style_var(imgui.StyleVar_.item_spacing, ImVec2(0, 0))
        _draw_head()
        for row in rows:
            if _draw_row(row):
                do = self._catalogue.do
                do(self.check, user, row.key, not row.is_checked)
        imgui.pop_style_var()
        ui.gap(2 * theme.scale())

    def _draw_curves(self, viewport: Viewport, rows: Sequence[RunRow]) -> bool:
        """Draw the settings of the plots that are seen, or the button that shows them."""
        user = viewport.user
        active = user.layout.active
        viewports = sorted(user.layout.visible_viewports, key=lambda v: v is not active)
        for shown_viewport in viewports:
            view = _plots_in(shown_viewport)
            if view is None:
                continue
            previous = view.state
            view.draw_curve_choice()
            view.draw_controls()
            if view.state != previous:
                user.mark()
            return view.state != previous
        pressed = ui.buttons(
            "",
            ["See the curves beside"],
            ["The plots of the run in a pane beside what is shown"],
            ["scalars"],
        )
        if pressed is not None:
            user.do(user.show_beside, rows[0].key)
        return False


def _started_at(entry: Entry) -> float:
    return entry.started_at


def _plots_in(viewport: Viewport) -> ScalarsView | None:
    """Return the plots that a viewport shows; None: it shows none."""
    view = viewport.view
    if view is None or view.empty or not isinstance(view.view, ScalarsView):
        return None
    return view.view


def _newest_values(row: RunRow) -> list[str]:
    """Return the newest loss, PSNR and step of a run."""
    if row.data is None:
        return ["\u2013", "\u2013", "\u2013"]
    curves = row.data.curves.all
    loss = _named(curves, "loss") or curves[0]
    psnr = _named(curves, "psnr")
    psnr_value = "\u2013"
    if psnr is not None:
        psnr_value = f"{psnr.newest_value:.1f}"
    return [
        value_text(loss.newest_value),
        psnr_value,
        f"{row.data.curves.step:,.12g}",
    ]


def _named(curves: Sequence[Curve], name_part: str) -> Curve | None:
    """Return the first curve that has a word in its name."""
    return next((curve for curve in curves if name_part in curve.name.lower()), None)


def _draw_head() -> None:
    """Draw the names of the columns, and a line below them."""
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    width = imgui.get_content_region_avail().x
    height = _ROW_HEIGHT * scale
    names = ["Loss", "PSNR", "Step"]
    middle = corner.y + height / 2
    with theme.font_size(theme.SMALL_SIZE):
        write("Run", corner.x + _NAME_X * scale, middle, theme.DIM)
        for name, edge in zip(names, _RIGHT_EDGES, strict=True):
            write_right(name, corner.x + width - edge * scale, middle, theme.DIM)
    y = round(corner.y + height)
    left = ImVec2(corner.x, y)
    right = ImVec2(corner.x + width, y)
    imgui.get_window_draw_list().add_line(left, right, theme.u32(theme.LINE))
    imgui.dummy(ImVec2(width, height + scale))


def _draw_row(row: RunRow) -> bool:
    """Draw the line of a run; return whether it was clicked."""
    scale = theme.scale()
    width = imgui.get_content_region_avail().x
    target = controls.item(f"{row.name}##{row.key} run", width, _ROW_HEIGHT * scale)
    state = "No longer drawn" if row.is_checked else "Drawn"
    controls.tip(f"{row.name}: click, and it is {state.lower()} in the plots")
    draw = imgui.get_window_draw_list()
    if target.hovered:
        draw.add_rect_filled(target.low, target.high, theme.u32(theme.HOVER), 4 * scale)
    middle = target.middle[1]
    _draw_square(row, target.x, middle)
    ink = theme.TEXT if row.is_checked else theme.DIM
    with theme.font_size(theme.SMALL_SIZE):
        end = target.x + width - (_RIGHT_EDGES[0] + _NUMBER_WIDTH) * scale
        x = target.x + _NAME_X * scale
        write(row.name, x, middle, ink, end - x)
        texts = _newest_values(row)
        for text, edge in zip(texts, _RIGHT_EDGES, strict=True):
            write_right(text, target.x + width - edge * scale, middle, ink)
    return target.pressed


def _draw_square(row: RunRow, x: float, middle: float) -> None:
    """Draw the colour of a run that is drawn; else an empty square."""
    scale = theme.scale()
    low = ImVec2(round(x), round(middle - _SQUARE / 2 * scale))
    high = ImVec2(low.x + _SQUARE * scale, low.y + _SQUARE * scale)
    draw = imgui.get_window_draw_list()
    if row.is_checked:
        color = theme.u32(theme.run_color(row.color))
        draw.add_rect_filled(low, high, color, 3 * scale)
    else:
        draw.add_rect(low, high, theme.u32(theme.FAINT), 3 * scale, 1.5 * scale)
