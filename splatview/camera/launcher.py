"""Starts what `splatview camera` consists of, watches over it, and ends it: capture, inference, viewer."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from splatview.camera.sources import SourceSettings, device_path, kind_of
from splatview_ipc.system import entry, programs
from splatview_ipc.system.terminal import printable, without_surrogates

if TYPE_CHECKING:
    from types import FrameType

_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds before a program that died is started for the first, second, ... time again; the last for all that follow."""
_LIVES = 60.0
"""Seconds of life after which the next death is taken for the first one again."""
_PICTURE_PATIENCE = 120.0
"""Seconds to wait for the viewer's first picture after a file was played: a viewer that is stopped writes none."""
_NOISE = ("libEGL warning", "MESA", "Corrupt JPEG data")
"""How lines of the graphics drivers begin that would only alarm, and those of a webcam's flaws."""
_LONGEST_LINE = 4096
_MOST_LINES = 1000
"""Lines that are kept until they are told; whoever says more has to wait."""
_EXPLAINED = 2
"""The exit status of a program that said why it cannot do what it is asked for."""


@dataclass(frozen=True)
class ViewerOptions:
    arguments: tuple[str, ...]
    """Of `python -m splatview_viewer serve`."""
    offscreen: bool = False
    """The viewer has neither a window nor pages: the session ends once a file was played."""
    out: Path | None = None
    """The viewer's picture file. A session whose file was played waits for its first picture."""


@dataclass(frozen=True)
class Plan:
    """What to start."""

    source: SourceSettings
    stream: str
    loop: bool
    detector: dict[str, object] | None
    """The settings of the inference process, less its run; None: there is none."""
    viewer: ViewerOptions | None


def launch(plan: Plan) -> int:
    """Run until the viewer is closed, a signal comes, or there is nothing more to show. The exit status."""
    return _Session(plan).run()


class _Program:
    """One of the three, started again when it dies."""

    def __init__(self, title: str, *arguments: str, environment: dict[str, str]):
        self.title = title
        self.arguments = arguments
        self.environment = environment
        self.process: subprocess.Popen[str] | None = None
        self.again_at: float | None = None
        """When to start it again (monotonic); None while it runs, and when it is not to be."""
        self._begun = 0.0
        self._deaths = 0

    def start(self, said: queue.Queue[tuple[str, str, str]]) -> None:
        self.again_at, self._begun = None, time.monotonic()
        process = self.process = programs.start(*self.arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                                stderr=subprocess.PIPE, text=True, errors="replace",
                                                env=self.environment)
        for name, pipe in (("out", process.stdout), ("err", process.stderr)):
            threading.Thread(target=self._read, args=(name, pipe, said), daemon=True).start()

    def _read(self, name: str, pipe: IO[str], said: queue.Queue[tuple[str, str, str]]) -> None:
        """Pass on what it says, in a thread: reading waits."""
        with contextlib.suppress(ValueError), pipe:  # closed when all ends
            while line := pipe.readline(_LONGEST_LINE):
                said.put((self.title, name, line.rstrip()))

    def died(self) -> int | None:
        """The exit status, once, of a process that has just ended."""
        if self.process is None or self.process.poll() is None:
            return None
        code, self.process = self.process.returncode, None
        return code

    def plan_another(self) -> float:
        """Have it started again after a pause, which is returned in seconds."""
        if time.monotonic() - self._begun > _LIVES:
            self._deaths = 0
        pause = _PAUSES[min(self._deaths, len(_PAUSES) - 1)]
        self._deaths += 1
        self.again_at = time.monotonic() + pause
        return pause

    def end(self) -> None:
        process, self.process, self.again_at = self.process, None, None
        programs.end(process)


class _Session:
    """The processes, and what is told about them."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.run_name = _free_name(without_surrogates(
            os.environ.get("SPLATVIEW_NAME") or f"camera {_short(plan.source.source)}"))
        environment = {**os.environ, "SPLATVIEW_NAME": self.run_name}
        environment.pop("SPLATVIEW_DISABLE", None)
        settings = {**msgspec.structs.asdict(plan.source), "stream": plan.stream, "loop": plan.loop}
        self.capture = _Program("camera", "splatview.camera", "capture", json.dumps(settings),
                                environment=environment)
        self.inference = self.viewer = None
        if plan.detector is not None:
            self.inference = _Program("detector", "splatview.camera", "infer",
                                      json.dumps({"run": self.run_name, **plan.detector}), environment=environment)
        if plan.viewer is not None:
            self.viewer = _Program("viewer", "splatview_viewer", "serve", "--run", self.run_name,
                                   *plan.viewer.arguments, environment=environment)
        self.said: queue.Queue[tuple[str, str, str]] = queue.Queue(_MOST_LINES)
        self.shown = False
        """Whether there was something to show, so that everything has been started."""
        self.played_at: float | None = None
        """Time at which a source ended that no window or page shows, by `time.monotonic`."""
        self.picture_before = self._picture_time()
        self.code: int | None = None
        """The exit status, once it is over."""

    def run(self) -> int:
        with entry.ending(self._ended):
            return self._run()

    def _run(self) -> int:
        try:
            if self.code is None:
                self.capture.start(self.said)
            while self.code is None:
                self._listen(0.2)
                self._watch()
            return self.code
        finally:
            for number in entry.SIGNALS:  # nothing interrupts the cleaning up
                signal.signal(number, signal.SIG_IGN)
            for program in (self.viewer, self.inference, self.capture):  # the viewer keeps its last picture
                if program is not None:
                    program.end()
            self._listen(0.0)

    def _ended(self, number: int, frame: FrameType | None) -> None:
        """End at the next look, which is how it is meant to end. An exception from a signal handler could come between
        taking the queue's lock and the line that gives it back; the cleaning up would then wait for it for ever."""
        self.code = 0

    def _listen(self, seconds: float) -> None:
        """Tell what the programs said, waiting at most so many seconds for the first line."""
        with contextlib.suppress(queue.Empty):
            for _ in range(_MOST_LINES):  # whoever never falls silent does not hold up the rest
                title, pipe, line = self.said.get(timeout=seconds) if seconds else self.said.get_nowait()
                seconds = 0.0
                if title == "camera" and pipe == "out":
                    self._hear(line)
                elif line.strip() and not line.startswith(_NOISE):
                    _tell(title, line.removeprefix("splatview: "))

    def _hear(self, line: str) -> None:
        """What the capturing process said."""
        from splatview.camera.capture import Said

        try:
            said = msgspec.json.decode(line, type=Said)
        except msgspec.DecodeError:  # a library's own words
            _tell("camera", line)
            return
        _tell("camera", said.text)
        if not self.shown and self.code is None:
            self.shown = True
            for program in (self.viewer, self.inference):
                if program is not None:
                    program.start(self.said)
            if self.viewer is None:
                _tell("camera", f"published as {self.plan.stream!r}; splatview serve shows it. Ctrl-C ends it")
        if said.event == "ended" and (self.plan.viewer is None or self.plan.viewer.offscreen):
            self.played_at = self.played_at or time.monotonic()

    def _picture_time(self) -> int | None:
        """Return the modification time of the viewer's picture file, in nanoseconds; None without such a file."""
        out = self.plan.viewer and self.plan.viewer.out
        try:
            return out.stat().st_mtime_ns if out else None
        except OSError:
            return None

    def _is_over(self) -> bool:
        """Return whether the source has ended and the viewer has written a picture, if it writes any. A viewer that
        cannot write one is given up after `_PICTURE_PATIENCE`."""
        if self.played_at is None:
            return False
        viewer = self.plan.viewer
        return (viewer is None or viewer.out is None or self._picture_time() != self.picture_before
                or time.monotonic() > self.played_at + _PICTURE_PATIENCE)

    def _watch(self) -> None:
        """See who has ended, and start again who is to be."""
        self._watch_viewer()
        if self.code is None and self._is_over():
            self.code = 0
        self._watch_capture()
        self._watch_inference()
        for program in (self.capture, self.inference):
            if program is not None and program.again_at is not None and time.monotonic() >= program.again_at:
                program.start(self.said)

    def _watch_viewer(self) -> None:
        code = None if self.viewer is None else self.viewer.died()
        if code is not None and self.code is None:
            if code:
                _tell("viewer", f"it ended {_how(code)}")
            self.code = 0 if code == 0 else code if code > 0 else 1

    def _watch_capture(self) -> None:
        code = self.capture.died()
        if code is None or self.code is not None:
            return
        self._listen(0.2)  # its last words
        if code == _EXPLAINED and not self.shown:
            self.code = code
        else:
            _tell("camera", f"capturing ended {_how(code)}; it is started again in "
                            f"{self.capture.plan_another():g} s")

    def _watch_inference(self) -> None:
        program = self.inference
        code = None if program is None else program.died()
        if program is None or code is None:
            return
        self._listen(0.2)
        if code == _EXPLAINED:
            _tell("detector", "it cannot run; pictures go on without it")
            self.inference = None
        else:
            _tell("detector", f"it ended {_how(code)}; it is started again in {program.plan_another():g} s")


def _tell(title: str, text: str) -> None:
    print(f"{title}: {printable(text)}", file=sys.stderr, flush=True)


def _how(code: int) -> str:
    if code >= 0:
        return f"with code {code}"
    with contextlib.suppress(ValueError):
        return f"by {signal.Signals(-code).name}"
    return f"by signal {-code}"


def _short(source: str) -> str:
    """A source in a word or two, without what only its owner should see."""
    kind = kind_of(source)
    if kind == "network":
        return urlsplit(source).hostname or "network"
    return {"device": device_path(source), "file": Path(source).name, "pipeline": "pipeline"}.get(kind, source)[:60]


def _free_name(name: str) -> str:
    """`name`, or with a number before it where a run of that name is alive: the viewer finds this one by its name, also
    when the capturing process had to be started again. (A number behind it would be found as well: ids begin alike.)"""
    from splatview_ipc.control.run_folder import list_runs, runtime_folder

    taken = {folder.description.name for folder in list_runs(runtime_folder())}
    return next(n for n in (name, *(f"{i}. {name}" for i in range(2, len(taken) + 3))) if n not in taken)
