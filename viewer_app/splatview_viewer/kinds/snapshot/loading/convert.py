"""From what a snapshot's pickle holds to a Snapshot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats import Progress, silent
from splatview_viewer.kinds.snapshot.loading.entries import (
    LIMIT,
    MAX_DEVICES,
    Tables,
    TraceReader,
    listed,
    read_segments,
    whole,
)
from splatview_viewer.kinds.snapshot.loading.pairing import pair
from splatview_viewer.kinds.snapshot.loading.spans import fill_pools, make_spans
from splatview_viewer.kinds.snapshot.loading.stacks import shown
from splatview_viewer.kinds.snapshot.model import Annotation, Blocks, Segments, Snapshot, Trace

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Events

MAX_EVENTS = 2**31 - 2
MAX_SETTINGS = 1 << 20
_READING = 0.7
"""Of the time that it takes, reading the events; the rest is pairing."""


def convert(data: Any, name: str, progress: Progress = silent, *, consume: bool = False, file_bytes: int = 0
            ) -> Snapshot:
    """The Snapshot of what a pickle holds: the mapping that `torch.cuda.memory._snapshot` returns, or only the
    segments (`torch.cuda.memory_snapshot`).

    Args:
        consume: take the data apart meanwhile, so that its memory is free for the columns.

    Raises:
        FileError: it is none; the message names the entry.
    """
    if type(data) is list and data and type(data[0]) is dict and "total_size" in data[0]:
        data = {"segments": data}
    if type(data) is not dict or not any(key in data for key in ("segments", "device_traces")):
        raise FileError(f"a pickle, but no memory snapshot: it holds {_found(data)}; a snapshot is a mapping with "
                        "segments and device_traces, as torch.cuda.memory._dump_snapshot writes it")
    traces = listed(data.get("device_traces"), "device_traces")
    if len(traces) > MAX_DEVICES:
        raise FileError(f"device_traces has {len(traces):,} devices; at most {MAX_DEVICES:,} can be read")
    counts = [len(listed(t, f"device_traces[{d}]")) for d, t in enumerate(traces)]
    if sum(counts) > MAX_EVENTS:
        raise FileError(f"the traces have {sum(counts):,} events; at most {MAX_EVENTS:,} can be read")
    tables = Tables()
    done = [0]

    def told(count: int) -> None:
        progress("reading events", _READING * (done[0] + count) / max(sum(counts), 1))

    events: dict[int, Events] = {}
    for device, (trace, count) in enumerate(zip(traces, counts, strict=True)):
        if count:
            events[device] = TraceReader(trace, device, tables).finish(told, consume=consume)
            if consume:
                trace.clear()
        done[0] += count
    segments = read_segments(listed(data.get("segments"), "segments"), tables, events)
    notes: list[str] = []
    made: list[Trace] = []
    for device in segments:
        progress("pairing", _READING + (1 - _READING) * len(made) / len(segments))
        e = events.get(device)
        if e is None:
            e = TraceReader([], device, tables).finish(lambda count: None, consume=False)
        made.append(_trace(device, e, *segments[device], notes))
    notes += _more_notes(data, made)
    texts, stacks = tables.interner.finish()
    return Snapshot(name, tuple(made), texts, stacks, tuple(tables.streams), tuple(tables.pools),
                    _annotations(data.get("external_annotations")), _settings(data.get("allocator_settings")),
                    tuple(notes), file_bytes)


def _trace(device: int, events: Events, segments: Segments, blocks: Blocks, notes: list[str]) -> Trace:
    per_segment = np.diff(segments.block_start)
    p = pair(events, blocks, np.repeat(segments.stream, per_segment), np.repeat(segments.pool, per_segment))
    events.allocation[:] = p.events_allocation
    blocks.allocation[:] = p.blocks_allocation
    spans = make_spans(events, segments)
    fill_pools(p.allocations, events, segments, spans)
    a = p.allocations
    if float(np.sum(a.size, dtype=np.float64)) >= LIMIT:  # beyond it sums would overflow
        raise FileError(f"device {device}: the sizes of its allocations are together more than any machine hands out")
    early = int((a.start < 0).sum())
    bytes_early = int(a.size[a.start < 0].sum())
    for count, text in (
            (early, f"{{}} allocations ({bytes_early / 2**30:.2f} GiB) were live before the trace begins"),
            (p.lost_frees, "{} allocations end where their address was handed out again: their free is not in the "
                           "trace"),
            (p.late, "{} allocations have no alloc in the trace though their address was in use before (was recording "
                     "paused?); they are shown as live from its beginning"),
            (p.unheld, "{} allocations are live at the end of the trace, but no block holds them")):
        if count:
            notes.append(f"device {device}: {text.format(f'{count:,}')}")
    return Trace(device, events, a, spans, segments, blocks)


def _more_notes(data: dict[str, Any], traces: list[Trace]) -> list[str]:
    notes: list[str] = []
    host = sum(len(t) for t in listed(data.get("host_traces"), "host_traces") if type(t) in (list, tuple))
    host_segments = len(listed(data.get("host_segments"), "host_segments"))
    if host or host_segments:
        notes.append(f"the file also tells of pinned host memory ({host_segments:,} segments, {host:,} events), which "
                     "is not shown")
    if not any(len(t.events) for t in traces):
        notes.append("no events: recording was off; only what was live at the end is known")
    return notes


def _annotations(value: Any) -> tuple[Annotation, ...]:
    out: list[Annotation] = []
    for i, a in enumerate(listed(value, "external_annotations")):
        where = f"external_annotations[{i}]"
        if type(a) is not dict:
            raise FileError(f"{where} is {shown(a)}, not a mapping")
        name, stage, device = a.get("name", ""), a.get("stage", ""), a.get("device", 0)
        for key, text in (("name", name), ("stage", stage)):
            if type(text) is not str:
                raise FileError(f"{where}[{key!r}] is {shown(text)}, not a text")
        if type(device) is not int or not -1 <= device < 2**15:
            raise FileError(f"{where}['device'] is {shown(device)}, not the number of a device")
        out.append(Annotation(name, stage, device, whole(a.get("time_us", 0), f"{where}['time_us']")))
    return tuple(out)


def _settings(value: Any) -> dict[str, Any]:
    """The allocator's settings as JSON holds them, and no more of them than anybody reads."""
    left = [4096]

    def plain(v: Any, depth: int) -> Any:
        left[0] -= 1
        if left[0] < 0 or depth > 8:
            return "..."
        if type(v) is dict:
            return {str(k)[:200]: plain(x, depth + 1) for k, x in list(v.items())[:1024]
                    if type(k) in (str, int, bool, float)}
        if type(v) in (list, tuple):
            return [plain(x, depth + 1) for x in v[:1024]]
        if v is None or type(v) is bool or (type(v) is int and v.bit_length() <= 64) or (
                type(v) is float and abs(v) < float("inf")):
            return v
        return v[:1000] if type(v) is str else shown(v)

    if value is None:
        return {}
    if type(value) is not dict:
        raise FileError(f"allocator_settings is {shown(value)}, not a mapping")
    settings = plain(value, 0)
    return settings if len(json.dumps(settings)) <= MAX_SETTINGS else {}


def _found(data: Any) -> str:
    if type(data) is dict:
        keys = [shown(k) for k in list(data)[:6]]
        return f"a mapping with {', '.join(keys)}" + (", ..." if len(data) > 6 else "") if keys else "an empty mapping"
    return shown(data)
