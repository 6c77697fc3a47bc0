"""Child programs: Python modules that run beside this process and end with it.

    program = ChildProgram("splatview_viewer", "serve", "--web")
    program.is_running(), program.last_error_lines()
    program.end(timeout_s=3.0)

None of them runs code from the current folder, which may be one where other users write, such as /tmp: Python's option
-P keeps it, and a script's own folder, out of `sys.path`.
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
    from typing import IO

_PARENT = "SPLATVIEW_PARENT"
"""Environment variable of a child program: the id of the process with which it ends."""
_NOISE = ("libEGL warning", "MESA", "Corrupt JPEG data")
"""First words of lines of graphics drivers, and of libjpeg about a webcam's pictures, which would only alarm."""
_LONGEST_LINE = 4096
_LAST_WORDS_BYTES = 2000
_MOST_KEPT_BYTES = 1 << 20


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs `python -m MODULE ARGUMENTS` without the current folder in `sys.path`."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(
    base: Mapping[str, str] | None = None, /, **more: str
) -> dict[str, str]:
    """Return the environment for a `command`: `base` (default: this process's) and `more`, with the absolute entries of
    PYTHONPATH alone.
    """
    env = {**(os.environ if base is None else base), **more}
    env.pop(_PARENT, None)
    entries = [
        e for e in env.pop("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(e)
    ]
    return {**env, "PYTHONPATH": os.pathsep.join(entries)} if entries else env


def end_with_parent() -> None:
    """End this process with SIGTERM when the process that started it as a ChildProgram ends; otherwise do nothing.

    A thread waits for that: PR_SET_PDEATHSIG would send its signal when the thread that started this process ends.
    """
    parent = int(
        os.environ.get(_PARENT, "0")
    )  # stays for a program that replaces this one by os.exec*
    if not parent:
        return
    try:
        pidfd = os.pidfd_open(parent)
    except ProcessLookupError:
        sys.exit("splatview: the program that started this one has ended")

    def wait() -> None:
        select.select([pidfd], [], [])
        # To the main thread, where Python handles it: one that sleeps in a lock is not
        # woken by a signal that another thread gets, as where a debugger stops this one.
        main_thread = threading.main_thread().ident
        assert main_thread is not None
        signal.pthread_kill(main_thread, signal.SIGTERM)

    if (
        os.getppid() == parent
    ):  # not a program that a child program started in another way
        threading.Thread(target=wait, daemon=True).start()


class ChildProgram:
    """A Python module that runs as a program of its own, in a session of its own: Ctrl-C reaches this process alone.

    It gets SIGTERM when this process ends, killed or not, and when this object is garbage collected. A forked child of
    this process does not end it.
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
        """Start it.

        Args:
            module: one of ours, which calls `end_with_parent`, as `entry.run` does.
            env: its environment, which `environment` completes; default: this process's.
            pipes: whether `stdin` and `stdout` are pipes. Otherwise stdin is empty, and stdout goes where stderr goes.
            on_output, on_error: called with each line of stdout or stderr, in a daemon thread each. Lines that are
                only noise of drivers are left out. Without `on_error` no thread is needed for stderr.
        """
        self._owner_pid = os.getpid()
        self._last_words = ""
        # unlike a pipe never full
        said = tempfile.TemporaryFile(prefix="splatview-", buffering=0)
        self._error_log = said
        fcntl.fcntl(said, fcntl.F_SETFL, os.O_APPEND)
        errors = said if on_error is None else subprocess.PIPE
        apart = pipes or on_output is not None
        try:
            process = subprocess.Popen(
                command(module, *arguments),
                env={**environment(env), _PARENT: str(os.getpid())},
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if apart else errors,
                stderr=errors if apart else subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._process = process
        except BaseException:
            said.close()
            raise
        self.pid = process.pid
        self.stdin = process.stdin
        self.stdout = process.stdout if pipes and on_output is None else None
        """Pipes, or None."""
        self._readers = [
            threading.Thread(target=_read, args=(pipe, tell, keep), daemon=True)
            for pipe, tell, keep in (
                (process.stdout, on_output, None),
                (process.stderr or process.stdout, on_error, said),
            )
            if tell is not None
        ]
        for reader in self._readers:
            reader.start()

    @property
    def exit_code(self) -> int | None:
        """None while it runs, minus the signal's number after a signal."""
        return self._process.poll()

    def is_running(self) -> bool:
        if (
            not self._error_log.closed
            and os.fstat(self._error_log.fileno()).st_size > _MOST_KEPT_BYTES
        ):
            os.ftruncate(self._error_log.fileno(), 0)
        return self.exit_code is None

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end; return its exit code, or None if it still runs after `timeout_s` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self.exit_code

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def last_error_lines(self) -> str:
        """Return the last lines of its stderr, at most 2000 bytes."""
        if not self._error_log.closed:
            size = os.fstat(self._error_log.fileno()).st_size
            words = os.pread(
                self._error_log.fileno(),
                _LAST_WORDS_BYTES,
                max(0, size - _LAST_WORDS_BYTES),
            )
            lines = [
                line
                for line in words.decode(errors="replace").splitlines()
                if not line.startswith(_NOISE)
            ]
            self._last_words = "\n".join(lines).strip() or "it said nothing"
        return self._last_words

    def end(self, timeout_s: float = 10.0) -> None:
        """Close its pipes and terminate it; kill it after `timeout_s` seconds. `last_error_lines` stays. Idempotent."""
        for pipe in filter(None, (self.stdin, self.stdout)):
            with contextlib.suppress(OSError):
                pipe.close()
        if os.getpid() == self._owner_pid:
            self._process.terminate()
            if self.wait(timeout_s) is None:
                self._process.kill()
                self._process.wait()
            for reader in self._readers:
                reader.join(1.0)  # a program that it started may hold the pipe open
        self.last_error_lines()
        self._error_log.close()

    def __del__(self) -> None:
        if hasattr(self, "_process") and os.getpid() == self._owner_pid:
            self._process.terminate()


def _read(pipe: IO[str], tell: Callable[[str], None], keep: IO[bytes] | None) -> None:
    with pipe, contextlib.suppress(ValueError):  # `keep` is closed by `end`
        while line := pipe.readline(_LONGEST_LINE):
            if not line.startswith(_NOISE):
                if keep is not None:
                    keep.write(line.encode())
                tell(line.rstrip("\n"))
