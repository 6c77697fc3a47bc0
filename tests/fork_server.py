"""The process that forks programs: `python -c "import fork_server; fork_server.serve(...)"`; `forking.py` starts it.

Requests are packets of JSON with a number. Each is answered with one packet, `[number, answer]`, so that a client whose
request was interrupted by a signal can drop the answer later.

- {"source", "module" or "path", ...} forks a program; the answer is its process id.
- {"wait": PID}: the wait status of a program that has ended. A client may repeat the request.
- {"started by": PID}: the command lines of the programs that were forked for a process and not waited for, by process
  id.
- {"share": true}: the environment of this process, which then lasts as long as that client.

Programs whose client has disconnected are reaped when they end, as init does with orphans.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import dataclasses
import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import types
import weakref
from typing import Any

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_finalizers: list[weakref.finalize[Any, Any]] = []
"""Finalizers that torch registers to deregister its 2,000 operators at exit."""
_HIGH = 256
"""No descriptor that a program is given has a number as high as this."""


def serve(fd: int, modules: list[str], programs: bool, tests: str, address: str = "") -> None:
    """Serve the client at descriptor `fd`, others at `address`, and every program that they led to, until the first
    client and those that share this process have closed their ends.

    `modules` are imported first. `programs`: what the forked programs start with `splatview.programs` is forked too.
    """
    for name in modules:
        with contextlib.suppress(ModuleNotFoundError):  # numba and DuckDB are extras; a program that needs one says so
            __import__(name)
    sys.modules["torch"].set_num_threads(1)
    _finalizers.extend(f for f in weakref.finalize._registry if f.atexit)  # type: ignore[attr-defined]
    _finalize_at_exit(False)
    assert len(os.listdir("/proc/self/task")) == threading.active_count() == 1, threading.enumerate()
    server = socket.socket(fileno=fd)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"\0{address or f'splatview-forks-{os.getpid()}'}")
    listener.listen(64)
    if programs:
        sys.path.insert(0, tests)
        import forking

        del sys.path[0]
        forking.fork_programs(listener.getsockname())
        gc.unfreeze = lambda: None  # no collection of theirs looks through what is loaded here
    gc.collect()
    gc.freeze()
    server.send(b"ready")
    request, fds = _Server(server, listener).serve()
    if not programs:
        _become(request, fds)
        return
    try:
        _become(request, fds)
        _end(0)
    except BaseException as e:
        _end_with(e)


@dataclasses.dataclass
class _Program:
    """A forked program."""

    client: int
    """Process id of the client that it was forked for."""
    line: str
    """Command line."""
    status: int | None = None
    """Wait status, once the client has waited for it."""


class _Server:
    """Clients and the programs that were forked for them."""

    def __init__(self, first: socket.socket, listener: socket.socket):
        """`first`: the client that this process lasts as long as."""
        self._listener = listener
        self._clients = {first.fileno(): first}
        self._lasting = {first}
        self._programs: dict[int, _Program] = {}
        self._orphans: dict[int, int] = {}
        """Process ids of running programs whose client has disconnected, by their pidfd."""
        self._poll = select.poll()
        self._poll.register(first, select.POLLIN)
        self._poll.register(listener, select.POLLIN)

    def serve(self) -> tuple[dict[str, Any], list[int]]:
        """Serve for ever; returns in each forked program, with its request and its descriptors."""
        while True:
            # One event at a time: handling it may close other descriptors and reuse their numbers.
            fd = self._poll.poll()[0][0]
            if fd == self._listener.fileno():
                client = self._listener.accept()[0]
                self._clients[client.fileno()] = client
                self._poll.register(client, select.POLLIN)
                continue
            if fd in self._orphans:
                self._reap(self._orphans[fd])
                continue
            client = self._clients[fd]
            data, fds = _receive(client)
            if not data:
                self._disconnect(client)
                continue
            request = json.loads(data)
            answer = self._answer(client, request, fds)
            if answer is None:
                return request, fds
            with contextlib.suppress(OSError):  # the client has ended; poll reports it next
                client.send(json.dumps([request["number"], answer]).encode())

    def _answer(self, client: socket.socket, request: dict[str, Any], fds: list[int]) -> Any:
        """Return the answer to a request, or None in the program that was forked for it."""
        if "share" in request:
            self._lasting.add(client)
            return dict(os.environ)
        if "wait" in request:
            program = self._programs[request["wait"]]
            if program.status is None:
                program.status = os.waitpid(request["wait"], 0)[1]
            return program.status
        if "started by" in request:
            return {pid: self._programs[pid].line for pid in self._started_by(request["started by"])}
        pid = _fork()
        if not pid:
            for fd in self._orphans:
                os.close(fd)
            for one in (self._listener, *self._clients.values()):
                one.close()
            return None
        for fd in fds:
            os.close(fd)
        self._programs[pid] = _Program(_peer(client), " ".join([request.get("module", ""), *request["args"]]))
        return pid

    def _started_by(self, client: int) -> list[int]:
        """Return the process ids of the programs that were forked for a process and not waited for."""
        return [pid for pid, program in self._programs.items() if program.client == client and program.status is None]

    def _disconnect(self, client: socket.socket) -> None:
        """Kill the programs of a lasting client, and watch those of any other until they end."""
        peer = _peer(client)
        if client in self._lasting:
            self._lasting.remove(client)
            self._kill_started_by(peer)
        if not self._lasting:
            os._exit(0)
        for pid in self._started_by(peer):
            watched = os.pidfd_open(pid)
            self._orphans[watched] = pid
            self._poll.register(watched, select.POLLIN)
        self._programs = {pid: program for pid, program in self._programs.items()
                          if program.client != peer or program.status is None}
        self._poll.unregister(client)
        self._clients.pop(client.fileno()).close()

    def _kill_started_by(self, client: int) -> None:
        """Kill the programs that were forked for a process, and those that were forked for them."""
        for pid in self._started_by(client):
            os.kill(pid, signal.SIGKILL)
            self._reap(pid)
            self._kill_started_by(pid)

    def _reap(self, pid: int) -> None:
        """Wait for a program without a client."""
        os.waitpid(pid, 0)
        del self._programs[pid]
        for watched in [fd for fd, orphan in self._orphans.items() if orphan == pid]:
            self._poll.unregister(watched)
            os.close(watched)
            del self._orphans[watched]


def _finalize_at_exit(wanted: bool) -> None:
    for finalizer in _finalizers:
        finalizer.atexit = wanted


def _receive(client: socket.socket) -> tuple[bytes, list[int]]:
    fds = array.array("i")
    try:
        data, control, _, _ = client.recvmsg(1 << 20, socket.CMSG_SPACE(256))
    except ConnectionResetError:
        return b"", []
    for _, _, payload in control:
        fds.frombytes(payload)
    return data, list(fds)


def _peer(client: socket.socket) -> int:
    """Return the process id of a client."""
    return struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def _fork() -> int:
    """Return as `os.fork`."""
    forker = os.getpid()
    pid = os.fork()
    if not pid:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # it ends with us, and we with the lasting clients
        if os.getppid() != forker:
            os._exit(1)
    return pid


def _become(request: dict[str, Any], fds: list[int]) -> None:
    """Run what was asked for. What it raises is left to the interpreter."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, _HIGH) for fd in fds]
    for fd in fds:
        os.close(fd)
    for number, fd in zip(request["numbers"], high, strict=True):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    if request["group"]:
        os.setpgid(0, 0)
    if request["session"]:
        os.setsid()
    if request["leash"] is not None:
        _leash(request["leash"])
    if request["destructors"]:
        _finalize_at_exit(True)
    else:
        _LIBC.on_exit(_LIBC._exit, None)  # registered last, called first: once the interpreter has ended
    _set_path(request)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = __builtins__  # type: ignore[attr-defined]
    if "module" in request:
        sys.argv = [request["module"], *request["args"]]
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    elif "path" in request:
        sys.argv = [request["path"], *request["args"]]
        runpy.run_path(request["path"], run_name="__main__")
    else:
        sys.argv = ["-c", *request["args"]]
        exec(compile(request["source"], "<string>", "exec"), main.__dict__)


def _end_with(error: BaseException) -> None:
    """End as the interpreter does after an exception that nothing caught."""
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        _end(error.code or 0)
    if isinstance(error, SystemExit):
        print(error.code, file=sys.stderr)
    else:
        sys.excepthook(type(error), error, error.__traceback__)
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    _end(1)


def _end(status: int) -> None:
    """Do what the interpreter does at its end, except to take apart what is loaded: that takes longer than most of
    these programs run. `processes.code` is for tests of that, too."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            status = status or 120
    os._exit(status)


def _set_path(request: dict[str, Any]) -> None:
    """As the interpreter begins: the program's folder first, unless that is not wanted, and PYTHONPATH."""
    sys.path[1:1] = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)
                     if entry and entry not in sys.path]
    if "path" in request:
        sys.path[0] = os.path.dirname(request["path"])
    elif os.environ.get("PYTHONSAFEPATH"):
        del sys.path[0]


def _leash(fd: int) -> None:
    """As `splatview.programs` has it done: SIGTERM when the other end is closed."""
    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(fd, getattr(fcntl, "F_SETSIG", 10), signal.SIGTERM)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_ASYNC)
    if select.select([fd], [], [], 0)[0]:
        os._exit(143)
