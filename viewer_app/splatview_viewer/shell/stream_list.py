"""The list of streams and files in the panel: a click shows one, its menu does more with it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_ipc.system.terminal import printable
from splatview_viewer.core.screen import Caption
from splatview_viewer.core.settings import ENDED
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from splatview_viewer.core.settings import Entry, State
    from splatview_viewer.shell.panel import Asked


def draw_list(state: State, asked: Asked, scale: float) -> None:
    """Everything that there is, run by run."""
    if not state.entries:
        ui.colored("splatview", theme.TEXT)
        ui.gap(2 * scale)
        ui.wrapped("No stream yet", theme.DIM)
    for group, entries in groupby(state.entries, key=lambda e: (e.group, e.is_file)):
        ui.colored(group[0], theme.DIM)
        for entry in entries:
            _entry(entry, state, asked)
        ui.gap(6 * scale)


def _entry(entry: Entry, state: State, asked: Asked) -> None:
    """A line of the list: dot, name, and on the right its rate."""
    fault = entry.fault or entry.fault_of_source
    dot = theme.FAULT if fault else theme.ALIVE if entry.alive else theme.GONE
    if ui.entry(entry.key, entry.name, beside(entry), dot, entry.key == state.selected, dim_name=not entry.alive):
        held = imgui.get_io()
        if held.key_ctrl or held.key_shift:
            asked.beside = entry.key
        else:
            asked.select = entry.key
    imgui.set_item_tooltip(about(entry))
    if imgui.begin_popup_context_item(f"menu##{entry.key}"):
        _menu(entry, state, asked)
        imgui.end_popup()


def _menu(entry: Entry, state: State, asked: Asked) -> None:
    """What else can be done with an entry."""
    if imgui.menu_item("Show", "", False)[0]:
        asked.select = entry.key
    if imgui.menu_item("Show beside", "Ctrl + click", False)[0]:
        asked.beside = entry.key
    shown = state.shown
    if shown is not None and shown is not entry and shown.kind == entry.kind and entry.kind in ("gaussians", "image"):
        if imgui.menu_item("Split with what is shown", "", False)[0]:
            asked.compare = "pair", entry.key
        if entry.kind == "gaussians" and imgui.menu_item("Together with what is shown", "", False)[0]:
            asked.compare = "together", entry.key
    if entry.is_file and imgui.menu_item("Close this file" if entry.group == "Files" else "Close", "", False)[0]:
        asked.close = entry.key


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
