"""Following what is shared in place, as far as it needs no GPU: what a viewer opens, it gives back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from support.meters import open_files
from support.transports import Handed, reader_of

from splatview_ipc.control import descriptors
from splatview_ipc.control.messages import FdMemory, InPlaceRef, TensorRef, VersionHeader, encode
from splatview_ipc.cuda import driver
from splatview_ipc.shm.slot_layout import ARRIVED, OLDEST_KEPT, SEQ
from splatview_ipc.shm.slot_writer import SlotWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GPU = "0123456789abcdef" * 2
PIECES = 7


def pieces(start: int, stop: int) -> list[int]:
    """Descriptors of memory of this generation alone."""
    fds = [os.memfd_create("piece", os.MFD_CLOEXEC) for _ in range(start, stop)]
    for fd in fds:
        os.ftruncate(fd, 4096)
    return fds


class Control(SlotWriter):
    """A trainer's control page, without the GPU behind it; and a viewer's reader of it."""

    in_segment = False

    def __init__(self) -> None:
        super().__init__(0, 4)
        self.asked = 0
        """Questions whether the trainer lives."""
        self.answer: Callable[[], bool] = lambda: True
        self.reader: Any = reader_of("in-place", self.offer(1))
        self.reader.alive = self.alive

    def alive(self) -> bool:
        self.asked += 1
        return self.answer()

    def offer(self, generation: int) -> InPlaceRef:
        """Memory in pieces, and a version that is stored there."""
        token = descriptors.offer(PIECES, pieces)
        slot = generation % self.slots
        whole = self.begin(slot)
        self.set_done(slot, whole)
        self.commit(slot, whole, encode(VersionHeader("image", generation, {"layout": "HW"})), generation)
        image = TensorRef("image", "uint8", (16, 16), (16, 1), 0, 128)
        return InPlaceRef(self.segment.ref, GPU, generation, (FdMemory(token, (4096,) * PIECES, GPU),), (image,))

    def arrive(self, version: int) -> None:
        """The GPU has come to the version's mark."""
        base = self.bases[version % self.slots]
        self._words[base + ARRIVED] = self._words[base + SEQ]

    def follow(self, generation: int) -> None:
        """Offer a generation, and give back the one before."""
        ref = self.offer(generation)
        with Handed(ref) as fds:
            assert self.reader.follow(ref, fds)
        (memory,) = ref.memories
        assert isinstance(memory, FdMemory) and memory.token in self.reader.known
        descriptors.withdraw(memory.token)
        self._words[OLDEST_KEPT] = generation


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Iterator[Control]:
    monkeypatch.setattr(driver, "torch_with_cuda", lambda: None)  # nothing here could be mapped
    made = Control()
    yield made
    made.reader.close()
    made.close()


def test_many_generations_leave_no_descriptors(control: Control) -> None:
    """A training that densifies often must not fill its viewer's table of descriptors."""
    base = 0
    for generation in range(2, 41):
        control.follow(generation)
        with control.reader.read(generation - 1) as frame:
            assert (frame.version, frame.intact()) == (generation, True)
            assert len(frame.tensors["image"].memory.pieces) == PIECES
        if generation == 3:
            base = len(open_files())
    assert len(open_files()) <= base + 2


@pytest.mark.parametrize("questions", [1, 3])
def test_a_trainer_that_is_gone_is_not_waited_for(control: Control, questions: int) -> None:
    """Its GPU work ended with it: the mark will never come."""
    control.answer = lambda: control.asked < questions
    with control.reader.read() as frame:
        frame.wait(0)
        assert (control.asked, frame.complete) == (questions, False)
