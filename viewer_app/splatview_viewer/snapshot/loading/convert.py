"""Converts the dictionaries of a snapshot's pickle to the columns of a `MemorySnapshot`.

Values of a wrong type are refused by name; unknown keys are passed over; what older files
lack is filled.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.core.quantities import count_text
from splatview_viewer.formats import Progress, silent
from splatview_viewer.snapshot.loading.bounds import Budget
from splatview_viewer.snapshot.loading.entries import read_events, read_segments
from splatview_viewer.snapshot.loading.interning import (
    MAX_FRAMES,
    MAX_LETTERS,
    Tables,
)
from splatview_viewer.snapshot.loading.pairing import (
    fill_pools,
    make_spans,
    pair_events,
)
from splatview_viewer.snapshot.loading.schema import (
    SegmentEntry,
    SnapshotFile,
    convert_value,
    error_text,
)
from splatview_viewer.snapshot.model import (
    HOST_DEVICE,
    SIZE_LIMIT,
    SPAN_LIMIT,
    Annotation,
    Events,
    MemorySnapshot,
    Trace,
    device_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_READ_SHARE = 0.7
"""Share of the time that reading the events takes; the rest is pairing."""
MAX_DEVICES = 256
"""Devices with events or segments: each costs its own tables and pictures, however little
it holds."""


@dataclass
class _Recording:
    """Content of a file for one device, not yet converted."""

    device: int
    name: str
    """The trace's name in errors."""
    entries: list[Any] = field(default_factory=list)
    segments: list[SegmentEntry] = field(default_factory=list)


def convert(
    data: Any,
    name: str,
    progress: Progress = silent,
    *,
    consume: bool = False,
    file_bytes: int = 0,
) -> MemorySnapshot:
    """Convert the content of a pickle.

    It is the mapping that `torch.cuda.memory._snapshot` returns, or only the segments
    (`torch.cuda.memory_snapshot`).

    Args:
        consume: empty the traces meanwhile, so that their memory is free for the columns.
        file_bytes: size of the pickle, unpacked, which limits the work; 0: it is not from
            a file.

    Raises:
        FileError: it is no snapshot; the message names the entry.
    """
    data = _as_mapping(data)
    budget = Budget(file_bytes)
    budget.check(data)
    file = convert_value(data, SnapshotFile, "the snapshot")
    notes: list[str] = []
    recordings = _device_recordings(file)
    recordings += _host_recordings(file, notes, needed=not recordings)
    if len(recordings) > MAX_DEVICES:
        raise FileError(
            f"the snapshot tells of {len(recordings):,} devices; at most {MAX_DEVICES} are "
            "shown. PyTorch knows 128"
        )
    tables = Tables()
    events = _read_all_events(
        recordings, file, tables, budget, notes, progress, consume=consume
    )
    traces: list[Trace] = []
    for i, recording in enumerate(recordings):
        progress("pairing", _READ_SHARE + (1 - _READ_SHARE) * i / len(recordings))
        if recording.device in events:
            device_events = events[recording.device]
            traces.append(_make_trace(recording, device_events, tables, notes))
    if not any(len(device_events) for device_events in events.values()):
        notes.append(
            "no events: recording was off; only what was live at the end is known"
        )
    if tables.was_cut:
        notes.append(
            f"some texts of more than {MAX_LETTERS:,} letters, or stacks of more than "
            f"{MAX_FRAMES:,} frames, are cut"
        )
    texts, stacks = tables.finish()
    annotations = _read_annotations(file, notes)
    return MemorySnapshot(
        name=name,
        traces=tuple(traces),
        texts=texts,
        stacks=stacks,
        streams=tuple(tables.streams),
        pools=tuple(tables.pools),
        annotations=annotations,
        settings=_settings(file),
        notes=tuple(notes),
        file_bytes=file_bytes,
    )


def _as_mapping(data: Any) -> dict[str, Any]:
    """Return the mapping of a complete snapshot.

    Raises:
        FileError: the data is neither that nor a list of segments.
    """
    first = data[0] if type(data) is list and data else None
    if type(first) is dict and "total_size" in first:
        return {"segments": data}
    keys = ("segments", "device_traces", "host_traces")
    if type(data) is dict and any(key in data for key in keys):
        return data
    content = error_text(data)
    if type(data) is dict:
        names = ", ".join(map(error_text, list(data)[:6]))
        content = f"a mapping with {names or 'nothing'}"
    raise FileError(
        f"a pickle, but no memory snapshot: it holds {content}; a snapshot is a mapping "
        "with segments and device_traces, as torch.cuda.memory._dump_snapshot writes it"
    )


# -- devices ---------------------------------------------------------------------------


def _device_recordings(file: SnapshotFile) -> list[_Recording]:
    """Return the content of each GPU that has events or segments, by its index."""
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
    file: SnapshotFile, notes: list[str], *, needed: bool
) -> list[_Recording]:
    """Return what the file holds of pinned host memory.

    Content that cannot be read becomes a note, unless there is nothing else in the file.

    Args:
        needed: the file holds nothing else.

    Raises:
        FileError: it cannot be read, and is needed.
    """
    try:
        segments = convert_value(
            file.host_segments or [], list[SegmentEntry], "host_segments"
        )
        traces = _traces(file.host_traces, "host_traces")
    except FileError as error:
        if needed:
            raise
        notes.append(_unreadable_host(file, error))
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


def _unreadable_host(file: SnapshotFile, error: FileError) -> str:
    """Return the note on pinned host memory that cannot be shown."""
    segment_count = len(file.host_segments or ())
    traces = [trace for trace in file.host_traces or () if type(trace) is list]
    event_count = sum(map(len, traces))
    return (
        f"the file also tells of pinned host memory ({segment_count:,} segments, "
        f"{event_count:,} events), which is not shown: {error}"
    )


def _traces(lists: list[Any] | None, key: str) -> list[list[Any]]:
    """Return the lists of entries under a key of the file.

    Raises:
        FileError: it holds other values.
    """
    lists = lists or []
    if lists and all(type(entry) is dict for entry in lists):
        return [lists]
    traces = [[] if trace is None else trace for trace in lists]
    if any(type(trace) is not list for trace in traces):
        raise FileError(f"{key} holds something that is no list of entries")
    return traces


def _read_all_events(
    recordings: list[_Recording],
    file: SnapshotFile,
    tables: Tables,
    budget: Budget,
    notes: list[str],
    progress: Progress,
    *,
    consume: bool,
) -> dict[int, Events]:
    """Return the events of each device. Raises FileError.

    Those of pinned host memory that cannot be read become a note, if there are others.
    """
    total = max(sum(len(recording.entries) for recording in recordings), 1)
    done = 0
    events: dict[int, Events] = {}
    for recording in recordings:
        on_read = _progress_of_events(progress, done, total)
        done += len(recording.entries)
        try:
            events[recording.device] = read_events(
                recording.entries, recording.name, tables, budget, on_read
            )
        except FileError as error:
            if recording.device >= 0 or len(recordings) == 1:
                raise
            notes.append(_unreadable_host(file, error))
        if consume:
            recording.entries.clear()
    return events


def _progress_of_events(
    progress: Progress, done: int, total: int
) -> Callable[[int], None]:
    """Return a function that reports how many events of one more device are read."""

    def on_read(count: int) -> None:
        progress("reading events", _READ_SHARE * (done + count) / total)

    return on_read


def _make_trace(
    recording: _Recording, events: Events, tables: Tables, notes: list[str]
) -> Trace:
    """Return the history of one device. Raises FileError."""
    device = recording.device
    segments, blocks = read_segments(recording.segments, tables)
    allocations, odd_count = pair_events(
        events,
        blocks,
        np.repeat(segments.stream, segments.blocks),
        np.repeat(segments.pool, segments.blocks),
    )
    spans = make_spans(events, segments)
    fill_pools(allocations, events, segments)
    _check_total(device, "allocations", allocations.size, SIZE_LIMIT)
    _check_total(device, "reserved ranges", spans.size, SPAN_LIMIT)
    is_early = allocations.start < 0
    early_count = int(is_early.sum())
    if early_count:
        early_gib = int(allocations.size[is_early].sum()) / 2**30
        notes.append(
            f"{device_text(device)}: {early_count:,} allocations ({early_gib:.2f} GiB) were "
            "live before the trace begins"
        )
    if odd_count:
        notes.append(
            f"{device_text(device)}: {odd_count:,} allocations lack their alloc or their "
            "free in the trace (was recording paused?); they are shown from its beginning, "
            "or as long as their address is not used again"
        )
    return Trace(device, events, allocations, spans, segments, blocks)


def _check_total(device: int, plural: str, sizes: np.ndarray, limit: int) -> None:
    """Raise FileError if sums of sizes, and offsets in the address space, overflow."""
    if float(np.sum(sizes, dtype=np.float64)) >= limit:
        raise FileError(
            f"{device_text(device)}: the sizes of its {plural} are together more than any "
            "machine hands out"
        )


# -- texts for the user ----------------------------------------------------------------


def _settings(file: SnapshotFile) -> dict[str, str]:
    """Return the allocator's settings as texts."""
    settings: dict[str, str] = {}
    for key, value in list((file.allocator_settings or {}).items())[:100]:
        if type(key) is not str or type(value) not in (str, bool, int, float):
            continue
        text = value if type(value) is str else error_text(value)
        settings[_legible(key[:200])] = _legible(text[:200])
    return settings


def _legible(text: str) -> str:
    """Return a text that can be written as UTF-8.

    Halves of characters, which a pickle can hold, become "?".
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def _read_annotations(file: SnapshotFile, notes: list[str]) -> tuple[Annotation, ...]:
    """Return the annotations; those that are none are left out, with a note."""
    annotations = []
    fault = ""
    entries = file.external_annotations or []
    for entry in entries:
        try:
            annotation = convert_value(entry, Annotation, "annotation")
        except FileError as error:
            fault = fault or str(error)
            continue
        annotations.append(_legible_annotation(annotation))
    bad_count = len(entries) - len(annotations)
    if bad_count:
        if bad_count == 1:
            count = "one annotation is"
        else:
            count = f"{bad_count:,} are"
        of_all = f"of {count_text(len(entries), 'annotation')} {count} left out"
        notes.append(_legible(f"{of_all}: {fault[:MAX_LETTERS]}"))
    return tuple(annotations)


def _legible_annotation(annotation: Annotation) -> Annotation:
    """Return an annotation whose texts are short and can be written as UTF-8."""
    return replace(
        annotation,
        name=_legible(annotation.name[:MAX_LETTERS]),
        stage=_legible(annotation.stage[:MAX_LETTERS]),
    )
