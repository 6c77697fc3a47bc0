"""Measure layout, search and SQL of a snapshot.

`python -m benchmarks.memory.answers FILE LIVE`, with LIVE from `reference`.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from splatview_viewer.snapshot.analysis.flame import flame_graph
from splatview_viewer.snapshot.analysis.leaks import find_leaks
from splatview_viewer.snapshot.analysis.search import search
from splatview_viewer.snapshot.analysis.tables import group_allocations
from splatview_viewer.snapshot.loading import load_snapshot
from splatview_viewer.snapshot.model import live_mask
from splatview_viewer.snapshot.query import Database
from splatview_viewer.snapshot.timeline.bands import Addresses, Bands
from splatview_viewer.snapshot.timeline.compiled import kernels

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
SEARCHES = (
    "forward",
    "model.py:253",
    ">80MB",
    ">1MB <20MB optimizer.py",
    "stream:default",
    "0x7f2c12345678",
    "nothing_at_all",
)
SQL = (
    "select s.text, count(*) n, sum(a.size) bytes from allocations a join stacks s using (stack_id) "
    "group by all order by bytes desc limit 20"
)


def timed(compute: Callable[..., T], *arguments: Any) -> tuple[float, T]:
    started_at = time.perf_counter()
    result = compute(*arguments)
    return time.perf_counter() - started_at, result


def _flame_at(snapshot: Any, trace: Any, event: int) -> Any:
    """Return the flame graph of what is live after an event."""
    return flame_graph(snapshot, trace, live_mask(trace, event))


def main() -> None:
    out: dict[str, Any] = {}
    snapshot = load_snapshot(sys.argv[1])
    trace = max(snapshot.traces, key=lambda t: len(t.events))
    out["warm"], _ = timed(kernels)
    out["bands"], bands = timed(Bands, trace)
    out["addresses"], _ = timed(Addresses, trace)
    with np.load(sys.argv[2]) as truth:
        for other_trace in snapshot.traces:
            other_bands = bands if other_trace is trace else Bands(other_trace)
            live = other_bands.live
            if not np.array_equal(live, truth[f"device{other_trace.device}"]):
                raise RuntimeError(
                    f"device {other_trace.device}: the live bytes are not those of a replay"
                )
    if (bands.live > bands.reserved).any():
        raise RuntimeError("more is live than is reserved")
    answers = {text: timed(search, snapshot, trace, text) for text in SEARCHES}
    out["search"] = {
        text: (seconds, int(hits.count)) for text, (seconds, hits) in answers.items()
    }
    out["search again"] = max(
        timed(search, snapshot, trace, text)[0] for text in SEARCHES
    )
    peak = int(np.argmax(bands.live))
    out["flame"], _ = timed(_flame_at, snapshot, trace, peak)
    out["stacks"], _ = timed(group_allocations, snapshot, trace, None, "stack")
    out["leaks"], _ = timed(find_leaks, snapshot, trace)
    out["open database"], database = timed(Database, snapshot)
    out["sql"], rows = timed(database.run, SQL)
    out["sql rows"] = len(rows.rows)
    print(json.dumps(out), flush=True)


if __name__ == "__main__":
    main()
