"""The runs of the list: which one is told of, their names, what was last shown of each."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.core.quantities import age_text, publishing_text, rate_text
from splatview_viewer.kinds.scalars.view import ScalarsData
from splatview_viewer.shell.run_state import run_state
from splatview_viewer.ui import theme
from splatview_viewer.workspace.names import preferred_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgui_bundle import ImVec4

    from splatview_viewer.core.settings import Entry
    from splatview_viewer.kinds.scalars.curves import Curves
    from splatview_viewer.shell.run_state import RunState
    from splatview_viewer.shell.user import User
    from splatview_viewer.workspace.slot import Slot


@dataclass(frozen=True, eq=False)
class RunGroup:
    """The entries of one run, or the files."""

    key: str
    """Its entries' `group`."""
    entries: Sequence[Entry]
    title: str
    """Its name, unlike those of all others."""

    @property
    def is_run(self) -> bool:
        return not self.entries[0].is_file

    @property
    def lead(self) -> Entry:
        """The entry that tells of the run."""
        return self.entries[0]


class Groups:
    """The groups of the list, found anew when the list has changed."""

    def __init__(self) -> None:
        self.all: Sequence[RunGroup] = ()
        self._changes = -1

    def update(self, user: User) -> Sequence[RunGroup]:
        """Return the groups in the order of the list."""
        catalogue = user.catalogue
        if self._changes != catalogue.list_changes:
            self._changes = catalogue.list_changes
            self.all = _groups_of(catalogue.entries)
        return self.all

    def of(self, entry: Entry | None) -> RunGroup | None:
        """Return the group of an entry."""
        if entry is None:
            return None
        return next((group for group in self.all if group.key == entry.group), None)


def _groups_of(entries: Sequence[Entry]) -> list[RunGroup]:
    members: dict[str, list[Entry]] = {}
    for entry in entries:
        members.setdefault(entry.group, []).append(entry)
    names = [group[0].run_name or key for key, group in members.items()]
    groups = []
    for (key, group), name in zip(members.items(), names, strict=True):
        title = key
        if names.count(name) == 1:
            title = name
        groups.append(RunGroup(key, group, title))
    return groups


def told_entry(user: User) -> Entry | None:
    """Return the entry whose run the interface tells of; None: nothing is shown."""
    slot = told_slot(user)
    if slot is None:
        return None
    return slot.entry


def told_slot(user: User) -> Slot | None:
    """Return the entry of the active pane; of a comparison the first that it compares."""
    slot = user.layout.active.slot
    slots = user.catalogue.slots
    while slot is not None:
        compared = [slots[key] for key in slot.source.uses if key in slots]
        if not compared:
            return slot
        slot = compared[0]
    return None


def listed_key(user: User) -> str | None:
    """Return the key of the row of the list that the active pane shows; None: none."""
    slot = user.layout.active.slot
    if slot is not None and not slot.entry.is_listed:
        slot = told_slot(user)
    if slot is None:
        return None
    return slot.entry.key


def entry_to_show(group: RunGroup, last_shown: str) -> str:
    """Return the key of what to show of a group: what was shown last, or its scene."""
    keys = [entry.key for entry in group.entries]
    if last_shown in keys:
        return last_shown
    entry = preferred_entry(group.entries)
    assert entry is not None, "a group has entries"
    return entry.key


def run_step(user: User, group: RunGroup) -> float | None:
    """Return the newest step of a run that is known; None: none is."""
    steps = [entry.step for entry in group.entries if entry.step is not None]
    curves = logged_curves(user, group)
    if curves is not None:
        steps.append(curves.step)
    return max(steps, default=None)


def run_rate(user: User, group: RunGroup) -> str:
    """Return how fast a run trains: "36.2 steps/s", or what it publishes: "3.6 /s"."""
    curves = logged_curves(user, group)
    if curves is not None and curves.rate is not None:
        return f"{rate_text(curves.rate.newest_value)} steps/s"
    return publishing_text(max(entry.rate_hz for entry in group.entries))


def logged_curves(user: User, group: RunGroup) -> Curves | None:
    """Return what a run logs, where it is read now."""
    catalogue = user.catalogue
    for entry in group.entries:
        slot = catalogue.slots.get(entry.key)
        if slot is None or slot not in catalogue.links.watched:
            continue
        content = slot.content
        if isinstance(content, ScalarsData) and content.curves.all:
            return content.curves
    return None


# -- words -----------------------------------------------------------------------------


def state_of(group: RunGroup | None) -> RunState:
    """Return the state of a run."""
    entry = None
    if group is not None:
        entry = group.lead
    return run_state(entry, time.time())


def hue_color(state: RunState) -> ImVec4:
    """Return the colour of a state's dot."""
    if state.hue == "good":
        return theme.SUCCESS
    if state.hue == "waits":
        return theme.WAITS
    return theme.FAINT


def group_words(user: User, group: RunGroup, state: RunState) -> str:
    """Return what the list says beside a run: "36 steps/s", "ended 13:58"."""
    if not group.is_run:
        return f"{len(group.entries):,}"
    if state.mode == "training":
        return run_rate(user, group) or "training"
    return state.phrase[:1].lower() + state.phrase[1:]


class RunTexts(NamedTuple):
    """The texts of a run in the top bar."""

    step: str
    rate: str
    time: str


def run_texts(user: User, group: RunGroup | None, state: RunState) -> RunTexts:
    """Return what the bar says of a run beside its state."""
    if group is None:
        return RunTexts("", "This machine, runs of yours", "")
    entry = group.lead
    step = run_step(user, group)
    step_text = ""
    if step is not None:
        step_text = f"Step {step:,.12g}"
    if state.mode == "ended":
        duration = _duration(entry.started_at, entry.ended_at)
        if duration:
            duration = f"after {duration}"
        return RunTexts(step_text, state.clock, duration)
    rate = ""
    if state.mode == "training":
        rate = run_rate(user, group)
    return RunTexts(step_text, rate, _duration(entry.started_at, time.time()))


def _duration(start: float, end: float) -> str:
    """Return the time between two, in whole seconds: "5 min 42 s"; "" if not known."""
    if not start or end < start:
        return ""
    return age_text(int(end - start) * 1e6)
