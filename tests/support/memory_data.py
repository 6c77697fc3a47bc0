"""Memory snapshots for tests, as PyTorch makes them, and what they must come to, worked out entry by entry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


def frame(name: str, line: int = 1, file: str = "train.py") -> dict[str, Any]:
    return {"filename": file, "line": line, "name": name}


def event(action: str, addr: int, size: int = 512, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": 1000, "compile_context": "N/A",
            "user_metadata": "", "frames": [frame(action)], **more}


def block(address: int, size: int, state: str = "active_allocated", requested: int | None = None,
          **more: Any) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": size if requested is None else requested,
            "state": state, "frames": [frame("block")], **more}


def segment(address: int, blocks: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    def total(key: str, *states: str) -> int:
        return sum(b[key] for b in blocks if b["state"] in states)

    live, held = ("active_allocated",), ("active_allocated", "active_pending_free")
    return {"device": 0, "address": address, "total_size": sum(b["size"] for b in blocks),
            "allocated_size": total("size", *live), "active_size": total("size", *held),
            "requested_size": total("requested_size", *live), "stream": 0, "segment_type": "large",
            "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks, **more}


def snapshot(events: list[dict[str, Any]], segments: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    return {"segments": segments or [], "device_traces": [events], "allocator_settings": {"max_split_size": -1},
            "external_annotations": [], **more}


@dataclass
class Replay:
    """A trace gone through entry by entry."""

    live: list[int]
    """Live bytes at each moment."""
    bands: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """(address, size, start, end, freed) of each allocation, sorted."""


def replay(events: list[dict[str, Any]], segments: list[dict[str, Any]]) -> Replay:
    """What is live when, by the rules in `splatview.viewer_app.memory.model`, one entry after the other."""
    m = len(events)
    bands: list[list[int]] = []
    now: dict[int, tuple[str, list[int]]] = {}

    def begin(e: dict[str, Any], start: int) -> list[int]:
        bands.append([e["addr"], e["size"], start, m, m])
        return bands[-1]

    for k, e in enumerate(events):
        state, band = now.get(e.get("addr", -1), ("gone", []))
        if e["action"] == "alloc":
            if state == "live":
                band[3] = band[4] = k
            elif state == "asked":
                band[4] = k
            now[e["addr"]] = "live", begin(e, k)
        elif e["action"] == "free_requested":
            if state == "asked":
                band[4] = k
            if state != "live":
                band = begin(e, -1)
            band[3] = k
            now[e["addr"]] = "asked", band
        elif e["action"] == "free_completed" and state in ("live", "asked"):
            band[3] = min(band[3], k)
            band[4] = k
            now[e["addr"]] = "gone", band
        elif e["action"] == "free":
            if state == "gone":
                band = begin(e, -1)
            band[3] = min(band[3], k)
            band[4] = k
            now[e["addr"]] = "gone", band
    for b in (b for s in segments for b in s["blocks"]):
        if b["state"] == "active_allocated" and now.get(b["address"], ("gone",))[0] != "live":
            bands.append([b["address"], b["requested_size"], -1, m, m])
    change = [0] * (m + 2)
    for _, size, start, end, _ in bands:
        change[start + 1] += size
        change[end + 1] -= size
    return Replay(np.cumsum(change)[:-1].tolist(), sorted(tuple(b) for b in bands))  # type: ignore[misc]


def live_bytes(trace: Any) -> list[int]:
    """Live bytes at each moment of a Trace, by its allocations."""
    a, m = trace.allocations, len(trace.events)
    change = np.zeros(m + 2, np.int64)
    np.add.at(change, a.start + 1, a.size)
    np.add.at(change, a.end + 1, -a.size)
    return np.cumsum(change)[:-1].tolist()
