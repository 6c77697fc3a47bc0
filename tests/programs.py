"""Programs that tests start, none of which outlives them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from forking import ROOT, ForkedProgram, environment, program_server, server, serves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forking import Forker

__all__ = ["ROOT", "Processes"]


def _running() -> dict[int, tuple[int, str]]:
    """Return the parent and the command line of each process that is no zombie, by process id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(folder.name)] = int(parent), (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return found


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
        return self._code(source, args, env)

    def code_with_destructors(self, source: str, *args: str, **env: str) -> subprocess.Popen[str]:
        """As `code`, for programs in which something still runs at their end: torch runs its finalizers and the
        destructors of its libraries beside it, as in a program that was started."""
        return self._code(source, args, env, destructors=True)

    def _code(self, source: str, args: Sequence[str], env: dict[str, str], *,
              destructors: bool = False) -> subprocess.Popen[str]:
        if not serves(environment(**env)):
            return self.python("-c", source, *args, **env)
        return self._fork(server(), ("-c", source, *args), env, destructors=destructors)

    def splatview(self, *args: str, **env: str) -> subprocess.Popen[str]:
        return self.python("-m", "splatview", *args, **env)

    def forked(self, *args: str, **env: str) -> subprocess.Popen[str]:
        """`python ARGS`, of which the first is -c, -m or a file, with the viewer loaded as well. What it starts with
        `splatview.programs` is forked in turn, and no child of its own. At the end nothing loaded is taken apart."""
        forker = program_server()
        if not serves(environment(**env), forker.env):
            return self.python(*args, **env)
        return self._fork(forker, args, env)

    def _fork(self, forker: Forker, args: Sequence[str], env: dict[str, str], *,
              destructors: bool = False) -> subprocess.Popen[str]:
        process = ForkedProgram([sys.executable, *map(str, args)], forker=forker, destructors=destructors,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                cwd=self.folder, env=environment(**env))
        self._running.append(process)
        return process

    def command(self, name: str, *args: str, **env: str) -> subprocess.Popen[str]:
        """`splatview NAME ARGS`, forked. The viewer's commands are run by the program that `splatview` becomes."""
        from splatview.cli import _VIEWER

        return self.forked("-m", "splatview.viewer_app" if name in _VIEWER else "splatview", name, *args, **env)

    def children(self, parent: int) -> dict[int, str]:
        """Return the command lines of the programs that a process of ours has started, by process id: its children, or
        what is forked for it; zombies left out."""
        found = program_server().started_by(parent)
        return {pid: found.get(pid) or line for pid, (ppid, line) in _running().items()
                if ppid == parent or pid in found}

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
