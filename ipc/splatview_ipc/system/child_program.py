"""Child programs: Python modules that run beside this process and end with it.

    program = ChildProgram("splatview_viewer", "serve", "--web")
    program.running(), program.last_words()
    program.end(patience_s=3.0)

None of them runs code from the current folder, which may be one where other users write, such as /tmp: Python's option
-P keeps it, and a script's own folder, out of `sys.path`.
"""

from __future__ import annotations

import contextlib
import os
import sys

TYPE_CHECKING = False  # the command line imports this before anything else
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping
    from typing import IO

_OURS = "splatview"
"""The value of PYTHONSAFEPATH where the user has not set it."""
_PARENT = "SPLATVIEW_PARENT"
"""Environment variable of a child program: the id of the process with which it ends."""
_NOISE = ("libEGL warning", "MESA", "Corrupt JPEG data")
"""First words of lines of graphics drivers, and of libjpeg about a webcam's pictures, which would only alarm."""
_LONGEST_LINE = 4096
_LAST_WORDS = 2000
"""Characters of stderr that `last_words` returns."""
_MOST_KEPT_BYTES = 1 << 20
_abandoned: list[subprocess.Popen[str]] = []
"""Terminated processes whose ChildProgram was garbage collected; each is polled until it has ended."""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs `python -m MODULE ARGUMENTS` without the current folder in `sys.path`."""
    return [sys.executable, "-P", "-m", module, *arguments]


def code_command(program: str, *arguments: str) -> list[str]:
    """Return the command line that runs `python -c PROGRAM ARGUMENTS`, as `command`."""
    return [sys.executable, "-P", "-c", program, *arguments]


def environment(base: Mapping[str, str] | None = None, /, **more: str) -> dict[str, str]:
    """Return the environment for a `command`: `base` (default: this process's) and `more`, with a safe module path.

    PYTHONPATH keeps its absolute entries. PYTHONSAFEPATH keeps the current folder away from the interpreters that
    libraries start.
    """
    env = {**(os.environ if base is None else base), **more}
    env["PYTHONSAFEPATH"] = env.get("PYTHONSAFEPATH") or _OURS
    env.pop(_PARENT, None)
    entries = [e for e in env.pop("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(e)]
    return {**env, "PYTHONPATH": os.pathsep.join(entries)} if entries else env


def restore_user_environment() -> None:
    """Undo what `environment` added to this process's environment, before code of the user starts programs."""
    os.environ.pop(_PARENT, None)
    if os.environ.get("PYTHONSAFEPATH") == _OURS:
        del os.environ["PYTHONSAFEPATH"]


def end_with_parent() -> None:
    """End this process with SIGTERM when the process that started it as a ChildProgram ends; otherwise do nothing.

    A thread waits for that: PR_SET_PDEATHSIG would send its signal when the thread that started this process ends.
    """
    parent = os.environ.get(_PARENT)  # stays for a program that replaces this one by os.exec*
    if not parent:
        return
    import select
    import signal
    import threading

    try:
        pidfd = os.pidfd_open(int(parent))
    except ProcessLookupError:
        pidfd = -1
    if pidfd < 0 or os.getppid() != int(parent):
        sys.exit("splatview: the program that started this one has ended")

    def wait() -> None:
        select.select([pidfd], [], [])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


class ChildProgram:
    """A Python module that runs as a program of its own, in a session of its own: Ctrl-C reaches this process alone.

    It gets SIGTERM when this process ends, killed or not, and when this object is garbage collected. A forked child of
    this process neither ends it nor waits for it.
    """

    def __init__(self, module: str, *arguments: str, env: Mapping[str, str] | None = None, pipes: bool = False,
                 on_output: Callable[[str], None] | None = None, on_error: Callable[[str], None] | None = None,
                 pass_fds: tuple[int, ...] = ()) -> None:
        """Start it.

        Args:
            module: one of ours, which calls `end_with_parent`, as `entry.run` does.
            env: its environment, which `environment` completes; default: this process's.
            pipes: whether `stdin` and `stdout` are pipes. Otherwise stdin is empty, and stdout goes where stderr goes.
            on_output, on_error: called with each line of stdout or stderr, in a daemon thread each. Lines that are
                only noise of drivers are left out. Without `on_error` no thread is needed for stderr.
            pass_fds: further descriptors that it inherits.
        """
        import fcntl
        import subprocess
        import tempfile
        import threading
        import weakref

        _abandoned[:] = [process for process in _abandoned if process.poll() is None]
        self._said: IO[bytes] = tempfile.TemporaryFile(prefix="splatview-", buffering=0)  # nothing has to read it
        fcntl.fcntl(self._said, fcntl.F_SETFL, os.O_APPEND)
        self._last_words = ""
        self._owner_pid = os.getpid()
        said = self._said if on_error is None else subprocess.PIPE
        apart = pipes or on_output is not None
        try:
            process = self._process = subprocess.Popen(
                command(module, *arguments), env={**environment(env), _PARENT: str(os.getpid())},
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL, stdout=subprocess.PIPE if apart else said,
                stderr=said if apart else subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
                pass_fds=pass_fds)
        except BaseException:
            self._said.close()
            raise
        weakref.finalize(self, _abandon, process, self._owner_pid)
        self.pid, self.stdin = process.pid, process.stdin
        self.stdout = process.stdout if pipes and on_output is None else None
        """Pipes, or None."""
        errors = process.stderr if apart else process.stdout
        self._readers = [threading.Thread(target=_read, args=(pipe, tell, said), daemon=True)
                         for pipe, tell, said in ((process.stdout, on_output, None), (errors, on_error, self._said))
                         if tell is not None]
        for reader in self._readers:
            reader.start()

    @property
    def exit_code(self) -> int | None:
        """None while it runs, minus the signal's number after a signal."""
        return self._process.poll()

    def running(self) -> bool:
        if not self._said.closed and os.fstat(self._said.fileno()).st_size > _MOST_KEPT_BYTES:
            os.ftruncate(self._said.fileno(), 0)
        return self._process.poll() is None

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end; return its exit code, or None if it still runs after `timeout_s` seconds."""
        import subprocess

        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def last_words(self) -> str:
        """Return the last lines of its stderr, at most 2000 characters."""
        if not self._said.closed:
            size = os.fstat(self._said.fileno()).st_size
            words = os.pread(self._said.fileno(), _LAST_WORDS, max(0, size - _LAST_WORDS)).decode(errors="replace")
            lines = [line for line in words.splitlines() if not line.startswith(_NOISE)]
            self._last_words = "\n".join(lines).strip() or "it said nothing"
        return self._last_words

    def end(self, patience_s: float = 10.0) -> None:
        """Close its pipes and terminate it; kill it after `patience_s` seconds. `last_words` stays. Idempotent."""
        for pipe in (self.stdin, self.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if os.getpid() == self._owner_pid:
            if self._process.poll() is None:
                self._process.terminate()
                if self.wait(patience_s) is None:
                    self._process.kill()
                    self._process.wait()
            for reader in self._readers:
                reader.join(1.0)  # a program that it started may hold the pipe open
        self.last_words()
        self._said.close()


def _read(pipe: IO[str], tell: Callable[[str], None], said: IO[bytes] | None) -> None:
    with pipe:
        while line := pipe.readline(_LONGEST_LINE):
            if not line.startswith(_NOISE):
                if said is not None:
                    with contextlib.suppress(ValueError):  # closed by `end`
                        said.write(line.encode())
                tell(line.rstrip("\n"))


def _abandon(process: subprocess.Popen[str], owner_pid: int) -> None:
    if os.getpid() != owner_pid:
        process.returncode = 0  # the parent's: it must not complain that it still runs
    elif process.poll() is None:
        process.terminate()
        _abandoned.append(process)
