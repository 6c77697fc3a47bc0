"""The writer and the readers of what is shared in place as processes of an `explorer.Explorer`: the real classes over
a modelled memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

from splatview_ipc.shm.slot_layout import FIRST_SLOT, OLDEST_KEPT, WORDS_PER_SLOT
from support import modelled
from support.explorer import TSO, Explorer, Found, Port, Process, Wrong
from support.modelled import code, initial, now, run
from support.slot_cases import EPOCH, PUBLISHED


@dataclass(frozen=True)
class Case:
    """What is explored."""

    publishes: int = 3
    moves: int = 2
    """Of the versions that are published while others look on, the one with which a generation begins; 0: none."""
    forgets: bool = False
    """Whether the generation before is given back then."""
    attempts: int = 2
    dies: bool = False
    memory: str = TSO
    changes: tuple[tuple[str, str, str], ...] = ()


SLOTS = 3


def explore(case: Case) -> Found:
    """Every interleaving of a case: of the writer and one reader at a time, as they say nothing to the writer that it
    goes by."""
    return _InPlace(case).explore()


class _InPlace:
    def __init__(self, case: Case):
        modelled.cells = 1
        self.case, self.modules = case, code(case.changes)
        driver = SimpleNamespace(current_stream=lambda index: 0, write_value=lambda *args: None)
        self.modules.gpu_slots.driver = driver

    def explore(self) -> Found:
        case = self.case
        run(Port({}, lambda a: True, ()))
        ring = self.ring()
        words = [("ring", FIRST_SLOT + slot * WORDS_PER_SLOT + word) for slot in range(SLOTS) for word in range(6)]
        headers = [("header", ring.header_offset(slot), 0) for slot in range(SLOTS)]
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
                modules.slot_writer.SlotWriter.__init__(self, 0, SLOTS)
                self._generations, self._key, self.index, self._marks = deque(), (), 0, [0] * SLOTS

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
            port.clock = EPOCH + version
            writer.write("image", {}, {"layout": "HW", "step": version}, version)

        for version in range(1, SLOTS + 1):
            publish(version)
        port.store(PUBLISHED, SLOTS)
        port.begin()
        for n in range(1, case.publishes + 1):
            if n == case.moves:
                writer.move(2)
                if case.forgets:
                    writer.turn(2.0)
            publish(SLOTS + n)
            port.ghost(PUBLISHED, SLOTS + n)

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
        if len({frame.version, frame.meta["step"], frame.time_ns - EPOCH}) > 1:
            raise Wrong(f"torn: version {frame.version}, metadata of {frame.meta['step']}, time of "
                        f"{frame.time_ns - EPOCH}")
        belongs = 2 if self.case.moves and frame.version >= SLOTS + self.case.moves else 1
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
