"""Both sides of sharing in place in one process, which can open descriptors of its own: versions and generations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.meters import open_files
from support.transports import Handed, reader_of
from support.wait import all_retired, wait_until

from splatview_ipc.cuda.memory import Allocation
from splatview_ipc.transports import TRANSPORTS
from splatview_ipc.transports.zero_copy_writer import KEEP_S, ZeroCopyWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_ipc.control.frame import Frame

pytestmark = pytest.mark.cuda

LONG = 200_000_000
"""GPU clocks: a tenth of a second."""


class Pair:
    """A picture that is published again and again, in the same memory or in new one."""

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self.image = self._new(0)
        self.writer = ZeroCopyWriter({"image": self.image})
        self.version = 0

    def _new(self, value: int) -> torch.Tensor:
        self.allocations.append(Allocation(1 << 20, 0))
        return self.allocations[-1].tensor("uint8", (64, 64)).fill_(value)

    def write(self) -> None:
        """Publish the picture once more."""
        self.version += 1
        assert self.writer.write("image", {"image": self.image}, {"layout": "HW"}, self.version)

    def move(self, value: int) -> None:
        """Publish another picture: a generation."""
        self.image = self._new(value)
        self.write()

    def reader(self) -> Any:
        return reader_of("in-place", self.writer.ref)

    def follow(self, reader: Any) -> None:
        with Handed(self.writer.ref) as fds:
            assert reader.follow(self.writer.ref, fds)

    def close(self) -> None:
        torch.cuda.synchronize()
        self.writer.close()
        for allocation in self.allocations:
            allocation.close()
        assert all_retired()


@pytest.fixture
def pair() -> Iterator[Pair]:
    torch.zeros(1, device="cuda")
    made = Pair()
    yield made
    made.close()


def shown(frame: Frame) -> set[float]:
    return set(frame.tensors["image"].to_float32().ravel())


# ---- versions


def test_a_picture_is_complete_when_the_gpu_has_written_it(pair: Pair) -> None:
    pair.write()
    reader = pair.reader()
    for value in range(1, 8):  # more than there are slots
        torch.cuda.synchronize()
        torch.cuda._sleep(LONG)
        pair.image.fill_(value)
        pair.write()
        with reader.read() as frame:
            assert frame.version == pair.version
            assert not frame.complete, "the GPU is still asleep"
            frame.wait(0)
            assert frame.complete
            assert shown(frame) == {value}
    frame = reader.read()
    reader.close()
    assert not frame.complete, "a reader that is closed knows nothing"
    frame.close()


def test_versions_that_are_ahead_of_the_gpu_are_complete_in_the_end(pair: Pair) -> None:
    pair.write()
    reader = pair.reader()
    frames = []
    for _ in range(10):
        torch.cuda._sleep(LONG // 10)
        pair.write()
        frames.append(reader.read())
    assert not frames[-1].complete
    wait_until(lambda: frames[-1].complete, "the picture has arrived")
    assert all(frame.complete for frame in frames), "their slots were used again since: they arrived before"
    for frame in frames:
        frame.close()
    reader.close()


def test_a_writer_that_is_closed_while_the_gpu_is_busy_gives_everything_back(pair: Pair) -> None:
    pair.write()
    torch.cuda.synchronize()
    files = open_files()
    for _ in range(5):
        writer = ZeroCopyWriter({"image": pair.image})
        torch.cuda._sleep(LONG // 10)
        assert writer.write("image", {"image": pair.image}, {"layout": "HW"}, 1)
        writer.close()
        writer.close()
    torch.cuda.synchronize()
    assert all_retired()
    assert open_files() <= files
    pair.write()


# ---- generations


def test_a_generation_replaced_while_it_is_opened_is_dropped_unread(pair: Pair) -> None:
    pair.move(1)
    old = pair.writer.ref
    with Handed(old) as fetched:
        for value in range(2, 6):
            pair.move(value)
        readers: list[Any] = [TRANSPORTS["in-place"].reader(old, fetched), reader_of("in-place", old)]
    for reader in readers:  # the second came too late for the descriptors as well
        assert reader.read() is None
        pair.follow(reader)
        before = reader.read()
        assert shown(before) == {5}
        with Handed(old) as nothing:
            assert reader.follow(old, nothing), "older than what is read: nothing to do"
        assert before.intact()
        before.close()
        reader.close()


def test_generations_are_kept_for_a_while_and_then_given_back(pair: Pair) -> None:
    reader, now = pair.reader(), 100.0
    files = len(open_files())
    for value in range(1, 30):
        pair.move(value)
        pair.follow(reader)
        frame = reader.read()
        assert shown(frame) == {value}
        pair.move(200)
        due = pair.writer.turn(now)
        assert due == now + KEEP_S
        assert frame.intact(), "it is replaced, and kept for its readers"
        now += 2 * KEEP_S
        pair.writer.turn(now)
        assert pair.writer.turn(now + KEEP_S) is None
        assert not frame.intact()
        frame.close()
        for allocation in pair.allocations[:-1]:
            allocation.close()
        del pair.allocations[:-1]
        assert len(open_files()) <= files + 8
    reader.close()
