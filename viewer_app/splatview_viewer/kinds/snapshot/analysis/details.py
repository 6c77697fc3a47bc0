"""Everything that is known of one allocation, in words: what a click shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.analysis import frames as _frames
from splatview_viewer.kinds.snapshot.analysis.categories import categories
from splatview_viewer.kinds.snapshot.analysis.live import live_mask
from splatview_viewer.kinds.snapshot.labels import address_text, pool_text, stream_text
from splatview_viewer.ui.format import age_text, count_text, exact_size_text, size_text

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace


@dataclass(frozen=True)
class FrameLine:
    """One line of a stack as it is shown."""

    number: int
    file: str
    line: int
    name: str
    kind: int
    """frames.USER, LIBRARY, TORCH, BACKWARD, NATIVE or MACHINERY."""

    @property
    def user(self) -> bool:
        """Whether it is the user's own code."""
        return self.kind == _frames.USER

    @property
    def text(self) -> str:
        """"/home/me/model.py:54  forward"."""
        file, name = self.file[-_frames.LONGEST:], self.name[:_frames.LONGEST]
        if file in ("", "??"):
            return name
        return f"{file}:{self.line}  {name}" if self.line > 0 else f"{file}  {name}"


@dataclass(frozen=True)
class Details:
    """What is told of an allocation."""

    allocation: int
    title: str
    rows: list[tuple[str, str]]
    """What, and its value."""
    user_frames: list[FrameLine]
    """The user's own code, innermost first."""
    frames: list[FrameLine]
    """The whole stack, innermost first."""
    freed_frames: list[FrameLine]
    """The stack of the free; none where it is not known."""

    def text(self) -> str:
        """All of it, for copying."""
        width = max((len(what) for what, _ in self.rows), default=0)
        out = [self.title, *(f"{what:<{width}}  {value}" for what, value in self.rows)]
        for title, lines in (("Your code", self.user_frames), ("Stack", self.frames), ("Freed by", self.freed_frames)):
            if lines:
                out += ["", title, *(f"  {line.text}" for line in lines)]
        return "\n".join(out) + "\n"


def stack_lines(snapshot: Snapshot, stack: int) -> list[FrameLine]:
    """The frames of a stack, innermost first; none for NO_STACK."""
    kinds = _frames.frame_kinds(snapshot)
    out = []
    for number in snapshot.stacks.of(stack).tolist():
        frame = snapshot.frame(number)
        out.append(FrameLine(number, frame.file, frame.line, frame.name, int(kinds[number])))
    return out


def moment_text(trace: Trace, moment: int) -> str:
    """"moment 1,234 of 22,332, 12.3 ms after the trace began"."""
    text = f"moment {moment:,} of {len(trace.events):,}"
    return text + _since(trace, max(moment - 1, 0))


def _since(trace: Trace, event: int) -> str:
    times = trace.events.time_us
    if not 0 <= event < len(times) or times[event] <= 0 or times[0] <= 0:
        return ""
    return f", {age_text(int(times[event]) - int(times[0]))} after the trace began"


def describe(snapshot: Snapshot, trace: Trace, allocation: int, moment: int | None = None) -> Details:
    """Tell all about an allocation; with a moment, its share of what is live then.

    Raises: IndexError when the trace has no such allocation.
    """
    a, m = trace.allocations, len(trace.events)
    if not 0 <= allocation < len(a):
        raise IndexError(f"allocation {allocation} is not one of 0..{len(a) - 1} of device {trace.device}")
    size, rounded, stack = int(a.size[allocation]), int(a.rounded[allocation]), int(a.stack[allocation])
    start, end = int(a.start[allocation]), int(a.end[allocation])
    rows = [("Size", exact_size_text(size))]
    if rounded:
        lost = f", {size_text(rounded - size)} of it not used" if rounded > size else ""
        rows.append(("Block", exact_size_text(rounded) + lost))
    rows += [("Address", address_text(int(a.addr[allocation]))), *_life(trace, allocation)]
    if moment is not None and bool(start < moment <= end):
        live = int(a.size.sum(where=live_mask(trace, moment)))
        rows.append(("Share", f"{size / max(live, 1):.1%} of the {size_text(live)} live at moment {moment:,}"))
    of_allocation, names = categories(snapshot, trace)
    rows.append(("Category", names[of_allocation[allocation]]))
    pool = int(a.pool[allocation])
    rows.append(("Stream", stream_text(snapshot.streams[int(a.stream[allocation])])))
    rows.append(("Pool", pool_text(snapshot.pools[pool] if pool >= 0 else None)))
    if start >= 0:
        for what, numbers in (("Compiled", trace.events.context), ("Metadata", trace.events.metadata)):
            if numbers[start] >= 0:
                rows.append((what, snapshot.texts[int(numbers[start])]))
    if stack >= 0:
        same = np.flatnonzero(a.stack == stack)
        if len(same) > 1:
            rows.append(("Same stack", f"{count_text(len(same), 'allocation')}, "
                                       f"{size_text(int(a.size[same].sum()))} altogether"))
    rows.append(("Number", f"{allocation:,} on device {trace.device}"))
    frames = stack_lines(snapshot, stack)
    freed = stack_lines(snapshot, int(trace.events.stack[end])) if end < m else []
    return Details(allocation, f"{size_text(size)}  {_frames.stack_text(snapshot, stack, caller=False)}", rows,
                   [line for line in frames if line.user], frames, freed)


def _life(trace: Trace, allocation: int) -> list[tuple[str, str]]:
    a, m = trace.allocations, len(trace.events)
    start, end, freed = int(a.start[allocation]), int(a.end[allocation]), int(a.freed[allocation])
    times = trace.events.time_us
    rows = [("Allocated", f"event {start:,}{_since(trace, start)}" if start >= 0 else "before the trace")]
    if end >= m:
        rows.append(("Freed", "not before the end of the trace"))
    else:
        rows.append(("Freed", f"event {end:,}{_since(trace, end)}"))
        if freed >= m:
            rows.append(("Given back", "not before the end: another stream may use it"))
        elif freed != end and freed - end > 1:
            waited = f", {age_text(int(times[freed] - times[end]))} later" if times[end] > 0 else ""
            rows.append(("Given back", f"event {freed:,}{waited}"))
    first, last = max(start, 0), min(end, m - 1)
    if m:
        more = "at least " if start < 0 or end >= m else ""
        took = f", {age_text(int(times[last]) - int(times[first]))}" if times[first] > 0 else ""
        rows.append(("Lived", f"{more}{count_text(max(last - first, 0), 'event')}{took}"))
    return rows


def summary(snapshot: Snapshot, trace: Trace, allocation: int) -> str:
    """One line for the pointer: "8.00 MiB  forward  model.py:54"."""
    stack = int(trace.allocations.stack[allocation])
    return f"{size_text(int(trace.allocations.size[allocation]))}  {_frames.stack_text(snapshot, stack, caller=False)}"
