"""Shards of a scene, and the processes that train a scene together."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

from splatview.adapters import checks
from splatview_ipc.control.limits import MAX_SHARDS

GROUP_VARIABLE = "SPLATVIEW_GROUP"
_TORCHRUN_VARIABLES = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
"""Set by torchrun and what follows its rules (Lightning, Accelerate, DeepSpeed, Ray) in
all ranks of one training.

The port alone tells two trainings of one machine apart: only one can listen on it.
"""
_SLURM_VARIABLES = ("SLURM_JOB_ID", "SLURM_STEP_ID")
_MPI_VARIABLES = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")
_START_TIME_FIELD = 19
"""Index of the start time in /proc/PID/stat, after the name of the program."""


def checked_shard(shard: Any) -> tuple[int, int]:
    """Return the rank and the number of ranks. Raises TypeError, ValueError."""
    if not isinstance(shard, (tuple, list)) or len(shard) != 2:
        raise TypeError(
            f"shard is {str(shard)[:60]}, not a tuple of two ints: this process's rank, "
            "and how many there are, such as (0, 4)"
        )
    rank, world = shard
    world = checks.integer("shard: the number of ranks", world, 1, MAX_SHARDS)
    return checks.integer("shard: the rank", rank, 0, world - 1), world


def group_of_this_process() -> str:
    """Return 16 hexadecimal digits, the same in all processes of one training only.

    They are made of SPLATVIEW_GROUP where that is set, else of the launcher's variables,
    else of the parent process and the script.
    """
    text = os.environ.get(GROUP_VARIABLE)
    if not text:
        text = "\n".join(_launcher_facts() or _parent_facts(os.getpid()))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _launcher_facts() -> list[str]:
    """Return the variables by which a launcher names the training; none without one."""
    environ = os.environ
    if environ.get("MASTER_PORT"):
        names = _TORCHRUN_VARIABLES
    elif environ.get("SLURM_STEP_ID") and environ.get("SLURM_PROCID"):
        # A job without steps may start several trainings.
        names = _SLURM_VARIABLES
    else:
        names = tuple(name for name in _MPI_VARIABLES if environ.get(name))[:1]
    return [f"{name}={environ.get(name, '')}" for name in names]


@functools.lru_cache(maxsize=1)
def _parent_facts(_pid: int) -> list[str]:
    """Return the parent process, the time of its start, and the script.

    The start tells processes apart that had the same id. The facts are those of the first
    call, since the parent may end before this process.
    """
    parent = os.getppid()
    try:
        stat = Path(f"/proc/{parent}/stat").read_text(errors="replace")
        started = stat.rpartition(")")[2].split()[_START_TIME_FIELD]
    except (OSError, IndexError):
        # It has ended, or /proc is closed to us.
        started = ""
    script = ""
    if sys.argv and sys.argv[0] not in ("", "-c"):
        script = os.path.abspath(sys.argv[0])
    return [f"parent={parent}", f"began={started}", f"script={script}"]
