"""The free memory that limits follow: /proc and cgroups as files in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from splatview_ipc.system.free_memory import available_bytes

MIB = 1 << 20
V2_MOUNT = "30 23 0:26 {top} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
PROC = {
    "proc/meminfo": f"MemTotal: {16 << 20} kB\nMemFree: 100 kB\nMemAvailable:   {8 << 20} kB\nHugePages_Total: 0\n",
    "proc/self/status": f"Name:\tpython\nVmSize:\t {500 << 10} kB\nVmData:\t {200 << 10} kB\nThreads:\t1\n",
    "proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units\n"
    "Max data size             unlimited            unlimited            bytes\n"
    "Max address space         unlimited            unlimited            bytes\n",
    "proc/self/cgroup": "0::/user.slice/job\n",
    "proc/self/mountinfo": V2_MOUNT.format(top="/"),
}
JOB = "sys/fs/cgroup/user.slice/job"
SLICE = "sys/fs/cgroup/user.slice"


def tree(root: Path, **changed: str) -> Path:
    """A folder that looks as / does to a process in a cgroup; `changed` by path, with `__` in place of `/`."""
    for name, text in {
        **PROC,
        **{k.replace("__", "/"): v for k, v in changed.items()},
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def cgroup(folder: str, **files: object) -> dict[str, str]:
    return {
        f"{folder}/{name.replace('__', '.')}": f"{value}\n"
        for name, value in files.items()
    }


def test_available_bytes_is_the_machines_when_nothing_limits(tmp_path: Path):
    assert available_bytes(tmp_path) is None, "nothing is known"
    assert available_bytes(tree(tmp_path)) == 8 << 30


@pytest.mark.parametrize("name", ["memory__max", "memory__high"])
def test_available_bytes_follows_a_cgroup_of_version_2(name: str, tmp_path: Path):
    files = cgroup(
        JOB,
        memory__max="max",
        memory__high="max",
        memory__current=700 * MIB,
        memory__stat=f"anon 5\ninactive_file {300 * MIB}\nactive_file 9",
    )
    files |= cgroup(JOB, **{name: 1000 * MIB})
    assert available_bytes(tree(tmp_path, **files)) == 600 * MIB


def test_available_bytes_follows_the_tightest_cgroup_above(tmp_path: Path):
    files = cgroup(
        JOB,
        memory__max=1000 * MIB,
        memory__high="max",
        memory__current=100 * MIB,
        memory__stat="anon 5",
    )
    files |= cgroup(
        SLICE,
        memory__max=2000 * MIB,
        memory__high="max",
        memory__current=1950 * MIB,
        memory__stat="anon 5",
    )
    assert available_bytes(tree(tmp_path, **files)) == 50 * MIB
