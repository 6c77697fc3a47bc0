"""Commands that move the horizontal axis of plots, and zoom into it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from splatview_viewer.core.command import Command

if TYPE_CHECKING:
    from collections.abc import Callable


def axis_commands(topic: str, move: Callable[..., None]) -> list[Command[Any]]:
    """Return the commands of one view's axis.

    Args:
        topic: what their names begin with: "plots".
        move: changes the axis of a view, by `right` or `closer` as `moved_range` does.
    """
    moves = (
        ("left", "Move along the axis: left", "Left", partial(move, right=-1)),
        ("right", "Move along the axis: right", "Right", partial(move, right=1)),
        ("closer", "Zoom into the middle", "=", partial(move, closer=1)),
        ("farther", "Zoom out", "-", partial(move, closer=-1)),
    )
    commands: list[Command[Any]] = []
    for name, title, key, run in moves:
        full_name = f"{topic}.{name}"
        command = Command(full_name, title, run, (key,), icon="scalars", repeats=True)
        commands.append(command)
    return commands
