"""The menus of the list of streams: what can be done with an entry, and with a run."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from splatview_ipc.system.terminal import printable
from splatview_viewer import kinds
from splatview_viewer.shell.menu import RULE, MenuRow
from splatview_viewer.shell.undo import Action
from splatview_viewer.workspace.file_source import FileSource

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from splatview_viewer.core.settings import Entry
    from splatview_viewer.shell.runs import RunGroup
    from splatview_viewer.shell.user import User
    from splatview_viewer.workspace.slot import Slot


def entry_menu(user: User, entry: Entry) -> list[MenuRow | None]:
    """Return the rows of an entry's menu."""
    key = entry.key
    split = _why_not_compared(user, entry, merged=False)
    together = _why_not_compared(user, entry, merged=True)
    pin = "Pin to the top of the list"
    if entry.lasting_name in user.interface.state.pinned:
        pin = "Unpin it"
    return [
        MenuRow("Show", partial(user.do, user.choose, key), "eye", "Enter"),
        MenuRow(
            "Show beside",
            partial(user.do, user.show_beside, key),
            "panel",
            "Ctrl Enter",
            tip="A pane of its own. It begins with the active pane's camera, step and "
            "look, and stays tied until it is untied.",
        ),
        MenuRow(
            "Split with what is shown",
            partial(user.do, user.compare, "pair", key),
            "difference",
            reason=split,
        ),
        MenuRow(
            "Together with what is shown",
            partial(user.do, user.compare, "together", key),
            "layers",
            reason=together,
        ),
        RULE,
        MenuRow(pin, partial(user.do, pin_entry, user, entry.lasting_name), "pin"),
        MenuRow("Copy its name", partial(_copy, user, entry.name), "copy"),
        MenuRow(
            "Save the scene",
            partial(user.do, save_scene, user, key),
            "export",
            reason=_why_not_saved(user, entry),
        ),
        RULE,
        MenuRow(
            "Take out of the list",
            partial(user.do, take_out, user, [key]),
            "close",
            "Delete",
            reason=why_not_taken_out(entry),
        ),
    ]


def head_menu(user: User, group: RunGroup) -> list[MenuRow | None]:
    """Return the rows of the menu of a run, or of the files."""
    title = "Fold its streams"
    if group.key in user.interface.state.folded_runs:
        title = "List its streams"
    keys = [entry.key for entry in group.entries]
    reason = None
    if any(why_not_taken_out(entry) for entry in group.entries):
        reason = "it still runs"
    return [
        MenuRow(title, partial(user.do, fold, user, group.key), "list"),
        MenuRow("Copy its name", partial(_copy, user, group.title), "copy"),
        RULE,
        MenuRow(
            "Take out of the list",
            partial(user.do, take_out, user, keys),
            "close",
            reason=reason,
        ),
    ]


def _why_not_compared(user: User, entry: Entry, *, merged: bool) -> str | None:
    """Return why an entry cannot be shown together with what is shown; None: it can."""
    selected = user.state.selected_entry
    if selected is None:
        return "nothing is shown"
    if selected is entry:
        return "it is shown"
    allows = kinds.can_be_merged if merged else kinds.are_comparable
    if allows(selected.kind, entry.kind):
        return None
    if selected.kind != entry.kind:
        return "not of one kind"
    return "not possible for it"


def _why_not_saved(user: User, entry: Entry) -> str | None:
    """Return why an entry cannot be saved as a scene now; None: it can."""
    if not kinds.about(entry.kind).filmed:
        return "no scene"
    if entry.key != user.layout.active.key:
        return "show it first"
    view = user.view
    if view is None or view.empty:
        return "not seen yet"
    return None


def why_not_taken_out(entry: Entry) -> str | None:
    """Return why an entry stays in the list; None: it can be taken out."""
    if entry.alive and not entry.is_file:
        return "it is published"
    return None


def pin_entry(user: User, pin: str) -> None:
    """Pin an entry to the top of the list, or undo that; remembered."""
    state = user.interface.state
    if pin in state.pinned:
        state.pinned.remove(pin)
    else:
        state.pinned.append(pin)
    state.remember(user.catalogue.memo)
    user.mark_interface()


def save_scene(user: User, key: str) -> None:
    """Save the scene that the active pane shows as a file."""
    active = user.layout.active
    if active.key == key:
        active.run_named("scene.save")


def take_out(user: User, keys: Sequence[str]) -> None:
    """Take entries out of the list; files can be brought back."""
    slots = [user.catalogue.slots[key] for key in keys if key in user.catalogue.slots]
    files = list(chain.from_iterable(map(_files_of, slots)))

    def take() -> None:
        for key in keys:
            user.catalogue.forget(key)

    def bring_back() -> None:
        for file in files:
            user.catalogue.open_file(file)

    take()
    if len(slots) == 1:
        text = f"{slots[0].entry.name} is out of the list"
    else:
        text = f"{len(slots)} streams are out of the list"
    if not files or len(files) < len(slots):
        user.say(text)
        return
    user.history.note_action(Action("list of streams", bring_back, take))
    user.offer_undo(text)


def _files_of(slot: Slot) -> list[Path]:
    """Return the file of an entry that can be read once more; none for others."""
    source = slot.source
    if isinstance(source, FileSource) and source.done is None:
        return [source.file]
    return []


def _copy(user: User, text: str) -> None:
    text = printable(text)
    user.do(user.screen.desktop.copy, text)
    user.do(user.say, f"Copied {text}")


def fold(user: User, key: str) -> None:
    """Fold or unfold the streams of a run."""
    user.interface.state.folded_runs ^= {key}
    user.mark_interface()
