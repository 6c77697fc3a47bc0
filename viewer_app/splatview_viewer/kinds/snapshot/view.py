"""Shows a memory snapshot: who held how much of a GPU's memory, and when."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import moderngl

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.old_view import Simple
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.settings import SnapshotSettings
from splatview_viewer.core.view import KeyHelp
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.kinds.snapshot import check_timeline, world
from splatview_viewer.kinds.snapshot.content import Content
from splatview_viewer.kinds.snapshot.hands import Hands
from splatview_viewer.kinds.snapshot.model import Snapshot
from splatview_viewer.kinds.snapshot.painting import pool
from splatview_viewer.kinds.snapshot.plot import Minimap, Plot
from splatview_viewer.kinds.snapshot.state import PLOTS, Look
from splatview_viewer.kinds.snapshot.world import Layout, lay_out
from splatview_viewer.ui.format import size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.old_view import View
    from splatview_viewer.core.view import Value

PAGE = (0.083, 0.088, 0.100)
"""Around the plot, RGB in [0, 1]."""


class Shared:
    """State shared by the views of one snapshot."""

    def __init__(self) -> None:
        self.views: list[SnapshotView] = []
        self.content: Content | None = None
        self.changes = 0
        """Counts snapshots that came."""
        self.news = threading.Event()
        """Set when something was worked out or painted."""

    def take(self, snapshot: Snapshot) -> None:
        """Show this one from now on."""
        if self.content is not None:
            self.content.close()
        self.content = Content(snapshot, self.news.set)
        self.content.prepare()
        self.changes += 1

    def release(self, view: SnapshotView) -> None:
        """A view is closed; with the last one everything is given back. Idempotent."""
        if view in self.views:
            self.views.remove(view)
        if not self.views and self.content is not None:
            self.content.close()
            self.content = None


KEYS = (
    KeyHelp("Snapshot", "Wheel, pinch, Q E", "Zoom; Shift, Ctrl: time or bytes alone"),
    KeyHelp("Snapshot", "Drag, W A S D", "Move"),
    KeyHelp("Snapshot", "F, double click", "See all of it"),
    KeyHelp("Snapshot", "Click", "Choose an allocation"),
    KeyHelp("Snapshot", "Escape", "Choose none"),
    KeyHelp("Snapshot", "M", "Mark A, B to compare"),
    KeyHelp("Snapshot", "/", "Search"),
)


class SnapshotView(Simple):
    """One user's look at a snapshot."""

    kind: ClassVar[str] = "snapshot"
    keys: Sequence[KeyHelp] = KEYS

    def __init__(self, ctx: moderngl.Context, settings: SnapshotSettings | None = None, *,
                 work: GpuWork | None = None, beside: SnapshotView | None = None) -> None:
        """`beside`: a view of the same snapshot, whose context and `work` this one takes."""
        self.look = Look(settings or SnapshotSettings())
        self._ctx = ctx
        self._work = beside._work if beside is not None else work or GpuWork(ctx)
        self.shared = beside.shared if beside is not None else Shared()
        self.shared.views.append(self)
        self._told = self.shared.changes
        self._of: Content | None = None
        """What the look is of."""
        self._plot = Plot(ctx, self._work, self.shared.news.set)
        self._minimap = Minimap(ctx, self._work)
        self._hands = Hands(self._plot.moment_at)
        self._panes: dict[str, Any] = {}
        self._scale: float | None = None
        """Pixels per point; None while no words are drawn."""
        self._rect = Rect(0, 0, 1, 1)
        self._missing = False
        """Whether what was drawn last lacks answers that are being worked on."""
        self._answers = 0
        """`Content.changes` when it was drawn."""
        self._pointed_in: tuple[object, ...] = ()
        """Where the hands last told what lies under the pointer, and in which picture."""
        self._wait_for_oom = True

    # -- the protocol --------------------------------------------------------------------------------------------

    @property
    def settings(self) -> SnapshotSettings:
        return self.look.settings

    def beside(self, settings: SnapshotSettings) -> SnapshotView:
        return SnapshotView(self._ctx, settings, beside=self)

    def like(self, other: View) -> None:
        if not isinstance(other, SnapshotView):
            raise ViewerError(f"snapshot: a view of {other.kind} cannot be followed")
        self._sync()
        other._sync()
        self.look.look_like(other.look)

    def update(self, value: Value) -> bool:
        if not isinstance(value, Snapshot):
            raise ViewerError(f"snapshot: {type(value).__name__} is not a memory snapshot; open a file that "
                              "torch.cuda.memory._dump_snapshot wrote")
        check_timeline()
        if not value.traces:
            raise ViewerError("snapshot: it holds no events and no segments of any device; was memory recorded "
                              "(torch.cuda.memory._record_memory_history) before it was taken?")
        self.shared.take(value)
        self._told = self.shared.changes  # whoever calls knows
        return True

    def _sync(self) -> Content | None:
        """Return the content to show; a look at something that is gone is forgotten."""
        content = self.shared.content
        if content is not self._of:
            self._leave_panes()
            self._of = content
            self.look.forget()
            self._plot.drop()
            self._pointed_in = ()
            self._wait_for_oom = True
            if content is not None:
                self.look.device = content.busiest
        if content is not None and self._wait_for_oom:
            found = content.peek(("ooms", self.look.device))
            if found is not None:
                self._wait_for_oom = False
                if found and self.look.tab == "timeline":
                    self.look.tab = "oom"
        return content

    def _layout(self, rect: Rect) -> Layout:
        self._rect = rect
        self._hands.scale = self._scale or 1.0
        return lay_out(rect, self._scale, self.look.tab, details=self.look.selected is not None)

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        framebuffer.use()
        framebuffer.clear(*PAGE, 1.0, viewport=rect.viewport(framebuffer.height))
        content = self._sync()
        if content is None:
            return
        self._told, self._answers = self.shared.changes, content.changes
        misses = content.misses
        layout = self._layout(rect)
        if layout.plot is not None:
            self._draw_plot(framebuffer, content, layout, layout.plot)
        if layout.minimap is not None:
            self._minimap.draw(framebuffer, layout.minimap, content, self.look)
        self._missing = content.misses != misses

    def _draw_plot(self, framebuffer: moderngl.Framebuffer, content: Content, layout: Layout, plot: Rect) -> None:
        look = self.look
        window = world.window_of(content, look, plot)
        line = max(round(self._scale or 1.0), 1)
        found = world.material_of(content, look, line)
        if window is None:
            framebuffer.clear(*look.settings.background, 1.0, viewport=plot.viewport(framebuffer.height))
            return
        if found is not None:
            self._plot.want(world.sheet_of(found[0], found[1], window), found[2])
        if self._pointed_in != (plot, self._plot.shown):
            self._pointed_in = plot, self._plot.shown
            self._hands.look_again(layout, content, look)
        self._plot.draw(framebuffer, window, look, line)

    def over(self, rect: Rect, scale: float) -> bool:
        from splatview_viewer.kinds.snapshot.axes import draw_over
        from splatview_viewer.kinds.snapshot.bar import draw_bar

        content = self._sync()
        if content is None:
            return False
        first, self._scale = self._scale != scale, scale
        misses = content.misses
        look, layout = self.look, self._layout(rect)
        before = _seen(look)
        if layout.plot is not None:
            draw_over(content, look, layout, self._hands.at, scale, self._said(content))
        changed = layout.bar is not None and draw_bar(content, look, layout.bar, scale)
        if layout.pane is not None:
            tab = "about" if look.tab in PLOTS else look.tab  # the bar may have changed it just now
            changed |= self._pane(tab).draw(content, look, layout.pane, scale)
        if layout.details is not None:
            changed |= self._pane("details").draw(content, look, layout.details, scale)
        self._missing |= content.misses != misses
        return bool(changed) or first or _seen(look) != before

    def _pane(self, tab: str) -> Any:
        if tab not in self._panes:
            from splatview_viewer.kinds.snapshot.panes import PANES

            self._panes[tab] = PANES[tab]()
        return self._panes[tab]

    def _said(self, content: Content) -> tuple[str, float]:
        """Return the words instead of a picture, and the part of the work for it that is done."""
        if fault := self.fault:
            return fault, 0.0
        needs = world.needs(self.look)
        if self._plot.shown is not None and not self._missing:
            return "", 1.0
        done = sum(content.peek(key) is not None for key in needs) / (len(needs) + 1)
        if content.working:
            return f"{content.working} \u2026", done
        return ("", 1.0) if self._plot.shown is not None else ("Painting \u2026", done)

    def boards(self, rect: Rect) -> Sequence[Rect]:
        return self._layout(rect).boards if self.shared.content is not None and self._scale is not None else ()

    def handle(self, event: Event, rect: Rect) -> bool:
        content = self._sync()
        if content is None:
            return False
        return self._hands.handle(event, self._layout(rect), content, self.look)

    def tick(self, now: float) -> bool:
        if self._told != self.shared.changes:
            self._told = self.shared.changes
            return True
        content = self.shared.content
        if content is None:
            return False
        if self._missing and content.changes != self._answers:
            self._answers = content.changes
            return True
        return self._plot.tick()

    @property
    def fault(self) -> str:
        """Why the timeline cannot be shown; "" while it may be."""
        if self._plot.error:
            return f"It cannot be painted: {self._plot.error}"
        content = self.shared.content
        if content is None:
            return ""
        return next((fault for key in world.needs(self.look) if (fault := content.fault(key))), "")

    @property
    def complete(self) -> bool:
        """True if the last picture showed everything as it should be: nothing is being worked on for it."""
        content = self.shared.content
        return content is None or (not self._missing and self._plot.complete)

    def wait(self, timeout: float) -> None:
        """Wait until another picture would show more than the last one, at most so many seconds. For what needs a
        complete picture and does nothing else meanwhile: a file that is written, a test."""
        if not self.complete:
            self.shared.news.wait(timeout)
            self.shared.news.clear()

    def panel(self) -> bool:
        from splatview_viewer.kinds.snapshot.state import draw_controls

        content, s = self._sync(), self.settings
        before, look = replace(s), _seen(self.look)
        if content is not None:
            draw_controls(content, self.look)
        if s.unit != before.unit:
            self.look.x = None
        if s.lanes != before.lanes:
            self.look.y = None
        return s != before or _seen(self.look) != look

    def drop(self) -> None:
        self._plot.drop()
        self._pointed_in = ()
        self._minimap.drop()

    @property
    def moving(self) -> bool:
        return self._hands.dragging

    @property
    def empty(self) -> bool:
        return self.shared.content is None

    @property
    def details(self) -> list[str]:
        return self.shared.content.phrases if self.shared.content is not None else []

    @property
    def extras(self) -> list[str]:
        return list(self.shared.content.snapshot.notes) if self.shared.content is not None else []

    @property
    def readout(self) -> str:
        content, look = self.shared.content, self.look
        if content is None or self._of is not content or look.pointed is None:
            return ""
        bands = content.peek(("bands", look.device))
        return "" if bands is None else f"{look.pointed:,}   {size_text(int(bands.live[look.pointed]))} live"

    @property
    def path(self) -> list[str]:
        return [f"painted by {pool()._max_workers} threads"]

    @property
    def timings(self) -> dict[str, float]:
        return {**self._plot.ms, "draw": self._work.ms.get("timeline", 0.0)}

    def close(self) -> None:
        self._plot.close()
        self._minimap.close()
        self._leave_panes()
        self.shared.release(self)

    def _leave_panes(self) -> None:
        """Let go of the panes, and of what was worked out for them alone."""
        panes = list(self._panes.values())
        self._panes.clear()
        if self._of is not None:
            self._of.leave(*panes, *(pane.lamp for pane in panes))


def _seen(look: Look) -> tuple[object, ...]:
    """Return everything that a picture depends on."""
    return (look.device, look.tab, look.x, look.y, look.places, look.moment, look.moment_a, look.moment_b,
            look.selected, look.hovered, look.lit_number, look.search)
