"""A trainer and a viewer that number the GPUs differently: the UUID says which is meant, and frames arrive right."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.reading import next_frame, stream_of, values
from support.trainers import ALLOCATORS, Trainer

from splatview_ipc.control.frame import DeviceTensor
from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    from support.programs import Programs

pytestmark = [pytest.mark.cuda,
              pytest.mark.skipif("__import__('torch').cuda.device_count() < 2", reason="needs two GPUs")]

PUBLISH = """
assert torch.cuda.device_count() == 1
base = (torch.arange(270 * 481 * 4, device="cuda") % 240).view(270, 481, 4).to(torch.uint8)
picture, scene = base.clone(), make(1000, 0)
def publish(step):
    splatview.publish(picture.copy_(base + step), "image", step=step)
    fill(scene, step)
    splatview.publish(scene, step=step)
publish(0)
answer = str(torch.cuda.get_device_properties(0).uuid).replace("-", "")
"""


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_frames_of_the_second_gpu_arrive_right_in_every_way(programs: Programs, allocator: str) -> None:
    here = os.environ.get("CUDA_VISIBLE_DEVICES") or "0,1"
    trainer = Trainer(programs, ALLOCATORS[allocator], CUDA_VISIBLE_DEVICES=here.split(",")[1])
    uuid, step = trainer.do(PUBLISH), 0
    picture = (np.arange(270 * 481 * 4) % 240).reshape(270, 481, 4)
    for way in ("device-ring", "in-place", "host"):
        with Subscriber(transports=(way,)) as subscriber:
            streams = [stream_of(subscriber, name) for name in ("image", "gaussians")]
            for stream in streams:
                next_frame(subscriber, stream).close()
            for _ in range(5):
                step += 1
                trainer.do(f"publish({step})")
                for stream in streams:
                    with next_frame(subscriber, stream, fits=lambda f, now=step: f.meta["step"] == now) as frame:
                        assert (stream.gpu, stream.sharing) == (uuid, way)
                        for name, got in values(frame).items():
                            assert np.all(got == (picture + step if name == "image" else step)), (way, name)
                        for t in frame.tensors.values():
                            assert isinstance(t, DeviceTensor) == (way != "host")
                            if isinstance(t, DeviceTensor):
                                assert t.torch().device == torch.device("cuda", 1)
                        assert frame.intact()
