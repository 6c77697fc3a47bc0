"""The list of streams and files in the panel, the menu of each, and the buttons that pause a run."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_ipc.system.terminal import printable
from splatview_viewer import kinds
from splatview_viewer.core.screen import Caption
from splatview_viewer.core.settings import ENDED
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.shell.user import User


def draw_list(user: User) -> None:
    """Everything that there is, run by run."""
    state, scale = user.state, user.screen.state.scale
    if not state.entries:
        ui.colored("splatview", theme.TEXT)
        ui.gap(2 * scale)
        ui.wrapped("No stream yet", theme.DIM)
    for group, entries in groupby(state.entries, key=lambda e: (e.group, e.is_file)):
        ui.colored(group[0], theme.DIM)
        for entry in entries:
            _entry(entry, user)
        ui.gap(6 * scale)


def _entry(entry: Entry, user: User) -> None:
    """A line of the list: dot, name, and on the right its rate."""
    fault = entry.fault or entry.fault_of_source
    dot = theme.FAULT if fault else theme.ALIVE if entry.alive else theme.GONE
    if ui.entry(entry.key, entry.name, beside(entry), dot, entry.key == user.state.selected, dim_name=not entry.alive):
        held = imgui.get_io()
        user.do(user.show_beside if held.key_ctrl or held.key_shift else user.choose, entry.key)
    imgui.set_item_tooltip(about(entry))
    if imgui.begin_popup_context_item(f"menu##{entry.key}"):
        _menu(entry, user)
        imgui.end_popup()


def _menu(entry: Entry, user: User) -> None:
    """Draw the menu of an entry."""
    if imgui.menu_item("Show", "", False)[0]:
        user.do(user.choose, entry.key)
    if imgui.menu_item("Show beside", "Ctrl + click", False)[0]:
        user.do(user.show_beside, entry.key)
    shown = user.state.shown
    if shown is not None and shown is not entry and shown.kind == entry.kind and kinds.about(entry.kind).compared:
        if imgui.menu_item("Split with what is shown", "", False)[0]:
            user.do(user.compare, "pair", entry.key)
        if kinds.about(entry.kind).scene and imgui.menu_item("Together with what is shown", "", False)[0]:
            user.do(user.compare, "together", entry.key)
    if entry.is_file and imgui.menu_item("Close this file" if entry.group == "Files" else "Close", "", False)[0]:
        user.do(user.catalogue.forget, entry.key)


def draw_run_controls(entry: Entry, user: User) -> None:
    """Draw the buttons for the run of an entry, as wide as there is room."""
    if not entry.paused:
        if imgui.button("Pause the run", ImVec2(-1, 0)):
            user.do(user.pause, True)
        imgui.set_item_tooltip("The run waits where its script calls splatview.wait_while_paused()")
        return
    gap = imgui.get_style().item_spacing.x
    width = (imgui.get_content_region_avail().x - gap) / 2
    if imgui.button("Resume", ImVec2(width, 0)):
        user.do(user.pause, False)
    imgui.set_item_tooltip("The run goes on, whoever paused it")
    imgui.same_line(0, gap)
    if imgui.button("Step", ImVec2(width, 0)):
        user.do(user.pause, "step")
    imgui.set_item_tooltip("The run goes on to the next time that it would wait")
    ui.wrapped("Paused, but its script goes on: it never calls splatview.wait_while_paused()" if entry.waits == 0 else
               "Paused: the run waits" if entry.waits == 2 else "Paused: the run comes to the end of its step",
               theme.DIM)


def beside(entry: Entry) -> str:
    """Return the words beside an entry's name: its rate."""
    if entry.progress is not None:
        return f"{entry.progress:.0%}"
    if entry.is_file:
        return entry.kind
    if not entry.alive:
        return "ended"
    if entry.rate_hz >= 0.05:
        return f"{entry.rate_hz:.3g} Hz"
    return f"v{entry.version}"


def about(entry: Entry) -> str:
    """Return the tooltip of an entry."""
    if fault := entry.fault or entry.fault_of_source:
        return fault
    if entry.is_file:
        return f"{entry.key}\n{entry.kind}. Right click to close it."
    state = "publishing" if entry.alive else "its run has ended"
    return f"{entry.kind}, version {entry.version:,}, {state}"


def caption_of(entry: Entry | None, typing: bool) -> Caption:
    """Return the title of the window or tab that shows this entry."""
    if entry is None:
        return Caption(typing=typing)
    title = f"{printable(entry.name)} \u00b7 {printable(entry.group)} \u2013 splatview"
    return Caption(title, "" if entry.alive else ENDED, typing)
