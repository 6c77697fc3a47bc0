"""Calls from within torch.compile, and tensors of transforms, of traces and of several
ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from packaging.version import Version
from support.wait import PATIENCE_S
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh

import splatview

X = torch.ones(4, 4) / 8
SCALAR = torch.ones(())


def publish_image(x: torch.Tensor) -> None:
    splatview.publish(x, "it")


def log_loss(x: torch.Tensor) -> None:
    splatview.log(loss=x)


def annotate_boxes(x: torch.Tensor) -> None:
    splatview.annotate("it", boxes=x)


def publish_cameras(x: torch.Tensor) -> None:
    splatview.publish_cameras(x, x[:3, :3], 4, 4)


def publish_metadata(x: torch.Tensor) -> None:
    splatview.publish(X, "it", meta={"step": x})


def publish_memory(x: Any) -> None:
    splatview.publish_memory(step=x)


def grab_by_camera(x: torch.Tensor) -> None:
    splatview.grab(camera={"viewmat": x})


CALLS: list[tuple[Callable[[Any], None], torch.Tensor]] = [
    (publish_image, X),
    (log_loss, SCALAR),
    (annotate_boxes, X),
    (publish_cameras, X),
    (publish_metadata, SCALAR),
    (publish_memory, SCALAR),
    (grab_by_camera, X),
]


@pytest.mark.skipif(
    Version(torch.__version__) < Version("2.7"),
    reason="torch.compile of PyTorch before 2.7 cannot be told what to leave alone",
)
def test_each_call_breaks_a_compiled_function_once(arrived: Callable[..., Any]) -> None:
    # Here alone: torch's compiler takes a second to import.
    from torch._dynamo.utils import counters

    def compute(x: torch.Tensor) -> torch.Tensor:
        splatview.publish(x * 2, "it")
        splatview.log(loss=x.sum())
        splatview.annotate("it", boxes=x)
        splatview.publish_cameras(torch.eye(4), torch.eye(3), 4, 4)
        splatview.draw()
        if splatview.selection("nothing yet") is not None:
            return x
        return x + frames.latest().tensor

    splatview.publish(X, "before")
    frames = splatview.frames("before", timeout=PATIENCE_S)
    counters.clear()
    assert torch.equal(torch.compile(compute, backend="eager")(X), X * 2)
    # One break for each call of splatview and for `latest`.
    assert sum(counters["graph_break"].values()) == 7
    assert (arrived("it")["image"] == 1 / 4).all()


def call_in_vmap(call: Callable[[Any], None], x: torch.Tensor) -> None:
    torch.vmap(call)(x[None])


def call_with_fake_tensor(call: Callable[[Any], None], x: torch.Tensor) -> None:
    call(FakeTensorMode().from_tensor(x))


def call_with_distributed_tensor(call: Callable[[Any], None], x: torch.Tensor) -> None:
    # Torch 2.4 has it under this name alone, later ones also as a public name.
    distributed_tensor = import_module("torch.distributed._tensor")
    mesh = DeviceMesh("cpu", [0])
    placements = [distributed_tensor.Replicate()]
    call(distributed_tensor.DTensor.from_local(x, mesh, placements))


@pytest.mark.parametrize(
    ("call_with", "advice"),
    [
        (call_in_vmap, "outside"),
        (call_with_fake_tensor, "without values"),
        (call_with_distributed_tensor, r"\.full_tensor\(\).*\.to_local\(\)"),
    ],
)
def test_tensors_without_values_are_refused(
    call_with: Callable[..., None], advice: str, tmp_path: Path
) -> None:
    dist.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        splatview.publish(X, "it")  # Its form is known from here on.
        for call, x in CALLS:
            with pytest.raises(TypeError, match=rf" is a \w*Tensor, .*{advice}"):
                call_with(call, x)
    finally:
        dist.destroy_process_group()
