"""Two streams or files of a kind in one picture, split by a line, blended or as their difference, from one place."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import moderngl

from splatview_viewer.core.events import (
    Key,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
)
from splatview_viewer.core.host import Host
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.settings import BACKDROP
from splatview_viewer.core.view import Info, KeyHelp, Section, View, Wants
from splatview_viewer.render.pair_compositor import PairCompositor
from splatview_viewer.ui.divider import KEPT, Divider
from splatview_viewer.workspace.sources import ValueSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.core.view import ShownView, Value
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.workspace.catalogue import Catalogue

T = TypeVar("T")
_MEASURED_AFTER = 0.25
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
        """Return the place of which other rectangles show all that is seen in `rect`."""
        first, second = (
            side and replace(side, place=side.place.seen_from(rect))
            for side in self.sides
        )
        return PairPlace((first, second))


@dataclass(frozen=True)
class PairState:
    """One picture of two views."""

    how: Literal["split", "difference", "blend"] = "split"
    at: float = 0.5
    """Place of the line, 0 to 1 from the left; opacity of the second."""
    gain: float = 4.0
    """Factor of differences."""
    alike: bool = True
    """Both have the same settings, and not only the same place."""
    used: int = 0
    """The side that was pressed last, 0 or 1. The other one follows it; panel and keys are its own."""
    place: PairPlace = PairPlace()


@dataclass(eq=False)
class Side:
    """A viewport, for the catalogue: what it shows is drawn by a `PairView`."""

    key: str
    host: Host = field(default_factory=Host)


class PairSource(ValueSource):
    """The source of an entry that shows two others, which have sources of their own. Shared by all views of it."""

    path = "compared"

    def __init__(
        self,
        catalogue: Catalogue,
        keys: tuple[str, str],
        ctx: moderngl.Context,
        work: GpuWork,
    ) -> None:
        self.catalogue = catalogue
        self.uses = keys
        self.ctx = ctx
        self.work = work
        self.compositors: list[PairCompositor] = []

    def refresh(self, entry: Entry, now: float) -> None:
        if any(key not in self.catalogue.slots for key in self.uses):
            self.catalogue.forget(entry.key)


class PairView(View[PairSource, PairState]):
    """One user's view: two views, each as if it were alone, and one picture of both."""

    kind: ClassVar[str] = "pair"

    def __init__(self, data: PairSource, state: PairState) -> None:
        self._sides, self.host = [Side(key) for key in data.uses], Host()
        super().__init__(data, state)
        self.psnr: float | None = None
        """PSNR of the two pictures a moment ago, dB."""
        self._compositor = PairCompositor(data.ctx, data.work)
        data.compositors.append(self._compositor)
        self._divider = Divider()
        self._held = False
        """A drag lasts."""
        self._now = 0.0
        self._measure_at = math.inf
        self._size = 1, 1
        """Size of the framebuffer that was drawn into, in `_rect`."""
        self._rect = Rect(0, 0, 1, 1)

    @property
    def state(self) -> PairState:  # type: ignore[override]
        first, second = (
            None if view is None else view.view.state for view in self._both()
        )
        return replace(self._state, place=PairPlace((first, second)))

    @state.setter
    def state(self, state: PairState) -> None:
        self._state = state
        for view, wanted in zip(self._both(), state.place.sides, strict=True):
            if view is not None and wanted is not None:
                view.view.state = wanted

    # -- the two views -----------------------------------------------------------------------------------------------

    def _both(self) -> list[Any]:
        """Return the view of each side, None for one that has nothing to show."""
        catalogue = self.data.catalogue
        out = list[Any]()
        for side in self._sides:
            slot = catalogue.slots.get(side.key)
            side.host = self.host
            view = None if slot is None or slot.entry.fault else catalogue.view(side)  # type: ignore[arg-type]
            if view is not None:
                own = view.view.host
                view.view.host = replace(
                    self.host, name=own.name, identity=own.identity, again=own.again
                )
            out.append(None if view is None or view.empty else view)
        return out

    @property
    def views(self) -> list[ShownView]:
        """The views that have something to show."""
        return [view for view in self._both() if view is not None]

    @property
    def _leading(self) -> int:
        """The side that the other one follows."""
        used = self._state.used
        return used if self._both()[used] is not None else 1 - used

    @property
    def lead(self) -> ShownView | None:
        """The view that the other one follows."""
        return self._both()[self._leading]

    def _use(
        self, what: Callable[[ShownView], T], sides: Sequence[int] = (0, 1)
    ) -> list[T]:
        """Call `what` with the views of some sides, and return the results. A fault is shown in place of its side, and
        the other one goes on.
        """
        catalogue = self.data.catalogue
        out = list[T]()
        for side, view in [(self._sides[i], self._both()[i]) for i in sides]:
            if view is not None:
                with catalogue.guard(catalogue.slots[side.key]):
                    out.append(what(view))
        return out

    # -- pictures ----------------------------------------------------------------------------------------------------

    def take(self, link: str, value: Value) -> bool:
        """Return True: the values are those of the two entries."""
        return True

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        s = self._state
        self._size = framebuffer.size
        self._rect = rect
        if self._draw_sides():
            if s.how == "split":
                at = (self.divider.x(rect) - rect.x) / max(rect.width, 1)
            else:
                at = s.at
            self._compositor.draw(framebuffer, rect, s.how, at, s.gain, part=rect)
            self._measure_at = min(self._measure_at, self._now + _MEASURED_AFTER)
            return
        self.psnr = None
        self._measure_at = math.inf
        if not self._use(
            lambda view: view.draw(framebuffer, rect)
        ):  # the one that there is
            framebuffer.use()
            framebuffer.clear(
                *BACKDROP, 1.0, viewport=rect.viewport(framebuffer.height)
            )

    def _draw_sides(self) -> bool:
        """Draw both into targets as large as the framebuffer. Returns False where one is missing or fails."""
        used = self._state.used
        views = self._both()
        if None in views:
            return False
        dtype: Literal["f4", "f1"] = "f4" if self._state.how == "difference" else "f1"
        first, second = (
            self._compositor.target(i, *self._size, dtype) for i in (used, 1 - used)
        )
        drawn = self._use(lambda view: view.draw(first, self._rect), [used])
        views[1 - used].follow(
            views[used], self._state.alike
        )  # which may find its place when it is drawn
        drawn += self._use(lambda view: view.draw(second, self._rect), [1 - used])
        return len(drawn) == 2

    def ui(self, rect: Rect, scale: float) -> bool:
        lead = self.lead
        try:
            return lead is not None and lead.over(rect, scale)
        finally:
            self._draw_line(rect, scale)

    def _draw_line(self, rect: Rect, scale: float) -> None:
        """Draw the line between both, and what is on either side."""
        if self._state.how == "split" and len(self.views) == 2:
            slots = self.data.catalogue.slots
            first, second = told_apart([slots[key].entry for key in self.data.uses])
            self.divider.over(rect, scale, (first, second))

    # -- events and time ---------------------------------------------------------------------------------------------

    @property
    def divider(self) -> Divider:
        """The line, as the state has it."""
        self._divider.at = min(max(self._state.at, KEPT), 1 - KEPT)
        return self._divider

    def handle(self, event: Event, rect: Rect) -> bool:
        split = self._state.how == "split"
        sides = [self._leading]
        if split and not self._held:
            divider = self.divider
            again = divider.handle(event, rect, self.host.scale)
            if again is not None:
                self._state = replace(self._state, at=divider.at)
                return again
        if isinstance(event, (PointerMove, PointerPress)) and not self._held:
            sides = [int(split and event.x >= self.divider.x(rect))]
        if isinstance(event, PointerPress):
            self._held, self._state = True, replace(self._state, used=sides[0])
        elif isinstance(event, PointerRelease):
            self._held = False
        elif isinstance(event, PointerLeave) or (
            isinstance(event, Key) and not event.pressed
        ):  # wherever it began
            sides = [0, 1]
        views = [self._both()[side] for side in sides]
        # A fault is for the viewport of this user: others see both sides as before.
        return any([view.handle(event, rect) for view in views if view is not None])

    def tick(self, now: float) -> bool:
        self._now = now
        again = any(self._use(lambda view: view.tick(now)))
        if now < self._measure_at:
            return again
        before = _words(self.psnr)
        self._measure_at = math.inf
        # Without what only helps to look at them. The framebuffer is bound again afterwards.
        bound = self.data.ctx.scope(self.data.ctx.fbo, moderngl.NOTHING)
        with self.host.drawing_exactly("scene"), bound:
            drawn = self._draw_sides()
        if drawn:
            self._compositor.measure(self._rect)
            self.psnr = self._compositor.psnr()
        return (
            again or _words(self.psnr) != before
        )  # as each picture is measured, only another PSNR draws it again

    def dropped(self, file: Path) -> bool:
        return self.lead is not None and self.lead.view.dropped(file)

    def release(self, how: Literal["idle", "away", "closed", "last"]) -> None:
        data = self.data
        if how == "idle":
            for compositor in data.compositors:
                compositor.drop()
        elif how == "away":
            self._compositor.drop()
            self._use(lambda view: view.view.release("away"))
        elif self._compositor in data.compositors:
            data.compositors.remove(self._compositor)
            self._compositor.close()
            for side in self._sides:
                data.catalogue.leave(side)  # type: ignore[arg-type]

    # -- words -------------------------------------------------------------------------------------------------------

    @property
    def keys(self) -> Sequence[KeyHelp]:  # type: ignore[override]
        return [_KEY, *(self.lead.view.keys if self.lead is not None else ())]

    def panel(self) -> Sequence[Section]:
        """Return its own controls, and those of the side that was pressed last."""
        lead = self.lead
        own = Section("", self._controls)
        return [own, *(() if lead is None else lead.sections)]

    def _controls(self) -> None:

        from splatview_viewer.ui import widgets as ui

        s = self._state
        how = ui.choice(
            "Compare",
            "Both scenes beside a line, their difference, or one over the other",
            s.how,
            {"split": "Split by a line", "difference": "Difference", "blend": "Blend"},
        )
        if how == "difference":
            s = replace(
                s,
                gain=ui.slider(
                    "Amplify",
                    "Factor on the difference",
                    s.gain,
                    (1.0, 64.0),
                    "%.0f \u00d7",
                    reset=4.0,
                ),
            )
        if how == "blend":
            s = replace(
                s,
                at=ui.slider(
                    "Opacity",
                    "Opacity of the second scene over the first",
                    s.at,
                    (0.0, 1.0),
                    "%.2f",
                    reset=0.5,
                ),
            )
        tip = (
            "Both are shown in the same way. Off: only from the same place; what the panel\n"
            "says is then of the side that was clicked last."
        )
        self._state = replace(s, how=how, alike=ui.check("Same view", tip, s.alike))

    def info(self) -> Info:
        s = self._state
        lead = self.lead
        told = {id(view): view.info for view in self.views}
        if s.how == "difference":
            details = [f"brightest from {1 / s.gain:.0%} on"]
        else:
            details = []
        timings = Counter({"compare": self.data.work.ms.get("compare", 0.0)})
        for info in told.values():
            timings.update(info.timings)
        return Info(
            [*details, *_words(self.psnr)],
            [line for info in told.values() for line in info.details],
            "" if lead is None else told[id(lead)].readout,
            list(dict.fromkeys(line for info in told.values() for line in info.path)),
            timings,
        )

    @property
    def wants(self) -> Wants:
        views = self.views
        return Wants(
            cuda=any(view.wants.cuda for view in views),
            moving=any(view.wants.moving for view in views),
        )

    def covered(self, rect: Rect) -> Sequence[Rect]:
        lead = self.lead
        return () if lead is None else lead.covered(rect)


def _words(psnr: float | None) -> list[str]:
    if psnr is None:
        return []
    return ["no difference" if psnr == math.inf else f"PSNR {psnr:.2f} dB"]


def told_apart(entries: Sequence[Entry]) -> list[str]:
    """Return the names of entries, with the run's where several have the same."""
    names = [entry.name for entry in entries]
    return [
        f"{e.name} \u00b7 {e.group}" if names.count(e.name) > 1 else e.name
        for e in entries
    ]
