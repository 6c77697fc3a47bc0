"""Following what is shared in place, as far as it needs no GPU: what a viewer opens, it gives back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ipc import descriptors
from ipc.messages import FdMemory, InPlaceRef, TensorRef, VersionHeader
from ipc.source import RunSource
from ipc.ways import in_place_reader
from ipc.ways.base import NotYet
from ipc.ways.in_place_reader import InPlaceReader
from ipc.ways.layout import OLDEST_KEPT, header_before_meta, header_with
from ipc.ways.slots import SlotWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        slot = generation % self.slots
        whole = self.begin(slot)
        self.set_done(slot, whole)
        start = header_before_meta(VersionHeader("image", generation, {}))
        self.end(slot, whole, header_with(start, {"layout": "HW"}), generation)
        image = TensorRef("image", "uint8", (16, 16), (16, 1), 0, 128)
        return InPlaceRef(self.segment.ref, GPU, generation, (memory,), (image,), bytes(64))

    def keeps(self, generation: int) -> None:
        self._words[OLDEST_KEPT] = generation


@pytest.fixture
def server(tmp_path: Path) -> Iterator[descriptors.Server]:
    server = descriptors.Server(tmp_path)
    yield server
    server.close()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_many_generations_leave_no_descriptors(server: descriptors.Server, tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that densifies often must not fill its viewer's table of descriptors."""
    monkeypatch.setattr(in_place_reader, "_uses_cuda", lambda: False)  # nothing here could be mapped
    control, source = Control(), RunSource(os.getpid(), tmp_path)
    reader, base = None, 0
    for generation in range(1, 81):
        ref = control.offer(generation)
        while True:
            try:
                if reader is None:
                    reader = InPlaceReader.make(ref, source, lambda slot: None)
                else:
                    assert reader.follow(ref)
                break
            except NotYet:
                server.serve()
        control.keeps(generation)
        frame = reader.read(generation - 1)
        assert frame is not None
        with frame:
            assert (frame.version, frame.intact()) == (generation, True)
            assert len(frame.tensors["image"].memory.pieces) == PIECES  # type: ignore[union-attr]
        descriptors.withdraw(ref.memories[0].token)  # type: ignore[union-attr]
        server.serve()
        if generation == 2:
            base = open_files()
    assert open_files() <= base + 2
    assert reader is not None
    reader.close()
    source.close()
    control.close()


def test_who_finds_nothing_newer_asks_for_it(server: descriptors.Server, tmp_path: Path,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place_reader, "_uses_cuda", lambda: False)
    control, source = Control(), RunSource(os.getpid(), tmp_path)
    ref, said = control.offer(1), []
    while True:
        try:
            reader = InPlaceReader.make(ref, source, said.append)
            break
        except NotYet:
            server.serve()
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


def test_a_generation_that_was_taken_can_be_opened_again(server: descriptors.Server, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place_reader, "_uses_cuda", lambda: False)
    control, source = Control(), RunSource(os.getpid(), tmp_path)
    ref = control.offer(1)
    for _ in range(3):
        while True:
            try:
                reader = InPlaceReader.make(ref, source, lambda slot: None)
                break
            except NotYet:
                server.serve()
        frame = reader.read()
        assert frame is not None
        frame.close()
        reader.close()
    descriptors.withdraw(ref.memories[0].token)  # type: ignore[union-attr]
    source.close()
    control.close()
