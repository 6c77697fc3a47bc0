"""The program that reads snapshots for the viewer: `python -m splatview.viewer_app.memory.loading.worker JOB`.

On its own it shares no lock with the viewer's drawing, gives all memory back, can be ended at any time, and what a
hostile file makes it do stays here: its memory is bounded by what it has read. It opens nothing by itself: the files
are descriptors that it inherits. It says on stdout how far it is, and ends when its stdin does.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatview.ipc.free_memory import available_bytes
from splatview.viewer_app.errors import FileError
from splatview.viewer_app.files import BOMB_BYTES, BOMB_RATIO

if TYPE_CHECKING:
    from splatview.viewer_app.memory.loading.entries import Tables
    from splatview.viewer_app.memory.loading.opening import Opened
    from splatview.viewer_app.memory.model import Snapshot

BASE = 3 << 29
"""Bytes of address space that the program may take in any case."""
PER_BYTE = 12
"""And for each byte of the pickle that it has read."""
CPU_BASE, CPU_PER_MB = 60, 2
"""Seconds of CPU time that the program may take in any case, and for each megabyte that it has read: ten times what
real snapshots take. Lists that hold each other twice, 60 deep, can be written in 400 bytes; their hash never ends."""
SHARE, LEAST = 0.9, 512 << 20
"""The part of the free memory that the program may take, and what it may take in any case: libraries reserve address
space that they do not use."""
PERIOD = 0.05


def main() -> int:
    job: dict[str, Any] = json.loads(sys.argv[1])
    gc.disable()  # what is read has no cycles, and looking for some takes longer than reading
    threading.Thread(target=_end_with_viewer, daemon=True).start()
    out, bound = _Out(), _Bound()
    try:
        snapshot = read_job(job, out, bound)
        from splatview.viewer_app.memory.loading.columns import write

        _limit_file(BOMB_BYTES + 8 * snapshot.file_bytes)
        write(snapshot, job["out"], lambda fraction: out.told("writing columns", 0.95 + 0.05 * fraction))
    except FileError as e:
        out.say("error", str(e))
    except MemoryError:
        out.say("error", bound.free_text or
                "damaged, or made to exhaust memory: it asks for more than a snapshot of its size takes")
    except RecursionError:
        out.say("error", "damaged: it is nested too deeply for a snapshot")
    except OSError as e:
        out.say("error", f"cannot be read: {e.strerror or e}")
    else:
        out.say("done", "")
    sys.stdout.flush()
    os._exit(0)  # taking everything apart would take longer than reading it


def read_job(job: dict[str, Any], out: _Out, bound: _Bound) -> Snapshot:
    """What the files of a job hold. Raises FileError, and OSError where they cannot be read."""
    if job["kind"] == "snapviewer":
        from splatview.viewer_app.memory.loading.snapviewer import read_folder

        bound.at(BOMB_RATIO * sum(os.fstat(fd).st_size for fd in (job["allocations"], job["elements"])) // PER_BYTE)
        return read_folder(job["allocations"], job["elements"], lambda w, f: out.told(w, 0.95 * f))
    from splatview.viewer_app.memory.loading.entries import Tables
    from splatview.viewer_app.memory.loading.machine import is_worth
    from splatview.viewer_app.memory.loading.made import read_quickly
    from splatview.viewer_app.memory.loading.opening import Opened, unpickle

    def opened() -> Opened:
        return Opened(job["file"], lambda fraction: out.told("reading", 0.6 * fraction), bound.at)

    source = opened()
    if is_worth(source):
        try:
            return _converted(source, *read_quickly(source.stream.readinto), out)
        except Exception:  # the general way reads more, and has the words for what is wrong
            pass
        os.lseek(job["file"], 0, os.SEEK_SET)
        source = opened()
    return _converted(source, unpickle(source), Tables(), out)


def _converted(source: Opened, data: Any, tables: Tables, out: _Out) -> Snapshot:
    from splatview.viewer_app.memory.loading.convert import convert

    return convert(data, "", lambda what, fraction: out.told(what, 0.6 + 0.35 * fraction), consume=True,
                   file_bytes=source.stream.count, tables=tables)


class _Out:
    """Lines of JSON on stdout, not too many of them."""

    def __init__(self) -> None:
        self._next = self._far = 0.0

    def told(self, what: str, fraction: float) -> None:
        """Never less than before, though a file that the quick way cannot read is read again."""
        now, self._far = time.monotonic(), max(self._far, fraction)
        if now >= self._next:
            self._next = now + PERIOD
            self.say("progress", what, round(self._far, 4))

    def say(self, *words: Any) -> None:
        sys.stdout.write(json.dumps(words) + "\n")
        sys.stdout.flush()


class _Bound:
    """How much memory the program may take: the more, the more of the file it has read."""

    def __init__(self) -> None:
        import resource

        self._set = resource.setrlimit
        self._kind, self._cpu = resource.RLIMIT_AS, resource.RLIMIT_CPU
        self._cpu_hard = resource.getrlimit(self._cpu)[1]  # negative: there is none
        self._seconds = 0
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        hard = resource.getrlimit(self._kind)[1]
        self._top = pages if hard == resource.RLIM_INFINITY else min(pages, hard)
        self._hard = hard
        self.free_text = ""
        """The error for memory that ran out, where the free memory was the limit, not the size of the file."""
        self._free = available_bytes()
        if self._free is not None:
            with open("/proc/self/statm", encoding="ascii") as f:
                used = int(f.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            self._top = min(self._top, used + max(int(SHARE * self._free), LEAST))
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        self.at(0)

    def at(self, count: int) -> None:
        most = BASE + PER_BYTE * count
        if most > self._top and self._free is not None:
            self.free_text = (f"it needs more memory than the {self._free / 1e9:,.1f} GB that are free: end other "
                              "programs, or record fewer events (max_entries)")
        self._set(self._kind, (min(most, self._top), self._hard))
        seconds = CPU_BASE + CPU_PER_MB * count // 1_000_000
        if seconds != self._seconds:
            self._seconds = seconds
            self._set(self._cpu, (seconds if self._cpu_hard < 0 else min(seconds, self._cpu_hard), self._cpu_hard))


def _limit_file(size: int) -> None:
    import resource

    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))


def _end_with_viewer() -> None:
    try:
        while os.read(0, 4096):
            pass
    finally:
        os._exit(3)


if __name__ == "__main__":
    sys.path[:] = [p for p in sys.path if p not in ("", str(Path.cwd()))]
    sys.exit(main())
