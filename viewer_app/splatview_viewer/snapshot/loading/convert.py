"""From the dictionaries of a snapshot's pickle to columns: texts and stacks, entries of traces, segments and blocks.

What has a wrong type is refused by name; keys that are not known are passed over; what older files lack is filled.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats import Progress, silent
from splatview_viewer.snapshot.loading.bounds import Budget
from splatview_viewer.snapshot.loading.pairing import (
    fill_pools,
    make_spans,
    pair_events,
)
from splatview_viewer.snapshot.model import (
    ACTIONS,
    BLOCK_STATES,
    HOST_DEVICE,
    NO_STACK,
    SEGMENT_TYPES,
    SIZE_LIMIT,
    SPAN_LIMIT,
    UNKNOWN_POOL,
    Annotation,
    Blocks,
    Events,
    MemorySnapshot,
    Segments,
    Stacks,
    Texts,
    Trace,
    device_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_READING = 0.7
"""Share of the time that reading the events takes; the rest is pairing."""
CHUNK = 4096
"""Events that are read together: few enough that the processor's cache holds them."""
ACTION = {name: i for i, name in enumerate(ACTIONS)}
STATE = {name: i for i, name in enumerate(BLOCK_STATES)} | {"active_awaiting_free": 2}
TYPE = {name: i for i, name in enumerate(SEGMENT_TYPES)}
OTHER = ACTION["other"]
OOM = ACTION["oom"]
NO_TEXT = (None, "", "N/A")
MAX_TABLE = 2**15 - 1
MAX_LETTERS = 1 << 14
"""Letters of a text that are kept: names of C++ templates have thousands."""
MAX_FRAMES = 4096
"""Innermost frames of a stack that are kept; Python itself ends at 1000."""
MAX_DEVICES = 256
"""Devices with events or segments: each costs its own tables and pictures, however little it holds."""
COLUMNS = {
    "action": np.uint8,
    "addr": np.uint64,
    "size": np.uint64,
    "time_us": np.int64,
    "stream": np.int16,
    "pool": np.int16,
    "stack": np.int32,
    "context": np.int32,
    "metadata": np.int32,
}
ADDRESS_END = 2**64
"""Addresses, and the ends of what lies there, are smaller."""
SAMPLE = 4
FEW = 16
"""Each so many frames tell stacks apart at once; so many stacks that they do not tell apart are compared."""
MAX_KNOWN = 1 << 18
"""Most stacks and frames that are known by identity; a file that shares none would hold all of them."""
MAX_LINE = 2**31 - 1
_FLAT = (str, int, float, bool, type(None))


_Whole = Annotated[int, Meta(ge=0)]
_PoolNumber = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Bytes = Annotated[int, Meta(ge=0, lt=SIZE_LIMIT)]
_Stream = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Pool = tuple[_PoolNumber, _PoolNumber]


class _Frame(msgspec.Struct):
    filename: str = ""
    line: int = 0
    name: str = ""


class _Entry(msgspec.Struct, gc=False):
    action: str
    addr: _Whole = 0
    size: _Whole = 0
    device_free: _Whole | None = None
    """Bytes that the driver still had: of an oom, which has no address."""
    time_us: _Bytes = 0
    stream: _Stream = 0
    pool_id: _Pool | None = None
    compile_context: str | None = None
    user_metadata: str | None = None
    frames: Any = None


class _Block(msgspec.Struct):
    address: _Whole
    size: _Bytes
    requested_size: _Bytes | None = None
    state: str = "inactive"
    frames: Any = None


class _Segment(msgspec.Struct):
    address: _Whole
    total_size: _Bytes
    device: Annotated[int, Meta(ge=0, lt=2**15)] = 0
    allocated_size: _Bytes = 0
    active_size: _Bytes = 0
    requested_size: _Bytes = 0
    stream: _Stream = 0
    segment_type: Any = ""
    segment_pool_id: _Pool | None = None
    is_expandable: Any = False
    frames: Any = None
    blocks: list[_Block] | None = None


class _File(msgspec.Struct):
    """Content of a pickle. Entries of traces are read many at once (`_Chunk`)."""

    segments: list[_Segment] | None = None
    device_traces: list[Any] | None = None
    external_annotations: list[Annotation] | None = None
    allocator_settings: dict[Any, Any] | None = None
    host_segments: list[Any] | None = None
    host_traces: list[Any] | None = None


def convert_value(value: Any, kind: Any, where: str) -> Any:
    """A value of a file, if it is of this type. Raises FileError, which names what is wrong."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as e:
        raise FileError(f"{where}: {e}") from None


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
        self.was_cut = False
        """A text or a stack was too long to be kept whole."""
        self._texts: dict[str, int] = {}
        self._frames: dict[tuple[int, int, int], int] = {}
        self._stacks: dict[bytes, int] = {}
        self._known: dict[int, tuple[dict[Any, Any], int]] = {}
        self._lists: dict[tuple[int, ...], list[tuple[Any, int]]] = {}
        self._frames_are_flat = True
        """No known frame holds other values, which two of them could compare without end if they hold each other."""

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
                frames = convert_value(frames, list[Any], where(i))
            if len(frames) > MAX_FRAMES:
                frames = frames[:MAX_FRAMES]
                self.was_cut = True
            same = self._lists.get(key := tuple(map(id, frames[::SAMPLE])), ())
            for known, number in same:
                if self._frames_are_flat:
                    is_same = known == frames
                else:
                    is_same = _are_identical(known, frames)
                if is_same:
                    numbers.append(number)
                    break
            else:
                held = self._known
                inner = [
                    held[id(f)][1]
                    if id(f) in held
                    else self.frame(f, f"{where(i)}[{k}]")
                    for k, f in enumerate(frames)
                ]
                numbers.append(
                    self._stacks.setdefault(
                        array("i", inner).tobytes(), len(self._stacks)
                    )
                )
                if len(self._lists) >= MAX_KNOWN:
                    self._lists.clear()
                self._lists[key] = [(frames, numbers[-1]), *same[:FEW]]
        return np.array(numbers, np.int32)

    def frame(self, frame: Any, where: str) -> int:
        """The number of a frame as a file holds it. `where`: what to call it in an error. Raises FileError."""
        f = convert_value(frame, _Frame, where)
        texts = self._texts
        self._frames_are_flat &= all(type(v) in _FLAT for v in frame.values())
        # what C++ frames say where nothing is known
        if abs(f.line) <= MAX_LINE:
            line = f.line
        else:
            line = 0
        key = (
            texts.setdefault(self._kept(f.filename), len(texts)),
            line,
            texts.setdefault(self._kept(f.name), len(texts)),
        )
        number = self._frames.setdefault(key, len(self._frames))
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[id(frame)] = (frame, number)
        return number

    def stream(self, value: int) -> int:
        return self._number(self.streams, value, "streams")

    def pool(self, value: tuple[int, int] | None) -> int:
        if value is None:
            return UNKNOWN_POOL
        return self._number(self.pools, value, "pools")

    @staticmethod
    def _number(table: dict[Any, int], value: Any, what: str) -> int:
        number = table.setdefault(value, len(table))
        if number > MAX_TABLE:
            raise FileError(f"more than {MAX_TABLE + 1:,} {what}")
        return number

    def text(self, value: str | None) -> int:
        if value is None or value in NO_TEXT:
            return -1
        return self._texts.setdefault(self._kept(value), len(self._texts))

    def _kept(self, text: str) -> str:
        """Return as much of a text as is kept."""
        if len(text) <= MAX_LETTERS:
            return text
        self.was_cut = True
        return text[:MAX_LETTERS]

    def finish(self) -> tuple[Texts, Stacks]:
        """All of it as columns."""
        encoded = [t.encode("utf-8", "replace") for t in self._texts]
        blob = np.frombuffer(b"".join(encoded), np.uint8)
        start = _starts([len(t) for t in encoded])
        frames = np.array(list(self._frames), np.int32).reshape(-1, 3)
        stacks = list(self._stacks)
        inner = np.frombuffer(b"".join(stacks), np.int32)
        file, line, name = (np.ascontiguousarray(frames[:, i]) for i in range(3))
        return Texts(blob, start), Stacks(
            file, line, name, _starts([len(s) // 4 for s in stacks]), inner
        )


def _are_identical(known: list[Any], frames: list[Any]) -> bool:
    """Return whether two lists hold the same objects: a slower comparison that looks into none of them."""
    return len(known) == len(frames) and all(map(is_, known, frames))


def error_text(value: Any) -> str:
    """A value in an error: short, and never its whole inside."""
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:40] + "...")
    if isinstance(value, (bool, float, type(None))) or (
        isinstance(value, int) and value.bit_length() <= 64
    ):
        return repr(value)
    if isinstance(value, int):
        return "a very large number"
    return f"a {type(value).__name__}"


def _starts(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))]).astype(
        np.int64
    )


# -- entries -----------------------------------------------------------------------------------------------------------


def read_events(
    trace: list[Any],
    where: str,
    tables: Tables,
    budget: Budget,
    on_read: Callable[[int], None],
) -> Events:
    """Read the columns of all entries of one device's trace.

    Args:
        where: what to call the trace in an error.
        on_read: called with how many are read.

    Raises:
        FileError: an entry is none, or the file names the same values too often.
    """
    columns = {name: np.empty(len(trace), dtype) for name, dtype in COLUMNS.items()}
    for first in range(0, len(trace), CHUNK):
        rows = trace[first : first + CHUNK]
        budget.check_entries(rows, where)
        for name, values in _columns(rows, where, first, tables).items():
            columns[name][first : first + len(rows)] = values
        on_read(first + len(rows))
    return Events(**columns, allocation=np.full(len(trace), -1, np.int32))


def _columns(
    rows: list[Any], where: str, first: int, tables: Tables
) -> dict[str, np.ndarray]:
    """The columns of some entries. first: the number of the first of them, for errors."""
    try:
        entries = msgspec.convert(rows, list[_Entry])
    except msgspec.ValidationError:
        entries = [
            convert_value(row, _Entry, f"{where}[{first + i}]")
            for i, row in enumerate(rows)
        ]  # names the entry

    def numbered(name: str, number: Callable[[Any], int]) -> np.ndarray:
        """A column of few different values."""
        values = list(map(attrgetter(name), entries))
        numbers = {value: number(value) for value in dict.fromkeys(values)}
        return np.fromiter(map(numbers.__getitem__, values), np.int32, len(values))

    action = numbered("action", lambda name: ACTION.get(name, OTHER))
    failed = action == OOM
    last = np.uint64(ADDRESS_END - 1)
    try:
        size = np.array([e.size for e in entries], np.uint64)
        addr = np.array(
            [
                e.addr if e.device_free is None or e.action != "oom" else e.device_free
                for e in entries
            ],
            np.uint64,
        )
    except OverflowError:
        raise FileError(
            f"{where}: a number is more than 2^64 in entry {first} or one of those after it"
        ) from None
    wrong = (size > np.where(failed, last, np.uint64(SIZE_LIMIT - 1))) | (
        addr > np.where(failed, last, last - size)
    )
    if wrong.any():
        i = int(wrong.argmax())
        raise FileError(
            f"{where}[{first + i}]: {size[i]:,} bytes at {addr[i]:#x}; sizes are less than 2^62, and what "
            "has an address ends at 2^64"
        )
    return {
        "action": action,
        "size": size,
        "addr": addr,
        "time_us": np.array([e.time_us for e in entries], np.int64),
        "stream": numbered("stream", tables.stream),
        "pool": numbered("pool_id", tables.pool),
        "context": numbered("compile_context", tables.text),
        "metadata": numbered("user_metadata", tables.text),
        "stack": tables.stacks(
            [e.frames for e in entries], lambda i: f"{where}[{first + i}].frames"
        ),
    }


def read_segments(entries: list[_Segment], tables: Tables) -> tuple[Segments, Blocks]:
    """Read the segments and blocks of one device, in the order of their addresses. Raises FileError."""
    rows = sorted(entries, key=attrgetter("address"))
    blocks = [b for s in rows for b in s.blocks or ()]
    for address, size in [(s.address, s.total_size) for s in rows] + [
        (b.address, b.size) for b in blocks
    ]:
        if address + size > ADDRESS_END:
            raise FileError(
                f"a segment or block at {error_text(address)} of {size:,} bytes: it ends beyond 2^64"
            )
    pools = [max(tables.pool(s.segment_pool_id), 0) for s in rows]
    kinds = [
        TYPE.get(s.segment_type, 2) if type(s.segment_type) is str else 2 for s in rows
    ]
    total, allocated, active, requested = (
        np.array(
            [
                (s.total_size, s.allocated_size, s.active_size, s.requested_size)
                for s in rows
            ],
            np.int64,
        )
        .reshape(-1, 4)
        .T
    )
    segments = Segments(
        np.array([s.address for s in rows], np.uint64),
        total.copy(),
        allocated.copy(),
        active.copy(),
        requested.copy(),
        np.array([tables.stream(s.stream) for s in rows], np.int16),
        np.array(pools, np.int16),
        np.array(kinds, np.uint8),
        np.array([s.is_expandable is True for s in rows], bool),
        tables.stacks(
            [s.frames for s in rows],
            lambda i: f"frames of the segment at {rows[i].address:#x}",
        ),
        np.array([len(s.blocks or ()) for s in rows], np.int32),
    )
    return segments, Blocks(
        np.array([b.address for b in blocks], np.uint64),
        np.array([b.size for b in blocks], np.int64),
        np.array(
            [b.size if b.requested_size is None else b.requested_size for b in blocks],
            np.int64,
        ),
        np.array([STATE.get(b.state, 3) for b in blocks], np.uint8),
        tables.stacks(
            [b.frames for b in blocks],
            lambda i: f"frames of the block at {blocks[i].address:#x}",
        ),
        np.full(len(blocks), -1, np.int32),
    )


# -- the whole ---------------------------------------------------------------------------------------------------------


@dataclass
class _Recording:
    """Content of a file for one device, not yet converted."""

    device: int
    where: str
    """The trace's name in errors."""
    entries: list[Any] = field(default_factory=list)
    segments: list[_Segment] = field(default_factory=list)


def convert(
    data: Any,
    name: str,
    progress: Progress = silent,
    *,
    consume: bool = False,
    file_bytes: int = 0,
) -> MemorySnapshot:
    """Convert what a pickle holds: the mapping that `torch.cuda.memory._snapshot` returns, or only the segments
    (`torch.cuda.memory_snapshot`).

    Args:
        consume: empty the traces meanwhile, so that their memory is free for the columns.
        file_bytes: size of the pickle, unpacked, which bounds the work; 0: it is no file's.

    Raises:
        FileError: it is none; the message names the entry.
    """
    data = _as_mapping(data)
    budget = Budget(file_bytes)
    budget.check(data)
    file = convert_value(data, _File, "the snapshot")
    notes: list[str] = []
    recordings = _device_recordings(file)
    recordings += _host_recordings(file, notes, needed=not recordings)
    if len(recordings) > MAX_DEVICES:
        raise FileError(
            f"the snapshot tells of {len(recordings):,} devices; at most {MAX_DEVICES} are shown. PyTorch knows 128"
        )
    tables = Tables()
    count = max(sum(len(r.entries) for r in recordings), 1)
    done = 0
    events: dict[int, Events] = {}
    for recording in recordings:

        def on_read(read: int, done: int = done) -> None:
            progress("reading events", _READING * (done + read) / count)

        done += len(recording.entries)
        try:
            events[recording.device] = read_events(
                recording.entries, recording.where, tables, budget, on_read
            )
        except FileError as e:
            if recording.device >= 0 or len(recordings) == 1:
                raise
            notes.append(_unreadable_host(file, e))
        if consume:
            recording.entries.clear()
    traces: list[Trace] = []
    for recording in recordings:
        progress("pairing", _READING + (1 - _READING) * len(traces) / len(recordings))
        if recording.device in events:
            segments, blocks = read_segments(recording.segments, tables)
            traces.append(
                _trace(
                    recording.device, events[recording.device], segments, blocks, notes
                )
            )
    if not any(len(e) for e in events.values()):
        notes.append(
            "no events: recording was off; only what was live at the end is known"
        )
    if tables.was_cut:
        notes.append(
            f"some texts of more than {MAX_LETTERS:,} letters, or stacks of more than {MAX_FRAMES:,} frames, are cut"
        )
    texts, stacks = tables.finish()
    return MemorySnapshot(
        name,
        tuple(traces),
        texts,
        stacks,
        tuple(tables.streams),
        tuple(tables.pools),
        tuple(map(_legible_annotation, file.external_annotations or ())),
        _settings(file),
        tuple(notes),
        file_bytes,
    )


def _as_mapping(data: Any) -> dict[str, Any]:
    """Return the mapping of a whole snapshot. Raises FileError for what is none."""
    only_segments = (
        type(data) is list
        and bool(data)
        and type(data[0]) is dict
        and "total_size" in data[0]
    )
    if only_segments:
        return {"segments": data}
    if type(data) is dict and any(
        key in data for key in ("segments", "device_traces", "host_traces")
    ):
        return data
    content = error_text(data)
    if type(data) is dict:
        keys = ", ".join(map(error_text, list(data)[:6]))
        content = f"a mapping with {keys or 'nothing'}"
    raise FileError(
        f"a pickle, but no memory snapshot: it holds {content}; a snapshot is a mapping with "
        "segments and device_traces, as torch.cuda.memory._dump_snapshot writes it"
    )


def _device_recordings(file: _File) -> list[_Recording]:
    """Return what the file holds of each GPU that has events or segments, by its index."""
    recordings: dict[int, _Recording] = {}
    for device, trace in enumerate(_traces(file.device_traces, "device_traces")):
        if trace:
            recordings[device] = _Recording(device, f"device_traces[{device}]", trace)
    for segment in file.segments or ():
        device = segment.device
        if device not in recordings:
            recordings[device] = _Recording(device, f"device_traces[{device}]")
        recordings[device].segments.append(segment)
    return [recordings[device] for device in sorted(recordings)]


def _host_recordings(
    file: _File, notes: list[str], *, needed: bool
) -> list[_Recording]:
    """Return what the file holds of pinned host memory.

    `needed`: there is nothing else. Otherwise what cannot be read becomes a note. Raises FileError.
    """
    try:
        segments = convert_value(
            file.host_segments or [], list[_Segment], "host_segments"
        )
        traces = _traces(file.host_traces, "host_traces")
    except FileError as e:
        if needed:
            raise
        notes.append(_unreadable_host(file, e))
        return []
    recordings = [
        _Recording(HOST_DEVICE - i, f"host_traces[{i}]", trace)
        for i, trace in enumerate(traces)
        if trace
    ]
    if segments and not recordings:
        recordings = [_Recording(HOST_DEVICE, "host_traces[0]")]
    for segment in segments:
        has_own_trace = segment.device < len(recordings)
        recordings[segment.device if has_own_trace else 0].segments.append(segment)
    return recordings


def _unreadable_host(file: _File, error: FileError) -> str:
    """Return the note on pinned host memory that cannot be shown."""
    segments = len(file.host_segments or ())
    lists = [trace for trace in file.host_traces or () if type(trace) is list]
    return (
        f"the file also tells of pinned host memory ({segments:,} segments, {sum(map(len, lists)):,} events), which "
        f"is not shown: {error}"
    )


def _traces(lists: list[Any] | None, name: str) -> list[list[Any]]:
    """Return the lists of entries under a key of the file. Raises FileError for other values."""
    lists = lists or []
    is_single = bool(lists) and all(type(entry) is dict for entry in lists)
    traces = [lists] if is_single else [[] if t is None else t for t in lists]
    if any(type(trace) is not list for trace in traces):
        raise FileError(f"{name} holds something that is no list of entries")
    return traces


def _settings(file: _File) -> dict[str, str]:
    """Return the allocator's settings in words."""
    settings: dict[str, str] = {}
    for key, value in list((file.allocator_settings or {}).items())[:100]:
        if type(key) is not str or type(value) not in (str, bool, int, float):
            continue
        words = value if type(value) is str else error_text(value)
        settings[_legible(key[:200])] = _legible(words[:200])
    return settings


def _legible(text: str) -> str:
    """Return a text that can be written as UTF-8: halves of characters, which a pickle can hold, become "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _legible_annotation(annotation: Annotation) -> Annotation:
    return replace(
        annotation,
        name=_legible(annotation.name[:MAX_LETTERS]),
        stage=_legible(annotation.stage[:MAX_LETTERS]),
    )


def _trace(
    device: int, events: Events, segments: Segments, blocks: Blocks, notes: list[str]
) -> Trace:
    a, odd = pair_events(
        events,
        blocks,
        np.repeat(segments.stream, segments.blocks),
        np.repeat(segments.pool, segments.blocks),
    )
    spans = make_spans(events, segments)
    fill_pools(a, events, segments)
    for what, sizes, limit in (
        ("allocations", a.size, SIZE_LIMIT),
        ("reserved ranges", spans.size, SPAN_LIMIT),
    ):
        # Beyond it sums, and places in the address space, would overflow.
        if float(np.sum(sizes, dtype=np.float64)) >= limit:
            raise FileError(
                f"{device_text(device)}: the sizes of its {what} are together more than any machine hands out"
            )
    early = int((a.start < 0).sum())
    if early:
        notes.append(
            f"{device_text(device)}: {early:,} allocations ({int(a.size[a.start < 0].sum()) / 2**30:.2f} GiB) were "
            "live before the trace begins"
        )
    if odd:
        notes.append(
            f"{device_text(device)}: {odd:,} allocations lack their alloc or their free in the trace (was recording "
            "paused?); they are shown from its beginning, or as long as their address is not used again"
        )
    return Trace(device, events, a, spans, segments, blocks)
