"""Which events make one allocation: against a replay, entry by entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.memory_data import block, event, live_bytes, replay, segment, snapshot

from splatview_viewer.kinds.snapshot.loading import from_pickled
from splatview_viewer.kinds.snapshot.model import ACTIONS, NO_STACK, Trace

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Snapshot


def bands(trace: Trace) -> list[tuple[int, ...]]:
    a = trace.allocations
    return sorted(zip(a.addr.tolist(), a.size.tolist(), a.start.tolist(), a.end.tolist(), a.freed.tolist(),
                      strict=True))


def check(data: dict[str, Any], trace: Trace) -> None:
    """Whether a trace is what a replay of its entries makes of them, and its numbers fit together."""
    events, segments = data["device_traces"][trace.device], [s for s in data["segments"] if s["device"] == trace.device]
    want = replay(events, segments)
    assert bands(trace) == want.bands
    assert live_bytes(trace) == want.live
    a, e, m = trace.allocations, trace.events, len(events)
    for i, of in enumerate(e.allocation.tolist()):
        if of < 0:
            continue
        assert a.addr[of] == e.addr[i]
        action = ACTIONS[e.action[i]]
        assert (a.start[of] == i) == (action == "alloc")
        assert i in (a.start[of], a.end[of], a.freed[of])
    begun = np.flatnonzero(a.start >= 0)
    assert (np.diff(a.start[begun]) > 0).all()
    assert (begun == np.arange(len(a) - len(begun), len(a))).all(), "those from before the trace come first"
    assert (np.diff(a.end[: len(a) - len(begun)]) <= 0).all(), "of them what stays longest lies lowest"
    assert (e.allocation[a.start[begun]] == begun).all()
    for i, of in enumerate(trace.blocks.allocation.tolist()):
        if of >= 0:
            assert a.addr[of] == trace.blocks.addr[i]
            assert a.freed[of] == m
            assert a.rounded[of] == trace.blocks.size[i]


def test_every_event_of_a_real_snapshot(real: Snapshot, pickled: dict[str, Any]) -> None:
    snap, data = real, pickled
    (trace,) = snap.traces
    check(data, trace)
    requested = sum(b["requested_size"] for s in data["segments"] for b in s["blocks"]
                    if b["state"] == "active_allocated")
    assert live_bytes(trace)[-1] == requested == int(trace.segments.requested.sum())
    known = {}

    def stack(number: int) -> list[tuple[str, int, str]]:
        if number not in known:
            known[number] = [(f.file, f.line, f.name) for f in snap.stack(number)]
        return known[number]

    for i, entry in enumerate(data["device_traces"][0]):
        want = [(f["filename"], f["line"], f["name"]) for f in entry["frames"]]
        assert stack(int(trace.events.stack[i])) == want
        if entry["action"] == "alloc":
            of = int(trace.events.allocation[i])
            assert trace.allocations.stack[of] == trace.events.stack[i]
            assert (trace.allocations.addr[of], trace.allocations.size[of]) == (entry["addr"], entry["size"])
    assert len({tuple(stack(i)) for i in range(len(snap.stacks))}) == len(snap.stacks)
    blocks = [b for s in sorted(data["segments"], key=lambda s: s["address"]) for b in s["blocks"]]
    for i, b in enumerate(blocks):
        assert stack(int(trace.blocks.stack[i])) == [(f["filename"], f["line"], f["name"]) for f in b["frames"]]
        assert (trace.blocks.allocation[i] >= 0) == (b["state"] == "active_allocated")


ADDRESS = st.integers(0, 4).map(lambda i: 0x7F0000000000 + i * 512)
ENTRY = st.builds(event, st.sampled_from(["alloc", "alloc", "free_requested", "free_completed", "free", "snapshot"]),
                  ADDRESS, st.integers(0, 2000))
STATE = st.sampled_from(["active_allocated", "active_pending_free", "inactive"])
ODD = st.sampled_from([0, 1, 2**63 - 0x7F0000000400, 9 << 60])


@settings(max_examples=30, deadline=None)
@given(st.lists(ENTRY, max_size=40), st.lists(STATE, min_size=5, max_size=5), st.booleans(), ODD)
def test_any_order_of_entries(events: list[dict[str, Any]], states: list[str], with_blocks: bool, odd: int) -> None:
    """Also orders that no allocator makes; addresses near and far, which are sorted in different ways."""
    for e in events:
        e["addr"] += odd
    start = 0x7F0000000000 + odd
    segments = [segment(start, [block(start + i * 512, 512, s, 100 + i) for i, s in enumerate(states)])]
    data = snapshot(events, segments if with_blocks else [])
    for trace in from_pickled(data).traces:
        check(data, trace)


def one(events: list[dict[str, Any]], *segments: dict[str, Any]) -> Trace:
    (trace,) = from_pickled(snapshot(events, list(segments))).traces
    return trace


def test_a_band_ends_at_the_request_and_is_free_when_that_is_complete() -> None:
    trace = one([event("alloc", 512, 100), event("snapshot", 0, 0), event("free_requested", 512, 100),
                 event("snapshot", 0, 0), event("free_completed", 512, 100)])
    assert bands(trace) == [(512, 100, 0, 2, 4)]
    assert live_bytes(trace) == [0, 100, 100, 0, 0, 0]
    assert trace.events.allocation.tolist() == [0, -1, 0, -1, 0]


def test_what_was_there_before_and_stays_lies_lowest() -> None:
    trace = one([event("free_requested", 1024, 30), event("alloc", 4096, 5), event("free_requested", 2048, 40)],
                segment(8192, [block(8192, 512, requested=7), block(8704, 512, "inactive")]))
    assert trace.allocations.addr.tolist() == [8192, 2048, 1024, 4096]
    assert trace.allocations.stack[0] == trace.blocks.stack[0]
    assert trace.allocations.stack[1] == NO_STACK, "the stack of a free is not the one of the alloc"
    assert trace.allocations.rounded.tolist() == [512, 0, 0, 0]
    assert live_bytes(trace) == [77, 47, 52, 12]


def test_oddities_are_noted() -> None:
    twice, freed = [event("alloc", 512), event("alloc", 512)], [event("alloc", 512), event("free", 512)]
    assert any("handed out again" in note for note in from_pickled(snapshot(twice)).notes)
    assert any("recording paused" in note for note in from_pickled(snapshot([*freed, freed[1]])).notes)


def test_pools_come_from_the_segment_where_the_events_do_not_tell() -> None:
    private = segment(1 << 20, [block(1 << 20, 512), block((1 << 20) + 512, 512, "inactive")], segment_pool_id=(0, 3))
    snap = from_pickled(snapshot([event("alloc", (1 << 20) + 512), event("free", (1 << 20) + 512),
                                  event("alloc", 64, pool_id=(7, 0)), event("alloc", 128)], [private]))
    (trace,) = snap.traces
    named = {int(a): snap.pools[p] if p >= 0 else None
             for a, p in zip(trace.allocations.addr, trace.allocations.pool, strict=True)}
    assert named == {1 << 20: (0, 3), (1 << 20) + 512: (0, 3), 64: (7, 0), 128: None}
    assert [snap.pools[p] if p >= 0 else None for p in trace.events.pool] == [(0, 3), (0, 3), (7, 0), None]


def spans(trace: Trace) -> list[tuple[int, ...]]:
    s = trace.spans
    return sorted(zip(s.addr.tolist(), s.size.tolist(), s.start.tolist(), s.end.tolist(), strict=True))


def test_what_is_reserved_when() -> None:
    trace = one([event("segment_alloc", 0x1000, 0x1000), event("segment_free", 0x5000, 0x1000),
                 event("segment_map", 0x8000, 0x3000), event("segment_unmap", 0x9000, 0x1000),
                 event("segment_free", 0x1000, 0x1000)],
                segment(0x8000, [block(0x8000, 0x1000)]), segment(0xA000, [block(0xA000, 0x1000)]),
                segment(0xF000, [block(0xF000, 0x1000)]))
    assert spans(trace) == [(0x1000, 0x1000, 0, 4), (0x5000, 0x1000, -1, 1), (0x8000, 0x1000, 2, 5),
                            (0x9000, 0x1000, 2, 3), (0xA000, 0x1000, 2, 5), (0xF000, 0x1000, -1, 5)]
