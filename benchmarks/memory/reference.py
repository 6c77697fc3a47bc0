"""The limit, and the truth: `python -m benchmarks.memory.reference FILE OUT`.

How long `pickle.load` takes with garbage collection off; and the live bytes of each
device at every moment, replayed from the end of the trace, where the blocks are known,
into OUT as .npz: arrays "device0", ..., int64 (M + 1,).
"""

from __future__ import annotations

import gc
import json
import pickle
import resource
import sys
import time
from array import array
from typing import Any

import numpy as np


def live_bytes(snapshot: dict[str, Any], device: int) -> np.ndarray:
    """Return the live bytes at each moment, replayed backwards, int64 (M + 1,).

    The sum of what was requested and not asked to be freed.

    RuntimeError where the trace contradicts the segments at its end: it must be whole
    from its beginning on.
    """
    events = snapshot["device_traces"][device]
    live = {
        block["address"]: block["requested_size"]
        for segment in snapshot["segments"]
        if segment.get("device", 0) == device
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    }
    total = sum(live.values())
    byte_counts = array("q", bytes(8 * (len(events) + 1)))
    byte_counts[len(events)] = total
    for i in range(len(events) - 1, -1, -1):
        event = events[i]
        action = event["action"]
        if action == "alloc":
            if live.pop(event["addr"], None) != event["size"]:
                raise RuntimeError(
                    f"device_traces[{device}][{i}]: {event['addr']:#x} was not allocated like that"
                )
            total -= event["size"]
        elif action == "free_requested":
            if live.setdefault(event["addr"], event["size"]) != event["size"]:
                raise RuntimeError(
                    f"device_traces[{device}][{i}]: {event['addr']:#x} was freed, yet it is live"
                )
            total += event["size"]
        byte_counts[i] = total
    return np.frombuffer(byte_counts, np.int64)


def main() -> None:
    gc.disable()
    started_at = time.perf_counter()
    cpu_before = time.process_time()
    with open(sys.argv[1], "rb") as file:
        snapshot = pickle.load(file)
    seconds = time.perf_counter() - started_at
    cpu = time.process_time() - cpu_before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    arrays: dict[str, Any] = {
        f"device{i}": live_bytes(snapshot, i)
        for i in range(len(snapshot["device_traces"]))
    }
    np.savez(sys.argv[2], **arrays)
    print(json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak}), flush=True)


if __name__ == "__main__":
    main()
