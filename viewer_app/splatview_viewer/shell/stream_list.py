"""The list of streams and files in the panel, the menu of each, the buttons that pause
a run, and small plots of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_ipc.system.terminal import printable
from splatview_viewer import kinds
from splatview_viewer.core.screen import Caption
from splatview_viewer.core.settings import ENDED
from splatview_viewer.kinds.memory import plot as memory
from splatview_viewer.kinds.memory.view import MemoryData
from splatview_viewer.kinds.scalars import plots as scalars
from splatview_viewer.kinds.scalars.view import ScalarsData
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.settings import Entry
    from splatview_viewer.kinds.memory.live import MemoryHistory
    from splatview_viewer.kinds.scalars.curves import Curve
    from splatview_viewer.shell.user import User
    from splatview_viewer.workspace.catalogue import Catalogue
    from splatview_viewer.workspace.slot import Slot

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
        dot = theme.ALIVE
    else:
        dot = theme.ENDED
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
    imgui.set_item_tooltip(fault or about)
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


def draw_run_controls(entry: Entry, user: User) -> None:
    """Draw the buttons for the run of an entry, as wide as there is room."""
    if not entry.paused:
        if imgui.button("Pause the run", ImVec2(-1, 0)):
            user.do(user.pause, True)
        imgui.set_item_tooltip(
            "The run waits where its script calls splatview.wait_while_paused()"
        )
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
    ui.wrapped(
        "Paused, but its script goes on: it never calls splatview.wait_while_paused()"
        if entry.waits == 0
        else "Paused: the run waits"
        if entry.waits == 2
        else "Paused: the run comes to the end of its step",
        theme.DIM,
    )


def caption_of(entry: Entry | None, typing: bool) -> Caption:
    """Return the title of the window or tab that shows this entry."""
    if entry is None:
        return Caption(typing=typing)
    title = f"{printable(entry.name)} \u00b7 {printable(entry.group)} \u2013 splatview"
    return Caption(title, "" if entry.alive else ENDED, typing)


# -- small plots -----------------------------------------------------------------------


@dataclass(frozen=True)
class Strips:
    """The plots of one run.

    Keys are those of the entries that show more, "" where there is none.
    """

    head: str = ""
    """A line over the curves."""
    curves: Sequence[tuple[str, Curve]] = ()
    """With their titles."""
    key: str = ""
    memory: MemoryHistory | None = None
    memory_key: str = ""

    def draw(self, scale: float) -> str:
        """Draw them one under the other into the window that is open; return the key of
        the one that was clicked.
        """
        clicked = ""
        if self.head:
            ui.dim(self.head)
        for title, curve in self.curves:
            if scalars.draw_strip(curve, title, self.key):
                clicked = self.key
        if self.memory is not None:
            ui.gap(4 * scale)
            if memory.draw_strip(self.memory, self.memory_key):
                clicked = self.memory_key
        return clicked


def strips_of(catalogue: Catalogue, slot: Slot) -> Strips:
    """The strips beside an entry: its run's losses, otherwise what was logged first;
    the number of Gaussians where it changes; memory.
    """
    head = ""
    key = ""
    curves = list[tuple[str, "Curve"]]()
    history = None
    memory_key = ""
    for beside in catalogue.links.plots(slot):
        if beside.view is None or beside.view.empty or beside.entry.fault:
            continue
        content = beside.view.content
        if isinstance(content, MemoryData):
            history = content.history
            memory_key = beside.entry.key
        if isinstance(content, ScalarsData):
            key = beside.entry.key
            logged = content.curves
            if logged.all:
                if logged.rate is not None:
                    rate = f" \u00b7 {logged.rate.newest_value:.3g} steps/s"
                else:
                    rate = ""
                head = f"Step {logged.step:,.12g}{rate}"
            losses = [c for c in logged.all if "loss" in c.name.lower()][:1]
            curves = [
                (c.name, c)
                for c in losses or [c for c in logged.all if len(c) > 1][:_MOST_SCALARS]
            ]
    count = catalogue.counts.curves.get(id(slot.source.stream))
    if count is not None:
        curves.append(("Gaussians", count))
    return Strips(head, curves, key, history, memory_key)
