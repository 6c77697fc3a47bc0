"""The part of a scene that a process publishes, and the processes that train it together."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

from splatview.adapters import checks
from splatview_ipc.control.limits import MAX_SHARDS

GROUP = "SPLATVIEW_GROUP"
_LAUNCHED = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
"""Set by torchrun and what follows its rules (Lightning, Accelerate, DeepSpeed, Ray) in all ranks of one training. The
port alone tells two trainings of one machine apart: only one can listen on it."""
_SLURM = ("SLURM_JOB_ID", "SLURM_STEP_ID")
_MPI = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")


def checked_shard(shard: Any) -> tuple[int, int]:
    """Return the rank and the number of ranks. Raises TypeError, ValueError."""
    if not isinstance(shard, (tuple, list)) or len(shard) != 2:
        raise TypeError(
            f"shard is {str(shard)[:60]}, not a tuple of two ints: this process's rank, and how many there "
            "are, such as (0, 4)"
        )
    world = checks.integer("shard: the number of ranks", shard[1], 1, MAX_SHARDS)
    return checks.integer("shard: the rank", shard[0], 0, world - 1), world


def group_of_this_process() -> str:
    """Return 16 hexadecimal digits, the same in all processes of one training, and in those of no other.

    They are made of SPLATVIEW_GROUP where that is set, else of the launcher's variables, else of the parent process and
    the script.
    """
    environ = os.environ
    if environ.get("MASTER_PORT"):
        names = _LAUNCHED
    elif environ.get("SLURM_STEP_ID") and environ.get(
        "SLURM_PROCID"
    ):  # a job alone may start several trainings
        names = _SLURM
    else:
        names = tuple(name for name in _MPI if environ.get(name))[:1]
    launched = [f"{name}={environ.get(name, '')}" for name in names]
    text = environ.get(GROUP) or "\n".join(launched or _started_by(os.getpid()))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


@functools.lru_cache(maxsize=1)
def _started_by(_pid: int) -> list[str]:
    """Return the parent, with when it began, as process ids are used again, and the script; as they were at the first
    call, since the parent may end before this process.
    """
    parent = os.getppid()
    try:
        began = (
            Path(f"/proc/{parent}/stat")
            .read_text(errors="replace")
            .rpartition(")")[2]
            .split()[19]
        )
    except (OSError, IndexError):  # it has ended, or /proc is closed to us
        began = ""
    if sys.argv and sys.argv[0] not in ("", "-c"):
        script = os.path.abspath(sys.argv[0])
    else:
        script = ""
    return [f"parent={parent}", f"began={began}", f"script={script}"]
