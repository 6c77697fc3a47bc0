"""Memory that this process can take before the kernel refuses it, or kills for it."""

from __future__ import annotations

import re
from pathlib import Path


def available_bytes(root: str | Path = "/") -> int | None:
    """Return the bytes that can still be allocated, at least 0; None if unknown.

    The least of the machine's MemAvailable and what each cgroup (version 2) around this
    process has left; containers and batch systems limit those. Cached file pages that
    are not in use count as free, swap does not.

    Args:
        root: the folder that holds `proc` and `sys`; another one than `/` is for tests.
    """
    root = Path(root)
    limits = []
    machine_kb = _find_number(r"^MemAvailable:\s+(\d+) kB", root / "proc/meminfo")
    if machine_kb is not None:
        limits.append(machine_kb << 10)
    top = root / "sys/fs/cgroup"
    group = top
    cgroups = _read_text(root / "proc/self/cgroup")
    own_path = re.search(r"^0::(/.*)$", cgroups, re.MULTILINE)
    if own_path:
        group = top / own_path[1].strip("/")
    while group.is_relative_to(top):
        group_bytes = _available_in_group(group)
        if group_bytes is not None:
            limits.append(group_bytes)
        group = group.parent
    if not limits:
        return None
    return max(0, min(limits))


def _available_in_group(group: Path) -> int | None:
    """Return the bytes that a cgroup has left, perhaps below 0.

    Returns None for a group without a limit.
    """
    texts = [_read_text(group / name) for name in ("memory.max", "memory.high")]
    limits = [int(text) for text in texts if text.strip().isdecimal()]
    used = _read_text(group / "memory.current").strip()
    if not limits or not used.isdecimal():
        return None
    cached = _find_number(r"^inactive_file (\d+)$", group / "memory.stat") or 0
    return min(limits) - max(0, int(used) - cached)


def _find_number(pattern: str, path: Path) -> int | None:
    """Return the number that a pattern finds in the lines of a file."""
    match = re.search(pattern, _read_text(path), re.MULTILINE)
    return int(match[1]) if match else None


def _read_text(path: Path) -> str:
    """Return a file's text, empty if it cannot be read.

    The reason may be another system, a controller that is missing, or missing rights.
    """
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
