"""Commands of the memory of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from splatview_viewer.core.command import Command
from splatview_viewer.geometry.pan_zoom import moved_range
from splatview_viewer.kinds.axis_commands import axis_commands

if TYPE_CHECKING:
    from splatview_viewer.kinds.memory.view import MemoryView


def _see_all(view: MemoryView) -> None:
    view.show_all()


def _take_snapshot(view: MemoryView) -> None:
    view.request_snapshot()


def _open_snapshot(view: MemoryView) -> None:
    path = view.data.facts.snapshot_path
    if path is not None:
        view.host.open(path)


def _switch_host(view: MemoryView) -> None:
    view.state = replace(view.state, shows_host=not view.state.shows_host)


def _why_no_host(view: MemoryView) -> str | None:
    if view.data.history.on_gpu:
        return None
    return "it is what is shown"


def _why_no_snapshot(view: MemoryView) -> str | None:
    return view.why_no_request()


def _why_none_open(view: MemoryView) -> str | None:
    if view.data.facts.snapshot_path is not None:
        return None
    return "there is none yet"


def _move(view: MemoryView, *, right: int = 0, closer: int = 0) -> None:
    period = moved_range(view.visible_period(), right=right, closer=closer)
    view.show_period(*period)


COMMANDS: tuple[Command[MemoryView], ...] = (
    Command("memory.fit", "See all of the time", _see_all, ("F", "Home"), icon="fit"),
    *axis_commands("memory", _move),
    Command(
        "memory.host",
        "Show or hide the memory of the host",
        _switch_host,
        icon="memory",
        reason=_why_no_host,
    ),
    Command(
        "memory.take",
        "Take a full snapshot of the memory",
        _take_snapshot,
        icon="memory",
        reason=_why_no_snapshot,
    ),
    Command(
        "memory.open",
        "Open the last snapshot of the memory",
        _open_snapshot,
        icon="open",
        reason=_why_none_open,
    ),
)
