"""Following what is shared in place, as far as it needs no GPU: what a viewer opens, it gives back."""

from __future__ import annotations

import gc
import math
import os
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.open_files import open_files

from splatview.ipc import descriptors
from splatview.ipc.cuda import driver, events, memory
from splatview.ipc.errors import SharingError
from splatview.ipc.frames import DeviceTensor, Frame, Piece
from splatview.ipc.messages import FdMemory, InPlaceRef, TensorRef, VersionHeader
from splatview.ipc.source import RunSource
from splatview.ipc.ways import in_place_reader
from splatview.ipc.ways.base import NotYet
from splatview.ipc.ways.in_place_reader import InPlaceReader
from splatview.ipc.ways.layout import (
    ARRIVED,
    FIRST_SLOT,
    OLDEST_KEPT,
    WORDS_PER_SLOT,
    header_before_meta,
    header_with,
)
from splatview.ipc.ways.slots import SlotWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

GPU = "0123456789abcdef" * 2
PIECES = 7


class Control(SlotWriter):
    """A trainer's control page, without the GPU behind it."""

    in_segment = False

    def __init__(self) -> None:
        super().__init__(0, label="inplace")

    def offer(self, generation: int) -> InPlaceRef:
        """Memory of this generation's own in pieces, and a version that lies there."""
        fds = [os.memfd_create("piece", os.MFD_CLOEXEC) for _ in range(PIECES)]
        for fd in fds:
            os.ftruncate(fd, 4096)
        memory = FdMemory(descriptors.offer(fds), (4096,) * PIECES, GPU)
        self.publish(generation, generation)
        image = TensorRef("image", "uint8", (16, 16), (16, 1), 0, 128)
        return InPlaceRef(self.segment.ref, GPU, generation, (memory,), (image,), bytes(64))

    def publish(self, generation: int, version: int) -> None:
        slot = version % self.slots
        whole = self.begin(slot)
        self.set_done(slot, whole)
        start = header_before_meta(VersionHeader("image", generation, {}))
        self.end(slot, whole, header_with(start, {"layout": "HW"}), version)

    def arrive(self, version: int) -> None:
        """The GPU has come to the version's mark."""
        slot = version % self.slots
        self._words[FIRST_SLOT + slot * WORDS_PER_SLOT + ARRIVED] = self._words[FIRST_SLOT + slot * WORDS_PER_SLOT]

    def keeps(self, generation: int) -> None:
        self._words[OLDEST_KEPT] = generation


class OnHost(memory._OpenedPieces):
    """Memory of a trainer's that is mapped here, with the host's in place of a GPU's."""

    def __init__(self, ref: FdMemory, fds: list[int]):
        super().__init__(tuple(Piece(fd, 4096) for fd in fds), ref.gpu)
        self._index = 0
        self.bytes = np.arange(self.size, dtype=np.uint8)
        self.freed = False

    def pointer(self) -> int:
        if not self._holds:
            raise SharingError("this memory has been closed")
        return self.bytes.ctypes.data

    def _free(self) -> None:
        self.freed = True
        super()._free()


def on_host(pointer: int, dtype: str, shape: Any, strides: Any, device: int, keep: Any) -> torch.Tensor:
    """As `tensor_at`."""
    interface = SimpleNamespace(keep=keep, __array_interface__={
        "shape": tuple(shape), "strides": tuple(strides), "typestr": "|u1", "data": (pointer, False), "version": 3})
    return torch.from_numpy(np.asarray(interface))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[descriptors.Server]:
    server = descriptors.Server(tmp_path)
    yield server
    server.close()


def following(server: descriptors.Server, ref: InPlaceRef, source: RunSource, reader: InPlaceReader | None = None,
              lease: Callable[[int], None] = lambda slot: None) -> InPlaceReader:
    """A reader that has taken this generation: the given one, or a new one."""
    while True:
        try:
            if reader is None:
                return InPlaceReader.make(ref, source, lease)
            assert reader.follow(ref)
            return reader
        except NotYet:
            server.serve()


def test_many_generations_leave_no_descriptors(server: descriptors.Server, tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that densifies often must not fill its viewer's table of descriptors."""
    monkeypatch.setattr(driver, "torch_with_cuda", lambda: None)  # nothing here could be mapped
    control, source = Control(), RunSource(os.getpid(), tmp_path, lambda: True)
    reader, base = None, 0
    for generation in range(1, 81):
        ref = control.offer(generation)
        reader = following(server, ref, source, reader)
        control.keeps(generation)
        frame = reader.read(generation - 1)
        assert frame is not None
        with frame:
            assert (frame.version, frame.intact()) == (generation, True)
            assert len(frame.tensors["image"].memory.pieces) == PIECES  # type: ignore[union-attr]
        descriptors.withdraw(ref.memories[0].token)  # type: ignore[union-attr]
        server.serve()
        if generation == 2:
            base = len(open_files())
    assert len(open_files()) <= base + 2
    assert reader is not None
    reader.close()
    source.close()
    control.close()


def test_who_finds_nothing_newer_asks_for_it(server: descriptors.Server, tmp_path: Path,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "torch_with_cuda", lambda: None)
    control, source = Control(), RunSource(os.getpid(), tmp_path, lambda: True)
    ref, said = control.offer(1), []
    reader = following(server, ref, source, lease=said.append)
    for _ in range(2):
        assert reader.read(1) is None
    assert (reader.asks, said) == (True, [0])
    frame = reader.read()
    assert frame is not None
    frame.close()
    assert (reader.asks, said) == (False, [0, -1])
    for _ in range(2):
        reader.ask()
    assert (reader.asks, said) == (True, [0, -1, 0])
    reader.close()
    assert said == [0, -1, 0, -1], "who goes asks no more"
    descriptors.withdraw(ref.memories[0].token)  # type: ignore[union-attr]
    source.close()
    control.close()


class Marks:
    """As `OpenedEvent`."""

    def __init__(self) -> None:
        self.opened = self.asked = self.closed = 0
        self.at: float = math.inf
        """How many questions come before the mark."""

    def open(self, handle: bytes, index: int) -> Marks:
        self.opened += 1
        return self

    def done(self) -> bool:
        self.asked += 1
        return self.asked > self.at

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def marks(monkeypatch: pytest.MonkeyPatch) -> Marks:
    made = Marks()
    monkeypatch.setattr(driver, "torch_with_cuda", lambda: None)
    monkeypatch.setattr(driver, "here", lambda gpu: 0)
    monkeypatch.setattr(events, "OpenedEvent", made.open)
    return made


class Waiting:
    """A reader of one version, which has not arrived, of a trainer that may be gone."""

    def __init__(self, server: descriptors.Server, folder: Path) -> None:
        self.control, self.alive = Control(), True
        self.source = RunSource(os.getpid(), folder, lambda: self.alive)
        self.ref = self.control.offer(1)
        self.reader = following(server, self.ref, self.source)
        frame = self.reader.read()
        assert frame is not None
        self.frame = frame

    def close(self) -> None:
        self.frame.close()
        self.reader.close()
        descriptors.withdraw(self.ref.memories[0].token)  # type: ignore[union-attr]
        self.source.close()
        self.control.close()


@pytest.fixture
def waiting(server: descriptors.Server, tmp_path: Path, marks: Marks) -> Iterator[Waiting]:
    made = Waiting(server, tmp_path)
    yield made
    made.close()


def test_data_is_waited_for_until_it_arrives(waiting: Waiting) -> None:
    assert not waiting.frame.complete
    gpu = threading.Timer(0.1, waiting.control.arrive, (1,))
    gpu.start()
    waiting.frame.wait(0)
    assert waiting.frame.complete
    gpu.join()


def test_the_event_says_it_where_the_gpu_writes_nothing(waiting: Waiting, marks: Marks) -> None:
    marks.at = 5
    waiting.frame.tensors["image"].ready(0)  # type: ignore[union-attr]
    assert (marks.opened, marks.asked, waiting.frame.complete) == (1, 6, False)
    waiting.frame.wait(0)
    assert marks.asked == 6, "what has come is not asked for again"
    waiting.control.publish(1, 2)
    newer = waiting.reader.read(1)
    assert newer is not None
    marks.at = 8
    newer.wait(0)
    assert (marks.opened, marks.asked) == (1, 9), "each version is waited for"
    newer.close()


def test_a_trainer_that_is_gone_is_not_waited_for(waiting: Waiting, marks: Marks) -> None:
    """Its GPU work ended with it: the mark will never come."""
    waiting.alive = False
    waiting.frame.wait(0)
    assert (marks.asked, waiting.frame.complete) == (0, False)


def test_a_trainer_that_dies_meanwhile_is_waited_for_no_longer(waiting: Waiting) -> None:
    death = threading.Timer(0.1, setattr, (waiting, "alive", False))
    death.start()
    waiting.frame.wait(0)
    assert not waiting.alive
    death.join()


def test_a_gpu_that_never_gets_there_is_given_up(waiting: Waiting, marks: Marks,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place_reader, "_PATIENCE", 0.1)
    waiting.frame.wait(0)
    asked = marks.asked
    assert asked > 1
    waiting.frame.wait(0)
    assert marks.asked == asked, "it is given up once, not at each drawing"


def test_a_reader_that_is_closed_waits_for_nothing(waiting: Waiting, marks: Marks) -> None:
    waiting.reader.close()
    waiting.frame.wait(0)
    assert marks.opened == 0


def test_a_generation_that_was_taken_can_be_opened_again(server: descriptors.Server, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "torch_with_cuda", lambda: None)
    control, source = Control(), RunSource(os.getpid(), tmp_path, lambda: True)
    ref = control.offer(1)
    for _ in range(3):
        reader = following(server, ref, source)
        frame = reader.read()
        assert frame is not None
        frame.close()
        reader.close()
    descriptors.withdraw(ref.memories[0].token)  # type: ignore[union-attr]
    source.close()
    control.close()


def test_tensors_are_made_once_per_generation_and_keep_no_memory_beyond_it(
        server: descriptors.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[OnHost] = []
    monkeypatch.setattr(memory, "open_memory", lambda ref, fds: opened.append(OnHost(ref, fds)) or opened[-1])
    monkeypatch.setattr(memory, "tensor_at", on_host)
    monkeypatch.setattr(driver, "torch_with_cuda", lambda: None)
    control, source = Control(), RunSource(os.getpid(), tmp_path, lambda: True)
    reader: InPlaceReader | None = None
    tokens: list[str] = []

    def follow(generation: int) -> InPlaceReader:
        ref = control.offer(generation)
        tokens.append(ref.memories[0].token)  # type: ignore[union-attr]
        return following(server, ref, source, reader)

    def read(after: int) -> tuple[Frame, DeviceTensor]:
        assert reader is not None
        frame = reader.read(after)
        assert frame is not None
        tensor = frame.tensors["image"]
        assert isinstance(tensor, DeviceTensor)
        return frame, tensor

    reader = follow(1)
    frame, tensor = read(0)
    made = tensor.torch()
    assert (made[0, 0], made[1, 2]) == (128, 146), "where it was announced"
    frame.close()
    control.publish(1, 2)
    held, tensor = read(1)
    assert tensor.torch() is made
    with torch.inference_mode():
        assert tensor.torch() is made
    del made
    follow(3)  # another generation, while a frame of this one is held
    assert not opened[0].freed and (tensor.torch() == tensor.torch()).all()
    held.close()
    assert opened[0].freed, "what is made once keeps memory no longer than the frames did"
    with pytest.raises(SharingError, match="closed"):
        tensor.torch()

    frame, tensor = read(2)
    made = tensor.torch()
    assert made.data_ptr() == opened[1].pointer() + 128
    frame.close()
    follow(4)
    assert not opened[1].freed and made[0, 0] == 128, "somebody has it still"
    assert tensor.torch() is not tensor.torch(), "nothing is kept any more"
    del made
    gc.collect()
    assert opened[1].freed

    frame, tensor = read(3)
    with torch.inference_mode():
        special = tensor.torch()
    if special.is_inference():
        assert tensor.torch() is not special, "it could not be used everywhere"
    del special
    tensor.torch()
    reader.close()
    assert not opened[2].freed
    frame.close()
    assert opened[2].freed and len(opened) == 3
    for token in tokens:
        descriptors.withdraw(token)
    source.close()
    control.close()
