"""Following what is shared in place, as far as it needs no GPU: what a viewer opens, it gives back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.meters import open_files
from support.transports import Handed, reader_of

from splatview_ipc.control import descriptors
from splatview_ipc.control.frame import DeviceTensor, Frame
from splatview_ipc.control.messages import FdMemory, InPlaceRef, TensorRef, VersionHeader, encode
from splatview_ipc.cuda import driver
from splatview_ipc.shm.slot_layout import ARRIVED, OLDEST_KEPT, SEQ
from splatview_ipc.shm.slot_writer import SlotWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GPU = "0123456789abcdef" * 2
PIECES = 7


def _pieces(start: int, stop: int) -> list[int]:
    fds = [os.memfd_create("piece", os.MFD_CLOEXEC) for _ in range(start, stop)]
    for fd in fds:
        os.ftruncate(fd, 4096)
    return fds


class Control(SlotWriter):
    """A trainer's control page, without the GPU behind it."""

    in_segment = False

    def __init__(self) -> None:
        super().__init__(0, 4)

    def offer(self, generation: int) -> InPlaceRef:
        """Memory of this generation's own in pieces, and a version that is stored there."""
        token = descriptors.offer(PIECES, _pieces)
        self.publish(generation, generation)
        image = TensorRef("image", "uint8", (16, 16), (16, 1), 0, 128)
        return InPlaceRef(self.segment.ref, GPU, generation, (FdMemory(token, (4096,) * PIECES, GPU),), (image,))

    def publish(self, generation: int, version: int) -> None:
        slot = version % self.slots
        whole = self.begin(slot)
        self.set_done(slot, whole)
        self.commit(slot, whole, encode(VersionHeader("image", generation, {"layout": "HW"})), version)

    def arrive(self, version: int) -> None:
        """The GPU has come to the version's mark."""
        base = self.bases[version % self.slots]
        self._words[base + ARRIVED] = self._words[base + SEQ]

    def keeps(self, generation: int) -> None:
        self._words[OLDEST_KEPT] = generation


class Pair:
    """A trainer's control page and a viewer's reader of it."""

    def __init__(self) -> None:
        self.control = Control()
        self.reader = reader_of("in-place", self.offer(1))
        self.reader.alive = self.alive
        self.asked = 0
        self.meanwhile: Callable[[], bool] = lambda: True
        """Called at each question whether the trainer lives; the answer."""

    def alive(self) -> bool:
        self.asked += 1
        return self.meanwhile()

    def offer(self, generation: int) -> InPlaceRef:
        return self.control.offer(generation)

    def follow(self, ref: InPlaceRef) -> None:
        with Handed(ref) as fds:
            assert self.reader.follow(ref, fds)
        for memory in ref.memories:
            assert isinstance(memory, FdMemory)
            assert memory.token in self.reader.known
            descriptors.withdraw(memory.token)

    def read(self, after: int = 0) -> Frame:
        frame = self.reader.read(after)
        assert frame is not None
        return frame

    def close(self) -> None:
        self.reader.close()
        self.control.close()


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(driver, "torch_with_cuda", lambda: None)  # nothing here could be mapped
    made = Pair()
    yield made
    made.close()


def test_many_generations_leave_no_descriptors(pair: Pair) -> None:
    """A training that densifies often must not fill its viewer's table of descriptors."""
    base = 0
    for generation in range(2, 41):
        pair.follow(pair.offer(generation))
        pair.control.keeps(generation)
        with pair.read(generation - 1) as frame:
            assert (frame.version, frame.intact()) == (generation, True)
            image = frame.tensors["image"]
            assert isinstance(image, DeviceTensor)
            assert len(image.memory.pieces) == PIECES
        if generation == 3:
            base = len(open_files())
    assert len(open_files()) <= base + 2


def test_data_is_waited_for_until_the_gpu_writes_its_mark(pair: Pair) -> None:
    with pair.read() as frame:
        assert not frame.complete
        pair.meanwhile = lambda: pair.asked < 3 or pair.control.arrive(1) is None
        frame.wait(0)
        assert frame.complete
        assert pair.asked == 3


@pytest.mark.parametrize("questions", [1, 3])
def test_a_trainer_that_is_gone_is_not_waited_for(pair: Pair, questions: int) -> None:
    """Its GPU work ended with it: the mark will never come."""
    pair.meanwhile = lambda: pair.asked < questions
    with pair.read() as frame:
        frame.wait(0)
        assert (pair.asked, frame.complete) == (questions, False)
