"""Pictures in place tell without CUDA when the trainer's GPU has written them. Both sides in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.open_files import open_files
from support.wait import wait_until

from splatview_ipc.cuda import retiring
from splatview_ipc.cuda.memory import Allocation
from splatview_ipc.subscriber.source import OwnSource
from splatview_ipc.transports import WAYS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cuda

LONG = 200_000_000
"""GPU clocks: a tenth of a second."""


class Stream:
    """One picture in memory of its own, published again and again."""

    def __init__(self) -> None:
        self.allocation = Allocation(1 << 20, 0)
        self.image = self.allocation.tensor("uint8", (64, 64)).zero_()
        self.writer: Any = WAYS["in-place"].writer({"image": self.image}, 1.0, bytes)
        self.version = 0

    def publish(self) -> None:
        self.version += 1
        assert self.writer.write("image", {"image": self.image}, {"layout": "HW"}, self.version)

    def reader(self) -> Any:
        return WAYS["in-place"].reader(self.writer.ref, OwnSource(), lambda slot: None)


@pytest.fixture
def stream() -> Iterator[Stream]:
    torch.zeros(1, device="cuda")
    made = Stream()
    yield made
    torch.cuda.synchronize()
    made.writer.close()
    made.allocation.close()


def arrives(frame: Any) -> bool:
    return wait_until(lambda: frame.complete, "the picture has arrived")


def test_a_picture_arrives_when_the_gpu_has_written_it(stream: Stream) -> None:
    stream.publish()
    reader = stream.reader()
    for value in range(1, 8):  # more than there are slots
        torch.cuda.synchronize()
        torch.cuda._sleep(LONG)
        stream.image.fill_(value)
        stream.publish()
        frame = reader.read()
        assert frame.version == stream.version
        assert not frame.complete, "the GPU is still asleep"
        assert arrives(frame)
        assert (stream.image == value).all()
        frame.close()
    frame = reader.read()
    reader.close()
    assert not frame.complete, "a reader that is closed knows nothing"


def test_versions_that_are_ahead_of_the_gpu_arrive_in_the_end(stream: Stream) -> None:
    stream.publish()
    reader = stream.reader()
    frames = []
    for _ in range(10):
        torch.cuda._sleep(LONG // 10)
        stream.publish()
        frames.append(reader.read())
    assert not frames[-1].complete
    assert arrives(frames[-1])
    assert all(frame.complete for frame in frames), "their slots were used again since: they arrived before"
    for frame in frames:
        frame.close()
    reader.close()


def test_a_writer_that_is_closed_while_the_gpu_is_busy_gives_everything_back(stream: Stream) -> None:
    stream.publish()
    torch.cuda.synchronize()
    files = open_files()
    for _ in range(5):
        writer = WAYS["in-place"].writer({"image": stream.image}, 1.0, bytes)
        torch.cuda._sleep(LONG // 10)
        assert writer.write("image", {"image": stream.image}, {"layout": "HW"}, 1)
        writer.close()
        writer.close()
    torch.cuda.synchronize()
    assert retiring.settle()
    assert open_files() <= files
    stream.publish()
