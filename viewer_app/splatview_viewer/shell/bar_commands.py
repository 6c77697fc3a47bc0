"""The commands that have a button in the top bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.shell.commands import viewer_command

if TYPE_CHECKING:
    from splatview_viewer.shell.user import User


class CommandButton(NamedTuple):
    """The button of a command."""

    icon: str
    hint: str
    keys: str
    missing: str
    """Why it cannot be pressed where there is no such command."""


BUTTONS = {
    "panel.toggle": CommandButton("panel", "Show or hide the panel", "H", ""),
    "camera.frame": CommandButton(
        "fit", "See the whole scene", "F", "only scenes have a camera"
    ),
    "picture.save": CommandButton("camera", "Save the picture", "Ctrl S", ""),
    "screen.full": CommandButton("full_screen", "Full screen", "", "not possible here"),
    "edit.undo": CommandButton("undo", "Undo", "Ctrl Z", "nothing to undo"),
    "edit.redo": CommandButton("redo", "Redo", "Ctrl Shift Z", "nothing to redo"),
    "run.step": CommandButton("step", "Let the run take one step", "", ""),
}


def names_of_view(user: User) -> frozenset[str]:
    """Return the names of the commands of what is shown, as its class has them."""
    view = user.view
    if view is None or view.empty:
        return frozenset()
    names = _known_names.get(type(view.view))
    if names is None:
        commands = user.layout.active.commands()
        names = frozenset(command.name for command in commands)
        if names:
            _known_names[type(view.view)] = names
    return names


_known_names: dict[type, frozenset[str]] = {}
"""Names of the commands of views, by their class: to ask for them takes a while."""


def run_command(user: User, name: str) -> None:
    """Run a command of the viewer, or else of what is shown."""
    command = viewer_command(name)
    if command is not None:
        user.run(command)
    else:
        user.layout.active.run_named(name)
