"""Programs that tests start, none of which outlives its test."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from support.wait import PATIENCE_S

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent


def environment(**variables: str) -> dict[str, str]:
    """Return the environment for a program of a test.

    It is this process's, with splatview and the tests' `support` importable.
    """
    folders = (ROOT, ROOT / "ipc", ROOT / "viewer_app", TESTS)
    path = os.pathsep.join(
        filter(None, [*map(str, folders), os.environ.get("PYTHONPATH")])
    )
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **variables}


class Program(subprocess.Popen[str]):
    """A program that reads and prints lines."""

    stdin: IO[str]  # pyright: ignore[reportIncompatibleVariableOverride]
    stdout: IO[str]  # pyright: ignore[reportIncompatibleVariableOverride]
    stderr: IO[str]  # pyright: ignore[reportIncompatibleVariableOverride]

    def line(self, timeout: float = PATIENCE_S) -> str:
        """Return the next line of the output, without its end; "" at the end of it.

        AssertionError after `timeout`.
        """
        guard = threading.Timer(timeout, self.kill)
        guard.start()
        try:
            line = self.stdout.readline()
        finally:
            guard.cancel()
            guard.join()
        if not line and self.poll() == -signal.SIGKILL:
            errors = self.stderr.read()[-3000:]
            raise AssertionError(
                f"process {self.pid} printed nothing for {timeout} s: {errors}"
            )
        return line.rstrip("\n")

    def write_line(self, line: str = "") -> None:
        """Send a line to the program."""
        self.stdin.write(line + "\n")
        self.stdin.flush()

    def end(self) -> tuple[str, str]:
        """Wait until the program ends; return the rest of its output and errors."""
        return self.communicate(timeout=PATIENCE_S)

    def killed(self) -> None:
        """Send SIGKILL, and wait."""
        self.kill()
        self.wait()

    def close(self) -> None:
        """Kill the program if it still runs. Idempotent."""
        if self.poll() is None:
            self.send_signal(signal.SIGKILL)
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()


class Programs:
    """Starts programs in one folder and ends them all with `close`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._running: list[Program] = []

    def python(self, *args: Any, **env: str) -> Program:
        """Start `python ARGS` with piped streams; `env` is added to the environment."""
        program = Program(
            [sys.executable, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=environment(**env),
        )
        self._running.append(program)
        return program

    def code(self, source: str, *args: Any, **env: str) -> Program:
        """Start `python -c SOURCE ARGS`."""
        return self.python("-c", source, *args, **env)

    def splatview(self, *args: Any, **env: str) -> Program:
        """Start the command line: `splatview ARGS`."""
        return self.python("-m", "splatview", *args, **env)

    def close(self) -> None:
        for program in self._running:
            program.close()
        self._running.clear()

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Output(io.StringIO):
    """Standard output or error that calls a function once a text is written."""

    def __init__(self, trigger: str, action: Callable[[], object]):
        super().__init__()
        self.trigger = trigger
        self.action = action

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.trigger and self.trigger in self.getvalue():
            self.trigger = ""
            self.action()
        return written


def children(pid: int) -> dict[int, str]:
    """Return the command lines of the living children of a process, by process id."""
    commands = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2]
            state, parent = fields.split()[:2]
            if state != "Z" and int(parent) == pid:
                command = (folder / "cmdline").read_text()
                commands[int(folder.name)] = command.replace("\0", " ")
        except OSError:
            continue
    return commands


def in_child(action: Callable[[], None]) -> None:
    """Run `action` in a forked child; AssertionError where it raises there."""
    with warnings.catch_warnings():
        # Python warns of a fork beside threads, which is what is tested.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            action()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"the child ended with {status}"
