"""The record of a run's scene, for a pane that shows something else of the run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.shown_view import ShownView
    from splatview_viewer.shell.viewport import Viewport

_PREFIX = "history."
"""What the names of commands of a record begin with."""


def record_of(viewport: Viewport) -> ShownView | None:
    """Return the view of the recorded scene of the run that a pane shows.

    It is that of this pane, of another one of the user, or the one that this pane
    showed before. None: nothing is recorded of that run.
    """
    entry = viewport.entry
    if entry is None or entry.is_file:
        return None
    user = viewport.user
    for pane in [viewport, *user.layout]:
        view = pane.view
        is_of_run = entry.group in _groups_of(pane)
        if is_of_run and view is not None and _is_recorded(view):
            return view
    group = user.interface.groups.of(entry)
    if group is None:
        return None
    for sibling in group.entries:
        slot = user.catalogue.slots.get(sibling.key)
        if slot is None:
            continue
        view = slot.views.get(viewport)
        if view is not None and _is_recorded(view):
            return view
    return None


def _groups_of(viewport: Viewport) -> list[str]:
    """Return the runs that a pane shows: of a comparison, those of its parts."""
    slot = viewport.slot
    if slot is None:
        return []
    slots = viewport.user.catalogue.slots
    compared = [slots[key] for key in slot.source.uses if key in slots]
    return [shown_slot.entry.group for shown_slot in compared or [slot]]


def _is_recorded(view: ShownView) -> bool:
    """Return whether there is a record of what a view shows."""
    return not view.empty and view.view.playback is not None


def record_commands(viewport: Viewport) -> Sequence[Command[Any]]:
    """Return the commands that go through the record of what has none itself."""
    view = viewport.view
    if view is None or view.empty or view.view.playback is not None:
        return ()
    record = record_of(viewport)
    if record is None:
        return ()
    commands = record.view.commands()
    history = [command for command in commands if command.name.startswith(_PREFIX)]
    return [_for_record(command, record) for command in history]


def _for_record(command: Command[Any], record: ShownView) -> Command[Any]:
    """Return a command of a record as one of the view that is shown in its place."""

    def run(_: Any) -> object:
        return command.run(record.view)

    def reason(_: Any) -> str | None:
        return command.reason(record.view)

    return replace(command, run=run, reason=reason)
