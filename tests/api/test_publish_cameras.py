"""`publish_cameras`: the forms of cameras and photographs that it takes, and what it
says of doubtful ones.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.frames import SIZE, cloud, host_array, poses, ring
from support.reading import next_frame, stream_of
from support.wait import wait_until

import splatview
from splatview.adapters.cameras import camera_tensors
from splatview.adapters.photos import CallerPhotos
from splatview.api import session as publishing
from splatview.api.camera_advice import CameraAdvice
from splatview.integrations import inria
from splatview_ipc.subscriber.subscriber import Subscriber


def test_matrices_of_other_shapes_describe_the_same_cameras(
    subscriber: Subscriber,
) -> None:
    views, Ks = poses(4)
    larger = torch.eye(4).repeat(4, 1, 1)
    larger[:, :3, :3] = Ks
    splatview.publish_cameras(views[:, :3], larger, 40, 30)
    stream = stream_of(subscriber, "cameras")
    with next_frame(subscriber, stream) as frame:
        np.testing.assert_array_equal(
            host_array(frame.tensors["viewmats"]), views.numpy()
        )
        np.testing.assert_array_equal(host_array(frame.tensors["Ks"]), Ks.numpy())


def test_matrices_inverted_in_float32_are_accepted_as_poses() -> None:
    views, Ks = poses(4)
    views[:, 3] += torch.tensor([1e-6, -1e-6, 2e-6, 1e-6])
    tensors = camera_tensors(views.tolist(), Ks[0].numpy(), np.int64(40), [30] * 4)
    torch.testing.assert_close(tensors["viewmats"], views.double())
    assert tensors["sizes"].tolist() == [[40, 30]] * 4
    with pytest.raises(ValueError, match="transposed"):
        camera_tensors(views.transpose(1, 2), Ks, 40, 30)


def test_sizes_may_be_floats_of_integer_value() -> None:
    views, Ks = poses(2)
    for width in (40.0, [40.0, 40], np.full(2, 40.0), torch.tensor(40.0)):
        tensors = camera_tensors(views, Ks, width, 30)
        assert tensors["sizes"].tolist() == [[40, 30]] * 2
    for width in (40.5, math.nan, math.inf):
        with pytest.raises((TypeError, ValueError), match="width"):
            camera_tensors(views, Ks, width, 30)


def test_photograph_paths_may_be_arrays_and_hold_narrow_spaces() -> None:
    sizes = torch.full((2, 2), 30)
    # As macOS names pictures of the screen.
    names = ["at 10.00\u202fAM.png", "caf\u00e9 \U0001f468\u200d\U0001f52c.png"]
    for images in (names, np.array(names), np.array(names, dtype=object)):
        paths = CallerPhotos(images, sizes).paths
        assert paths is not None
        published_paths = bytes(paths.tolist()).decode().split("\0")
        assert [path.rpartition("/")[2] for path in published_paths[:2]] == names
    for name in ("a\nb.png", "\x1b[2J.png", "\udce9.png"):
        with pytest.raises(ValueError, match="is the path"):
            CallerPhotos([name, None], sizes)


def is_second_batch(frame: Any) -> bool:
    return frame.meta["photos"] == 2


def is_one_pixel_wide(frame: Any) -> bool:
    return frame.meta["side"] == 1


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("form", ["batch", "list"])
def test_layout_option_orders_the_channels_of_photographs(
    subscriber: Subscriber, channels: int, form: str
) -> None:
    g = torch.Generator().manual_seed(7)
    shape = 2, 30, 40, channels
    photos = torch.randint(0, 256, shape, dtype=torch.uint8, generator=g)
    images: Any = photos.numpy()
    if form == "list":
        images = list(images)
    splatview.publish_cameras(*poses(2), 40, 30, images, layout="BGR")
    stream = stream_of(subscriber, "cameras photos")
    order = [2, 1, 0, 3][:channels]
    stream.request_photos(1)
    with next_frame(subscriber, stream) as frame:
        got = host_array(frame.tensors["photos"])[0]
        np.testing.assert_array_equal(got, photos[1][..., order].numpy())
    splatview.publish_cameras(*poses(2), 40, 30, images, layout="HWC")
    stream.request_photos(1)
    with next_frame(subscriber, stream, fits=is_second_batch) as frame:
        got = host_array(frame.tensors["photos"])[0]
        np.testing.assert_array_equal(got, photos[1].numpy())


def test_photographs_carry_their_alpha(subscriber: Subscriber) -> None:
    """Small photographs are means of the opaque pixels.

    A photograph without alpha is opaque beside one that has it.
    """
    clear = torch.zeros(8, 8, 4)
    clear[:, :4] = torch.tensor([0.8, 0.4, 0.2, 1.0])
    clear[:, 4:, :3] = 1.0
    opaque = torch.full((8, 8, 3), 0.6)
    splatview.publish_cameras(*poses(2), 8, 8, [clear, opaque])
    stream = stream_of(subscriber, "cameras photos")
    stream.request_photos(0)
    with next_frame(subscriber, stream) as frame:
        photo = host_array(frame.tensors["photos"])[0]
        assert photo[0, 0].tolist() == [204, 102, 51, 255]
        assert photo[0, 7].tolist() == [255, 255, 255, 0]
    stream.request_photos(0, 1)
    with next_frame(subscriber, stream, fits=is_one_pixel_wide) as frame:
        small = host_array(frame.tensors["photos"])[:, 0, 0].astype(int)
    assert np.abs(small - [[204, 102, 51, 128], [153, 153, 153, 255]]).max() <= 1


# -- doubts about cameras --------------------------------------------------------------


def doubts(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records]
    return [text for text in texts if text.startswith("publish_cameras")]


def test_cameras_in_another_convention_are_warned_of_once(
    caplog: pytest.LogCaptureFixture, subscriber: Subscriber
) -> None:
    views, Ks = ring(12)
    inverted = torch.linalg.inv(views)

    def wait_for_doubts(count: int) -> None:
        wait_until(lambda: len(doubts(caplog)) >= count)

    splatview.publish_cameras(inverted, Ks, *SIZE)
    splatview.publish(cloud(), "scene")
    wait_for_doubts(1)
    for _ in range(3):
        splatview.publish_cameras(inverted, Ks, *SIZE)
        splatview.publish_cameras(inverted[:11], Ks[:11], *SIZE)
    photos = torch.full((12, SIZE[1], SIZE[0], 3), 130.0)
    splatview.publish_cameras(views, Ks, *SIZE, photos)
    wait_for_doubts(2)
    warnings = doubts(caplog)
    assert "camera to world" in warnings[0]
    assert "linalg.inv" in warnings[0]
    assert "floats from 0 to 255" in warnings[1]
    assert len(warnings) == 2
    # Viewers get bytes alone, so the publisher sends them the hint.
    stream = stream_of(subscriber, "cameras photos")
    stream.request_photos(1)
    with next_frame(subscriber, stream) as frame:
        assert "0 to 255" in frame.meta["hint"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("none", []),
        ("camera to world", ["camera to world:"]),
        ("opengl", ["OpenGL's axes (y up"]),
        ("nerfstudio", ["in OpenGL's axes, as Blender"]),
        ("normalised", ["Ks look normalised"]),
        ("transposed", ["Ks look transposed"]),
        ("sides", ["width and height look swapped"]),
        ("skew", ["a skew, 8 pixels"]),
        ("0 to 255", ["floats from 0 to 255"]),
        ("-1 to 1", ["floats from -1 to 1"]),
        ("photo sides", ["images[0] is 32x48 pixels and its camera 48x32"]),
    ],
)
def test_each_wrong_convention_is_warned_of_and_right_ones_are_not(
    caplog: pytest.LogCaptureFixture, change: str, expected: list[str]
) -> None:
    views, Ks = ring(12)
    width, height = SIZE
    g = torch.Generator().manual_seed(1)
    photos = torch.rand(12, height, width, 3, generator=g)
    if change == "camera to world":
        views = torch.linalg.inv(views)
    elif change == "opengl":
        views[:, 1:3] *= -1
    elif change == "nerfstudio":
        views[:, 1:3] *= -1
        views = torch.linalg.inv(views)
    elif change == "normalised":
        Ks = Ks / torch.tensor([[width], [height], [1.0]])
    elif change == "transposed":
        Ks = Ks.transpose(1, 2)
    elif change == "sides":
        width, height = height, width
        photos = photos.transpose(1, 2)
    elif change == "skew":
        Ks[:, 0, 1] = 8.0
    elif change == "0 to 255":
        photos = photos * 255
    elif change == "-1 to 1":
        photos = photos * 2 - 1
    elif change == "photo sides":
        photos = photos.transpose(1, 2)
    splatview.publish(cloud(), "scene")
    publisher = publishing.session().run()
    assert publisher is not None
    advice = CameraAdvice(publisher, "cameras")
    tensors = camera_tensors(views, Ks, width, height)
    assert advice.take(tensors, CallerPhotos(photos, tensors["sizes"]))
    assert advice.tick(0.0) > 0.0
    warnings = doubts(caplog)
    assert len(warnings) == len(expected), warnings
    for phrase, warning in zip(expected, warnings, strict=True):
        assert phrase in warning


def test_changing_cameras_are_checked_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    views, Ks = ring(12)
    publisher = publishing.session().run()
    assert publisher is not None
    advice = CameraAdvice(publisher, "cameras")
    advice.take(camera_tensors(views[:5], Ks[:5], *SIZE), None)
    advice.tick(0.0)
    advice.take(camera_tensors(views, Ks, *SIZE[::-1]), None)
    assert advice.tick(0.5) == 1.0
    assert not doubts(caplog)
    advice.tick(1.0)
    assert "look swapped" in doubts(caplog)[0]


def test_poses_are_checked_when_the_first_scene_arrives_and_twice_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    views, Ks = ring(12)
    publisher = publishing.session().run()
    assert publisher is not None
    advice = CameraAdvice(publisher, "cameras")
    advice.take(camera_tensors(views, Ks, *SIZE), None)
    now = 0.0
    pauses = []
    for _ in range(12):
        due = advice.tick(now)
        assert due > now
        pauses.append(due - now)
        now = due
    assert pauses[0] < pauses[1] < pauses[-1] == pauses[-2]
    splatview.publish(cloud(), "scene")
    later = []
    while not math.isinf(now):
        due = advice.tick(now)
        later.append(due - now)
        now = due
    assert later == [10.0, 60.0, math.inf]
    assert not doubts(caplog)


# -- cameras of inria's trainer --------------------------------------------------------


def inria_camera(view: torch.Tensor, uid: int) -> Any:
    """As inria's class `Camera`: transposed, a field of view, and the photograph."""
    return SimpleNamespace(
        uid=uid,
        world_view_transform=view.T.contiguous(),
        FoVx=2 * math.atan(40 / 2 / 50),
        FoVy=2 * math.atan(30 / 2 / 50),
        image_width=40,
        image_height=30,
        original_image=torch.full((3, 30, 40), uid / 10),
    )


def test_cameras_of_inrias_trainer_are_published_with_their_photographs(
    subscriber: Subscriber,
) -> None:
    views, Ks = poses(3)
    inria.publish_cameras([inria_camera(view, i) for i, view in enumerate(views)])
    stream = stream_of(subscriber, "cameras")
    with next_frame(subscriber, stream) as frame:
        np.testing.assert_array_equal(
            host_array(frame.tensors["viewmats"]), views.numpy()
        )
        np.testing.assert_allclose(
            host_array(frame.tensors["Ks"]), Ks.numpy(), rtol=1e-6
        )
    photos = stream_of(subscriber, "cameras photos")
    photos.request_photos(2)
    with next_frame(subscriber, photos) as frame:
        photo = host_array(frame.tensors["photos"])[0]
        assert photo.shape == (30, 40, 3)
        assert set(photo.ravel().tolist()) == {51}
