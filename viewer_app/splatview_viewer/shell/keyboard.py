"""Keys that are not for the interface: commands, and Escape layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from splatview_viewer.core import events as ev
from splatview_viewer.core.command import command_of
from splatview_viewer.shell.commands import COMMANDS

if TYPE_CHECKING:
    from splatview_viewer.core.events import Event
    from splatview_viewer.shell.user import User

_BEGINS = (
    ev.PointerPress,
    ev.Wheel,
    ev.Pinch,
    ev.Text,
    ev.FileDrop,
    ev.Placed,
)
"""Events that begin something new, beside keys that go down."""


def note_gesture(user: User, event: Event, now: float) -> None:
    """Tell the history that the user does something, and what is a new step."""
    goes_down = isinstance(event, ev.Key) and event.pressed and not event.repeat
    if isinstance(event, ev.PointerPress) and len(user.held.buttons) == 1:
        user.history.begin_drag()
    if goes_down or isinstance(event, _BEGINS):
        user.history.begin_gesture(now)
    elif isinstance(event, (ev.Key, ev.PointerRelease)):
        user.history.note_input(now)


def switches_help(user: User, event: Event, is_ours: bool) -> bool:
    """Show or hide the list of keys if an event asks for that; return whether.

    It goes with an event that does nothing else then. is_ours: the event is for the
    interface.
    """
    is_typed = isinstance(event, ev.Text) and event.text == "?"
    asks = is_typed and (user.state.help or not is_ours)
    if user.state.help:
        # On a phone it is a popup, which a finger scrolls.
        is_popup = user.interface.zones.form == "phone"
        is_press = isinstance(event, ev.PointerPress) and not is_popup
        asks |= is_press or is_escape(event)
    if asks:
        user.toggle_help()
    return asks


def is_escape(event: Event) -> bool:
    """Return whether an event is Escape going down."""
    return isinstance(event, ev.Key) and event.name == "escape" and event.pressed


def take_key(user: User, event: ev.Key) -> bool:
    """Do what a key is for; return False for one of the view that is shown."""
    if not event.pressed:
        return False
    if is_escape(event) and any(viewport.captured for viewport in user.layout):
        # The drag ends, as if it had not been.
        for viewport in user.layout:
            viewport.let_go()
        user.do(user.history.cancel_drag)
        return True
    command = command_of(COMMANDS, msgspec.structs.replace(event, repeat=False))
    if command is None:
        return user.layout.active.take_shortcut(event)
    if command.repeats or not event.repeat:
        user.run(command)
    return True
