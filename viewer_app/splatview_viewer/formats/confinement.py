"""Confinement by the kernel of the process that decodes an untrusted file: `confine`.

Two mechanisms, each where the kernel has it. Neither can be taken back, and both hold
for threads that begin later.

Landlock   files: only the input, Python's own libraries and descriptions of the machine
           are read, nothing is written; no TCP; no signals to, and no abstract sockets
           of, other processes.
seccomp    system calls: no sockets, no other programs, no new processes, nothing opened
           for writing, no change to names, modes or owners of files, no other process
           reached, and no part of the kernel that decoders do not need.

A refused call is an error of the library that made it, not the end of the process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import pwd
import socket
import struct
import sys
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

    from splatview_viewer.formats.common import Progress
    from splatview_viewer.formats.sandbox import File

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_NO_NEW_PRIVS = 38


class Confinement(NamedTuple):
    """The mechanisms in force for a process."""

    landlock: int = 0
    """Landlock's version, of which each refuses more than the one before; 0: none."""
    seccomp: bool = False
    reasons: tuple[str, ...] = ()
    """Why one of them is not in force."""


def confine(files: Sequence[int]) -> Confinement:
    """Confine this process for good to reading these open files.

    Mechanisms that the kernel lacks are left out. Landlock holds for the calling thread
    and those that it starts: call it before there are others.
    """
    reasons: list[str] = []
    landlock = 0
    seccomp = False
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    try:
        landlock = _restrict_files(files)
    except OSError as e:
        reasons.append(f"no Landlock ({e.strerror})")
    try:
        _filter_calls()
        seccomp = True
    except OSError as e:
        reasons.append(f"no seccomp ({e.strerror})")
    return Confinement(landlock, seccomp, tuple(reasons))


def _call(call: int, *arguments: object) -> int:
    """Make a system call that the C library has no function for. Raises OSError."""
    result = _libc.syscall(ctypes.c_long(call), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


# -- Landlock --------------------------------------------------------------------------

_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
"""System calls, of the same number on every machine."""
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_ACCESS_BITS = ((1, 13), (2, 14), (3, 15), (5, 16))
"""Versions, and the number of kinds of access to files that each can refuse."""
_TCP_SINCE = 4
_SCOPES_SINCE = 6
_ALL_TCP = 0b11
_ALL_SCOPES = 0b11
_SYSTEM_PATHS = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/proc/self",
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/sys/fs/cgroup",
    "/sys/devices/system",
    "/dev/null",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
)
"""Libraries, and what the machine says of its memory and processors."""


def _restrict_files(files: Sequence[int]) -> int:
    """Make Landlock refuse everything but reading; return its version.

    Raises OSError where there is none.
    """
    version = _call(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    bits = max(count for first, count in _ACCESS_BITS if version >= first)
    tcp = _ALL_TCP if version >= _TCP_SINCE else 0
    scopes = _ALL_SCOPES if version >= _SCOPES_SINCE else 0
    # Older versions know a shorter structure, and refuse a longer one that is not zero
    # behind it.
    attributes = struct.pack("=QQQ", (1 << bits) - 1, tcp, scopes)
    ruleset = _call(
        _CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0)
    )
    try:
        for fd in files:
            _allow_reading(ruleset, fd)
        for path in _readable_paths():
            # Not every machine has all of them.
            with suppress(OSError):
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
                try:
                    _allow_reading(ruleset, fd)
                finally:
                    os.close(fd)
        _call(_RESTRICT_SELF, ruleset, ctypes.c_uint(0))
    finally:
        os.close(ruleset)
    return version


def _allow_reading(ruleset: int, fd: int) -> None:
    """Allow reading an open file, or a folder and everything below it."""
    access = _READ_FILE
    if os.path.isdir(f"/proc/self/fd/{fd}"):
        access |= _READ_DIR
    rule = struct.pack("=Qi", access, fd)
    _call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, ctypes.c_uint(0))


def _readable_paths() -> Iterator[str]:
    """Yield the files and folders that Python and its libraries are loaded from."""
    yield from _SYSTEM_PATHS
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    python_paths = [*sys.path, *libraries, sysconfig.get_config_var("LIBDIR") or ""]
    homes = [os.path.expanduser("~")]
    # A container's user may have no account.
    with suppress(KeyError):
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    resolved_homes = [Path(home).resolve() for home in homes]
    for path in filter(None, python_paths):
        folder = Path(path).resolve()
        # A home folder, or the root, as a place of modules would open everything in it.
        if not any(home.is_relative_to(folder) for home in resolved_homes):
            yield path


# -- seccomp ---------------------------------------------------------------------------

_REFUSED_CALLS = {
    # Network, and sockets of the machine.
    "socket": (41, 198),
    "socketpair": (53, 199),
    "bind": (49, 200),
    "connect": (42, 203),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    # Other programs and processes.
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
    "uselib": (134, None),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # Memory and queues that processes share by name.
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    # Memory that no limit of the process counts, once for each descriptor.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # Changes to files and folders.
    "creat": (85, None),
    "truncate": (76, 45),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "link": (86, None),
    "linkat": (265, 37),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "rmdir": (84, None),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    # Mounts and namespaces.
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    # Parts of the kernel that decoders do not need.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "fanotify_init": (300, 262),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "syslog": (103, 116),
    "lookup_dcookie": (212, 18),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "vhangup": (153, 58),
    "personality": (135, 92),
}
"""The numbers of refused system calls on x86-64 and on aarch64; None if it has no such
call."""
_OPEN = (2, None)
_OPENAT = (257, 56)
_OPENAT2 = (437, 437)
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_KILL = (62, 129)
_TGKILL = (234, 131)
_PRLIMIT = (302, 261)
_IOCTL = (16, 29)
_FCNTL = (72, 25)
_SECCOMP = (317, 277)
_NEWEST_CALL = 462
"""System calls with a higher number are not known here, and refused."""
MACHINES = {
    "x86_64": (0, 0xC000003E),
    "aarch64": (1, 0xC00000B7),
}
"""The column of the tables above, and the kernel's name of the machine (AUDIT_ARCH_*).
"""
_WRITING = 0o3 | 0o100 | 0o1000 | 0o20000000
"""Flags of an opening that writes: the two of its mode, then making, emptying, and a
file without a name."""
_CLONE_THREAD = 0x10000
_REFUSED_IOCTLS = (0x5412, 0x541C, 0x8901, 0x8902)
"""TIOCSTI and TIOCLINUX, which type into a terminal; FIOSETOWN and SIOCSPGRP, as
F_SETOWN."""
_REFUSED_FCNTLS = (8, 10, 15, 1024, 1026)
"""F_SETOWN, F_SETSIG and F_SETOWN_EX, by which a pipe sends any signal to any process
of the user; F_SETLEASE and F_NOTIFY, which make other programs wait, and watch them."""

_LOAD = 0x20
_RETURN = 0x06
_IF_EQUAL = 0x15
_IF_ABOVE = 0x25
_IF_ANY_BIT = 0x45
"""Instructions of the kernel's filter language (classic BPF)."""
_CALL_OFFSET = 0
_MACHINE_OFFSET = 4
_ALLOW = 0x7FFF0000
_KILL_PROCESS = 0x80000000
_FAIL = 0x00050000
_SET_MODE_FILTER = 1
_ALL_THREADS = 1

_Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand."""


if platform.machine() in MACHINES:
    SECCOMP_CALL = _SECCOMP[MACHINES[platform.machine()][0]]
else:
    SECCOMP_CALL = 0
"""The number of the system call that sets a filter; 0: this machine's is not known
here."""


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _filter_calls() -> None:
    """Make seccomp refuse system calls to all threads.

    Raises OSError where that cannot be.
    """
    machine = platform.machine()
    if machine not in MACHINES or sys.maxsize < 2**32:
        raise OSError(errno.ENOSYS, f"its calls on {machine} are not known here")
    steps = call_filter(machine, os.getpid())
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    program = _FilterProgram(len(steps), code)
    _call(
        SECCOMP_CALL,
        ctypes.c_uint(_SET_MODE_FILTER),
        ctypes.c_uint(_ALL_THREADS),
        ctypes.byref(program),
    )


def call_filter(machine: str, pid: int) -> list[_Instruction]:
    """Return seccomp's filter for a machine (one of MACHINES) and a process."""
    column, audit = MACHINES[machine]
    refuse = (_RETURN, 0, 0, _FAIL | errno.EPERM)
    refuse_writing = (_RETURN, 0, 0, _FAIL | errno.EACCES)
    is_unknown = (_RETURN, 0, 0, _FAIL | errno.ENOSYS)
    allow = (_RETURN, 0, 0, _ALLOW)
    steps: list[_Instruction] = [
        (_LOAD, 0, 0, _MACHINE_OFFSET),
        (_IF_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _CALL_OFFSET),
        # Also what x86-64 has beside its own calls (x32), from 2^30.
        (_IF_ABOVE, 0, 1, _NEWEST_CALL),
        is_unknown,
    ]

    def add(call: tuple[int | None, int | None], *actions: _Instruction) -> None:
        """Add steps for one call, which end in a return."""
        call_number = call[column]
        if call_number is not None:
            steps.extend([(_IF_EQUAL, 0, len(actions), call_number), *actions])

    for call in _REFUSED_CALLS.values():
        add(call, refuse)
    # Their arguments lie in memory, which a filter cannot read: the C library goes on
    # with the older calls.
    add(_OPENAT2, is_unknown)
    add(_CLONE3, is_unknown)
    for call, flags in ((_OPEN, 1), (_OPENAT, 2)):
        has_flag = (_IF_ANY_BIT, 0, 1, _WRITING)
        add(call, _argument(flags), has_flag, refuse_writing, allow)
    add(_CLONE, _argument(0), (_IF_ANY_BIT, 1, 0, _CLONE_THREAD), refuse, allow)
    for call in (_KILL, _TGKILL):
        add(call, _argument(0), (_IF_EQUAL, 1, 0, pid), refuse, allow)
    is_self = (_IF_EQUAL, 2, 0, 0), (_IF_EQUAL, 1, 0, pid)
    add(_PRLIMIT, _argument(0), *is_self, refuse, allow)
    for call, refused in ((_IOCTL, _REFUSED_IOCTLS), (_FCNTL, _REFUSED_FCNTLS)):
        # Each comparison jumps over those after it and over `allow`.
        compared = [
            (_IF_EQUAL, len(refused) - i, 0, request)
            for i, request in enumerate(refused)
        ]
        add(call, _argument(1), *compared, allow, refuse)
    return [*steps, allow]


def _argument(index: int) -> _Instruction:
    """Return the step that loads the lower half of a call's argument.

    Both machines store that half first.
    """
    return _LOAD, 0, 0, 16 + 8 * index


# -- trying it -------------------------------------------------------------------------


class Examined(msgspec.Struct, frozen=True, tag="examined"):
    """Attempts of a confined process, and their outcome."""

    landlock: int
    seccomp: bool
    reasons: tuple[str, ...]
    permitted: tuple[str, ...]
    """Attempts that should have been refused."""
    thread_count: int


in_force = Confinement()
"""The mechanisms in force for this process."""


def examine(files: list[File], progress: Progress) -> tuple[Examined, list[np.ndarray]]:
    """Try, in the sandbox, everything that decoders must not do.

    The file names a folder to write to and a file to read.
    """
    folder, secret = Path(files[0].path).read_text("utf-8").split("\n")
    attempts: dict[str, Callable[[], object]] = {
        "the network": lambda: socket.socket().close(),
        "writing files": lambda: tempfile.TemporaryFile(dir=folder).close(),
        "other programs": lambda: os.waitpid(
            os.posix_spawn("/bin/true", ["true"], {}), 0
        ),
        "reading other files": lambda: open(secret, "rb").close(),
    }
    permitted: list[str] = []
    for name, attempt in attempts.items():
        with suppress(OSError):
            attempt()
            permitted.append(name)
    thread_count = len(os.listdir("/proc/self/task"))
    return Examined(*in_force, tuple(permitted), thread_count), []
