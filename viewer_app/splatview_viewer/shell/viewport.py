"""One part of a user's picture: which entry it shows.

A user has one, or several beside each other.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from splatview_viewer.core import events as ev
from splatview_viewer.core.command import command_of
from splatview_viewer.core.handed import HandedOn
from splatview_viewer.core.screen import Rect, clear_rect
from splatview_viewer.core.settings import BACKDROP
from splatview_viewer.core.view import PICTURE_S, Info, Section
from splatview_viewer.scene_view.tool import in_order
from splatview_viewer.shell.drawing_section import drawing_sections
from splatview_viewer.shell.kept_pictures import awaits_picture, keep_picture
from splatview_viewer.shell.run_record import record_commands, record_of
from splatview_viewer.shell.time_area import lane_of_command
from splatview_viewer.ui import theme
from splatview_viewer.ui.recovery import Faults
from splatview_viewer.ui.widgets import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import moderngl
    import torch

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.host import Host
    from splatview_viewer.core.lane import Lane
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.core.shown_view import ShownView
    from splatview_viewer.core.undoable import Undoable
    from splatview_viewer.core.view import Tab, Visit
    from splatview_viewer.shell.opening import Refusal
    from splatview_viewer.shell.user import User
    from splatview_viewer.workspace.slot import Slot

T = TypeVar("T")
_pane_numbers = count(1)


class Working(NamedTuple):
    """An entry and the view that shows it."""

    slot: Slot
    view: ShownView


class Viewport:
    """One viewport of the catalogue, with a view of its own of what it shows."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.number = next(_pane_numbers)
        """Names it for as long as it is open."""
        self.by_itself = True
        """True while the user has not chosen the entry."""
        self.rect = Rect(0, 0, 1, 1)
        """The rectangle of its picture."""
        self.head = Rect(0, 0, 1, 0)
        """The rectangle of the strip above it; of no height without one."""
        self.key: str | None = None
        """The entry that it shows."""
        self.cards: list[Rect] = []
        """The rectangles of the cards with buttons over it, in the last picture."""
        self.dismissed = ""
        """The end of a run that the user was told, and put away."""
        self.refusal: Refusal | None = None
        """The last file that could not be opened here, until the user put it away."""
        self.shows_details = False
        """All that is known of the refusal is shown."""
        self.captured = False
        """True while a drag that began in it lasts."""
        self.faults = Faults("viewport")
        """Faults of what one user sees and does here, which others do not see."""
        self.placed_number = 0
        """The number of the last place that the screen has moved the camera to."""
        self.reason_against_page = ""
        """Why a page that draws scenes gets pictures of it, in a sentence for users."""
        self._told_fault = ""
        """The last reason why input failed that the user was told."""
        self._picture_to_keep: bool | None = None
        """The user wants to keep a picture that another program draws now: True for one
        with nothing behind; None: none."""
        self._kept_by = math.inf
        """When that is given up."""
        self._timed_key: str | None = None
        """The entry whose latency is measured."""
        self._timed_ns = 0
        """Time of publishing of its last version that was measured."""

    # -- what it shows -----------------------------------------------------------------

    @property
    def slot(self) -> Slot | None:
        return self.user.catalogue.slot_of(self)

    @property
    def view(self) -> ShownView | None:
        """The view that shows it, from the first data on."""
        return self.user.catalogue.view(self)

    @property
    def entry(self) -> Entry | None:
        slot = self.slot
        if slot is None:
            return None
        return slot.entry

    def working(self) -> Working | None:
        """Return the entry and its view; None without, or where a fault is shown."""
        slot = self.slot
        view = self.view
        if slot is None or view is None or slot.entry.fault:
            return None
        return Working(slot, view)

    def _ask(self, call: Callable[[ShownView], T], otherwise: T) -> T:
        """Return the result of a call of the view; `otherwise` without one.

        Faults become the entry's.
        """
        working = self.working()
        if working is not None:
            with self.user.catalogue.guard(working.slot):
                return call(working.view)
        return otherwise

    def _attempt(
        self, part: str, call: Callable[[Slot, ShownView], T], otherwise: T
    ) -> T:
        """Return the result of a call for this user alone; `otherwise` without one.

        What it raises is noted in `faults` under `part`: the picture stays, also that
        of others.
        """
        working = self.working()
        if working is None:
            return otherwise
        self.faults.owner = working.slot.entry.name
        with self.faults.guard(part):
            return call(*working)
        return otherwise

    def select(self, key: str | None) -> None:
        """Show this entry because the user chose it.

        Only what is shown costs its trainer anything.
        """
        self.by_itself = False
        self.refusal = None
        self._picture_to_keep = None
        self.user.catalogue.show(self, key)

    @property
    def host(self) -> Host:
        return self.user.host

    @property
    def has_panel(self) -> bool:
        """True while the panel describes it."""
        return self.user.has_panel and self.user.layout.active is self

    # -- time, events, pictures --------------------------------------------------------

    @property
    def is_pending(self) -> bool:
        """True while its picture is drawn in steps, and it has nothing new to show."""
        return self._ask(lambda view: view.wants.pending, False)

    def tick(self, now: float) -> None:
        if self._picture_to_keep is not None:
            self._kept_by = min(self._kept_by, now + PICTURE_S)
            is_late = now >= self._kept_by
            self._try_to_keep(self._picture_to_keep, is_late=is_late)
        if self._ask(lambda view: view.tick(now), False):
            self.user.mark_pictures()

    def covered(self) -> Sequence[Rect]:
        """Return the rectangles of imgui's windows over the picture."""
        covered = self._attempt("covered", lambda _, view: view.covered(self.rect), ())
        return [*self.cards, *covered]

    def take(self, event: Event, is_taken: bool) -> bool:
        """Take what the user did over it; return whether the picture changes by it.

        `is_taken`: it was meant for the panel.
        """
        if isinstance(event, ev.PointerRelease):
            self.captured = False
        if self.working() is None:
            if _is_release(event):
                self._end(event)
            return False
        match event:
            case (
                ev.PointerPress()
                | ev.Wheel()
                | ev.Pinch()
                | ev.Text()
                | ev.Key(pressed=True)
            ) if is_taken:
                # A key that goes up may have gone down before a field was opened.
                return False
            case ev.PointerPress():
                self.captured = True
            case ev.PointerMove() if is_taken and not self.captured:
                event = ev.PointerLeave()
        has_changed = self._attempt(
            "input", lambda _, view: view.handle(event, self.rect), False
        )
        if has_changed and self.captured and isinstance(event, ev.PointerMove):
            self.user.mark_drag()
        elif has_changed:
            self.user.mark()
        reason = self.faults.reason("input")
        if reason:
            self._tell_input_fault(reason)
        return has_changed

    def take_place(self, event: ev.Placed) -> None:
        """Look from where the screen has moved the camera by itself."""
        has_changed = self._attempt(
            "input", lambda _, view: view.take_place(event.place), False
        )
        if has_changed and self._has_lines:
            self.user.mark()
        elif has_changed:
            # Nothing over the picture has to move with it.
            self.user.mark_pictures()

    @property
    def _has_lines(self) -> bool:
        """True if lines lie over the picture, at places of its scene."""
        return self._ask(lambda view: view.view.has_lines, False)

    def take_range(self, event: ev.Ranged) -> None:
        """Write what the colours of a picture mean that the screen draws by itself."""
        ends = (event.low, event.high)
        has_changed = self._attempt(
            "input",
            lambda _, view: view.take_range(event.show, ends, event.side),
            False,
        )
        if has_changed:
            self.user.mark_interface()

    def take_measurement(self, event: ev.Measured) -> None:
        """Show the difference that the screen has measured in its picture."""
        self._ask(lambda view: view.view.take_measurement(event.mean_square), None)
        self.user.mark_interface()

    def commands(self) -> Sequence[Command[Any]]:
        """Return what the user can ask of what it shows; each is run with the view."""
        commands = self._attempt("commands", lambda _, view: view.view.commands(), ())
        return [*commands, *record_commands(self)]

    def undoable_state(self) -> Any:
        """Return what undo can bring back of its view; None for nothing yet."""
        return self._attempt("undo", _undoable_state, None)

    def undoable_parts(self) -> Sequence[Undoable]:
        """Return the parts of its view that undo brings back as well."""
        return self._attempt("undo", lambda _, view: view.view.undoable_parts(), ())

    def find_commands(self, text: str) -> Sequence[Command[Any]]:
        """Return the commands of what it shows that are found by a text alone."""
        return self._attempt(
            "commands", lambda _, view: view.view.find_commands(text), ()
        )

    def visit(self) -> Visit | None:
        """Return what a phone shows in place of all else; None as a rule."""
        working = self.working()
        if working is None or working.view.empty:
            return None
        return self._attempt("visit", lambda _, view: view.view.visit(), None)

    def lanes(self) -> Sequence[Lane]:
        """Return the lanes of the time area of what it shows; none without data."""
        working = self.working()
        if working is None or working.view.empty:
            return ()
        return self._attempt("lanes", lambda _, view: view.view.lanes(), ())

    def record_view(self) -> ShownView | None:
        """Return the view of the recorded scene of its run, as `record_of`."""
        return record_of(self)

    def take_shortcut(self, event: ev.Key) -> bool:
        """Run the command of what it shows that a key is the shortcut of.

        Returns False without one.
        """
        command = command_of(
            self.commands(), msgspec.structs.replace(event, repeat=False)
        )
        if command is None:
            return False
        if command.repeats or not event.repeat:
            self.run(command)
        return True

    def run(self, command: Command[Any]) -> None:
        """Run a command of what it shows, or tell why it cannot be done now."""
        if self.working() is None:
            return
        reason = self.reason(command)
        if reason is not None:
            self.user.say(f"{command.title}: {reason}")
            return
        lane = lane_of_command(command.name)
        if lane is not None:
            self.user.interface.state.lane = lane
        self._attempt("input", lambda _, view: view.run(command), None)
        self.user.mark()
        fault = self.faults.reason("input")
        if fault:
            self._tell_input_fault(fault)

    def run_named(self, name: str) -> None:
        """Run the command of this name: "scene.save"; nothing where there is none."""
        for command in self.commands():
            if command.name == name:
                self.run(command)
                return

    def reason(self, command: Command[Any]) -> str | None:
        """Return why a command of what it shows cannot be run now; None: it can."""
        return self._attempt(
            "commands", lambda _, view: command.reason(view.view), "it failed"
        )

    def let_go(self) -> None:
        """End all that began with a key or button that is down.

        Its release will not come here.
        """
        for event in self.user.held.releases():
            if not isinstance(event, ev.PointerRelease) or self.captured:
                self._end(event)
        self.captured = False

    def _end(self, event: Event) -> None:
        """Give a release to the view, also where a fault is shown in its place."""
        view = self.view
        if view is not None:
            with self.faults.guard("input"):
                view.handle(event, self.rect)

    def _tell_input_fault(self, reason: str) -> None:
        """End a drag whose event the view could not take, and tell the user once."""
        self.captured = False
        if reason != self._told_fault:
            self._told_fault = reason
            self.user.say(f"That did not work: {reason}")

    def draw(self, framebuffer: moderngl.Framebuffer) -> None:
        def draw(view: ShownView) -> bool:
            self._prepare(view)
            view.draw(framebuffer, self.rect)
            return True

        if not self._ask(draw, False):
            clear_rect(framebuffer, self.rect, BACKDROP)

    def draw_on_device(self, gpu: int | None) -> torch.Tensor | None:
        """Draw with CUDA alone, as `View.draw_on_device`; None: `draw` has to."""

        def draw(view: ShownView) -> torch.Tensor | None:
            self._prepare(view)
            return view.draw_on_device(self.rect, gpu)

        return self._ask(draw, None)

    def hand_on(self) -> HandedOn:
        """Have the screen draw the view by itself, as far as that is possible."""

        def hand_on(view: ShownView) -> HandedOn:
            self._prepare(view)
            return view.hand_on(self.rect)

        handed = self._ask(hand_on, HandedOn())
        self.reason_against_page = handed.reason
        if handed.drawing is None:
            return handed
        covered = [(r.x, r.y, r.width, r.height) for r in self.covered()]
        drawing = msgspec.structs.replace(
            handed.drawing,
            placed=self.placed_number,
            covered=tuple(covered),
            link=self._link,
            is_active=self is self.user.layout.active,
        )
        return handed._replace(drawing=drawing)

    @property
    def _link(self) -> int | None:
        """A number that all panes have whose cameras move together."""
        links = [feature.link(self) for feature in self.user.catalogue.features]
        return next((link for link in links if link is not None), None)

    def draw_over_handed(self, framebuffer: moderngl.Framebuffer) -> None:
        """Draw what lies over a picture that the screen draws by itself."""

        def draw(view: ShownView) -> None:
            view.view.draw_over_handed(framebuffer, self.rect)

        self._ask(draw, None)

    def _prepare(self, view: ShownView) -> None:
        """Tell a view that is about to be drawn what is around it."""
        host = view.view.host
        # It changes with the monitor, and with a page's zoom.
        host.scale = self.user.screen.state.scale
        host.around = self.user.interface.surroundings

    @property
    def inner_tie(self) -> bool | None:
        """True if the two that its picture compares move together; None: it has none.

        Beside other panes it is tied to those instead.
        """
        working = self.working()
        if working is None or len(self.user.layout) > 1:
            return None
        return working[1].view.inner_tie()

    def draw_over(self, scale: float) -> bool:
        """Draw what the view writes over its picture, inside an imgui frame.

        Returns whether to draw the picture again.
        """

        def draw(_: Slot, view: ShownView) -> bool:
            view.view.host.in_active_pane = self.user.layout.active is self
            return view.draw_ui(self.rect, scale)

        return self._attempt("overlay", draw, False)

    def info(self) -> Info:
        """Return texts about what is shown."""
        return self._attempt("info", _info_of, Info())

    def describe(self, tab: Tab) -> tuple[list[Section], Info]:
        """Return the sections of a tab of the panel about it, and texts about it.

        There are no sections without a picture.
        """
        info = self.info()
        working = self.working()
        if working is None or working.view.empty:
            return [], info
        sections = self._attempt(
            "sections", lambda _, view: self._sections(view, tab), []
        )
        reason = self.faults.reason("sections")
        if reason:
            sections = [Section("View", lambda: _show_fault(reason), True, tab=tab)]
        return [self._guarded(section) for section in sections], info

    def _sections(self, view: ShownView, tab: Tab) -> list[Section]:
        """Return the parts of a tab in their order.

        The view's own controls are one of them.
        """
        sections = view.sections_of(tab)
        untitled = [section for section in sections if not section.title]
        titled = [section for section in sections if section.title]
        for feature in self.user.catalogue.features:
            titled += [s for s in feature.sections(self) if s.tab == tab]
        titled += self.user.interface.scripts.sections(self, tab)
        titled += drawing_sections(self, tab)

        def draw_own() -> bool:
            changes = [section.draw() for section in untitled]
            return any(changes)

        if untitled:
            titled = [Section("Show", draw_own, True, tab=tab), *titled]
        return in_order(titled)

    def _guarded(self, section: Section) -> Section:
        """Return a section that shows its fault in its own place."""
        part = f"section {section.title}"

        def draw() -> bool:
            changed = self._attempt(part, lambda *_: bool(section.draw()), False)
            reason = self.faults.reason(part)
            if reason:
                _show_fault(reason)
            return changed

        return replace(section, draw=draw)

    def latency_ms(self, behind: float) -> float | None:
        """Return the time since what it shows was published, once for each version.

        What was published before it was chosen here has waited for the user alone.

        Args:
            behind: milliseconds of the GPU's work that waits, beside loading.
        """
        slot = self.slot
        if slot is None or not slot.source.time_ns:
            return None
        published_ns = slot.source.time_ns
        if slot.entry.key != self._timed_key:
            self._timed_key = slot.entry.key
            self._timed_ns = published_ns
            return None
        if published_ns <= self._timed_ns:
            return None
        self._timed_ns = published_ns
        return max(time.time_ns() - published_ns, 0) * 1e-6 + behind

    def keep_picture(self, transparent: bool = False) -> None:
        """Give the user what the view shows, as large as the screen.

        Images and plots come with what is written over them, scenes without what only
        helps to look at them.

        transparent: with nothing behind, and nothing over.
        """
        self._kept_by = math.inf
        self._try_to_keep(transparent)

    def _try_to_keep(self, is_transparent: bool, is_late: bool = False) -> None:
        """Keep the picture; if another program still draws it, wait unless it is late."""
        working = self.working()
        if working is None or working.view.empty or self.user.screen.state.closed:
            return

        def keep(slot: Slot, view: ShownView) -> None:
            if awaits_picture(self.user, view):
                self._picture_to_keep = is_transparent
            else:
                keep_picture(self.user, slot.entry, view, is_transparent=is_transparent)

        self._picture_to_keep = None
        self._attempt("keeping the picture", keep, None)
        reason = self.faults.reason("keeping the picture")
        if self._picture_to_keep is not None:
            if not is_late:
                return
            self._picture_to_keep = None
            reason = f"it did not come within {PICTURE_S:g} s"
        if reason:
            self.user.say(f"The picture is not kept: {reason}")
        self.user.mark()


def _is_release(event: Event) -> bool:
    """Return whether an event ends what another one began."""
    goes_up = isinstance(event, ev.Key) and not event.pressed
    return goes_up or isinstance(event, (ev.PointerRelease, ev.PointerLeave))


def _undoable_state(_: Slot, view: ShownView) -> Any:
    if view.empty:
        return None
    return view.view.undoable_state()


def _info_of(slot: Slot, view: ShownView) -> Info:
    """Return the texts about what a view shows and where it comes from."""
    info = view.info
    return replace(
        info,
        extras=[*info.extras, *slot.source.notes],
        path=[slot.source.path, *info.path],
    )


def _show_fault(reason: str) -> None:
    """Write in the panel why a part of it is missing."""
    wrapped(f"This part failed: {reason}", theme.FAULT)
