"""Names of two entries in one picture, and the commands of the side that leads."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.settings import Entry


@lru_cache(512)
def for_lead(command: Command[Any]) -> Command[Any]:
    """Return a command of one side's view as one of the view of both."""

    def run(pair: Any) -> object:
        lead = pair.lead
        if lead is None:
            return None
        return command.run(lead.view)

    def reason(pair: Any) -> str | None:
        lead = pair.lead
        if lead is None:
            return "nothing is shown"
        return command.reason(lead.view)

    return replace(command, run=run, reason=reason)


def distinct_names(entries: Sequence[Entry]) -> list[str]:
    """Return the names of entries, with the run's where several have the same.

    Of one stream in several runs they are the runs' names alone.
    """
    names = [entry.name for entry in entries]
    runs = [entry.run_name for entry in entries]
    if len(set(names)) == 1 and all(runs) and len(set(runs)) == len(runs):
        return runs
    titles = []
    for entry in entries:
        title = entry.name
        if names.count(title) > 1:
            title = f"{title} \u00b7 {entry.group}"
        titles.append(title)
    return titles
