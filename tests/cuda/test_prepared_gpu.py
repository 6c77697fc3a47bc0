"""New tensors that look like the last ones go a short way. On a GPU: exact, in the order of the stream of the moment,
also between tensors that look different."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.trainers import next_frame, stream_of, values

import splatview
from splatview.ipc import Subscriber
from splatview.ipc.ways.device_ring import DeviceRingWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.cuda

H, W = 270, 480


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions that went the short way."""
    versions: list[int] = []
    again = DeviceRingWriter.again

    def noting(self: Any, published: Any, addresses: Any, meta: Any, version: int, stream: int) -> bool:
        versions.append(version)
        return again(self, published, addresses, meta, version, stream)

    monkeypatch.setattr(DeviceRingWriter, "again", noting)
    return versions


@pytest.fixture
def viewer(short: list[int]) -> Iterator[Subscriber]:
    torch.zeros(1, device="cuda")
    with Subscriber(ways=("device-ring",)) as subscriber:
        yield subscriber


def picture(*shape: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    return (torch.rand(shape, device="cuda") * 200).to(dtype)


class Shown:
    """A stream of pictures and the viewer that looks at it."""

    def __init__(self, subscriber: Subscriber, wait_until: Callable[..., Any]):
        splatview.publish(picture(H, W, 4))
        self.subscriber = subscriber
        self.stream = stream_of(subscriber, wait_until, "image")
        self.version = 0
        self.take()
        self.check(picture(H, W, 4))

    def take(self) -> np.ndarray:
        with next_frame(self.subscriber, self.stream, self.version) as frame:
            self.version = frame.version
            self.meta = dict(frame.meta)
            assert frame.on_gpu
            return values(frame)["image"].copy()

    def check(self, image: torch.Tensor, **meta: Any) -> None:
        splatview.publish(image, **meta)
        seen = self.take()
        assert np.array_equal(seen, image.detach().float().cpu().numpy()), (image.shape, image.stride(), image.dtype)
        assert all(self.meta[key] == value for key, value in meta.items())


def test_among_pictures_that_look_alike_come_others(
        viewer: Subscriber, short: list[int], wait_until: Callable[..., Any]) -> None:
    shown = Shown(viewer, wait_until)
    for make in (lambda: picture(H, W, 4), lambda: picture(W, H, 4).transpose(0, 1), lambda: picture(W, H, 4),
                 lambda: picture(2 * H, 2 * W, 4)[::2, ::2], lambda: picture(4, H, W).permute(1, 2, 0),
                 lambda: picture(H, W, 1).expand(H, W, 4), lambda: picture(H, W, 4, dtype=torch.float16),
                 lambda: picture(H, W, 3), lambda: picture(H * W * 4 + 64).narrow(0, 64, H * W * 4).view(H, W, 4),
                 lambda: picture(H, W, 4).float().requires_grad_()):
        before = len(short)
        for step in range(4):
            shown.check(make(), step=step)
        for _ in range(3):
            shown.check(picture(H, W, 4))
        assert len(short) - before >= 4, f"of {make().shape} {make().stride()}: {short[before:]}"


def test_a_capture_among_them(viewer: Subscriber, short: list[int], wait_until: Callable[..., Any]) -> None:
    shown = Shown(viewer, wait_until)
    for _ in range(3):
        shown.check(picture(H, W, 4))
    image = picture(H, W, 4)
    before = len(short)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        image.add_(1)
        splatview.publish(image)
    assert len(short) == before
    version = shown.stream.version
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert shown.stream.version == version
    shown.check(picture(H, W, 4))
