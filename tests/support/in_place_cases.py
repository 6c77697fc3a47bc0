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
from support.modelled import code, initial, run

PUBLISHED = ("published",)
_EPOCH = 1000


@dataclass(frozen=True)
class Case:
    """What is explored."""

    publishes: int = 3
    moves: int = 2
    """Of the versions that are published while others look on, the one with which a generation begins; 0: none."""
    forgets: bool = False
    """Whether the generation before is given back then."""
    reads: int = 1
    attempts: int = 2
    slots: int = 3
    dies: bool = False
    cells: int = 1
    memory: str = TSO
    changes: tuple[tuple[str, str, str], ...] = ()


def explore(case: Case) -> Found:
    modelled.cells = case.cells
    modules = code(case.changes)
    modules.gpu_slots.driver = SimpleNamespace(current_stream=lambda index: 0, write_value=lambda *args: None)
    writer = partial(_writer, case, modules)
    words = [("ring", FIRST_SLOT + slot * WORDS_PER_SLOT + word) for slot in range(case.slots) for word in range(6)]
    run(Port({}, lambda a: True, ()))
    made = _made(case, modules)
    headers = [("header", made.header_offset(slot), part) for slot in range(case.slots) for part in range(case.cells)]
    gone = [("memory", generation, cell) for generation in (1, 2) for cell in (0, 1)]
    memory = initial(writer, *words, *headers, *gone, ("ring", OLDEST_KEPT), PUBLISHED)
    processes = [Process("writer", writer, lambda a: a[0] == "ring", maker=True, mortal=case.dies)]
    processes += [Process(f"reader of {g}", partial(_reader, case, modules, g)) for g in (1, 2)[: 1 + (case.moves > 0)]]
    found = Found(0, 0, 0)
    for reader in processes[1:]:  # one at a time: readers in place say nothing to the writer that it goes by
        one = Explorer([processes[0], reader], memory, case.memory, partial(_audit, case, modules)).explore()
        found = Found(found.states + one.states, found.steps + one.steps, found.ends + one.ends, one.wrong, one.trace)
        if found.wrong:
            break
    return found


def _made(case: Case, modules: SimpleNamespace) -> Any:
    """The writer without CUDA: no GPU that marks a version, generations of the model's memory."""

    class Writer(modules.zero_copy_writer.ZeroCopyWriter):
        def __init__(self) -> None:
            modules.slot_writer.SlotWriter.__init__(self, 0, case.slots)
            self._generations, self._key, self.index, self._marks = deque(), (), 0, [0] * case.slots

        def move(self, number: int) -> None:
            """As `_begin_generation`, of memory that needs no export; it is gone when the generation is given back."""
            for cell in (0, 1):
                modelled.now().store(("memory", number, cell), number)
            if self._generations:
                self._generations[-1].until = 1.0
            self._generations.append(modules.zero_copy_writer._Generation(number, (), [partial(_forget, number)]))

    return Writer()


def _forget(number: int) -> None:
    for cell in (0, 1):
        modelled.now().store(("memory", number, cell), 0)


def _writer(case: Case, modules: SimpleNamespace, port: Port) -> None:
    run(port)
    writer = _made(case, modules)
    writer.move(1)
    first = 0

    def publish(version: int) -> None:
        port.clock = _EPOCH + version
        writer.write("image", {}, {"layout": "HW", "step": version}, version)

    for version in range(1, case.slots + 1):
        publish(version)
        first = version
    port.store(PUBLISHED, first)
    port.begin()
    for n in range(1, case.publishes + 1):
        if n == case.moves:
            writer.move(2)
            if case.forgets:
                writer.turn(2.0)
        publish(first + n)
        port.ghost(PUBLISHED, first + n)


def _reader_of(case: Case, modules: SimpleNamespace, generation: int) -> Any:
    class Reader(modules.zero_copy_reader.ZeroCopyReader):
        def __init__(self) -> None:
            modules.slot_reader.SlotReader.__init__(self, SimpleNamespace(size=1 << 40, label="ring"), {})
            self._generations = [SimpleNamespace(number=generation, specs={"image": ("uint8", (1, 2))}, tensors={},
                                                 frames=0, memories=frozenset())]
            self._open, self._closed = {}, False

    return Reader()


def _reader(case: Case, modules: SimpleNamespace, generation: int, port: Port) -> None:
    run(port)
    reader = _reader_of(case, modules, generation)
    port.begin()
    newest = 0
    for turn in range(case.reads):
        frame = reader.read(newest, case.attempts)
        if frame is not None:
            newest = _look(case, frame, generation, newest)
            frame.close()
        if reader.garbled:
            raise Wrong("a header that was whole made no sense")
        port.boundary((turn, newest, reader.torn, reader._header_bytes))


def _look(case: Case, frame: Any, generation: int, newest: int) -> int:
    if len({frame.version, frame.meta["step"], frame.time_ns - _EPOCH}) > 1:
        raise Wrong(f"torn: version {frame.version}, metadata of {frame.meta['step']}, time of "
                    f"{frame.time_ns - _EPOCH}")
    belongs = 2 if case.moves and frame.version >= case.slots + case.moves else 1
    if belongs != generation:
        raise Wrong(f"version {frame.version} of generation {belongs} was read with the tensors of {generation}")
    if frame.version <= newest:
        raise Wrong(f"version {frame.version} was read after {newest}")
    values = [modelled.now().load(("memory", generation, cell)) for cell in (0, 1)]
    if frame.intact() and values != [generation] * 2:
        raise Wrong(f"what was given back was said to be kept: {values}")
    return frame.version


def _audit(case: Case, modules: SimpleNamespace, memory: dict[Any, Any]) -> None:
    run(Port(dict(memory), lambda address: False, ()))
    reader = _reader_of(case, modules, 1)
    slot, _ = reader.newest(0)
    version, published = reader.stamp(slot)[0], memory[PUBLISHED]
    if slot < 0 or version < published or (not case.dies and version != published):
        raise Wrong(f"version {version} is marked in the end, and {published} was published")
