"""The kernel refuses everything else to a decoder's process, and decoders still work."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from splatview_viewer.formats import confinement, sandbox
from splatview_viewer.formats.confinement import call_filter

CONFINED = """
import fcntl, json, os, resource, socket, subprocess, sys, threading
import numpy, torch
from pathlib import Path
from splatview_viewer.formats.confinement import confine

folder = sys.argv[1]
# A home folder among the places of modules opens nothing in it.
sys.path.append(folder)
os.environ["HOME"] = folder + "/home"
secret, made = folder + "/home/.ssh/id_ed25519", folder + "/made"
source = open(folder + "/input", "rb")
out, pipe, F_SETSIG = os.memfd_create("out"), os.pipe(), 10
reading = f"/proc/self/fd/{source.fileno()}"
state = confine([source.fileno()])


def matrix_product():
    torch.set_num_threads(2)
    assert (torch.ones(300, 300) @ torch.ones(300, 300)).sum() == 300**3


def picture():
    from PIL import Image

    assert Image.open(reading).convert("RGB").getpixel((0, 0)) == (255, 0, 0)


def thread():
    started = threading.Thread(target=open, args=(secret,))
    started.start()
    started.join()


attempts = {
    "socket": lambda: socket.socket(),
    "unix socket": lambda: socket.socket(socket.AF_UNIX),
    "pair": lambda: socket.socketpair(),
    "write": lambda: open(made, "w"),
    "read and write": lambda: os.open(reading, os.O_RDWR),
    "nameless": lambda: os.open(folder, os.O_TMPFILE | os.O_RDWR),
    "truncate": lambda: os.truncate(folder + "/input", 0),
    "remove": lambda: os.unlink(folder + "/input"),
    "rename": lambda: os.rename(folder + "/input", made),
    "mode": lambda: os.fchmod(source.fileno(), 0o777),
    "time": lambda: os.utime(source.fileno()),
    "attribute": lambda: os.setxattr(source.fileno(), "user.a", b"1"),
    "folder": lambda: os.mkdir(made),
    "link": lambda: os.symlink("/", made),
    "key": lambda: open(secret, "rb"),
    "list": lambda: os.listdir(folder),
    "accounts": lambda: open("/etc/passwd"),
    "environment": lambda: open(f"/proc/{os.getppid()}/environ"),
    "fork": os.fork,
    "program": lambda: subprocess.Popen(["/bin/true"]),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "signal": lambda: os.kill(os.getppid(), 0),
    "signal by a pipe": lambda: fcntl.fcntl(pipe[1], fcntl.F_SETOWN, os.getppid()),
    "number of that signal": lambda: fcntl.fcntl(pipe[1], F_SETSIG, 9),
    "lease": lambda: fcntl.fcntl(source, fcntl.F_SETLEASE, fcntl.F_RDLCK),
    "more memory files": lambda: os.memfd_create("more"),
    "limits": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CORE),
    "own file": lambda: open(reading, "rb").read(),
    "own result": lambda: os.write(out, b"x" * 5000),
    "own limits": lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    "memory": lambda: open("/proc/meminfo").read(),
    "library": lambda: __import__("numpy.testing"),
    "thread": thread,
    "matrix product": matrix_product,
    "picture": picture,
}
permitted = []
threading.excepthook = lambda what: permitted.append(f"thread {what.exc_type.__name__}")
for name, attempt in attempts.items():
    try:
        attempt()
        permitted.append(name)
    except OSError as e:
        pass
print(json.dumps([state, permitted]))
"""


@pytest.fixture
def permitted(tmp_path: Path) -> list[str]:
    """Return what a confined process could do beside decoding."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    (tmp_path / "home" / ".ssh" / "id_ed25519").write_text("secret")
    (tmp_path / "input").write_bytes(b"P6 1 1 255\n\xff\0\0")
    done = subprocess.run(
        [sys.executable, "-P", "-c", CONFINED, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (landlock, seccomp, reasons), names = json.loads(done.stdout)
    if not landlock or not seccomp:
        pytest.skip(f"this kernel confines less: {reasons}")
    assert (tmp_path / "input").exists()
    assert not (tmp_path / "made").exists()
    return names


@pytest.mark.programs
def test_confined_process_reaches_only_its_input_and_libraries(
    permitted: list[str],
) -> None:
    assert permitted == [
        "own file",
        "own result",
        "own limits",
        "memory",
        "library",
        "thread PermissionError",
        "thread",
        "matrix product",
        "picture",
    ]


@pytest.mark.programs
def test_sandbox_is_confined_and_reports_how(tmp_path: Path) -> None:
    """The report claims no measure that is not in force.

    A measure that is in force permits no attempt against it.
    """
    secret = tmp_path / "secret"
    job = tmp_path / "job"
    secret.write_text("x")
    job.write_text(f"{tmp_path}\n{secret}")
    report, _ = sandbox.run(
        confinement.examine, [job], sandbox.limits_for(0), confinement.Examined
    )
    expected = set()
    if not report.seccomp:
        expected |= {"the network"}
    if not report.landlock:
        expected |= {"reading other files"}
    if not report.landlock and not report.seccomp:
        expected |= {"writing files", "other programs"}
    assert set(report.permitted) == expected
    assert len(report.reasons) == (not report.landlock) + (not report.seccomp)
    assert report.thread_count == 1, "threads from before it are not held by Landlock"


@pytest.mark.programs
def test_confinement_reports_what_the_kernel_lacks() -> None:
    """Only the filter of calls is missing on a machine whose calls are unknown."""
    code = (
        "import json, platform\n"
        "from splatview_viewer.formats.confinement import confine\n"
        "platform.machine = lambda: 'riscv64'\n"
        "print(json.dumps(confine([])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, check=True, cwd="/"
    )
    _, seccomp, reasons = json.loads(done.stdout)
    assert not seccomp
    assert "riscv64" in reasons[-1]


LACKING = """
import ctypes, json, struct, sys
from pathlib import Path
from splatview_viewer.formats import confinement, sandbox

libc = ctypes.CDLL(None, use_errno=True)
steps = [(0x20, 0, 0, 0)]
for call in ("landlock", "seccomp"):
    if call in sys.argv[2:]:
        number = {"landlock": 444, "seccomp": confinement.SECCOMP_CALL}[call]
        steps += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | 38)]
steps.append((0x06, 0, 0, 0x7FFF0000))
code = b"".join(struct.pack("=HBBI", *step) for step in steps)


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


assert libc.prctl(38, 1, 0, 0, 0) == 0
program = Program(len(steps), code)
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
report, _ = sandbox.run(
    confinement.examine,
    [Path(sys.argv[1])],
    sandbox.limits_for(0),
    confinement.Examined,
)
print(json.dumps([report.landlock, report.seccomp, report.reasons, report.permitted]))
"""


@pytest.mark.parametrize(
    ("lacking", "permitted"),
    [
        (["landlock"], {"reading other files"}),
        (["seccomp"], {"the network"}),
        (
            ["landlock", "seccomp"],
            {"the network", "writing files", "other programs", "reading other files"},
        ),
    ],
)
@pytest.mark.programs
def test_decoding_works_on_kernels_without_confinement(
    lacking: list[str], permitted: set[str], tmp_path: Path
) -> None:
    """Old kernels lack the calls, and containers may refuse them."""
    secret = tmp_path / "secret"
    job = tmp_path / "job"
    secret.write_text("x")
    job.write_text(f"{tmp_path}\n{secret}")
    done = subprocess.run(
        [sys.executable, "-P", "-c", LACKING, str(job), *lacking],
        capture_output=True,
        text=True,
        check=False,
    )
    if "assert libc.prctl" in done.stderr:
        pytest.skip("no seccomp here, by which the kernel is made to lack something")
    assert done.returncode == 0, done.stderr
    landlock, seccomp, reasons, attempts_permitted = json.loads(done.stdout)
    assert not (landlock and "landlock" in lacking)
    assert not (seccomp and "seccomp" in lacking)
    assert permitted <= set(attempts_permitted)
    assert [name for name in lacking if name in str(reasons).lower()] == lacking


# -- the filter itself, of each machine ---------------------------------------------

PID = 4711
ALLOWED = 0x7FFF0000
KILLED = 0x80000000
CALLS: dict[str, dict[str, int]] = {
    "x86_64": {
        "machine": 0xC000003E,
        "read": 0,
        "mmap": 9,
        "prlimit64": 302,
        "clone": 56,
        "clone3": 435,
        "openat": 257,
        "socket": 41,
        "connect": 42,
        "execve": 59,
        "ptrace": 101,
        "kill": 62,
        "tgkill": 234,
        "unlinkat": 263,
        "ioctl": 16,
        "fcntl": 72,
        "inotify_add_watch": 254,
        "memfd_create": 319,
        "exit_group": 231,
    },
    "aarch64": {
        "machine": 0xC00000B7,
        "read": 63,
        "mmap": 222,
        "prlimit64": 261,
        "clone": 220,
        "clone3": 435,
        "openat": 56,
        "socket": 198,
        "connect": 203,
        "execve": 221,
        "ptrace": 117,
        "kill": 129,
        "tgkill": 131,
        "unlinkat": 35,
        "ioctl": 29,
        "fcntl": 25,
        "inotify_add_watch": 27,
        "memfd_create": 279,
        "exit_group": 94,
    },
}
"""Numbers of the calls in the kernel's headers.

x86_64 uses asm/unistd_64.h, aarch64 asm-generic/unistd.h.
"""


def verdict(machine: str, call: int, *arguments: int, audit: int = 0) -> Any:
    """Return the answer of a machine's filter to a call.

    Returns:
        An error's name, "allowed" or "killed".
    """
    data = {0: call, 4: audit or CALLS[machine]["machine"]}
    data |= {16 + 8 * i: argument for i, argument in enumerate(arguments)}
    steps = call_filter(machine, PID)
    position = 0
    loaded = 0
    while True:
        code, if_true, if_false, operand = steps[position]
        position += 1
        if code == 0x20:
            loaded = data.get(operand, 0)
        elif code == 0x06:
            names = {ALLOWED: "allowed", KILLED: "killed"}
            return names.get(operand) or errno.errorcode[operand & 0xFFFF]
        else:
            holds = {
                0x15: loaded == operand,
                0x25: loaded > operand,
                0x45: bool(loaded & operand),
            }[code]
            position += if_true if holds else if_false


@pytest.mark.parametrize("machine", CALLS)
def test_call_filter_allows_only_what_decoders_need(machine: str) -> None:
    calls = CALLS[machine]
    for name in ("read", "mmap", "exit_group"):
        assert verdict(machine, calls[name]) == "allowed"
    for name in (
        "socket",
        "connect",
        "execve",
        "ptrace",
        "unlinkat",
        "memfd_create",
        "inotify_add_watch",
    ):
        assert verdict(machine, calls[name]) == "EPERM"
    for flags, answer in (
        (0, "allowed"),
        (0o2000000, "allowed"),
        (1, "EACCES"),
        (2, "EACCES"),
        (0o102, "EACCES"),
        (0o1000, "EACCES"),
    ):
        assert verdict(machine, calls["openat"], 0, 0, flags) == answer
    assert verdict(machine, calls["clone"], 0x3D0F00) == "allowed"
    assert verdict(machine, calls["clone"], 17) == "EPERM"
    assert verdict(machine, calls["clone3"]) == "ENOSYS"
    for name in ("kill", "tgkill"):
        assert verdict(machine, calls[name], PID) == "allowed"
        assert verdict(machine, calls[name], 1) == "EPERM"
    for pid, answer in ((0, "allowed"), (PID, "allowed"), (1, "EPERM")):
        assert verdict(machine, calls["prlimit64"], pid) == answer
    for request in (0x5401, 0x541B):
        assert verdict(machine, calls["ioctl"], 0, request) == "allowed"
    for request in (0x5412, 0x541C, 0x8901, 0x8902):
        assert verdict(machine, calls["ioctl"], 0, request) == "EPERM"
    for request in (0, 1, 2, 3, 4, 1030):
        assert verdict(machine, calls["fcntl"], 0, request) == "allowed"
    for request in (8, 10, 15, 1024, 1026):
        assert verdict(machine, calls["fcntl"], 0, request) == "EPERM"
    for unknown_call in (463, 9999, 0x40000000 + calls["socket"]):
        assert verdict(machine, unknown_call) == "ENOSYS"
    assert verdict(machine, calls["read"], audit=0x40000003) == "killed"
