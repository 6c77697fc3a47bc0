"""The commands of the viewer itself, in one table.

Those of what a pane shows come from its view (`View.commands`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from splatview_viewer.core.command import Command
from splatview_viewer.core.view import TABS
from splatview_viewer.shell.layout import Layout
from splatview_viewer.shell.run_state import run_state
from splatview_viewer.shell.runs import told_entry
from splatview_viewer.shell.time_area import chosen_lane
from splatview_viewer.workspace.catalogue import SETTLE

if TYPE_CHECKING:
    from splatview_viewer.core.view import Tab
    from splatview_viewer.shell.user import User


# -- why something cannot be done now --------------------------------------------------


def _why_no_picture(user: User) -> str | None:
    if user.view is None or user.view.empty:
        return "nothing is shown"
    return None


def _why_one_pane(user: User) -> str | None:
    if len(user.layout) > 1:
        return None
    return "there is one pane"


def _why_no_tie(user: User) -> str | None:
    if user.layout.active.inner_tie is not None:
        return None
    return _why_one_pane(user)


def _why_not_paused(user: User) -> str | None:
    return run_state(told_entry(user), time.time()).pause_reason


def _why_no_step(user: User) -> str | None:
    return run_state(told_entry(user), time.time()).step_reason


# -- what the commands do --------------------------------------------------------------


def _open_files(user: User) -> None:
    user.interface.footer.open_files(user)


def _save_picture(user: User) -> None:
    user.layout.active.keep_picture()


def _save_transparent(user: User) -> None:
    user.layout.active.keep_picture(transparent=True)


def _step_run(user: User) -> None:
    user.pause("step")


def _pause_run(user: User) -> None:
    user.pause()


def _next_pane(user: User) -> None:
    user.layout.step(1)


def _previous_pane(user: User) -> None:
    user.layout.step(-1)


def _close_pane(user: User) -> None:
    user.on_viewport(Layout.remove, user.layout.active)


def _switch_tie(user: User) -> None:
    user.switch_tie(user.layout.active)


def _see_pane_alone(user: User) -> None:
    user.on_viewport(Layout.maximise, user.layout.active)


def _show_beside(user: User) -> None:
    key = user.layout.active.key
    if key is not None:
        user.show_beside(key)


def _switch_theme(user: User) -> None:
    user.set_light(not user.state.light)


def _toggle_panel(user: User) -> None:
    user.toggle_panel()


def _fold_time(user: User) -> None:
    user.fold_time()


def _play_lane(user: User) -> None:
    lane = chosen_lane(user)
    lane.play(not lane.playing)
    user.mark(SETTLE)


def _why_not_played(user: User) -> str | None:
    return chosen_lane(user).reason


def _open_palette(user: User) -> None:
    user.open_palette()


def _next_zone(user: User) -> None:
    user.focus_zone(1)


def _previous_zone(user: User) -> None:
    user.focus_zone(-1)


def _undo(user: User) -> None:
    step_name = user.history.undo_words
    user.history.undo()
    user.say_undone(f"Undid: {step_name}")


def _redo(user: User) -> None:
    step_name = user.history.redo_words
    user.history.redo()
    user.say_undone(f"Did again: {step_name}")


def _why_no_undo(user: User) -> str | None:
    return user.history.undo_reason()


def _why_no_redo(user: User) -> str | None:
    return user.history.redo_reason()


def _show_performance(user: User) -> None:
    user.go_to_setting("data", "Details", "")


def _tell_about(user: User) -> None:
    user.show_about()


def _switch_units(user: User) -> None:
    user.set_decimal_bytes(not user.interface.state.decimal_bytes)


def _list_keys(user: User) -> None:
    user.toggle_help()


def _fill_screen(user: User) -> None:
    user.screen.desktop.ask("fullscreen")


def _why_not_filled(user: User) -> str | None:
    if "fullscreen" in user.screen.desktop.favours:
        return None
    return "it has no screen"


def _show_keyboard(user: User) -> None:
    user.screen.desktop.ask("keyboard")


def _why_no_keyboard(user: User) -> str | None:
    if "keyboard" in user.screen.desktop.favours:
        return None
    return "only on a page"


def _tab_command(tab: Tab, name: str) -> Command[User]:
    """Return the command that shows a tab of the panel."""

    def choose(user: User) -> None:
        user.choose_tab(tab)

    return Command(f"tab.{tab}", f"Tab: {name}", choose, icon="list")


# -- the table -------------------------------------------------------------------------

PALETTE = "palette.open"
"""The name of the command that finds all others."""
COMMANDS: tuple[Command[User], ...] = (
    Command("file.open", "Open a file", _open_files, ("Ctrl O",), icon="open"),
    Command(
        "picture.save",
        "Save the picture",
        _save_picture,
        ("Ctrl S",),
        icon="camera",
        reason=_why_no_picture,
    ),
    Command(
        "picture.save_transparent",
        "Save the picture, transparent",
        _save_transparent,
        ("Ctrl Shift S",),
        icon="layers",
        reason=_why_no_picture,
    ),
    Command("edit.undo", "Undo", _undo, ("Ctrl Z",), icon="undo", reason=_why_no_undo),
    Command(
        "edit.redo",
        "Redo",
        _redo,
        ("Ctrl Shift Z", "Ctrl Y"),
        icon="redo",
        reason=_why_no_redo,
    ),
    Command(
        "run.pause",
        "Pause the run, or have it go on",
        _pause_run,
        ("Space",),
        icon="pause",
        reason=_why_not_paused,
    ),
    Command(
        "run.step", "One step of the run", _step_run, icon="step", reason=_why_no_step
    ),
    Command(
        "panel.toggle", "Show or hide the panel", _toggle_panel, ("H",), icon="panel"
    ),
    *(_tab_command(tab, name) for tab, name in TABS.items()),
    Command(
        "time.fold", "Fold or open the time area", _fold_time, ("T",), icon="training"
    ),
    Command(
        "time.play",
        "Play the chosen lane, or stop",
        _play_lane,
        ("P",),
        icon="play",
        reason=_why_not_played,
    ),
    Command(
        "pane.next",
        "The next pane",
        _next_pane,
        ("Ctrl Tab", "Ctrl ]"),
        icon="right",
        reason=_why_one_pane,
    ),
    Command(
        "pane.previous",
        "The pane before",
        _previous_pane,
        ("Ctrl Shift Tab", "Ctrl ["),
        icon="right",
        reason=_why_one_pane,
    ),
    Command(
        "pane.beside",
        "Show it once more, beside",
        _show_beside,
        ("Ctrl Enter",),
        icon="panel",
        reason=_why_no_picture,
    ),
    Command(
        "pane.alone",
        "This pane alone, or all of them again",
        _see_pane_alone,
        icon="alone",
        reason=_why_one_pane,
    ),
    Command(
        "pane.close", "Close this pane", _close_pane, icon="close", reason=_why_one_pane
    ),
    Command(
        "pane.tie",
        "Tie this pane to the others, or untie it",
        _switch_tie,
        icon="tied",
        reason=_why_no_tie,
    ),
    Command(
        "zone.next", "Keyboard: the next zone", _next_zone, ("F6",), icon="keyboard"
    ),
    Command(
        "zone.previous",
        "Keyboard: the zone before",
        _previous_zone,
        ("Shift F6",),
        icon="keyboard",
    ),
    Command(PALETTE, "Find a command", _open_palette, ("Ctrl K",), icon="find"),
    Command(
        "screen.full",
        "Full screen, or leave it",
        _fill_screen,
        icon="full_screen",
        reason=_why_not_filled,
    ),
    Command(
        "screen.keyboard",
        "Show the keyboard of a phone",
        _show_keyboard,
        icon="keyboard",
        reason=_why_no_keyboard,
    ),
    Command("theme.switch", "Light or dark colours", _switch_theme, icon="moon"),
    Command(
        "performance.show",
        "Performance and details",
        _show_performance,
        icon="gauge",
        reason=_why_no_picture,
    ),
    Command(
        "units.switch",
        "Units: memory in GiB or in GB",
        _switch_units,
        icon="memory",
    ),
    Command("about.show", "About splatview", _tell_about, icon="help"),
    Command("keys.list", "List the keys", _list_keys, typed="?", icon="keyboard"),
)
"""Everything that a user can ask the viewer for."""
_BY_NAME = {command.name: command for command in COMMANDS}


def viewer_command(name: str) -> Command[User] | None:
    """Return a command of the viewer's; None: there is none of this name."""
    return _BY_NAME.get(name)


def named(name: str) -> Command[User]:
    """Return the command of a name: "pane.close". Raises KeyError."""
    return _BY_NAME[name]
