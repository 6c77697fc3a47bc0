"""What must hold on a GPU: CUDA tensors arrive whole and exact."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import splatview
from ipc import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Processes

pytestmark = pytest.mark.cuda


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    with Subscriber() as s:
        yield s


def arrived(subscriber: Subscriber, name: str, wait_until: Callable[..., Any], after: int = 0) -> dict[str, np.ndarray]:
    def read() -> dict[str, np.ndarray] | None:
        subscriber.poll()
        for s in subscriber.streams:
            if s.name == name:
                s.open()
                frame = s.read(after)
                if frame is not None:
                    with frame:
                        copies = {k: t.to_float32() for k, t in frame.tensors.items()}
                        return copies if frame.intact() else None
        return None

    return wait_until(read, what=name)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32])
def test_a_cuda_image(subscriber: Subscriber, wait_until: Callable[..., Any], dtype: torch.dtype) -> None:
    image = (torch.rand(3, 37, 53, device="cuda") * 200).to(dtype).permute(1, 2, 0)
    splatview.publish(image, "image")
    assert np.array_equal(arrived(subscriber, "image", wait_until)["image"], image.float().cpu().numpy())
    assert subscriber.streams[0].device == "cuda:0"
    assert subscriber.streams[0].sharing == "host"
    splatview.publish(image.flip(0), "image")
    flipped = arrived(subscriber, "image", wait_until, after=1)["image"]
    assert np.array_equal(flipped, image.flip(0).float().cpu().numpy())


def test_cuda_gaussians_on_a_stream_of_their_own(subscriber: Subscriber, wait_until: Callable[..., Any]) -> None:
    n = 200_000
    with torch.cuda.stream(torch.cuda.Stream()):
        scene = {"means": torch.zeros(n, 3, device="cuda"), "quats": torch.zeros(n, 4, device="cuda"),
                 "scales": torch.zeros(n, 3, device="cuda"), "opacities": torch.zeros(n, device="cuda"),
                 "sh0": torch.zeros(n, 1, 3, device="cuda"), "shN": torch.zeros(n, 15, 3, device="cuda")}
        version = 0
        for value in range(1, 20):
            for t in scene.values():
                t.fill_(value)
            splatview.publish(scene)
            got = arrived(subscriber, "gaussians", wait_until, after=version)
            version += 1
            assert all((t == t.flat[0]).all() for t in got.values())
            assert len({float(t.flat[0]) for t in got.values()}) == 1, "all tensors are of one version"


def test_mixed_devices_are_refused() -> None:
    scene = {"means": torch.zeros(5, 3, device="cuda"), "quats": torch.zeros(5, 4), "scales": torch.zeros(5, 3),
             "opacities": torch.zeros(5), "sh0": torch.zeros(5, 3)}
    with pytest.raises(ValueError, match=r"quats lies on cpu, means on cuda:0"):
        splatview.publish(scene)


def test_no_torn_cuda_frame(processes: Processes) -> None:
    writer = processes.code("""
import torch, splatview
frame = torch.zeros(800, 800, 4, dtype=torch.uint8, device="cuda")
i = 0
while True:
    splatview.publish(frame.fill_(i % 251), "frames")
    i += 1
""")
    shown = last = 0
    with Subscriber() as subscriber:
        end = time.monotonic() + 60
        while shown < 200 and time.monotonic() < end:
            subscriber.poll()
            for s in subscriber.streams:
                s.open()
                frame = s.read(last)
                if frame is not None:
                    with frame:
                        extremes = frame.tensors["image"].array.min(), frame.tensors["image"].array.max()
                        if frame.intact():
                            assert extremes[0] == extremes[1]
                            last, shown = frame.version, shown + 1
    assert shown == 200
    assert writer.poll() is None
