"""From the dictionaries of a snapshot's pickle to columns: texts and stacks, entries of traces, segments and blocks.

What has a wrong type is refused by name; keys that are not known are passed over; what older files lack is filled.
"""

from __future__ import annotations

import json
from array import array
from itertools import chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats import Progress, silent
from splatview_viewer.kinds.snapshot.loading.pairing import fill_pools, make_spans, pair
from splatview_viewer.kinds.snapshot.model import (
    ACTIONS,
    BLOCK_STATES,
    LIMIT,
    NO_STACK,
    SEGMENT_TYPES,
    UNKNOWN_POOL,
    Annotation,
    Blocks,
    Events,
    Segments,
    Snapshot,
    Stacks,
    Texts,
    Trace,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MAX_EVENTS = 2**31 - 2
MAX_SETTINGS = 1 << 18
_READING = 0.7
"""Of the time that it takes, reading the events; the rest is pairing."""
CHUNK = 4096
"""Events that are read together: few enough that the processor's cache holds them."""
ACTION = {name: i for i, name in enumerate(ACTIONS)}
STATE = {name: i for i, name in enumerate(BLOCK_STATES)} | {"active_awaiting_free": 2}
TYPE = {name: i for i, name in enumerate(SEGMENT_TYPES)}
OTHER, OOM = ACTION["other"], ACTION["oom"]
NO_CONTEXT = (None, "", "N/A")
MAX_TABLE = 2**15 - 1
MAX_DEVICES = 1024
"""Traces of one file, at most."""
COLUMNS = {"action": np.uint8, "addr": np.uint64, "size": np.uint64, "time_us": np.int64, "stream": np.int16,
           "pool": np.int16, "stack": np.int32, "context": np.int32, "metadata": np.int32}
TOP = 2**64
"""Addresses, and the ends of what lies there, are smaller."""
NOWHERE = object()
SAMPLE, FEW = 4, 16
"""Each so many frames tell stacks apart at once; so many stacks that they do not tell apart are compared."""
HELD = 1 << 18
"""How many stacks and frames are known by identity; a file that shares none would hold all of them."""
MAX_LINE = 2**31 - 1


# -- texts, frames and stacks, each kept once --------------------------------------------------------------------------


class Tables:
    """Gives the same number to equal texts, frames, stacks, streams and pools, of all devices.

    PyTorch's files share the dictionaries of frames, but each entry has a list of its own: the identities of every
    fourth frame lead to few lists, which are compared; that mostly looks at identities too. What is known is held,
    which keeps identities valid.
    """

    def __init__(self) -> None:
        self.streams: dict[int, int] = {}
        self.pools: dict[tuple[int, int], int] = {(0, 0): 0}
        self._texts: dict[str, int] = {}
        self._frames: dict[tuple[int, int, int], int] = {}
        self._stacks: dict[bytes, int] = {}
        self._known: dict[int, tuple[dict[Any, Any], int]] = {}
        self._lists: dict[tuple[int, ...], list[tuple[Any, int]]] = {}

    def stacks(self, lists: Sequence[Any], where: Callable[[int], str]) -> np.ndarray:
        """The numbers int32 (N,) of stacks as a file holds them: lists of dictionaries; None: no stack.

        Args:
            where: what to call the i-th of them in an error.

        Raises:
            FileError: no stack.
        """
        numbers = []
        for i, frames in enumerate(lists):
            if not frames or type(frames) is not list:
                if frames is None or frames in ((), []):
                    numbers.append(NO_STACK)
                    continue
                if type(frames) is not tuple:
                    raise FileError(f"{where(i)} is {shown(frames)}, not a list of frames")
            same = self._lists.get(key := tuple(map(id, frames[::SAMPLE])), ())
            for known, number in same:
                if known == frames:
                    numbers.append(number)
                    break
            else:
                held = self._known
                inner = [held[id(f)][1] if id(f) in held else self.frame(f, lambda i=i, k=k: f"{where(i)}[{k}]")
                         for k, f in enumerate(frames)]
                numbers.append(self._stacks.setdefault(array("i", inner).tobytes(), len(self._stacks)))
                if len(self._lists) >= HELD:
                    self._lists.clear()
                self._lists[key] = [(frames, numbers[-1]), *same[:FEW]]
        return np.array(numbers, np.int32)

    def frame(self, frame: Any, where: Callable[[], str]) -> int:
        """The number of a frame as a file holds it. `where`: what to call it in an error. Raises FileError."""
        def fault(what: str) -> FileError:
            return FileError(f"{where()}{what}")

        if type(frame) is not dict:
            raise fault(f" is {shown(frame)}, not a mapping with filename, line and name")
        file, line, name = frame.get("filename", ""), frame.get("line", 0), frame.get("name", "")
        if type(file) is not str or type(name) is not str:
            key, value = ("filename", file) if type(file) is not str else ("name", name)
            raise fault(f"[{key!r}] is {shown(value)}, not a text")
        if type(line) is not int:
            raise fault(f"['line'] is {shown(line)}, not a whole number")
        if not -MAX_LINE <= line <= MAX_LINE:
            line = 0  # what C++ frames say where nothing is known
        texts = self._texts
        key = texts.setdefault(file, len(texts)), line, texts.setdefault(name, len(texts))
        number = self._frames.setdefault(key, len(self._frames))
        if len(self._known) >= HELD:
            self._known.clear()
        self._known[id(frame)] = (frame, number)
        return number

    def stream(self, value: Any, where: str) -> int:
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise FileError(f"{where} is {shown(value)}, not a whole number of 64 bits")
        return self._number(self.streams, value, where)

    def pool(self, value: Any, where: str) -> int:
        if value is None:
            return UNKNOWN_POOL
        if type(value) not in (tuple, list) or len(value) != 2 or any(type(v) is not int or not 0 <= v < 2**64
                                                                    for v in value):
            raise FileError(f"{where} is {shown(value)}, not a pair of whole numbers")
        return self._number(self.pools, tuple(value), where)

    @staticmethod
    def _number(table: dict[Any, int], value: Any, where: str) -> int:
        number = table.setdefault(value, len(table))
        if number > MAX_TABLE:
            raise FileError(f"{where}: the {MAX_TABLE + 2:,}th different one; at most {MAX_TABLE + 1:,} can be read")
        return number

    def context(self, value: Any, where: str) -> int:
        return -1 if value in NO_CONTEXT else self.text(value, where)

    def text(self, value: Any, where: str) -> int:
        if value is None or value == "":
            return -1
        if type(value) is not str:
            raise FileError(f"{where} is {shown(value)}, not a text")
        return self._texts.setdefault(value, len(self._texts))

    def finish(self) -> tuple[Texts, Stacks]:
        """All of it as columns."""
        encoded = [t.encode("utf-8", "replace") for t in self._texts]
        blob = np.frombuffer(b"".join(encoded), np.uint8)
        start = _starts([len(t) for t in encoded])
        frames = np.array(list(self._frames), np.int32).reshape(-1, 3)
        stacks = list(self._stacks)
        inner = np.frombuffer(b"".join(stacks), np.int32)
        file, line, name = (np.ascontiguousarray(frames[:, i]) for i in range(3))
        return Texts(blob, start), Stacks(file, line, name, _starts([len(s) // 4 for s in stacks]), inner)


def shown(value: Any) -> str:
    """A value in an error: short, and never its whole inside."""
    if value is None or isinstance(value, (bool, float)):
        return repr(value)
    if isinstance(value, int):
        return f"{value:#x}" if value.bit_length() > 64 and value.bit_length() < 200 else (
            str(value) if value.bit_length() <= 64 else "a very large number")
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:40] + "...")
    return f"a {type(value).__name__}"


def _starts(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))]).astype(np.int64)


# -- entries -----------------------------------------------------------------------------------------------------------


def whole(value: Any, where: str, top: int = LIMIT) -> int:
    """A number that is whole and not negative. Raises FileError."""
    if type(value) is not int:
        raise FileError(f"{where} is {shown(value)}, not a whole number")
    if not 0 <= value < top:
        raise FileError(f"{where} is {shown(value)}; legal is 0 to {top - 1:,}")
    return value


def listed(value: Any, where: str) -> list[Any]:
    """A list, or none. Raises FileError."""
    if value is None:
        return []
    if type(value) not in (list, tuple):
        raise FileError(f"{where} is {shown(value)}, not a list")
    return value


def read_events(trace: list[Any], device: int, tables: Tables, told: Callable[[int], None], *,
                consume: bool = False) -> Events:
    """The columns of all entries of one device's trace.

    Args:
        told: called with how many are read.
        consume: let go of the entries meanwhile.
    """
    columns = {name: np.empty(len(trace), dtype) for name, dtype in COLUMNS.items()}
    for first in range(0, len(trace), CHUNK):
        rows = trace[first: first + CHUNK]
        for name, values in _Chunk(rows, first, device, tables).read().items():
            columns[name][first: first + len(rows)] = values
        if consume:
            trace[first: first + len(rows)] = repeat(None, len(rows))
        told(first + len(rows))
    return Events(**columns, allocation=np.full(len(trace), -1, np.int32))


class _Chunk:
    """Some entries of a trace."""

    def __init__(self, rows: list[Any], first: int, device: int, tables: Tables) -> None:
        self.rows, self.first, self.device, self.tables = rows, first, device, tables
        self.columns: dict[Any, list[Any]] | None = None

    def where(self, i: int, key: str = "") -> str:
        return f"device_traces[{self.device}][{self.first + i}]" + (f"[{key!r}]" if key else "")

    def read(self) -> dict[str, np.ndarray | int]:
        """Each column: an array, or the one number in all its rows."""
        if set(map(type, self.rows)) != {dict}:
            i = next(i for i, e in enumerate(self.rows) if type(e) is not dict)
            raise FileError(f"{self.where(i)} is {shown(self.rows[i])}, not a mapping")
        # Mostly all entries have the same keys in one order: all values at once are quicker than key by key.
        keys = list(self.rows[0])
        if list(chain.from_iterable(self.rows)) == keys * len(self.rows):
            flat = list(chain.from_iterable(map(dict.values, self.rows)))
            self.columns = {key: flat[i::len(keys)] for i, key in enumerate(keys)}
        actions = self._values("action", NOWHERE)
        if set(map(type, actions)) != {str}:
            i = next(i for i, v in enumerate(actions) if type(v) is not str)
            raise FileError(f"{self.where(i)} has no action" if actions[i] is NOWHERE else
                            f"{self.where(i, 'action')} is {shown(actions[i])}, not a text")
        action = np.fromiter(map(ACTION.get, actions, repeat(OTHER)), np.uint8, len(actions))
        t = self.tables
        addr, size = self._numbers("addr", TOP, action), self._numbers("size", TOP)
        for i in np.flatnonzero((action != OOM) & ((size >= LIMIT) | (addr + size < addr))).tolist():
            whole(int(size[i]), self.where(i, "size"))
            whole(int(addr[i]), self.where(i, "addr"), TOP - int(size[i]))
        return {"action": action, "addr": addr, "size": size, "time_us": self._numbers("time_us"),
                "stream": self._table("stream", 0, t.stream), "pool": self._table("pool_id", None, t.pool),
                "context": self._table("compile_context", None, t.context),
                "metadata": self._table("user_metadata", None, t.text),
                "stack": t.stacks(self._values("frames", None), lambda i: self.where(i, "frames"))}

    def _values(self, key: str, missing: Any) -> list[Any]:
        if self.columns is not None:
            values = self.columns.get(key)
            return [missing] * len(self.rows) if values is None else values
        return [e.get(key, missing) for e in self.rows]

    def _numbers(self, key: str, top: int = LIMIT, action: np.ndarray | None = None) -> np.ndarray:
        values = self._values(key, 0)
        if action is not None:
            for i in np.flatnonzero(action == OOM).tolist():  # it has no address, but what the driver still had
                values[i] = self.rows[i].get("device_free", values[i])
        try:
            out = np.frombuffer(array("Q", values), np.uint64)  # refuses whatever is no whole number of 64 bits
            if int(out.max()) < top:
                return out
        except (TypeError, OverflowError):
            pass
        return np.array([whole(v, self.where(i, key), top) for i, v in enumerate(values)], np.uint64)

    def _table(self, key: str, missing: Any, number: Callable[[Any, str], int]) -> np.ndarray | int:
        """A column of few different values: each is looked at once."""
        values = self._values(key, missing)
        try:
            if type(values[0]) in (str, int, tuple, type(None)) and values.count(values[0]) == len(values):
                return number(values[0], self.where(0, key))
            numbers = {v: number(v, "") for v in set(values)}
            return np.fromiter(map(numbers.__getitem__, values), np.int32, len(values))
        except (TypeError, FileError):  # lists instead of tuples; or something wrong, which is named
            return np.array([number(v, self.where(i, key)) for i, v in enumerate(values)], np.int32)


def read_segments(entries: list[Any], tables: Tables, devices: Iterable[int]) -> dict[int, tuple[Segments, Blocks]]:
    """The segments and blocks by device, in the order of their addresses; of `devices` also where there are none."""
    by_device: dict[int, list[tuple[int, str, dict[str, Any]]]] = {device: [] for device in devices}
    for i, s in enumerate(entries):
        where = f"segments[{i}]"
        if type(s) is not dict:
            raise FileError(f"{where} is {shown(s)}, not a mapping")
        device = whole(s.get("device", 0), f"{where}['device']", 2**15)
        top = TOP - whole(s.get("total_size"), f"{where}['total_size']")
        by_device.setdefault(device, []).append((whole(s.get("address"), f"{where}['address']", top), where, s))
    return {device: _segments(sorted(rows, key=itemgetter(0)), tables) for device, rows in sorted(by_device.items())}


def _segments(rows: list[tuple[int, str, dict[str, Any]]], tables: Tables) -> tuple[Segments, Blocks]:
    """rows: the address of each segment, what to call it in an error, and the entry."""
    blocks: list[tuple[int, int, int, int]] = []
    frames: list[tuple[Any, str]] = []
    starts = [0]
    for address, where, s in rows:
        at = address
        for j, b in enumerate(listed(s.get("blocks"), f"{where}['blocks']")):
            row, stack = _block(b, f"{where}['blocks'][{j}]", at)
            at = row[0] + row[1]
            blocks.append(row)
            frames.append((stack, f"{where}['blocks'][{j}]['frames']"))
        starts.append(len(blocks))

    def column(key: str) -> np.ndarray:
        return np.array([whole(s.get(key, 0), f"{where}[{key!r}]") for _, where, s in rows], np.int64)

    kinds = [s.get("segment_type", "") for _, _, s in rows]
    segments = Segments(
        np.array([address for address, _, _ in rows], np.uint64), column("total_size"), column("allocated_size"),
        column("active_size"), column("requested_size"),
        np.array([tables.stream(s.get("stream", 0), f"{where}['stream']") for _, where, s in rows], np.int16),
        np.array([max(tables.pool(s.get("segment_pool_id"), f"{where}['segment_pool_id']"), 0)
                  for _, where, s in rows], np.int16),
        np.array([TYPE.get(kind, 2) if type(kind) is str else 2 for kind in kinds], np.uint8),
        np.array([s.get("is_expandable") is True for _, _, s in rows], bool),
        tables.stacks([s.get("frames") for _, _, s in rows], lambda i: f"{rows[i][1]}['frames']"),
        np.array(starts, np.int32))
    b = np.array(blocks, np.uint64).reshape(-1, 4)
    size, requested = b[:, 1].astype(np.int64), b[:, 2].astype(np.int64)
    return segments, Blocks(b[:, 0].copy(), size, requested, b[:, 3].astype(np.uint8),
                            tables.stacks([stack for stack, _ in frames], lambda i: frames[i][1]),
                            np.full(len(b), -1, np.int32))


def _block(b: Any, where: str, at: int) -> tuple[tuple[int, int, int, int], Any]:
    """Address, size, requested size and state of a block, and its frames. `at`: where it begins if it does not say."""
    if type(b) is not dict:
        raise FileError(f"{where} is {shown(b)}, not a mapping")
    size = whole(b.get("size"), f"{where}['size']")
    state = b.get("state", "inactive")
    if type(state) is not str:
        raise FileError(f"{where}['state'] is {shown(state)}, not a text")
    frames, requested = b.get("frames"), b.get("requested_size")
    if requested is None or frames is None:  # as files of before 2023 say it
        old = listed(b.get("history"), f"{where}['history']")
        last = old[0] if old and type(old[0]) is dict else {}
        requested = last.get("real_size", size) if requested is None else requested
        frames = last.get("frames") if frames is None else frames
    return (whole(b.get("address", at), f"{where}['address']", TOP - size), size,
            whole(requested, f"{where}['requested_size']"), STATE.get(state, 3)), frames


# -- the whole ---------------------------------------------------------------------------------------------------------


def convert(data: Any, name: str, progress: Progress = silent, *, consume: bool = False, file_bytes: int = 0
            ) -> Snapshot:
    """The Snapshot of what a pickle holds: the mapping that `torch.cuda.memory._snapshot` returns, or only the
    segments (`torch.cuda.memory_snapshot`).

    Args:
        consume: take the data apart meanwhile, so that its memory is free for the columns.

    Raises:
        FileError: it is none; the message names the entry.
    """
    if type(data) is list and data and type(data[0]) is dict and "total_size" in data[0]:
        data = {"segments": data}
    if type(data) is not dict or not any(key in data for key in ("segments", "device_traces")):
        found = shown(data)
        if type(data) is dict:
            found = f"a mapping with {', '.join(map(shown, list(data)[:6])) or 'nothing'}"
        raise FileError(f"a pickle, but no memory snapshot: it holds {found}; a snapshot is a mapping with "
                        "segments and device_traces, as torch.cuda.memory._dump_snapshot writes it")
    traces = listed(data.get("device_traces"), "device_traces")
    if len(traces) > MAX_DEVICES:
        raise FileError(f"device_traces has {len(traces):,} devices; at most {MAX_DEVICES:,} can be read")
    counts = [len(listed(t, f"device_traces[{d}]")) for d, t in enumerate(traces)]
    if sum(counts) > MAX_EVENTS:
        raise FileError(f"the traces have {sum(counts):,} events; at most {MAX_EVENTS:,} can be read")
    tables, done, total = Tables(), 0, max(sum(counts), 1)
    events: dict[int, Events] = {}
    for device, (trace, count) in enumerate(zip(traces, counts, strict=True)):
        if count:
            def told(read: int, done: int = done) -> None:
                progress("reading events", _READING * (done + read) / total)

            events[device] = read_events(trace, device, tables, told, consume=consume)
            done += count
            if consume:
                trace.clear()
    segments = read_segments(listed(data.get("segments"), "segments"), tables, events)
    notes: list[str] = []
    made: list[Trace] = []
    for device in segments:
        progress("pairing", _READING + (1 - _READING) * len(made) / len(segments))
        e = events[device] if device in events else read_events([], device, tables, lambda read: None)
        made.append(_trace(device, e, *segments[device], notes))
    host = sum(len(t) for t in listed(data.get("host_traces"), "host_traces") if type(t) in (list, tuple))
    host_segments = len(listed(data.get("host_segments"), "host_segments"))
    if host or host_segments:
        notes.append(f"the file also tells of pinned host memory ({host_segments:,} segments, {host:,} events), which "
                     "is not shown")
    if not any(counts):
        notes.append("no events: recording was off; only what was live at the end is known")
    texts, stacks = tables.finish()
    return Snapshot(name, tuple(made), texts, stacks, tuple(tables.streams), tuple(tables.pools),
                    _annotations(data.get("external_annotations")), _settings(data.get("allocator_settings")),
                    tuple(notes), file_bytes)


def _trace(device: int, events: Events, segments: Segments, blocks: Blocks, notes: list[str]) -> Trace:
    per_segment = np.diff(segments.block_start)
    a, (lost, late, unheld) = pair(events, blocks, np.repeat(segments.stream, per_segment),
                                   np.repeat(segments.pool, per_segment))
    spans = make_spans(events, segments)
    fill_pools(a, events, segments, spans)
    if float(np.sum(a.size, dtype=np.float64)) >= LIMIT:  # beyond it sums would overflow
        raise FileError(f"device {device}: the sizes of its allocations are together more than any machine hands out")
    early = int((a.start < 0).sum())
    bytes_early = int(a.size[a.start < 0].sum())
    for count, text in (
            (early, f"{{}} allocations ({bytes_early / 2**30:.2f} GiB) were live before the trace begins"),
            (lost, "{} allocations end where their address was handed out again: their free is not in the "
                           "trace"),
            (late, "{} allocations have no alloc in the trace though their address was in use before (was recording "
                     "paused?); they are shown as live from its beginning"),
            (unheld, "{} allocations are live at the end of the trace, but no block holds them")):
        if count:
            notes.append(f"device {device}: {text.format(f'{count:,}')}")
    return Trace(device, events, a, spans, segments, blocks)


def _annotations(value: Any) -> tuple[Annotation, ...]:
    out: list[Annotation] = []
    for i, a in enumerate(listed(value, "external_annotations")):
        where = f"external_annotations[{i}]"
        if type(a) is not dict:
            raise FileError(f"{where} is {shown(a)}, not a mapping")
        name, stage, device = a.get("name", ""), a.get("stage", ""), a.get("device", 0)
        for key, text in (("name", name), ("stage", stage)):
            if type(text) is not str:
                raise FileError(f"{where}[{key!r}] is {shown(text)}, not a text")
        if type(device) is not int or not -1 <= device < 2**15:
            raise FileError(f"{where}['device'] is {shown(device)}, not the number of a device")
        out.append(Annotation(name, stage, device, whole(a.get("time_us", 0), f"{where}['time_us']")))
    return tuple(out)


def _settings(value: Any) -> dict[str, Any]:
    """Return the allocator's settings as JSON values; none where they are too many or refer to themselves."""
    if value is None:
        return {}
    if type(value) is not dict:
        raise FileError(f"allocator_settings is {shown(value)}, not a mapping")
    try:
        text = json.dumps(value, skipkeys=True, default=shown, allow_nan=False)
    except (ValueError, RecursionError):
        return {}
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 19 else digits) if (
        len(text) <= MAX_SETTINGS) else {}
