"""The actions of one user: opening files, telling what was done, and commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatview_ipc.system.terminal import printable_lines
from splatview_viewer.core.settings import Toast
from splatview_viewer.kinds import about
from splatview_viewer.kinds.files import expected_format
from splatview_viewer.shell.files import note_recent
from splatview_viewer.shell.known_settings import Goal
from splatview_viewer.workspace.catalogue import SETTLE
from splatview_viewer.workspace.file_source import FileSource, entries_of, file_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from splatview_viewer.core.host import Host
    from splatview_viewer.core.settings import State
    from splatview_viewer.core.view import Tab
    from splatview_viewer.shell.interface import Interface
    from splatview_viewer.shell.layout import Layout
    from splatview_viewer.shell.opening import Openings
    from splatview_viewer.shell.undo import History
    from splatview_viewer.shell.viewport import Viewport
    from splatview_viewer.workspace.catalogue import Catalogue


class UserActions:
    """The part of `User` that acts on its fields alone.

    What `do` is given is executed by the workspace, before the next picture.
    """

    catalogue: Catalogue
    layout: Layout
    state: State
    host: Host
    interface: Interface
    history: History
    _openings: Openings

    def mark(self, pictures: int = 1) -> None:
        """Draw at least so many pictures."""
        raise NotImplementedError

    def select(self, key: str | None) -> None:
        """Show an entry in the active viewport."""
        self.layout.active.select(key)

    def open(self, path: Path) -> None:
        note_recent(self.catalogue.memo, path)
        key = file_key(path)
        if key in self.catalogue.slots:
            self.select(key)
        else:
            self.drop([str(path)])

    def drop(
        self, paths: Iterable[str], done: Callable[[Path], None] | None = None
    ) -> None:
        """Open files, and show the last of them; camera paths are for what is shown.

        `done`: the files come from a page, and scenes and pictures are not decoded in
        this process; called with each that is not needed any more.
        """
        working = self.layout.active.working()
        files = [Path(path) for path in paths]
        if done is None:
            files = entries_of(files)
        for path in files:
            if working is not None and working.view.view.dropped(path):
                self.mark(SETTLE)
                if done is not None:
                    done(path)
                continue
            source = FileSource(path, sandboxed=done is not None)
            source.done = done
            viewport = self.layout.active
            key = file_key(path)
            previous_key = viewport.key
            is_second = self._is_second(path, is_own=done is None)
            if previous_key is not None and is_second:
                self.catalogue.open_file(source)
                self._openings.pair(viewport, previous_key, key)
            else:
                self.catalogue.open_file(source, viewport)
                self._openings.add(viewport, key, previous_key)

    def _is_second(self, path: Path, *, is_own: bool) -> bool:
        """Return whether a file is to be compared with the one that is shown.

        Args:
            path: is about to be opened.
            is_own: it is a file of the user of this machine.
        """
        viewport = self.layout.active
        entry = viewport.entry
        if entry is None or not entry.is_file or self._openings.is_pairing(viewport):
            return False
        if file_key(path) == entry.key:
            return False
        kind = expected_format(path, is_trusted=is_own)
        view = viewport.view
        if view is not None and not view.empty:
            return view.view.awaits_second(kind)
        if entry.progress is None or not about(kind).fed_unseen:
            return False
        # The first one is still being read.
        return expected_format(Path(entry.key), is_trusted=is_own) == kind

    def open_pair(self, first: Path, second: Path) -> None:
        """Open two files of one kind, and compare them."""
        viewport = self.layout.active
        for path in (first, second):
            if file_key(path) not in self.catalogue.slots:
                self.catalogue.open_file(path)
        viewport.select(file_key(first))
        self._openings.pair(viewport, file_key(first), file_key(second))

    def say(self, text: str) -> None:
        """Show a text for a few seconds."""
        self._show_toast(Toast(printable_lines(text)))

    def offer_undo(self, text: str) -> None:
        """Show a text for a few seconds, with a button that takes back what was done."""
        toast = Toast(printable_lines(text), "undo", gesture=self.history.gesture)
        self._show_toast(toast)

    def say_undone(self, text: str) -> None:
        """Show what was taken back, in place of an offer to do so."""
        self._show_toast(Toast(printable_lines(text), "undo"))

    def _show_toast(self, toast: Toast) -> None:
        """Show a message in place of one of its topic, and two others at most."""
        others = [
            each
            for each in self.state.toasts
            if not toast.topic or each.topic != toast.topic
        ]
        self.state.toasts = [*others[-2:], toast]
        self.mark(SETTLE)

    def do(self, command: Callable[..., object], *values: Any) -> None:
        """Queue a command of the user's; it is executed between two pictures."""
        self.history.note_command()
        self.catalogue.do(command, *values)

    def choose(self, key: str) -> None:
        """Show an entry in the active viewport; one that failed is tried again."""
        if key != self.layout.active.key:
            self.select(key)
            return
        slot = self.layout.active.slot
        if slot is not None:
            slot.entry.fault = ""
            self.mark(SETTLE)

    def show_beside(self, key: str | None) -> None:
        """Show an entry in another viewport, from where the active one looks."""
        leader = self.layout.active
        viewport = self.layout.add(key)
        for feature in self.catalogue.features:
            feature.join(viewport, leader)

    def switch_tie(self, viewport: Viewport) -> None:
        """Untie a viewport from the others, or tie it again.

        The only one unties the two that its picture compares.
        """
        working = viewport.working()
        if viewport.inner_tie is not None and working is not None:
            working[1].view.switch_inner_tie()
            self.mark()
            return
        for feature in self.catalogue.features:
            feature.switch_tie(viewport)

    def go_to_step(self, step: float) -> None:
        """Show the snapshot of a step in the active viewport and those tied to it."""
        has_snapshots = False
        for feature in self.catalogue.features:
            has_snapshots |= feature.go_to_step(self.layout.active, step)
        if not has_snapshots:
            self.say("No snapshots are recorded of what is shown")

    def compare(self, how: str, key: str) -> None:
        """Show an entry with what the active viewport shows, as `Feature.compare`."""
        for feature in self.catalogue.features:
            feature.compare(how, self.layout.active, key)

    def on_viewport(
        self, action: Callable[[Layout, Viewport], None], viewport: Viewport
    ) -> None:
        """Activate, maximise or close a viewport, unless it was closed meanwhile."""
        if viewport in self.layout.all:
            action(self.layout, viewport)

    def set_light(self, light: bool) -> None:
        """Draw the panel light or dark, now and in later sessions."""
        self.state.light = light
        self.host.memo.put("light", light)
        self.mark(SETTLE)

    def set_decimal_bytes(self, decimal: bool) -> None:
        """Tell memory in GB, or in GiB; also in later sessions."""
        self.interface.state.decimal_bytes = decimal
        self.interface.state.remember(self.catalogue.memo)
        self.mark(SETTLE)

    def toggle_panel(self) -> None:
        state = self.interface.state
        if state.hides_all:
            state.bare = not state.bare
        else:
            state.panel_open = not state.panel_open
        self.mark(SETTLE)

    def set_panel_width(self, points: float) -> None:
        """Make the panel so wide, now and in later sessions."""
        self.interface.state.panel_width = points
        self.interface.state.remember(self.catalogue.memo)
        self.mark(SETTLE)

    def choose_tab(self, tab: Tab) -> None:
        """Show a tab of the panel, which opens if it is closed."""
        self.interface.state.tab = tab
        self.interface.state.on_streams = False
        self.interface.state.panel_open = True
        self.interface.state.remember(self.catalogue.memo)
        self.mark(SETTLE)

    def show_streams(self) -> None:
        """List the streams in a phone's sheet."""
        self.interface.state.on_streams = True
        self.interface.state.panel_open = True
        self.mark(SETTLE)

    def drag_sheet(self, share: float) -> None:
        """Have a phone's sheet take this share of the height for now."""
        self.interface.state.dragged_sheet = share
        self.mark(SETTLE)

    def settle_sheet(self, share: float) -> None:
        """Have a phone's sheet take this share of the height; 0: only its handle."""
        state = self.interface.state
        state.dragged_sheet = None
        state.panel_open = share > 0
        if share > 0:
            state.sheet = share
        self.mark(SETTLE)

    def open_palette(self) -> None:
        """Open the palette, with nothing typed."""
        if not self.interface.state.bare:
            self.interface.palette.open()
            # What is typed next is for its field, which comes some frames later.
            self.interface.surface.input.expect_field()
            self.mark(SETTLE)

    def focus_zone(self, step: int) -> None:
        """Give the keyboard to the next zone of the interface (1), or the one before."""
        self.interface.surface.focus.move(step)
        self.mark(SETTLE)

    def go_to_setting(self, tab: Tab, section: str, label: str) -> None:
        """Show a section of the panel, and focus a setting in it.

        label: of the setting; "" for the section itself.
        """
        self.choose_tab(tab)
        self.interface.settings.goal = Goal(section, label)

    def fold_time(self) -> None:
        """Fold the time area to a narrow bar, or open it; also in later sessions."""
        state = self.interface.state
        state.time_folded = not state.time_folded
        state.remember(self.catalogue.memo)
        self.mark(SETTLE)

    def toggle_help(self) -> None:
        """Show or hide the list of keys."""
        self.state.help = not self.state.help
        self.mark(SETTLE)
