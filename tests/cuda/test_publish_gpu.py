"""What must hold on a GPU, however frames travel: CUDA tensors arrive whole and exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.reading import next_frame, stream_of, values
from support.trainers import Trainer
from support.wait import turns

import splatview
from splatview.api import session as publishing
from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Programs

pytestmark = pytest.mark.cuda

COPYING = ["device-ring", "host"]
"""The transports that this process can take from itself."""


@pytest.fixture(params=COPYING)
def subscriber(request: pytest.FixtureRequest) -> Iterator[Subscriber]:
    torch.zeros(1, device="cuda")
    with Subscriber(transports=(request.param,)) as s:
        yield s


def test_a_cuda_image(subscriber: Subscriber) -> None:
    image = (torch.rand(3, 37, 53, device="cuda") * 200).to(torch.bfloat16).permute(1, 2, 0)
    splatview.publish(image, "image")
    stream = stream_of(subscriber, "image")
    with next_frame(subscriber, stream) as frame:
        assert np.array_equal(values(frame)["image"], image.float().cpu().numpy())
        assert frame.tensors["image"].dtype == "bfloat16"
        assert frame.on_gpu == (stream.sharing == "device-ring")
    assert stream.device == "cuda:0"
    assert stream.sharing in COPYING
    assert len(stream.gpu) == 32
    splatview.publish(image.flip(0), "image")
    with next_frame(subscriber, stream, 1) as frame:
        assert np.array_equal(values(frame)["image"], image.flip(0).float().cpu().numpy())
        assert frame.intact()


def test_cuda_gaussians_on_a_stream_of_their_own(subscriber: Subscriber) -> None:
    n = 200_000
    with torch.cuda.stream(torch.cuda.Stream()):
        scene = {"means": torch.zeros(n, 3, device="cuda"), "quats": torch.zeros(n, 4, device="cuda"),
                 "scales": torch.zeros(n, 3, device="cuda"), "opacities": torch.zeros(n, device="cuda"),
                 "sh0": torch.zeros(n, 1, 3, device="cuda"), "shN": torch.zeros(n, 15, 3, device="cuda")}
        splatview.publish(scene)
        stream = stream_of(subscriber)
        version = next_frame(subscriber, stream).version
        for value in range(1, 20):
            for t in scene.values():
                t.fill_(value)
            splatview.publish(scene)
            with next_frame(subscriber, stream, version) as frame:
                version = frame.version
                got = values(frame)
                assert frame.intact()
            assert {float(extreme) for t in got.values() for extreme in (t.min(), t.max())} == {value}


def test_live_images_follow_changes_made_in_place(subscriber: Subscriber, wait_until: Callable[..., Any]) -> None:
    image = torch.zeros(40, 50, device="cuda")
    splatview.publish(image, live=True)
    stream = stream_of(subscriber, "image")
    version = next_frame(subscriber, stream).version
    assert stream.live
    image.fill_(0.5)

    def seen() -> bool:
        nonlocal version
        with next_frame(subscriber, stream, version) as frame:
            version = frame.version
            return bool((values(frame)["image"] == 0.5).all())

    wait_until(seen)


def test_nothing_is_made_on_the_gpu_while_nobody_looks(wait_until: Callable[..., Any]) -> None:
    image = torch.zeros(1080, 1920, 4, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    for _ in range(100):
        splatview.publish(image)
    publisher = publishing.begun()
    assert publisher is not None
    assert publisher.streams["image"].offer("device-ring") is None
    with Subscriber() as subscriber:
        stream = stream_of(subscriber, "image")
        next_frame(subscriber, stream).close()
        stream.release()
        wait_until(lambda: publisher.streams["image"].readers == 0)
        assert publisher.streams["image"].offer("device-ring") is None
        copies = publisher.control.counters()["copies"]
        splatview.publish(image)
        assert publisher.control.counters()["copies"] == copies


@pytest.mark.parametrize("way", COPYING)
def test_no_torn_frame_is_shown(programs: Programs, way: str) -> None:
    """Published flat out."""
    trainer = Trainer(programs)
    trainer.do("""
frames = [torch.zeros(800, 800, 4, dtype=torch.uint8, device="cuda") for _ in range(2)]
stop = threading.Event()
def work():
    for i in range(10**9):
        splatview.publish(frames[i % 2].fill_(i % 251), "frames", copy=True)
        if stop.is_set():
            break
threading.Thread(target=work, daemon=True).start()
""")
    shown = last = 0
    torch.zeros(1, device="cuda")
    with Subscriber(transports=(way,)) as subscriber:
        stream = stream_of(subscriber, "frames")
        for _ in turns("30 whole frames", rest=False):
            if shown == 30:
                break
            subscriber.poll()
            frame = stream.read(last)
            if frame is None:
                continue
            with frame:
                image = values(frame)["image"]
                if frame.intact() and frame.confirmed:
                    assert image.min() == image.max(), f"version {frame.version} is torn"
                    last, shown = frame.version, shown + 1
        assert stream.sharing == way
    trainer.do("stop.set()")
