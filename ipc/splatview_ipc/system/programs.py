"""Programs that end when this process does, however it ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import weakref
from typing import Any

from splatview_ipc.system import child_program

_LEASHED = """
import fcntl, os, select, signal, sys
leash = int(sys.argv[1])
fcntl.fcntl(leash, fcntl.F_SETOWN, os.getpid())
fcntl.fcntl(leash, getattr(fcntl, "F_SETSIG", 10), signal.SIGTERM)
fcntl.fcntl(leash, fcntl.F_SETFL, os.O_ASYNC)
if select.select([leash], [], [], 0)[0]:
    sys.exit(143)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""The reading end of a pipe whose other end closes with this process: the kernel sends SIGTERM then. In the child's
own Python: after a fork beside a thread no code of this process may run. PR_SET_PDEATHSIG would not do: it ends the
child with the thread that started it, and notebooks run cells in threads."""
_leashes: set[int] = set()


def start(module: str, *arguments: str, **options: Any) -> subprocess.Popen[Any]:
    """Start `python -m MODULE ARGUMENTS` in a session of its own: Ctrl-C reaches this process alone. `options` are
    Popen's, its `pass_fds` and `env` among them. `child_program` explains where the program finds its modules.

    It gets SIGTERM when this process ends, killed or not, and when the object returned here is no longer kept.
    """
    passed = options.pop("pass_fds", ())
    env = child_program.environment(options.pop("env", None))
    program = child_program.command(module, *arguments)
    read, write = os.pipe()
    try:
        process = subprocess.Popen([sys.executable, "-ISc", _LEASHED, str(read), *program],
                                   pass_fds=[read, *passed], start_new_session=True, env=env, **options)
    except BaseException:
        os.close(write)
        raise
    finally:
        os.close(read)
    _leashes.add(write)
    weakref.finalize(process, _let_go, write)
    return process


def end(process: subprocess.Popen[Any] | None, patience: float = 10.0) -> None:
    """Terminate, then, after `patience` seconds, kill; and close its streams. Idempotent."""
    if process is None:
        return
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stderr is not None:
        process.stderr.close()


def _let_go(leash: int) -> None:
    if leash in _leashes:
        _leashes.remove(leash)
        os.close(leash)


def _after_fork_in_child() -> None:
    """The programs are the parent's: a child that lives on must not keep them."""
    while _leashes:
        os.close(_leashes.pop())


os.register_at_fork(after_in_child=_after_fork_in_child)
