"""Cameras and photographs that lie on a GPU: nothing waits for it, and they are read in host memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.frames import host_array, poses
from support.reading import next_frame, stream_of

import splatview
from splatview_ipc.subscriber.subscriber import Subscriber, can_take

pytestmark = pytest.mark.cuda


def test_poses_on_a_gpu_come_to_host_memory() -> None:
    views, Ks = poses(5)
    with Subscriber(transports=lambda way, gpu: way in ("ring", "host") and can_take(way, gpu)) as subscriber:
        splatview.publish_cameras(views.cuda(), Ks.cuda(), 40, 30)
        stream = stream_of(subscriber, "cameras")
        with next_frame(subscriber, stream) as frame:
            np.testing.assert_array_equal(host_array(frame.tensors["viewmats"]), views.numpy())
            np.testing.assert_array_equal(host_array(frame.tensors["Ks"]), Ks.numpy())
            np.testing.assert_array_equal(host_array(frame.tensors["sizes"]), [[40, 30]] * 5)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float16])
def test_photographs_on_a_gpu_are_brought(dtype: torch.dtype) -> None:
    whole = torch.randint(0, 256, (3, 30, 40, 3), dtype=torch.uint8)
    given = whole.cuda() if dtype == torch.uint8 else (whole.cuda() / 255).to(dtype)
    with Subscriber() as subscriber:
        splatview.publish_cameras(*poses(3), 40, 30, given)
        stream = stream_of(subscriber, "cameras photos")
        stream.request_photos(1)
        with next_frame(subscriber, stream) as frame:
            found = host_array(frame.tensors["photos"])[0].astype(int)
            assert np.abs(found - whole[1].numpy()).max() <= (0 if dtype != torch.float16 else 1)
        stream.request_photos(0, 8)
        with next_frame(subscriber, stream, fits=lambda f: f.meta["side"] == 8) as frame:
            assert frame.tensors["photos"].shape == (3, 8, 8, 3)
