"""The commands of the viewer itself, in one table.

Those of what a pane shows come from its view (`View.commands`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.core.command import Command

if TYPE_CHECKING:
    from splatview_viewer.shell.user import User


def _why_no_picture(user: User) -> str | None:
    if user.view is None or user.view.empty:
        return "nothing is shown"
    return None


def _why_one_pane(user: User) -> str | None:
    return None if len(user.layout) > 1 else "there is one pane"


def _why_not_paused(user: User) -> str | None:
    entry = user.state.selected_entry
    if entry is None or entry.paused is None:
        return "nothing runs"
    return None


COMMANDS: tuple[Command[User], ...] = (
    Command(
        "picture.save",
        "Save the picture",
        lambda user: user.layout.active.keep_picture(),
        ("Ctrl S",),
        "camera",
        _why_no_picture,
    ),
    Command(
        "picture.save_transparent",
        "Save the picture, transparent",
        lambda user: user.layout.active.keep_picture(transparent=True),
        ("Ctrl Shift S",),
        "camera",
        _why_no_picture,
    ),
    Command(
        "run.pause",
        "Pause the run, or have it go on",
        lambda user: user.pause(),
        ("Space",),
        "pause",
        _why_not_paused,
    ),
    Command(
        "panel.toggle",
        "Show or hide the panel",
        lambda u: u.toggle_panel(),
        ("H",),
        "panel",
    ),
    Command(
        "pane.next",
        "The next pane",
        lambda user: user.layout.step(1),
        ("Ctrl Tab",),
        "panel",
        _why_one_pane,
    ),
    Command(
        "pane.previous",
        "The pane before",
        lambda user: user.layout.step(-1),
        ("Ctrl Shift Tab",),
        "panel",
        _why_one_pane,
    ),
    Command("keys.list", "List the keys", lambda u: u.toggle_help(), (), "help"),
)
"""Everything that a user can ask the viewer for."""
