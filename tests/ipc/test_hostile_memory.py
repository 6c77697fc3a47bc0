"""Shared memory that makes no sense, or changes while it is read: a reader never follows it out of its slot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.meters import open_files
from support.transports import Handed, reader_of
from support.wait import wait_until

import splatview
from splatview.api import session as publishing
from splatview_ipc.control import limits, messages
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.cuda.tensors import check_bounds
from splatview_ipc.shm.control_block import ControlReader
from splatview_ipc.shm.segment import PAGE, Segment
from splatview_ipc.shm.slot_layout import (
    CAPACITY,
    FIRST_SLOT,
    HEADER,
    MAGIC,
    MAGIC_WORD,
    SLOTS,
    VERSION,
    WORDS_PER_SLOT,
)
from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_ipc.transports.cpu_ring import CpuRingReader, CpuRingWriter
from splatview_ipc.transports.zero_copy_reader import check_tensors

META: messages.MetaDict = {"layout": "HWC"}
NUMBERS = st.one_of(
    st.sampled_from(
        [
            0,
            1,
            2,
            3,
            15,
            16,
            17,
            2**16,
            2**31,
            2**32,
            2**62,
            2**63 - 1,
            2**63,
            2**64 - 1,
        ]
    ),
    st.integers(0, 2**64 - 1),
)


@pytest.fixture
def ring() -> Iterator[tuple[CpuRingWriter, CpuRingReader]]:
    writer = CpuRingWriter(4096, 4)
    reader = reader_of("ring", writer.ref)
    assert isinstance(reader, CpuRingReader)
    image = torch.arange(4 * 6 * 3, dtype=torch.uint8).reshape(4, 6, 3)
    for version in (1, 2):
        assert writer.write("image", {"image": image}, META, version)
    yield writer, reader
    reader.close()
    writer.close()


def touch(frame: Any, size: int) -> None:
    """Read all of a frame's bytes; they lie within its slots."""
    with frame:
        for tensor in frame.tensors.values():
            assert isinstance(tensor, RemoteTensor)
            assert tensor.array.nbytes <= size
            int(np.frombuffer(tensor.array.tobytes(), np.uint8).sum())
        frame.intact()


def test_any_control_word_holds_anything(
    ring: tuple[CpuRingWriter, CpuRingReader],
) -> None:
    """Words of the slots: sequence numbers, versions, times, lengths."""
    writer, reader = ring
    count = FIRST_SLOT + writer.slots * WORDS_PER_SLOT
    words = memoryview(writer.segment.map).cast("Q")
    honest = list(words[:count])

    @settings(
        max_examples=200,
        deadline=None,
        database=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.function_scoped_fixture,
        ],
    )
    @given(
        st.lists(st.tuples(st.integers(0, count - 1), NUMBERS), min_size=1, max_size=12)
    )
    @example(
        [(FIRST_SLOT + slot * WORDS_PER_SLOT + HEADER, 2**64 - 1) for slot in range(4)]
    )
    @example(
        [(FIRST_SLOT + slot * WORDS_PER_SLOT + VERSION, 2**64 - 1) for slot in range(4)]
    )
    @example([(SLOTS, 2**64 - 1), (CAPACITY, 2**64 - 1)])
    def holds(writes: list[tuple[int, int]]) -> None:
        for index, word in enumerate(honest):
            words[index] = word
        for index, value in writes:
            words[index] = value
        frame = reader.read()
        if frame is not None:
            assert 0 < frame.version <= limits.MAX_COUNTER
            assert 0 <= frame.time_ns <= limits.MAX_COUNTER
            touch(frame, writer.capacity)

    holds()
    words.release()


@pytest.mark.parametrize(
    ("slots", "capacity", "size"),
    [
        (4, 2**64 - 1, 0),
        (4, 2**63, 0),
        (4, PAGE + 1, 0),
        (4, 2**40, 0),
        (3, 0, PAGE),
        (2**32, 0, 0),
        (4, 64, 0),
        (1, PAGE, 0),
        (17, PAGE, 0),
        (4, PAGE, PAGE),
    ],
)
def test_rings_that_contradict_themselves(slots: int, capacity: int, size: int) -> None:
    segment = Segment(size or PAGE * 9, "ring")
    words = memoryview(segment.map).cast("Q")
    words[MAGIC_WORD] = MAGIC
    words[SLOTS] = slots
    words[CAPACITY] = capacity
    before = open_files()
    with pytest.raises(SharingError, match="not one"):
        reader_of("ring", messages.RingRef(segment.ref))
    assert open_files() <= before
    words.release()
    segment.close()


def test_a_viewer_cannot_write_what_the_trainer_alone_writes() -> None:
    """Control blocks and frames are mapped read-only: a slip in a viewer cannot reach them."""
    splatview.publish(torch.zeros(4, 4))
    run = publishing.begun()
    assert run is not None
    with Handed(run.control.segment.ref) as fds:
        control = ControlReader(run.control.segment.ref, fds)
    assert control.words.readonly
    control.close()
    with Subscriber() as viewer:
        wait_until(lambda: (viewer.poll(), viewer.streams)[-1])
        viewer.streams[0].open()
        with wait_until(lambda: (viewer.poll(), viewer.streams[0].read())[-1]) as frame:
            assert not frame.tensors["image"].array.flags.writeable


# ---- handles, shapes, strides and offsets that a run forges

GPU = "0123456789abcdef" * 2
OTHER = "f" * 32
SEGMENT = messages.SegmentRef("inplace-0123456789abcdef01234567", 1 << 20)
BIG = [0, 1, 2, 3, 2**31, 2**32, 2**39, limits.MAX_EXTENT]


def in_place(
    *tensors: messages.TensorRef, memories: tuple[Any, ...]
) -> messages.InPlaceRef:
    return messages.InPlaceRef(SEGMENT, GPU, 1, memories, tensors)


@settings(
    max_examples=200,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    st.lists(st.tuples(st.sampled_from(BIG), st.sampled_from(BIG)), max_size=4),
    st.sampled_from([0, 1, 4, 512, 2**40, limits.MAX_SEGMENT]),
    st.sampled_from(list(limits.ITEM_SIZE)),
    st.sampled_from([1, 4096, 2**40, limits.MAX_SEGMENT]),
)
def test_shapes_strides_and_offsets_never_reach_beyond_their_memory(
    dims: list[tuple[int, int]], offset: int, dtype: str, size: int
) -> None:
    """Of any size: nothing overflows, and both checks, that of offers and that of tensors, say the same."""
    shape = tuple(n for n, _ in dims)
    strides = tuple(s for _, s in dims)
    ref = messages.TensorRef("t", dtype, shape, strides, 0, offset)  # type: ignore[arg-type]
    offer = in_place(ref, memories=(messages.IpcMemory(bytes(64), size, GPU),))
    sent = messages.encode(messages.Offer(0, "in-place", offer))
    decoded = messages.decode_to_viewer(sent)
    assert isinstance(decoded, messages.Offer)
    assert decoded.ref == offer
    count = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in dims)
    fits = (
        offset + count * limits.ITEM_SIZE[dtype] <= size
        and offset % limits.ITEM_SIZE[dtype] == 0
    )
    for check in (
        lambda: check_tensors(offer),
        lambda: check_bounds(dtype, shape, strides, offset, size),
    ):
        try:
            check()
            refused = False
        except SharingError:
            refused = True
        assert refused != fits


@pytest.mark.parametrize(
    "case", ["outside", "another gpu", "twice", "names", "strides", "no memory"]
)
def test_what_does_not_fit_together_is_refused_before_anything_is_opened(
    case: str,
) -> None:
    memory = messages.IpcMemory(bytes(64), 4096, GPU)
    tensor = messages.TensorRef("t", "float32", (4,), (1,), 0, 0)
    ref = {
        "outside": in_place(
            messages.TensorRef("t", "float32", (1024,), (2,), 0, 0), memories=(memory,)
        ),
        "another gpu": in_place(
            tensor, memories=(messages.IpcMemory(bytes(64), 4096, OTHER),)
        ),
        "twice": in_place(tensor, memories=(memory, memory)),
        "names": in_place(tensor, tensor, memories=(memory,)),
        "strides": in_place(
            messages.TensorRef("t", "float32", (4,), (), 0, 0), memories=(memory,)
        ),
        "no memory": in_place(
            messages.TensorRef("t", "float32", (4,), (1,), 1, 0), memories=(memory,)
        ),
    }[case]
    with pytest.raises(SharingError):
        check_tensors(ref)
