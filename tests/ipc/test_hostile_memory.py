"""Shared memory that makes no sense, or changes while it is read.

A reader never follows it out of its slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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
from splatview_ipc.control.dtypes import DTYPES
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import RemoteTensor, StreamFrame
from splatview_ipc.cuda.tensors import check_bounds
from splatview_ipc.shm.control_block import ControlReader
from splatview_ipc.shm.segment import PAGE, Segment
from splatview_ipc.shm.slot_layout import (
    CAPACITY,
    FIRST_SLOT,
    HEADER_LENGTH,
    MAGIC,
    MAGIC_WORD,
    SLOT_COUNT,
    VERSION,
    WORDS_PER_SLOT,
)
from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_ipc.transports.cpu_ring import CpuRingReader, CpuRingWriter
from splatview_ipc.transports.zero_copy_reader import check_tensors

_META: messages.MetaDict = {"layout": "HWC"}
_SLOT_COUNT = 4
_MAX_WORD = 2**64 - 1
_SMALL_WORDS = [0, 1, 2, 3, 15, 16, 17]
_LARGE_WORDS = [2**16, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, _MAX_WORD]
_WORDS = st.one_of(
    st.sampled_from(_SMALL_WORDS + _LARGE_WORDS), st.integers(0, _MAX_WORD)
)


class _Ring(NamedTuple):
    writer: CpuRingWriter
    reader: CpuRingReader


@pytest.fixture
def ring() -> Iterator[_Ring]:
    """A ring with two versions."""
    writer = CpuRingWriter(4096, _SLOT_COUNT)
    reader = reader_of("ring", writer.ref)
    assert isinstance(reader, CpuRingReader)
    image = torch.arange(4 * 6 * 3, dtype=torch.uint8).reshape(4, 6, 3)
    for version in (1, 2):
        assert writer.write("image", {"image": image}, _META, version)
    yield _Ring(writer, reader)
    reader.close()
    writer.close()


def _read_all_bytes(frame: StreamFrame, capacity: int) -> None:
    """Read all bytes of a frame; they lie within its slot."""
    with frame:
        for tensor in frame.tensors.values():
            assert isinstance(tensor, RemoteTensor)
            assert tensor.array.nbytes <= capacity
            int(np.frombuffer(tensor.array.tobytes(), np.uint8).sum())
        frame.intact()


def _in_each_slot(word_index: int) -> list[tuple[int, int]]:
    """Return writes of the largest value into a word of each slot."""
    bases = [FIRST_SLOT + slot * WORDS_PER_SLOT for slot in range(_SLOT_COUNT)]
    return [(base + word_index, _MAX_WORD) for base in bases]


def test_any_value_of_a_control_word_gives_a_frame_within_its_slot_or_none(
    ring: _Ring,
) -> None:
    """The words are sequence numbers, versions, times and lengths."""
    count = FIRST_SLOT + ring.writer.slot_count * WORDS_PER_SLOT
    slot_words = memoryview(ring.writer.segment.map).cast("Q")
    honest_words = list(slot_words[:count])

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
        st.lists(st.tuples(st.integers(0, count - 1), _WORDS), min_size=1, max_size=12)
    )
    @example(_in_each_slot(HEADER_LENGTH))
    @example(_in_each_slot(VERSION))
    @example([(SLOT_COUNT, _MAX_WORD), (CAPACITY, _MAX_WORD)])
    def check_reader(writes: list[tuple[int, int]]) -> None:
        for index, new_word in enumerate(honest_words):
            slot_words[index] = new_word
        for index, new_word in writes:
            slot_words[index] = new_word
        frame = ring.reader.read()
        if frame is not None:
            assert 0 < frame.version <= limits.MAX_COUNTER
            assert 0 <= frame.time_ns <= limits.MAX_COUNTER
            _read_all_bytes(frame, ring.writer.capacity)

    check_reader()
    slot_words.release()


@pytest.mark.parametrize(
    ("slots", "capacity", "size"),
    [
        (4, 2**64 - 1, 9 * PAGE),
        (4, 2**63, 9 * PAGE),
        (4, PAGE + 1, 9 * PAGE),
        (4, 2**40, 9 * PAGE),
        (3, 0, PAGE),
        (2**32, 0, 9 * PAGE),
        (4, 64, 9 * PAGE),
        (1, PAGE, 9 * PAGE),
        (17, PAGE, 9 * PAGE),
        (4, PAGE, PAGE),
    ],
)
def test_ring_that_contradicts_itself_is_refused(
    slots: int, capacity: int, size: int
) -> None:
    segment = Segment(size, "ring")
    segment_words = memoryview(segment.map).cast("Q")
    segment_words[MAGIC_WORD] = MAGIC
    segment_words[SLOT_COUNT] = slots
    segment_words[CAPACITY] = capacity
    files_before = open_files()
    with pytest.raises(SharingError, match="not one"):
        reader_of("ring", messages.RingRef(segment.ref))
    assert open_files() <= files_before
    segment_words.release()
    segment.close()


def test_a_viewer_cannot_write_what_the_trainer_alone_writes() -> None:
    """Control blocks and frames are mapped read-only."""
    splatview.publish(torch.zeros(4, 4))
    run = publishing.started_publisher()
    assert run is not None
    with Handed(run.control.segment.ref) as fds:
        control = ControlReader(run.control.segment.ref, fds)
    assert control.words.readonly
    control.close()
    with Subscriber() as viewer:

        def poll_streams() -> Any:
            viewer.poll()
            return viewer.streams

        (stream,) = wait_until(poll_streams)
        stream.open()

        def poll_frame() -> Any:
            viewer.poll()
            return stream.read()

        with wait_until(poll_frame) as frame:
            assert not frame.tensors["image"].array.flags.writeable


# -- forged handles, shapes, strides and offsets ---------------------------------------

_GPU = "0123456789abcdef" * 2
_OTHER_GPU = "f" * 32
_SEGMENT = messages.SegmentRef("inplace-0123456789abcdef01234567", 1 << 20)
_EXTENTS = [0, 1, 2, 3, 2**31, 2**32, 2**39, limits.MAX_EXTENT]


def _in_place_ref(
    *tensors: messages.TensorRef, memories: tuple[Any, ...]
) -> messages.InPlaceRef:
    return messages.InPlaceRef(
        control=_SEGMENT, gpu=_GPU, generation=1, memories=memories, tensors=tensors
    )


def _is_refused(check: Callable[..., object], *args: Any) -> bool:
    try:
        check(*args)
    except SharingError:
        return True
    return False


@settings(
    max_examples=200,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    st.lists(
        st.tuples(st.sampled_from(_EXTENTS), st.sampled_from(_EXTENTS)), max_size=4
    ),
    st.sampled_from([0, 1, 4, 512, 2**40, limits.MAX_SEGMENT]),
    st.sampled_from(list(DTYPES)),
    st.sampled_from([1, 4096, 2**40, limits.MAX_SEGMENT]),
)
def test_shapes_strides_and_offsets_never_reach_beyond_their_memory(
    dims: list[tuple[int, int]], offset: int, dtype: str, size: int
) -> None:
    """Nothing overflows, and the checks of offers and of tensors agree."""
    shape = tuple(extent for extent, _ in dims)
    strides = tuple(stride for _, stride in dims)
    ref = messages.TensorRef("t", dtype, shape, strides, 0, offset)  # type: ignore[arg-type]
    memory = messages.IpcMemory(bytes(64), size, _GPU)
    in_place = _in_place_ref(ref, memories=(memory,))
    sent = messages.encode(messages.Offer(0, "in-place", in_place))
    decoded = messages.decode_to_viewer(sent)
    assert isinstance(decoded, messages.Offer)
    assert decoded.ref == in_place
    span = 0
    if 0 not in shape:
        span = 1 + sum((extent - 1) * stride for extent, stride in dims)
    item_size = DTYPES[dtype].item_size
    fits = offset + span * item_size <= size and offset % item_size == 0
    assert _is_refused(check_tensors, in_place) != fits
    assert _is_refused(check_bounds, dtype, shape, strides, offset, size) != fits


def _tensor_ref(**changes: Any) -> messages.TensorRef:
    """Return four floats at the start of memory 0; `changes` are fields."""
    fields: dict[str, Any] = {
        "name": "t",
        "dtype": "float32",
        "shape": (4,),
        "strides": (1,),
        "memory": 0,
        "offset": 0,
    }
    return messages.TensorRef(**(fields | changes))


_MEMORY = messages.IpcMemory(bytes(64), 4096, _GPU)
_FOREIGN_MEMORY = messages.IpcMemory(bytes(64), 4096, _OTHER_GPU)


@pytest.mark.parametrize(
    "ref",
    [
        _in_place_ref(_tensor_ref(shape=(1024,), strides=(2,)), memories=(_MEMORY,)),
        _in_place_ref(_tensor_ref(), memories=(_FOREIGN_MEMORY,)),
        _in_place_ref(_tensor_ref(), memories=(_MEMORY, _MEMORY)),
        _in_place_ref(_tensor_ref(), _tensor_ref(), memories=(_MEMORY,)),
        _in_place_ref(_tensor_ref(strides=()), memories=(_MEMORY,)),
        _in_place_ref(_tensor_ref(memory=1), memories=(_MEMORY,)),
    ],
    ids=["outside", "another gpu", "twice", "names", "strides", "no memory"],
)
def test_offer_that_contradicts_itself_is_refused_before_memory_is_opened(
    ref: messages.InPlaceRef,
) -> None:
    with pytest.raises(SharingError):
        check_tensors(ref)
