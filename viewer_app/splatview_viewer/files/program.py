"""A bounded program that reads files for the viewer: the viewer's side. `program_limits` is the program's side."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

import msgspec

from splatview_ipc.system import child_program
from splatview_viewer.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.files.common import Progress

POLL = 0.1
"""Seconds within which a cancel is noticed."""
MAX_LINE = 1 << 20
"""Bytes of one message of the program."""
_NOT_ENOUGH = "not enough memory to load it, or it is made to exhaust memory"


class Going(msgspec.Struct, frozen=True, array_like=True, tag="progress"):
    """How far the program is."""

    what: str
    fraction: float


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="error"):
    """Why the file cannot be read."""

    reason: str


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """The result is written; what describes it, as JSON."""

    value: msgspec.Raw


_messages = msgspec.json.Decoder(Going | Failed | Done)


class ReadingProgram:
    """A program that reads inherited files and writes what they hold to an inherited descriptor.

    It shares no memory with the viewer, so what a hostile file does to a decoder ends there.

    Args:
        module: what is run, a module of splatview's own.
        job: its argument, as JSON; the integers in it, also in lists, are descriptors, which it inherits.
        subject: what is read, for error messages.
        env: environment variables in addition.
    """

    def __init__(self, module: str, job: dict[str, Any], subject: str = "file", **env: str) -> None:
        self._subject = subject
        self._errors = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                child_program.command(module, msgspec.json.encode(job).decode()),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, cwd="/",
                pass_fds=[fd for v in job.values() for fd in (v if isinstance(v, list) else [v]) if type(fd) is int],
                # One thread is enough, and what others reserve counts against the bound.
                env=child_program.environment(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", PYTHONUNBUFFERED="",
                                              PYTHONWARNINGS="ignore") | env)
        except BaseException:
            self._errors.close()
            raise

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def wait(self, progress: Progress, meanwhile: Callable[[], bool] = lambda: False) -> bytes:
        """Return the JSON that describes the result, once it is written.

        Args:
            progress: called at least ten times a second; what it raises is raised.
            meanwhile: called as long as it returns True, to do something useful in pieces.

        Raises:
            FileError: the file cannot be read.
        """
        out = self._process.stdout
        assert out is not None
        os.set_blocking(out.fileno(), False)
        last, rest, more = ("starting", 0.0), b"", True
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            while True:
                progress(*last)
                more = more and meanwhile()
                if not selector.select(0 if more else POLL):
                    continue
                data = out.read(1 << 16)
                if data == b"":
                    raise FileError(self._why())
                *lines, rest = (rest + (data or b"")).split(b"\n")
                if len(rest) > MAX_LINE:
                    raise FileError(f"the program that reads the {self._subject} wrote more than {MAX_LINE:,} bytes "
                                    "without an end of line")
                for line in lines:
                    message = self._parsed(line)
                    if isinstance(message, Done):
                        return bytes(message.value)
                    if isinstance(message, Failed):
                        raise FileError(message.reason)
                    last = message.what, message.fraction
                    progress(*last)

    def _parsed(self, line: bytes) -> Going | Failed | Done:
        try:
            return _messages.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as e:
            raise FileError(f"the program that reads the {self._subject} wrote something that is no message of its "
                            f"own: {e}") from None

    def _why(self) -> str:
        """Return why it ended without a result."""
        code = self._process.wait()
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 400))
        said = self._errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL) or "MemoryError" in said or "bad_alloc" in said:
            return _NOT_ENOUGH
        if code == -signal.SIGXCPU:
            return f"reading it took more of the processor's time than any {self._subject} of its size needs"
        if code < 0:
            name = next((s.name for s in signal.Signals if s == -code), str(-code))
            return f"the program that reads the {self._subject} crashed ({name}): it is damaged, or made to do that"
        return f"the program that reads the {self._subject} ended with {code}" + (f": {said}" if said else "")

    def end(self) -> None:
        """End it, whatever it does, and wait until it is gone. Idempotent."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()
