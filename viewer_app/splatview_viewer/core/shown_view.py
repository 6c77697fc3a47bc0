"""The handle of a view, for the workspace, viewports and still pictures."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from splatview_viewer.core.handed import HandedOn
from splatview_viewer.core.screen import clear_rect
from splatview_viewer.core.settings import BACKDROP
from splatview_viewer.core.view import Info, PlacedState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import moderngl
    import torch

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.handed import HandedPlace
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.view import Section, Tab, Value, View, Wants

_SAME_SIZE = 2
"""Pixels by which the sides of two rectangles of one size differ at most."""


@dataclass
class _SharedData:
    """The views that share their data, and whether it has had a value."""

    views: int = 0
    has_value: bool = False


class ShownView:
    """A view as the workspace, a viewport or a still picture holds it.

    It draws the backdrop until data came, passes events and imgui on from then, reports
    changes of the state, follows other views of its kind, and ends the data with the
    last view of it.
    """

    def __init__(self, view: View[Any, Any], shared: _SharedData | None = None) -> None:
        self.view = view
        self.kind = view.kind
        self.content = view.data
        self._shared = shared or _SharedData()
        self._shared.views += 1
        self.rect: Rect | None = None
        """The rectangle that it was used in last."""
        self._closed = False

    @property
    def wants(self) -> Wants:
        return self.view.wants

    @property
    def info(self) -> Info:
        if self.empty:
            return Info()
        return self.view.info()

    @property
    def timings(self) -> Mapping[str, float]:
        if not self._shared.has_value:
            return {}
        return self.view.timings

    @property
    def empty(self) -> bool:
        return not self._shared.has_value

    def another_view(self) -> ShownView:
        """Make another view of the same data, which sees all of the picture at first."""
        state = self.view.state
        if isinstance(state, PlacedState):
            state = replace(state, place=type(state.place)())
        return ShownView(type(self.view)(self.view.data, state), self._shared)

    def follow(self, leader: ShownView, alike: bool = False) -> None:
        """Show the part that `leader`, whose place is of the same type, shows.

        Args:
            alike: with the same settings as well, where both are of one kind.
        """
        state = self.view.state
        if alike and leader.kind == self.kind:
            state = self.view.state_from(leader.view)
        if isinstance(state, PlacedState):
            state = replace(state, place=self.view.place_from(leader.view))
        rect = leader.rect
        is_alike = rect is None or _are_alike(rect, self.rect)
        if rect is not None and not is_alike and isinstance(state, PlacedState):
            state = replace(state, place=state.place.seen_from(rect))
        self.view.state = state

    @property
    def look(self) -> dict[str, Any]:
        """The settings of how it shows its entry, by their names in the state."""
        unshared = {"place", *getattr(type(self.view.state), "UNSHARED", ())}
        names = [field.name for field in fields(self.view.state)]
        return {n: getattr(self.view.state, n) for n in names if n not in unshared}

    def follow_look(self, leader: ShownView) -> None:
        """Show its own entry in the way in which `leader`, of the same kind, does."""
        self.view.state = replace(self.view.state, **leader.look)

    def update(self, value: Value) -> bool:
        """Take a value; return False where it was overwritten meanwhile."""
        is_taken = self.view.take("", value)
        self._shared.has_value |= is_taken
        return is_taken

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw the view, or the backdrop while it is empty."""
        self.rect = rect
        if self._shared.has_value:
            self.view.draw(framebuffer, rect)
            return
        clear_rect(framebuffer, rect, BACKDROP)

    def draw_on_device(self, rect: Rect, gpu: int | None) -> torch.Tensor | None:
        """Draw the view with CUDA alone, as `View.draw_on_device`."""
        if not self._shared.has_value:
            return None
        self.rect = rect
        return self.view.draw_on_device(rect, gpu)

    def hand_on(self, rect: Rect) -> HandedOn:
        """Have a screen draw the view by itself, as `View.hand_on`."""
        if not self._shared.has_value:
            return HandedOn()
        self.rect = rect
        return self.view.hand_on(rect)

    def covered(self, rect: Rect) -> Sequence[Rect]:
        if not self._shared.has_value:
            return ()
        return self.view.covered(rect)

    def draw_ui(self, rect: Rect, scale: float) -> bool:
        """Draw with imgui over the picture; return whether to draw it again."""
        if not self._shared.has_value:
            return False
        return self._draws_again(partial(self.view.ui, rect, scale))

    def handle(self, event: Event, rect: Rect) -> bool:
        """Take a user's event; return whether to draw the picture again."""
        self.rect = rect
        if not self._shared.has_value:
            return False
        return self._draws_again(partial(self.view.handle, event, rect))

    def take_range(self, show: str, ends: tuple[float, float], side: int = 0) -> bool:
        """Take a range of numbers from a screen, as `View.take_range`."""
        if not self._shared.has_value:
            return False
        return self.view.take_range(show, ends, side)

    def take_place(self, place: HandedPlace) -> bool:
        """Take a camera from a screen, as `View.take_place`."""
        if not self._shared.has_value:
            return False
        return self._draws_again(partial(self.view.take_place, place))

    def run(self, command: Command[Any]) -> None:
        """Run one of the view's commands; the picture is to be drawn again then."""
        if not self.empty:
            command.run(self.view)

    def tick(self, now: float) -> bool:
        return self._draws_again(partial(self.view.tick, now))

    def work(self) -> bool:
        return not self._closed and self.view.work()

    def _draws_again(self, call: Callable[[], bool | None]) -> bool:
        """Make a call that may change the state; return whether to draw again."""
        previous = self.view.state
        if call():
            return True
        state = self.view.state
        return state is not previous and state != previous

    @property
    def sections(self) -> list[Section]:
        """Its parts of the panel; those without a title are its own controls."""
        return self._guarded(self.view.panel())

    def sections_of(self, tab: Tab) -> list[Section]:
        """Return its parts of one tab of the panel: no others are drawn."""
        return self._guarded([s for s in self.view.panel() if s.tab == tab])

    def _guarded(self, own_sections: Sequence[Section]) -> list[Section]:
        """Return sections of the view that report changes of its state."""
        sections = []
        for section in own_sections:
            draw = partial(self._draws_again, section.draw)
            reset = None
            if section.reset is not None:
                reset = partial(self._draws_again, section.reset)
            sections.append(replace(section, draw=draw, reset=reset))
        return sections

    def close(self) -> None:
        """Close the view, and the data with the last one of it. Idempotent."""
        if not self._closed:
            self._closed = True
            self._shared.views -= 1
        if self._shared.views:
            self.view.release("closed")
        else:
            self.view.release("last")


def _are_alike(rect: Rect, second: Rect | None) -> bool:
    """Return whether two rectangles are of one size, but for a line between panes."""
    if second is None:
        return False
    width_change = abs(rect.width - second.width)
    return width_change <= _SAME_SIZE and abs(rect.height - second.height) <= _SAME_SIZE
