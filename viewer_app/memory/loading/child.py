"""The viewer's side of the program that reads snapshots."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

from splatview.ipc import child_process
from splatview.viewer_app.errors import FileError
from splatview.viewer_app.memory._programs import environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview.viewer_app.files import Progress

POLL = 0.1
"""Seconds within which a cancel is noticed."""


class Reader:
    """A program that reads a snapshot and writes its columns.

    Args:
        job: what `worker` is told; the descriptors named in it are handed over.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            child_process.command("splatview.viewer_app.memory.loading.worker", json.dumps(job)),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, cwd="/",
            pass_fds=[v for v in job.values() if type(v) is int],
            # One thread is enough, and what others reserve counts against the bound. Memory that was freed is kept for
            # the next array (glibc, mallopt(3)): getting each from the kernel anew takes a quarter of the time.
            env=environment(MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=str(1 << 40), PYTHONUNBUFFERED="",
                            PYTHONWARNINGS="ignore"))

    def wait(self, progress: Progress, meanwhile: Callable[[], bool]) -> None:
        """Until the columns are written.

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
                for line in lines:
                    word, *said = json.loads(line)
                    if word == "done":
                        return
                    if word == "error":
                        raise FileError(str(said[0]))
                    last = str(said[0]), float(said[1])
                    progress(*last)

    def _why(self) -> str:
        """Why it ended without a word."""
        code = self._process.wait()
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 400))
        said = self._errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        if code == -signal.SIGXCPU:
            return ("damaged, or made to take a time without end: reading it took more CPU time than a snapshot of its "
                    "size takes")
        if code in (-9, -11, 137) or "MemoryError" in said:
            return "not enough memory to load it, or it is made to exhaust memory"
        return f"the program that reads it ended with {code}" + (f": {said}" if said else "")

    def end(self) -> None:
        """End it, whatever it does, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()
