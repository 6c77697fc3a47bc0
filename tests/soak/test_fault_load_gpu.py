"""Very many publishes of CUDA tensors beside a viewer: memory of the GPU, descriptors and exports stay what they were,
and no frame mixes two versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.load_programs import SHADES
from support.soak import rest
from support.trainers import Trainer, frame_of_step, next_frame, stream_of, values

from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.programs import Programs

    from splatview_ipc.control.frame import Frame
    from splatview_ipc.subscriber.remote_stream import RemoteStream

pytestmark = pytest.mark.cuda

MB = 1 << 20
_BEGIN = """
from support import gpu_memory
def picture(extent, value):
    return torch.full((*extent, 3), value, dtype=torch.uint8, device="cuda")
def taken():
    "Bytes of torch, of this process on all GPUs, descriptors, copies so far."
    return [memory(), gpu_memory.used(), open_files(), publishing.begun().control.counters()]
"""


@pytest.fixture
def trainer(programs: Programs) -> Trainer:
    found = Trainer(programs)
    found.do(_BEGIN)
    return found


def steady(before: list[Any], after: list[Any]) -> None:
    """Assert that nothing is taken up beside what was."""
    assert after[0] <= before[0] + MB
    assert after[1] <= before[1] + 128 * MB  # kernels that a thread needs for the first time take up to 70
    assert after[2] <= before[2] + 2
    assert after[3]["faults"] == 0


def looks(subscriber: Subscriber, stream: RemoteStream, trainer: Trainer, check: Callable[[Frame], None]) -> int:
    """Read what comes until the trainer is done; how many frames."""
    seen, version = 0, 0
    while not trainer.finished():
        subscriber.poll()
        frame = stream.read(version)
        if frame is None:
            rest(0.0005)
            continue
        with frame:
            version = frame.version
            check(frame)
            seen += 1
    return seen


@pytest.mark.parametrize("way", ["in-place", "device-ring", "host"])
def test_a_hundred_thousand_publishes_beside_a_viewer(trainer: Trainer, wait_until: Callable[..., Any],
                                                      way: str) -> None:
    publish = {"in-place": 'fill(still, i % 251); splatview.publish(still, "scene", step=i)',
               "device-ring": 'splatview.publish(base + i % 251, "scene", step=i)',
               "host": 'splatview.publish(base + i % 251, "scene", step=i)'}[way]
    trainer.do('base = picture((48, 64), 0)\nstill = make(300, 0)\nfor i in range(1, 6):\n    ' + publish)
    with Subscriber(transports=(way,)) as subscriber:
        stream = stream_of(subscriber, wait_until, "scene")
        trainer.do("for i in range(6, 12):\n    " + publish + "\n    time.sleep(0.01)")
        next_frame(subscriber, stream).close()
        trainer.do("for i in range(12, 5000):\n    " + publish)
        before = trainer.do("answer = taken()")

        def check(frame: Frame) -> None:
            got = values(frame)
            if frame.intact() and way != "in-place":  # in place, one step may be seen half done
                assert {float(extreme) for t in got.values() for extreme in (t.min(), t.max())} == {
                    float(frame.meta["step"] % SHADES)}

        trainer.start("for i in range(5000, 55_000):\n    " + publish +
                      "\n    if not i % 256: torch.cuda.synchronize()")
        assert looks(subscriber, stream, trainer, check) > 0
        trainer.finish()
        steady(before, trainer.do("answer = taken()"))
        assert stream.sharing == way
        frame_of_step(subscriber, stream, 54_999).close()
