"""The protocols of the shared memory, in every interleaving.

The real writers and readers run over a modelled memory. Readers store nothing, so that one
reader beside one writer stands for any number. All that a writer stores is recorded in
order; a reader then runs once for each series of values that it may load. On x86 both see
stores in order. On the weaker memory, as ARM's, stores between two fences of the writer are
seen in any order, and loads between two fences of the reader are made in any order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from splatview_ipc.shm import slot_reader, slot_writer
from splatview_ipc.shm.slot_layout import DONE, SEQ, VERSION
from splatview_ipc.transports import (
    cpu_ring,
    gpu_slots,
    zero_copy_reader,
    zero_copy_writer,
)

_CELLS = 2
"""Stores in which a frame's data come, and its header."""
_REF: Any = SimpleNamespace(size=1 << 40)
_EPOCH = 1000
"""The time of version 0."""
_PUBLISHED = ("published",)
"""Address at which the test stores the newest version whose publish has returned."""

Choose = Callable[[int], int]
"""Returns one of `range(count)`."""


# -- the model -------------------------------------------------------------------------


class _Choice(NamedTuple):
    pick: int
    options: int

    @property
    def is_last(self) -> bool:
        return self.pick + 1 == self.options


class _Path:
    """A series of choices: the given ones first, then 0."""

    def __init__(self, picks: list[int]) -> None:
        self._picks = picks
        self.choices: list[_Choice] = []

    def choose(self, count: int) -> int:
        if count == 1:
            return 0
        index = len(self.choices)
        pick = self._picks[index] if index < len(self._picks) else 0
        self.choices.append(_Choice(pick, count))
        return pick

    def next_picks(self) -> list[int] | None:
        """Return the picks of the next series; None if this is the last one."""
        choices = list(self.choices)
        while choices and choices[-1].is_last:
            choices.pop()
        if not choices:
            return None
        return [*(choice.pick for choice in choices[:-1]), choices[-1].pick + 1]


def _run_all(run: Callable[[Choose], object]) -> int:
    """Call `run` once for each series of choices that it can make; return how often."""
    picks: list[int] | None = []
    runs = 0
    while picks is not None:
        path = _Path(picks)
        run(path.choose)
        runs += 1
        picks = path.next_picks()
    return runs


def _choose_first(count: int) -> int:
    return 0


def _first_stores() -> list[tuple[int, Any]]:
    """Return what an address holds before any store: zero, of an earlier stamp."""
    return [(-1, 0)]


class _Memory:
    """The stores of one process, and of a GPU, which come some time after being queued.

    Also the process's own view of them.
    """

    def __init__(self, weak: bool = False, choose: Choose = _choose_first):
        self.weak = weak
        self.choose = choose
        self.stamp = 0
        self.reader_start = 0
        """The stamp at which the reader came; 0: it has not come."""
        self.version = 0
        self.history: dict[Any, list[tuple[int, Any]]] = defaultdict(_first_stores)
        """By address: stamps and values.

        Stores of one stamp are seen in any order, all those before it first.
        """
        self.queued: deque[tuple[Any, Any]] = deque()

    def store(self, address: Any, value: Any) -> None:
        self.stamp += not self.weak
        self.history[address].append((self.stamp, value))

    def load(self, address: Any) -> Any:
        _, value = self.history[address][-1]
        return value

    def fence(self) -> None:
        self.stamp += self.weak
        count = len(self.queued)
        if self.reader_start:
            count = self.choose(count + 1)
        self.complete(count)

    def complete(self, count: int) -> None:
        """Make this many of the queued stores."""
        for _ in range(count):
            address, value = self.queued.popleft()
            self.store(address, value)

    def start_reader(self) -> None:
        """Let the reader come; it sees all that was stored until now."""
        self.complete(len(self.queued))
        self.stamp += 1
        self.reader_start = self.stamp

    def killed_at(self, stamp: int) -> _Memory:
        """Return the memory as it is left when the process is killed at this moment."""
        left = _Memory()
        for address, stores in self.history.items():
            earlier = [store for store in stores if store[0] <= stamp]
            left.history[address] = earlier[-1:]
        left.reader_start = stamp + 1
        return left


class _View:
    """A reader's view of a memory that is being written."""

    def __init__(self, memory: _Memory, choose: Choose):
        self._memory = memory
        self._choose = choose
        self._fenced_stamp = memory.reader_start
        """Stores before this stamp are seen."""
        self._newest_stamp = 0
        self._loaded: dict[Any, int] = {}
        """By address, the index of the store that was loaded last."""

    def load(self, address: Any) -> Any:
        stores = self._memory.history[address]
        fenced = sum(stamp < self._fenced_stamp for stamp, _ in stores)
        first = max(self._loaded.get(address, 0), fenced - 1, 0)
        index = first + self._choose(len(stores) - first)
        self._loaded[address] = index
        stamp, value = stores[index]
        self._newest_stamp = max(self._newest_stamp, stamp)
        if not self._memory.weak:
            self.fence()
        return value

    def fence(self) -> None:
        self._fenced_stamp = max(self._fenced_stamp, self._newest_stamp)


current: Any = None
"""The `_Memory` or `_View` of the process that runs."""


def _explore(
    write: Callable[[_Memory], object],
    read: Callable[[_View], object],
    read_rest: Callable[[_View], object],
    weak: bool = False,
) -> int:
    """Return in how many ways a reader can read while a writer writes.

    All three functions raise AssertionError if an invariant does not hold.

    Args:
        write: the writer.
        read: the reader.
        read_rest: reads what is left when the writer is killed, at any moment.
        weak: have the weaker memory.
    """
    total = 0

    def run_writer(choose: Choose) -> None:
        global current
        nonlocal total
        memory = _Memory(weak, choose)
        current = memory
        write(memory)
        last_stamp = memory.stamp
        memory.complete(len(memory.queued))

        def run_reader(choose: Choose) -> None:
            global current
            current = _View(memory, choose)
            read(current)

        total += _run_all(run_reader)
        first_stamp = last_stamp if weak else memory.reader_start
        for stamp in range(first_stamp, last_stamp + 1):
            current = _View(memory.killed_at(stamp), _choose_first)
            read_rest(current)

    _run_all(run_writer)
    return total


class _Region:
    """A segment's mapping: its 64-bit words by index, its bytes by slice."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int):
            return current.load(("word", key))
        if not key.start:
            return self
        cells = [current.load(("header", key.start, cell)) for cell in range(_CELLS)]
        return b"".join(cell or b"" for cell in cells)[: key.stop - key.start]

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, int):
            current.store(("word", key), value)
            return
        for cell in range(_CELLS):
            start = len(value) * cell // _CELLS
            stop = len(value) * (cell + 1) // _CELLS
            current.store(("header", key.start, cell), value[start:stop])

    def cast(self, _: str) -> _Region:
        return self


def _make_segment(size: int, label: str) -> Any:
    return SimpleNamespace(map=_Region(), ref=_REF)


def _open_segment(*_: Any) -> _Region:
    return _Region()


def _memoryview(region: _Region) -> _Region:
    return region


def _fence() -> None:
    current.fence()


class _Time:
    @staticmethod
    def time_ns() -> int:
        return _EPOCH + current.version


class _Driver:
    """The CUDA driver: a GPU makes the stores that are queued."""

    @staticmethod
    def is_capturing() -> bool:
        return False


@pytest.fixture(autouse=True)
def _modelled(monkeypatch: pytest.MonkeyPatch) -> None:
    replacements = {
        "Segment": _make_segment,
        "memoryview": _memoryview,
        "full_fence": _fence,
        "open_segment": _open_segment,
        "time": _Time,
    }
    for module in (slot_writer, slot_reader, zero_copy_writer, zero_copy_reader):
        for name, value in replacements.items():
            monkeypatch.setattr(module, name, value, raising=False)
    monkeypatch.setattr(gpu_slots, "driver", _Driver)


class _Data:
    """A tensor over a slot's data."""

    def __init__(self, slot: int):
        self._slot = slot

    def copy_(self, source: torch.Tensor, non_blocking: bool = False) -> None:
        for cell, value in enumerate(source.flatten().tolist()):
            address = ("data", self._slot, cell)
            if non_blocking:
                current.queued.append((address, value))
            else:
                current.store(address, value)

    def values(self) -> list[int]:
        return [current.load(("data", self._slot, cell)) for cell in range(_CELLS)]


def _image(value: int) -> torch.Tensor:
    return torch.full((1, _CELLS), value, dtype=torch.uint8)


def _publish(memory: _Memory, writer: Any, version: int, image: torch.Tensor) -> None:
    memory.version = version
    meta = {"layout": "HW", "step": version}
    if writer.write("image", {"image": image}, meta, version):
        memory.store(_PUBLISHED, version)


# -- slots -----------------------------------------------------------------------------


class _Ring(cpu_ring.CpuRingWriter):
    def __init__(self) -> None:
        super().__init__(_CELLS, 3)

    def _targets(self, slot: int, headers: Any) -> Any:
        return [_Data(slot)]


class _GpuRing(gpu_slots.GpuSlotWriter):
    """A ring in GPU memory: the driver's stores are queued."""

    in_segment = False
    _targets = _Ring._targets  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(0, _CELLS, 3)

    def _mark(self, slot: int, sequence: int) -> None:
        word = self.first_words[slot] + DONE
        current.queued.append((("word", word), sequence))

    def fits(self, tensors: Any) -> bool:
        return True


class _Reader(slot_reader.SlotReader):
    def _tensor(self, slot: int, header: Any) -> Any:
        return _Data(slot)


class _GpuReader(_Reader):
    in_segment = False


def _read_frame(reader: Any, after: int = 0) -> int:
    """Read the newest frame; return its version, or 0 if there is none or it is torn."""
    frame = reader.read(after, 2)
    assert not reader.garbled, "a complete header makes no sense"
    if frame is None:
        return 0
    values = frame.tensors["image"].values()
    if not frame.intact():
        return 0
    versions = {frame.meta["step"], frame.time_ns - _EPOCH, *values}
    assert versions == {frame.version}, "torn"
    return frame.version


def _explore_slots(
    writer_type: Any = _Ring,
    reader_type: Any = _Reader,
    filled: int = 3,
    publishes: int = 2,
    reads: int = 1,
    weak: bool = False,
) -> int:
    """Explore a ring; return in how many ways it can be read.

    Args:
        writer_type: class of the writer.
        reader_type: class of the reader.
        filled: versions that were published before the reader comes.
        publishes: versions that are published meanwhile.
        reads: frames that the reader reads.
        weak: have the weaker memory.
    """
    has_gpu = issubclass(writer_type, _GpuRing)

    def write(memory: _Memory) -> None:
        writer = writer_type()
        for version in range(1, filled + 1):
            _publish(memory, writer, version, _image(version))
        memory.start_reader()
        for version in range(filled + 1, filled + publishes + 1):
            _publish(memory, writer, version, _image(version))

    def read(view: _View) -> None:
        reader = reader_type(_REF, {})
        newest = 0
        for _ in range(reads):
            published = 0 if has_gpu or weak else view.load(_PUBLISHED)
            version = _read_frame(reader, newest)
            if version:
                assert version > newest, "not a newer one"
                assert version >= published, "not the newest"
                newest = version

    def read_rest(view: _View) -> None:
        expected = filled if has_gpu else view.load(_PUBLISHED)
        assert _read_frame(reader_type(_REF, {})) >= expected, "lost"

    return _explore(write, read, read_rest, weak)


@pytest.mark.parametrize(
    "case",
    [
        {"publishes": 3},
        {"filled": 0, "publishes": 3},
        {"reads": 2},
        {"weak": True},
        {"writer_type": _GpuRing, "reader_type": _GpuReader},
    ],
    ids=["round", "empty", "two reads", "weak", "GPU"],
)
def test_every_interleaving_of_slots_holds(
    case: dict[str, Any],
) -> None:
    assert _explore_slots(**case) > 500


class _NumberFirst(_Ring):
    """Stores the even sequence number before the header and the version."""

    def commit(
        self, slot: int, even_sequence: int, header: bytes, version: int
    ) -> None:
        self._slot_words[self.first_words[slot] + SEQ] = even_sequence
        super().commit(slot, even_sequence, header, version)


def _do_nothing() -> None:
    pass


class _NoFence(_Ring):
    """Commits without the fence."""

    def commit(
        self, slot: int, even_sequence: int, header: bytes, version: int
    ) -> None:
        fence = current.fence
        current.fence = _do_nothing
        super().commit(slot, even_sequence, header, version)
        current.fence = fence


class _OverNewest(_Ring):
    """Writes into the newest slot."""

    def free_slot(self) -> int:
        return max(self._last, 0)


class _Early(_GpuReader):
    """Reads slots whose copy has not ended."""

    def find_newest(self, after: int) -> tuple[int, int]:
        versions = [
            self._slot_words[first_word + VERSION] for first_word in self.first_words
        ]
        slot = versions.index(max(versions))
        sequence = self._slot_words[self.first_words[slot] + SEQ]
        if versions[slot] > after and sequence % 2 == 0:
            return slot, sequence
        return -1, 0


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ({"writer_type": _NumberFirst}, "torn"),
        ({"writer_type": _NoFence, "weak": True}, "torn"),
        ({"writer_type": _OverNewest}, "lost"),
        ({"writer_type": _GpuRing, "reader_type": _Early}, "torn"),
    ],
)
def test_slots_broken_on_purpose_are_found(case: dict[str, Any], error: str) -> None:
    with pytest.raises(AssertionError, match=error):
        _explore_slots(**case)


# -- in place --------------------------------------------------------------------------

_SECOND_GENERATION_AT = 5
"""The first version of the second generation."""


class _InPlaceWriter(zero_copy_writer.ZeroCopyWriter):
    """A writer without CUDA.

    The memory of a generation holds its number until it is given back.
    """

    def __init__(self) -> None:
        slot_writer.SlotWriter.__init__(self, 0, 3)
        self._generations = deque()
        self._gpu = ""
        self.index = -1
        self._slot_headers = [b""] * self.slot_count
        self._last_key = ()

    def _describe(self, tensors: Any) -> Any:
        generation = int(tensors["image"][0, 0])

        def fill(value: int) -> None:
            for cell in range(_CELLS):
                current.store(("memory", generation, cell), value)

        def give_back() -> None:
            fill(0)

        fill(generation)
        return (), (), [give_back]

    def _mark(self, slot: int, sequence: int) -> None:
        pass


class _InPlaceReader(zero_copy_reader.ZeroCopyReader):
    def __init__(self, serial: int):
        slot_reader.SlotReader.__init__(self, _REF, {})
        self._opened = {}
        self._closed = False
        generation: Any = SimpleNamespace(
            serial=serial,
            specs={"image": ("uint8", (1, _CELLS))},
            tensors={},
            frames=0,
            memories=frozenset(),
        )
        self._generations = [generation]


def _explore_in_place(generation: int, weak: bool) -> int:
    """Explore a reader of the first or the second generation."""
    serials: list[int] = []

    def write(memory: _Memory) -> None:
        writer = _InPlaceWriter()
        first = _image(1)
        second = _image(2)
        for version in range(1, 4):
            _publish(memory, writer, version, first)
        memory.start_reader()
        _publish(memory, writer, 4, first)
        _publish(memory, writer, _SECOND_GENERATION_AT, second)
        serials[:] = [generation.serial for generation in writer._generations]
        for seconds in (1.0, 3.0):
            writer.turn(seconds)
        _publish(memory, writer, 6, second)

    def read(view: _View) -> None:
        reader = _InPlaceReader(serials[generation - 1])
        frame = reader.read(0, 1)
        assert not reader.garbled, "a complete header makes no sense"
        if frame is None:
            return
        assert frame.version == frame.meta["step"], "torn"
        assert frame.version == frame.time_ns - _EPOCH, "torn"
        is_second = frame.version >= _SECOND_GENERATION_AT
        assert is_second == (generation == 2), "of another generation"
        values = [view.load(("memory", generation, cell)) for cell in range(_CELLS)]
        if frame.intact():
            assert values == [generation] * _CELLS, "given back"

    def read_rest(view: _View) -> None:
        reader = _InPlaceReader(0)
        slot, _ = reader.find_newest(0)
        version = reader.stamp(slot).version
        assert version >= view.load(_PUBLISHED), "lost"

    return _explore(write, read, read_rest, weak)


@pytest.mark.parametrize("weak", [False, True])
@pytest.mark.parametrize("generation", [1, 2])
def test_every_interleaving_in_place_holds(
    generation: int, weak: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zero_copy_writer, "IS_WEAKLY_ORDERED", weak)
    assert _explore_in_place(generation, weak) > 100


def test_in_place_without_fences_is_found_on_the_weaker_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zero_copy_writer, "IS_WEAKLY_ORDERED", False)
    with pytest.raises(AssertionError, match="torn"):
        _explore_in_place(1, weak=True)


def test_metadata_in_place_are_those_of_their_version() -> None:
    """Change few of them at a time; equal ones may be of other types."""
    global current
    current = _Memory()
    writer = _InPlaceWriter()
    image = {"image": _image(1)}
    published = [
        {"layout": "HW", "step": 1},
        {"layout": "HW", "step": 2},
        {"layout": "HW", "step": -(2**62)},
        {"layout": "HW", "step": 2.0},
        {"layout": "HW", "step": True},
        {"layout": "HW", "step": 2**63 - 1, "loss": 1},
        {"layout": "HW", "step": 0, "loss": True},
        {"layout": "HW", "step": 0, "loss": 1.0},
        {"layout": "HW", "loss": 1.0, "epoch": 3},
        {"layout": "HW", "epoch": 1.0, "loss": 3},
        {"layout": "HW"},
    ]
    for version, meta in enumerate([*published, *reversed(published)], 1):
        assert writer.write("image", image, meta, version)
        frame = _InPlaceReader(_serial_of(writer)).read()
        assert frame is not None
        assert repr(frame.meta) == repr(meta)


def _serial_of(writer: _InPlaceWriter) -> int:
    """Return the serial number of a writer's newest generation."""
    return writer.ref.generation
