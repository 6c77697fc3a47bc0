"""Child programs: Python modules that run beside this process and end with it.

    program = ChildProgram("splatview_viewer", "serve", "--web")
    program.is_running(), program.last_error_lines()
    program.end(timeout_s=3.0)

None of them runs code from the current folder, which may be one where other users
write, such as /tmp: Python's option -P keeps it, and a script's own folder, out of
`sys.path`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import IO, Any

_PARENT = "SPLATVIEW_PARENT"
"""Environment variable of a child program: the id of the process with which it ends."""
_NOISE = ("libEGL warning", "MESA", "Corrupt JPEG data")
"""First words of lines that would only alarm: of graphics drivers, and of libjpeg about
a webcam's pictures."""
_MAX_LINE = 4096
_ERROR_TAIL_BYTES = 2000
_MAX_LOG_BYTES = 1 << 20


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line of `python -m MODULE ARGUMENTS`.

    The current folder is not in the `sys.path` of that program.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(
    base: Mapping[str, str] | None = None, /, **additions: str
) -> dict[str, str]:
    """Return the environment for a `command`: `base` and `additions`.

    The default of `base` is the environment of this process. Of PYTHONPATH only the
    absolute entries are kept.
    """
    if base is None:
        base = os.environ
    variables = {**base, **additions}
    variables.pop(_PARENT, None)
    python_path = variables.pop("PYTHONPATH", "")
    entries = [e for e in python_path.split(os.pathsep) if os.path.isabs(e)]
    if entries:
        variables["PYTHONPATH"] = os.pathsep.join(entries)
    return variables


def end_with_parent(patience_s: float | None = None) -> None:
    """End this process with SIGTERM when the process that started it ends.

    Does nothing in a process that was not started as a ChildProgram. A thread waits for
    that: PR_SET_PDEATHSIG would send its signal when the thread that started this
    process ends.

    Args:
        patience_s: seconds after which it is ended without any cleaning up, as where the
            main thread computes on and takes no signal; None: never.
    """
    # The variable stays for a program that replaces this one by os.exec*.
    parent = int(os.environ.get(_PARENT, "0"))
    if not parent:
        return
    try:
        pidfd = os.pidfd_open(parent)
    except ProcessLookupError:
        sys.exit("splatview: the program that started this one has ended")

    def wait() -> None:
        select.select([pidfd], [], [])
        # To the main thread, where Python handles it: one that sleeps in a lock is not
        # woken by a signal that another thread gets, as where a debugger stops this
        # one.
        main_thread = threading.main_thread()
        assert main_thread.ident is not None
        signal.pthread_kill(main_thread.ident, signal.SIGTERM)
        if patience_s is None:
            return
        main_thread.join(patience_s)
        if main_thread.is_alive():
            os._exit(128 + signal.SIGTERM)

    # A program that a child program started in another way has inherited the variable.
    is_own_child = os.getppid() == parent
    if is_own_child:
        threading.Thread(target=wait, daemon=True).start()


class ChildProgram:
    """A Python module that runs as a program of its own.

    It has a session of its own: Ctrl-C reaches this process alone. It gets SIGTERM when
    this process ends, killed or not, and when this object is garbage collected. A
    forked child of this process does not end it.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        pipes: bool = False,
        on_output: Callable[[str], None] | None = None,
        on_error: Callable[[str], None] | None = None,
    ) -> None:
        """Start the program.

        Args:
            module: one of ours, which calls `end_with_parent`, as `entry.run` does.
            env: its environment, which `environment` completes; default: this
                process's.
            pipes: make `stdin` and `stdout` pipes. Otherwise stdin is empty, and stdout
                goes where stderr goes.
            on_output: called with each line of stdout, in a daemon thread. Lines that
                are only noise of drivers are left out.
            on_error: the same for stderr. Without it no thread is needed for stderr.
        """
        self._owner_pid = os.getpid()
        self._error_tail = ""
        # Unlike a pipe, a file is never full.
        error_log = tempfile.TemporaryFile(prefix="splatview-", buffering=0)
        self._error_log = error_log
        fcntl.fcntl(error_log, fcntl.F_SETFL, os.O_APPEND)
        errors = error_log if on_error is None else subprocess.PIPE
        stdout = errors
        stderr: Any = subprocess.STDOUT
        if pipes or on_output is not None:
            stdout = subprocess.PIPE
            stderr = errors
        try:
            process = subprocess.Popen(
                command(module, *arguments),
                env={**environment(env), _PARENT: str(os.getpid())},
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._process = process
        except BaseException:
            error_log.close()
            raise
        self.pid = process.pid
        self.stdin = process.stdin
        self.stdout = process.stdout if pipes and on_output is None else None
        """Pipes, or None."""
        self._readers: list[threading.Thread] = []
        if on_output is not None:
            self._start_reader(process.stdout, on_output, None)
        if on_error is not None:
            error_pipe = process.stderr or process.stdout
            self._start_reader(error_pipe, on_error, error_log)

    def _start_reader(
        self,
        pipe: IO[str] | None,
        on_line: Callable[[str], None],
        log: IO[bytes] | None,
    ) -> None:
        assert pipe is not None
        reader = threading.Thread(
            target=_read_lines, args=(pipe, on_line, log), daemon=True
        )
        self._readers.append(reader)
        reader.start()

    @property
    def exit_code(self) -> int | None:
        """None while it runs, minus the signal's number after a signal."""
        return self._process.poll()

    def is_running(self) -> bool:
        log = self._error_log
        if not log.closed and os.fstat(log.fileno()).st_size > _MAX_LOG_BYTES:
            os.ftruncate(log.fileno(), 0)
        return self.exit_code is None

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait until the program ends, and return its exit code.

        Returns None if it still runs after `timeout_s` seconds.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self.exit_code

    def send_signal(self, signal_number: int) -> None:
        self._process.send_signal(signal_number)

    def last_error_lines(self) -> str:
        """Return the last lines of the program's stderr, at most 2000 bytes."""
        log = self._error_log
        if log.closed:
            return self._error_tail
        size = os.fstat(log.fileno()).st_size
        offset = max(0, size - _ERROR_TAIL_BYTES)
        tail = os.pread(log.fileno(), _ERROR_TAIL_BYTES, offset)
        lines = tail.decode(errors="replace").splitlines()
        text = "\n".join(line for line in lines if not line.startswith(_NOISE))
        self._error_tail = text.strip() or "it said nothing"
        return self._error_tail

    def end(self, timeout_s: float = 10.0) -> None:
        """Close the program's pipes and terminate it.

        It is killed if it still runs after `timeout_s` seconds. `last_error_lines`
        stays. Idempotent.
        """
        for pipe in filter(None, (self.stdin, self.stdout)):
            with contextlib.suppress(OSError):
                pipe.close()
        if os.getpid() == self._owner_pid:
            self._process.terminate()
            if self.wait(timeout_s) is None:
                self._process.kill()
                self._process.wait()
            for reader in self._readers:
                # A program that it started may hold the pipe open.
                reader.join(1.0)
        self.last_error_lines()
        self._error_log.close()

    def __del__(self) -> None:
        if hasattr(self, "_process") and os.getpid() == self._owner_pid:
            self._process.terminate()


def _read_lines(
    pipe: IO[str], on_line: Callable[[str], None], log: IO[bytes] | None
) -> None:
    """Call `on_line` with each line of a pipe, and write it to `log`, until its end."""
    # ValueError: `end` has closed the log.
    with pipe, contextlib.suppress(ValueError):
        while line := pipe.readline(_MAX_LINE):
            if line.startswith(_NOISE):
                continue
            if log is not None:
                log.write(line.encode())
            on_line(line.rstrip("\n"))
