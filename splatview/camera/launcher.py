"""Starts the programs of `splatview camera`, watches over them, and ends them: capture, inference, viewer."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from splatview.camera.capture import PLAYED
from splatview.camera.sources import CaptureSettings, kind_of, shown
from splatview_ipc.system import entry
from splatview_ipc.system.child_program import ChildProgram
from splatview_ipc.system.terminal import printable, without_surrogates

RESTART_S = 3.0
"""Pause before a program that died is started again."""
_LOOK_S = 0.05
_NOISE = "splatview: serve: no run"
"""First words of the viewer before the first picture."""
_EXPLAINED = 2
"""Exit status of a program whose stderr has the reason why it cannot do what was requested."""


@dataclass(frozen=True)
class Plan:
    """The programs to start."""

    capture: CaptureSettings
    detector: dict[str, object] | None
    """Settings of the inference process, less its run; None: there is none."""
    viewer: tuple[str, ...] | None
    """Arguments of `python -m splatview_viewer serve`; None: there is no viewer."""
    offscreen: bool = False
    """The viewer has neither a window nor pages: the session ends once a file was played."""
    out: Path | None = None
    """The viewer's picture file: a session whose file was played waits for its first picture."""


def launch(plan: Plan) -> int:
    """Run until the viewer is closed, a signal comes, or there is nothing more to show. Return the exit status."""
    session = _Session(plan)
    with entry.ending(session.end):
        try:
            return session.run()
        finally:
            entry.ignore()  # nothing interrupts the cleaning up
            for program in (session.viewer, session.inference, session.capture):  # the viewer keeps its last picture
                program.end()


class _Program:
    """One of the three programs, started again after it has died."""

    def __init__(self, title: str, module: str, *arguments: str, env: dict[str, str]) -> None:
        self.title = title
        self.start_at: float | None = None
        """When to start it (monotonic); None for not at all, and while it runs."""
        self.played = False
        """It has said that a recording ended."""
        self._arguments = module, *arguments
        self._env = env
        self._child: ChildProgram | None = None

    def turn(self, now: float) -> int | None:
        """Start it when it is due. Return its exit code, once, when it has ended."""
        if self.start_at is not None and now >= self.start_at:
            self.start_at = None
            self._child = ChildProgram(*self._arguments, env=self._env, on_error=self.tell)
        if self._child is None or self._child.running():
            return None
        code = self._child.exit_code or 0
        self.end()
        if code not in (0, _EXPLAINED):
            how = f"with code {code}" if code > 0 else f"by a signal ({signal.strsignal(-code)})"
            self.tell(f"it ended {how}")
        return code

    def start_again(self, now: float) -> None:
        """Have it started again after a pause, and say so."""
        self.start_at = now + RESTART_S
        self.tell(f"it is started again in {RESTART_S:g} s")

    def tell(self, line: str) -> None:
        if line == PLAYED:
            self.played = True
        elif line.strip() and not line.startswith(_NOISE):  # one write: threads of several programs call this
            print(f"{self.title}: {printable(line.rstrip().removeprefix('splatview: '))}\n", end="", file=sys.stderr,
                  flush=True)

    def end(self) -> None:
        if self._child is not None:
            self._child.end()
        self._child = self.start_at = None


class _Session:
    """The programs, and the state of what they show."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        name = _run_name(plan.capture.source)
        env = {**os.environ, "SPLATVIEW_NAME": name}
        env.pop("SPLATVIEW_DISABLE", None)
        settings = msgspec.json.encode(plan.capture).decode()
        self.capture = _Program("camera", "splatview.camera.capture", settings, env=env)
        self.inference = _Program("detector", "splatview.camera.inference",
                                  json.dumps({"run": name, **(plan.detector or {})}), env=env)
        self.viewer = _Program("viewer", "splatview_viewer", "serve", "--run", name, *(plan.viewer or ()), env=env)
        self.code: int | None = None
        """The exit status, once it is over."""
        self._picture_before = self._picture_time()

    def end(self, *_: object) -> None:
        """End the session: handles signals."""
        self.code = 0

    def run(self) -> int:
        now = self.capture.start_at = time.monotonic()
        self.viewer.start_at = None if self.plan.viewer is None else now
        self.inference.start_at = None if self.plan.detector is None else now
        if self.plan.viewer is None:
            name = self.plan.capture.stream
            self.capture.tell(f"published as {name!r}; splatview serve shows it. Ctrl-C ends it")
        while self.code is None:
            self.turn(time.monotonic())
            time.sleep(_LOOK_S)
        return self.code

    def turn(self, now: float) -> None:
        """Start programs that are due, and note which have ended."""
        viewer, capture, inference = (program.turn(now) for program in (self.viewer, self.capture, self.inference))
        if self.code is not None:  # a signal came meanwhile
            return
        if viewer is not None:
            self.code = viewer if viewer >= 0 else 1
        elif self.capture.played and (self.plan.viewer is None or self.plan.offscreen) and (
                self.plan.out is None or self._picture_time() != self._picture_before):
            self.code = 0
        elif capture == _EXPLAINED:
            self.code = capture
        elif capture is not None:
            self.capture.start_again(now)
        if inference == _EXPLAINED:
            self.inference.tell("it cannot run; pictures go on without it")
        elif inference is not None:
            self.inference.start_again(now)

    def _picture_time(self) -> int | None:
        """Return the modification time of the viewer's picture file, in nanoseconds; None without such a file."""
        out = self.plan.out
        return out.stat().st_mtime_ns if out is not None and out.exists() else None


def _run_name(source: str) -> str:
    """Return the name of a new run: the user's, or the source in a word or two, without what only its owner should see.

    Where a live run has that name, a number is put before it: the viewer finds this run by its name, also after the
    capturing process was started again. (A number behind it would match too: ids begin alike.)
    """
    from splatview_ipc.control.run_folder import list_runs, runtime_folder

    kind = kind_of(source)
    short = urlsplit(source).hostname or kind if kind == "network" else {
        "file": Path(source).name, "pipeline": kind}.get(kind, shown(source))
    name = without_surrogates(os.environ.get("SPLATVIEW_NAME") or f"camera {short[:60]}")
    taken = {folder.description.name for folder in list_runs(runtime_folder())}
    return next(n for n in (name, *(f"{i}. {name}" for i in range(2, len(taken) + 3))) if n not in taken)
