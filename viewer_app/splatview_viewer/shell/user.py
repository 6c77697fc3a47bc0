"""One user of the viewer: a screen, and what it shows of the catalogue."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from splatview_viewer.core import events as ev
from splatview_viewer.core.host import Host
from splatview_viewer.core.screen import takes_pictures
from splatview_viewer.core.settings import State
from splatview_viewer.shell import keyboard, zones
from splatview_viewer.shell.commands import PALETTE
from splatview_viewer.shell.held import Held
from splatview_viewer.shell.interface import Interface
from splatview_viewer.shell.kept_interface import KeptInterface
from splatview_viewer.shell.layout import Layout
from splatview_viewer.shell.opening import Openings
from splatview_viewer.shell.pace import Pace
from splatview_viewer.shell.runs import told_slot
from splatview_viewer.shell.schedule import Schedule
from splatview_viewer.shell.undo import History
from splatview_viewer.shell.user_actions import UserActions
from splatview_viewer.shell.user_pictures import UserPictures
from splatview_viewer.workspace.catalogue import SETTLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect, Screen
    from splatview_viewer.core.settings import Wish
    from splatview_viewer.core.shown_view import ShownView
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.shell.viewport import Viewport
    from splatview_viewer.workspace.catalogue import Catalogue
    from splatview_viewer.workspace.slot import Slot

_MOST_SETTLE = 12
_STATES_PERIOD = 1.0
"""Seconds between two looks at the states of the runs."""
_HOVER = 0.35
"""Seconds that the pointer rests before the panel is drawn again, for tooltips."""


class User(UserActions):
    """Takes the events of one screen and draws its pictures.

    The views of several users share what they show.

    Every call comes from the thread that holds the OpenGL context, which is the same
    for all users.
    """

    def __init__(
        self,
        screen: Screen,
        catalogue: Catalogue,
        gpu_work: GpuWork,
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
        self.schedule = Schedule(self)
        """What has to be drawn, and when."""
        self.kept_interface = KeptInterface(self)
        self._pictures = UserPictures(self, gpu_work)
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
        self.pace = Pace(gpu_work, max_fps)
        self._far = far
        self._was_seen = True
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
        is_small = zones.is_phone(screen.size, screen.scale)
        interface.state.panel_open = has_panel and not is_small
        return interface

    def sit(self, screen: Screen) -> None:
        """Continue on another screen, after a browser connected again."""
        self.screen = screen
        self._pictures.forget_sent()
        self.let_go()
        self.layout.observe(True)
        self.mark(SETTLE)

    def rise(self) -> None:
        """Leave the screen.

        What was chosen, cameras included, is kept; what is held down is let go.
        """
        self.let_go()
        self.layout.observe(False)

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

    # -- time --------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due, once in each turn of the loop."""
        self.interface.use_units()
        was_visible = self._was_seen
        self._was_seen = self.screen.state.visible
        if was_visible and not self._was_seen:
            self._hide()
        for viewport in self.layout.visible_viewports:
            viewport.tick(now)
        for feature in self.catalogue.features:
            if feature.tick(self, now):
                self.mark_interface()
        self._openings.watch()
        self.history.watch(now)
        if self.interface.toasts.end_old(self.state, now):
            self.mark_interface()
        self._pictures.tick(now)
        if now >= self._hover_at:
            self._hover_at = math.inf
            self.mark_interface(SETTLE)
        if self.interface.surface.input.wait(now):
            self.mark_interface(SETTLE)
        for event in self.interface.surface.input.take_unclaimed():
            self.take(event, now)
        if now >= self._states_at:
            self._states_at = now + _STATES_PERIOD
            if self.interface.have_states_changed(self):
                self.mark_interface()

    def _hide(self) -> None:
        """Release what is down on a hidden screen: its end will not be reported."""
        self.let_go()
        if self._far:
            for viewport in self.layout:
                self.catalogue.drop_pictures(viewport)

    # -- pictures ----------------------------------------------------------------------

    @property
    def dirty(self) -> int:
        """Pictures that have to be drawn, with the interface over them."""
        return self.schedule.dirty

    def mark(self, pictures: int = 1) -> None:
        self.schedule.mark(pictures)

    def mark_pictures(self) -> None:
        """Draw pictures once more; the interface may stay as it is for a moment."""
        self.schedule.mark_pictures()

    def mark_drag(self) -> None:
        """Draw pictures once more, and lines over them; only boards may stay."""
        self.schedule.mark_pictures()
        self.kept_interface.drop()

    def mark_interface(self, times: int = 1) -> None:
        """Draw the interface so often at least; pictures only where it lies in them."""
        self.schedule.mark_interface(times)

    @property
    def waiting(self) -> bool:
        """True while there is something to draw, and the screen would take it."""
        return self.schedule.waiting

    def next_drawing(self, now: float) -> float:
        """Return the time at which what waits may be drawn; inf for nothing."""
        return self.schedule.next_drawing(now)

    def due(self, now: float) -> bool:
        """Return whether to draw now."""
        return self.waiting and now >= self.next_drawing(now)

    def draw(self, now: float) -> None:
        """Draw what is due, all but showing the pictures: see `present`."""
        self._pictures.draw(now)

    def present(self, now: float) -> None:
        """Show what was drawn, and take down what it cost."""
        self._pictures.present(now)

    def accepts_value(self, now: float) -> bool:
        """Return whether a new value would be seen soon.

        One for a remote screen is taken with the next picture.
        """
        in_time = not self._far or now >= self.schedule.next_pictures(now)
        is_shown_soon = in_time and takes_pictures(self.screen)
        return is_shown_soon and self._pictures.awaits_versions

    @property
    def draws_aside(self) -> bool:
        """True while the screen draws all pictures by itself."""
        return self._pictures.are_all_handed

    def may_draw(self, now: float) -> float:
        """Return the time of the next pictures at the earliest."""
        return self.pace.next(now)

    # -- events ------------------------------------------------------------------------

    def take(self, event: Event, now: float) -> None:
        """Take in what the user did on the screen.

        Numbers that mean nothing are dropped.
        """
        schedule = self.schedule
        marks = schedule.marks
        self.interface.use_units()
        self._take(event, now)
        if schedule.marks != marks:
            schedule.await_pictures()
        elif schedule.input_at == now:
            schedule.interface_answers = True

    def _take(self, event: Event, now: float) -> None:
        checked = ev.bounded(event)
        if checked is None:
            return
        event = checked
        self.held.note(event)
        self.interface.toasts.keep_pointed(self.state, self.held.pointer, now)
        keyboard.note_gesture(self, event, now)
        if self._take_of_screen(event):
            return
        self.layout.place(self.area(), self.screen.state.scale)
        viewport = self.layout.viewport_of(event)
        is_taken = self._offer_interface(event, viewport, now)
        if keyboard.switches_help(self, event, is_taken) and not is_taken:
            return
        if isinstance(event, ev.Key) and not is_taken:
            is_done = keyboard.take_key(self, event)
            if is_done:
                return
        self._give_to_viewports(event, viewport, is_taken)

    def _take_of_screen(self, event: Event) -> bool:
        """Take what the screen itself tells; return whether it was such an event."""
        match event:
            case ev.Resize() | ev.Expose() | ev.Close():
                self.mark(SETTLE)
            case ev.FileDrop():
                self.do(self.drop, event.paths, event.done)
            case ev.Screenshot():
                self.do(self.layout.active.keep_picture)
            case ev.Placed():
                self._take_place(event)
            case ev.Ranged():
                self._take_range(event)
            case ev.Measured():
                self._take_measurement(event)
            case _:
                return False
        return True

    def _take_place(self, event: ev.Placed) -> None:
        """Have a pane look from where the screen has moved its camera."""
        self.interface.surface.input.leave_keys_to_picture()
        for viewport in self.layout.visible_viewports:
            viewport.placed_number = event.number
            if viewport.number == event.pane:
                self.layout.activate(viewport)
                viewport.take_place(event)

    def _take_range(self, event: ev.Ranged) -> None:
        for viewport in self.layout.visible_viewports:
            if viewport.number == event.pane:
                viewport.take_range(event)

    def _take_measurement(self, event: ev.Measured) -> None:
        """Tell of the difference that the screen has measured in a pane."""
        for viewport in self.layout.visible_viewports:
            if viewport.number == event.pane:
                viewport.take_measurement(event)

    def _offer_interface(self, event: Event, viewport: Viewport, now: float) -> bool:
        """Offer an event to the interface; return whether it is for that alone."""
        covered: Sequence[Rect] = ()
        # What a drag passes over keeps it from nothing.
        if not (viewport.captured and isinstance(event, ev.PointerMove)):
            covered = self.layout.covered()
        area = None
        if not self.interface.state.bare:
            area = self.area()
        is_taken, has_changed = self.interface.surface.input.handle(
            event, area, self.screen.desktop.pasted, covered
        )
        # Imgui takes a press in one picture and the release in the next: one more for
        # each event.
        if has_changed:
            self.mark_interface(min(max(self.dirty + 1, SETTLE), _MOST_SETTLE))
            self._hover_at = now + _HOVER
            if is_taken:
                self.schedule.input_at = now
        return is_taken

    def _give_to_viewports(
        self, event: Event, viewport: Viewport, is_taken: bool
    ) -> None:
        """Give an event to the viewport that it is for.

        is_taken: it was for the interface, so that only ends count.
        """
        if isinstance(event, ev.Key) and not event.pressed:
            # It was pressed when another one was the active one.
            for other in self.layout:
                if other is not viewport:
                    other.take(event, is_taken)
        if isinstance(event, ev.PointerPress) and not is_taken:
            self.layout.activate(viewport)
        is_undone = viewport.take(event, is_taken) or is_taken
        if keyboard.is_escape(event) and not is_undone:
            # Nothing is left to undo but the full screen.
            self.screen.desktop.leave_full()
        if viewport.captured and isinstance(event, ev.PointerMove):
            # A camera that moves smoothly asks for its pictures later.
            self.schedule.await_pictures()

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

    def area(self) -> Rect:
        """Return the part of the screen that the pictures have."""
        screen = self.screen.state
        return self.interface.place_zones(screen.size, screen.scale).panes

    def show_about(self) -> None:
        """Open the card about the viewer."""
        self.interface.about.open(self)
        self.mark(SETTLE)

    def pause(self, wish: Wish | None = None) -> None:
        """Pause the run of what is shown, have it continue or take a step.

        None: pause it, or continue if it is paused.
        """
        slot = told_slot(self)
        if slot is None or slot.entry.paused is None:
            return
        if wish is None:
            wish = not slot.entry.paused
            message = "The run pauses at its next step"
            if slot.entry.paused:
                message = "The run goes on"
            self.say(message)
        slot.source.set_paused(wish)
