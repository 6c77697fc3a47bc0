"""The tabs of the panel, and the sections of the chosen one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.core.view import TABS
from splatview_viewer.shell.overlay import latency_phrases, status_phrases
from splatview_viewer.shell.zones import TABS_HEIGHT
from splatview_viewer.ui import controls, theme
from splatview_viewer.ui.folds import draw_fold, is_head_clicked_right
from splatview_viewer.ui.widgets import (
    gap,
    noting_rows,
    seek_row,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.core.view import Info, Section
    from splatview_viewer.shell.known_settings import Goal
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.zones import Form

_NOTHING = {
    "look": "Nothing is shown, so there is nothing to set. The sections of a scene: Show, "
    "Camera, Training cameras, Near and far.",
    "data": "Nothing is shown, so there is nothing to look into. The sections of a scene: "
    "Inspect, Filter, Crop, Details.",
    "compare": "Two scenes, two images, two snapshots of memory or the curves of several "
    "runs are compared here. Show one, then choose the other from its menu in the list.",
    "film": "Only scenes can be filmed. Show one to set a path for its camera.",
}
"""What a tab says while it has no sections."""
_NOTHING_TO_SET = "What is shown has nothing to set here."


def draw_tabs(user: User, form: Form) -> None:
    """Draw the tabs; a click chooses one."""
    names = list(TABS.values())
    state = user.interface.state
    chosen_name = controls.tabs(names, TABS[state.tab], TABS_HEIGHT)
    if chosen_name != TABS[state.tab]:
        tab = next(tab for tab, name in TABS.items() if name == chosen_name)
        user.do(user.choose_tab, tab)


def draw_sections(
    user: User,
    sections: Sequence[Section],
    info: Info,
    draw_part: Callable[..., bool],
) -> bool:
    """Draw the sections of the chosen tab; return True to draw the picture again.

    draw_part: draws a part, and shows its fault in its place.
    """
    tab = user.interface.state.tab
    changed = False
    entry = user.state.selected_entry
    settings = user.interface.settings
    for section in sections:
        _go_to(settings.take_goal(section.title))
        tip = section.tip
        if section.reset is not None:
            tip = f"{tip}\nRight click: back to the defaults.".strip()
        is_open = draw_fold(section.title, section.opened, tip, section.state)
        if section.reset is not None and is_head_clicked_right():
            changed |= bool(section.reset())
        if is_open:
            with noting_rows() as labels:
                changed |= bool(section.draw())
            if entry is not None:
                settings.note(entry, section, labels)
    seek_row("")
    is_empty = not sections
    if tab == "data" and user.state.selected_entry is not None:
        draw_part("details", _draw_details, user, info)
        is_empty = False
    if tab == "film" and user.state.selected_entry is not None:
        draw_part("buttons for pictures", _draw_picture, user)
    if is_empty:
        gap(4 * theme.scale())
        is_shown = user.view is not None and not user.view.empty
        text = _NOTHING[tab]
        if is_shown and tab == "look":
            text = _NOTHING_TO_SET
        wrapped(text, theme.FAINT)
    if tab == "data":
        _draw_notices(user)
    return changed


def _draw_notices(user: User) -> None:
    """Write the faults that concern no single entry."""
    for notice in user.state.notices:
        gap(6 * theme.scale())
        wrapped(notice, theme.FAULT)


def _go_to(goal: Goal | None) -> None:
    """Open the next section and scroll to what a user chose in it, if anything."""
    if goal is None:
        return
    controls.open_head(goal.section)
    if goal.label:
        seek_row(goal.label)
        return
    imgui.set_scroll_here_y(0.0)
    controls.focus_next()


def _draw_details(user: User, info: Info) -> None:
    """Draw all that is known of how the picture came to the screen."""
    state = user.state
    if not info.details:
        return
    _go_to(user.interface.settings.take_goal("Details"))
    if not draw_fold("Details"):
        return
    for line in [*status_phrases(state, info), *latency_phrases(state), *info.extras]:
        wrapped(line, theme.DIM)


def _draw_picture(user: User) -> None:
    """Draw the buttons that keep a picture."""
    if not draw_fold("Picture", True, "What is shown, without the interface", "Ctrl S"):
        return
    width = (imgui.get_content_region_avail().x / theme.scale() - theme.ROW_GAP) / 2
    keep = user.layout.active.keep_picture
    if controls.button(
        "As shown",
        "camera",
        width=width,
        hint="Into the current folder, or as a download (Ctrl + S)",
    ):
        user.do(keep, False)
    imgui.same_line(0, theme.ROW_GAP * theme.scale())
    if controls.button(
        "Transparent",
        "layers",
        width=width,
        hint="With nothing behind it, and nothing of what is drawn over it "
        "(Ctrl + Shift + S)",
    ):
        user.do(keep, True)
