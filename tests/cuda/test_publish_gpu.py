"""CUDA tensors that are published arrive whole and exact, however frames travel.

No call waits for the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.annotate_cases import texts
from support.frames import host_array, poses
from support.programs import Programs
from support.reading import logged_rows, next_frame, stream_of, values
from support.trainers import Trainer
from support.wait import wait_until

import splatview
from splatview.api import session as publishing
from splatview_ipc.subscriber.subscriber import Subscriber

pytestmark = pytest.mark.cuda

LONG = 2_000_000_000
"""Cycles of a GPU: about a second."""
COPYING = ["device-ring", "host"]
"""The transports that this process can take from itself."""


@pytest.fixture(params=COPYING)
def subscriber(request: pytest.FixtureRequest) -> Iterator[Subscriber]:
    torch.zeros(1, device="cuda")
    with Subscriber(transports=(request.param,)) as new_subscriber:
        yield new_subscriber


def test_a_cuda_image(subscriber: Subscriber) -> None:
    planes = (torch.rand(3, 37, 53, device="cuda") * 200).to(torch.bfloat16)
    image = planes.permute(1, 2, 0)
    splatview.publish(image, "image")
    stream = stream_of(subscriber, "image")
    with next_frame(subscriber, stream) as frame:
        assert np.array_equal(values(frame)["image"], image.float().cpu().numpy())
        assert frame.tensors["image"].dtype == "bfloat16"
        assert frame.on_gpu == (stream.sharing == "device-ring")
    assert stream.device == "cuda:0"
    assert stream.sharing in COPYING
    assert len(stream.gpu) == 32
    flipped = image.flip(0)
    splatview.publish(flipped, "image")
    with next_frame(subscriber, stream, 1) as frame:
        assert np.array_equal(values(frame)["image"], flipped.float().cpu().numpy())
        assert frame.intact()


@pytest.mark.parametrize("own", [False, True], ids=["default stream", "own stream"])
def test_a_late_copy_waits_for_the_work_that_makes_its_tensor(
    subscriber: Subscriber, own: bool
) -> None:
    """The helper thread copies it, as the viewer comes after the publish."""
    trainer_stream = torch.cuda.Stream() if own else torch.cuda.default_stream()
    with torch.cuda.stream(trainer_stream):
        image = torch.zeros(64, 64, 3, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        torch.cuda._sleep(LONG)
        image.fill_(7)
        splatview.publish(image, "late")
        with next_frame(subscriber, stream_of(subscriber, "late")) as frame:
            assert (values(frame)["image"] == 7).all()


def test_a_stream_moves_between_a_gpu_and_the_cpu() -> None:
    with Subscriber(transports=("device-ring", "ring")) as viewer:
        for value, device in enumerate(("cuda", "cpu", "cuda", "cpu"), 1):
            image = torch.full((9, 7), value, dtype=torch.uint8, device=device)
            splatview.publish(image, "image")
            stream = stream_of(viewer, "image")
            with next_frame(viewer, stream, value - 1) as frame:
                assert (values(frame)["image"] == value).all()
                assert frame.on_gpu == (device == "cuda")
    publisher = publishing.started_publisher()
    assert publisher is not None
    assert publisher.control.counters()["faults"] == 0


def test_gpu_memory_goes_back_when_the_run_is_closed() -> None:
    """Also memory that the last copy still uses, for which nothing waits."""
    image = torch.zeros(4000, 4000, 4, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    free_before, _ = torch.cuda.mem_get_info()
    with Subscriber(transports=("device-ring",)) as viewer:
        splatview.publish(image, "image")
        next_frame(viewer, stream_of(viewer, "image")).close()
        free_now, _ = torch.cuda.mem_get_info()
        assert free_now < free_before - 2 * image.nbytes
        torch.cuda._sleep(LONG)
        splatview.publish(image, "image")
        splatview.close()

    def is_given_back() -> bool:
        free_now, _ = torch.cuda.mem_get_info()
        return free_now > free_before - image.nbytes

    wait_until(is_given_back, "the ring is given back")


def test_live_images_follow_changes_made_in_place(subscriber: Subscriber) -> None:
    image = torch.zeros(40, 50, device="cuda")
    splatview.publish(image, live=True)
    stream = stream_of(subscriber, "image")
    version = next_frame(subscriber, stream).version
    assert stream.live
    image.fill_(0.5)

    def has_changed() -> bool:
        nonlocal version
        with next_frame(subscriber, stream, version) as frame:
            version = frame.version
            return bool((values(frame)["image"] == 0.5).all())

    wait_until(has_changed)


def detections(n: int, seed: int = 0) -> dict[str, Any]:
    """Return detections as torchvision's models give them, on the GPU."""
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(n, 4, generator=generator) * 100
    return {
        "boxes": corners.cuda(),
        "labels": torch.randint(0, 90, (n,), generator=generator).cuda(),
        "scores": torch.rand(n, generator=generator).cuda(),
        "masks": torch.rand(n, 1, 20, 30, generator=generator).cuda(),
    }


def test_what_a_network_gives_arrives(subscriber: Subscriber) -> None:
    version = 0
    for n in (3, 0, 40, 1):
        detected = detections(n, seed=n)
        points = torch.rand(n, 17, 3, device="cuda")
        splatview.annotate(
            "camera",
            **detected,
            points=points,
            skeleton="coco",
            names=["person", "bicycle"],
            notes=[(1, 2, "a note")],
            version=n,
            by="a test",
        )
        stream = stream_of(subscriber, "camera overlay")
        with next_frame(subscriber, stream, version) as frame:
            version = frame.version
            arrays = values(frame)
            assert frame.intact()
            assert frame.meta["version"] == n
            assert frame.meta["by"] == "a test"
        expected = {name: tensor.cpu().numpy() for name, tensor in detected.items()}
        assert np.array_equal(arrays["boxes"], expected["boxes"].reshape(n, 4))
        assert np.array_equal(arrays["classes"], expected["labels"])
        assert np.array_equal(arrays["scores"], expected["scores"])
        assert np.array_equal(arrays["points"], points.cpu().numpy())
        names = texts(torch.from_numpy(arrays["names"]).byte())
        assert names == ["person", "bicycle"]
        assert texts(torch.from_numpy(arrays["notes"]).byte()) == ["a note"]
        if n:
            masks = expected["masks"][:, 0] > 0.5
            assert np.array_equal(arrays["masks"] != 0, masks)
            assert len(arrays["skeleton"]) == 19
    assert stream.device == "cuda:0"


def rotated_result() -> SimpleNamespace:
    """Return an Ultralytics result with rotated boxes, on the GPU."""
    corners = torch.tensor([[[30.0, 20.0], [34.0, 24.0], [24.0, 34.0], [20.0, 30.0]]])
    obb = SimpleNamespace(
        xyxyxyxy=corners.cuda(),
        conf=torch.tensor([0.5], device="cuda"),
        cls=torch.tensor([7.0], device="cuda"),
        id=torch.tensor([3.0], device="cuda"),
    )
    return SimpleNamespace(
        orig_shape=(48, 64),
        names={7: "ship"},
        boxes=None,
        obb=obb,
        masks=SimpleNamespace(data=torch.ones(1, 64, 64, device="cuda")),
        keypoints=SimpleNamespace(data=torch.ones(1, 17, 3, device="cuda")),
    )


def test_a_whole_result_stays_on_the_gpu(subscriber: Subscriber) -> None:
    splatview.annotate("camera", boxes=rotated_result())
    stream = stream_of(subscriber, "camera overlay")
    with next_frame(subscriber, stream) as frame:
        arrays = values(frame)
        assert frame.intact()
        assert frame.meta["width"] == 64
    assert stream.device == "cuda:0"
    assert arrays["boxes"].tolist() == [[20, 20, 34, 34]]
    assert arrays["corners"][0].tolist() == [[30, 20], [34, 24], [24, 34], [20, 30]]
    assert arrays["classes"].tolist() == [7]
    assert arrays["masks"].shape == (1, 48, 64)
    names = texts(torch.from_numpy(arrays["names"]).byte())
    assert names[7] == "ship"
    assert len(names) == 8
    assert (arrays["points"] == 1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_each_number_is_plotted_as_it_was(dtype: torch.dtype) -> None:
    loss = torch.zeros((), dtype=dtype, device="cuda")
    for step in range(100):
        loss.fill_(step)
        splatview.log(step, loss=loss)
        loss.fill_(-1)  # what comes later on the stream does not reach it
    with Subscriber() as viewer:
        rows = logged_rows(viewer, "loss", 100)["loss"]
    assert rows[:, 2].tolist() == list(range(100))


def test_no_call_waits_for_the_gpu(subscriber: Subscriber) -> None:
    """Once kernels are loaded and memory is pinned, at the first calls."""
    detected = detections(5, 1)
    points = torch.rand(5, 17, 2, device="cuda")
    image = torch.zeros(64, 64, 3, device="cuda")
    loss = torch.ones((), device="cuda")
    result = rotated_result()
    rotated = torch.ones(3, 5, device="cuda")

    def call(n: int) -> None:
        splatview.log(n, loss=loss + n)
        splatview.publish(image, "image")
        splatview.annotate(
            "camera",
            **detected,
            points=points,
            skeleton="coco",
            point_classes=[1] * 5,
            version=n,
            names=["x"] * 90,
            colors={5: "#ff0000"},
            format="xywh",
            notes="y" * 1000,
        )
        splatview.annotate("boat", boxes=result, version=n)
        splatview.annotate("plane", boxes=rotated, format="xywhr", version=n)

    call(0)
    for name in ("image", "camera overlay", "boat overlay", "plane overlay"):
        next_frame(subscriber, stream_of(subscriber, name)).close()
    call(1)

    def returned_first() -> bool:
        """Return whether a call came back before the GPU had finished.

        It does, unless this process was stopped meanwhile.
        """
        torch.cuda.synchronize()
        torch.cuda._sleep(LONG)
        gpu_finished = torch.cuda.Event()
        gpu_finished.record()
        call(2)
        return not gpu_finished.query()

    wait_until(returned_first)


def test_while_a_graph_is_captured_nothing_is_queued() -> None:
    x = torch.zeros((), device="cuda")
    boxes = torch.ones(2, 4, device="cuda")
    splatview.log(0, it=x)
    splatview.annotate("camera", boxes=boxes)
    torch.cuda.synchronize()
    publisher = publishing.started_publisher()
    assert publisher is not None
    graph = torch.cuda.CUDAGraph()
    overlay = publisher.streams["camera overlay"]
    version = overlay.version
    with torch.cuda.graph(graph):
        x += 1
        splatview.log(1, it=x)
        splatview.annotate("camera", boxes=boxes, labels="x", colors={0: "#ffffff"})
    for _ in range(3):
        graph.replay()
    assert overlay.version == version
    splatview.log(2, it=x)
    splatview.annotate("camera", boxes=boxes)
    assert overlay.version == version + 1
    with Subscriber() as viewer:
        rows = logged_rows(viewer, "it", 2)["it"]
    assert rows[:, 0].tolist() == [0, 2]
    assert rows[1, 2] == 3


def test_cameras_and_photographs_on_a_gpu_are_brought() -> None:
    views, Ks = poses(3)
    photos = torch.randint(0, 256, (3, 30, 40, 3), dtype=torch.uint8)
    with Subscriber() as subscriber:
        splatview.publish_cameras(views.cuda(), Ks.cuda(), 40, 30, photos.cuda())
        with next_frame(subscriber, stream_of(subscriber, "cameras")) as frame:
            arrays = values(frame)
        assert np.array_equal(arrays["viewmats"], views.numpy())
        assert np.array_equal(arrays["Ks"], Ks.numpy())
        stream = stream_of(subscriber, "cameras photos")
        stream.request_photos(1)
        with next_frame(subscriber, stream) as frame:
            photo = host_array(frame.tensors["photos"])[0]
            assert np.array_equal(photo, photos[1].numpy())
        stream.request_photos(0, 8)
        with next_frame(
            subscriber, stream, fits=lambda f: f.meta["side"] == 8
        ) as frame:
            assert frame.tensors["photos"].shape == (3, 8, 8, 3)


def test_photographs_on_a_gpu_with_alpha_blue_first_and_from_0_to_255(
    caplog: pytest.LogCaptureFixture,
) -> None:
    views, Ks = poses(3)
    larger = torch.eye(4).repeat(3, 1, 1)
    larger[:, :3, :3] = Ks
    photos = torch.randint(20, 256, (3, 30, 40, 4), dtype=torch.uint8)
    with Subscriber() as subscriber:
        splatview.publish_cameras(
            views[:, :3].cuda(), larger.cuda(), 40, 30, photos.cuda(), layout="BGR"
        )
        with next_frame(subscriber, stream_of(subscriber, "cameras")) as frame:
            arrays = values(frame)
        np.testing.assert_array_equal(arrays["viewmats"], views.numpy())
        np.testing.assert_array_equal(arrays["Ks"], Ks.numpy())
        stream = stream_of(subscriber, "cameras photos")
        stream.request_photos(1)
        with next_frame(subscriber, stream) as frame:
            photo = host_array(frame.tensors["photos"])[0]
        np.testing.assert_array_equal(photo, photos[1][..., [2, 1, 0, 3]].numpy())
        # Looked at when a viewer asks for one, and not before.
        splatview.publish_cameras(views, Ks, 40, 30, photos.float().cuda())
        stream.request_photos(1)
        with next_frame(subscriber, stream, fits=lambda f: f.meta["photos"] == 2):
            pass
        wait_until(lambda: "floats from 0 to 255" in caplog.text)


def test_a_process_that_ends_amid_copies_ends_well(
    programs: Programs, subscriber: Subscriber
) -> None:
    trainer = Trainer(programs)
    trainer.do("""
image, a = torch.zeros(1000, 1000, 4, dtype=torch.uint8, device="cuda"), torch.rand(4096, 4096, device="cuda")
splatview.publish(image, "image", copy=True)
""")
    next_frame(subscriber, stream_of(subscriber, "image")).close()
    trainer.do("""
for _ in range(50):
    torch.mm(a, a)
splatview.publish(image, "image", copy=True)
""")
    output, errors = trainer.process.end()
    assert trainer.process.returncode == 0
    assert output == ""
    assert errors == ""
