"""A process that has imported everything once and forks a program per request, in milliseconds.

Hundreds of trainers or viewers are started and killed in the tests of faults: each would import torch for a second. A
forked one behaves as one that was started: nothing of ours was begun in the nursery, no thread, no run, no graphics.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

from patience import PATIENCE

if TYPE_CHECKING:
    from programs import Processes

_SERVER = """
import array, gc, json, os, signal, socket, sys, threading
import torch, numpy, msgspec, splatview, ipc
from ipc import Subscriber, Publisher
for name in filter(None, sys.argv[2].split(",")):
    __import__(name)
torch.set_num_threads(1)
assert threading.active_count() == 1, threading.enumerate()
server = socket.socket(fileno=int(sys.argv[1]))
gc.collect()
gc.freeze()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody becomes a zombie
server.send(b"ready")
while True:
    data, control, _, _ = server.recvmsg(1 << 20, socket.CMSG_SPACE(8))
    if not data:
        os._exit(0)
    request = json.loads(data)
    fds = array.array("i")
    for _, _, payload in control:
        fds.frombytes(payload)
    said, status = fds
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            server.close()
            os.close(write)
            os.read(read, 1)  # until whoever asked has our number, and watches
            os.close(read)
            os.dup2(said, 1)
            os.close(said)
            os.environ.update(request["env"])
            sys.argv = ["-c", *request["args"]]
            os.setpgid(0, 0)
            exec(compile(request["source"], "<program>", "exec"), {"__name__": "__main__"})
            code = 0
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else int(e.code is not None)
        except BaseException:
            import traceback
            traceback.print_exc()
            code = 1
        try:
            sys.stdout.flush()
            os.write(status, str(code).encode())
            if request["exit"]:
                import atexit
                atexit._run_exitfuncs()
            sys.stdout.flush()
        finally:
            os._exit(code)
    os.close(read)
    os.close(said)
    os.close(status)
    server.send(str(pid).encode())
    server.recv(16)
    os.close(write)
"""


class Child:
    """A program that the nursery started."""

    def __init__(self, pid: int, said: int, status: int):
        self.pid = pid
        self._said = os.fdopen(said, "r", encoding="utf-8")
        self._status = status
        self._code = b""
        self._pidfd = os.pidfd_open(pid)

    def line(self) -> str:
        """The next line that it prints, without its end; "" when it has ended."""
        return self._said.readline().rstrip("\n")

    def rest(self) -> list[str]:
        """All lines to come, to its end."""
        return self._said.read().splitlines()

    @property
    def alive(self) -> bool:
        return not select.select([self._pidfd], [], [], 0)[0]

    def signal(self, number: int) -> None:
        """Nothing happens when it has ended."""
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            pass

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, seconds: float = PATIENCE) -> int | None:
        """Wait for its end; what it exits with, None when it was killed or called os._exit. Raises TimeoutError."""
        if not select.select([self._pidfd], [], [], seconds)[0]:
            raise TimeoutError(f"process {self.pid} did not end within {seconds} s")
        if self._code == b"":
            self._code = os.read(self._status, 16)
        return int(self._code) if self._code else None

    def close(self) -> None:
        self.signal(signal.SIGKILL)
        self._said.close()
        for fd in (self._pidfd, self._status):
            os.close(fd)


class Nursery:
    """Starts programs given as text: `with Nursery(processes) as nursery: child = nursery.start(source, *args)`.

    They have what `python -c` gives, and torch, splatview and ipc are imported already; SPLATVIEW_RUNTIME_DIR and the
    like are this process's at the time of the start. None outlives the nursery.
    """

    def __init__(self, processes: Processes, *modules: str):
        """`modules` are imported as well before anything is started, "viewer_app.app" for example. They must not begin
        threads."""
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._children: list[Child] = []
        with theirs:
            self._process = processes.python("-c", _SERVER, str(theirs.fileno()), ",".join(modules),
                                             pass_fds=[theirs.fileno()])
        self._ours.settimeout(PATIENCE)
        self._expect()

    def start(self, source: str, *args: Any, exits: bool = True, **env: str) -> Child:
        """Start `source` with `args`, as text, and variables of the environment. `exits`: whether the functions that
        were registered with atexit run at its end, as they do at the end of a program."""
        said = os.pipe()
        status = os.pipe()
        passed = {name: value for name, value in os.environ.items() if name.startswith(("SPLATVIEW_", "XDG_", "HOME"))}
        request = json.dumps({"source": source, "args": [str(a) for a in args], "env": {**passed, **env},
                              "exit": exits}).encode()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [said[1], status[1]]))]
        self._ours.sendmsg([request], rights)
        os.close(said[1])
        os.close(status[1])
        child = Child(int(self._expect()), said[0], status[0])
        self._ours.send(b"go")
        self._children.append(child)
        return child

    def _expect(self) -> bytes:
        answer = self._ours.recv(64)
        if not answer:
            self._ours.close()
            self._process.kill()
            raise RuntimeError(f"the nursery ended: {self._process.communicate()[1]}")
        return answer

    def close(self) -> None:
        """End everything. Idempotent."""
        for child in self._children:
            child.close()
        self._children.clear()
        self._ours.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def until(moment: float) -> None:
    """Sleep until time.monotonic() is `moment`, to a few microseconds: the last millisecond is waited for awake."""
    while (left := moment - time.monotonic()) > 0:
        time.sleep(max(0.0, left - 0.001))
