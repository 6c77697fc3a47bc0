"""The list of streams and files in the panel, the menu of each, the buttons that pause
a run, and small plots of it.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_ipc.system.terminal import printable
from splatview_viewer import kinds
from splatview_viewer.core.screen import Caption
from splatview_viewer.core.settings import ENDED
from splatview_viewer.ui import controls, theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.shell.user import User

_MOST_SCALARS = 2
"""Of a run without a loss, plotted in the panel."""


def draw_list(user: User) -> None:
    """Draw all entries, run by run: dot, name, and on the right its rate; and the menu
    of each.
    """
    state = user.state
    scale = user.screen.state.scale
    if not state.entries:
        ui.colored("splatview", theme.TEXT)
        ui.gap(2 * scale)
        ui.wrapped("No stream yet", theme.DIM)
    for group, entries in groupby(state.entries, key=lambda e: (e.group, e.is_file)):
        ui.colored(group[0], theme.DIM)
        for entry in entries:
            if ui.is_entry_visible():
                # Names do not tell entries apart: imgui cuts them at "###", and bytes
                # that are no text are written out.
                imgui.push_id(str(id(entry)))
                _draw_entry(entry, user)
                imgui.pop_id()
        ui.gap(6 * scale)


def _draw_entry(entry: Entry, user: User) -> None:
    """Draw the line of an entry, its tip and its menu."""
    state = user.state
    fault = entry.fault or entry.fault_of_source
    if fault:
        dot = theme.FAULT
    elif entry.alive:
        dot = theme.GOOD
    else:
        dot = theme.FAINT
    if entry.progress is not None:
        beside = f"{entry.progress:.0%}"
    elif entry.is_file or not entry.alive:
        beside = entry.kind if entry.is_file else "ended"
    else:
        if entry.rate_hz >= 0.05:
            beside = f"{entry.rate_hz:.3g} Hz"
        else:
            beside = f"v{entry.version}"
    key = printable(entry.key)
    if ui.entry(
        key,
        entry.name,
        beside,
        dot,
        entry.key == state.selected,
        dim_name=not entry.alive,
    ):
        held = imgui.get_io()
        user.do(
            user.show_beside if held.key_ctrl or held.key_shift else user.choose,
            entry.key,
        )
    alive = "publishing" if entry.alive else "its run has ended"
    about = f"{entry.kind}, version {entry.version:,}, {alive}"
    if entry.is_file:
        about = f"{key}\n{entry.kind}. Right click to close it."
    controls.tip(fault or about)
    if imgui.begin_popup_context_item(f"menu##{key}"):
        shown = state.selected_entry
        kind = kinds.about(entry.kind)
        commands = [
            ("Show", "", user.choose),
            ("Show beside", "Ctrl + click", user.show_beside),
        ]
        if (
            shown is not None
            and shown is not entry
            and shown.kind == entry.kind
            and kind.compared
        ):
            commands.append(
                ("Split with what is shown", "", partial(user.compare, "pair"))
            )
            if kind.merged:
                commands.append(
                    (
                        "Together with what is shown",
                        "",
                        partial(user.compare, "together"),
                    )
                )
        if entry.is_file:
            close = "Close this file" if entry.group == "Files" else "Close"
            commands.append((close, "", user.catalogue.forget))
        for label, key, command in commands:
            if imgui.menu_item(label, key, False)[0]:
                user.do(command, entry.key)
        imgui.end_popup()


def caption_of(entry: Entry | None, typing: bool) -> Caption:
    """Return the title of the window or tab that shows this entry."""
    if entry is None:
        return Caption(typing=typing)
    title = f"{printable(entry.name)} \u00b7 {printable(entry.group)} \u2013 splatview"
    return Caption(title, "" if entry.alive else ENDED, typing)
