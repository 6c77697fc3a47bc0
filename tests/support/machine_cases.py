"""Traces for the compiled machine that reads pickles, and what tells whether two snapshots say the same."""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any

from splatview.viewer_app.memory.loading.convert import convert
from splatview.viewer_app.memory.loading.made import read_quickly
from support.memory_data import block, event, frame, segment, snapshot

if TYPE_CHECKING:
    from splatview.viewer_app.memory.model import Snapshot


def long_trace(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Allocs and frees; an alloc and its frees, and blocks, share stacks as PyTorch's do."""
    frames = [frame(f"f{i}", i) for i in range(50)]
    events: list[dict[str, Any]] = []
    for i in range(count // 3):
        taken = [frames[(i * k + seed) % 50] for k in range(1, 2 + i % 13)]
        given = [frames[(i + k) % 50] for k in range(i % 4)]
        addr = 512 * (i % 1000 + 1)
        events += [event("alloc", addr, i % 5000, frames=taken, time_us=i),
                   event("free_requested", addr, i % 5000, frames=given), event("free_completed", addr, frames=given)]
    return events


def data(count: int) -> dict[str, Any]:
    first, second = long_trace(count), long_trace(count // 2, 7)
    value = snapshot(first, [segment(1 << 30, [block(1 << 30, 512, frames=first[-3]["frames"])])])
    value["device_traces"] = [first, [], second]
    return value


def listing(snap: Snapshot) -> list[Any]:
    """All that it says, with what numbers stand for: they may be others."""
    out: list[Any] = [snap.notes, snap.settings, snap.annotations]
    texts = [*snap.texts, None]
    of: dict[str, Any] = {"stream": snap.streams, "pool": [*snap.pools, None], "context": texts, "metadata": texts,
                          "stack": [tuple((f.file, f.line, f.name) for f in snap.stack(i))
                                    for i in range(len(snap.stacks))] + [()]}
    for t in snap.traces:
        for part in (t.events, t.allocations, t.blocks, t.segments, t.spans):
            for name, column in vars(part).items():
                out.append((name, [of[name][i] for i in column.tolist()] if name in of else column.tolist()))
    return out


def by_machine(plain: bytes, piece: int = 1 << 20) -> Snapshot:
    """A pickle that comes in pieces of at most so many bytes."""
    stream = io.BytesIO(plain)
    data, tables = read_quickly(lambda buffer: stream.readinto(memoryview(buffer)[:piece]))
    return convert(data, "", tables=tables)


def as_objects(plain: bytes) -> Snapshot:
    return convert(pickle.loads(plain), "")
