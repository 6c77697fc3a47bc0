"""One user of the viewer: a screen with its panel, what it shows of the catalogue, and
from where.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from splatview_ipc.system.terminal import printable_lines
from splatview_viewer.core import events as ev
from splatview_viewer.core.host import Host
from splatview_viewer.core.screen import Pane, takes_pictures
from splatview_viewer.core.settings import BACKDROP, State, Toast
from splatview_viewer.kinds.files import expected_format
from splatview_viewer.shell import keyboard
from splatview_viewer.shell.commands import PALETTE
from splatview_viewer.shell.files import note_recent
from splatview_viewer.shell.held import Held
from splatview_viewer.shell.interface import Interface
from splatview_viewer.shell.kept_boards import KeptBoards
from splatview_viewer.shell.known_settings import Goal
from splatview_viewer.shell.layout import Layout
from splatview_viewer.shell.opening import Openings
from splatview_viewer.shell.pace import Pace
from splatview_viewer.shell.runs import listed_key, told_slot
from splatview_viewer.shell.seen_cameras import SeenCameras
from splatview_viewer.shell.stream_list import caption_of
from splatview_viewer.shell.undo import History
from splatview_viewer.workspace.catalogue import SETTLE
from splatview_viewer.workspace.sources import FileSource, entries_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import moderngl

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Caption, InterfaceLayer, Rect, Screen
    from splatview_viewer.core.settings import Wish
    from splatview_viewer.core.view import ShownView, Tab, View
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.shell.viewport import Viewport
    from splatview_viewer.workspace.catalogue import Catalogue
    from splatview_viewer.workspace.slot import Slot

SMALL = 500
"""Points of width below which the panel is closed at first: a phone."""
_MOST_SETTLE = 12
_SAID_FOR = 0.5
"""Seconds for which the panel's numbers stay as they are."""
_RATES_PERIOD = 0.5
"""Seconds within which streams' rates are shown; other pictures show them as well."""
_STATES_PERIOD = 1.0
"""Seconds between two looks at the states of the runs."""
_TOGETHER = 0.1
"""Seconds that an interface waits for pictures that it changes with."""
_MOST_FRAMES = 8
"""Frames of imgui in one interface, which takes few events in each."""
_SLOW_S = 0.05
"""Seconds of drawing pictures from which on they are slow."""
_USED_FOR = 0.25
"""Seconds after an input for which the interface is being used."""
_LONGEST_WAIT = 1.0
"""Seconds that slow pictures wait for that at most."""
_HOVER = 0.35
"""Seconds that the pointer rests before the panel is drawn again, for tooltips."""


class User:
    """Takes the events of one screen and draws its pictures.

    The views of several users share what they show.

    Every call comes from the thread that holds the OpenGL context, which is the same
    for all users.
    """

    def __init__(
        self,
        screen: Screen,
        catalogue: Catalogue,
        work: GpuWork,
        *,
        panel: bool = True,
        max_fps: float = 60.0,
        far: bool = False,
    ) -> None:
        """panel: False for pictures alone.

        far: its pictures go to another program, which takes a while.
        """
        self.screen = screen
        self.catalogue = catalogue
        self.who = ""
        """The same for a browser that comes back."""
        self.layout = Layout(self)
        self.state = State(
            entries=catalogue.entries,
            notices=catalogue.notices,
        )
        self.state.screen = str(screen.ctx.info["GL_RENDERER"]).split(" (")[0]
        self.dirty = SETTLE
        """Pictures that have to be drawn, with the interface over them."""
        self.pictures_dirty = SETTLE
        """The same of the panes' pictures alone, where the interface is drawn apart."""
        self._marks = 0
        """Calls of `mark`."""
        self._kept = KeptBoards()
        self._pictures_answer = False
        """The next pictures show what the user did, not the interface alone."""
        self._interface_answers = True
        """What the user did last is seen in the interface, whatever pictures show."""
        self._drew_pictures = False
        self._interface_first = False
        """The interface waits for no pictures: something changed in it alone."""
        self._seen_cameras = SeenCameras()
        self._pictures_s = 0.0
        """Seconds that drawing the last pictures took in this thread."""
        self._pictures_at = -math.inf
        """When they were drawn."""
        self._input_at = -math.inf
        """When the user did something in the interface."""
        self._refresh_at = math.inf
        """When what is written over pictures is drawn again, by what they show."""
        self.host = Host(
            self.say,
            lambda path: self.do(self.open, path),
            lambda: self.screen.desktop.pasted(),
            screen.wake,
            catalogue.memo,
            screen.state.scale,
            hand_over=lambda path: self.screen.desktop.hand_over(path),
            keep_picture=lambda: self.do(self.layout.active.keep_picture),
            offer_undo=self.offer_undo,
            open_pair=lambda first, second: self.do(self.open_pair, first, second),
            in_steps=True,
        )
        self.state.light = self.host.memo.get("light") is True
        self.history = History(self)
        """What the user can undo."""
        self._openings = Openings(self)
        self.interface = self._make_interface(has_panel=panel)
        self.pace = Pace(work, max_fps)
        self._work = work
        self._far = far
        self._rate_shown = False
        self._rates_seen = 0
        self._seen = True
        self._say_at = 0.0
        self._hover_at = math.inf
        self._states_at = 0.0
        self.held = Held()
        """What is down on the screen."""
        self.sit(screen)

    def _make_interface(self, *, has_panel: bool) -> Interface:
        """Return an interface as it was left, whose panel is closed on a phone."""
        screen = self.screen.state
        interface = Interface(screen.scale)
        interface.state.recall(self.catalogue.memo)
        interface.state.bare = not has_panel
        is_small = screen.size[0] < SMALL * screen.scale
        interface.state.panel_open = has_panel and not is_small
        return interface

    def sit(self, screen: Screen) -> None:
        """Continue on another screen, after a browser connected again."""
        self.screen = screen
        self._seen_cameras = SeenCameras()
        self.let_go()
        self.layout.look(True)
        self.mark(SETTLE)

    def rise(self) -> None:
        """Leave the screen.

        What was chosen, cameras included, is kept; what is held down is let go.
        """
        self.let_go()
        self.layout.look(False)

    def let_go(self) -> None:
        """Release all keys and buttons that are down: their end will not be reported."""
        self.interface.surface.input.let_go()
        for viewport in self.layout:
            viewport.let_go()
        self.held.clear()

    def close(self) -> None:
        """Give back everything but the screen. Idempotent."""
        self.rise()
        for viewport in self.layout:
            self.catalogue.leave(viewport)
        self.interface.surface.close()

    @property
    def shown(self) -> Slot | None:
        """The entry of the active viewport."""
        return self.layout.active.slot

    @property
    def view(self) -> ShownView | None:
        """The view of the active viewport, from the first data on."""
        return self.layout.active.view

    @property
    def has_panel(self) -> bool:
        """True while the panel is open."""
        return self.interface.state.panel_open

    def select(self, key: str | None) -> None:
        self.layout.active.select(key)

    # -- time --------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due, once in each turn of the loop."""
        was_visible = self._seen
        self._seen = self.screen.state.visible
        if was_visible and not self._seen:
            self._hide()
        for viewport in self.layout.seen:
            viewport.tick(now)
        if any([f.tick(self, now) for f in self.catalogue.features]):
            self.mark_interface()
        self._openings.watch()
        self.history.watch(now)
        if self.interface.toasts.end_old(self.state, now):
            self.mark_interface()
        layer = self.screen.interface
        if layer is not None and self._seen_cameras.arrive(layer.sent_pictures):
            self.mark_interface()
        if now >= self._hover_at:
            self._hover_at = math.inf
            self.mark_interface(SETTLE)
        if self.interface.surface.input.wait(now):
            self.mark_interface(SETTLE)
        for event in self.interface.surface.input.take_unclaimed():
            self.take(event, now)
        if now >= self._refresh_at:
            self._refresh_at = math.inf
            self.mark_interface()
        if self._rate_shown and now > self.pace.drawn_at + 1.05:
            self.mark_interface()  # once more, so that no rate stands there that is over
        if (
            self._rates_seen != self.catalogue.rate_changes
            and self.has_panel
            and (now > self.pace.drawn_at + _RATES_PERIOD)
        ):
            self.mark_interface()
        if now >= self._states_at:
            self._states_at = now + _STATES_PERIOD
            if self.interface.have_states_changed(self):
                self.mark_interface()

    def _hide(self) -> None:
        """The screen is not seen from now on: nothing that happens there is told."""
        self.let_go()
        if self._far:
            for viewport in self.layout:
                self.catalogue.drop_pictures(viewport)

    def due(self, now: float) -> bool:
        """Return whether to draw now."""
        return self.waiting and now >= self.next_drawing(now)

    def accepts_value(self, now: float) -> bool:
        """Return whether a new value would be seen soon.

        One for a remote screen is taken with the next picture.
        """
        in_time = not self._far or now >= self._next_pictures(now)
        return in_time and takes_pictures(self.screen)

    @property
    def waiting(self) -> bool:
        """True while there is something to draw, and the screen would take it."""
        return self._interface_waits or self._pictures_wait

    @property
    def _interface_waits(self) -> bool:
        """True while there is an interface to draw; with pictures, if it is no layer."""
        state = self.screen.state
        return self.dirty > 0 and state.visible and state.ready

    @property
    def _pictures_wait(self) -> bool:
        """True while there are pictures to draw that are a layer of their own."""
        layer = self.screen.interface
        if layer is None or not self.pictures_dirty or not layer.takes_pictures:
            return False
        return not all(viewport.is_pending for viewport in self.layout.seen)

    def may_draw(self, now: float) -> float:
        """Return the time of the next pictures at the earliest."""
        return self.pace.next(now)

    def next_drawing(self, now: float) -> float:
        """Return the time at which what waits may be drawn; inf for nothing."""
        if self.screen.interface is None:
            return self.pace.next(now)
        times = []
        if self._interface_waits:
            times.append(self._next_interface(now))
        if self._pictures_wait:
            times.append(self._next_pictures(now))
        return min(times, default=math.inf)

    def _next_pictures(self, now: float) -> float:
        """Return the time of the next pictures that are drawn apart, at the earliest.

        Slow ones that the user does not wait for leave time to use the interface.
        """
        earliest = self.pace.next(now)
        if self._pictures_answer or self._pictures_s < _SLOW_S:
            return earliest
        wanted = min(self._input_at + _USED_FOR, self._pictures_at + _LONGEST_WAIT)
        return max(earliest, wanted)

    def _next_interface(self, now: float) -> float:
        """Return the time of the next interface that is drawn apart, at the earliest.

        One that changes with the pictures is drawn with them, if they come soon.
        """
        earliest = self.pace.next_interface
        if self._interface_first or not self.pictures_dirty:
            return earliest
        pictures_at = self._next_pictures(now) if self._pictures_wait else math.inf
        return max(earliest, min(pictures_at, self.pace.drawn_at + _TOGETHER))

    # -- events ------------------------------------------------------------------------

    def take(self, event: Event, now: float) -> None:
        """Take in what the user did on the screen; numbers that mean nothing are
        dropped.
        """
        marks = self._marks
        self._take(event, now)
        if self._marks != marks:
            self._await_pictures()
        elif self._input_at == now:
            self._interface_answers = True

    def _await_pictures(self) -> None:
        """Note that the user waits for the next pictures."""
        self._pictures_answer = True
        self._interface_answers = False

    def _take(self, event: Event, now: float) -> None:
        checked = ev.bounded(event)
        if checked is None:
            return None
        event = checked
        self.held.note(event)
        self.interface.toasts.keep_pointed(self.state, self.held.pointer, now)
        keyboard.note_gesture(self, event, now)
        match event:
            case ev.Resize() | ev.Expose() | ev.Close():
                return self.mark(SETTLE)
            case ev.FileDrop():
                return self.do(self.drop, event.paths, event.done)
            case ev.Screenshot():
                return self.do(self.layout.active.keep_picture)
        if self.interface.palette.take_early(event):
            return self.mark(SETTLE)
        self.layout.place(area := self.area(), self.screen.state.scale)
        viewport = self.layout.meant(event)
        has_interface = not self.interface.state.bare
        covered: Sequence[Rect] = ()
        # What a drag passes over keeps it from nothing.
        if not (viewport.captured and isinstance(event, ev.PointerMove)):
            covered = self.layout.covered()
        ours, changed = self.interface.surface.input.handle(
            event,
            area if has_interface else None,
            self.screen.desktop.pasted,
            covered,
        )
        # Imgui takes a press in one picture and the release in the next: one more for
        # each event.
        if changed:
            self.mark_interface(min(max(self.dirty + 1, SETTLE), _MOST_SETTLE))
            self._hover_at = now + _HOVER
            if ours:
                self._input_at = now
        if keyboard.switches_help(self, event, ours) and not ours:
            return None
        if not ours and isinstance(event, ev.Key) and keyboard.take_key(self, event):
            return None
        if isinstance(event, ev.Key) and not event.pressed:
            for (
                other
            ) in self.layout:  # it was pressed when another one was the active one
                if other is not viewport:
                    other.take(event, ours)
        if isinstance(event, ev.PointerPress) and not ours:
            self.layout.activate(viewport)
        is_undone = viewport.take(event, ours) or ours
        if keyboard.is_escape(event) and not is_undone:
            # Nothing is left to undo but the full screen.
            self.screen.desktop.leave_full()
        if viewport.captured and isinstance(event, ev.PointerMove):
            # A camera that moves smoothly asks for its pictures later.
            self._await_pictures()
        return None

    def run(self, command: Command[User]) -> None:
        """Run one of the viewer's own commands, or tell why it cannot be done now."""
        reason = command.reason(self)
        if reason is not None:
            self.say(f"{command.title}: {reason}")
        elif command.name == PALETTE:
            # At once: what is typed next is for it.
            command.run(self)
        else:
            self.do(command.run, self)

    def open(self, path: Path) -> None:
        note_recent(self.catalogue.memo, path)
        if str(path) in self.catalogue.slots:
            self.select(str(path))
        else:
            self.drop([str(path)])

    def drop(
        self, paths: Iterable[str], done: Callable[[Path], None] | None = None
    ) -> None:
        """Open files, and show the last of them; camera paths are for what is shown.

        `done`: the files come from a page, and scenes and pictures are not decoded in
        this process; called with each that is not needed any more.
        """
        found = self.layout.active.working()
        files = [Path(path) for path in paths]
        for path in entries_of(files) if done is None else files:
            if found is not None and found[1].view.dropped(path):
                self.mark(SETTLE)
                if done is not None:
                    done(path)
                continue
            source = FileSource(path, sandboxed=done is not None)
            source.done = done
            viewport = self.layout.active
            before = viewport.key
            if before is not None and self._is_second(path, is_own=done is None):
                self.catalogue.open_file(source)
                self._openings.pair(viewport, before, str(path.absolute()))
            else:
                self.catalogue.open_file(source, viewport)
                self._openings.add(viewport, str(path.absolute()), before)

    def _is_second(self, path: Path, *, is_own: bool) -> bool:
        """Return whether a file is to be compared with the one that is shown.

        Args:
            path: is about to be opened.
            is_own: it is a file of the user of this machine.
        """
        found = self.layout.active.working()
        entry = self.layout.active.entry
        if found is None or entry is None or not entry.is_file:
            return False
        if found[1].empty or str(path.absolute()) == entry.key:
            return False
        kind = expected_format(path, is_trusted=is_own)
        return found[1].view.awaits_second(kind)

    def open_pair(self, first: Path, second: Path) -> None:
        """Open two files of one kind, and compare them."""
        viewport = self.layout.active
        keys = [str(path.absolute()) for path in (first, second)]
        for path, key in zip((first, second), keys, strict=True):
            if key not in self.catalogue.slots:
                self.catalogue.open_file(FileSource(path))
        viewport.select(keys[0])
        self._openings.pair(viewport, *keys)

    def area(self) -> Rect:
        """Return the part of the screen that the pictures have."""
        screen = self.screen.state
        return self.interface.place(screen.size, screen.scale).panes

    def mark(self, pictures: int = 1) -> None:
        """Draw at least so many pictures."""
        self._kept.renew(pictures)
        self.dirty = max(self.dirty, pictures)
        self.pictures_dirty = max(self.pictures_dirty, pictures)
        self._marks += 1

    def mark_pictures(self) -> None:
        """Draw pictures once more; the boards of the interface may stay for a moment."""
        self.dirty = max(self.dirty, 1)
        self.pictures_dirty = max(self.pictures_dirty, 1)
        self._marks += 1

    def mark_interface(self, times: int = 1) -> None:
        """Draw the interface so often at least; pictures only where it lies in them."""
        self._kept.renew(times)
        self.dirty = max(self.dirty, times)
        self._interface_first = True

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

    # -- commands: executed by the workspace, before the next picture ------------------

    def do(self, command: Callable[..., object], *values: Any) -> None:
        self.catalogue.do(command, *values)

    def choose(self, key: str) -> None:
        """Show an entry in the active viewport; if it is shown already, try again what
        failed.
        """
        if key != self.layout.active.key:
            self.select(key)
        elif (slot := self.shown) is not None:
            slot.entry.fault = ""
            self.mark(SETTLE)

    def show_beside(self, key: str | None) -> None:
        """Show an entry in another viewport, from where the active one looks."""
        leader = self.layout.active
        viewport = self.layout.add(key)
        for feature in self.catalogue.features:
            feature.join(viewport, leader)

    def switch_tie(self, viewport: Viewport) -> None:
        """Untie a viewport from the others, or tie it again."""
        for feature in self.catalogue.features:
            feature.switch_tie(viewport)

    def go_to_step(self, step: float) -> None:
        """Show the snapshot of a step in the active viewport and those tied to it."""
        features = self.catalogue.features
        if not any([f.go_to_step(self.layout.active, step) for f in features]):
            self.say("No snapshots are recorded of what is shown")

    def compare(self, how: str, key: str) -> None:
        """Show an entry with what the active viewport shows, as `Feature.compare`."""
        for feature in self.catalogue.features:
            feature.compare(how, self.layout.active, key)

    def on_viewport(
        self, what: Callable[[Layout, Viewport], None], viewport: Viewport
    ) -> None:
        """Activate, maximise or close a viewport, unless it was closed meanwhile."""
        if viewport in self.layout.all:
            what(self.layout, viewport)

    def pause(self, wish: Wish | None = None) -> None:
        """Pause the run of what is shown, have it continue or take a step; None: pause
        it, or continue if it is paused.
        """
        slot = told_slot(self)
        if slot is None or slot.entry.paused is None:
            return
        if wish is None:
            self.say(
                "The run goes on"
                if slot.entry.paused
                else "The run pauses at its next step"
            )
        slot.source.set_paused(not slot.entry.paused if wish is None else wish)

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

    def show_about(self) -> None:
        """Open the card about the viewer."""
        self.interface.about.open(self)
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

    def undo_reason(self) -> str | None:
        """Return why nothing can be undone now; None: something can."""
        return self.history.undo_reason()

    def redo_reason(self) -> str | None:
        """Return why nothing can be redone now; None: something can."""
        return self.history.redo_reason()

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

    # -- pictures ----------------------------------------------------------------------

    def draw(self, now: float) -> None:
        """Draw what is due, all but showing the pictures: see `present`."""
        self.state.selected = listed_key(self)
        self._rates_seen = self.catalogue.rate_changes
        self.layout.place(self.area(), self.screen.state.scale)
        layer = self.screen.interface
        if layer is not None:
            self._draw_layers(layer, now)
            return
        self.dirty -= 1
        self.pictures_dirty = self.dirty
        framebuffer = self.screen.framebuffer
        self._draw_pictures(framebuffer, now)
        self._seen_cameras.note(0, self._seen_views())
        self._seen_cameras.arrive(0)
        state = self.interface.state
        if state.hides_all or not state.bare:
            self._draw_interface(framebuffer, now)

    def _draw_layers(self, layer: InterfaceLayer, now: float) -> None:
        """Draw the interface and show it, and then the pictures, which may take long."""
        if self._interface_waits and now >= self._next_interface(now):
            self.dirty -= 1
            self._interface_first = False
            self.pace.draw_interface(now)
            self._draw_interface(layer.framebuffer, now, clear=True)
            answers = self._interface_answers or not self._pictures_answer
            layer.present(self._caption(), self._panes(), answers=answers)
        may_draw = self._pictures_wait and now >= self._next_pictures(now)
        self._drew_pictures = may_draw
        if may_draw:
            self.pictures_dirty -= 1
            self._pictures_at = now
            begin = time.perf_counter()
            self._draw_pictures(self.screen.framebuffer, now)
            self._pictures_s = time.perf_counter() - begin
            self._refresh_at = now + _TOGETHER

    def _draw_pictures(self, framebuffer: moderngl.Framebuffer, now: float) -> None:
        """Draw the pictures of all panes, with nothing over them."""
        self.pace.draw(now)
        area = self.area()
        self.layout.place(area, self.screen.state.scale)
        for feature in self.catalogue.features:
            feature.pull(self)
        if len(self.layout.seen) > 1:  # what lies between them
            framebuffer.use()
            framebuffer.clear(
                *BACKDROP, 1.0, viewport=area.viewport(framebuffer.height)
            )
        for viewport in self.layout.seen:
            viewport.draw(framebuffer)
        if self.interface.state.bare:
            # As a rule nothing is drawn over it: it need not wait for the words.
            self._work.flush()

    def _draw_interface(
        self, framebuffer: moderngl.Framebuffer, now: float, *, clear: bool = False
    ) -> None:
        """Draw the interface over pictures, or over nothing."""
        t = self.state.timings
        t.fps = self.pace.fps(now)
        self._rate_shown = t.fps >= 2
        if now >= self._say_at or not self._rate_shown:
            self._say_at = now + _SAID_FOR
            self.state.displayed_timings = replace(t, stages=dict(t.stages))
        work = partial(self._work, "panel", *framebuffer.size, self.has_panel)
        surface = self.interface.surface
        changed = False
        keeps = self._kept.may_keep(now)
        if keeps:
            self._refresh_at = min(self._refresh_at, self._kept.due)
        for frame in range(_MOST_FRAMES):
            surface.catches_up = frame < _MOST_FRAMES - 1
            changed |= self.interface.draw(
                self, framebuffer, work, clear=clear, keeps=keeps
            )
            if not surface.is_behind:
                break
        holds_keys = surface.input.holds_keys
        if surface.focus.is_moving or surface.is_behind or holds_keys:
            self.mark_interface(SETTLE)
        if changed:
            self.mark(SETTLE)

    def _seen_views(self) -> Iterator[View[Any, Any]]:
        """Yield what the panes show."""
        for viewport in self.layout.seen:
            if viewport.view is not None:
                yield viewport.view.view

    def _panes(self) -> list[Pane]:
        return [Pane(viewport.number, viewport.rect) for viewport in self.layout.seen]

    def _caption(self) -> Caption:
        caption = caption_of(self.layout.active.entry, self.interface.surface.is_typing)
        return msgspec.structs.replace(caption, light=self.state.light)

    def present(self, now: float) -> None:
        """Show what was drawn, and take down what it cost."""
        begin = time.perf_counter()
        layer = self.screen.interface
        if layer is None:
            self.screen.present(self._caption())
        elif self._drew_pictures:
            is_pending = any(viewport.is_pending for viewport in self.layout.seen)
            answers = self._pictures_answer and not is_pending
            number = layer.present_pictures(self._panes(), answers=answers)
            self._seen_cameras.note(number, self._seen_views())
            if answers:
                self._pictures_answer = False
        else:
            return
        self.pace.present()
        view = self.view
        t = self.state.timings
        governor = self._work.governor
        t.stages = {
            **(view.timings if view is not None else {}),
            "present": (time.perf_counter() - begin) * 1e3,
        }
        t.gpu_share = governor.account.used_share if governor.account.limited else None
        t.gpu_budget = governor.account.share
        t.gpu_memory = self.catalogue.gpu_memory.read(now)
        if view is not None and view.wants.cuda:
            waited_for = {"load", "scene"}
        else:
            waited_for = set()
        behind = sum(
            self._work.ms.get(w, 0.0) for w in governor.work_names - waited_for
        )
        ms = self.layout.active.latency_ms(0.0 if self._work.software else behind)
        if ms is not None:
            t.latency_ms = ms
