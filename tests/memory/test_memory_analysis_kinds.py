"""Whose frame it is, what an allocation is for, its colour, its details, and marks on the axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.memory_by_hand import MB, Recorder

from splatview.viewer_app.memory import analysis, load_snapshot
from splatview.viewer_app.memory.analysis import COLOR_BYS, categories, colors, describe, marks
from splatview.viewer_app.memory.analysis.frames import (
    BACKWARD,
    LIBRARY,
    MACHINERY,
    NATIVE,
    TORCH,
    USER,
    kind_of,
    short_name,
)

if TYPE_CHECKING:
    from pathlib import Path

    from splatview.viewer_app.memory import Snapshot

ENGINE = "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)"
RELEASE = "torch::autograd::generated::MulBackward0::release_variables()"
MUL = "torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>&&)"


@pytest.fixture(scope="module")
def real(data_dir: Path) -> Snapshot:
    return load_snapshot(data_dir / "training_memory_snapshot.pickle", cache=False)


@pytest.mark.parametrize(("file", "name", "kind"), [
    ("/home/me/model.py", "forward", USER),
    ("/home/me/torch/train.py", "main", USER),
    ("train.py", "<module>", USER),
    ("<ipython-input-3-abc>", "<module>", USER),
    ("/tmp/ipykernel_77/12.py", "f", USER),
    ("/home/me/.venv/lib/python3.12/site-packages/torch/nn/modules/module.py", "_call_impl", TORCH),
    ("/home/me/pytorch/torch/nn/functional.py", "linear", TORCH),
    ("/tmp/torchinductor_me/ab/cab.py", "call", TORCH),
    ("<eval_with_key>.5", "forward", TORCH),
    ("/usr/lib/python3.12/threading.py", "run", LIBRARY),
    ("/x/site-packages/transformers/trainer.py", "train", LIBRARY),
    ("C:\\env\\Lib\\site-packages\\gsplat\\rendering.py", "rasterization", LIBRARY),
    ("<frozen runpy>", "_run_code", LIBRARY),
    ("??", MUL, BACKWARD),
    ("", "at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)", NATIVE),
    ("??", "my_extension::rasterize(at::Tensor)", NATIVE),
    ("??", "_PyEval_EvalFrameDefault", MACHINERY),
    ("CUDACachingAllocator.cpp", "c10::cuda::CUDACachingAllocator::Native::malloc(void**)", MACHINERY),
    ("??", "torch::unwind::unwind()", MACHINERY),
    ("", "", MACHINERY),
])
def test_whose_frame(file: str, name: str, kind: int) -> None:
    assert kind_of(file, name) == kind


def test_short_names() -> None:
    said = {"forward": "forward", "<module>": "<module>", "<lambda>": "<lambda>", MUL: "MulBackward0",
            "at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)": "aten::mul_Tensor",
            "at::Tensor at::_sum_to<c10::SymInt>(at::Tensor, bool)": "at::_sum_to",
            "void f<int>(int (*)(long)) [clone .isra.0]": "f", "": "", "x::operator()(int) const": "x::operator()",
            "a::(anonymous namespace)::b()": "a::(anonymous)::b",
            "torch::autograd::AccumulateGrad::apply()": "AccumulateGrad"}
    assert {name: short_name(name) for name in said} == said


def _category(made: tuple[str, ...], freed: tuple[str, ...] | None, after: int = 1) -> str:
    r = Recorder()
    r.alloc(4096, 100, *made)
    for i in range(after):
        r.alloc((i + 5) << 20, 64, "x.py:1 filler", ENGINE)
    if freed is not None:
        r.free(4096, *freed)
    for i in range(40):
        r.alloc((i + 500) << 20, 64, "x.py:1 filler")
    snapshot = r.snapshot()
    of_allocation, names = categories(snapshot, snapshot.traces[0])
    return names[of_allocation[np.flatnonzero(snapshot.traces[0].allocations.addr == 4096)[0]]]


OPTIM = "/x/site-packages/torch/optim/adam.py:5 "
NN = "/x/site-packages/torch/nn/modules/module.py:5 "


@pytest.mark.parametrize(("made", "freed", "after", "category"), [
    ((NN + "_apply", "train.py:1 main"), None, 1, "parameters"),
    ((OPTIM + "_init_group", "train.py:2 main"), None, 1, "optimizer state"),
    ((OPTIM + "step", "train.py:2 main"), (OPTIM + "step",), 1, "other temporaries"),
    (("model.py:1 forward", NN + "_call_impl"), (RELEASE, ENGINE), 1, "activations"),
    (("model.py:1 forward", NN + "_call_impl"), ("model.py:2 forward",), 1, "other temporaries"),
    (("model.py:1 forward", NN + "_call_impl"), None, 1, "activations"),
    (("loss.py:1 loss",), (MUL, ENGINE), 1, "activations"),
    ((MUL, ENGINE), (MUL, ENGINE), 1, "backward temporaries"),
    ((MUL, ENGINE), (OPTIM + "zero_grad", "train.py:3 main"), 1, "gradients"),
    (("torch::autograd::AccumulateGrad::apply()", ENGINE), None, 1, "gradients"),
    (("model.py:1 forward", NN + "_call_impl", "ckpt.py:1 backward", ENGINE), (MUL, ENGINE), 1, "activations"),
    (("model.py:1 forward", OPTIM + "step", "train.py:2 main"), (RELEASE, ENGINE), 1, "activations"),
    (("at::cuda::getCurrentCUDABlasHandle()", "model.py:1 forward"), None, 1, "library workspaces"),
    (("c10d::ProcessGroupNCCL::allreduce()", "train.py:1 main"), None, 1, "communication"),
    (("/x/site-packages/torch/utils/data/_utils/pin_memory.py:3 pin", "train.py:1 main"), None, 1, "inputs"),
    (("train.py:9 main",), None, 1, "other"),
    ((), None, 1, "other"),
])
def test_categories(made: tuple[str, ...], freed: tuple[str, ...] | None, after: int, category: str) -> None:
    assert _category(made, freed, after) == category


def test_categories_of_a_real_training(real: Snapshot) -> None:
    """A step from before its forward pass to its optimizer: parameters come from before the trace."""
    trace = real.traces[0]
    of_allocation, names = categories(real, trace)
    peak = analysis.live_mask(trace, analysis.peak_moment(trace))
    held = {name: int(trace.allocations.size[peak & (of_allocation == i)].sum()) for i, name in enumerate(names)}
    total = sum(held.values())
    assert held["activations"] > 0.5 * total and held["before the trace"] > 0.35 * total
    assert held["other"] < 0.01 * total
    at_end = analysis.live_mask(trace, len(trace.events))
    assert trace.allocations.size[at_end & (of_allocation == names.index("optimizer state"))].sum() > 3 << 30
    assert trace.allocations.size[at_end & (of_allocation == names.index("gradients"))].sum() > 3 << 29


@pytest.mark.parametrize("by", COLOR_BYS)
def test_colours(real: Snapshot, by: analysis.ColorBy) -> None:
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


def test_a_stack_has_one_colour_and_what_lies_on_it_another(real: Snapshot, data_dir: Path) -> None:
    trace = real.traces[0]
    found = colors(real, trace, "stack")
    for stack in range(len(real.stacks)):
        assert len(set(found.classes[trace.allocations.stack == stack].tolist())) <= 1
    ids = analysis.live_ids(trace, 3486)
    stack, color = trace.allocations.stack[ids], found.classes[ids]
    differ = (stack[1:] != stack[:-1]) & (trace.allocations.size[ids][1:] > MB)
    assert (color[1:] == color[:-1])[differ].mean() < 0.02
    again = load_snapshot(data_dir / "training_memory_snapshot.pickle", cache=False)
    assert (colors(again, again.traces[0], "stack").classes == found.classes).all()
    with pytest.raises(ValueError, match="'hue' is not stack, size, category, age, stream or pool"):
        colors(real, trace, "hue")  # type: ignore[arg-type]


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


def test_every_allocation_of_a_real_snapshot_can_be_described(real: Snapshot) -> None:
    trace = real.traces[0]
    for i in range(0, len(trace.allocations), 97):
        assert str(trace.allocations.size[i]) in describe(real, trace, i, 5000).text().replace(",", "")


def test_marks() -> None:
    r = Recorder()
    r.annotate("early", "END")
    r.alloc(4096, 1, "a.py:1 f")
    r.annotate("step", "START")
    r.alloc(8192, 1, "a.py:1 f")
    r.annotate("inner", "START")
    r.alloc(12288, 1, "a.py:1 f")
    r.annotate("inner", "END")
    r.annotate("tick", "")
    r.add("user_defined", 0, 0, user_metadata="here")
    r.annotate("step", "END")
    r.oom(5 * MB, 0)
    r.annotate("late", "START")
    r.alloc(16384, 1, "a.py:1 f")
    snapshot = r.snapshot()
    found = [(m.name, m.kind, m.first, m.last, m.depth, m.is_range) for m in marks(snapshot, snapshot.traces[0])]
    assert found == [
        ("step", "annotation", 1, 4, 0, True), ("inner", "annotation", 2, 3, 1, True),
        ("here", "user_defined", 3, 3, 0, False), ("tick", "annotation", 3, 3, 1, False),
        ("out of memory: 5.00 MiB asked", "oom", 4, 4, 0, False), ("late", "annotation", 5, 6, 0, True)]


def test_marks_of_a_real_snapshot(real: Snapshot) -> None:
    (step,) = marks(real, real.traces[0])
    assert step.name == "Optimizer.step#AdamW.step" and (step.first, step.last) == (13134, 22332)


@pytest.mark.parametrize("name", ["Backward<" * 100_000, "structured_" * 100_000, "(" * 1_000_000, "a::" * 400_000])
def test_names_that_nobody_would_give_are_no_burden(name: str) -> None:
    """Within a second or so, not hours: what is looked at is bounded."""
    r = Recorder()
    r.alloc(4096, 100, name, f"/home/{name}.py:1 {name}")
    snapshot = r.snapshot()
    trace = snapshot.traces[0]
    assert categories(snapshot, trace)[0].shape == (1,)
    assert 0 < len(analysis.summary(snapshot, trace, 0)) < 5000
