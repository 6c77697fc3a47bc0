"""`splatview memory FILE --summary`: what a snapshot holds, in a few lines or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.quantities import change_text, size_text
from splatview_viewer.snapshot.analysis.leaks import find_leaks
from splatview_viewer.snapshot.analysis.tables import (
    compare_moments,
    group_allocations,
)
from splatview_viewer.snapshot.model import (
    ACTIONS,
    device_text,
    live_mask,
    measure_peak,
    peak_moment,
    reserved_bytes,
)

if TYPE_CHECKING:
    from splatview_viewer.snapshot.analysis.leaks import Suspect
    from splatview_viewer.snapshot.analysis.tables import Group
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

_MOST_ROWS = 5
"""Stacks that a summary names."""


def summarise(snapshots: list[MemorySnapshot]) -> dict[str, Any]:
    """Return what snapshots hold, and what grew from the first to the second."""
    summary: dict[str, Any] = {"snapshots": [_file(snapshot) for snapshot in snapshots]}
    if len(snapshots) > 1:
        summary["grew"] = _growth(snapshots[0], snapshots[1])
    return summary


def _file(snapshot: MemorySnapshot) -> dict[str, Any]:
    """Return the facts about one snapshot."""
    return {
        "file": snapshot.name,
        "devices": [_device(snapshot, trace) for trace in snapshot.traces],
        "notes": list(snapshot.notes),
    }


def _device(snapshot: MemorySnapshot, trace: Trace) -> dict[str, Any]:
    """Return the facts about one device."""
    peak = measure_peak(trace)
    at_peak = live_mask(trace, peak.peak_moment)
    holders = group_allocations(snapshot, trace, at_peak, "stack")
    failed = np.flatnonzero(trace.events.action == ACTIONS.index("oom"))
    suspects = find_leaks(snapshot, trace)
    return {
        "device": device_text(trace.device),
        "events": len(trace.events),
        "allocations": len(trace.allocations),
        "peak_bytes": peak.peak_bytes,
        "peak_moment": peak.peak_moment,
        "reserved_bytes": int(reserved_bytes(trace).max()),
        "end_bytes": peak.end_bytes,
        "failed_allocations": len(failed),
        "holders_at_peak": [_holder(group) for group in list(holders)[:_MOST_ROWS]],
        "suspects": [_suspect(suspect) for suspect in suspects[:_MOST_ROWS]],
    }


def _holder(group: Group) -> dict[str, Any]:
    """Return the facts about a stack that holds memory at the peak."""
    return {"stack": group.label, "bytes": group.bytes, "blocks": group.count}


def _suspect(suspect: Suspect) -> dict[str, Any]:
    """Return the facts about a stack that may leak."""
    return {
        "stack": suspect.label,
        "bytes": suspect.bytes,
        "grows": bool(suspect.is_growing),
        "verdict": suspect.verdict,
    }


def _growth(first: MemorySnapshot, second: MemorySnapshot) -> list[dict[str, Any]]:
    """Return what grew from the peak of the first to that of the second, by device."""
    grown = []
    traces = {trace.device: trace for trace in first.traces}
    for trace in second.traces:
        first_trace = traces.get(trace.device)
        if first_trace is None:
            continue
        comparison = compare_moments(
            _side_at_peak(first, first_trace), _side_at_peak(second, trace)
        )
        stacks = []
        for index in range(min(len(comparison), _MOST_ROWS)):
            row = comparison[index]
            growth = row.bytes_after - row.bytes_before
            if growth > 0:
                stacks.append({"stack": row.label, "bytes": growth})
        grown.append(
            {
                "device": device_text(trace.device),
                "bytes": comparison.bytes_after - comparison.bytes_before,
                "stacks": stacks,
            }
        )
    return grown


def _side_at_peak(
    snapshot: MemorySnapshot, trace: Trace
) -> tuple[MemorySnapshot, Trace, int]:
    """Return a device of a snapshot with the moment of its peak."""
    return snapshot, trace, peak_moment(trace)


def summary_text(summary: dict[str, Any]) -> str:
    """Return a summary as lines of text."""
    lines = []
    for snapshot in summary["snapshots"]:
        lines.append(snapshot["file"])
        for device in snapshot["devices"]:
            lines += _device_lines(device)
        lines += [f"  {note}" for note in snapshot["notes"]]
    for device in summary.get("grew", ()):
        if device["bytes"]:
            change = change_text(device["bytes"])
        else:
            change = "no change"
        lines.append(f"from peak to peak, {device['device']}: {change}")
        for row in device["stacks"]:
            lines.append(f"    {change_text(row['bytes']):>12}  {row['stack']}")
    return "\n".join(lines) + "\n"


def _device_lines(device: dict[str, Any]) -> list[str]:
    """Return the lines about one device."""
    lines = [
        f"  {device['device']}: {device['events']:,} events, "
        f"{device['allocations']:,} allocations",
        f"    highest {size_text(device['peak_bytes'])} after "
        f"{device['peak_moment']:,} events, of {size_text(device['reserved_bytes'])} "
        f"reserved; {size_text(device['end_bytes'])} at the end",
    ]
    if device["failed_allocations"]:
        lines.append(f"    out of memory {device['failed_allocations']} times")
    lines += [
        f"    {size_text(row['bytes']):>12}  {row['stack']}"
        for row in device["holders_at_peak"]
    ]
    growing = [row for row in device["suspects"] if row["grows"]]
    lines += [f"    may leak: {row['stack']}. {row['verdict']}" for row in growing]
    return lines
