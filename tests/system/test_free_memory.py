"""The free memory that limits follow: /proc and cgroups as files in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from splatview_ipc.system.free_memory import available_bytes

_MIB = 1 << 20
_PROC = {
    "proc/meminfo": (
        f"MemTotal: {16 << 20} kB\n"
        "MemFree: 100 kB\n"
        f"MemAvailable:   {8 << 20} kB\n"
        "HugePages_Total: 0\n"
    ),
    "proc/self/cgroup": "0::/user.slice/job\n",
}
"""A machine with 8 GiB left, and a process in the cgroup `job`."""
_JOB = "sys/fs/cgroup/user.slice/job"
_SLICE = "sys/fs/cgroup/user.slice"


def _write_files(root: Path, files: dict[str, str]) -> Path:
    """Write a folder that looks as / does to a process; return it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def _cgroup(
    folder: str, *, maximum: object, current: int, high: object = "max", stat: str = ""
) -> dict[str, str]:
    """Return the files of a cgroup by path."""
    return {
        f"{folder}/memory.max": f"{maximum}\n",
        f"{folder}/memory.high": f"{high}\n",
        f"{folder}/memory.current": f"{current}\n",
        f"{folder}/memory.stat": f"anon 5\n{stat}\n",
    }


def test_available_bytes_is_unknown_without_proc(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None


def test_available_bytes_is_the_machines_when_no_cgroup_limits(tmp_path: Path) -> None:
    assert available_bytes(_write_files(tmp_path, _PROC)) == 8 << 30


@pytest.mark.parametrize("limit", ["maximum", "high"])
def test_available_bytes_follows_each_limit_of_a_cgroup(
    limit: str, tmp_path: Path
) -> None:
    limits: dict[str, object] = {"maximum": "max", "high": "max"}
    limits[limit] = 1000 * _MIB
    files = _cgroup(
        _JOB,
        **limits,
        current=700 * _MIB,
        stat=f"inactive_file {300 * _MIB}\nactive_file 9",
    )
    assert available_bytes(_write_files(tmp_path, _PROC | files)) == 600 * _MIB


def test_available_bytes_follows_the_tightest_cgroup_above(tmp_path: Path) -> None:
    job = _cgroup(_JOB, maximum=1000 * _MIB, current=100 * _MIB)
    parent = _cgroup(_SLICE, maximum=2000 * _MIB, current=1950 * _MIB)
    root = _write_files(tmp_path, _PROC | job | parent)
    assert available_bytes(root) == 50 * _MIB
