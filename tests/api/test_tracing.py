"""Calls from within torch.compile, and tensors of transforms, of traces and of several ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.wait import PATIENCE
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate

import splatview

X = torch.ones(4, 4) / 8
ONE = torch.ones(())
CALLS: list[tuple[Callable[[Any], Any], torch.Tensor]] = [
    (lambda x: splatview.publish(x, "it"), X),
    (lambda x: splatview.log(loss=x), ONE),
    (lambda x: splatview.annotate("it", boxes=x), X),
    (lambda x: splatview.publish_cameras(x, x[:3, :3], 4, 4), X),
    (lambda x: splatview.publish(X, "it", meta={"step": x}), ONE),
    (lambda x: splatview.publish_memory(step=x), ONE),
    (lambda x: splatview.grab(camera={"viewmat": x}), X),
]


def test_a_call_breaks_a_compiled_function_once(arrived: Callable[..., Any]) -> None:
    def compute(x: torch.Tensor) -> torch.Tensor:
        splatview.publish(x * 2, "it")
        splatview.log(loss=x.sum())
        splatview.annotate("it", boxes=x)
        splatview.publish_cameras(torch.eye(4), torch.eye(3), 4, 4)
        return x + frames.latest().tensor

    splatview.publish(X, "before")
    frames = splatview.frames("before", timeout=PATIENCE)
    counters.clear()
    assert torch.equal(torch.compile(compute, backend="eager")(X), X * 2)
    assert sum(counters["graph_break"].values()) == 5  # one a call
    assert (arrived("it")["image"] == 1 / 4).all()


@pytest.mark.parametrize(
    ("kind", "mend"),
    [
        ("vmap", "outside"),
        ("FakeTensor", "without values"),
        ("DTensor", r"\.full_tensor\(\).*\.to_local\(\)"),
    ],
)
def test_tensors_without_values_are_refused(
    kind: str, mend: str, tmp_path: Path
) -> None:
    dist.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    wrap: dict[str, Callable[[Any, torch.Tensor], Any]] = {
        "vmap": lambda call, x: torch.vmap(call)(x[None]),
        "FakeTensor": lambda call, x: call(FakeTensorMode().from_tensor(x)),
        "DTensor": lambda call, x: call(
            DTensor.from_local(x, DeviceMesh("cpu", [0]), [Replicate()])
        ),
    }
    try:
        splatview.publish(X, "it")  # its form is known
        for call, x in CALLS:
            with pytest.raises(TypeError, match=rf" is a \w*Tensor, .*{mend}"):
                wrap[kind](call, x)
    finally:
        dist.destroy_process_group()
