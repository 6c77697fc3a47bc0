"""Tensors that viewers read where the trainer has them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from support.pair import Pair
from support.transports import RING, offer

from splatview.adapters import recognise
from splatview_ipc.transports import TRANSPORTS, Transport


class SharingWriter:
    """Keeps the tensors that it was to share."""

    note = ""
    ref = object()

    def __init__(self) -> None:
        self.shared: list[dict[str, torch.Tensor]] = []

    def write(self, kind: str, tensors: dict[str, torch.Tensor], *args: Any) -> bool:
        self.shared.append(tensors)
        return True

    def turn(self, now: float) -> None:
        return None


def test_tensors_in_place_are_described_again_only_where_something_moved(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer: Any = SharingWriter()
    in_place = Transport(lambda tensors, growing: writer, RING.reader, "")
    offer(monkeypatch, pair, in_place=in_place)
    scene = {
        "means": torch.zeros(4, 3),
        "quats": torch.zeros(4, 4),
        "scales": torch.zeros(4, 3),
        "opacities": torch.zeros(4),
        "colors": torch.zeros(4, 3),
    }
    layout = recognise(scene)
    stream = pair.publisher.stream("scene", "gaussians")
    stream.describe(layout)
    stream.open("in-place")

    def share() -> dict[str, torch.Tensor]:
        pair.now += 1
        published = layout.match(scene, {})
        assert published is not None
        stream.publish(published)
        return writer.shared[-1]

    published = layout.match(scene, {})
    assert published is not None
    stream.publish(published)
    stream.turn(pair.now)
    first = share()
    assert share() is first
    scene["quats"].data = torch.ones(4, 4)
    moved = share()
    assert moved is not first
    assert moved["quats"].data_ptr() == scene["quats"].data_ptr()
    assert share() is moved
    scene["quats"] = scene["quats"].detach()
    last = share()
    assert last is not moved
    scene["means"].data = scene["means"].data[:3]
    assert layout.match(scene, {}) is None


class OneGpu:
    """The GPU of a trainer whose tensors are said to be there."""

    index = 0
    uuid = "GPU-0"
    error = None
    trainer_stream = 0

    def __init__(self, device: str) -> None:
        assert device == "cuda:0"

    def current_stream(self, index: int) -> int:
        return 0


def small_scene(value: float = 0.0) -> dict[str, torch.Tensor]:
    """Make a scene in new memory."""
    widths = {
        "means": (3,),
        "quats": (4,),
        "scales": (3,),
        "opacities": (),
        "sh0": (3,),
    }
    return {name: torch.full((4, *shape), value) for name, shape in widths.items()}


@pytest.mark.parametrize(
    ("steps_of_each", "transport"),
    [(6, "in-place"), (2, "in-place"), (1, "device-ring")],
)
def test_gaussians_are_copied_only_if_every_publish_moves_them(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, steps_of_each: int, transport: str
) -> None:
    """Publish at a pace at which most versions come too fast to be shared."""
    writer: Any = SharingWriter()
    in_place = Transport(lambda tensors, growing: writer, RING.reader, "")
    monkeypatch.setitem(TRANSPORTS, "in-place", in_place)
    monkeypatch.setattr("splatview_ipc.publisher.transport_choice.TrainerGpu", OneGpu)
    monkeypatch.setattr(
        "splatview_ipc.cuda.driver.stream_after",
        lambda *args: contextlib.nullcontext(True),
    )
    layout = recognise(small_scene())
    layout.device = "cuda:0"
    stream = pair.publisher.stream("scene", "gaussians")
    stream.describe(layout)
    stream.open("in-place")
    scenes = [small_scene() for _ in range(20)]
    for scene in scenes:
        for _ in range(steps_of_each):
            published = layout.match(scene, {})
            assert published is not None
            stream.publish(published)
            stream.turn(pair.now)
            pair.now += 0.002
    pair.now += 1
    stream.turn(pair.now)
    assert writer.shared
    assert stream.info is not None
    assert stream.info.transports[0] == transport
