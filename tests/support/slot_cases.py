"""A writer of slots and its readers as processes of an `explorer.Explorer`: the real classes over a modelled memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from splatview_ipc.shm.slot_layout import DONE, FIRST_SLOT, OLDEST_KEPT, WORDS_PER_SLOT
from support import modelled
from support.explorer import TSO, Explorer, Found, Port, Process, Wrong
from support.modelled import MOST_CELLS, Target, code, initial, now, run

PUBLISHED = ("published",)
"""A note: the newest version whose publish has returned."""
SEEN = "seen"
"""A note of each reader: the newest version that it has read whole."""
_EPOCH = 1000
"""The time of version 0."""
_SLOTS = 3
"""Of what is shared in place."""
_TENSORS = [torch.full((1, MOST_CELLS), version, dtype=torch.uint8) for version in range(16)]


@dataclass(frozen=True)
class Case:
    """What is explored of a writer that copies, and of its readers."""

    filled: int = 3
    """Versions that were published before the others came."""
    publishes: int = 2
    reads: tuple[int, ...] = (1,)
    """Of each reader."""
    attempts: int = 2
    """Of one read (`SlotReader.read`)."""
    slots: int = 3
    gpu: bool = False
    """Whether a GPU makes the copies, some time after they were queued."""
    dies: str = ""
    """"writer", or "reader": the first one."""
    cells: int = MOST_CELLS
    """As `modelled.cells`."""
    told: bool = False
    """Whether the writer counts versions in the control block, and the reader looks there first."""
    memory: str = TSO
    changes: tuple[tuple[str, str, str], ...] = ()
    """Module, text, and what is put in its place."""


@dataclass(frozen=True)
class InPlace:
    """What is explored of a writer that shares in place, and of one reader after the other."""

    publishes: int = 3
    moves: int = 2
    """Of the versions that are published while others look on, the one with which a generation begins; 0: none."""
    forgets: bool = False
    """Whether the generation before is given back then."""
    attempts: int = 2
    dies: bool = False
    memory: str = TSO
    changes: tuple[tuple[str, str, str], ...] = ()


def explore(case: Case | InPlace) -> Found:
    """Every interleaving of a case."""
    return (_Slots(case) if isinstance(case, Case) else _InPlace(case)).explore()


class Queued(Target):
    """A tensor in GPU memory: what is copied comes later."""

    def copy_(self, source: Any, non_blocking: bool = False) -> None:
        for cell, value in enumerate(source.flatten().tolist()[:modelled.cells]):
            now().queue(("data", self._slot, cell), value)


class _Slots:
    def __init__(self, case: Case):
        modelled.cells = case.cells
        self.case, self.modules = case, code(case.changes)

    def explore(self) -> Found:
        case, slots, cells = self.case, range(self.case.slots), range(self.case.cells)
        run(Port({}, lambda a: True, ()))
        ring = self.ring()
        headers = [("header", ring.header_offset(slot), half) for slot in slots for half in cells]
        words = [("ring", FIRST_SLOT + slot * WORDS_PER_SLOT + word) for slot in slots for word in range(5)]
        data = [("data", slot, cell) for slot in slots for cell in cells]
        done = {("ring", base + DONE) for base in ring.bases}
        memory = initial(self.write, *headers, *words, *data, PUBLISHED, *((SEEN, n) for n in range(len(case.reads))))
        alone = {a for a in memory if a[0] in ("ring", "control") and not (case.gpu and a in done)}
        readers = [Process(f"reader {n}", partial(self.read, n), mortal=case.dies == "reader" and n == 0)
                   for n in range(len(case.reads))]
        writer = Process("writer", self.write, alone.__contains__, maker=True, mortal=case.dies == "writer")
        return Explorer([writer, *readers], memory, case.memory, self.audit).explore()

    def ring(self) -> Any:
        case, modules = self.case, self.modules

        class Ring(modules.cpu_ring.CpuRingWriter):
            def _targets(self, slot: int, headers: Any) -> list[Target]:
                return [Target(slot)]

        class GpuRing(modules.gpu_slots.GpuSlotWriter):
            """A ring in GPU memory without CUDA: the calls of the driver become entries of the GPU's queue."""

            in_segment = False

            def __init__(self) -> None:
                super().__init__(0, MOST_CELLS, case.slots)
                self._marks = [base + DONE for base in self.bases]

            def _targets(self, slot: int, headers: Any) -> list[Target]:
                return [Queued(slot)]

            def fits(self, tensors: Any) -> bool:
                return True

        return GpuRing() if case.gpu else Ring(MOST_CELLS, case.slots)

    def write(self, port: Port) -> None:
        run(port)
        case, ring = self.case, self.ring()
        block = self.modules.control_block.ControlBlock()
        word, newest = block.version_word(0), case.filled

        def publish(version: int) -> bool:
            port.clock = _EPOCH + version
            return ring.write("image", {"image": _TENSORS[version]}, {"layout": "HW", "step": version}, version)

        for version in range(1, case.filled + 1):
            assert publish(version)
            for _, address, value in port.events:
                port.memory[address] = value
            port.events.clear()
        if case.told:
            block.words[word] = newest
        port.store(PUBLISHED, newest)
        port.begin()
        for version in range(case.filled + 1, case.filled + case.publishes + 1):
            if publish(version):
                newest = version
                port.ghost(PUBLISHED, newest)
            elif not case.gpu:
                raise Wrong(f"version {version} was skipped, although no GPU is busy")
            if case.told and newest == version:
                block.words[word] = version
            # Numbers too: a version that was skipped and one that was written may leave the same behind otherwise.
            numbers = tuple(port.memory["ring", FIRST_SLOT + slot * WORDS_PER_SLOT] for slot in range(case.slots))
            port.boundary((version, newest, numbers, ring._last))

    def reader(self) -> Any:
        case = self.case

        class Reader(self.modules.slot_reader.SlotReader):
            in_segment = not case.gpu

            def _tensor(self, slot: int, header: Any) -> Any:
                return Target(slot)

        return Reader(SimpleNamespace(size=1 << 40, label="ring"), {})

    def read(self, number: int, port: Port) -> None:
        run(port)
        block = self.modules.control_block
        control = block.ControlReader(block.ControlBlock().segment.ref, {}) if self.case.told else None
        reader = self.reader()
        port.begin()
        newest = 0
        for turn in range(self.case.reads[number]):
            told = control.version(0) if control is not None else 0
            frame = reader.read(newest, self.case.attempts)
            if frame is not None and self.whole(frame):
                if frame.version < told:
                    raise Wrong(f"version {told} was counted, and {frame.version} was the newest there was")
                if frame.version <= newest:
                    raise Wrong(f"version {frame.version} was read after {newest}")
                newest = frame.version
                port.ghost((SEEN, number), newest)
            if reader.garbled:
                raise Wrong("a whole frame's header made no sense")
            port.boundary((turn, newest, reader.torn, reader._header_bytes))

    def whole(self, frame: Any) -> bool:
        """Return whether a frame is whole. Raises Wrong if it says so and is not."""
        values = frame.tensors["image"].values()
        intact = frame.intact()
        if intact and len({frame.version, frame.meta["step"], frame.time_ns - _EPOCH, *values}) > 1:
            raise Wrong(f"a torn frame was taken for whole: version {frame.version}, metadata of "
                        f"{frame.meta['step']}, time of {frame.time_ns - _EPOCH}, data {values}")
        return intact

    def audit(self, memory: dict[Any, Any]) -> None:
        """All is quiet: the newest version can be read, whole, by a reader that comes now."""
        case, port = self.case, run(Port(dict(memory), lambda address: False, ()))
        frame = self.reader().read()
        seen = max(memory[SEEN, n] for n in range(len(case.reads)))
        # Of copies that a GPU was to make when the writer died, those are to be there that a reader has seen.
        published = memory[PUBLISHED] if not (case.gpu and case.dies == "writer") else max(seen, case.filled)
        if frame is None:
            if published:
                raise Wrong(f"nothing can be read in the end, and version {published} was published")
            return
        if not self.whole(frame):
            raise Wrong("a frame is not whole although none is being written")
        if frame.version < max(seen, published) or (not case.dies and frame.version != published):
            raise Wrong(f"version {frame.version} is read in the end; {published} was published, {seen} read before")
        assert port.memory == memory


class _InPlace:
    def __init__(self, case: InPlace):
        modelled.cells = 1
        self.case, self.modules = case, code(case.changes)
        driver = SimpleNamespace(current_stream=lambda index: 0, write_value=lambda *args: None)
        self.modules.gpu_slots.driver = driver

    def explore(self) -> Found:
        case = self.case
        run(Port({}, lambda a: True, ()))
        ring = self.ring()
        words = [("ring", FIRST_SLOT + slot * WORDS_PER_SLOT + word) for slot in range(_SLOTS) for word in range(6)]
        headers = [("header", ring.header_offset(slot), 0) for slot in range(_SLOTS)]
        kept = [("memory", generation, cell) for generation in (1, 2) for cell in (0, 1)]
        memory = initial(self.write, *words, *headers, *kept, ("ring", OLDEST_KEPT), PUBLISHED)
        writer = Process("writer", self.write, lambda a: a[0] == "ring", maker=True, mortal=case.dies)
        found = Found(0, 0, 0)
        for generation in (1, 2)[: 1 + (case.moves > 0)]:
            reader = Process(f"reader of {generation}", partial(self.read, generation))
            one = Explorer([writer, reader], memory, case.memory, self.audit).explore()
            found = Found(found.states + one.states, found.steps + one.steps, found.ends + one.ends, one.wrong,
                          one.trace)
            if found.wrong:
                break
        return found

    def ring(self) -> Any:
        """The writer without CUDA: no GPU that marks a version, generations of the model's memory."""
        modules = self.modules

        class Writer(modules.zero_copy_writer.ZeroCopyWriter):
            def __init__(self) -> None:
                modules.slot_writer.SlotWriter.__init__(self, 0, _SLOTS)
                self._generations, self._key, self.index, self._marks = deque(), (), 0, [0] * _SLOTS

            def move(self, number: int) -> None:
                """As `_begin_generation`, of memory that needs no export; it is gone when it is given back."""
                def fill(value: int) -> None:
                    for cell in (0, 1):
                        now().store(("memory", number, cell), value)

                fill(number)
                if self._generations:
                    self._generations[-1].until = 1.0
                self._generations.append(modules.zero_copy_writer._Generation(number, (), [partial(fill, 0)]))

        return Writer()

    def write(self, port: Port) -> None:
        run(port)
        case, writer = self.case, self.ring()
        writer.move(1)

        def publish(version: int) -> None:
            port.clock = _EPOCH + version
            writer.write("image", {}, {"layout": "HW", "step": version}, version)

        for version in range(1, _SLOTS + 1):
            publish(version)
        port.store(PUBLISHED, _SLOTS)
        port.begin()
        for n in range(1, case.publishes + 1):
            if n == case.moves:
                writer.move(2)
                if case.forgets:
                    writer.turn(2.0)
            publish(_SLOTS + n)
            port.ghost(PUBLISHED, _SLOTS + n)

    def reader(self, generation: int) -> Any:
        modules = self.modules

        class Reader(modules.zero_copy_reader.ZeroCopyReader):
            def __init__(self) -> None:
                modules.slot_reader.SlotReader.__init__(self, SimpleNamespace(size=1 << 40, label="ring"), {})
                self._generations = [SimpleNamespace(number=generation, specs={"image": ("uint8", (1, 2))}, tensors={},
                                                     frames=0, memories=frozenset())]
                self._open, self._closed = {}, False

        return Reader()

    def read(self, generation: int, port: Port) -> None:
        run(port)
        reader = self.reader(generation)
        port.begin()
        frame = reader.read(0, self.case.attempts)
        if frame is not None:
            self.check(frame, generation)
            frame.close()
        if reader.garbled:
            raise Wrong("a header that was whole made no sense")
        port.boundary((reader.torn, reader._header_bytes))

    def check(self, frame: Any, generation: int) -> None:
        if len({frame.version, frame.meta["step"], frame.time_ns - _EPOCH}) > 1:
            raise Wrong(f"torn: version {frame.version}, metadata of {frame.meta['step']}, time of "
                        f"{frame.time_ns - _EPOCH}")
        belongs = 2 if self.case.moves and frame.version >= _SLOTS + self.case.moves else 1
        if belongs != generation:
            raise Wrong(f"version {frame.version} of generation {belongs} was read with the tensors of {generation}")
        values = [now().load(("memory", generation, cell)) for cell in (0, 1)]
        if frame.intact() and values != [generation] * 2:
            raise Wrong(f"what was given back was said to be kept: {values}")

    def audit(self, memory: dict[Any, Any]) -> None:
        run(Port(dict(memory), lambda address: False, ()))
        reader = self.reader(1)
        slot, _ = reader.newest(0)
        version, published = reader.stamp(slot)[0], memory[PUBLISHED]
        if slot < 0 or version < published or (not self.case.dies and version != published):
            raise Wrong(f"version {version} is marked in the end, and {published} was published")
