"""Programs that tests start, none of which outlives them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from forking import ROOT, ForkedProgram, environment, serves

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ROOT", "Processes"]


class Processes:
    """Starts programs and makes sure that none outlives its test."""

    def __init__(self, folder: Path):
        self.folder = folder
        """Where they run."""
        self._running: list[subprocess.Popen[str]] = []

    def python(self, *args: str, **env: str) -> subprocess.Popen[str]:
        """`python ARGS` with its output captured; `env` is added to the environment."""
        process = subprocess.Popen([sys.executable, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, cwd=self.folder,
                                   env=environment(**env))
        self._running.append(process)
        return process

    def code(self, source: str, *args: str, **env: str) -> subprocess.Popen[str]:
        """A program given as text, which starts at once: torch and ours are loaded already. `python("-c", source)` is
        for programs that look at how they are loaded."""
        if not serves(environment(**env)):
            return self.python("-c", source, *args, **env)
        process = ForkedProgram([sys.executable, "-c", source, *map(str, args)], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
                                env=environment(**env))
        self._running.append(process)
        return process

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
