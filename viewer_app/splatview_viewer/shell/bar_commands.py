"""The commands that have a button in the top bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.shell.commands import viewer_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_viewer.shell.user import User


class CommandButton(NamedTuple):
    """The button of a command."""

    icon: str
    hint: str
    missing: str = ""
    """Why it cannot be pressed where there is no such command."""


BUTTONS = {
    "panel.toggle": CommandButton("panel", "Show or hide the panel"),
    "camera.frame": CommandButton(
        "fit", "See the whole scene", "only scenes have a camera"
    ),
    "picture.save": CommandButton("camera", "Save the picture"),
    "screen.full": CommandButton("full_screen", "Full screen"),
    "edit.undo": CommandButton("undo", "Undo"),
    "edit.redo": CommandButton("redo", "Redo"),
    "run.step": CommandButton("step", "Let the run take one step"),
}


def shortcuts_of_view(user: User) -> Mapping[str, str]:
    """Return the shortcuts of the commands of what is shown, by the commands' names.

    Its class has the same ones always; "" for a command without a shortcut.
    """
    view = user.view
    if view is None or view.empty:
        return {}
    shortcuts = _known_shortcuts.get(type(view.view))
    if shortcuts is None:
        commands = user.layout.active.commands()
        shortcuts = {command.name: command.main_keys for command in commands}
        if shortcuts:
            _known_shortcuts[type(view.view)] = shortcuts
    return shortcuts


_known_shortcuts: dict[type, Mapping[str, str]] = {}
"""Those of each class of views: to ask for them takes a while."""


def shortcut_of(user: User, name: str) -> str:
    """Return the shortcut of a command of the viewer, or else of what is shown.

    "" for a command without one, and for one that is neither's.
    """
    command = viewer_command(name)
    if command is not None:
        return command.main_keys
    return shortcuts_of_view(user).get(name, "")


def run_command(user: User, name: str) -> None:
    """Run a command of the viewer, or else of what is shown."""
    command = viewer_command(name)
    if command is not None:
        user.run(command)
    else:
        user.layout.active.run_named(name)
