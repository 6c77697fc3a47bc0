"""Commands of a snapshot of memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from splatview_viewer.core.command import Command
from splatview_viewer.kinds.snapshot.state import COLORS, MEASURES, TABS

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.snapshot.analysis.colors import ColorBy
    from splatview_viewer.snapshot.timeline.bands import Measure


def _see_all(view: SnapshotView) -> None:
    view.state = view.state.without_window()


def _search(view: SnapshotView) -> None:
    view.focus_search = True


def _mark(view: SnapshotView) -> None:
    event_index = view.pointed_or_chosen_moment()
    if event_index is not None:
        view.state = view.state.with_mark(event_index)


def _why_no_mark(view: SnapshotView) -> str | None:
    if view.pointed_or_chosen_moment() is None:
        return "no moment is chosen"
    return None


def _switch_legend(view: SnapshotView) -> None:
    view.state = replace(view.state, legend=not view.state.legend)


def _choose_tab(tab: str, view: SnapshotView) -> None:
    view.state = replace(view.state, tab=tab)


def _choose_measure(measure: Measure, view: SnapshotView) -> None:
    view.state = replace(view.state, measure=measure, y=None)


def _why_no_measure(measure: Measure, view: SnapshotView) -> str | None:
    """Return why bands cannot show some bytes; None: they can."""
    return view.content.why_not_measured(view.device, measure) or None


def _choose_color(color_by: ColorBy, view: SnapshotView) -> None:
    view.state = replace(view.state, color_by=color_by)


COMMANDS: tuple[Command[SnapshotView], ...] = (
    Command("snapshot.fit", "See all of the snapshot", _see_all, ("F",), icon="fit"),
    Command("snapshot.search", "Search stacks and sizes", _search, ("/",), icon="find"),
    Command(
        "snapshot.mark",
        "Mark A, then B, to compare",
        _mark,
        ("M",),
        icon="pin",
        reason=_why_no_mark,
    ),
    Command("snapshot.legend", "Show or hide the legend", _switch_legend, icon="list"),
    *(
        Command(
            f"snapshot.tab.{tab}",
            f"Memory: {title}",
            partial(_choose_tab, tab),
            (str(tab_number),),
            icon="memory",
        )
        for tab_number, (tab, title) in enumerate(TABS.items(), 1)
    ),
    *(
        Command(
            f"snapshot.bytes.{measure}",
            f"Bytes of the bands: {title.lower()}",
            partial(_choose_measure, measure),
            icon="memory",
            reason=partial(_why_no_measure, measure),
        )
        for measure, title in MEASURES.items()
    ),
    *(
        Command(
            f"snapshot.color.{color_by}",
            f"Colour by: {title.lower()}",
            partial(_choose_color, color_by),
            icon="brush",
        )
        for color_by, title in COLORS.items()
    ),
)
