"""Tensors shared where they lie, between two programs.

They are live, never of two generations, and given back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.programs import Programs
from support.reading import next_frame, stream_of, values
from support.trainers import ALLOCATORS, Trainer
from support.wait import PATIENCE_S, polls, wait_until

from splatview_ipc.control.frame import DeviceTensor, StreamFrame
from splatview_ipc.subscriber.subscriber import Subscriber

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module")
def trainers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], Trainer]]:
    """Start one for each allocator: it takes seconds until one is there."""
    with Programs(tmp_path_factory.mktemp("trainers")) as programs:
        running = {
            allocator: Trainer(programs, conf) for allocator, conf in ALLOCATORS.items()
        }

        def get(allocator: str) -> Trainer:
            if not running[allocator].prepare_next_run():
                running[allocator] = Trainer(programs, ALLOCATORS[allocator])
            return running[allocator]

        yield get


@pytest.fixture
def trainer(
    allocator: str, trainers: Callable[[str], Trainer], runtime_dir: Path
) -> Trainer:
    return trainers(allocator)


@pytest.fixture
def one_trainer(trainers: Callable[[str], Trainer], runtime_dir: Path) -> Trainer:
    return trainers("cudaMalloc")


def cuda_tensors(frame: StreamFrame) -> dict[str, torch.Tensor]:
    """Return the tensors of a frame that are on a GPU, over the trainer's memory."""
    return {
        name: tensor.torch()
        for name, tensor in frame.tensors.items()
        if isinstance(tensor, DeviceTensor)
    }


def are_all(arrays: Iterable[Any], value: float) -> bool:
    """Return whether all elements of all arrays have a value."""
    return all(bool((array == value).all()) for array in arrays)


def test_contents_change_under_the_viewer(
    trainer: Trainer, subscriber: Subscriber
) -> None:
    """No copy and no message: what the viewer opened once is the trainer's own memory."""
    trainer.do("scene = make(1000, 1); splatview.publish(scene, meta={'step': 1})")
    stream = stream_of(subscriber)
    with next_frame(subscriber, stream) as frame:
        frame.hold()
    assert stream.sharing == "in-place", (stream.sharing, stream.fallback)
    assert stream.fallback == ""
    assert frame.on_gpu
    assert frame.meta["step"] == 1
    assert stream.gpu == next(iter(frame.tensors.values())).memory.gpu  # type: ignore[union-attr]
    tensors = cuda_tensors(frame)
    assert {name: tuple(t.shape) for name, t in tensors.items()} == {
        "means": (1000, 3),
        "quats": (1000, 4),
        "scales": (1000, 3),
        "opacities": (1000,),
        "sh0": (1000, 3),
        "shN": (1000, 15, 3),
    }
    copies = stream.run.counters["copies"]
    for value in (1, 2, 3):
        trainer.do(f"fill(scene, {value}); torch.cuda.synchronize()")
        assert are_all(tensors.values(), value)
    assert stream.version == 1
    assert stream.run.counters["copies"] == copies, "nothing was published"
    assert frame.intact()
    trainer.do("splatview.publish(scene, meta={'step': 2})")
    with next_frame(subscriber, stream, frame.version) as newer:
        assert newer.meta["step"] == 2
        addresses = [t.data_ptr() for t in cuda_tensors(newer).values()]
        assert addresses == [t.data_ptr() for t in tensors.values()]
    frame.close()


def test_a_stream_waits_for_the_work_before_the_publish(
    one_trainer: Trainer, subscriber: Subscriber
) -> None:
    one_trainer.do("""
scene = make(100_000, 0)
side = torch.cuda.Stream()
splatview.publish(scene)
""")
    stream = stream_of(subscriber)
    version = next_frame(subscriber, stream).version
    for value in range(1, 6):
        one_trainer.do(f"""
with torch.cuda.stream(side if {value} % 2 else torch.cuda.default_stream()):
    torch.cuda._sleep(200_000_000)  # about a tenth of a second
    fill(scene, {value})
    splatview.publish(scene)
""")
        with next_frame(subscriber, stream, version) as frame:
            version = frame.version
            frame.wait(torch.cuda.current_stream().cuda_stream)
            copies = [tensor.clone() for tensor in cuda_tensors(frame).values()]
            torch.cuda.synchronize()
            assert frame.intact()
            assert are_all(copies, value)


DENSIFY = """
import random
random.seed(0)
def run(steps, every):
    scene, n = make(1000, 1000), 1000
    for step in range(steps):
        if step % every == 0:
            n = random.choice([0, 7, 1000, 5000, 20_000, 60_000])
            scene = make(n, n)
        fill(scene, n)
        splatview.publish(scene, meta={"step": step, "n": n})
        time.sleep(0.002)
    return scene
"""


def test_no_two_generations_are_ever_mixed(
    trainer: Trainer, subscriber: Subscriber
) -> None:
    """Densify a hundred times with another N: each frame is of one of them.

    No memory is left over.
    """
    trainer.do(DENSIFY + "scene = make(1000, 1); alone = memory(); scene = run(1, 1)")
    stream = stream_of(subscriber)
    next_frame(subscriber, stream).close()
    trainer.do("scene = run(60, 6); splatview.publish(scene)")
    last_version = next_frame(subscriber, stream, stream.version - 1).version
    files = trainer.do("answer = open_files()")
    trainer.start("scene = run(1400, 14)")
    versions_by_size: dict[int, int] = {}
    for _ in polls("30 versions of 4 sizes", pauses=False):
        if trainer.finished():
            trainer.finish()
            version_count = sum(versions_by_size.values())
            if version_count >= 30 and len(versions_by_size) >= 4:
                break
            # A reader on a busy machine sees few versions of so many.
            trainer.start("scene = run(1400, 14)")
        subscriber.poll()
        frame = stream.read(last_version)
        if frame is None:
            continue
        with frame:
            arrays = values(frame)
            if not frame.intact() or "n" not in frame.meta:
                continue
            n = frame.meta["n"]
            last_version = frame.version
            versions_by_size[n] = versions_by_size.get(n, 0) + 1
            message = f"not all of version {last_version} is {n}"
            assert all(len(array) == n for array in arrays.values()), message
            assert are_all(arrays.values(), n), message
    assert stream.sharing == "in-place", (stream.sharing, stream.fallback)
    trainer.do("scene = make(1000, 1); splatview.publish(scene)")
    next_frame(subscriber, stream, last_version).close()
    files_after = trainer.do("until(lambda: memory() == alone); answer = open_files()")
    assert files_after <= files + 4


def test_a_killed_trainer_leaves_its_last_scene(
    programs: Programs, allocator: str, subscriber: Subscriber
) -> None:
    trainer = Trainer(programs, ALLOCATORS[allocator])
    trainer.do(
        "scene = make(1000, 7); splatview.publish(scene); torch.cuda.synchronize()"
    )
    stream = stream_of(subscriber)
    frame = next_frame(subscriber, stream)
    views = list(cuda_tensors(frame).values())
    assert len(views) == 6
    trainer.process.kill()
    trainer.process.wait(PATIENCE_S)

    def has_ended() -> bool:
        subscriber.poll()
        return not stream.run.alive

    wait_until(has_ended)
    # A gigabyte that must not land there.
    ballast = torch.full((1 << 28,), 9.0, device="cuda")
    torch.cuda.synchronize()
    assert are_all(views, 7)
    assert frame.intact()
    last_frame = stream.read()
    assert last_frame is not None, "the last scene of a dead run can still be read"
    assert are_all(values(last_frame).values(), 7)
    last_frame.close()
    frame.close()
    del views, ballast
    stream.release()


@pytest.mark.parametrize(
    ("options", "transport"), [("", "device-ring"), (", copy=False", "host")]
)
def test_memory_that_cannot_be_shared_is_copied_and_the_reason_named(
    programs: Programs, subscriber: Subscriber, options: str, transport: str
) -> None:
    trainer = Trainer(programs, "backend:cudaMallocAsync")
    trainer.do(f"scene = make(1000, 1); splatview.publish(scene{options})")
    stream = stream_of(subscriber)
    version = next_frame(subscriber, stream).version
    assert stream.sharing == transport, (stream.sharing, stream.fallback)
    assert "cudaMallocAsync" in stream.info.reasons
    assert "cudaMallocAsync" in stream.fallback
    for value in range(2, 6):
        trainer.do(f"fill(scene, {value}); splatview.publish(scene{options})")
        with next_frame(subscriber, stream, version) as frame:
            version = frame.version
            assert are_all(values(frame).values(), value)


def test_a_graph_that_is_captured_is_left_alone(
    one_trainer: Trainer, subscriber: Subscriber
) -> None:
    one_trainer.do(
        "scene = make(300, 1); splatview.publish(scene); torch.cuda.synchronize()"
    )
    stream = stream_of(subscriber)
    next_frame(subscriber, stream).close()
    skipped, version = one_trainer.do("""
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for p in scene.values(): p.data.add_(1)
    splatview.publish(scene)
    image = torch.zeros(8, 8, device="cuda")
    time.sleep(0.3)  # the helper thread may have something to do meanwhile
for i in range(5): graph.replay()
splatview.publish(scene)
torch.cuda.synchronize()
answer = [publishing.started_publisher().control.counters()["skipped"], stream().version]
""")
    assert skipped == 1
    assert version == 2
    with next_frame(subscriber, stream, 1) as frame:
        assert are_all(values(frame).values(), 6)
    faults = one_trainer.do(
        "answer = publishing.started_publisher().control.counters()['faults']"
    )
    assert faults == 0


def test_a_training_is_followed_by_torchs_handles(
    programs: Programs, subscriber: Subscriber
) -> None:
    """Follow a densification from `publish` to a viewer, with SPLATVIEW_SHARE=torch."""
    trainer = Trainer(programs, SPLATVIEW_SHARE="torch")
    trainer.do("scene = make(1000, 1); splatview.publish(scene)")
    stream = stream_of(subscriber)
    version = 0
    for count, value, code in (
        (1000, 1, ""),
        (1000, 2, "fill(scene, 2)"),
        (2000, 3, "scene = make(2000, 3)"),
    ):
        if code:
            trainer.do(f"{code}; splatview.publish(scene)")
        with next_frame(subscriber, stream, version) as frame:
            version = frame.version
            arrays = values(frame)
            assert frame.intact()
        assert stream.sharing == "torch-ipc", stream.fallback
        assert arrays["means"].shape == (count, 3)
        assert are_all(arrays.values(), value)


ON_THE_SECOND = """
assert torch.cuda.device_count() == 1
base = (torch.arange(270 * 481 * 4, device="cuda") % 240).view(270, 481, 4).to(torch.uint8)
picture, scene = base.clone(), make(1000, 0)
def publish(step):
    splatview.publish(picture.copy_(base + step), "image", meta={"step": step})
    fill(scene, step)
    splatview.publish(scene, meta={"step": step})
publish(0)
answer = str(torch.cuda.get_device_properties(0).uuid).replace("-", "")
"""


@pytest.mark.skipif(
    "__import__('torch').cuda.device_count() < 2", reason="needs two GPUs"
)
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_frames_of_the_second_gpu_arrive_right_in_every_way(
    programs: Programs, allocator: str
) -> None:
    """Also where trainer and viewer number the GPUs differently: the UUID decides."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or "0,1"
    trainer = Trainer(
        programs, ALLOCATORS[allocator], CUDA_VISIBLE_DEVICES=visible.split(",")[1]
    )
    uuid = trainer.do(ON_THE_SECOND)
    step = 0
    for transport in ("device-ring", "in-place", "host"):
        with Subscriber(transports=(transport,)) as subscriber:
            streams = [stream_of(subscriber, name) for name in ("image", "gaussians")]
            for stream in streams:
                next_frame(subscriber, stream).close()
            for _ in range(5):
                step += 1
                trainer.do(f"publish({step})")
                for stream in streams:
                    frame = next_frame(
                        subscriber,
                        stream,
                        fits=lambda f, now=step: f.meta["step"] == now,
                    )
                    with frame:
                        assert stream.gpu == uuid
                        assert stream.sharing == transport
                        check_on_the_second(frame, step, transport)


def check_on_the_second(frame: StreamFrame, step: int, transport: str) -> None:
    """Check a frame that `ON_THE_SECOND` has published."""
    picture = (np.arange(270 * 481 * 4) % 240).reshape(270, 481, 4)
    for name, array in values(frame).items():
        expected = picture + step if name == "image" else step
        assert np.all(array == expected), (transport, name)
    for tensor in frame.tensors.values():
        assert isinstance(tensor, DeviceTensor) == (transport != "host")
        if isinstance(tensor, DeviceTensor):
            assert tensor.torch().device == torch.device("cuda", 1)
    assert frame.intact()
