"""A user of the view of memory snapshots, and traces of timelines with the slow, obvious way to find blocks in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from imgui_bundle import imgui

from splatview_viewer.core.events import PointerMove, PointerPress, PointerRelease
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import ShownView
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.kinds.snapshot.model import Allocations, Blocks, Events, Segments, Spans, Trace
from splatview_viewer.kinds.snapshot.state import SnapshotState
from splatview_viewer.kinds.snapshot.timeline.bands import Paint
from splatview_viewer.kinds.snapshot.view import SnapshotData, SnapshotView
from splatview_viewer.shell.panel import Panel
from support import widgets
from support.wait import PATIENCE, turns

if TYPE_CHECKING:
    from splatview_viewer.core.events import Event
    from splatview_viewer.kinds.snapshot.model import Snapshot
    from splatview_viewer.screens.offscreen import OffscreenScreen

MOMENT = 15_000
"""Somewhere in the middle of the real snapshot."""


def trace_of(events: int, start, end, size, *, addr=None, pool=None, time_us=None, spans=None) -> Trace:
    """A trace of these columns; what is not given is 0, or none."""
    start, end = np.asarray(start, np.int32), np.asarray(end, np.int32)
    size = np.asarray(size, np.int64)
    n = len(start)
    addr = np.arange(n, dtype=np.uint64) << 32 if addr is None else np.asarray(addr, np.uint64)
    pool = np.zeros(n, np.int16) if pool is None else np.asarray(pool, np.int16)
    allocations = Allocations(addr, size, np.zeros(n, np.int64), start, end, end.copy(), np.zeros(n, np.int16), pool,
                              np.full(n, -1, np.int32))
    wide, narrow, short = np.zeros(events, np.int64), np.full(events, -1, np.int32), np.zeros(events, np.int16)
    times = wide if time_us is None else np.asarray(time_us, np.int64)
    rows = Events(wide, np.zeros(events, np.uint8), wide, times, short, short, narrow, narrow, narrow, narrow)
    sa, ss, s0, s1 = ([], [], [], []) if spans is None else spans
    kept = Spans(np.asarray(sa, np.uint64), np.asarray(ss, np.int64), np.asarray(s0, np.int32),
                 np.asarray(s1, np.int32), np.zeros(len(sa), np.int16), np.zeros(len(sa), np.int16))
    none = np.empty(0, np.int64)
    segments = Segments(none, none, none, none, none, none, none, none, none, none, none)
    return Trace(0, rows, allocations, kept, segments, Blocks(none, none, none, none, none, none))


def random_trace(seed: int, events: int = 400, before: int = 20, slots: int = 60) -> Trace:
    """Allocations of many sizes in slots of addresses of their own, so that none overlap; several may end at once."""
    rng = np.random.default_rng(seed)
    room = 1 << 20
    rows: list[list[int]] = []  # start, end, size, slot
    live: dict[int, int] = {}
    for slot in range(min(before, slots)):
        live[slot] = len(rows)
        rows.append([-1, events, int(rng.integers(1, 9000)), slot])
    for e in range(events):
        what = rng.random()
        if what < 0.5 and len(live) < slots:
            slot = int(rng.choice([s for s in range(slots) if s not in live]))
            size = int(2 ** rng.uniform(0, 20)) if rng.random() > 0.02 else 0
            live[slot] = len(rows)
            rows.append([e, events, size, slot])
        elif what < 0.9:
            for _ in range(min(len(live), 2 if what > 0.85 else 1)):
                rows[live.pop(int(rng.choice(list(live))))][1] = e
    old = sorted((r for r in rows if r[0] < 0), key=lambda r: -r[1])
    rows = old + [r for r in rows if r[0] >= 0]
    start, end, size, slot = np.array(rows, np.int64).reshape(-1, 4).T
    low = 2**63 - (room << 3)  # in the first range lies the middle of 64 bits
    addr = low + (slot * room + (slot // 10) * (room << 4)).astype(np.uint64)
    groups = (slots + 9) // 10
    spans = ([low + g * (10 * room + (room << 4)) for g in range(groups)], [room * 10] * groups,
             [-1, *sorted(rng.integers(-1, events // 4, groups - 1).tolist())],
             [int(v) for v in rng.integers(events * 3 // 4, events + 1, groups)])
    times = 1_700_000_000_000_000 + np.cumsum(rng.integers(0, 50, events))
    pool = rng.integers(0, 3, len(start))
    return trace_of(events, start, end, size, addr=addr, pool=pool, time_us=times, spans=spans)


def live_by_hand(trace: Trace, moment: int) -> list[int]:
    a = trace.allocations
    return [i for i in range(len(a)) if a.start[i] < moment <= a.end[i]]


def any_paint(trace: Trace, seed: int = 0, lit: bool = False) -> Paint:
    rng = np.random.default_rng(seed)
    count = len(trace.allocations)
    return Paint(rng.integers(0, 7, count).astype(np.uint16), rng.integers(40, 255, (7, 3)).astype(np.uint8),
                 rng.random(count) < 0.5 if lit else None)


def column_by_hand(rects, paint: Paint, height: int, low: float, per: float, ground, grounds):
    """(H, 3) float and (H,) ids of one column, the lowest row first: the mean of the colours in each pixel.

    rects: (allocation, bottom, size). ground: (bottom, size) of what is reserved. grounds: colours of nothing, and of
    what is reserved."""
    (classes, lit, shades), (back, free) = paint.tables(len(paint.classes)), np.array(grounds[:2])
    ids = np.full(height, -1)
    sums, covered = np.zeros((height, 3)), np.zeros(height)
    dark = np.zeros(height, bool)
    bottoms = low + np.arange(height) * per
    for i, bottom, size in rects:
        part = np.clip(np.minimum(bottom + size, bottoms + per) - np.maximum(bottom, bottoms), 0, None)
        sums += part[:, None] * shades[int(classes[i]) + (len(shades) // 2 if len(lit) and not lit[i] else 0)]
        covered += part
        ids[(bottoms + per / 2 >= bottom) & (bottoms + per / 2 < bottom + size)] = i
        if size >= 3 * per:
            dark |= (bottoms <= bottom) & (bottom < bottoms + per)
    under = np.zeros(height)
    for bottom, size in ground:
        under += np.clip(np.minimum(bottom + size, bottoms + per) - np.maximum(bottom, bottoms), 0, None)
    under = np.clip(under - covered, 0, None)
    rgb = (sums + under[:, None] * free + np.clip(per - covered - under, 0, None)[:, None] * back) / per
    rgb[dark] *= 0.62
    return rgb, ids


class User:
    """Looks at a snapshot on a screen of its own size, and uses it as a person would."""

    def __init__(self, screen: OffscreenScreen, snapshot: Snapshot, size: tuple[int, int] = (960, 600),
                 **state: Any) -> None:
        screen.resize(*size, 1.0)
        self.screen, self.panel, self.rect = screen, Panel(1.0), Rect(0, 0, *size)
        self.view = SnapshotView(SnapshotData(screen.ctx, GpuWork(screen.ctx)), SnapshotState(**state))
        self._adapted: Any = ShownView(self.view)
        self._adapted.update(snapshot)
        self.settle()

    @property
    def state(self) -> SnapshotState:
        return self.view.state

    def found(self, pane: str) -> Any:
        """The answer that a pane shows."""
        return self.view.memory[pane, "shown"].answer

    @property
    def lit(self) -> list[int] | None:
        """The allocations that are lit in the timeline."""
        mask = self.view.content.mask(self.view.device, self.state.search, self.state.lit)[1]
        return None if mask is None else np.flatnonzero(mask).tolist()

    def draw(self) -> bool:
        self._adapted.draw(self.screen.framebuffer, self.rect)
        return self.panel.draw_over(self.screen.framebuffer, self._adapted.over, 1.0)

    def settle(self) -> np.ndarray:
        """(H, W, 3): the picture when nothing is missing in it any more."""
        again, state = 3, None
        for _ in turns("the view is complete", rest=False):
            again = 3 if self.draw() or self.state != state else again - 1
            state = self.state
            if not self.view.complete:
                self.view.wait(PATIENCE)
                again = 3
            if not again:
                break
        return self.screen.pixels()[..., :3].astype(int)

    def do(self, *events: Event) -> None:
        for event in events:
            ours, _ = self.panel.handle(event, self.rect, str, self.view.wants.boards)
            if not ours:
                self._adapted.handle(event, self.rect)
            self.draw()
            self.draw()

    def click(self, at: tuple[float, float], button: Any = "left", *, double: bool = False) -> None:
        self.do(PointerMove(*at))
        for clicks in range(1, 3 if double else 2):
            self.do(PointerPress(*at, button, clicks=clicks), PointerRelease(*at, button))
        self.settle()

    def press(self, name: str, **how: Any) -> None:
        """Click the widget of this name: a button, "events 7" for a row."""
        widgets.drawn.clear()
        self.settle()
        self.click(widgets.middle(name), **how)

    def box(self, node: int) -> tuple[float, float]:
        """The middle of a box of the flame graph."""
        flame, place = self.view.memory["flame"], widgets.drawn["flame"]
        found = [(row, box) for row, boxes in enumerate(flame["rows"]) for box in boxes if box.node == node]
        (row, box), height = found[0], round(imgui.get_text_line_height() + 5)
        return place.x + (box.x0 + box.x1) / 2, place.y + (row - flame["top"] + 0.5) * height

    def close(self) -> None:
        self.panel.close()
        self._adapted.close()
