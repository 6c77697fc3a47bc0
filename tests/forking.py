"""Programs that start in milliseconds: forked by a process that has imported torch and ours already.

Half of what the tests do is to start programs, each of which imports torch for a second and a half. A forked one runs
as one that was started: nothing of ours was begun in its parent, no thread, no run, no graphics; it ends as the
interpreter ends, and its streams, exit status and signals are those of any `subprocess.Popen`. Left out by default is
what takes longest at the end, and is torch's: its finalizers, and the destructors of its libraries.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
_EARLY = ("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "CUDA", "PYTORCH_", "TORCH_", "NUMBA_", "NPY_",
          "MALLOC_", "GLIBC_", "LC_", "LANG", "PATH")
"""Prefixes of variables that are read when the interpreter starts, or that decide what a forked program finds loaded.
Others are read when they are needed."""
_LATE = ("PYTHONPATH", "PYTHONSAFEPATH")
"""Variables that the server applies to a program after it was forked."""
_ALWAYS = ("torch", "numpy", "zmq", "msgspec", "splatview", "splatview.publishing", "splatview.ipc",
           "splatview.ipc.subscriber", "splatview.ipc.publisher")
_PROGRAMS = (
    "splatview.viewer_app.commands", "splatview.viewer_app.app", "splatview.viewer_app.shot",
    "splatview.viewer_app.grabber", "splatview.viewer_app.window_program", "splatview.viewer_app.memory_command",
    "splatview.viewer_app.interface.overlay", "splatview.viewer_app.interface.panel",
    "splatview.viewer_app.screens.browser", "splatview.viewer_app.web.server",
    "splatview.viewer_app.web.encoders.turbo", "splatview.viewer_app.memory.query", "splatview.viewer_app.files.apart",
    "torch._dynamo", "glcontext.egl", "typeguard", "glfw", "numba", "duckdb",
    "splatview.demo.trainer", "splatview.demo.training", "splatview.demo.datasets", "splatview.demo.backends",
    "splatview.demo.stilllife", "splatview.demo.command", "splatview.camera.launcher", "splatview.camera.capture",
    "splatview.camera.inference", "splatview.commands.camera", "splatview.commands.demo", "splatview.commands.status")
"""Modules that the programs of the command line import."""
_inherited: tuple[Any, Mapping[str, str]] | None = None
"""In a forked program whose own programs are forked as well: the address of the server, and its environment."""


def environment(**more: str) -> dict[str, str]:
    """What programs of the tests find: this process's, and ours to import, wherever they run."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def serves(env: Mapping[str, str], before: Mapping[str, str] | None = None) -> bool:
    """Return whether a forked program with this environment is as one that was started with it."""
    before = server().env if before is None else before
    path, known = ({entry for entry in e.get("PYTHONPATH", "").split(os.pathsep) if entry} for e in (env, before))
    names = {name for name in env.keys() | before.keys() if name.startswith(_EARLY)} - set(_LATE)
    if "OMP_NUM_THREADS" not in env:  # programs that splatview starts, and one thread is enough for them
        names.discard("OMP_NUM_THREADS")
    return path <= known | {str(TESTS)} and all(env.get(name) == before.get(name) for name in names)


def readable(fd: int, seconds: float | None) -> bool:
    """Wait until a descriptor is readable or at its end, at most so long. `select` takes no descriptor over 1023."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


class Forker:
    """A connection to the process that forks."""

    def __init__(self, connection: socket.socket, env: Mapping[str, str]):
        """`env`: the environment that the process was started with."""
        self.env = env
        self._lock = threading.Lock()
        self._number = 0
        self._ours = connection
        self._ours.settimeout(PATIENCE)

    def fork(self, source: str, args: Sequence[str], fds: Sequence[int], env: Mapping[str, str], cwd: str, *,
             group: bool = False) -> tuple[int, int]:
        """Run `source`, with `fds` as its descriptors from 0 on; its process id, and a descriptor, the caller's, that
        is readable when it has ended. `group`: whether it gets a process group of its own."""
        return self.ask({"source": source, "args": list(args), "env": dict(env), "cwd": cwd, "group": group},
                        dict(enumerate(fds)))

    def ask(self, request: Mapping[str, Any], fds: Mapping[int, int]) -> tuple[int, int]:
        """Fork what `request` describes (`fork_server.py`). `fds`: descriptors by the numbers that they get in it.
        Returns what `fork` does."""
        defaults = {"group": False, "session": False, "leash": None, "destructors": False}
        pid = self.request({**defaults, **request, "numbers": list(fds)}, list(fds.values()))
        return pid, os.pidfd_open(pid)

    def status(self, pid: int) -> int:
        """Return what `os.waitpid` tells of a program that has ended."""
        return self.request({"wait": pid})

    def started_by(self, pid: int) -> dict[int, str]:
        """Return the command lines of the programs that were forked for a process, by process id."""
        return {int(pid): line for pid, line in self.request({"started by": pid}).items()}

    def request(self, request: Mapping[str, Any], fds: Sequence[int] = ()) -> Any:
        """Return the answer to a request (`fork_server.py`). ConnectionError: the server has ended."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        with self._lock:
            self._number += 1
            self._ours.sendmsg([json.dumps({**request, "number": self._number}).encode()], rights)
            while True:
                number, answer = json.loads(self._receive())
                if number == self._number:  # not the answer to a request that a signal interrupted
                    return answer

    def _receive(self) -> bytes:
        data = self._ours.recv(1 << 20)
        if not data:
            raise ConnectionError(f"the process that forks ended{self._how_it_ended()}")
        return data

    def _how_it_ended(self) -> str:
        return ""


class ForkServer(Forker):
    """The process that forks. `close` it, or let it end with this one."""

    def __init__(self, *modules: str, programs: bool = False, address: str = ""):
        """`modules` are imported as well, before anything is forked. They must not begin threads. `programs`: forked
        programs fork what they start with `splatview.programs`, too. `address`: where other processes may share it
        (`_shared`), as the name of an abstract socket."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours, environment())
        with theirs:
            begin = f"import sys; sys.path.insert(0, {str(TESTS)!r}); import fork_server; del sys.path[0]; "
            call = f"fork_server.serve({theirs.fileno()}, {[*_ALWAYS, *modules]!r}, {programs}, {str(TESTS)!r}, " \
                   f"{address!r})"
            self._process = subprocess.Popen([sys.executable, "-c", begin + call], pass_fds=[theirs.fileno()],
                                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=self.env)
        try:
            self._receive()
        except BaseException:
            self.close()
            raise

    def _how_it_ended(self) -> str:
        return f" with {self._process.wait(PATIENCE)}"

    def close(self) -> None:
        """Idempotent."""
        self._ours.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _shared(modules: Sequence[str], *, programs: bool = False) -> Forker:
    """Return a server that all workers of pytest-xdist use; it ends with the last of them. Without workers, or where
    none of them began one, it is a new one."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return ForkServer(*modules, programs=programs)
    address = "splatview-forks-" + hashlib.sha256(repr((run, modules, programs)).encode()).hexdigest()[:32]
    with open(TESTS / "fork_server.py") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one worker starts it
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.suppress(ConnectionError):
            connection.connect(f"\0{address}")
            forker = Forker(connection, {})
            forker.env = forker.request({"share": True})
            return forker
        connection.close()
        return ForkServer(*modules, programs=programs, address=address)


@functools.cache
def server(*modules: str) -> Forker:
    """Return the server that has imported these as well. It ends with the processes that use it."""
    return _shared(modules)


@functools.cache
def _program_server(process: int) -> Forker:
    """Return the server that forks splatview's programs for this process."""
    if _inherited is None:
        return _shared(_PROGRAMS, programs=True)
    address, env = _inherited
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(address)
    return Forker(connection, env)


def program_server() -> Forker:
    """Return the server that forks splatview's programs."""
    return _program_server(os.getpid())  # a connection is of no use to a forked child


class ForkedProgram(subprocess.Popen[Any]):
    """`python -c SOURCE ARGS`, `python -m MODULE ARGS` or `python FILE ARGS` as a Popen: forked, by the same
    interpreter with the same packages."""

    _watched = -1

    def __init__(self, args: Sequence[str], *, forker: Forker, leash: int | None = None, destructors: bool = False,
                 **options: Any):
        """`leash`: the descriptor of the pipe that ends what `splatview.programs` starts. `destructors`: whether the
        libraries of torch, loaded before the fork, run theirs at the end, which takes 150 ms."""
        self._server, self._leash, self._destructors = forker, leash, destructors
        super().__init__(args, **options)

    def _execute_child(self, args: Sequence[str], *more: Any) -> None:  # type: ignore[override]
        names = subprocess.Popen._execute_child.__code__.co_varnames[2:]  # type: ignore[attr-defined]
        given = dict(zip(names, more, strict=False))
        said = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
        fds = {number: number if fd == -1 else fd for number, fd in enumerate(said)}
        fds |= {fd: fd for fd in given["pass_fds"]}
        what = {"source": args[2]} if args[1] == "-c" else {"module": args[2]} if args[1] == "-m" else {"path": args[1]}
        rest = args[2:] if "path" in what else args[3:]
        self.pid, self._watched = self._server.ask(
            {**what, "args": list(rest), "env": dict(given["env"]), "cwd": str(given["cwd"] or os.getcwd()),
             "session": given["start_new_session"], "leash": self._leash, "destructors": self._destructors}, fds)
        self._child_created = True
        pipes = (given[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"))
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _ended(self, seconds: float | None) -> bool:
        if self.returncode is None and self._watched >= 0 and readable(self._watched, seconds):
            status = self._server.status(self.pid)
            self.returncode = os.waitstatus_to_exitcode(status)
            os.close(self._watched)
            self._watched = -1
        return self.returncode is not None

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:  # type: ignore[override]
        self._ended(0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:  # type: ignore[override]
        if not self._ended(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode

    def __del__(self, *_: Any) -> None:
        with contextlib.suppress(OSError):
            if self._watched >= 0:
                os.close(self._watched)


def _popen(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """`subprocess.Popen`, forked where that is as good: `python -m MODULE`, and what `splatview.programs` starts."""
    from splatview import programs
    from splatview.ipc import child_process

    start = child_process.command("")[1]
    leashed = len(command) > 6 and command[2] == programs._LEASHED and command[5] == start
    forker = program_server()
    if not (leashed or command[1] == "-m") or not serves(options["env"], forker.env):
        return subprocess.Popen(command, **options)
    program = ["-m", *command[6:]] if leashed else command[1:]
    return ForkedProgram([sys.executable, *program], forker=forker, leash=int(command[3]) if leashed else None,
                         **options)


forked_popen = SimpleNamespace(**{**vars(subprocess), "Popen": _popen})
"""The module `subprocess`, for `splatview.programs` and what else is to fork `python -m MODULE`."""


def fork_programs(address: Any) -> None:
    """Have the forked programs of this process, a server at `address`, fork what they start."""
    global _inherited
    from splatview import programs

    _inherited = address, dict(os.environ)
    programs.subprocess = forked_popen  # type: ignore[assignment]
