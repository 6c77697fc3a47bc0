"""A writer of slots and its readers as processes of an `explorer.Explorer`: the real classes over a modelled memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from splatview_ipc.shm.slot_layout import DONE, FIRST_SLOT, WORDS_PER_SLOT
from support import modelled
from support.explorer import TSO, Explorer, Found, Port, Process, Wrong
from support.modelled import MOST_CELLS, Target, code, initial, now, run

PUBLISHED = ("published",)
"""A note: the newest version whose publish has returned."""
SEEN = "seen"
"""A note of each reader: the newest version that it has read whole."""
_TENSORS = [torch.full((1, MOST_CELLS), version, dtype=torch.uint8) for version in range(16)]
_EPOCH = 1000


@dataclass(frozen=True)
class Case:
    """What is explored."""

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


def explore(case: Case) -> Found:
    """Every interleaving of a case."""
    modelled.cells = case.cells
    modules = code(case.changes)
    writer = partial(_writer, case, modules)
    run(Port({}, lambda a: True, ()))
    made = _ring(modules, case)
    headers = [("header", made.header_offset(slot), half) for slot in range(case.slots) for half in range(case.cells)]
    words = [("ring", FIRST_SLOT + slot * WORDS_PER_SLOT + word) for slot in range(case.slots) for word in range(5)]
    data = [("data", slot, cell) for slot in range(case.slots) for cell in range(case.cells)]
    done = {("ring", base + DONE) for base in made.bases}
    memory = initial(writer, *headers, *words, *data, PUBLISHED, *((SEEN, n) for n in range(len(case.reads))))
    alone = {a for a in memory if a[0] in ("ring", "control") and not (case.gpu and a in done)}
    processes = [Process("writer", writer, alone.__contains__, maker=True, mortal=case.dies == "writer")]
    processes += [Process(f"reader {n}", partial(_reader, case, modules, n), lambda a, n=n: a[:1] == (f"own {n}",),
                          mortal=case.dies == "reader" and n == 0) for n in range(len(case.reads))]
    return Explorer(processes, memory, case.memory, partial(_audit, case, modules)).explore()


class Queued(Target):
    """A tensor in GPU memory: what is copied comes later."""

    def copy_(self, source: Any, non_blocking: bool = False) -> None:
        for cell, value in enumerate(source.flatten().tolist()[:modelled.cells]):
            now().queue(("data", self._slot, cell), value)


def _ring(modules: SimpleNamespace, case: Case) -> Any:
    if not case.gpu:
        class Ring(modules.cpu_ring.CpuRingWriter):
            def _targets(self, slot: int, headers: Any) -> list[Target]:
                return [Target(slot)]

        return Ring(MOST_CELLS, case.slots)

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

    return GpuRing()


def _publish(ring: Any, version: int) -> bool:
    now().clock = _EPOCH + version
    return ring.write("image", {"image": _TENSORS[version]}, {"layout": "HW", "step": version}, version)


def _writer(case: Case, modules: SimpleNamespace, port: Port) -> None:
    run(port)
    block = modules.control_block.ControlBlock()
    ring = _ring(modules, case)
    word = block.version_word(0)
    newest = 0
    for version in range(1, case.filled + 1):
        assert _publish(ring, version)
        for _, address, value in port.events:
            port.memory[address] = value
        port.events.clear()
        newest = version
    if case.told:
        block.words[word] = newest
    port.store(PUBLISHED, newest)
    port.begin()
    for version in range(case.filled + 1, case.filled + case.publishes + 1):
        if _publish(ring, version):
            newest = version
            port.ghost(PUBLISHED, newest)
        elif not case.gpu:
            raise Wrong(f"version {version} was skipped, although no GPU is busy")
        if case.told and newest == version:
            block.words[word] = version
        # The numbers as well: a version that was skipped and one that was written may leave the same behind otherwise.
        numbers = tuple(port.memory["ring", FIRST_SLOT + slot * WORDS_PER_SLOT] for slot in range(case.slots))
        port.boundary((version, newest, numbers, ring._last))


def _reader(case: Case, modules: SimpleNamespace, number: int, port: Port) -> None:
    run(port)
    ref = modules.control_block.ControlBlock().segment.ref
    control = modules.control_block.ControlReader(ref, {}) if case.told else None
    reader = _made(case, modules)
    port.begin()
    newest = 0
    for turn in range(case.reads[number]):
        told = control.version(0) if control is not None else 0
        frame = reader.read(newest, case.attempts)
        if frame is not None and _look(frame):
            if frame.version < told:
                raise Wrong(f"version {told} was counted, and {frame.version} was the newest there was")
            if frame.version <= newest:
                raise Wrong(f"version {frame.version} was read after {newest}")
            newest = frame.version
            port.ghost((SEEN, number), newest)
        if reader.garbled:
            raise Wrong("a whole frame's header made no sense")
        port.boundary((turn, newest, reader.torn, reader._header_bytes))


def _made(case: Case, modules: SimpleNamespace) -> Any:
    class Reader(modules.slot_reader.SlotReader):
        in_segment = not case.gpu

        def _tensor(self, slot: int, header: Any) -> Any:
            return Target(slot)

    return Reader(SimpleNamespace(size=1 << 40, label="ring"), {})


def _look(frame: Any) -> bool:
    """Whether a frame is whole; raises Wrong if it says so and is not."""
    values = frame.tensors["image"].values()
    if not frame.intact():
        return False
    found = {frame.version, frame.meta["step"], frame.time_ns - _EPOCH, *values}
    if len(found) > 1:
        raise Wrong(f"a torn frame was taken for whole: version {frame.version}, metadata of {frame.meta['step']}, "
                    f"time of {frame.time_ns - _EPOCH}, data {values}")
    return True


def _audit(case: Case, modules: SimpleNamespace, memory: dict[Any, Any]) -> None:
    """All is quiet: the newest version can be read, whole, by a reader that comes now."""
    port = run(Port(dict(memory), lambda address: False, ()))
    frame = _made(case, modules).read()
    seen = max(memory[SEEN, n] for n in range(len(case.reads)))
    # Of copies that a GPU was to make when the writer died, those are to be there that a reader has seen.
    published = memory[PUBLISHED] if not (case.gpu and case.dies == "writer") else max(seen, case.filled)
    if frame is None:
        if published:
            raise Wrong(f"nothing can be read in the end, and version {published} was published")
        return
    if not _look(frame):
        raise Wrong("a frame is not whole although nobody writes")
    if frame.version < max(seen, published) or (not case.dies and frame.version != published):
        raise Wrong(f"version {frame.version} is read in the end, and {published} was published, {seen} read before")
    assert port.memory == memory
