"""Commands of the memory of a run."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from splatview_viewer.core.command import Command
from splatview_viewer.geometry.pan_zoom import moved_range

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


def _move(right: int, view: MemoryView) -> None:
    view.show_period(*moved_range(view.visible_period(), right=right))


def _zoom(closer: int, view: MemoryView) -> None:
    view.show_period(*moved_range(view.visible_period(), closer=closer))


def _move_commands() -> list[Command[MemoryView]]:
    """Return the commands that move the horizontal axis."""
    moves = (
        ("left", "Move along the axis: left", "Left", partial(_move, -1)),
        ("right", "Move along the axis: right", "Right", partial(_move, 1)),
        ("closer", "Zoom into the middle", "=", partial(_zoom, 1)),
        ("farther", "Zoom out", "-", partial(_zoom, -1)),
    )
    commands: list[Command[MemoryView]] = []
    for name, title, key, run in moves:
        full_name = f"memory.{name}"
        command = Command(full_name, title, run, (key,), icon="scalars", repeats=True)
        commands.append(command)
    return commands


COMMANDS: tuple[Command[MemoryView], ...] = (
    Command("memory.fit", "See all of the time", _see_all, ("F", "Home"), icon="fit"),
    *_move_commands(),
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
