"""Describes one allocation in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.core.quantities import (
    age_text,
    count_text,
    exact_size_text,
    size_text,
)
from splatview_viewer.snapshot.analysis import frames as _frames
from splatview_viewer.snapshot.analysis.categories import CATEGORIES, categories
from splatview_viewer.snapshot.model import (
    NO_STACK,
    address_text,
    device_text,
    live_mask,
    pool_text,
    stream_text,
)

if TYPE_CHECKING:
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace


class FrameLine(NamedTuple):
    """One line of a stack for the user."""

    file: str
    line: int
    name: str
    kind: int
    """frames.USER, LIBRARY, TORCH, BACKWARD, NATIVE or MACHINERY."""

    @property
    def text(self) -> str:
        """The line for copying: "/home/me/model.py:54  forward"."""
        file = self.file[-_frames.MAX_NAME_LETTERS :]
        name = self.name[: _frames.MAX_NAME_LETTERS]
        if file in ("", "??"):
            return name
        if self.line <= 0:
            return f"{file}  {name}"
        return f"{file}:{self.line}  {name}"


@dataclass(frozen=True)
class Details:
    """Everything about one allocation, in words."""

    allocation: int
    title: str
    rows: list[tuple[str, str]]
    """Properties and their values."""
    frames: list[FrameLine]
    """The complete stack, innermost first."""
    freed_frames: list[FrameLine]
    """The stack of the free; none where it is not known."""

    @property
    def user_frames(self) -> list[FrameLine]:
        """The user's own code, innermost first."""
        return [line for line in self.frames if line.kind == _frames.USER]

    def text(self) -> str:
        """Return the details as a text for copying."""
        width = max((len(name) for name, _ in self.rows), default=0)
        lines = [self.title]
        lines += [f"{name:<{width}}  {value}" for name, value in self.rows]
        sections = {
            "Your code": self.user_frames,
            "Stack": self.frames,
            "Freed by": self.freed_frames,
        }
        for title, frames in sections.items():
            if frames:
                lines += ["", title, *(f"  {frame.text}" for frame in frames)]
        return "\n".join(lines) + "\n"


def describe(
    snapshot: MemorySnapshot,
    trace: Trace,
    allocation: int,
    event_index: int | None = None,
) -> Details:
    """Describe an allocation; with a moment, also its share of what is live then."""
    stack = int(trace.allocations.stack[allocation])
    end = int(trace.allocations.end[allocation])
    freed_stack = NO_STACK
    if end < len(trace.events):
        freed_stack = int(trace.events.stack[end])
    return Details(
        allocation=allocation,
        title=summary(snapshot, trace, allocation),
        rows=[
            *_memory_rows(trace, allocation),
            *life(trace, allocation).items(),
            *_share_rows(trace, allocation, event_index),
            *_origin_rows(snapshot, trace, allocation),
            ("Number", f"{allocation:,} on {device_text(trace.device)}"),
        ],
        frames=frames_of_stack(snapshot, stack),
        freed_frames=frames_of_stack(snapshot, freed_stack),
    )


def frames_of_stack(snapshot: MemorySnapshot, stack: int) -> list[FrameLine]:
    """Return the lines of a stack, innermost first."""
    kinds = _frames.frame_kinds(snapshot)
    lines = []
    for frame_id in snapshot.stacks.frames_of(stack).tolist():
        frame = snapshot.frame(frame_id)
        kind = int(kinds[frame_id])
        lines.append(FrameLine(frame.file, frame.line, frame.name, kind))
    return lines


def _memory_rows(trace: Trace, allocation: int) -> list[tuple[str, str]]:
    """Return the rows about the memory of an allocation."""
    allocations = trace.allocations
    size = int(allocations.size[allocation])
    rounded = int(allocations.rounded[allocation])
    rows = [("Size", exact_size_text(size))]
    if rounded:
        text = exact_size_text(rounded)
        if rounded > size:
            text += f", {size_text(rounded - size)} of it not used"
        rows.append(("Block", text))
    rows.append(("Address", address_text(int(allocations.addr[allocation]))))
    return rows


def _share_rows(
    trace: Trace, allocation: int, event_index: int | None
) -> list[tuple[str, str]]:
    """Return a row on the share of what is live at a moment, if the allocation is."""
    if event_index is None or not live_mask(trace, event_index)[allocation]:
        return []
    size = trace.allocations.size
    live = int(size.sum(where=live_mask(trace, event_index)))
    share = int(size[allocation]) / max(live, 1)
    text = f"{share:.1%} of the {size_text(live)} live at moment {event_index:,}"
    return [("Share", text)]


def _origin_rows(
    snapshot: MemorySnapshot, trace: Trace, allocation: int
) -> list[tuple[str, str]]:
    """Return the rows about where and for what an allocation was made."""
    allocations = trace.allocations
    start = int(allocations.start[allocation])
    pool = int(allocations.pool[allocation])
    stack = int(allocations.stack[allocation])
    category = categories(snapshot, trace)[0][allocation]
    stream = snapshot.streams[int(allocations.stream[allocation])]
    rows = [
        ("Category", CATEGORIES[category]),
        ("Stream", stream_text(stream)),
        ("Pool", pool_text(snapshot.pool(pool))),
    ]
    event_texts = {
        "Compiled": trace.events.context,
        "Metadata": trace.events.metadata,
    }
    for name, text_ids in event_texts.items():
        if start >= 0 and text_ids[start] >= 0:
            rows.append((name, snapshot.texts[int(text_ids[start])]))
    is_same = allocations.stack == stack
    count = int(is_same.sum())
    if stack >= 0 and count > 1:
        total = size_text(int(allocations.size.sum(where=is_same)))
        text = f"{count_text(count, 'allocation')}, {total} altogether"
        rows.append(("Same stack", text))
    return rows


def life(trace: Trace, allocation: int) -> dict[str, str]:
    """Return when an allocation was made and freed, and how long it lived, in words."""
    allocations = trace.allocations
    event_count = len(trace.events)
    times = trace.events.time_us
    start = int(allocations.start[allocation])
    end = int(allocations.end[allocation])
    freed = int(allocations.freed[allocation])
    is_early = start < 0
    is_freed = end < event_count
    texts = {
        "Allocated": "before the trace" if is_early else _event_text(trace, start),
        "Freed": "not before the end of the trace",
    }
    if is_freed:
        texts["Freed"] = _event_text(trace, end)
    if is_freed and freed >= event_count:
        texts["Given back"] = "not before the end: another stream may use it"
    elif freed - end > 1:
        texts["Given back"] = _event_text(trace, freed)
    first = max(start, 0)
    last = max(min(end, event_count - 1), 0)
    lived = count_text(max(last - first, 0), "event")
    if is_early or not is_freed:
        lived = f"at least {lived}"
    # A time of 0 is not known, and clocks can be set back.
    if event_count and 0 < times[first] <= times[last]:
        lived += f", {age_text(int(times[last]) - int(times[first]))}"
    texts["Lived"] = lived
    return texts


def _event_text(trace: Trace, event: int) -> str:
    """Return an event with its time since the first one, if that is known."""
    times = trace.events.time_us
    if times[event] <= 0 or times[0] <= 0:
        return f"event {event:,}"
    age = age_text(int(times[event]) - int(times[0]))
    return f"event {event:,}, {age} after the trace began"


def summary(snapshot: MemorySnapshot, trace: Trace, allocation: int) -> str:
    """Return an allocation on one line: "8.00 MiB  forward  model.py:54"."""
    size = size_text(int(trace.allocations.size[allocation]))
    stack = int(trace.allocations.stack[allocation])
    return f"{size}  {_frames.stack_text(snapshot, stack, caller=False)}"
