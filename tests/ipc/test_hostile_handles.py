"""Handles, descriptors, shapes, strides and offsets that a run forges: refused before anything is opened or mapped;
what came over its descriptors' socket is closed again."""

from __future__ import annotations

import array
import os
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.open_files import open_files

from splatview_ipc.control import descriptors, limits, messages
from splatview_ipc.control.channel import listening
from splatview_ipc.control.errors import NotYet, SharingError
from splatview_ipc.cuda.tensors import check_within
from splatview_ipc.subscriber.source import RunSource
from splatview_ipc.transports.zero_copy_reader import InPlaceReader, check_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

GPU, OTHER = "0123456789abcdef" * 2, "f" * 32
SEGMENT = messages.SegmentRef(3, 1 << 20, "inplace-0123456789abcdef")
BIG = [0, 1, 2, 3, 2**31, 2**32, 2**39, limits.MAX_EXTENT]


def in_place(*tensors: messages.TensorRef, memories: tuple[Any, ...]) -> messages.InPlaceRef:
    return messages.InPlaceRef(SEGMENT, GPU, 1, memories, tensors, bytes(64))


@settings(max_examples=200, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(BIG), st.sampled_from(BIG)), max_size=4),
       st.sampled_from([0, 1, 4, 512, 2**40, limits.MAX_SEGMENT]), st.sampled_from(list(limits.ITEM_SIZE)),
       st.sampled_from([1, 4096, 2**40, limits.MAX_SEGMENT]))
def test_shapes_strides_and_offsets_never_reach_beyond_their_memory(
        dims: list[tuple[int, int]], offset: int, dtype: str, size: int) -> None:
    """Of any size: nothing overflows, and both checks, that of offers and that of tensors, say the same."""
    shape, strides = tuple(n for n, _ in dims), tuple(s for _, s in dims)
    ref = messages.TensorRef("t", dtype, shape, strides, 0, offset)  # type: ignore[arg-type]
    offer = in_place(ref, memories=(messages.IpcMemory(bytes(64), size, GPU),))
    assert messages.decode_to_viewer(messages.encode(messages.Offer(0, "in-place", offer))).ref == offer  # type: ignore
    last = offset + (1 + sum((n - 1) * s for n, s in dims)) * limits.ITEM_SIZE[dtype]
    fits = 0 in shape or (last <= size and offset % limits.ITEM_SIZE[dtype] == 0)
    for check in (lambda: check_tensors(offer),
                  lambda: 0 in shape or check_within(dtype, shape, strides, offset, size)):
        try:
            check()
            refused = False
        except SharingError:
            refused = True
        assert refused != fits


CHANGES: list[dict[str, Any]] = [
    {"gpu": "G" * 32}, {"gpu": GPU.upper()}, {"gpu": "ab" * 16 + "\n"}, {"event": bytes(63)}, {"event": "x" * 64},
    {"generation": 0}, {"generation": 2**63}, {"more": 1},
    *({"tensors": [tensor]} for tensor in (
        ["a.b", "float32", [1], [1], 0, 0], ["t", "object", [1], [1], 0, 0], ["t", "float32", [-1], [1], 0, 0],
        ["t", "float32", [1], [-1], 0, 0], ["t", "float32", [1] * 5, [1] * 5, 0, 0], ["t", "float32", [1], [1], 64, 0],
        ["t", "float32", [1], [1], 0, -4], ["t", "float32", [2**63], [1], 0, 0], ["t", "float32", [1.0], [1], 0, 0],
        ["t", "float32", [1], [1], 0])),
    *({"memories": [memory]} for memory in (
        {"type": "ipc", "handle": bytes(32), "size": 1, "gpu": GPU},
        {"type": "ipc", "handle": bytes(64), "size": 2**63, "gpu": GPU},
        {"type": "fd", "token": "../x", "pieces": [1], "gpu": GPU},
        {"type": "fd", "token": "t", "pieces": [], "gpu": GPU}, {"type": "fd", "token": "t", "pieces": [0], "gpu": GPU},
        {"type": "fd", "token": "t", "pieces": [1] * (limits.MAX_PIECES + 1), "gpu": GPU},
        {"type": "pickle", "data": b"\x80\x04."})),
    *({"control": {"fd": fd, "size": size, "token": token}} for fd, size, token in (
        (-1, 1 << 20, "a"), (2**31, 1 << 20, "a"), (3, 0, "a"), (3, 2**63, "a"), (3, 1 << 20, "a/../b"),
        (3, 1, "a\n"))),
]


def test_offers_that_are_not_decoded() -> None:
    said = {"type": "in-place", "control": {"fd": 3, "size": 1 << 20, "token": "a-1"}, "gpu": GPU, "generation": 1,
            "memories": [{"type": "ipc", "handle": bytes(64), "size": 4096, "gpu": GPU}],
            "tensors": [["t", "float32", [1], [1], 0, 0]], "event": bytes(64)}
    packet = {"type": "Offer", "index": 0, "way": "in-place", "note": "", "ref": said}
    assert isinstance(messages.decode_to_viewer(messages.encode(packet)), messages.Offer)
    for change in CHANGES:
        with pytest.raises(messages.DecodeError):
            messages.decode_to_viewer(messages.encode({**packet, "ref": {**said, **change}}))
            pytest.fail(f"{change} was decoded")


class Nothing:
    """A source that is not to be asked."""

    def segment(self, ref: messages.SegmentRef) -> int:
        raise AssertionError(f"{ref} was opened")

    def descriptors(self, token: str, count: int) -> list[int]:
        raise AssertionError(f"{count} descriptors were asked for")

    def forget(self, token: str) -> None:
        pass

    def alive(self) -> bool:
        raise AssertionError("there is nothing to wait for")


@pytest.mark.parametrize("case", ["outside", "another gpu", "twice", "names", "strides", "no memory"])
def test_what_does_not_fit_together_is_refused_before_anything_is_opened(case: str) -> None:
    memory = messages.IpcMemory(bytes(64), 4096, GPU)
    tensor = messages.TensorRef("t", "float32", (4,), (1,), 0, 0)
    ref = {
        "outside": in_place(messages.TensorRef("t", "float32", (1024,), (2,), 0, 0), memories=(memory,)),
        "another gpu": in_place(tensor, memories=(messages.IpcMemory(bytes(64), 4096, OTHER),)),
        "twice": in_place(tensor, memories=(memory, memory)),
        "names": in_place(tensor, tensor, memories=(memory,)),
        "strides": in_place(messages.TensorRef("t", "float32", (4,), (), 0, 0), memories=(memory,)),
        "no memory": in_place(messages.TensorRef("t", "float32", (4,), (1,), 1, 0), memories=(memory,)),
    }[case]
    with pytest.raises(SharingError, match="announced"):
        InPlaceReader.make(ref, Nothing(), lambda *_: None)


class Giver:
    """A run's descriptors' socket, of which the test says what it answers."""

    def __init__(self, folder: Path):
        self._socket = listening(folder / descriptors.SOCKET_NAME, 8)
        self._connections: list[socket.socket] = []

    def answer(self, *packets: tuple[bytes, int]) -> None:
        """Send packets of bytes, with so many descriptors each."""
        connection, _ = self._socket.accept()
        self._connections.append(connection)
        for said, count in packets:
            null = os.open("/dev/null", os.O_RDONLY)
            fds = [null] * count
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            try:
                connection.sendmsg([said], rights)
            except OSError:  # hung up on, or full
                break
            finally:
                os.close(null)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._socket.close()


@pytest.fixture
def giver(tmp_path: Path) -> Iterator[Giver]:
    giver = Giver(tmp_path)
    yield giver
    giver.close()


def total(count: int) -> bytes:
    return struct.pack("=I", count)


@pytest.mark.parametrize("packets", [
    [(b"", 0)], [(b"x", 3)], [(b"x" * 5000, 0)], [(total(0), 5)], [(total(2**32 - 1), 1)], [(total(1), 2)],
    [(total(3), 1), (total(1), 1)], [(total(2), 250)], [(total(4096), 200)] * 21, [(total(7), 7)]],
    ids=lambda packets: f"{packets[0][0][:8]!r} with {packets[0][1]}, {len(packets)} times")
def test_descriptors_that_were_not_asked_for_are_closed(
        giver: Giver, tmp_path: Path, packets: list[tuple[bytes, int]], wait_until: Callable[..., Any]) -> None:
    """A run hands over more than it says, less, none, or says what cannot be: all is closed."""
    before = open_files()
    source = RunSource(2**22 + 1, tmp_path, lambda: False)  # no such process
    with pytest.raises(NotYet):
        source.descriptors("fds-1", 3)
    giver.answer(*packets)

    def refused() -> bool:
        try:
            found = source.descriptors("fds-1", 3)
        except NotYet:
            return False
        except SharingError:
            return True
        raise AssertionError(f"{len(found)} came")

    wait_until(refused, what="a refusal")
    source.close()
    giver.close()
    assert open_files() <= before
