"""The memory that this process can still take before the kernel refuses it or kills a process for it."""

from __future__ import annotations

import re
from pathlib import Path


def available_bytes(root: str | Path = "/") -> int | None:
    """Return the bytes that can still be allocated, at least 0, or None if nothing is known.

    The least of the machine's MemAvailable and what each cgroup (version 2) around this process has left; containers
    and batch systems limit those. Cached file pages that are not in use count as free, swap does not.

    Args:
        root: the folder that holds `proc` and `sys`; another one than `/` is for tests.
    """
    root = Path(root)
    machine = re.search(
        r"^MemAvailable:\s+(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE
    )
    found = [int(machine[1]) << 10] if machine else []
    own = re.search(r"^0::(/.*)$", _text(root / "proc/self/cgroup"), re.MULTILINE)
    group = root / "sys/fs/cgroup" / (own[1].strip("/") if own else "")
    top = root / "sys/fs/cgroup"
    while group.is_relative_to(top):
        texts = [_text(group / name).strip() for name in ("memory.max", "memory.high")]
        limits = [int(text) for text in texts if text.isdecimal()]
        used = _text(group / "memory.current").strip()
        cached = re.search(
            r"^inactive_file (\d+)$", _text(group / "memory.stat"), re.MULTILINE
        )
        if limits and used.isdecimal():
            found.append(
                min(limits) - max(0, int(used) - (int(cached[1]) if cached else 0))
            )
        group = group.parent
    return max(0, min(found)) if found else None


def _text(path: Path) -> str:
    """Return a file's text, empty if it cannot be read (another system, no such controller, no right)."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
