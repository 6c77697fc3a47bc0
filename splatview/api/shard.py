"""Which part of a scene a process publishes, and which processes train it together, found without asking any."""

from __future__ import annotations

import functools
import hashlib
import operator
import os
import sys
from pathlib import Path
from typing import Any

from splatview_ipc.control.limits import MAX_SHARDS

GROUP = "SPLATVIEW_GROUP"
_LAUNCHED = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun and what follows its rules (Lightning, Accelerate, DeepSpeed, Ray) tell all ranks of one training. The
port alone tells two trainings of one machine apart: only one can listen on it."""
_SLURM = ("SLURM_JOB_ID", "SLURM_STEP_ID")
_MPI = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")


def checked_shard(shard: Any) -> tuple[int, int]:
    """The rank and the number of ranks. Raises TypeError, ValueError."""
    if not isinstance(shard, (tuple, list)) or len(shard) != 2 or any(isinstance(n, bool) for n in shard):
        raise TypeError(f"shard is {_shown(shard)}, not a tuple of two ints: this process's rank, and how many there "
                        "are, such as (0, 4)")
    try:
        rank, world = (operator.index(n) for n in shard)
    except TypeError:
        raise TypeError(f"shard is {_shown(shard)}; both must be ints: (rank, world)") from None
    if not 1 <= world <= MAX_SHARDS:
        raise ValueError(f"shard=({rank}, {world}): a scene has 1 to {MAX_SHARDS} shards")
    if not 0 <= rank < world:
        raise ValueError(f"shard=({rank}, {world}): ranks go from 0 to {world - 1}")
    return rank, world


def group_of_this_process() -> str:
    """16 hexadecimal digits, the same in all processes of one training, and in those of no other.

    From SPLATVIEW_GROUP where that is set; otherwise from what the launcher told all ranks; otherwise they are those
    that one process started with the same script. Nobody is asked, and nothing is awaited.
    """
    text = os.environ.get(GROUP) or "\n".join(_told() or _started_by(os.getpid()))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _told() -> list[str]:
    """What the launcher told; nothing where that does not tell two trainings apart."""
    environ = os.environ
    if environ.get("MASTER_PORT"):
        names = _LAUNCHED
    elif environ.get("SLURM_STEP_ID") and environ.get("SLURM_PROCID"):  # a job alone may start several trainings
        names = _SLURM
    else:
        names = tuple(name for name in _MPI if environ.get(name))[:1]
    return [f"{name}={environ.get(name, '')}" for name in names]


@functools.lru_cache(maxsize=1)
def _started_by(_pid: int) -> list[str]:
    """The parent, with when it began, as process ids are used again; and the script. For this process, as it was when
    it asked first: its parent may end before it does."""
    parent = os.getppid()
    try:
        began = Path(f"/proc/{parent}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):  # it has ended, or /proc is closed to us
        began = ""
    script = os.path.abspath(sys.argv[0]) if sys.argv and sys.argv[0] not in ("", "-c") else ""
    return [f"parent={parent}", f"began={began}", f"script={script}"]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
