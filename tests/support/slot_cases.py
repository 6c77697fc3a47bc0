"""A writer of slots and its readers as processes of an `explorer.Explorer`: the real classes over a modelled memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from splatview_ipc.publisher.tally import Tally
from splatview_ipc.shm.slot_layout import CLOSED, FIRST_SLOT, WORDS_PER_SLOT
from splatview_ipc.shm.slot_writer import SlotWriter
from support import modelled
from support.explorer import TSO, WEAK, Explorer, Found, Port, Process, Wrong
from support.modelled import MOST_CELLS, Source, Target, code, initial, lease_address, now, remembered, run

if TYPE_CHECKING:
    from types import SimpleNamespace

PUBLISHED = ("published",)
"""A note: the newest version whose publish has returned."""
SEEN = "seen"
"""A note of each reader: the newest version that it has read whole."""
WAYS = "ring", "gpu"
_TENSORS = [torch.full((1, MOST_CELLS), version, dtype=torch.uint8) for version in range(16)]
_EPOCH = 1000
_GONE = 99
"""What memory holds that was given back."""


@dataclass(frozen=True)
class Case:
    """What is explored."""

    filled: int = 3
    """Versions that were published before anybody else came."""
    publishes: int = 2
    reads: tuple[int, ...] = (1,)
    """Of each reader."""
    attempts: int = 2
    """Of one read (`SlotReader.read`)."""
    slots: int = 3
    grows: bool = False
    """Whether the writer rather skips a version than overwrite what is held (`FrameWriter.grows`)."""
    bounded: bool = False
    """Whether there may never be more slots, as of large frames."""
    retires: bool = False
    """Whether the writer gives its memory back in the end, but for what is held."""
    gpu: bool = False
    """Whether a GPU makes the copies, some time after they were queued."""
    again: bool = False
    """Whether it publishes by `again`, as it was prepared."""
    keeps: int = 1
    """Frames that a reader holds at a time (`hold_several`)."""
    dies: str = ""
    """"writer", or "reader": the first one."""
    forged: tuple[int, ...] = ()
    """What another viewer says that it reads, one after the other, whenever it likes."""
    cells: int = MOST_CELLS
    """As `modelled.cells`."""
    told: bool = False
    """Whether the writer counts versions on the board, and the reader looks there first (`tally`)."""
    stuck: int = 0
    """Slot + 1 that another viewer says that it reads, all the time: there are fewer to go round then."""
    memory: str = TSO
    changes: tuple[tuple[str, str, str], ...] = ()
    """Module, text, and what is put in its place."""


def explore(case: Case, most: int = 2_000_000) -> Found:
    """Every interleaving of a case."""
    modelled.cells = case.cells
    modules = code(case.changes, case.memory == WEAK)
    writer = partial(_writer, case, modules)
    cells = [lease_address(r, c) for r in range(len(case.reads)) for c in range(case.keeps)]
    forger = lease_address(len(case.reads))
    other = lease_address(len(case.reads) + 1)
    headers = [("header", start, half) for start in _headers(modules, case) for half in range(case.cells)]
    words = [("ring", FIRST_SLOT + slot * WORDS_PER_SLOT + word) for slot in range(case.slots) for word in range(5)]
    words.append(("ring", CLOSED))
    data = [("data", slot, cell) for slot in range(case.slots) for cell in range(case.cells)]
    done = {("ring", SlotWriter.done_offset(slot) // 8) for slot in range(case.slots)}
    memory = initial(writer, *cells, *([forger] if case.forged else []), *headers, *words, *data, PUBLISHED, other,
                     *((SEEN, n) for n in range(len(case.reads))))
    memory[other] = case.stuck
    alone = {a for a in memory if a[0] in ("ring", "board") and not (case.gpu and a in done)} | {other}
    processes = [Process("writer", writer, alone.__contains__,
                         maker=True, mortal=case.dies == "writer")]
    processes += [Process(f"reader {n}", partial(_reader, case, modules, n), lambda a, n=n: a[:1] == (f"own {n}",),
                          mortal=case.dies == "reader" and n == 0) for n in range(len(case.reads))]
    if case.forged:
        processes.append(Process("forger", partial(_forger, case, forger)))
    audit = partial(_audit, case, modules)
    return Explorer(processes, memory, case.memory, audit, most).explore()


def _headers(modules: SimpleNamespace, case: Case) -> list[int]:
    run(Port({}, lambda a: True, ()))
    ring = _ring(modules, case, bytes)
    return [ring.header_offset(slot) for slot in range(case.slots)]


def _ring(modules: SimpleNamespace, case: Case, leased: Any) -> Any:
    if case.gpu:
        return _gpu_ring(modules, case, leased)

    class Ring(modules.ring.RingWriter):
        def _targets(self, slot: int, headers: Any) -> list[Target]:
            return [Target(slot)]

        def _drop(self, slot: int) -> None:
            for cell in range(modelled.cells):
                now().store(("data", slot, cell), _GONE)

    return Ring(MOST_CELLS, case.slots, leased)


class Queued(Target):
    """A tensor in GPU memory: what is copied comes later."""

    def copy_(self, source: Any, non_blocking: bool = False) -> None:
        put = now().queue
        for cell, value in enumerate(source.flatten().tolist()[:modelled.cells]):
            put(("data", self._slot, cell), value)


def _gpu_ring(modules: SimpleNamespace, case: Case, leased: Any) -> Any:
    """The ring in GPU memory without CUDA: the calls of the driver become entries of the GPU's queue."""

    class Ring(modules.device_ring.DeviceRingWriter):
        def __init__(self) -> None:
            modules.gpu_slots.GpuSlotWriter.__init__(self, 0, MOST_CELLS, case.slots, leased)
            self._writes_64 = True
            self._stream_of, self._device = lambda index: 0, lambda: 0
            self._stream, self._on = 0, 0
            self._done = [self.done_offset(slot) // 8 for slot in range(self.slots)]
            self._write_value, self._copy_bytes = self._queue_word, self._queue_bytes

        def _queue_word(self, stream: int, word: int, value: int, flags: int) -> tuple[int]:
            now().queue(("ring", word), value)
            return (0,)

        def _queue_bytes(self, slot: int, value: int, size: int, stream: int) -> tuple[int]:
            for cell in range(modelled.cells):
                now().queue(("data", slot, cell), value)
            return (0,)

        def _targets(self, slot: int, headers: Any) -> list[Target]:
            return [Queued(slot)]

        def prepare(self, tensors: Any, published: Any) -> bool:
            self._plans = [(self._done[slot], [(0, MOST_CELLS, slot, Queued(slot))]) for slot in range(self.slots)]
            return True

        def fits(self, tensors: Any) -> bool:
            return True

    return Ring()


def _publish(case: Case, ring: Any, version: int, prepared: bool) -> bool:
    """As `Stream._share` has it done."""
    port, tensors = now(), {"image": _TENSORS[version]}
    port.clock = _EPOCH + version
    meta = {"layout": "HW", "step": version}
    if prepared:
        source: Any = (_TENSORS[version],)
        return ring.again(source, [version], meta, version, 0)
    return ring.write("image", tensors, meta, version)


def _writer(case: Case, modules: SimpleNamespace, port: Port) -> None:
    run(port)
    board = modules.board.Board()
    ring = _ring(modules, case, board.leased(0))
    ring.grows = case.grows
    if case.bounded:
        ring.most = case.slots
    tally = Tally(board, 0)
    newest = 0
    for version in range(1, case.filled + 1):
        assert _publish(case, ring, version, False)
        if case.gpu:
            for _, address, value in port.events:
                port.memory[address] = value
            port.events.clear()
        newest = version
    if case.again:
        assert ring.prepare({"image": _TENSORS[newest]}, (_TENSORS[newest],))
    if case.told:
        tally.version = newest
        tally.tell()
    port.store(PUBLISHED, newest)
    port.store(lease_address(len(case.reads) + 1), case.stuck)
    port.begin()
    for version in range(case.filled + 1, case.filled + case.publishes + 1):
        ring.crowded = False
        if _publish(case, ring, version, case.again):
            newest = version
            port.ghost(PUBLISHED, newest)
        elif not (case.grows or case.gpu or case.forged):
            raise Wrong(f"version {version} was skipped, although nothing is held and no GPU is busy")
        if case.told:
            tally.version = version
            tally.tell()
        # The numbers as well: a version that was skipped and one that was written may leave the same behind otherwise.
        numbers = tuple(port.memory["ring", FIRST_SLOT + slot * WORDS_PER_SLOT] for slot in range(case.slots))
        port.boundary((version, newest, numbers, remembered(ring)))
    if case.retires:
        ring.retire()


def _reader(case: Case, modules: SimpleNamespace, number: int, port: Port) -> None:
    run(port)
    ring = modules.board.Board()  # its addresses alone
    board = modules.board.BoardReader(ring.segment.ref, ring.lease_segment.ref, Source(), number)
    reader = _made(case, modules, partial(board.lease, 0))
    if case.keeps > 1:
        reader.hold_several(case.keeps)
    port.begin()
    newest = 0
    held: list[Any] = []
    for turn in range(case.reads[number]):
        told = board.version(0) if case.told else 0
        frame = reader.read(newest, case.attempts)
        if frame is not None:
            if _look(case, frame):
                if frame.version < told:
                    raise Wrong(f"the board told of version {told}, and {frame.version} was the newest there was")
                if frame.version <= newest:
                    raise Wrong(f"version {frame.version} was read after {newest}")
                newest = frame.version
                port.ghost((SEEN, number), newest)
            held.append(frame)
            if len(held) > case.keeps - 1:
                oldest = held.pop(0)
                if oldest is not frame:
                    _look(case, oldest)
                oldest.close()
        if reader.garbled:
            raise Wrong("a whole frame's header made no sense")
        port.boundary((turn, newest, tuple((f.version, f.meta["step"], f.time_ns) for f in held), remembered(reader)))
    for frame in held:
        _look(case, frame)
        frame.close()


def _made(case: Case, modules: SimpleNamespace, lease: Any) -> Any:
    class Reader(modules.slot_reader.SlotReader):
        in_segment = not case.gpu

        def _tensor(self, slot: int, header: Any) -> Any:
            return Target(slot)

    from types import SimpleNamespace as Ref

    return Reader(Ref(size=1 << 40, label="ring"), Source(), lease)


def _look(case: Case, frame: Any) -> bool:
    """Whether a frame is whole; raises Wrong if it says so and is not, and if it was overwritten while held."""
    values = frame.tensors["image"].values()
    if not frame.intact():
        if case.grows:
            raise Wrong(f"version {frame.version} was overwritten while it was held")
        return False
    found = {frame.version, frame.meta["step"], frame.time_ns - _EPOCH, *values}
    if len(found) > 1:
        raise Wrong(f"a torn frame was taken for whole: version {frame.version}, metadata of {frame.meta['step']}, "
                    f"time of {frame.time_ns - _EPOCH}, data {values}")
    return True


def _forger(case: Case, address: tuple[str, int], port: Port) -> None:
    port.begin()
    for value in case.forged:
        port.store(address, value)
        port.fence()


def _audit(case: Case, modules: SimpleNamespace, memory: dict[Any, Any]) -> None:
    """All is quiet: the newest version can be read, whole, by whoever comes now."""
    port = run(Port(dict(memory), lambda address: False, ()))
    reader = _made(case, modules, lambda *_: None)
    frame = reader.read()
    seen = max(memory[SEEN, n] for n in range(len(case.reads)))
    # Of copies that a GPU was to make when the writer died, those are to be there that somebody has seen.
    published = memory[PUBLISHED] if not (case.gpu and case.dies == "writer") else max(seen, case.filled)
    if case.retires or (frame is None and not published):
        return
    if frame is None:
        raise Wrong(f"nothing can be read in the end, and version {published} was published")
    if not _look(case, frame):
        raise Wrong("a frame is not whole although nobody writes")
    if case.bounded and case.dies == "writer":
        return  # the newest slot may have been written into: an older frame is there
    if frame.version < max(seen, published) or (not case.dies and frame.version != published):
        raise Wrong(f"version {frame.version} is read in the end, and {published} was published, {seen} read before")
    assert port.memory == memory
