"""The memory that this process can still take before the kernel refuses it or ends a process for it.

    available = available_bytes()  # None where the system does not report it

The least of three limits: the machine's free memory (MemAvailable), every cgroup above the process (version 1 or 2;
containers and batch systems set these), and the process's own address space and data limits. Swap is not counted.
Only files of /proc and /sys are read, so the answer is also right in a child process that inherits a limit.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

UNLIMITED = 1 << 60
"""A cgroup of version 1 without a limit reports a number near 2^63."""


def available_bytes(root: str | Path = "/") -> int | None:
    """Return the bytes that can still be allocated, at least 0, or None if nothing is known.

    Args:
        root: the folder that holds `proc` and `sys`; another one than `/` is for tests.
    """
    root = Path(root)
    status = _numbers(_text(root / "proc/self/status"))
    found = [_numbers(_text(root / "proc/meminfo")).get("MemAvailable")]
    for limit, used in (("Max address space", "VmSize"), ("Max data size", "VmData")):
        most = re.search(rf"^{limit}\s+(\d+)", _text(root / "proc/self/limits"), re.MULTILINE)
        if most and used in status:
            found.append(int(most[1]) - status[used])
    found += _cgroups(root)
    known = [n for n in found if n is not None]
    return max(0, min(known)) if known else None


def _cgroups(root: Path) -> list[int]:
    """Return what each cgroup around this process has left, from its own to the top of what is mounted."""
    own = _text(root / "proc/self/cgroup")
    version_2 = re.search(r"^0::(/.*)$", own, re.MULTILINE)
    version_1 = re.search(r"^\d+:(?:[^:\n]*,)?memory(?:,[^:\n]*)?:(/.*)$", own, re.MULTILINE)
    found = []
    for line in _text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        top, mounted = (re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), f) for f in fields[3:5])
        if kind[0] == "cgroup2" and version_2:
            found += _left_up(root, mounted, _below(version_2[1], top), ("memory.max", "memory.high"),
                              "memory.current", "inactive_file")
        elif kind[0] == "cgroup" and "memory" in kind[2].split(",") and version_1:
            found += _left_up(root, mounted, _below(version_1[1], top), ("memory.limit_in_bytes",),
                              "memory.usage_in_bytes", "total_inactive_file")
    return found


def _below(path: str, top: str) -> PurePosixPath:
    """Return the cgroup's path below the mounted folder; a container sees its own cgroup as the mount itself."""
    try:
        inner = PurePosixPath(path).relative_to(top)
    except ValueError:
        return PurePosixPath()
    return PurePosixPath() if ".." in inner.parts else inner


def _left_up(root: Path, mounted: str, inner: PurePosixPath, limits: tuple[str, ...], used: str,
             reclaimable: str) -> list[int]:
    """Return limit minus use at each level. Cached file pages that are not in use count as free."""
    found = []
    for level in (inner, *inner.parents):
        folder = root / mounted.lstrip("/") / level
        most = [int(text) for name in limits if (text := _text(folder / name).strip()).isdecimal()]
        use = _text(folder / used).strip()
        if not most or min(most) >= UNLIMITED or not use.isdecimal():
            continue
        cached = re.search(rf"^{reclaimable} (\d+)$", _text(folder / "memory.stat"), re.MULTILINE)
        found.append(min(most) - max(0, int(use) - (int(cached[1]) if cached else 0)))
    return found


def _numbers(text: str) -> dict[str, int]:
    """Return the entries `Name: 123 kB` of a file of /proc, in bytes."""
    return {m[1]: int(m[2]) << 10 for m in re.finditer(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}


def _text(path: Path) -> str:
    """Return a file's text, empty if it cannot be read (another system, no such controller, no right)."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
