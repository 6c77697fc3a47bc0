"""Search over allocations, compared with asking each of them; words about sizes and times."""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.memory_by_hand import MB, Recorder
from support.repetitions import exhaustive

from splatview.viewer_app.memory import analysis, load_snapshot
from splatview.viewer_app.memory.analysis import search
from splatview.viewer_app.memory.words import age_text, parse_size, size_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from splatview.viewer_app.memory import Snapshot


@pytest.fixture(scope="module")
def real(data_dir: Path) -> Snapshot:
    return load_snapshot(data_dir / "training_memory_snapshot.pickle", cache=False)


def _stack_has(part: str) -> Callable[[Snapshot, int], bool]:
    @functools.cache
    def stack_has(snapshot: Snapshot, stack: int) -> bool:
        return any(part in f.file.lower() or part in f.name.lower() for f in snapshot.stack(stack))

    return lambda snapshot, i: stack_has(snapshot, int(snapshot.traces[0].allocations.stack[i]))


def _size(test: Callable[[int], bool]) -> Callable[[Snapshot, int], bool]:
    return lambda snapshot, i: test(int(snapshot.traces[0].allocations.size[i]))


@pytest.mark.parametrize(("text", "wanted"), [
    ("softmax", _stack_has("softmax")),
    exhaustive("SoftMax", _stack_has("softmax")),
    exhaustive("nn_utils.py", _stack_has("nn_utils.py")),
    exhaustive("'softmax", _stack_has("'softmax")),
    (">1MiB", _size(lambda s: s > MB)),
    ("<=4096", _size(lambda s: s <= 4096)),
    ("=4096", _size(lambda s: s == 4096)),
    ("4096", _size(lambda s: s == 4096)),
    ("8MB", _size(lambda s: 7.5 * MB <= s < 8.5 * MB)),
    ("10MB-20MB", _size(lambda s: 10 * MB <= s <= 20 * MB)),
    ("10-20MB", _size(lambda s: 10 * MB <= s <= 20 * MB)),
    ("10mib..0.5GiB", _size(lambda s: 10 * MB <= s <= 512 * MB)),
    ("#77", lambda _, i: i == 77),
    ("", lambda *_: True),
])
def test_search_finds_what_asking_each_finds(real: Snapshot, text: str,
                                             wanted: Callable[[Snapshot, int], bool]) -> None:
    trace = real.traces[0]
    hits = search(real, trace, text)
    assert hits.ids.tolist() == [i for i in range(len(trace.allocations)) if wanted(real, i)]
    assert hits.count == len(hits.ids) and hits.bytes == trace.allocations.size[hits.ids].sum()
    assert len(hits.words) == (1 if text else 0)


def test_a_line_and_an_address(real: Snapshot) -> None:
    a = real.traces[0].allocations
    lines = search(real, real.traces[0], "model.py:39")
    assert lines.count > 100
    for stack in np.unique(a.stack[lines.ids]).tolist():
        assert any(f.file.endswith("model.py") and f.line == 39 for f in real.stack(stack))
    addr, size = int(a.addr[1000]), int(a.size[1000])
    inside = search(real, real.traces[0], f"0x{addr + size // 2:X}").ids
    assert 1000 in inside
    assert all(a.addr[i] <= addr + size // 2 < a.addr[i] + max(a.size[i], a.rounded[i]) for i in inside)
    assert search(real, real.traces[0], "0xffffffffffffffff").count == 0


def test_all_words_are_needed_and_a_minus_leaves_out(real: Snapshot) -> None:
    trace = real.traces[0]
    both = search(real, trace, "softmax >1MiB").mask
    assert (both == search(real, trace, "softmax").mask & search(real, trace, ">1MiB").mask).all()
    without = search(real, trace, "-softmax >1MiB").mask
    assert (without == ~search(real, trace, "softmax").mask & search(real, trace, ">1MiB").mask).all()
    live = search(real, trace, "live:3486")
    assert live.ids.tolist() == analysis.live_ids(trace, 3486).tolist()
    names = real.traces[0]
    activations = search(real, trace, "category:activations").mask
    of_allocation, categories = analysis.categories(real, names)
    assert (activations == (of_allocation == categories.index("activations"))).all()


@pytest.mark.parametrize("text", ["stream:99", "pool:private", "pool:x", "category:cheese", "live:999999999999",
                                  "age:long", "no such thing at all", 'an "open quote', "\\", "\x00", "é" * 300])
def test_anything_can_be_typed(real: Snapshot, text: str) -> None:
    hits = search(real, real.traces[0], text)
    assert hits.count == 0
    assert hits.words and all(hits.words)


@pytest.mark.parametrize("text", [">", ">1Gi", "0x", "#", "-", ":", "=", "10MB-", "live:", "()*[+"])
def test_half_typed_words_are_no_errors(real: Snapshot, text: str) -> None:
    assert search(real, real.traces[0], text).mask.shape == (len(real.traces[0].allocations),)


def test_streams_contexts_and_texts_that_touch() -> None:
    r = Recorder()
    r.alloc(4096, 100, "a.py:1 one", stream=7)
    r.alloc(8192, 100, "b.py:1 two", compile_context="graph_12/3", user_metadata="epoch seven")
    snapshot = r.snapshot()
    trace = snapshot.traces[0]
    assert search(snapshot, trace, "stream:7").mask.tolist() == (trace.allocations.stream == 1).tolist()
    assert search(snapshot, trace, "stream:7").count == 1
    assert "0, 7" in search(snapshot, trace, "stream:8").words[0] or "7, 0" in search(
        snapshot, trace, "stream:8").words[0]
    for text in ("graph_12/3", '"epoch seven"'):
        assert trace.allocations.addr[search(snapshot, trace, text).ids].tolist() == [8192]
    everything = [t for t in snapshot.texts if t]
    for one, other in pairwise(everything):  # as they lie in the blob
        assert search(snapshot, trace, f'"{one[-1]}{other[0]}"').count == sum(
            any(one[-1] + other[0] in t for t in (f.file, f.name))
            for i in range(2) for f in snapshot.stack(int(trace.allocations.stack[i])))


def test_words_about_sizes() -> None:
    said = {0: "0 B", 512: "512 B", 999: "999 B", 1000: "0.98 KiB", 1024: "1.00 KiB", 1536 << 20: "1.50 GiB",
            -(2 << 20): "-2.00 MiB", 1023 << 20: "1.00 GiB", 100 << 20: "100 MiB", 10 << 30: "10.0 GiB",
            int(99.96 * 1024): "100 KiB", 2 << 60: "2048 PiB"}
    assert {size: size_text(size) for size in said} == said
    assert [age_text(t) for t in (0.5, 12e3, 3.2e6, 245e6, 7380e6)] == [
        "0.5 us", "12 ms", "3.2 s", "4 min 05 s", "2 h 03 min"]
    assert parse_size("512MB") == (512 * MB, MB / 2)
    assert parse_size("1.5 GiB") == (1.5 * (1 << 30), 0.05 * (1 << 30))
    assert parse_size("4096") == (4096, 0)
    assert parse_size("12 bytes") == (12, 0)
    assert parse_size("MB") is None and parse_size("1.2.3") is None and parse_size("") is None
