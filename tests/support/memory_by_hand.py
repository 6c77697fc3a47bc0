"""Small memory snapshots made by hand, in the form in which PyTorch pickles them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview.viewer_app.memory.loading import from_pickled

if TYPE_CHECKING:
    from splatview.viewer_app.memory import Snapshot

Frames = tuple[str, ...]
MB = 1 << 20


def frame(text: str) -> dict[str, Any]:
    """"model.py:12 forward" or, for C++, "at::_ops::mul::call()"."""
    place, _, name = text.partition(" ")
    file, colon, line = place.rpartition(":")
    if not colon or not line.isdigit():
        return {"filename": "??", "line": 0, "name": text}
    return {"filename": file, "line": int(line), "name": name}


class Recorder:
    """Takes down what an allocator does: events in their order, segments that stay to the end."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self._live: dict[int, tuple[int, Frames, int]] = {}
        self._segments: dict[int, tuple[int, int]] = {}
        self.time = 1_700_000_000_000_000

    def add(self, action: str, addr: int, size: int, frames: Frames = (), **more: Any) -> None:
        """One event, a millisecond after the last."""
        self.time += 1000
        where = {"device_free": addr} if action == "oom" else {"addr": addr}
        self.events.append({"action": action, **where, "size": size, "stream": 0, "time_us": self.time,
                            "frames": [frame(f) for f in frames], **more})

    def segment(self, addr: int, size: int, stream: int = 0) -> None:
        """Memory from the driver."""
        self._segments[addr] = (size, stream)
        self.add("segment_alloc", addr, size, stream=stream)

    def alloc(self, addr: int, size: int, *frames: str, **more: Any) -> None:
        """An allocation; frames innermost first."""
        self._live[addr] = (size, frames, more.get("stream", 0))
        self.add("alloc", addr, size, frames, **more)

    def free(self, addr: int, *frames: str) -> None:
        """Asked for and completed."""
        size, _, stream = self._live.pop(addr)
        self.add("free_requested", addr, size, frames, stream=stream)
        self.add("free_completed", addr, size, frames, stream=stream)

    def oom(self, asked: int, device_free: int, **more: Any) -> None:
        """An allocation that failed."""
        self.add("oom", device_free, asked, ("train.py:1 step",), **more)

    def annotate(self, name: str, stage: str) -> None:
        """What the program says of itself, now."""
        self.time += 10
        self.annotations.append({"name": name, "stage": stage, "device": 0, "time_us": self.time})

    def snapshot(self) -> Snapshot:
        """All of it, with segments and blocks as they are now."""
        segments = []
        for start, (total, stream) in self._segments.items():
            here = {a: v for a, v in sorted(self._live.items()) if start <= a < start + total}
            blocks, at = [], start
            for addr, (size, frames, _) in here.items():
                rounded = -(-size // 512) * 512
                blocks += [_block(at, addr - at)] if addr > at else []
                blocks.append({**_block(addr, rounded), "requested_size": size, "state": "active_allocated",
                               "frames": [frame(f) for f in frames]})
                at = addr + rounded
            blocks += [_block(at, start + total - at)] if at < start + total else []
            used = sum(b["size"] for b in blocks if b["state"] != "inactive")
            segments.append({
                "device": 0, "address": start, "total_size": total, "allocated_size": used, "active_size": used,
                "requested_size": sum(v[0] for v in here.values()), "stream": stream, "segment_pool_id": (0, 0),
                "segment_type": "small" if total <= 2 * MB else "large", "is_expandable": False, "frames": [],
                "blocks": blocks})
        return from_pickled({"segments": segments, "device_traces": [self.events], "allocator_settings": {},
                             "external_annotations": self.annotations}, "by hand")


def _block(addr: int, size: int) -> dict[str, Any]:
    return {"address": addr, "size": size, "requested_size": 0, "state": "inactive", "frames": []}
