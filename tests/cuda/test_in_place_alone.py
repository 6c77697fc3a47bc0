"""Both sides of sharing in place in one process, which can open descriptors of its own: generations, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.open_files import open_files

from splatview_ipc.cuda.memory import Allocation
from splatview_ipc.subscriber.source import OwnSource
from splatview_ipc.transports import WAYS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cuda


class Pair:
    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self.writer: Any = WAYS["in-place"].writer(self.image(0), 1.0, bytes)
        self.version = 0

    def image(self, value: int) -> dict[str, torch.Tensor]:
        """In memory of its own."""
        self.allocations.append(Allocation(1 << 20, 0))
        return {"image": self.allocations[-1].tensor("uint8", (64, 64)).fill_(value)}

    def write(self, value: int) -> None:
        self.version += 1
        assert self.writer.write("image", self.image(value), {"layout": "HW"}, self.version)

    def reader(self, ref: Any = None) -> Any:
        return WAYS["in-place"].reader(ref or self.writer.ref, OwnSource(), lambda slot: None)

    def close(self) -> None:
        self.writer.close()
        for allocation in self.allocations:
            allocation.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    torch.zeros(1, device="cuda")
    p = Pair()
    yield p
    p.close()


def test_a_generation_replaced_while_it_is_opened_is_dropped_unread(pair: Pair) -> None:
    pair.write(1)
    old = pair.writer.ref
    for value in range(2, 6):
        pair.write(value)
    reader = pair.reader(old)
    assert reader.read() is None
    assert reader.taken == 0
    assert reader.follow(pair.writer.ref)
    assert (reader.read().tensors["image"].to_float32() == 5).all()
    assert reader.taken == pair.writer.generation
    before = reader.read()
    assert reader.follow(old), "older than what is read: nothing to do"
    assert before.intact()
    reader.close()


def test_generations_are_let_go_as_soon_as_they_are_taken(pair: Pair) -> None:
    reader = pair.reader()
    files = len(open_files())
    for value in range(1, 30):
        pair.write(value)
        assert reader.follow(pair.writer.ref)
        with reader.read() as frame:
            assert (frame.tensors["image"].to_float32() == value).all()
        pair.writer.forget(reader.taken)
        assert pair.writer.due is None
        for allocation in pair.allocations[:-1]:
            allocation.close()
        del pair.allocations[:-1]
        assert len(open_files()) <= files + 8
    reader.close()
