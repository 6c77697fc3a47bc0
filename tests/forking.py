"""Programs that start in milliseconds: forked by a process that has imported torch and ours already.

Half of what the tests do is to start programs, each of which imports torch for a second and a half. A forked one runs
as one that was started: nothing of ours was begun in its parent, no thread, no run, no graphics; it ends as the
interpreter ends, and its streams, exit status and signals are those of any `subprocess.Popen`.
"""

from __future__ import annotations

import array
import contextlib
import functools
import json
import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
_EARLY = ("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "CUDA", "PYTORCH_", "TORCH_", "NUMBA_", "NPY_",
          "MALLOC_", "GLIBC_", "LC_", "LANG", "PATH")
"""Variables of the environment that are read when the interpreter starts, or what a forked program finds loaded. Others
are read when they are needed."""
_SERVER = """
import array, ctypes, gc, json, os, signal, socket, sys, threading, types
import torch, numpy, zmq, msgspec, splatview, splatview.publishing, splatview.ipc
from splatview.ipc import Subscriber, Publisher
for name in filter(None, sys.argv[2].split(",")):
    __import__(name)
torch.set_num_threads(1)
assert threading.active_count() == 1, threading.enumerate()
server = socket.socket(fileno=int(sys.argv[1]))
forker, when_it_dies, libc = os.getpid(), 1, ctypes.CDLL(None)  # PR_SET_PDEATHSIG
gc.collect()
gc.freeze()
server.send(b"ready")
while True:
    data, control, _, _ = server.recvmsg(1 << 20, socket.CMSG_SPACE(64))
    if not data:
        os._exit(0)
    request = json.loads(data)
    if "wait" in request:
        server.send(str(os.waitpid(request["wait"], 0)[1]).encode())
        continue
    fds = array.array("i")
    for _, _, payload in control:
        fds.frombytes(payload)
    read, write = os.pipe()
    pid = os.fork()
    if not pid:  # it ends with us, and we with whoever asks: also where that is killed
        libc.prctl(when_it_dies, signal.SIGKILL)
        if os.getppid() != forker:
            os._exit(1)
        break
    for fd in (read, *fds):
        os.close(fd)
    server.send(str(pid).encode())
    server.recv(16)
    os.close(write)
server.close()
os.close(write)
os.read(read, 1)  # until whoever asked knows us, and watches
os.close(read)
for number, fd in enumerate(fds):
    os.dup2(fd, number)
    os.close(fd)
os.environ.clear()
os.environ.update(request["env"])
os.chdir(request["cwd"])
if request["group"]:
    os.setpgid(0, 0)
sys.argv = ["-c", *request["args"]]
main = sys.modules["__main__"] = types.ModuleType("__main__")
main.__builtins__ = __builtins__
exec(compile(request["source"], "<string>", "exec"), main.__dict__)
"""


def environment(**more: str) -> dict[str, str]:
    """What programs of the tests find: this process's, and ours to import, wherever they run."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def serves(env: Mapping[str, str]) -> bool:
    """Whether a forked program with this environment is as one that was started with it."""
    before = server().env
    return all(env.get(name) == before.get(name) for name in env.keys() | before.keys() if name.startswith(_EARLY))


class ForkServer:
    """The process that forks. `close` it, or let it end with this one."""

    def __init__(self, *modules: str):
        """`modules` are imported as well, before anything is forked. They must not begin threads."""
        self.env = environment()
        self._lock = threading.Lock()
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVER, str(theirs.fileno()), ",".join(modules)], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=self.env)
        self._ours.settimeout(PATIENCE)
        try:
            self._expect()
        except BaseException:
            self.close()
            raise

    def fork(self, source: str, args: Sequence[str], fds: Sequence[int], env: Mapping[str, str], cwd: str, *,
             group: bool = False) -> tuple[int, int]:
        """Run `source`, with `fds` as its descriptors from 0 on; its process id, and a descriptor, the caller's, that
        is readable when it has ended. `group`: whether it gets a process group of its own."""
        request = {"source": source, "args": list(args), "env": dict(env), "cwd": cwd, "group": group}
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        with self._lock:
            self._ours.sendmsg([json.dumps(request).encode()], rights)
            pid = int(self._expect())
            watched = os.pidfd_open(pid)
            self._ours.send(b"go")
        return pid, watched

    def status(self, pid: int) -> int:
        """What `os.waitpid` tells of a program that has ended. To be asked once."""
        with self._lock:
            self._ours.send(json.dumps({"wait": pid}).encode())
            return int(self._expect())

    def _expect(self) -> bytes:
        answer = self._ours.recv(64)
        if not answer:
            raise RuntimeError(f"the process that forks ended with {self._process.wait(PATIENCE)}")
        return answer

    def close(self) -> None:
        """Idempotent."""
        self._ours.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@functools.cache
def server(*modules: str) -> ForkServer:
    """The one of this process that has imported these as well. It ends with this process."""
    return ForkServer(*modules)


class ForkedProgram(subprocess.Popen[str]):
    """`python -c SOURCE ARGS`, as a Popen: forked, by the same interpreter with the same packages."""

    _watched = -1

    def _execute_child(self, args: Sequence[str], *more: Any) -> None:  # type: ignore[override]
        # What Popen hands over ends with the three pairs of descriptors and what the next Python adds behind them.
        names = subprocess.Popen._execute_child.__code__.co_varnames[2:]  # type: ignore[attr-defined]
        given = dict(zip(names, more, strict=False))
        said = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
        self._server = server()
        self.pid, self._watched = self._server.fork(args[2], args[3:], said, given["env"], str(given["cwd"]))
        self._child_created = True
        for fd in said:
            os.close(fd)

    def _ended(self, seconds: float | None) -> bool:
        if self.returncode is None and self._watched >= 0 and select.select([self._watched], [], [], seconds)[0]:
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
