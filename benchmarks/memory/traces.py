"""Memory snapshots like those of a long training run, of any length, as `torch.cuda.memory._dump_snapshot` has them.

The run (`training`) is played to a model of PyTorch's allocator (`allocator`) twice: for how it ends, which stands
first in the file, and for its events, which are written as they come. So the memory does not grow with the trace.
Recording begins when the run has long begun: parameters and the optimizer's state are there before.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.memory import allocator, training
from benchmarks.memory.allocator import ACTIONS, ALLOC, ALLOCATED, INACTIVE, PENDING
from benchmarks.memory.writer import ROOM, Writer, encode, get, number

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 1 << 30
BEGIN_US = 1_783_874_000_000_000
STATES = {INACTIVE: "inactive", ALLOCATED: "active_allocated", PENDING: "active_pending_free"}
SETTINGS = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
            "expandable_segments": False, "pinned_num_register_threads": 1, "release_lock_on_cudamalloc": False,
            "pinned_use_cuda_host_register": False, "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)}}
ROWS = 1 << 17
"""Events that are held at once."""


def write_trace(path: str | Path, events: int, seed: int = 0, devices: int = 1, *, layers: int = 24,
                oom: bool = False) -> None:
    """A snapshot with this many events, shared out among the devices. layers: how deep the model is that is trained;
    a step of 24 has 7,600 events. oom: it ends when memory runs out, as after a dump by an out-of-memory observer."""
    if events < devices or devices < 1 or layers < 1:
        raise ValueError(f"{events} events on {devices} devices by {layers} layers: each device needs an event, and at "
                         f"least one layer is needed")
    runs = [_Run(seed, device, training.Training(layers, oom=oom), (events + device) // devices)
            for device in range(devices)]
    with Path(path).open("wb") as file:
        writer = Writer(file)
        pickle = _Pickle(writer)
        ends = [run.end() for run in runs]
        writer.new(b"}")
        writer.raw(b"(")
        writer.text("segments")
        writer.new(b"]")
        for run, end in zip(runs, ends, strict=True):
            pickle.segments(run, end)
        writer.text("device_traces")
        writer.new(b"]")
        for run in runs:
            writer.new(b"]")
            pickle.trace(run)
            writer.raw(b"a")
        writer.text("allocator_settings")
        writer.value(SETTINGS)
        writer.text("external_annotations")
        writer.value(sorted((a for run in runs for a in run.annotations), key=lambda a: a["time_us"]))
        writer.raw(b"u")
        writer.stop()


@dataclass
class _Run:
    """A run on one device, of which the last `events` events are recorded."""

    seed: int
    device: int
    training: training.Training
    events: int
    skip: int = 0
    """Events before the recorded ones."""
    annotations: list[dict[str, str | int]] = field(default_factory=list)

    def end(self) -> allocator.State:
        """Play it without writing: the allocator as it is at the end."""
        total = 0

        def count(out: allocator.Output, rows: int) -> None:
            nonlocal total
            total += rows

        state = self.play(count)
        self.skip = total - self.events
        self.annotations.clear()
        return state

    def play(self, take: Callable[[allocator.Output, int], None]) -> allocator.State:
        """Hand events and how many they are to `take`, again and again."""
        rng = np.random.default_rng([self.seed, self.device])
        state = allocator.new_state(self.device, len(training.POOLS), self.training.slots, 80 * GIB)
        state.counts[allocator.NOW] = BEGIN_US
        out = allocator.new_output(2 * ROWS)
        left = None
        """Events to come; not known until the run is warm."""

        def perform(program: training.Program) -> None:
            nonlocal left
            what = program.rows[:, 0]
            delays = np.where(what == ALLOC, rng.integers(3, 24, len(what)), rng.integers(0, 2, len(what)))
            delays[0] += rng.integers(2_000, 15_000)  # waits for the step before, and for data
            times = state.counts[allocator.NOW] + np.cumsum(delays)
            begin = 0
            while begin < len(what) and (left is None or left > 0) and not state.counts[allocator.OOMS]:
                state.counts[allocator.EVENTS] = 0
                target = ROWS if left is None else min(ROWS, left)
                begin = allocator.run(state, out, program.rows, program.sizes, delays, begin, target, training.GRAPH)
                if state.counts[allocator.FULL]:
                    raise RuntimeError("the model of the allocator is too small for this run: fewer layers may do")
                rows = int(state.counts[allocator.EVENTS])
                take(out, rows)
                if left is not None:
                    left -= rows
            self.annotations += [{"stage": stage, "name": name, "device": self.device, "time_us": int(times[row - 1])}
                                 for row, name, stage in program.marks if row <= begin]

        for number_, program in enumerate(self.training.programs(rng)):
            if number_ == 1:  # recording was switched on when the model had been built
                state.stack[:] = 0
                state.segment_stack[:] = 0
            if number_ == self.training.warm:
                left = self.events + int(rng.integers(0, 2 * len(program.rows)))
            perform(program)
            if state.counts[allocator.OOMS]:
                raise ValueError(f"a model of {self.training.layers} layers does not fit on the device: take fewer")
            if left is not None and left <= 0:
                break
        if (last := self.training.last()) is not None:
            left = None
            perform(last)
        return state


class _Pickle:
    """The parts of a snapshot that name frames, which are shared by all of it."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self._frames: dict[tuple[int, int], int] = {}

    def frames(self, run: _Run, stack: int) -> None:
        """A list of frames: those that occur for the first time are made, others come from the memo."""
        stacks, w = run.training.stacks, self.writer
        w.new(b"]")
        if not stacks.stacks[stack]:
            return
        w.raw(b"(")
        for frame in stacks.stacks[stack]:
            if (place := self._frames.get((run.device, frame))) is None:
                w.new(b"}")
                self._frames[run.device, frame] = w.memo - 1
                w.raw(b"(")
                name, file, line = stacks.frames[frame]
                w.text("name")
                w.fresh(name)
                w.text("filename")
                w.fresh(file)
                w.text("line")
                w.raw(number(line) + b"u")
            else:
                w.raw(get(place))
        w.raw(b"e")

    def place(self, run: _Run, frame: int) -> int:
        """Where in the memo a frame is that has been written."""
        return self._frames[run.device, frame]

    def segments(self, run: _Run, state: allocator.State) -> None:
        """What is there at the end, appended to a list."""
        w = self.writer
        there = np.flatnonzero(state.segment_size[: state.counts[allocator.SEGMENTS]])
        for segment in there[np.argsort(state.segment_addr[there])].tolist():
            blocks = [int(state.segment_first[segment])]
            while (after := int(state.after[blocks[-1]])) >= 0:
                blocks.append(after)
            active = [b for b in blocks if state.state[b] != INACTIVE]
            lane = int(state.segment_family[segment])
            head = {"device": run.device, "address": int(state.segment_addr[segment]),
                    "total_size": int(state.segment_size[segment]),
                    "allocated_size": sum(int(state.size[b]) for b in active if state.state[b] == ALLOCATED),
                    "active_size": sum(int(state.size[b]) for b in active),
                    "requested_size": sum(int(state.requested[b]) for b in active),
                    "stream": training.STREAMS[lane >> 1], "segment_type": "large" if lane & 1 else "small",
                    "segment_pool_id": training.POOLS[lane >> 1], "is_expandable": False}
            self._open(head, run, int(state.segment_stack[segment]))
            w.text("blocks")
            w.new(b"]")
            w.raw(b"(")
            for b in blocks:
                block = {"address": int(state.addr[b]), "size": int(state.size[b]),
                         "requested_size": int(state.requested[b]), "state": STATES[int(state.state[b])]}
                self._open(block, run, int(state.stack[b]) if state.state[b] != INACTIVE else 0)
                w.raw(b"u")
            w.raw(b"eua")

    def _open(self, values: dict[str, object], run: _Run, stack: int) -> None:
        """A dict with these values and frames, to which more can be added."""
        self.writer.new(b"}")
        self.writer.raw(b"(")
        for key, value in values.items():
            self.writer.text(key)
            self.writer.value(value)
        self.writer.text("frames")
        self.frames(run, stack)

    def trace(self, run: _Run) -> None:
        """Its events, appended to a list."""
        w, table = self.writer, _Table(self, run)
        opcodes = np.zeros(1 << 20, np.uint8)
        seen = 0

        def take(out: allocator.Output, rows: int) -> None:
            nonlocal seen
            row = min(max(run.skip - seen, 0), rows)
            seen += rows
            while row < rows:
                table.count[0] = w.memo
                row, length = encode(opcodes, out, (row, rows), table.pieces, table.place, table.lists, table.count)
                w.memo = int(table.count[0])
                w.raw(opcodes[:length].tobytes())
                if row < rows and length + ROOM <= len(opcodes):
                    table.first(out, row)
                    row += 1

        run.play(take)
        if run.events:
            w.raw(b"e")
        run.annotations = [a for a in run.annotations if int(a["time_us"]) >= table.begin_us]


class _Table:
    """The pieces that `encode` puts entries together from; they are known once an entry has been written with them."""

    def __init__(self, pickle: _Pickle, run: _Run) -> None:
        self.pickle, self.run = pickle, run
        self.pieces = np.zeros(1 << 16, np.uint8)
        self.used = 0
        self.place = np.zeros((5, max(len(run.training.stacks.stacks), len(ACTIONS), len(training.POOLS)), 2), np.int64)
        self.lists = np.full(allocator.BLOCKS, -1, np.int64)
        self.count = np.zeros(2, np.int64)
        self.begin_us = 0

    def first(self, out: allocator.Output, row: int) -> None:
        """Write an entry of which something occurs for the first time."""
        w, action, stack = self.pickle.writer, int(out.action[row]), int(out.stack[row])
        family, block = int(out.family[row]), int(out.block[row])
        if not self.begin_us:
            self.begin_us = int(out.time[row])
        if self.count[1] % 1000 == 0:
            w.raw(b"e(" if self.count[1] else b"(")
        self.count[1] += 1
        address = "device_free" if ACTIONS[action] == "oom" else "addr"
        w.new(b"}")
        w.raw(b"(")
        for key, value in (("action", ACTIONS[action]), (address, int(out.addr[row])), ("size", int(out.size[row])),
                           ("stream", training.STREAMS[family]), ("time_us", int(out.time[row]))):
            w.text(key)
            w.value(value)
        w.text("compile_context")
        w.fresh("N/A")
        for key, value in (("user_metadata", ""), ("pool_id", training.POOLS[family])):
            w.text(key)
            w.value(value)
        w.text("frames")
        if ACTIONS[action] == "free_completed" and self.lists[block] >= 0:
            w.raw(get(int(self.lists[block])))
            self.lists[block] = -1
        else:
            if ACTIONS[action] == "free_requested":
                self.lists[block] = w.memo
            self.pickle.frames(self.run, stack)
            self._know(4, stack, b"]\x94" + self._listed(stack))
        w.raw(b"u")
        text = {key: get(w.place(key)) for key in ("action", ACTIONS[action], address, "size", "stream", "time_us",
                                                   "compile_context", "user_metadata", "", "pool_id", "frames")}
        pool = b"".join(number(n) for n in training.POOLS[family]) + b"\x86\x94"
        self._know(0, action, b"}\x94(" + text["action"] + text[ACTIONS[action]] + text[address])
        self._know(1, action, text["size"])
        self._know(2, family, text["stream"] + number(training.STREAMS[family]) + text["time_us"])
        self._know(3, family, text["compile_context"] + b"\x8c\x03N/A\x94" + text["user_metadata"] + text[""]
                   + text["pool_id"] + pool + text["frames"])

    def _listed(self, stack: int) -> bytes:
        frames = self.run.training.stacks.stacks[stack]
        return b"(" + b"".join(get(self.pickle.place(self.run, f)) for f in frames) + b"e" if frames else b""

    def _know(self, kind: int, index: int, piece: bytes) -> None:
        if self.place[kind, index, 1]:
            return
        if self.used + len(piece) > len(self.pieces):
            self.pieces = np.concatenate([self.pieces, np.zeros(len(self.pieces) + len(piece), np.uint8)])
        self.pieces[self.used: self.used + len(piece)] = np.frombuffer(piece, np.uint8)
        self.place[kind, index] = self.used, self.used + len(piece)
        self.used += len(piece)


def main(arguments: list[str]) -> int:
    """`python -m benchmarks memory-trace OUT --events N`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks memory-trace", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="the file, a pickle in protocol 4")
    parser.add_argument("--events", type=int, default=1_000_000, help="how many, over all devices (%(default)s)")
    parser.add_argument("--devices", type=int, default=1, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=24, help="of the model that is trained (%(default)s)")
    parser.add_argument("--oom", action="store_true", help="let it end when memory runs out")
    options = parser.parse_args(arguments)
    try:
        write_trace(options.out, options.events, options.seed, options.devices, layers=options.layers, oom=options.oom)
    except (ValueError, OSError) as e:
        parser.error(str(e))
    return 0
