"""Sharing in place when something ends, fails, or is different: the picture stays, and the reason is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.reading import next_frame, stream_of, values
from support.trainers import ALLOCATORS, Trainer
from support.wait import PATIENCE

from splatview_ipc.control.frame import DeviceTensor
from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Programs

pytestmark = pytest.mark.cuda


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    torch.zeros(1, device="cuda")  # a viewer that draws with CUDA has a context of its own
    with Subscriber() as s:
        yield s


@pytest.fixture(params=ALLOCATORS)
def trainer(request: pytest.FixtureRequest, programs: Programs) -> Trainer:
    return Trainer(programs, ALLOCATORS[request.param])


@pytest.fixture
def one_trainer(programs: Programs) -> Trainer:
    return Trainer(programs)


def test_a_killed_trainer_leaves_its_last_scene(
        trainer: Trainer, subscriber: Subscriber, wait_until: Callable[..., Any]) -> None:
    trainer.do("scene = make(1000, 7); splatview.publish(scene); torch.cuda.synchronize()")
    stream = stream_of(subscriber)
    frame = next_frame(subscriber, stream)
    views = [t.torch() for t in frame.tensors.values() if isinstance(t, DeviceTensor)]
    assert len(views) == 6
    trainer.process.kill()
    trainer.process.wait(PATIENCE)
    wait_until(lambda: (subscriber.poll(), not stream.run.alive)[-1])
    ballast = torch.full((1 << 28,), 9.0, device="cuda")  # a gigabyte that must not land there
    torch.cuda.synchronize()
    assert all(bool((v == 7).all()) for v in views)
    assert frame.intact()
    again = stream.read()
    assert again is not None, "the last scene of a dead run can still be read"
    assert all((v == 7).all() for v in values(again).values())
    again.close()
    frame.close()
    del views, ballast
    stream.release()


@pytest.mark.parametrize(("options", "way"), [("", "device-ring"), (", copy=False", "host")])
def test_memory_that_cannot_be_shared_is_copied_and_the_reason_named(
        programs: Programs, subscriber: Subscriber, options: str, way: str) -> None:
    trainer = Trainer(programs, "backend:cudaMallocAsync")
    trainer.do(f"""
import logging
said = []
class Keep(logging.Handler):
    def emit(self, record): said.append(record.getMessage())
logging.getLogger("splatview").addHandler(Keep())
scene = make(1000, 1)
for i in range(3): splatview.publish(scene{options})
""")
    stream = stream_of(subscriber)
    version = next_frame(subscriber, stream).version
    assert stream.sharing == way, (stream.sharing, stream.fallback)
    assert "cudaMallocAsync" in stream.info.why
    assert "cudaMallocAsync" in stream.fallback
    for value in range(2, 6):
        trainer.do(f"fill(scene, {value}); splatview.publish(scene{options})")
        with next_frame(subscriber, stream, version) as frame:
            version = frame.version
            assert all((v == value).all() for v in values(frame).values())
    said = [s for s in trainer.do("answer = said") if "cudaMallocAsync" in s]
    assert len(said) == 1, said


@pytest.mark.parametrize("way", ["in-place", "device-ring", "host"])
def test_a_viewer_takes_what_it_can(
        trainer: Trainer, way: str) -> None:
    trainer.do("scene = make(3000, 4); splatview.publish(scene)")
    with Subscriber(transports=(way,)) as subscriber:
        stream = stream_of(subscriber)
        with next_frame(subscriber, stream) as frame:
            assert stream.sharing == way
            assert frame.on_gpu == (way != "host")
            assert all(len(v) == 3000 and (v == 4).all() for v in values(frame).values())
        assert (stream.fallback == "") == (way == "in-place")
        trainer.do("fill(scene, 5); splatview.publish(scene)")
        with next_frame(subscriber, stream, 1) as frame:
            assert all((v == 5).all() for v in values(frame).values())


def test_a_graph_that_is_captured_is_left_alone(
        one_trainer: Trainer, subscriber: Subscriber) -> None:
    one_trainer.do("scene = make(300, 1); splatview.publish(scene); torch.cuda.synchronize()")
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
answer = [publishing.begun().control.counters()["skipped"], stream().version]
""")
    assert (skipped, version) == (1, 2)
    with next_frame(subscriber, stream, 1) as frame:
        assert all((v == 6).all() for v in values(frame).values())
    assert one_trainer.do("answer = publishing.begun().control.counters()['faults']") == 0
