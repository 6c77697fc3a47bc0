"""Programs that tests start, none of which outlives them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent


class Processes:
    """Starts programs and makes sure that none outlives its test."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._running: list[subprocess.Popen[str]] = []

    def python(self, *args: str, pass_fds: Sequence[int] = (), **env: str) -> subprocess.Popen[str]:
        """`python ARGS` with its output captured; `env` is added to the environment, `pass_fds` stay open in it."""
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))  # they run in other folders
        process = subprocess.Popen([sys.executable, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, cwd=self._folder, pass_fds=pass_fds,
                                   env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **env})
        self._running.append(process)
        return process

    def code(self, source: str, *args: str, **env: str) -> subprocess.Popen[str]:
        """A program given as text."""
        return self.python("-c", source, *args, **env)

    def splatview(self, *args: str, **env: str) -> subprocess.Popen[str]:
        return self.python("-m", "splatview", *args, **env)

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
