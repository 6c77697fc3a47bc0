"""Two entries of a kind in one picture: split by a line, blended, or subtracted."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import moderngl
import msgspec

from splatview_viewer.compare.pair_words import distinct_names, for_lead
from splatview_viewer.core.events import (
    Key,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
)
from splatview_viewer.core.handed import HandedOn, HandedSecond
from splatview_viewer.core.host import Host
from splatview_viewer.core.quantities import psnr_text
from splatview_viewer.core.screen import Rect, clear_rect
from splatview_viewer.core.settings import BACKDROP
from splatview_viewer.core.view import Info, KeyHelp, Section, View, Wants
from splatview_viewer.render.pair_compositor import PairCompositor, psnr_of
from splatview_viewer.ui.divider import EDGED_POINTS, MIN_SHARE, Divider
from splatview_viewer.ui.legend import draw_difference_legend, place_legend
from splatview_viewer.workspace.sources import ValueSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.handed import HandedPlace
    from splatview_viewer.core.lane import Lane
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.core.shown_view import ShownView
    from splatview_viewer.core.view import Playback, Release, Value
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.workspace.catalogue import Catalogue

T = TypeVar("T")
PairStateMode = Literal["split", "difference", "blend"]
_TITLES: dict[PairStateMode, str] = {
    "split": "Split",
    "difference": "Difference",
    "blend": "Over",
}
_MEASURE_DELAY_S = 0.25
"""Seconds from a picture to the measurement of its PSNR."""
_KEY = KeyHelp(
    "Compare", "Drag the line", "See more of one side; a double click: both alike"
)


@dataclass(frozen=True)
class PairPlace:
    """The states of both views."""

    sides: tuple[Any, Any] = (None, None)
    """None: as that view is by itself."""

    def seen_from(self, rect: Rect) -> PairPlace:
        """Return a place with which any other rectangle shows all that `rect` shows."""
        first, second = (
            side and replace(side, place=side.place.seen_from(rect))
            for side in self.sides
        )
        return PairPlace((first, second))


@dataclass(frozen=True)
class PairState:
    """The way in which two views make one picture."""

    mode: PairStateMode = "split"
    position: float = 0.5
    """The line, 0 to 1 from the left; or the opacity of the second view."""
    gain: float = 4.0
    """Factor of differences."""
    alike: bool = True
    """Both have the same settings, and not only the same place."""
    active_side: int = 0
    """The side that was pressed last, 0 or 1. The other one follows it; panel and keys
    are its own."""
    place: PairPlace = PairPlace()


@dataclass(eq=False)
class PairSide:
    """A viewport, for the catalogue: what it shows is drawn by a `PairView`."""

    key: str | None
    """None: its `PairView` was closed."""
    host: Host = field(default_factory=Host)


class PairSource(ValueSource):
    """The source of an entry that shows two others. Shared by all views of it.

    The others have sources of their own.
    """

    path = "compared"

    def __init__(
        self,
        catalogue: Catalogue,
        keys: tuple[str, str],
        ctx: moderngl.Context,
        gpu_work: GpuWork,
    ) -> None:
        self.catalogue = catalogue
        self.uses = keys
        self.ctx = ctx
        self.gpu_work = gpu_work
        self.compositors: list[PairCompositor] = []

    def refresh(self, entry: Entry, now: float) -> None:
        if any(key not in self.catalogue.slots for key in self.uses):
            self.catalogue.forget(entry.key)


class PairView(View[PairSource, PairState]):
    """One user's view: two views, each as if it were alone, and one picture of both."""

    kind: ClassVar[str] = "pair"

    def __init__(self, data: PairSource, state: PairState) -> None:
        # The state, which `View` sets, is handed to the sides.
        self._sides = [PairSide(key) for key in data.uses]
        self.host = Host()
        super().__init__(data, state)
        self.psnr: float | None = None
        """PSNR of the two pictures a moment ago, dB."""
        self._compositor = PairCompositor(data.ctx, data.gpu_work)
        data.compositors.append(self._compositor)
        self._divider = Divider()
        self._is_dragging = False
        self._now = 0.0
        self._measure_at = math.inf
        self._framebuffer_size = 1, 1
        """Size of the framebuffer that was drawn into, in `_rect`."""
        self._rect = Rect(0, 0, 1, 1)

    @property
    def state(self) -> PairState:  # type: ignore[override]
        states: list[Any] = [None, None]
        for side, view in enumerate(self._both()):
            if view is not None:
                states[side] = view.view.state
        first, second = states
        return replace(self._state, place=PairPlace((first, second)))

    @state.setter
    def state(self, state: PairState) -> None:
        self._state = state
        for view, side_state in zip(self._both(), state.place.sides, strict=True):
            if view is not None and side_state is not None:
                view.view.state = side_state

    def undoable_state(self) -> PairState | None:
        both = [view for view in self._both() if view is not None]
        if len(both) < 2 or any(view.view.undoable_state() is None for view in both):
            return None
        return self.state

    def restore(self, state: PairState) -> None:
        self._state = state
        for view, side_state in zip(self._both(), state.place.sides, strict=True):
            if view is not None and side_state is not None:
                view.view.restore(side_state)

    @property
    def shows_scene(self) -> bool:  # type: ignore[override]
        return any(view.view.shows_scene for view in self.views)

    def hand_on(self, rect: Rect) -> HandedOn:
        self._rect = rect
        # The screen measures it.
        self._measure_at = math.inf
        leader = self._lead_side
        both = self._both()
        lead_view = both[leader]
        following_view = both[1 - leader]
        if lead_view is None or following_view is None:
            return HandedOn(reason="One of two scenes that are compared is missing.")
        reason = self.handing_obstacle()
        if reason:
            return HandedOn(reason=reason)
        handed = dict[int, HandedOn]()
        for side, view in ((leader, lead_view), (1 - leader, following_view)):
            if side != leader:
                view.follow(lead_view, self._state.alike)
            handed[side] = self._hand_on_side(side, rect)
            if handed[side].drawing is None:
                return handed[side]
            # The page hides lines while its camera is elsewhere.
            view.view.seen_camera = None
        return self._handed_pair(handed[0], handed[1], rect)

    def _hand_on_side(self, side: int, rect: Rect) -> HandedOn:
        handed = self._call_sides(lambda view: view.hand_on(rect), [side])
        return next(iter(handed), HandedOn())

    def _handed_pair(self, first: HandedOn, second: HandedOn, rect: Rect) -> HandedOn:
        """Return what a screen draws of two that were handed on alone."""
        assert first.drawing is not None
        assert second.drawing is not None
        state = self._state
        grips = first.drawing.grips
        line = 0.0
        if state.mode == "split":
            scale = self.host.scale
            line = EDGED_POINTS * scale
            grip = self.divider.grip(rect, scale)
            grips = (*grips, (grip.x, grip.y, grip.width, grip.height))
        handed_second = HandedSecond(
            look=second.drawing.look,
            near=second.drawing.place.near,
            far=second.drawing.place.far,
            mode=state.mode,
            position=self._position_in(rect),
            gain=state.gain,
            line=line,
        )
        drawing = msgspec.structs.replace(
            first.drawing, second=handed_second, grips=grips
        )
        return first._replace(drawing=drawing, second=second)

    def handing_obstacle(self) -> str:
        views = [view.view for view in self.views]
        for view in views:
            obstacle = view.handing_obstacle()
            if obstacle:
                return obstacle
        if len(views) == 2 and views[0].has_own_frame(views[1]):
            return "The two scenes have cameras of their own: up or scale differs."
        return ""

    def draw_over_handed(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        if self._state.mode == "difference":
            return

        def draw(view: ShownView) -> None:
            view.view.draw_over_handed(framebuffer, rect)

        line = rect.x + round(self._position_in(rect) * rect.width)
        regions = [rect, rect]
        if self._state.mode == "split":
            right = rect.x + rect.width
            regions[0] = replace(rect, width=line - rect.x)
            regions[1] = replace(rect, x=line, width=right - line)
        previous = framebuffer.scissor
        for side, region in enumerate(regions):
            framebuffer.scissor = region.viewport(framebuffer.height)
            self._call_sides(draw, [side])
        framebuffer.scissor = previous

    def take_range(self, show: str, ends: tuple[float, float], side: int = 0) -> bool:
        view = self._both()[side]
        return view is not None and view.take_range(show, ends)

    def take_measurement(self, mean_square: float) -> None:
        self.psnr = psnr_of(mean_square)

    def take_place(self, place: HandedPlace) -> bool:
        lead = self.lead
        return lead is not None and lead.take_place(place)

    def legend_place(self, rect: Rect, scale: float) -> Rect | None:
        if self._state.mode != "difference" or len(self.views) < 2:
            return None
        return place_legend(rect, scale)

    # -- the two views -----------------------------------------------------------------

    def _both(self) -> list[ShownView | None]:
        """Return the view of each side, None for one that has nothing to show."""
        return [self._view_of(side) for side in self._sides]

    def _view_of(self, side: PairSide) -> ShownView | None:
        catalogue = self.data.catalogue
        slot = catalogue.slot_of(side)  # type: ignore[arg-type]
        side.host = self.host
        if slot is None or slot.entry.fault:
            return None
        view = catalogue.view(side)  # type: ignore[arg-type]
        if view is None:
            return None
        previous = view.view.host
        view.view.host = replace(
            self.host,
            name=previous.name,
            identity=previous.identity,
            resend=previous.resend,
            is_subtracted=self._state.mode == "difference",
            # Both pictures are of one camera.
            in_steps=False,
            in_active_pane=False,
        )
        if view.empty:
            return None
        return view

    @property
    def views(self) -> list[ShownView]:
        """The views that have something to show."""
        return [view for view in self._both() if view is not None]

    @property
    def _lead_side(self) -> int:
        """The side that the other one follows."""
        active = self._state.active_side
        if self._both()[active] is None:
            return 1 - active
        return active

    @property
    def lead(self) -> ShownView | None:
        """The view that the other one follows."""
        return self._both()[self._lead_side]

    def _call_sides(
        self, call: Callable[[ShownView], T], sides: Sequence[int] = (0, 1)
    ) -> list[T]:
        """Call a function with the views of some sides, and return the results.

        A fault is shown in place of its side, and the other one goes on.
        """
        catalogue = self.data.catalogue
        both = self._both()
        results = list[T]()
        for index in sides:
            view = both[index]
            if view is not None:
                slot = catalogue.slots[self.data.uses[index]]
                with catalogue.guard(slot):
                    results.append(call(view))
        return results

    # -- pictures ----------------------------------------------------------------------

    def take(self, link: str, value: Value) -> bool:
        """Return True: the values are those of the two entries."""
        return True

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        state = self._state
        self._framebuffer_size = framebuffer.size
        self._rect = rect
        if self._draw_sides():
            self._compositor.draw(
                framebuffer,
                rect,
                state.mode,
                self._position_in(rect),
                state.gain,
                source_rect=rect,
            )
            self._measure_at = min(self._measure_at, self._now + _MEASURE_DELAY_S)
            return
        self._forget_psnr()
        if not self._draw_into(framebuffer, (0, 1)):
            clear_rect(framebuffer, rect, BACKDROP)

    def _position_in(self, rect: Rect) -> float:
        """Return the line between two columns of pixels, or the opacity."""
        if self._state.mode != "split":
            return self._state.position
        return (self.divider.x(rect) - rect.x) / max(rect.width, 1)

    def _forget_psnr(self) -> None:
        self.psnr = None
        self._measure_at = math.inf

    def _draw_sides(self) -> bool:
        """Draw both into targets as large as the framebuffer.

        Returns False where one is missing or fails.
        """
        leader = self._state.active_side
        follower = 1 - leader
        both = self._both()
        lead_view = both[leader]
        following_view = both[follower]
        if lead_view is None or following_view is None:
            return False
        dtype: Literal["f4", "f1"] = "f1"
        if self._state.mode == "difference":
            dtype = "f4"
        width, height = self._framebuffer_size
        lead_target, following_target = (
            self._compositor.target(side, width, height, dtype)
            for side in (leader, follower)
        )
        drawn_count = self._draw_into(lead_target, [leader])
        # The leader may find its place when it is drawn: the other follows afterwards.
        following_view.follow(lead_view, self._state.alike)
        drawn_count += self._draw_into(following_target, [follower])
        return drawn_count == 2

    def _draw_into(
        self, framebuffer: moderngl.Framebuffer, sides: Sequence[int]
    ) -> int:
        """Draw some sides into a framebuffer; return how many were drawn."""

        def draw(view: ShownView) -> None:
            view.draw(framebuffer, self._rect)

        return len(self._call_sides(draw, sides))

    def ui(self, rect: Rect, scale: float) -> bool:
        lead = self.lead
        try:
            return lead is not None and lead.draw_ui(rect, scale)
        finally:
            self._draw_line(rect, scale)
            if self._state.mode == "difference" and len(self.views) == 2:
                draw_difference_legend(self._state.gain, rect, scale)

    def _draw_line(self, rect: Rect, scale: float) -> None:
        """Draw the line between both, and the names on either side."""
        if self._state.mode == "split" and len(self.views) == 2:
            slots = self.data.catalogue.slots
            entries = [slots[key].entry for key in self.data.uses]
            first, second = distinct_names(entries)
            self.divider.draw(rect, scale, (first, second))

    # -- events and time ---------------------------------------------------------------

    @property
    def divider(self) -> Divider:
        """The line, at the position of the state."""
        self._divider.position = min(
            max(self._state.position, MIN_SHARE), 1 - MIN_SHARE
        )
        return self._divider

    def handle(self, event: Event, rect: Rect) -> bool:
        is_split = self._state.mode == "split"
        if is_split and not self._is_dragging:
            divider = self.divider
            needs_redraw = divider.handle(event, rect, self.host.scale)
            if needs_redraw is not None:
                self._state = replace(self._state, position=divider.position)
                return needs_redraw
        sides = self._sides_of(event, rect, is_split)
        if isinstance(event, PointerPress):
            self._is_dragging = True
            self._state = replace(self._state, active_side=sides[0])
        elif isinstance(event, PointerRelease):
            self._is_dragging = False
        both = self._both()
        views = [both[side] for side in sides]
        # A fault is for the viewport of this user: others see both sides as before.
        return any(view.handle(event, rect) for view in views if view is not None)

    def _sides_of(self, event: Event, rect: Rect, is_split: bool) -> list[int]:
        """Return the sides that an event is for."""
        is_pointed = isinstance(event, (PointerMove, PointerPress))
        if is_pointed and not self._is_dragging:
            return [int(is_split and event.x >= self.divider.x(rect))]
        is_key_release = isinstance(event, Key) and not event.pressed
        if isinstance(event, PointerLeave) or is_key_release:
            # It ends what may have begun on either side.
            return [0, 1]
        return [self._lead_side]

    def tick(self, now: float) -> bool:
        self._now = now
        needs_redraw = any(self._call_sides(lambda view: view.tick(now)))
        if now < self._measure_at:
            return needs_redraw
        if any(self._call_sides(self._awaits_picture)):
            return needs_redraw
        previous = _psnr_phrases(self.psnr)
        self._measure_at = math.inf
        # The pictures are without what only helps to look at them. The framebuffer is
        # bound as before afterwards.
        bound = self.data.ctx.scope(
            self.data.ctx.detect_framebuffer(), moderngl.NOTHING
        )
        with self.host.drawing_exactly("scene"), bound:
            drawn = self._draw_sides()
        if drawn:
            self._compositor.measure(self._rect)
            self.psnr = self._compositor.psnr()
        # As each picture is measured, only another PSNR draws it again.
        return needs_redraw or _psnr_phrases(self.psnr) != previous

    def _awaits_picture(self, view: ShownView) -> bool:
        """Return whether a side's picture, as it is measured, has not come yet."""
        return view.view.awaits_picture(self._rect)

    def measure_soon(self, leader: ShownView, rect: Rect) -> None:
        """Measure what another view of the first entry sees, though it is drawn nowhere.

        rect: as large as the picture of `leader`, in the upper left corner.
        """
        first = self._both()[0]
        if first is None or len(self.views) < 2:
            self.psnr = None
            return
        first.rect = rect
        first.follow(leader)
        first.follow_look(leader)
        self._state = replace(self._state, active_side=0)
        self._framebuffer_size = rect.width, rect.height
        self._rect = rect
        self._measure_at = min(self._measure_at, self._now + _MEASURE_DELAY_S)

    def awaits_picture(self, rect: Rect) -> bool:
        awaited = [view.view.awaits_picture(rect) for view in self.views]
        return any(awaited)

    @property
    def fault_text(self) -> str:
        troubles = filter(None, (view.view.fault_text for view in self.views))
        return next(troubles, "")

    def dropped(self, file: Path) -> bool:
        lead = self.lead
        return lead is not None and lead.view.dropped(file)

    def release(self, occasion: Release) -> None:
        data = self.data
        if occasion == "idle":
            for compositor in data.compositors:
                compositor.drop()
        elif occasion == "away":
            self._compositor.drop()
            self._call_sides(lambda view: view.view.release("away"))
        elif self._compositor in data.compositors:
            data.compositors.remove(self._compositor)
            self._compositor.close()
            for side in self._sides:
                data.catalogue.leave(side)  # type: ignore[arg-type]

    # -- texts and controls ------------------------------------------------------------

    @property
    def keys(self) -> Sequence[KeyHelp]:  # type: ignore[override]
        lead = self.lead
        if lead is None:
            return [_KEY]
        return [_KEY, *lead.view.keys]

    def panel(self) -> Sequence[Section]:
        """Return the sections of the side that was pressed last."""
        lead = self.lead
        if lead is None:
            return []
        return lead.sections

    def commands(self) -> Sequence[Command[Any]]:
        lead = self.lead
        if lead is None:
            return []
        return list(map(for_lead, lead.view.commands()))

    def find_commands(self, text: str) -> Sequence[Command[Any]]:
        lead = self.lead
        if lead is None:
            return []
        return list(map(for_lead, lead.view.find_commands(text)))

    def lanes(self) -> Sequence[Lane]:
        lead = self.lead
        if lead is None:
            return ()
        return lead.view.lanes()

    @property
    def playback(self) -> Playback | None:
        lead = self.lead
        if lead is None:
            return None
        return lead.view.playback

    def change(self, **fields: Any) -> None:
        """Change how both make one picture: fields of the state, not those of sides."""
        self._state = replace(self._state, **fields)

    @property
    def mode(self) -> PairStateMode:
        """The way both make one picture."""
        return self._state.mode

    def info(self) -> Info:
        state = self._state
        lead = self.lead
        infos = {id(view): view.info for view in self.views}
        details = _psnr_phrases(self.psnr)
        main_facts = list(details)
        subtitle = "A and B"
        if state.mode == "difference":
            subtitle = "A against B"
            details.insert(0, f"brightest from {1 / state.gain:.0%} on")
        readout = ""
        if lead is not None:
            readout = infos[id(lead)].readout
        extras: list[str] = []
        path: list[str] = []
        for info in infos.values():
            extras += info.details
            path += info.path
        return Info(
            details=details,
            extras=extras,
            readout=readout,
            path=list(dict.fromkeys(path)),
            title=_TITLES[state.mode],
            subtitle=subtitle,
            facts=main_facts,
        )

    @property
    def timings(self) -> Mapping[str, float]:
        times = Counter({"compare": self.data.gpu_work.ms.get("compare", 0.0)})
        for view in {id(view): view for view in self.views}.values():
            times.update(view.timings)
        return times

    @property
    def wants(self) -> Wants:
        views = self.views
        return Wants(
            cuda=any(view.wants.cuda for view in views),
            moving=any(view.wants.moving for view in views),
        )

    def covered(self, rect: Rect) -> Sequence[Rect]:
        lead = self.lead
        if lead is None:
            return ()
        return lead.covered(rect)


def _psnr_phrases(psnr: float | None) -> list[str]:
    if psnr is None:
        return []
    return [psnr_text(psnr)]
