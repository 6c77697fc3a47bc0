"""Make memory snapshots of any length: a training's, repeated.

As `torch.cuda.memory._dump_snapshot` writes them.

Every round before the last, which is the recorded one, gives back what it allocated and
takes place in segments of its own. `SPLATVIEW_TEST_DATA` names the folder of the
recorded snapshot.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(
    os.environ.get(
        "SPLATVIEW_TEST_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"
    )
)
RECORDED = DATA / "training_memory_snapshot.pickle"
_ELSEWHERE = 1 << 42
"""Bytes between the addresses of the last round and those of all others."""

Event = dict[str, Any]


def write_trace(path: str | Path, events: int) -> None:
    """Write a snapshot with this many events on one device.

    A million need 1.2 GB of memory meanwhile.
    """
    with RECORDED.open("rb") as file:
        snapshot = pickle.load(file)
    traces = snapshot["device_traces"]
    last = max(traces, key=len)
    started_us = last[0]["time_us"]
    end = last[-1]["time_us"]
    round_events = _closed(last, snapshot["segments"])
    rounds = -(-max(events - len(last), 0) // len(round_events))
    gc.disable()
    new = list(
        itertools.chain.from_iterable(
            _moved(round_events, (started_us - end - 1) * rounds_left)
            for rounds_left in range(rounds, 0, -1)
        )
    )
    traces[traces.index(last)] = (new + last)[-events:]
    with Path(path).open("wb") as file:
        pickle.dump(snapshot, file, 4)


def _closed(trace: list[Event], segments: list[Event]) -> list[Event]:
    """Return a trace's allocations and frees, between those of the segments.

    What is left is freed at its end.
    """
    live: dict[int, Event] = {}
    closed = []
    for event in trace:
        if event["action"] == "alloc":
            live[event["addr"]] = event
        elif event["action"] == "free_completed":
            if live.pop(event["addr"], None) is None:
                continue
        elif event["action"] != "free_requested" or event["addr"] not in live:
            continue
        closed.append(event)
    for alloc in live.values():
        closed += [
            {**alloc, "action": action, "time_us": trace[-1]["time_us"]}
            for action in ("free_requested", "free_completed")
        ]
    segments_left = [
        {
            **trace[0],
            "addr": s["address"],
            "size": s["total_size"],
            "stream": s["stream"],
        }
        for s in segments
    ]
    return [
        *({**segment, "action": "segment_alloc"} for segment in segments_left),
        *closed,
        *(
            {**segment_place, "action": "segment_free", "time_us": trace[-1]["time_us"]}
            for segment_place in segments_left
        ),
    ]


def _moved(events: list[Event], later_us: int) -> Iterator[Event]:
    """Yield one more round of these events.

    As in PyTorch, a block's two frees have one list of frames in common.
    """
    frames: list[Any] = []
    for event in events:
        if event["action"] != "free_completed":
            frames = list(event["frames"])
        yield {
            **event,
            "addr": event["addr"] + _ELSEWHERE,
            "time_us": event["time_us"] + later_us,
            "compile_context": "N/A",
            "frames": frames,
        }


def main(arguments: list[str]) -> int:
    """Run `python -m benchmarks memory-trace OUT --events N`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks memory-trace", description=__doc__
    )
    parser.add_argument(
        "out", type=Path, metavar="OUT", help="the file, a pickle in protocol 4"
    )
    parser.add_argument(
        "--events", type=int, default=1_000_000, help="their number (%(default)s)"
    )
    options = parser.parse_args(arguments)
    try:
        write_trace(options.out, options.events)
    except OSError as e:
        parser.error(str(e))
    return 0
