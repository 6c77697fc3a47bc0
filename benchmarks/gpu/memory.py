"""GPU memory as the driver accounts for it, through nvidia-smi."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ElementTree

MIB = float(1 << 20)


def of_processes() -> dict[int, tuple[str, float]]:
    """For each process on the first GPU that nvidia-smi names: its sort ("C", "G", "C+G") and its MiB."""
    found: dict[int, tuple[str, float]] = {}
    for process in _report().iter("process_info"):
        try:
            pid = int(process.findtext("pid", ""))
            used = float(process.findtext("used_memory", "").split()[0])
        except (ValueError, IndexError):  # "N/A" where the driver does not tell
            continue
        sort, before = found.get(pid, ("", 0.0))
        found[pid] = (sort or process.findtext("type", ""), max(before, used))
    return found


def used() -> float:
    """MiB in use on the first GPU, by anybody."""
    text = _report().findtext("gpu/fb_memory_usage/used", "")
    return float(text.split()[0])


def of_process(pid: int) -> tuple[str, float] | None:
    """One process's sort and MiB; None where nvidia-smi does not name it (containers often hide processes)."""
    return of_processes().get(pid)


def _report() -> ElementTree.Element:
    text = subprocess.run(["nvidia-smi", "-q", "-x", "-i", "0"], check=True, capture_output=True, text=True,
                          timeout=30).stdout
    return ElementTree.fromstring(text)
