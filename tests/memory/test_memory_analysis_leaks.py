"""Leak suspects and comparisons: what is planted is found, what is kept for good reasons is not blamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.memory_by_hand import MB, Recorder

from splatview.viewer_app.memory import analysis, load_snapshot
from splatview.viewer_app.memory.analysis import PERIODS, compare, leaks

if TYPE_CHECKING:
    from pathlib import Path

    from splatview.viewer_app.memory import Snapshot

BACKWARD = ("torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>&&)",
            "torch::autograd::Engine::evaluate_function(int)")


def _training(steps: int = 100, leak: int = 1000) -> Recorder:
    """A loop that keeps a list of losses (the leak), a queue of 5 batches, and an optimizer's state."""
    r = Recorder()
    addr = iter(range(1 << 30, 1 << 40, 16 * MB))
    queue: list[int] = []
    for step in range(steps):
        batch, activation, scratch = next(addr), next(addr), next(addr)
        r.alloc(batch, 2 * MB, "data.py:5 fetch", "train.py:9 main")
        queue.append(batch)
        if len(queue) > 5:
            r.free(queue.pop(0), "data.py:8 drop")
        r.alloc(activation, 8 * MB, "model.py:3 forward", "train.py:10 main")
        r.alloc(scratch, 4 * MB, *BACKWARD)
        r.free(scratch, *BACKWARD)
        r.free(activation, *BACKWARD)
        if leak:
            r.alloc(next(addr), leak, "train.py:12 remember", "train.py:11 main")
        if 30 <= step < 80:  # parameters that are first used late
            r.alloc(next(addr), 10 * MB, "/x/site-packages/torch/optim/adam.py:178 _init_group", "train.py:14 main")
        if step == 50:
            r.alloc(next(addr), 64 * MB, "cache.py:1 warm", "train.py:15 main")
    return r


def test_a_planted_leak_is_the_first_suspect_however_small() -> None:
    snapshot = _training().snapshot()
    trace = snapshot.traces[0]
    suspects = leaks(snapshot, trace)
    first = suspects[0]
    assert first.label == "remember  train.py:12  from main train.py:11"
    assert first.growing and first.growth == 1.0
    assert first.kept.sum() == first.count == len(first.ids) and (first.kept[:-2] >= 1).all()
    assert (trace.allocations.size[first.ids] == 1000).all() and first.bytes == 1000 * first.count
    assert (np.diff(first.live) > 0).all() and first.live[-1] == 100 * 1000
    assert first.age_us == trace.events.time_us[-1] - trace.events.time_us[first.oldest]
    assert first.verdict.startswith(f"Grows: {first.count} allocations left behind in 30 of 32 parts")
    others = {s.label.partition("  ")[0]: s for s in suspects[1:]}
    assert set(others) == {"warm", "main"}  # the optimizer's state is called by who steps it
    assert not any(s.growing for s in others.values())
    assert "made once and held" in others["warm"].verdict
    assert "Probably optimizer state" in others["main"].verdict


def test_what_the_last_turn_has_in_hand_is_no_leak_and_a_rare_leak_is_one() -> None:
    """A step of 600 allocations, all of them freed at its end, and the trace ends in the midst of one."""
    r = Recorder()
    addr = iter(range(1 << 30, 1 << 40, MB))
    for step in range(8):
        in_hand = []
        for layer in range(600 if step < 7 else 400):
            in_hand.append(next(addr))
            r.alloc(in_hand[-1], MB, f"model.py:{layer % 5} forward", "train.py:10 main")
        if step % 2 == 0 and step < 7:
            r.alloc(next(addr), 100, "log.py:1 note", "train.py:11 main")
        if step < 7:
            for a in in_hand[::-1]:
                r.free(a)
    snapshot = r.snapshot()
    suspects = leaks(snapshot, snapshot.traces[0])
    assert [s.label for s in suspects if s.growing] == ["note  log.py:1  from main train.py:11"]
    assert suspects[0].growing and suspects[0].count == 4


def test_without_the_leak_nobody_is_blamed() -> None:
    snapshot = _training(leak=0).snapshot()
    assert not any(s.growing for s in leaks(snapshot, snapshot.traces[0]))


def test_live_bytes_of_a_suspect_are_counted_at_the_end_of_each_period() -> None:
    snapshot = _training().snapshot()
    trace = snapshot.traces[0]
    edges = np.linspace(0, len(trace.events), PERIODS + 1).astype(int)[1:]
    for suspect in leaks(snapshot, trace):
        mine = trace.allocations.stack == suspect.stack
        expected = [int(trace.allocations.size[mine & analysis.live_mask(trace, int(k))].sum()) for k in edges]
        assert suspect.live.tolist() == expected


def test_a_short_trace_has_no_suspects() -> None:
    snapshot = _training(steps=3).snapshot()
    assert leaks(snapshot, snapshot.traces[0]) == []


@pytest.fixture(scope="module")
def real(data_dir: Path) -> Snapshot:
    return load_snapshot(data_dir / "training_memory_snapshot.pickle", cache=False)


@pytest.fixture(scope="module")
def again(data_dir: Path) -> Snapshot:
    """The same snapshot, loaded a second time."""
    return load_snapshot(data_dir / "training_memory_snapshot.pickle", cache=False)


def test_one_step_of_a_real_training_leaks_nothing(real: Snapshot) -> None:
    suspects = leaks(real, real.traces[0])
    assert suspects and not any(s.growing and s.bytes > MB for s in suspects)


@pytest.mark.parametrize("by", analysis.BYS)
def test_what_grew_between_two_moments(real: Snapshot, by: analysis.By) -> None:
    trace = real.traces[0]
    comparison = compare((real, trace, 1000), (real, trace, 20000), by)
    size = trace.allocations.size
    assert comparison.before == size[analysis.live_ids(trace, 1000)].sum()
    assert comparison.after == size[analysis.live_ids(trace, 20000)].sum()
    assert comparison.changes.tolist() == sorted((c.change for c in comparison), reverse=True)
    for side, moment in enumerate((1000, 20000)):
        ids = np.concatenate([c.allocations[side] for c in comparison])
        assert sorted(ids.tolist()) == analysis.live_ids(trace, moment).tolist()
    for change in comparison:
        before, after = change.allocations
        assert (change.before, change.after) == (size[before].sum(), size[after].sum())
        assert (change.count_before, change.count_after) == (len(before), len(after))


@pytest.mark.parametrize("by", analysis.BYS)
def test_the_same_program_s_snapshots_are_matched_by_what_stacks_say(real: Snapshot, again: Snapshot,
                                                                     by: analysis.By) -> None:
    side = (again, again.traces[0], 3486)
    assert not any(c.change or c.count_before != c.count_after for c in compare((real, real.traces[0], 3486), side, by))
    within = compare((real, real.traces[0], 1000), (real, real.traces[0], 3486), by)
    across = compare((real, real.traces[0], 1000), side, by)
    assert sorted((c.change, c.count_after) for c in within) == sorted((c.change, c.count_after) for c in across)


def test_stacks_of_two_runs() -> None:
    before, after = Recorder(), Recorder()
    after.alloc(1 << 20, 5, "z.py:1 only_here")  # so that the numbers of stacks and frames differ
    for r, count in ((before, 2), (after, 5)):
        for i in range(count):
            r.alloc((i + 2) << 20, 100, "a.py:1 f", "a.py:9 main")
            r.alloc((i + 50) << 20, 7, "a.py:9 main", "a.py:1 f")  # the other way round: another stack
    a, b = before.snapshot(), after.snapshot()
    found = [(c.label.split()[0], c.before, c.after, c.count_before, c.count_after)
             for c in compare((a, a.traces[0], 4), (b, b.traces[0], 11))]
    assert found == [("f", 200, 500, 2, 5), ("main", 14, 35, 2, 5), ("only_here", 0, 5, 0, 1)]
    with pytest.raises(ValueError, match=r"moment 99 is not one of 0\.\.4"):
        compare((a, a.traces[0], 99), (b, b.traces[0], 11))
