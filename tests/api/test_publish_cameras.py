"""`publish_cameras`: what is taken and what is refused, what a viewer reads, photographs when they are asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.frames import host_array, poses
from support.reading import next_frame, stream_of

import splatview

if TYPE_CHECKING:
    from splatview_ipc.subscriber.subscriber import Subscriber


def test_a_viewer_reads_what_was_published(subscriber: Subscriber) -> None:
    views, Ks = poses(5)
    splatview.publish_cameras(views, Ks[0], 40, [30, 31, 32, 33, 34])
    stream = stream_of(subscriber, "cameras")
    assert (stream.kind, stream.info.over, stream.shape) == ("cameras", "", (5,))
    with next_frame(subscriber, stream) as frame:
        assert frame.meta == {"photos": 0}
        np.testing.assert_array_equal(host_array(frame.tensors["viewmats"]), views.numpy())
        np.testing.assert_array_equal(host_array(frame.tensors["Ks"]), Ks.numpy())
        np.testing.assert_array_equal(host_array(frame.tensors["sizes"]), [[40, 30 + i] for i in range(5)])
    moved = views.clone()
    moved[:, 0, 3] += 1
    splatview.publish_cameras(moved.double().numpy(), Ks.tolist(), 40, 30)
    with next_frame(subscriber, stream, fits=lambda f: f.version == 2) as frame:
        assert frame.tensors["viewmats"].dtype == "float64"
        np.testing.assert_array_equal(host_array(frame.tensors["viewmats"]), moved.numpy())


def test_which_camera_is_at_work(subscriber: Subscriber) -> None:
    views, Ks = poses(9)
    splatview.publish_cameras(views, Ks, 40, 30, current=3)
    stream = stream_of(subscriber, "cameras current")
    assert stream.info.over == "cameras"
    with next_frame(subscriber, stream) as frame:
        assert host_array(frame.tensors["current"]).tolist() == [3]
    poses_stream = stream_of(subscriber, "cameras")
    splatview.publish_cameras(current=np.int64(7))
    with next_frame(subscriber, stream, fits=lambda f: host_array(f.tensors["current"]).tolist() == [7]):
        pass
    assert poses_stream.version == 1  # it was not published again for that


@pytest.mark.parametrize("kind", ["uint8", "float32", "float16", "channels first"])
def test_photographs_come_when_they_are_asked_for(subscriber: Subscriber, kind: str) -> None:
    g = torch.Generator().manual_seed(3)
    photos = torch.randint(0, 256, (4, 30, 40, 3), dtype=torch.uint8, generator=g)
    given = {"uint8": photos, "float32": photos / 255, "float16": (photos / 255).half(),
             "channels first": photos.permute(0, 3, 1, 2)}[kind]
    splatview.publish_cameras(*poses(4), 40, 30, given)
    with next_frame(subscriber, stream_of(subscriber, "cameras")) as frame:
        assert frame.meta == {"photos": 1}
        assert "paths" not in frame.tensors
    stream = stream_of(subscriber, "cameras photos")
    assert stream.version == 0  # not asked for
    for camera in (2, 0):
        stream.request_photos(camera)
        with next_frame(subscriber, stream, fits=lambda f, c=camera: f.meta["camera"] == c) as frame:
            assert frame.meta == {"camera": camera, "side": 0, "photos": 1}
            found = host_array(frame.tensors["photos"])[0].astype(int)
            assert np.abs(found - photos[camera].numpy()).max() <= (0 if kind != "float16" else 1)


def test_small_photographs_are_means_over_areas(subscriber: Subscriber) -> None:
    photos = torch.zeros(3, 32, 48, 3, dtype=torch.uint8)
    photos[0, :16] = 200  # the upper half
    photos[2, :, 24:] = torch.tensor([10, 20, 30], dtype=torch.uint8)
    splatview.publish_cameras(*poses(4), 48, 32, [photos[0], None, photos[2].numpy(), torch.full((8, 8), 0.5)])
    stream = stream_of(subscriber, "cameras photos")
    stream.request_photos(1)
    with next_frame(subscriber, stream) as frame:
        assert frame.tensors["photos"].shape == (1, 0, 0, 3)
    stream.request_photos(0, 2)
    with next_frame(subscriber, stream, fits=lambda f: f.meta["side"] == 2) as frame:
        small = host_array(frame.tensors["photos"])
        assert small.shape == (4, 2, 2, 3) and not small[1].any() and np.abs(small[3].astype(int) - 128).max() <= 1
        assert small[0, :, :, 0].tolist() == [[200, 200], [0, 0]]
        assert small[2, 0].tolist() == [[0, 0, 0], [10, 20, 30]]


def test_paths_are_told_and_not_read(subscriber: Subscriber) -> None:
    splatview.publish_cameras(*poses(3), 40, 30, ["nowhere/Ä.jpg", None, Path("/b.png")])
    with next_frame(subscriber, stream_of(subscriber, "cameras")) as frame:
        texts = bytes(host_array(frame.tensors["paths"])).decode().split("\0")
        assert texts == [f"{os.getcwd()}/nowhere/Ä.jpg", "", "/b.png", ""]
        assert frame.meta == {"photos": 0}
    assert [s.name for s in subscriber.streams] == ["cameras"]
