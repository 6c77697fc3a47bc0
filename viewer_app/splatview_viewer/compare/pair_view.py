"""Two streams or files of a kind in one picture: split by a line, blended, or their difference; seen from one place."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING, ClassVar

from splatview_viewer.compare.controls import pair_controls
from splatview_viewer.compare.tie import Tie
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import Key, PointerLeave, PointerMove, PointerPress, PointerRelease
from splatview_viewer.core.host import Host
from splatview_viewer.core.settings import BACKDROP, PairSettings
from splatview_viewer.core.view import KeyHelp, Section
from splatview_viewer.render.pair_compositor import PairCompositor
from splatview_viewer.ui.divider import KEPT, Divider
from splatview_viewer.workspace.sources import Source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.old_view import View
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.view import Value
    from splatview_viewer.formats.camera_paths import Film
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.workspace.catalogue import Catalogue, Slot

_MEASURED_AFTER, _SUMMED_AFTER = 0.25, 0.05
"""Seconds after a picture until the GPU is asked to measure the two, and from then until what came of it is read."""


class Side:
    """One of the two. For the catalogue it is somebody who looks at that entry."""

    def __init__(self, view: PairView, key: str) -> None:
        self.key = key
        self._view = view

    @property
    def host(self) -> Host:
        return self._view.host

    @property
    def slot(self) -> Slot | None:
        return self._view.catalogue.slots.get(self.key)

    @property
    def view(self) -> View | None:
        """What shows it, once there is something to be shown."""
        slot = self.slot
        if slot is None or slot.entry.fault:
            return None
        view = self._view.catalogue.view(self)  # type: ignore[arg-type]
        return None if view is None or view.empty else view

    def guard(self) -> AbstractContextManager[None]:
        """A fault of this side is said in its place, and the other one goes on."""
        slot = self.slot
        return nullcontext() if slot is None else self._view.catalogue.guard(slot)


class PairView:
    """One user's look at two things. Each has a view of its own, as if it were alone; what one does goes to the one
    that the pointer is over, and the other follows."""

    kind: ClassVar[str] = "pair"

    def __init__(self, ctx: moderngl.Context, settings: PairSettings, work: GpuWork, catalogue: Catalogue,
                 keys: tuple[str, str], beside: PairView | None = None) -> None:
        """`keys`: of the entries, whose data somebody else has fed to their views (`Comparisons`). `beside`: another
        user's view of the same two."""
        self.settings = settings
        self.catalogue = catalogue
        self.host = Host()
        self.sides = Side(self, keys[0]), Side(self, keys[1])
        self.divider = Divider(settings.at)
        self.psnr: float | None = None
        """Of the two pictures as they were a moment ago."""
        self._ctx = ctx
        self._work = work
        self._pair = PairCompositor(ctx, work)
        self._tie = Tie(settings=settings.alike)
        self._used = 0
        """The side that was used last: what is written over the picture is its own."""
        self._held: int | None = None
        """The side in which a drag has begun."""
        self._measure_at = math.inf
        """When to go on with measuring; inf: nothing is to be measured."""
        self._measuring = False
        """Whether the GPU was asked."""
        self._drawn: Rect | None = None
        """What was drawn since then."""
        self._family: list[PairView] = [] if beside is None else beside._family
        self._family.append(self)

    def beside(self, settings: PairSettings) -> PairView:
        keys = self.sides[0].key, self.sides[1].key
        return PairView(self._ctx, settings, self._work, self.catalogue, keys, self)

    def like(self, other: View) -> None:
        if not isinstance(other, PairView):
            raise ViewerError(f"compare: a view of {other.kind} cannot be followed")
        self.settings.take(other.settings)
        for mine, theirs in zip(self.sides, other.sides, strict=True):
            view, leader = mine.view, theirs.view
            if view is not None and leader is not None and view.kind == leader.kind:
                view.like(leader)

    # -- pictures ------------------------------------------------------------------------------------------------

    @property
    def views(self) -> list[View]:
        """Of both, or of the one that has something to show."""
        return [view for side in self.sides if (view := side.view) is not None]

    @property
    def _leads(self) -> View | None:
        """The view that was used last."""
        view = self.sides[self._used].view
        return view if view is not None else next(iter(self.views), None)

    def update(self, value: Value) -> bool:
        """Nothing is for the pair itself."""
        return False

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        s, views = self.settings, [side.view for side in self.sides]
        self._tie.settings = s.alike
        self.divider.at = min(max(s.at, KEPT), 1 - KEPT)
        here = [view for view in views if view is not None]
        for view in here:
            view.host.scale, view.host.exact = self.host.scale, self.host.exact
        if self._used and len(here) == 2:  # who is used leads where both are new
            here.reverse()
        if None in views:
            self._tie.pull(here)
            self._draw_one(framebuffer, rect, views)
            return
        dtype = "f4" if s.how == "difference" else "f1"
        targets = [self._pair.target(i, framebuffer.width, framebuffer.height, dtype) for i in (0, 1)]
        if not getattr(here[0], "framed", True):  # it chooses its camera when it is drawn
            with self.sides[self._used].guard():
                here[0].draw(targets[self._used], rect)
        self._tie.pull(here)
        drawn = 0
        for side, view, target in zip(self.sides, views, targets, strict=True):
            with side.guard():
                assert view is not None
                view.draw(target, rect)
                drawn += 1
        if drawn < 2:
            framebuffer.use()
            framebuffer.clear(*BACKDROP, 1.0, viewport=rect.viewport(framebuffer.height))
            return
        at = self.divider.x(rect) - rect.x if s.how == "split" else s.at * rect.width
        self._pair.draw(framebuffer, rect, s.how, at / max(rect.width, 1), s.gain, part=rect)
        self._drawn = rect

    def _draw_one(self, framebuffer: moderngl.Framebuffer, rect: Rect, views: Sequence[View | None]) -> None:
        """What is there as long as the other one is not."""
        self.psnr = self._drawn = None
        for side, view in zip(self.sides, views, strict=True):
            if view is not None:
                with side.guard():
                    view.draw(framebuffer, rect)
                    return
        framebuffer.use()
        framebuffer.clear(*BACKDROP, 1.0, viewport=rect.viewport(framebuffer.height))

    def _measure(self, now: float) -> bool:
        """Compare what was drawn, a while later. True when the PSNR is another one: a picture that is drawn again for
        anything else is measured again, and that must not ask for one more."""
        if self._drawn is None and not self._measuring:
            return False
        if self._measure_at == math.inf:
            self._measure_at = now + _MEASURED_AFTER
        elif now >= self._measure_at and not self._measuring:
            self._pair.measure(self._drawn)
            self._measuring, self._drawn, self._measure_at = True, None, now + _SUMMED_AFTER
        elif now >= self._measure_at:
            self._measuring, self._measure_at = False, math.inf
            before, self.psnr = self.psnr, self._pair.psnr()
            return _words(before) != _words(self.psnr)
        return False

    def over(self, rect: Rect, scale: float) -> bool:
        again = False
        view = self._leads
        if view is not None:
            with self.sides[self._used].guard():
                again = view.over(rect, scale)
        if self.settings.how == "split" and len(self.views) == 2:
            self.divider.over(rect, scale, self.names)
        return again

    @property
    def names(self) -> tuple[str, str]:
        """What the two are called, so that they can be told apart."""
        entries = [slot.entry for side in self.sides if (slot := side.slot) is not None]
        if len(entries) < 2:
            return "", ""
        alike = entries[0].name == entries[1].name
        first, second = (f"{e.name} \u00b7 {e.group}" if alike else e.name for e in entries)
        return first, second

    def boards(self, rect: Rect) -> Sequence[Rect]:
        view = self._leads
        return [] if view is None else view.boards(rect)

    # -- events and time -----------------------------------------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool:
        if self.settings.how == "split" and self._held is None:
            again = self.divider.handle(event, rect, self.host.scale)
            if again is not None:
                self.settings.at = self.divider.at
                return again
        if isinstance(event, PointerPress):
            self._used = self._held = self._under(event.x, rect)
        side = self.sides[self._used if self._held is None else self._held]
        if isinstance(event, PointerMove) and self._held is None:
            side = self.sides[self._under(event.x, rect)]
        if isinstance(event, PointerRelease):
            self._held = None
        view = side.view
        again = False
        ends = isinstance(event, PointerLeave) or (isinstance(event, Key) and not event.pressed)  # wherever it began
        for other in self.sides if ends else [side]:
            target = view if other is side else other.view
            if target is not None:
                with other.guard():
                    again |= target.handle(event, rect)
        return again

    @property
    def takes_films(self) -> bool:
        return self._leads is not None and self._leads.takes_films

    def dropped(self, file: Path, film: Film | None = None) -> bool:
        view = self._leads
        return view is not None and view.dropped(file, film)

    def _under(self, x: float, rect: Rect) -> int:
        """The side at a column of the screen."""
        return int(self.settings.how == "split" and x >= self.divider.x(rect))

    def tick(self, now: float) -> bool:
        again = False
        for side in self.sides:
            if (view := side.view) is not None:
                with side.guard():
                    again |= view.tick(now)
        return self._measure(now) or again

    # -- what is said --------------------------------------------------------------------------------------------

    def panel(self) -> bool:
        """Its own controls, and those of what it shows."""
        changed = pair_controls(self)
        view = self._leads
        return (view.panel() if view is not None else False) or changed

    @property
    def sections(self) -> Sequence[Section]:
        view = self._leads
        return [] if view is None else view.sections

    @property
    def keys(self) -> Sequence[KeyHelp]:
        own = KeyHelp("Compare", "Drag the line", "See more of one side; a double click: both alike")
        view = self._leads
        return [own, *(view.keys if view is not None else ())]

    @property
    def empty(self) -> bool:
        return not self.views

    @property
    def details(self) -> list[str]:
        s = self.settings
        out = [f"brightest from {1 / s.gain:.0%} on"] if s.how == "difference" else []
        return out + _words(self.psnr)

    @property
    def extras(self) -> list[str]:
        return [line for view in self.views for line in view.details]

    @property
    def readout(self) -> str:
        view = self._leads
        return "" if view is None else view.readout

    @property
    def path(self) -> list[str]:
        return list(dict.fromkeys(line for view in self.views for line in view.path))

    @property
    def timings(self) -> dict[str, float]:
        out: dict[str, float] = {}
        for view in self.views:
            for name, ms in view.timings.items():
                out[name] = out.get(name, 0.0) + ms
        return out | {"compare": self._work.ms.get("compare", 0.0)}

    @property
    def stale(self) -> bool:
        return False

    @property
    def busy(self) -> bool:
        return False

    @property
    def cuda(self) -> bool:
        return any(view.cuda for view in self.views)

    @property
    def moving(self) -> bool:
        return any(view.moving for view in self.views)

    def leave(self) -> None:
        for view in self._family:
            view._pair.drop()

    def drop(self) -> None:
        self._pair.drop()
        for side in self.sides:
            if (view := side.view) is not None:
                view.drop()

    def close(self) -> None:
        if self in self._family:
            self._family.remove(self)
        self._pair.close()
        for side in self.sides:
            self.catalogue.leave(side)  # type: ignore[arg-type]


class PairSource(Source):
    """The source of an entry that shows two others: what they bring, their own sources bring."""

    path = "compared"

    def __init__(self, keys: tuple[str, str]) -> None:
        self.uses = keys


def _words(psnr: float | None) -> list[str]:
    if psnr is None:
        return []
    return ["no difference" if psnr == math.inf else f"PSNR {psnr:.2f} dB"]
