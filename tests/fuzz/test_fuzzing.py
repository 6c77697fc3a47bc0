"""Whatever bytes come from outside: each reader refuses them with the errors that it declares, or takes them.

Longer runs: `python -m fuzz.run TARGET`, from within tests/.
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.memory_data import block, event, frame, listing, segment, snapshot
from support.programs import TESTS

import fuzz
import fuzz.run
from fuzz.damage import damaged
from splatview_viewer.core.errors import FileError
from splatview_viewer.kinds.files import FORMATS
from splatview_viewer.kinds.snapshot.loading import from_pickled

TARGETS = fuzz.load()


@pytest.mark.parametrize("name", TARGETS)
def test_it_refuses_or_takes_whatever_comes(name: str) -> None:
    seeds = fuzz.SEEDS[name]()
    for seed in seeds:
        TARGETS[name](seed)

    @settings(max_examples=300, deadline=None, database=None,
              suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(damaged(seeds))
    def holds(data: bytes) -> None:
        TARGETS[name](data)

    holds()


@pytest.mark.programs
@pytest.mark.parametrize("name", list(fuzz.CRAFTED))
def test_readers_take_crafted_inputs_within_limits(name: str) -> None:
    """Counts of 10^4300, 60,000 properties, 30,000 keys, planes of a hundred bytes that decode to gigabytes."""
    done = subprocess.run([sys.executable, "-m", "fuzz.run", "--crafted", name], cwd=TESTS, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "crafted inputs, nothing found" in done.stdout


def test_every_format_and_target_of_files_has_crafted_inputs() -> None:
    assert {f.name for f in FORMATS} == set(fuzz.FORMAT_OF.values())
    files = {name for name, run in TARGETS.items() if run.__module__ in ("fuzz.files", "fuzz.demo_files")}
    assert files - set(fuzz.CRAFTED) == {"page_message", "upload_name"}  # what a page sends
    assert set(fuzz.CRAFTED) <= set(TARGETS)


@pytest.mark.programs
def test_limits_end_a_process_that_takes_too_long() -> None:
    code = "from fuzz.run import cpu_limit\nwith cpu_limit(0): sum(1 for _ in iter(int, 1))"
    done = subprocess.run([sys.executable, "-c", code], cwd=TESTS)
    assert done.returncode == -signal.SIGXCPU


def test_one_can_be_run_for_longer(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.run.main(["to_trainer", "--plain", "0.3"]) == 0
    assert "nothing found" in capsys.readouterr().out
    assert fuzz.run.main(["no-such-target", "--plain"]) == 2
    assert "to_trainer" in capsys.readouterr().err


# -- snapshots with odd values -----------------------------------------------------------------------------------------

TEXT = st.sampled_from(["alloc", "frames", "oom", "", "name", "filename", "action", "\ud800", "\u00e4", "x" * 300])
NUMBER = st.one_of(st.integers(-3, 2**65), st.sampled_from([255, 2**31, -129, -2**31, 2**62, 2**63 - 1, -2**63]))
ANY = st.recursive(st.one_of(st.none(), st.booleans(), NUMBER, TEXT, st.floats()), lambda inner: st.one_of(
    st.lists(inner, max_size=4), st.lists(inner, max_size=4).map(tuple), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=12)


@st.composite
def snapshots(draw: st.DrawFn) -> dict[str, Any]:
    """Snapshots, mostly sound ones, with something odd here and there; objects are shared, as pickle keeps them."""
    shared = [frame(f"f{i}", i) for i in range(6)] + [frame("f1", 1)]  # equal frames need not be one object
    stack = st.lists(st.sampled_from(shared), max_size=5)
    traces = []
    for _ in range(draw(st.integers(0, 3))):
        trace = []
        for _ in range(draw(st.integers(0, 6))):
            e = event(draw(st.sampled_from(["alloc", "free_requested", "free_completed", "oom", "unheard of"])),
                      512 * draw(st.integers(0, 5)), frames=draw(stack), pool_id=draw(st.sampled_from([(0, 1), None])))
            for key in draw(st.lists(st.sampled_from([*e, "device_free", "new"]), max_size=1)):
                e[key] = draw(ANY)
            trace.append(e)
        traces.append(trace)
    blocks = [block(512 * i, 512, frames=draw(stack)) for i in range(draw(st.integers(0, 3)))]
    value = snapshot([], [segment(0, blocks)], allocator_settings=draw(st.dictionaries(TEXT, ANY)))
    return {**value, "device_traces": traces, "more": draw(ANY)}


def test_odd_values_in_a_snapshot_are_refused_or_read() -> None:
    read: list[bool] = []

    @settings(max_examples=300, deadline=None, database=None)
    @given(snapshots(), st.sampled_from([2, 3, 4, 5]))
    def holds(value: dict[str, Any], protocol: int) -> None:
        try:
            found = from_pickled(value)
        except FileError as e:
            assert len(str(e)) < 500
            return
        read.append(True)
        assert listing(found) == listing(from_pickled(pickle.loads(pickle.dumps(value, protocol))))

    holds()
    assert len(read) > 40
