"""Whose frame it is, what an allocation is for, its colour and details; segments at any moment, and lack of memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.memory_data import HIGH, MB, Recorder

from splatview_viewer.kinds.snapshot.analysis.colors import COLOR_BYS, ColorBy, colors
from splatview_viewer.kinds.snapshot.analysis.details import ACTIVE, INACTIVE, PENDING, describe, segments_at, summary
from splatview_viewer.kinds.snapshot.analysis.frames import (
    BACKWARD,
    LIBRARY,
    MACHINERY,
    NATIVE,
    TORCH,
    USER,
    categories,
    kind_of,
)
from splatview_viewer.kinds.snapshot.analysis.tables import post_mortem
from splatview_viewer.kinds.snapshot.model import live_ids

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Snapshot


ENGINE = "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)"
RELEASE = "torch::autograd::generated::MulBackward0::release_variables()"
MUL = "torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>&&)"
OPTIM = "/x/site-packages/torch/optim/adam.py:5 "
NN = "/x/site-packages/torch/nn/modules/module.py:5 "


@pytest.mark.parametrize(("file", "name", "kind"), [
    ("/home/me/model.py", "forward", USER),
    ("<ipython-input-3-abc>", "<module>", USER),
    ("/home/me/.venv/lib/python3.12/site-packages/torch/nn/modules/module.py", "_call_impl", TORCH),
    ("/tmp/torchinductor_me/ab/cab.py", "call", TORCH),
    ("<eval_with_key>.5", "forward", TORCH),
    ("/x/site-packages/transformers/trainer.py", "train", LIBRARY),
    ("C:\\env\\Lib\\site-packages\\gsplat\\rendering.py", "rasterization", LIBRARY),
    ("??", MUL, BACKWARD),
    ("", "at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)", NATIVE),
    ("??", "my_extension::rasterize(at::Tensor)", NATIVE),
    ("??", "_PyEval_EvalFrameDefault", MACHINERY),
    ("CUDACachingAllocator.cpp", "c10::cuda::CUDACachingAllocator::Native::malloc(void**)", MACHINERY),
])
def test_whose_frame(file: str, name: str, kind: int) -> None:
    assert kind_of(file, name) == kind


def _category(made: tuple[str, ...], freed: tuple[str, ...] | None) -> str:
    r = Recorder()
    r.alloc(4096, 100, *made)
    r.alloc(5 << 20, 64, "x.py:1 filler", ENGINE)
    if freed is not None:
        r.free(4096, *freed)
    for i in range(40):
        r.alloc((i + 500) << 20, 64, "x.py:1 filler")
    snapshot = r.snapshot()
    of_allocation, names = categories(snapshot, snapshot.traces[0])
    return names[of_allocation[np.flatnonzero(snapshot.traces[0].allocations.addr == 4096)[0]]]


@pytest.mark.parametrize(("made", "freed", "category"), [
    ((NN + "_apply", "train.py:1 main"), None, "parameters"),
    ((OPTIM + "_init_group", "train.py:2 main"), None, "optimizer state"),
    (("model.py:1 forward", NN + "_call_impl"), (RELEASE, ENGINE), "activations"),
    (("model.py:1 forward", NN + "_call_impl"), ("model.py:2 forward",), "other temporaries"),
    ((MUL, ENGINE), (MUL, ENGINE), "backward temporaries"),
    ((MUL, ENGINE), (OPTIM + "zero_grad", "train.py:3 main"), "gradients"),
    (("torch::autograd::AccumulateGrad::apply()", ENGINE), None, "gradients"),
    (("model.py:1 forward", NN + "_call_impl", "ckpt.py:1 backward", ENGINE), (MUL, ENGINE), "activations"),
    (("at::cuda::getCurrentCUDABlasHandle()", "model.py:1 forward"), None, "library workspaces"),
    (("c10d::ProcessGroupNCCL::allreduce()", "train.py:1 main"), None, "communication"),
    (("/x/site-packages/torch/utils/data/_utils/pin_memory.py:3 pin", "train.py:1 main"), None, "inputs"),
    (("train.py:9 main",), None, "other"),
])
def test_categories(made: tuple[str, ...], freed: tuple[str, ...] | None, category: str) -> None:
    assert _category(made, freed) == category


@pytest.mark.parametrize("by", COLOR_BYS)
def test_colours(real: Snapshot, by: ColorBy) -> None:
    trace = real.traces[0]
    found = colors(real, trace, by)
    assert found.classes.dtype == np.uint16 and found.classes.shape == (len(trace.allocations),)
    assert found.palette.dtype == np.uint8 and found.palette.shape[1] == 3
    assert found.classes.max() < len(found.palette)
    assert found.legend and len(found.legend) <= 16
    assert all(name and 0 <= number < len(found.palette) for name, number in found.legend)
    assert len({number for _, number in found.legend}) == len(found.legend)
    luminance = found.palette @ np.array([0.2126, 0.7152, 0.0722])
    assert luminance.min() > 50 and luminance.max() < 225  # to be seen on a dark ground, and not glaring


def test_details_tell_everything() -> None:
    r = Recorder()
    r.segment(0x7F0000000000, 64 * MB)
    r.alloc(0x7F0000000000, 3 * MB, "at::_ops::mul_Tensor::call()", "/me/model.py:3 forward", NN + "_call_impl",
            "/me/train.py:7 main", compile_context="0/1", user_metadata="epoch 3", stream=9)
    r.alloc(0x7F0001000000, 3 * MB, "/me/model.py:4 other")
    r.free(0x7F0000000000, "/me/train.py:8 main")
    snapshot = r.snapshot()
    details = describe(snapshot, snapshot.traces[0], 0, 2)
    rows = dict(details.rows)
    assert details.title == "3.00 MiB  forward  model.py:3  aten::mul_Tensor"
    assert rows["Size"] == "3.00 MiB (3,145,728 bytes)" and rows["Address"] == "0x7f0000000000"
    assert rows["Stream"] == "stream 9" and rows["Pool"] == "default pool"
    assert rows["Compiled"] == "0/1" and rows["Metadata"] == "epoch 3"
    assert rows["Allocated"].startswith("event 1") and rows["Freed"] == "event 3, 3 ms after the trace began"
    assert rows["Lived"] == "2 events, 2 ms" and rows["Share"] == "100.0% of the 3.00 MiB live at moment 2"
    assert [line.text for line in details.user_frames] == ["/me/model.py:3  forward", "/me/train.py:7  main"]
    assert [line.user for line in details.frames] == [False, True, False, True]
    assert [line.line for line in details.freed_frames] == [8]
    for part in (details.title, "/me/model.py:3  forward", "Compiled", "at::_ops::mul_Tensor::call()"):
        assert part in details.text()
    assert dict(describe(snapshot, snapshot.traces[0], 1).rows)["Freed"] == "not before the end of the trace"
    with pytest.raises(IndexError, match=r"allocation 2 is not one of 0\.\.1"):
        describe(snapshot, snapshot.traces[0], 2)


def test_endless_names_are_no_burden() -> None:
    """What is looked at of a name is bounded."""
    for name in ("Backward<" * 100_000, "structured_" * 100_000, "(" * 1_000_000, "a::" * 400_000):
        r = Recorder()
        r.alloc(4096, 100, name, f"/home/{name}.py:1 {name}")
        snapshot = r.snapshot()
        trace = snapshot.traces[0]
        assert categories(snapshot, trace)[0].shape == (1,)
        assert 0 < len(summary(snapshot, trace, 0)) < 5000


# -- segments, and what an error leaves


@pytest.mark.parametrize("rounded", [True, False], ids=["sizes known", "sizes inferred"])
def test_at_the_end_the_blocks_are_those_of_the_snapshot(real: Snapshot, rounded: bool) -> None:
    trace = real.traces[0]
    if not rounded:
        trace = replace(trace, allocations=replace(trace.allocations, rounded=0 * trace.allocations.rounded))
    at = segments_at(real, trace, len(trace.events))
    order = np.argsort(trace.segments.addr)
    assert at.addr.tolist() == trace.segments.addr[order].tolist()
    assert at.size.tolist() == trace.segments.total[order].tolist()
    b, order = trace.blocks, np.argsort(trace.blocks.addr)
    assert at.block_addr.tolist() == b.addr[order].tolist()
    assert at.block_size.tolist() == b.size[order].tolist()
    assert at.block_state.tolist() == b.state[order].tolist()
    assert at.block_allocation.tolist() == b.allocation[order].tolist()


def test_blocks_fill_the_segments_and_hold_what_is_live_at_every_moment(real: Snapshot) -> None:
    trace = real.traces[0]
    for moment in (0, 1, 500, 3486, 9999, 13134, 20000):
        at = segments_at(real, trace, moment)
        live = at.block_allocation[at.block_state == ACTIVE]
        assert sorted(live.tolist()) == live_ids(trace, moment).tolist()
        assert (at.block_addr[at.block_state == ACTIVE] == trace.allocations.addr[live]).all()
        for i in range(len(at)):
            mine = slice(int(at.block_start[i]), int(at.block_start[i + 1]))
            ends = at.block_addr[mine] + at.block_size[mine]
            assert at.block_addr[mine][0] == at.addr[i] and ends[-1] == at.addr[i] + at.size[i]
            assert (at.block_addr[mine][1:] == ends[:-1]).all()
        assert at.active + at.pending + at.free == at.reserved
    with pytest.raises(ValueError, match="moment -1 is not one of"):
        segments_at(real, trace, -1)


def test_pending_blocks_and_figures() -> None:
    r = Recorder()
    r.segment(HIGH, 20 * MB)
    r.alloc(HIGH, 4 * MB, "a.py:1 f")
    r.alloc(HIGH + 8 * MB, 2 * MB, "a.py:2 f")
    r.add("free_requested", HIGH, 4 * MB)
    r.free(HIGH + 8 * MB)
    r.add("free_completed", HIGH, 4 * MB)
    r.live.clear()
    snapshot = r.snapshot()
    trace = snapshot.traces[0]
    states = [segments_at(snapshot, trace, m).block_state.tolist() for m in range(len(trace.events) + 1)]
    assert states == [[], [INACTIVE], [ACTIVE, INACTIVE], [ACTIVE, INACTIVE, ACTIVE, INACTIVE],
                      [PENDING, INACTIVE, ACTIVE, INACTIVE], [PENDING, INACTIVE, PENDING, INACTIVE],
                      [PENDING, INACTIVE], [INACTIVE]]
    at = segments_at(snapshot, trace, 4)
    assert (at.reserved, at.active, at.pending, at.free) == (20 * MB, 2 * MB, 4 * MB, 14 * MB)
    assert at.block_addr.tolist() == [HIGH, HIGH + 4 * MB, HIGH + 8 * MB, HIGH + 10 * MB]
    assert (at.largest_free, at.free_blocks, at.fragmentation) == (10 * MB, 2, 1 - 10 / 14)
    empty = segments_at(snapshot, trace, 0)
    assert (len(empty), empty.reserved, empty.largest_free, empty.fragmentation) == (0, 0, 0, 0.0)


def _checkered(live: int, hole: int) -> Recorder:
    """Sixteen segments of 20 MiB, live blocks with holes behind them."""
    r = Recorder()
    for i in range(16):
        base = (1 << 30) + i * 32 * MB
        r.segment(base, 20 * MB)
        for k in range(20 * MB // (live + hole)):
            r.alloc(base + k * (live + hole), live, "model.py:7 forward", "train.py:3 step")
            if hole:
                r.alloc(base + k * (live + hole) + live, hole, "tmp.py:1 scratch")
    for addr in [a for a, v in r.live.items() if v[1][0].startswith("tmp")]:
        r.free(addr)
    return r


def test_fragmentation_is_told_from_being_really_full() -> None:
    r = _checkered(2 * MB, 3 * MB)
    r.oom(100 * MB, 10 * MB)
    snapshot = r.snapshot()
    (oom,) = post_mortem(snapshot, snapshot.traces[0])
    assert oom.kind == "fragmentation" and "192 MiB was free in 64 blocks, none larger than 3.00 MiB" in oom.verdict
    assert (oom.asked, oom.device_free, oom.live) == (100 * MB, 10 * MB, 128 * MB)
    assert (oom.cached, oom.largest_free, oom.free_blocks) == (192 * MB, 3 * MB, 64)
    assert oom.holders[0].label == "forward  model.py:7  from step train.py:3" and oom.holders[0].count == 64

    r = _checkered(20 * MB, 0)
    r.oom(100 * MB, 10 * MB)
    snapshot = r.snapshot()
    (oom,) = post_mortem(snapshot, snapshot.traces[0])
    assert oom.kind == "full" and oom.verdict.startswith("Really full: 320 MiB of 320 MiB reserved was in use")
