"""Shows the memory of a running trainer: what is allocated and reserved over time, as it happens."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import Key, Pinch, PointerLeave, PointerMove, PointerPress, PointerRelease, Wheel
from splatview_viewer.core.settings import MemorySettings
from splatview_viewer.core.view import KeyHelp, Simple, Steady, Stopwatch, meta_phrases
from splatview_viewer.geometry.controls import ZOOM_STEP, Rect
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.kinds.memory.live import About, History, read_frame
from splatview_viewer.kinds.memory.plot import MemoryPlot
from splatview_viewer.kinds.snapshot.labels import size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.view import Value, View

AXIS = 40.0
"""Points under the plot, for times and steps."""
_SHORTEST, _LONGEST = 0.05, 1e7
"""Seconds that can be seen at once."""
_PATIENCE = 60.0
"""Seconds after which a full snapshot that was asked for is not waited for any longer."""


class MemoryContent:
    """What a stream of kind memory said last, whoever looks at it."""

    def __init__(self, ctx: moderngl.Context, work: GpuWork) -> None:
        self.views: list[MemoryView] = []
        self.history: History | None = None
        self.about = About()
        self.changes = 0
        self.ask: Callable[[], None] | None = None
        """Asks the trainer for a full snapshot."""
        self.plot = MemoryPlot(ctx)
        self.work = work
        self.stopwatch = Stopwatch()

    def update(self, value: Value) -> bool:
        """As `View.update`."""
        if getattr(value, "kind", "") != "memory":
            raise ViewerError(f"memory: a {type(value).__name__} cannot be shown; only streams of kind memory can")
        with self.stopwatch("take"):
            history, about = read_frame(value.tensors, value.meta)  # type: ignore[union-attr]
        if not value.intact():  # type: ignore[union-attr]
            return False
        self.history, self.about = history, about
        self.changes += 1
        return True


KEYS = (
    KeyHelp("Memory", "Wheel, pinch", "Zoom in time"),
    KeyHelp("Memory", "Drag", "Move in time"),
    KeyHelp("Memory", "F, double click", "See all of it"),
)


class MemoryView(Steady, Simple):
    """One user's look: which time is seen."""

    kind: ClassVar[str] = "memory"
    keys: Sequence[KeyHelp] = KEYS

    def __init__(self, ctx: moderngl.Context, settings: MemorySettings | None = None, *, work: GpuWork | None = None,
                 beside: MemoryView | None = None) -> None:
        self.settings = settings or MemorySettings()
        self.content = beside.content if beside is not None else MemoryContent(ctx, work or GpuWork(ctx))
        self.content.views.append(self)
        self.span: float | None = None
        """Seconds that are seen; None: all."""
        self.right: float | None = None
        """The time at the right edge; None: the newest."""
        self.opening = ""
        """The full snapshot that this user wants to see now, to be taken by whoever can open it."""
        self.pointer: tuple[float, float] | None = None
        self.scale = 1.0
        self._ctx = ctx
        self._told = self.content.changes
        self._grab: float | None = None
        self._asked: tuple[int, float] | None = None
        """How many snapshots there were when this user asked for another, and when that was."""
        self._rect = Rect(0, 0, 1, 1)

    def beside(self, settings: MemorySettings) -> MemoryView:
        return MemoryView(self._ctx, settings, beside=self)

    def like(self, other: View) -> None:
        if not isinstance(other, MemoryView):
            raise ViewerError(f"memory: a view of {other.kind} cannot be followed")
        self.span, self.right = other.span, other.right
        self.settings.take(other.settings)

    def update(self, value: Value) -> bool:
        taken = self.content.update(value)
        if taken:
            self._told = self.content.changes
        return taken

    # -- what is seen -------------------------------------------------------------------------------------------

    def window(self) -> tuple[float, float]:
        """The times at the left and the right edge, seconds since the epoch."""
        history = self.content.history
        if history is None:
            return 0.0, 1.0
        right = history.end if self.right is None else self.right
        span = max(history.end - history.begin, 1.0) if self.span is None else self.span
        return right - span, right

    def top(self, begin: float, end: float) -> float:
        """The bytes at the upper edge. With the GPU's limit in sight it is seen as well."""
        history = self.content.history
        if history is None:
            return 1.0
        names = ("reserved", "peak", "active") if history.on_gpu else ()
        if self.settings.host or not names:
            names = (*names, "host")
        most = max(history.peak(begin, end, name)[1] for name in names)
        total = self.content.about.total
        if total and 0.6 * total < most <= 1.05 * total and history.on_gpu:
            return 1.06 * total
        return max(1.12 * most, 1.0)

    def bottom(self, rect: Rect) -> int:
        """Pixels of a rectangle that the axis takes."""
        return min(round(AXIS * self.scale), rect.height // 3)

    def time_at(self, x: float) -> float:
        """The time at a place of the screen."""
        begin, end = self.window()
        return begin + (x - self._rect.x) / max(self._rect.width, 1) * (end - begin)

    def fit(self) -> None:
        """See all there is, and what comes."""
        self.span = self.right = None

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self._rect = rect
        content = self.content
        if content.history is None:
            framebuffer.use()
            framebuffer.clear(*self.settings.background, 1.0, viewport=rect.viewport(framebuffer.height))
            return
        with content.stopwatch("plot"):
            begin, end = self.window()
            columns = content.history.columns(begin, end, rect.width)
            host = 2 if not content.history.on_gpu else int(self.settings.host)
            with content.work("memory", rect.width, rect.height):
                content.plot.draw(framebuffer, rect, columns, self.top(begin, end),
                                  ground=self.settings.background, host=host, thick=max(self.scale, 1.0),
                                  bottom=self.bottom(rect))
        self._told = content.changes

    def over(self, rect: Rect, scale: float) -> bool:
        from splatview_viewer.kinds.memory.words import write

        again, self.scale = scale != self.scale, scale
        if self.content.history is not None:
            write(self, self.content.history, rect, scale)
        return again

    def boards(self, rect: Rect) -> Sequence[Rect]:
        return ()

    # -- hands ---------------------------------------------------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool:
        self._rect = rect
        if self.content.history is None:
            return False
        before = (self.span, self.right, self.pointer)
        match event:
            case PointerMove():
                if self._grab is not None:
                    self._move((self._grab - event.x) / max(rect.width, 1))
                    self._grab = event.x
                self.pointer = (event.x, event.y) if rect.contains(event.x, event.y) else None
            case PointerLeave():
                self.pointer = None
            case PointerPress():
                if event.clicks == 2:
                    self.fit()
                elif event.button in ("left", "middle"):
                    self._grab = event.x
            case PointerRelease():
                self._grab = None
            case Wheel():
                self._zoom(ZOOM_STEP ** event.dy, event.x)
                if event.dx:
                    self._move(0.1 * event.dx)
            case Pinch():
                self._zoom(event.factor, event.x)
                self._move(-event.dx / max(rect.width, 1))
            case Key(pressed=True):
                self._key(event.name)
        return before != (self.span, self.right, self.pointer)

    def _key(self, name: str) -> None:
        middle = self._rect.x + self._rect.width / 2
        if name in ("f", "home"):
            self.fit()
        elif name == "end":
            self.right = None
        elif name in ("a", "left", "d", "right"):
            self._move(-0.1 if name in ("a", "left") else 0.1)
        elif name in ("q", "minus", "e", "equal"):
            self._zoom(1.5 if name in ("e", "equal") else 1 / 1.5, middle)

    def _zoom(self, factor: float, x: float) -> None:
        """Magnify around a place. Who follows what happens goes on doing so."""
        begin, end = self.window()
        span = min(max((end - begin) / max(factor, 1e-6), _SHORTEST), _LONGEST)
        if self.right is not None:
            at = self.time_at(x)
            self.right = at + (end - at) * span / (end - begin)
        self.span = span
        self._keep_near()

    def _move(self, share: float) -> None:
        """Go on by a share of what is seen."""
        begin, end = self.window()
        self.span, self.right = end - begin, end + share * (end - begin)
        self._keep_near()

    def _keep_near(self) -> None:
        """At the newest the plot follows; nobody gets lost."""
        history, span = self.content.history, self.span
        assert history is not None and span is not None
        if span >= 1.2 * max(history.end - history.begin, 1.0):
            self.fit()
        elif self.right is not None:
            if self.right >= history.end:
                self.right = None
            else:
                self.right = max(self.right, history.begin + min(0.5 * span, history.end - history.begin))

    # -- full snapshots ------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Have the trainer take a full snapshot, and open it when it is there."""
        if self.content.ask is not None:
            self._asked = self.content.about.snapshots, time.monotonic() + _PATIENCE
            self.content.ask()

    @property
    def waits(self) -> bool:
        """Whether a full snapshot that this user asked for has not come yet."""
        return self._asked is not None

    def tick(self, now: float) -> bool:
        content = self.content
        if self._asked is not None:
            if content.about.snapshots > self._asked[0]:
                self._asked, self.opening = None, content.about.snapshot
            elif now > self._asked[1]:
                self._asked = None
                return True
        again = self._told != content.changes
        self._told = content.changes
        return again

    def panel(self) -> bool:
        from imgui_bundle import ImVec2, imgui

        from splatview_viewer.ui import widgets as ui

        s, before, about = self.settings, replace(self.settings), self.content.about
        s.clock = ui.choice("Time", s.clock, {"ago": "Before now", "clock": "By the clock"})
        if self.content.history is not None and self.content.history.on_gpu:
            s.host = ui.choice("Host memory", s.host, {False: "Hidden", True: "Shown"})
        imgui.begin_disabled(about.device == "cpu" or self.waits or self.content.ask is None)
        if imgui.button("Waiting for the snapshot" if self.waits else "Take a full snapshot", ImVec2(-1, 0)):
            self.ask()
        imgui.end_disabled()
        if about.device == "cpu":
            ui.dim("CUDA is not in use there")
        else:
            imgui.set_item_tooltip("Every allocation with its stack. The training stops for a moment.")
        if about.snapshot and about.file is not None and imgui.button("Open the last one", ImVec2(-1, 0)):
            self.opening = about.snapshot
        return s != before

    # -- words ---------------------------------------------------------------------------------------------------

    @property
    def details(self) -> list[str]:
        history, about = self.content.history, self.content.about
        if history is None:
            return []
        out = []
        if history.on_gpu:
            out += [f"{size_text(int(history.now('allocated')))} allocated",
                    f"{size_text(int(history.now('reserved')))} reserved, {history.fragmentation():.0%} of it free, "
                    f"{history.split():.0%} between blocks",
                    f"highest {size_text(int(history.peak()[1]))}"]
        out.append(f"host {size_text(int(history.now('host')))}")
        if about.gpu:
            out.append(f"{about.gpu}, {size_text(about.total)}")
        if ooms := int(history.now("ooms")):
            out.append(f"out of memory {'once' if ooms == 1 else f'{ooms} times'}")
        out.append(f"{len(history):,} samples, {about.hz:g} a second")
        if about.trouble:
            out.append(about.trouble)
        return [*out, *meta_phrases(about.others, ())]

    @property
    def readout(self) -> str:
        history = self.content.history
        row = self.row()
        if history is None or row is None:
            return ""
        stamp = time.strftime("%H:%M:%S", time.localtime(history["time"][row]))
        step = int(history["step"][row])
        name, what = ("allocated", "peak") if history.on_gpu else ("host", "host")
        return f"{stamp}{f'   step {step:,}' if step >= 0 else ''}   {name} {size_text(int(history[what][row]))}"

    def row(self) -> int | None:
        """The row of the history under the pointer."""
        history = self.content.history
        if history is None or self.pointer is None or not self._rect.contains(*self.pointer):
            return None
        return history.row_at(self.time_at(self.pointer[0]))

    @property
    def extras(self) -> list[str]:
        return [f"device {self.content.about.device}"] if self.content.history is not None else []

    @property
    def path(self) -> list[str]:
        on_gpu = self.content.history is not None and self.content.history.on_gpu
        return ["statistics of PyTorch's allocator" if on_gpu else "the host's statistics"]

    @property
    def timings(self) -> dict[str, float]:
        return dict(self.content.stopwatch.ms)

    @property
    def empty(self) -> bool:
        return self.content.history is None

    def drop(self) -> None:
        self.pointer = self._grab = None

    def close(self) -> None:
        if self in self.content.views:
            self.content.views.remove(self)
            if not self.content.views:
                self.content.plot.close()
