"""`annotate` with tensors on a GPU: they stay there, nothing is waited for, and what arrives is exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.annotate_cases import texts
from support.reading import next_frame, stream_of, values

import splatview
from splatview.api import session as publishing
from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.cuda

LONG = 2_000_000_000
"""Cycles of a GPU: about a second."""


@pytest.fixture(params=["device-ring", "host"])
def subscriber(request: pytest.FixtureRequest) -> Iterator[Subscriber]:
    torch.zeros(1, device="cuda")
    with Subscriber(transports=(request.param,)) as s:
        yield s


def detections(n: int, seed: int = 0) -> dict[str, Any]:
    """What torchvision's models give, on the GPU."""
    g = torch.Generator().manual_seed(seed)
    corners = torch.rand(n, 4, generator=g) * 100
    return {"boxes": corners.cuda(), "labels": torch.randint(0, 90, (n,), generator=g).cuda(),
            "scores": torch.rand(n, generator=g).cuda(), "masks": torch.rand(n, 1, 20, 30, generator=g).cuda()}


def test_what_a_network_gives_arrives(subscriber: Subscriber) -> None:
    version = 0
    for n in (3, 0, 40, 1):
        found = detections(n, seed=n)
        points = torch.rand(n, 17, 3, device="cuda")
        splatview.annotate("camera", **found, points=points, skeleton="coco", names=["person", "bicycle"],
                           notes=[(1, 2, "a note")], version=n, by="a test")
        stream = stream_of(subscriber, "camera overlay")
        with next_frame(subscriber, stream, version) as frame:
            version, got = frame.version, values(frame)
            assert frame.intact()
            assert frame.meta["version"] == n
            assert frame.meta["by"] == "a test"
        assert np.array_equal(got["boxes"], found["boxes"].cpu().numpy().reshape(n, 4))
        assert np.array_equal(got["classes"], found["labels"].cpu().numpy())
        assert np.array_equal(got["scores"], found["scores"].cpu().numpy())
        assert np.array_equal(got["points"], points.cpu().numpy())
        assert texts(torch.from_numpy(got["names"]).byte()) == ["person", "bicycle"]
        assert texts(torch.from_numpy(got["notes"]).byte()) == ["a note"]
        if n:
            assert np.array_equal(got["masks"] != 0, found["masks"][:, 0].cpu().numpy() > 0.5)
            assert len(got["skeleton"]) == 19
    assert stream.device == "cuda:0"


def test_the_call_does_not_wait_for_the_gpu(subscriber: Subscriber, wait_until: Callable[..., Any]) -> None:
    def annotate(n: int) -> None:
        found = detections_there[n % 2]
        splatview.annotate("camera", **found, points=points, skeleton="coco", point_classes=[1] * 5, version=n,
                           names=["x"] * 90, colors={5: "#ff0000"}, format="xywh", notes="y" * 1000)
        splatview.annotate("masks", masks=found["masks"], size=(60, 50), labels="z", version=n)

    detections_there, points = [detections(5, 1), detections(5, 2)], torch.rand(5, 17, 2, device="cuda")
    annotate(0)  # kernels are loaded and memory is pinned at the first call
    streams = [stream_of(subscriber, name) for name in ("camera overlay", "masks overlay")]
    for stream in streams:
        next_frame(subscriber, stream).close()
    annotate(1)
    torch.cuda.synchronize()
    torch.cuda._sleep(LONG)
    mark = torch.cuda.Event()
    mark.record()
    annotate(2)
    assert not mark.query()  # the GPU is still at what came before
    torch.cuda.synchronize()
    annotate(3)
    for stream in streams:
        wait_until(lambda stream=stream: (subscriber.poll(), _read_version(stream))[-1] == 3)


def _read_version(stream: Any) -> int:
    frame = stream.read()
    if frame is None:
        return 0
    with frame:
        return frame.meta["version"]


def test_while_a_graph_is_captured_nothing_is_queued() -> None:
    boxes = torch.ones(2, 4, device="cuda")
    splatview.annotate("camera", boxes=boxes)
    torch.cuda.synchronize()
    publisher = publishing.begun()
    assert publisher is not None
    graph = torch.cuda.CUDAGraph()
    before = publisher.streams["camera overlay"].version
    with torch.cuda.graph(graph):
        boxes += 1
        splatview.annotate("camera", boxes=boxes, labels="x", colors={0: "#ffffff"})
    graph.replay()
    torch.cuda.synchronize()
    assert publisher.streams["camera overlay"].version == before
    splatview.annotate("camera", boxes=boxes)
    assert publisher.streams["camera overlay"].version == before + 1
