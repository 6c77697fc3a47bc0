"""The protocols of the shared memory: the real writers and readers over a modelled memory, in every interleaving.

Readers store nothing, so that one reader beside one writer stands for any number. All that a writer stores is recorded
in order; a reader then runs once for each series of values that it may load. On x86 both see stores in order. On the
weaker memory, as ARM's, stores between two fences of the writer are seen in any order, and loads between two fences of
the reader are made in any order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

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

CELLS = 2
"""Stores in which a frame's data come, and its header."""
REF: Any = SimpleNamespace(size=1 << 40)
EPOCH = 1000
"""The time of version 0."""
PUBLISHED = ("published",)
"""Where the test notes the newest version whose publish has returned."""


def every(run: Callable[[Callable[[int], int]], object]) -> int:
    """Call `run` once for each series of choices that it can make; return how often."""
    path: list[int] = []
    runs = 0
    while True:
        made: list[tuple[int, int]] = []

        def choose(count: int) -> int:
            if count == 1:
                return 0
            made.append((path[len(made)] if len(made) < len(path) else 0, count))  # noqa: B023
            return made[-1][0]  # noqa: B023

        run(choose)
        runs += 1
        while made and made[-1][0] + 1 == made[-1][1]:
            made.pop()
        if not made:
            return runs
        path = [*(pick for pick, _ in made[:-1]), made[-1][0] + 1]


class Memory:
    """What one process stores, and a GPU some time after it was queued. Also the process's own view of it."""

    def __init__(
        self, weak: bool = False, choose: Callable[[int], int] = lambda count: 0
    ):
        self.weak = weak
        self.choose = choose
        self.stamp = 0
        self.begun = 0
        self.version = 0
        self.history: dict[Any, list[tuple[int, Any]]] = defaultdict(lambda: [(-1, 0)])
        """By address: stamps and values. Stores of one stamp are seen in any order, all those before it first."""
        self.queued: deque[tuple[Any, Any]] = deque()

    def store(self, address: Any, value: Any) -> None:
        self.stamp += not self.weak
        self.history[address].append((self.stamp, value))

    def load(self, address: Any) -> Any:
        return self.history[address][-1][1]

    def fence(self) -> None:
        self.stamp += self.weak
        self.complete(
            self.choose(len(self.queued) + 1) if self.begun else len(self.queued)
        )

    def complete(self, count: int) -> None:
        """So many of the stores that are queued are made."""
        for _ in range(count):
            self.store(*self.queued.popleft())

    def begin(self) -> None:
        """Let the reader come in; it sees all that was stored so far."""
        self.complete(len(self.queued))
        self.stamp = self.begun = self.stamp + 1

    def until(self, stamp: int) -> Memory:
        """Return what is left when the process is killed at this moment."""
        left = Memory()
        for address, stored in self.history.items():
            left.history[address] = [entry for entry in stored if entry[0] <= stamp][
                -1:
            ]
        left.begun = stamp + 1
        return left


class View:
    """A reader's view of a memory that is being written."""

    def __init__(self, memory: Memory, choose: Callable[[int], int]):
        self._memory = memory
        self._choose = choose
        self._floor = memory.begun
        self._newest = 0
        self._at: dict[Any, int] = {}

    def load(self, address: Any) -> Any:
        stored = self._memory.history[address]
        first = max(
            self._at.get(address, 0),
            sum(stamp < self._floor for stamp, _ in stored) - 1,
            0,
        )
        self._at[address] = first + self._choose(len(stored) - first)
        stamp, value = stored[self._at[address]]
        self._newest = max(self._newest, stamp)
        if not self._memory.weak:
            self.fence()
        return value

    def fence(self) -> None:
        self._floor = max(self._floor, self._newest)


now: Any = None
"""The `Memory` or `View` of the process that runs."""


def explore(
    write: Callable[[Memory], object],
    look: Callable[[View], object],
    left: Callable[[View], object],
    weak: bool = False,
) -> int:
    """Return in how many ways a reader can look on while a writer writes.

    `left` looks at what is there when the writer is killed, at any moment. These three raise AssertionError where an
    invariant does not hold.
    """
    total = 0

    def run(choose: Callable[[int], int]) -> None:
        global now
        nonlocal total
        now = Memory(weak, choose)
        memory = now
        write(memory)
        ended = memory.stamp
        memory.complete(len(memory.queued))

        def run_reader(choose: Callable[[int], int]) -> None:
            global now
            now = View(memory, choose)
            look(now)

        total += every(run_reader)
        for stamp in range(ended if weak else memory.begun, ended + 1):
            now = View(memory.until(stamp), lambda count: 0)
            left(now)

    every(run)
    return total


class Region:
    """A segment's mapping: its 64-bit words by number, its bytes by slice."""

    def __getitem__(self, part: Any) -> Any:
        if isinstance(part, int):
            return now.load(("word", part))
        if not part.start:
            return self
        return b"".join(
            now.load(("header", part.start, cell)) or b"" for cell in range(CELLS)
        )[: part.stop - part.start]

    def __setitem__(self, part: Any, value: Any) -> None:
        if isinstance(part, int):
            now.store(("word", part), value)
            return
        for cell in range(CELLS):
            share = value[len(value) * cell // CELLS : len(value) * (cell + 1) // CELLS]
            now.store(("header", part.start, cell), share)

    def cast(self, _: str) -> Region:
        return self


@pytest.fixture(autouse=True)
def _modelled(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (slot_writer, slot_reader, zero_copy_writer, zero_copy_reader):
        for name, value in {
            "Segment": lambda size, label: SimpleNamespace(map=Region(), ref=REF),
            "memoryview": lambda region: region,
            "full_fence": lambda: now.fence(),
            "open_segment": lambda *args: Region(),
            "time": SimpleNamespace(time_ns=lambda: EPOCH + now.version),
        }.items():
            monkeypatch.setattr(module, name, value, raising=False)
    monkeypatch.setattr(
        gpu_slots,
        "driver",
        SimpleNamespace(
            is_capturing=lambda: False,
            current_stream=lambda index: 0,
            write_value=lambda index, stream, word, value: now.queued.append(
                (("word", word), value)
            ),
        ),
    )


class Data:
    """A tensor over a slot's data."""

    def __init__(self, slot: int):
        self._slot = slot

    def copy_(self, source: torch.Tensor, non_blocking: bool = False) -> None:
        for cell, value in enumerate(source.flatten().tolist()):
            now.queued.append(
                (("data", self._slot, cell), value)
            ) if non_blocking else now.store(("data", self._slot, cell), value)

    def values(self) -> list[int]:
        return [now.load(("data", self._slot, cell)) for cell in range(CELLS)]


# ---- slots


class Ring(cpu_ring.CpuRingWriter):
    def __init__(self) -> None:
        super().__init__(CELLS, 3)

    def _targets(self, slot: int, headers: Any) -> Any:
        return [Data(slot)]


class GpuRing(gpu_slots.GpuSlotWriter):
    """A ring in GPU memory: what the driver is told is queued."""

    in_segment = False
    _targets = Ring._targets  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(0, CELLS, 3)
        self._marks = [base + DONE for base in self.bases]

    def fits(self, tensors: Any) -> bool:
        return True


class Reader(slot_reader.SlotReader):
    def _tensor(self, slot: int, header: Any) -> Any:
        return Data(slot)


class GpuReader(Reader):
    in_segment = False


def publish(
    memory: Memory, writer: Any, version: int, image: torch.Tensor | None = None
) -> None:
    memory.version = version
    if image is None:
        image = torch.full((1, CELLS), version, dtype=torch.uint8)
    if writer.write(
        "image", {"image": image}, {"layout": "HW", "step": version}, version
    ):
        memory.store(PUBLISHED, version)


def explore_slots(
    writer_type: Any = Ring,
    reader_type: Any = Reader,
    filled: int = 3,
    publishes: int = 2,
    reads: int = 1,
    weak: bool = False,
) -> int:
    """`filled`: versions that were published before the reader comes."""
    gpu = issubclass(writer_type, GpuRing)

    def write(memory: Memory) -> None:
        writer = writer_type()
        for version in range(1, filled + 1):
            publish(memory, writer, version)
        memory.begin()
        for version in range(filled + 1, filled + publishes + 1):
            publish(memory, writer, version)

    def read(reader: Any, after: int = 0) -> int:
        frame = reader.read(after, 2)
        assert not reader.garbled, "a whole header makes no sense"
        if frame is None:
            return 0
        values = frame.tensors["image"].values()
        if not frame.intact():
            return 0
        assert {frame.meta["step"], frame.time_ns - EPOCH, *values} == {
            frame.version
        }, "torn"
        return frame.version

    def look(view: View) -> None:
        reader = reader_type(REF, {})
        newest = 0
        for _ in range(reads):
            published = 0 if gpu or weak else view.load(PUBLISHED)
            version = read(reader, newest)
            if version:
                assert version > newest and version >= published, "not the newest"
                newest = version

    def left(view: View) -> None:
        assert read(reader_type(REF, {})) >= (
            filled if gpu else view.load(PUBLISHED)
        ), "lost"

    return explore(write, look, left, weak)


@pytest.mark.parametrize(
    "case",
    [
        {"publishes": 3},
        {"filled": 0, "publishes": 3},
        {"reads": 2},
        {"weak": True},
        {"writer_type": GpuRing, "reader_type": GpuReader},
    ],
    ids=["round", "empty", "two reads", "weak", "GPU"],
)
def test_every_interleaving_of_slots_holds(case: dict[str, Any]) -> None:
    assert explore_slots(**case) > 500


class NumberFirst(Ring):
    def commit(
        self, slot: int, even_sequence: int, header: bytes, version: int
    ) -> None:
        self._words[self.bases[slot] + SEQ] = even_sequence
        super().commit(slot, even_sequence, header, version)


class NoFence(Ring):
    def commit(
        self, slot: int, even_sequence: int, header: bytes, version: int
    ) -> None:
        fence = now.fence
        now.fence = lambda: None
        super().commit(slot, even_sequence, header, version)
        now.fence = fence


class OverNewest(Ring):
    def free_slot(self) -> int:
        return max(self._last, 0)


class Early(GpuReader):
    """Does not look whether the GPU is done."""

    def find_newest(self, after: int) -> tuple[int, int]:
        found = max(
            (self._words[base + VERSION], slot) for slot, base in enumerate(self.bases)
        )
        seq = self._words[self.bases[found[1]] + SEQ]
        return (found[1], seq) if found[0] > after and seq % 2 == 0 else (-1, 0)


@pytest.mark.parametrize(
    ("case", "wrong"),
    [
        ({"writer_type": NumberFirst}, "torn"),
        ({"writer_type": NoFence, "weak": True}, "torn"),
        ({"writer_type": OverNewest}, "lost"),
        ({"writer_type": GpuRing, "reader_type": Early}, "torn"),
    ],
)
def test_slots_broken_on_purpose_are_found(case: dict[str, Any], wrong: str) -> None:
    with pytest.raises(AssertionError, match=wrong):
        explore_slots(**case)


# ---- in place


class InPlace(zero_copy_writer.ZeroCopyWriter):
    """Without CUDA: the memory of a generation holds its number until it is given back."""

    def __init__(self) -> None:
        slot_writer.SlotWriter.__init__(self, 0, 3)
        self._generations = deque()
        self._gpu = ""
        self.index = -1
        self._marks = [0] * self.slots
        self._last_key = ()

    def _describe(self, tensors: Any) -> Any:
        def fill(value: int) -> None:
            for cell in range(CELLS):
                now.store(("memory", generation, cell), value)

        generation = int(tensors["image"][0, 0])
        fill(generation)
        return (), (), [lambda: fill(0)]

    def _mark(self, slot: int, sequence: int) -> None:
        pass


class InPlaceReader(zero_copy_reader.ZeroCopyReader):
    def __init__(self, number: int):
        slot_reader.SlotReader.__init__(self, REF, {})
        self._opened = {}
        self._closed = False
        self._generations: Any = [
            SimpleNamespace(
                serial=number,
                specs={"image": ("uint8", (1, CELLS))},
                tensors={},
                frames=0,
                memories=frozenset(),
            )
        ]


def explore_in_place(generation: int, weak: bool) -> int:
    """Of a reader of the first generation, or of the second, which begins with version 5."""
    numbers: list[int] = []

    def write(memory: Memory) -> None:
        writer = InPlace()
        first, second = (torch.full((1, CELLS), n, dtype=torch.uint8) for n in (1, 2))
        for version in range(1, 4):
            publish(memory, writer, version, first)
        memory.begin()
        publish(memory, writer, 4, first)
        publish(memory, writer, 5, second)
        numbers[:] = [generation.serial for generation in writer._generations]
        for seconds in (1.0, 3.0):
            writer.turn(seconds)
        publish(memory, writer, 6, second)

    def look(view: View) -> None:
        reader = InPlaceReader(numbers[generation - 1])
        frame = reader.read(0, 1)
        assert not reader.garbled, "a whole header makes no sense"
        if frame is None:
            return
        assert frame.version == frame.meta["step"] == frame.time_ns - EPOCH, "torn"
        assert (frame.version >= 5) == (generation == 2), "of another generation"
        values = [view.load(("memory", generation, cell)) for cell in range(CELLS)]
        assert not frame.intact() or values == [generation] * CELLS, "given back"

    def left(view: View) -> None:
        reader = InPlaceReader(0)
        slot, _ = reader.find_newest(0)
        assert reader.stamp(slot)[0] >= view.load(PUBLISHED), "lost"

    return explore(write, look, left, weak)


@pytest.mark.parametrize("weak", [False, True])
@pytest.mark.parametrize("generation", [1, 2])
def test_every_interleaving_in_place_holds(generation: int, weak: bool) -> None:
    assert explore_in_place(generation, weak) > 100
