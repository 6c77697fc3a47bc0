"""How much GPU memory a process has, while others on the same GPU come and go."""

from __future__ import annotations

import os
import subprocess

import torch

from support.wait import PATIENCE

MB = 1 << 20


def used(pid: int | None = None) -> int:
    """Bytes of GPU memory that a process has, this one by default, on all GPUs together, to the MiB.

    Where the driver does not list this process (in another PID namespace): what is in use on the whole GPU; and 0 if
    other tests run beside.
    """
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    listed, pid = _listed(), pid or os.getpid()
    if pid in listed or os.getpid() in listed or "PYTEST_XDIST_WORKER" in os.environ:
        return listed.get(pid, 0)
    free, total = torch.cuda.mem_get_info()
    return total - free


def _listed() -> dict[int, int]:
    try:
        lines = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                               capture_output=True, text=True, timeout=PATIENCE, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return {}
    found: dict[int, int] = {}
    for line in lines:
        pid, _, amount = line.partition(",")
        if pid.strip().isdigit() and amount.strip().isdigit():  # else "[N/A]"
            found[int(pid)] = found.get(int(pid), 0) + int(amount) * MB
    return found
