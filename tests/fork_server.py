"""The process that forks programs: `python -c "import fork_server; fork_server.serve(...)"`; `forking.py` starts it.

Requests are packets of JSON. {"source" or "module", ...} forks a program and is answered with its process id; the
program begins when the client has answered that. {"wait": PID} is answered with the status of a program that has ended,
{"started by": PID} with the command lines of what is forked for that process and not waited for, by process id.
{"share": true} is answered with the environment of this process, which then lasts as long as that client.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
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
    request, fds = _serve(server, listener)
    if not programs:
        _become(request, fds)
        return
    try:
        _become(request, fds)
        _end(0)
    except BaseException as e:
        _end_with(e)


def _serve(server: socket.socket, listener: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Serve for ever; returns in each forked program, with what it is to run and its descriptors."""
    clients, lasting = {server.fileno(): server}, {server}
    started: dict[int, tuple[int, str]] = {}
    poller = select.poll()
    poller.register(server, select.POLLIN)
    poller.register(listener, select.POLLIN)
    while True:
        for fd, _ in poller.poll():
            if fd == listener.fileno():
                client = listener.accept()[0]
                clients[client.fileno()] = client
                poller.register(client, select.POLLIN)
                continue
            data, fds = _receive(clients[fd])
            if not data:
                if clients[fd] in lasting:
                    lasting.remove(clients[fd])
                    _end_programs(started, _peer(clients[fd]))
                if not lasting:
                    os._exit(0)
                poller.unregister(fd)
                clients.pop(fd).close()
                continue
            request = json.loads(data)
            if "share" in request:
                lasting.add(clients[fd])
                clients[fd].send(json.dumps(dict(os.environ)).encode())
                continue
            if "wait" in request:
                clients[fd].send(str(os.waitpid(request["wait"], 0)[1]).encode())
                started.pop(request["wait"], None)
                continue
            if "started by" in request:
                found = {pid: line for pid, (parent, line) in started.items() if parent == request["started by"]}
                clients[fd].send(json.dumps(found).encode())
                continue
            pid = _fork(clients[fd], fds)
            if not pid:
                for one in (listener, *clients.values()):
                    one.close()
                return request, fds
            started[pid] = _peer(clients[fd]), " ".join([request.get("module", ""), *request["args"]])


def _finalize_at_exit(wanted: bool) -> None:
    for finalizer in _finalizers:
        finalizer.atexit = wanted


def _end_programs(started: dict[int, tuple[int, str]], parent: int) -> None:
    """Kill what was forked for a process and not waited for, and what was forked for that."""
    for pid in [pid for pid, (asked, _) in started.items() if asked == parent]:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        del started[pid]
        _end_programs(started, pid)


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


def _fork(client: socket.socket, fds: list[int]) -> int:
    """Return as `os.fork`; in the program once the client knows of it, and watches."""
    forker = os.getpid()
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        for fd in (read, *fds):
            os.close(fd)
        try:
            client.send(str(pid).encode())
            client.recv(16)
        except OSError:
            os.kill(pid, signal.SIGKILL)
        os.close(write)
        return pid
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # it ends with us, and we with the first client
    if os.getppid() != forker:
        os._exit(1)
    os.close(write)
    os.read(read, 1)
    os.close(read)
    return 0


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
