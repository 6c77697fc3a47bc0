"""The free memory that limits follow: /proc and cgroups as files in a folder, and real limits in a child process."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.wait import PATIENCE

from splatview.ipc.free_memory import available_bytes

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
V2_MOUNT = "30 23 0:26 {top} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "32 31 0:29 {top} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
PROC = {
    "proc/meminfo": f"MemTotal: {16 << 20} kB\nMemFree: 100 kB\nMemAvailable:   {8 << 20} kB\nHugePages_Total: 0\n",
    "proc/self/status": f"Name:\tpython\nVmSize:\t {500 << 10} kB\nVmData:\t {200 << 10} kB\nThreads:\t1\n",
    "proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units\n"
                        "Max data size             unlimited            unlimited            bytes\n"
                        "Max address space         unlimited            unlimited            bytes\n",
    "proc/self/cgroup": "0::/user.slice/job\n",
    "proc/self/mountinfo": V2_MOUNT.format(top="/"),
}
JOB, SLICE = "sys/fs/cgroup/user.slice/job", "sys/fs/cgroup/user.slice"


def tree(root: Path, **changed: str) -> Path:
    """A folder that looks as / does to a process in a cgroup; `changed` by path, with `__` in place of `/`."""
    for name, text in {**PROC, **{k.replace("__", "/"): v for k, v in changed.items()}}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def cgroup(folder: str, **files: object) -> dict[str, str]:
    return {f"{folder}/{name.replace('__', '.')}": f"{value}\n" for name, value in files.items()}


def test_available_bytes_is_the_machines_when_nothing_limits(tmp_path: Path):
    assert available_bytes(tree(tmp_path)) == 8 << 30


def test_available_bytes_is_none_where_nothing_is_known(tmp_path: Path):
    assert available_bytes(tmp_path) is None


@pytest.mark.parametrize("name", ["memory__max", "memory__high"])
def test_available_bytes_follows_a_cgroup_of_version_2(name: str, tmp_path: Path):
    files = cgroup(JOB, memory__max="max", memory__high="max", memory__current=700 * MIB,
                   memory__stat=f"anon 5\ninactive_file {300 * MIB}\nactive_file 9")
    files |= cgroup(JOB, **{name: 1000 * MIB})
    assert available_bytes(tree(tmp_path, **files)) == 600 * MIB


def test_available_bytes_follows_the_tightest_cgroup_above(tmp_path: Path):
    files = cgroup(JOB, memory__max=1000 * MIB, memory__high="max", memory__current=100 * MIB, memory__stat="anon 5")
    files |= cgroup(SLICE, memory__max=2000 * MIB, memory__high="max", memory__current=1950 * MIB,
                    memory__stat="anon 5")
    assert available_bytes(tree(tmp_path, **files)) == 50 * MIB


@pytest.mark.parametrize("top", ["/", "/docker/abc"], ids=["whole hierarchy mounted", "own cgroup mounted"])
def test_available_bytes_follows_a_cgroup_of_version_1(top: str, tmp_path: Path):
    folder = "sys/fs/cgroup/memory" + ("/docker/abc" if top == "/" else "")
    files = cgroup(folder, memory__limit_in_bytes=1000 * MIB, memory__usage_in_bytes=400 * MIB,
                   memory__stat=f"inactive_file 7\ntotal_inactive_file {100 * MIB}")
    if top == "/":
        files |= cgroup("sys/fs/cgroup/memory", memory__limit_in_bytes=(1 << 63) - 4096, memory__usage_in_bytes=5)
    files |= {"proc/self/cgroup": "9:name=systemd:/\n4:memory:/docker/abc\n0::/\n",
              "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" + V1_MOUNT.format(top=top)}
    assert available_bytes(tree(tmp_path, **files)) == 700 * MIB


@pytest.mark.parametrize(("limit", "left"), [("address space", 100 * MIB), ("data size", 400 * MIB)])
def test_available_bytes_follows_the_limits_of_the_process(limit: str, left: int, tmp_path: Path):
    lines = PROC["proc/self/limits"].replace(f"{'Max ' + limit:26}unlimited", f"{'Max ' + limit:26}{600 * MIB}")
    assert available_bytes(tree(tmp_path, proc__self__limits=lines)) == left


@pytest.mark.parametrize("broken", [{"proc__meminfo": "\x00"}, {"proc__self__mountinfo": "1 2 - \n- -\ncgroup2\n"},
                                    {"proc__self__cgroup": "0::\n::::\n4:memory\n"}, {"proc__self__limits": "Max\n"}])
def test_available_bytes_takes_odd_files(broken: dict[str, str], tmp_path: Path):
    assert available_bytes(tree(tmp_path, **broken)) in (8 << 30, None)


@pytest.mark.programs
def test_available_bytes_shrinks_with_a_real_limit_and_with_what_is_taken():
    """In a process of its own, since a limit of the address space would hold for all later tests."""
    code = """if True:
        import resource, sys
        from splatview.ipc.free_memory import available_bytes
        assert not {"numpy", "torch"} & set(sys.modules)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), resource.RLIM_INFINITY))
        before = available_bytes()
        assert 0 < before <= 256 << 20, before
        taken = bytearray(100 << 20)
        assert before - available_bytes() >= 100 << 20, (before, available_bytes())
    """
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=PATIENCE)
