"""Reads the peaks of a folder's snapshots, one for each process of a training.

The files are read one after the other, each in the sandbox, which answers with a few
numbers: a folder never takes more memory than its largest file.
"""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from splatview_ipc.system.terminal import printable
from splatview_viewer.core.errors import FileError
from splatview_viewer.core.jobs import Cancelled
from splatview_viewer.formats import find_format
from splatview_viewer.formats.common import Format, Progress, Start, fault_text, silent
from splatview_viewer.formats.sandbox import run
from splatview_viewer.snapshot.loading import (
    FORMAT,
    limits_of,
    prepare,
    read_into,
    store,
)
from splatview_viewer.snapshot.model import (
    busiest_device,
    measure_peak,
    reserved_bytes,
)

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from splatview_viewer.formats.sandbox import File
    from splatview_viewer.snapshot.model import MemorySnapshot

MAX_RANKS = 4096
"""Files of a folder that are read; the first by their ranks."""
_SUFFIXES = (".pickle", ".pkl", ".pickle.gz", ".pkl.gz")
_RANK = re.compile(r"rank[_.-]?(\d{1,9})", re.IGNORECASE)
_LAST_DIGITS = re.compile(r"(\d{1,9})")
_MAX_SNIFFED = 8
"""Files of a folder that are looked at to find whether it holds snapshots."""
_MAX_CACHED = 2 * MAX_RANKS

_NonNegative = Annotated[int, Meta(ge=0)]


class RankMemory(msgspec.Struct, frozen=True, tag="rank"):
    """The memory of one process, on its busiest device."""

    device: Annotated[int, Meta(ge=-(2**15), lt=2**15)]
    events: _NonNegative
    allocations: _NonNegative
    peak_bytes: _NonNegative
    """Most live bytes, those after `peak_moment` events."""
    peak_moment: _NonNegative
    reserved_bytes: _NonNegative
    """Most reserved bytes."""
    end_bytes: _NonNegative
    """Live bytes at the end."""


@dataclass(frozen=True)
class Rank:
    """One file of a folder."""

    path: Path
    index: int | None
    """The rank in its name; None: it has none."""
    memory: RankMemory | None
    """None: the file cannot be read."""
    fault: str = ""
    """The reason why it cannot be read."""

    @property
    def name(self) -> str:
        """The name of the file, for users."""
        return printable(self.path.name)


@dataclass(frozen=True)
class RankTable:
    """The snapshots of a folder, by their ranks."""

    folder: Path
    ranks: tuple[Rank, ...]
    hidden_count: int = 0
    """Files beyond MAX_RANKS, which were not read."""

    @cached_property
    def highest(self) -> int | None:
        """The index of the rank with the highest peak; None: none could be read."""
        peaks = [
            (rank.memory.peak_bytes, -index)
            for index, rank in enumerate(self.ranks)
            if rank.memory is not None
        ]
        if not peaks:
            return None
        return -max(peaks)[1]

    @cached_property
    def index_of_path(self) -> dict[Path, int]:
        """The index in `ranks` of each file."""
        return {rank.path: index for index, rank in enumerate(self.ranks)}

    @cached_property
    def unreadable_count(self) -> int:
        """Files that cannot be read."""
        return sum(rank.memory is None for rank in self.ranks)


def rank_of(name: str) -> int | None:
    """Return the rank in the name of a file: 3 for "rank3_step100.pickle".

    The last number of a name without the word; None for one without numbers.
    """
    named = _RANK.search(name)
    if named is not None:
        return int(named[1])
    digits = _LAST_DIGITS.findall(name)
    if digits:
        return int(digits[-1])
    return None


def snapshot_files(folder: Path) -> list[Path]:
    """Return the files of a folder that are named like snapshots, by their ranks."""
    with os.scandir(folder) as entries:
        names = [
            entry.name
            for entry in entries
            if not entry.name.startswith(".") and entry.name.lower().endswith(_SUFFIXES)
        ]
    return [folder / name for name in sorted(names, key=_rank_order)]


def is_rank_folder(start: Start) -> bool:
    """Return True for a folder in which one of the first files is a snapshot."""
    if not start.path.is_dir():
        return False
    for path in snapshot_files(start.path)[:_MAX_SNIFFED]:
        with suppress(FileError, OSError):
            find_format(path, formats=(FORMAT,))
            return True
    return False


def _rank_order(name: str) -> tuple[bool, int, str]:
    """Return what files are sorted by: names without a rank are last."""
    rank = rank_of(name)
    return rank is None, rank or 0, name


def rank_files(folder: Path) -> list[Path]:
    """Return the snapshots of a folder, by their ranks.

    Raises:
        FileError: there are none, or the folder cannot be read.
    """
    try:
        paths = snapshot_files(folder)
    except OSError as e:
        raise FileError(f"{folder}: cannot be read: {e.strerror or e}") from None
    if not paths:
        raise FileError(
            f"{folder}: a folder without memory snapshots (*.pickle, *.pkl, also packed: "
            "*.gz); name a folder that torch.cuda.memory._dump_snapshot wrote into, or a "
            "file"
        )
    return paths


def scan_ranks(folder: Path, progress: Progress = silent) -> RankTable:
    """Return the peaks of a folder's snapshots.

    A file that cannot be read is a row with its reason.

    Args:
        folder: holds the files.
        progress: called with the file that is read and how far all are (0 to 1).
            Cancelled ends the reading.

    Raises:
        FileError: the folder holds no snapshot, or cannot be read.
    """
    all_paths = rank_files(folder)
    paths = all_paths[:MAX_RANKS]
    ranks = []
    for index, path in enumerate(paths):

        def on_read(
            _: str, fraction: float, index: int = index, name: str = path.name
        ) -> None:
            progress(f"reading {printable(name)}", (index + fraction) / len(paths))

        ranks.append(_scan(path, on_read))
    return RankTable(folder, tuple(ranks), len(all_paths) - len(paths))


RANKS_FORMAT = Format(
    "ranks",
    (),
    "folders of PyTorch's memory snapshots, one for each process",
    is_rank_folder,
    scan_ranks,
    parts=snapshot_files,
)


_memory_of_files: dict[str, RankMemory] = {}
"""What was read while this program runs, by `store.cache_key`."""
_lock = threading.Lock()


def _scan(path: Path, progress: Progress) -> Rank:
    """Return the row of one file."""
    index = rank_of(path.name)
    try:
        return Rank(path, index, _read_memory(path, progress))
    except Cancelled:
        raise
    # Readers may raise anything.
    except Exception as e:
        return Rank(path, index, None, fault_text(e))


def _read_memory(path: Path, progress: Progress) -> RankMemory:
    """Return the numbers of a file, read unless they are known.

    Raises:
        FileError: it is damaged, or no snapshot.
        OSError: it cannot be opened.
    """
    key = store.cache_key(path)
    with _lock:
        known = _memory_of_files.get(key)
    if known is not None:
        progress("", 1.0)
        return known
    memory = None
    columns_folder = store.columns_folder()
    if columns_folder is not None:
        snapshot = store.load_cached(columns_folder, key, path.name)
        if snapshot is not None:
            memory = measure_rank(snapshot)
    if memory is None:
        memory, _ = run(
            read_rank,
            [path],
            limits_of(path),
            RankMemory,
            prepare=prepare,
            progress=progress,
        )
    with _lock:
        if len(_memory_of_files) >= _MAX_CACHED:
            _memory_of_files.clear()
        _memory_of_files[key] = memory
    return memory


def measure_rank(snapshot: MemorySnapshot) -> RankMemory:
    """Return the numbers of a snapshot. Raises FileError for an empty one."""
    if not snapshot.traces:
        raise FileError("it holds no events and no segments of any device")
    trace = snapshot.traces[busiest_device(snapshot)]
    peak = measure_peak(trace)
    return RankMemory(
        device=trace.device,
        events=len(trace.events),
        allocations=len(trace.allocations),
        peak_bytes=peak.peak_bytes,
        peak_moment=peak.peak_moment,
        reserved_bytes=int(reserved_bytes(trace).max()),
        end_bytes=peak.end_bytes,
    )


def read_rank(
    files: list[File], progress: Progress
) -> tuple[RankMemory, list[np.ndarray]]:
    """Read the numbers of a snapshot, in the sandbox. Raises FileError."""
    return read_into(measure_rank, files[0].path, progress), []
