"""The program that reads snapshots for the viewer: `python -m splatview_viewer.kinds.snapshot.loading.worker JOB`.

On its own it shares no lock with the viewer's drawing, gives all memory back, can be ended at any time, and what a
hostile file makes it do stays here: its memory is bounded by what it has read. It opens nothing by itself: the files
are descriptors that it inherits. It says on stdout how far it is, and ends when its stdin does.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats import BOMB_BYTES
from splatview_viewer.formats.program_limits import Bound, Out, end_with_viewer, limit_file

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Snapshot

PER_BYTE = 12
"""Bytes of address space that the program may take for each byte of the pickle that it has read."""
CPU_BASE, CPU_PER_MB = 60, 2
"""Seconds of CPU time that the program may take in any case, and for each megabyte that it has read: ten times what
real snapshots take. Lists that hold each other twice, 60 deep, can be written in 400 bytes; their hash never ends."""


def main() -> int:
    job: dict[str, Any] = json.loads(sys.argv[1])
    gc.disable()  # what is read has no cycles, and looking for some takes longer than reading
    end_with_viewer()
    out, bound = Out(), Bound(PER_BYTE, CPU_BASE, CPU_PER_MB)
    try:
        snapshot = read_job(job, out, bound)
        from splatview_viewer.kinds.snapshot.loading.columns import write

        limit_file(BOMB_BYTES + 8 * snapshot.file_bytes)
        write(snapshot, job["out"], lambda fraction: out.told("writing columns", 0.95 + 0.05 * fraction))
    except FileError as e:
        out.say("error", str(e))
    except MemoryError:
        out.say("error", "damaged, or made to exhaust memory: it asks for more than a snapshot of its size takes"
                if bound.lacking is None else f"it needs more memory than the {bound.lacking / 1e9:,.1f} GB that are "
                "free: end other programs, or record fewer events (max_entries)")
    except RecursionError:
        out.say("error", "damaged: it is nested too deeply for a snapshot")
    except OSError as e:
        out.say("error", f"cannot be read: {e.strerror or e}")
    else:
        out.say("done", "")
    sys.stdout.flush()
    os._exit(0)  # taking everything apart would take longer than reading it


def read_job(job: dict[str, Any], out: Out, bound: Bound) -> Snapshot:
    """What the file of a job holds. Raises FileError, and OSError where it cannot be read."""
    from splatview_viewer.kinds.snapshot.loading.convert import convert
    from splatview_viewer.kinds.snapshot.loading.opening import Opened, unpickle

    source = Opened(job["file"], lambda fraction: out.told("reading", 0.6 * fraction), bound.at)
    data = unpickle(source)
    return convert(data, "", lambda what, fraction: out.told(what, 0.6 + 0.35 * fraction), consume=True,
                   file_bytes=source.stream.count)


if __name__ == "__main__":
    sys.path[:] = [p for p in sys.path if p not in ("", str(Path.cwd()))]
    sys.exit(main())
