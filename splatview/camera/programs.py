"""Run the programs of `splatview camera`: capture, inference and viewer."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from splatview.camera.capture import PLAYED
from splatview.camera.only_host import host_of
from splatview.camera.sources import CaptureSettings, display_name, kind_of
from splatview_ipc.system import entry
from splatview_ipc.system.child_program import ChildProgram
from splatview_ipc.system.terminal import printable, without_surrogates

RESTART_S = 3.0
"""Pause before a program that died is started again."""
_POLL_S = 0.05
_NOISE = (
    "splatview: serve: no run",
    "Corrupt JPEG data:",
    "Premature end of JPEG file",
)
"""First words of the viewer before the first picture, and of libjpeg about each damaged
one."""
_EXPLAINED = 2
"""Exit status of a program whose stderr has the reason why it cannot do what was
requested."""


def launch(
    capture: CaptureSettings,
    detector: dict[str, object] | None,
    viewer: tuple[str, ...] | None,
    *,
    offscreen: bool = False,
    out: Path | None = None,
) -> int:
    """Run until the viewer is closed, a signal comes, or there is no more to show.

    Args:
        capture: settings of the capturing process.
        detector: settings of the inference process, less its run; None: there is none.
        viewer: arguments of `python -m splatview_viewer serve`; None: there is no
            viewer.
        offscreen: the viewer has neither a window nor pages: the session ends once a
            file was played.
        out: the viewer's picture file: a session whose file was played waits for its
            first picture.

    Returns:
        The exit status.
    """
    session = _CameraSession(
        capture,
        detector,
        viewer,
        ends_when_played=viewer is None or offscreen,
        out=out,
    )
    with entry.handle_signals(session.end):
        try:
            return session.run()
        finally:
            # Nothing interrupts the cleaning up.
            entry.ignore_signals()
            # The viewer is the first to end: it keeps its last picture.
            session.viewer.end()
            session.inference.end()
            session.capture.end()


class _Program:
    """One of the three programs, started again after it has died."""

    def __init__(
        self, title: str, module: str, *arguments: str, env: dict[str, str]
    ) -> None:
        self.title = title
        self.start_at: float | None = 0.0
        """When to start it (monotonic); None for not at all, and while it runs."""
        self.has_played = False
        """It has reported the end of a recording."""
        self._arguments = module, *arguments
        self._env = env
        self._child: ChildProgram | None = None

    def tick(self, now: float) -> int | None:
        """Start the program when it is due.

        Returns:
            Its exit code, once, when it has ended.
        """
        if self.start_at is not None and now >= self.start_at:
            self.start_at = None
            self._child = ChildProgram(
                *self._arguments, env=self._env, on_error=self.report
            )
        if self._child is None or self._child.is_running():
            return None
        code = self._child.exit_code or 0
        self.end()
        if code < 0:
            self.report(f"it ended by a signal ({signal.strsignal(-code)})")
        elif code not in (0, _EXPLAINED):
            self.report(f"it ended with code {code}")
        return code

    def start_again(self, now: float) -> None:
        """Have the program started again after a pause, and report that."""
        self.start_at = now + RESTART_S
        self.report(f"it is started again in {RESTART_S:g} s")

    def report(self, line: str) -> None:
        """Print a line of the program's stderr, unless it is noise or meant for us."""
        if line == PLAYED:
            self.has_played = True
            return
        if not line.strip() or line.startswith(_NOISE):
            return
        text = printable(line.rstrip().removeprefix("splatview: "))
        # In one write, as threads of several programs call this.
        print(f"{self.title}: {text}\n", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the program; it is not started again. Idempotent."""
        if self._child is not None:
            self._child.end()
        self._child = None
        self.start_at = None


class _CameraSession:
    """The three programs, and the state of what they show."""

    def __init__(
        self,
        settings: CaptureSettings,
        detector: dict[str, object] | None,
        viewer: tuple[str, ...] | None,
        *,
        ends_when_played: bool,
        out: Path | None,
    ) -> None:
        """Prepare the programs; `run` starts them.

        Args:
            settings: the settings of the capturing process.
            detector: settings of the inference process; None: there is none.
            viewer: arguments of the viewer; None: there is no viewer.
            ends_when_played: the session ends once a file was played.
            out: the viewer's picture file.
        """
        name = _run_name(settings.source)
        env = {**os.environ, "SPLATVIEW_NAME": name}
        env.pop("SPLATVIEW_DISABLE", None)
        self.capture = _Program(
            "camera",
            "splatview.camera.capture",
            msgspec.json.encode(settings).decode(),
            env=env,
        )
        self.inference = _Program(
            "detector",
            "splatview.camera.inference",
            json.dumps({"run": name, **(detector or {})}),
            env=env,
        )
        self.viewer = _Program(
            "viewer",
            "splatview_viewer",
            "serve",
            "--run",
            name,
            *(viewer or ()),
            env=env,
        )
        if detector is None:
            self.inference.start_at = None
        if viewer is None:
            self.viewer.start_at = None
            self.capture.report(
                f"published as {settings.stream!r}; splatview serve shows it. "
                "Ctrl-C ends it"
            )
        self.exit_code: int | None = None
        """The exit status, once the session is over."""
        self._ends_when_played = ends_when_played
        self._out = out
        self._first_picture_time = self._picture_time()

    def end(self, *_: object) -> None:
        """End the session: handles signals."""
        self.exit_code = 0

    def run(self) -> int:
        """Run the programs until the session is over; return the exit status."""
        while self.exit_code is None:
            self.tick(time.monotonic())
            time.sleep(_POLL_S)
        return self.exit_code

    def tick(self, now: float) -> None:
        """Start programs that are due, and note which have ended."""
        viewer_code = self.viewer.tick(now)
        capture_code = self.capture.tick(now)
        inference_code = self.inference.tick(now)
        has_signal = self.exit_code is not None
        if has_signal:
            return
        if viewer_code is not None:
            self.exit_code = viewer_code if viewer_code >= 0 else 1
        elif self._is_finished():
            self.exit_code = 0
        elif capture_code == _EXPLAINED:
            self.exit_code = capture_code
        elif capture_code is not None:
            self.capture.start_again(now)
        if inference_code == _EXPLAINED:
            self.inference.report("it cannot run; pictures go on without it")
        elif inference_code is not None:
            self.inference.start_again(now)

    def _is_finished(self) -> bool:
        """Return whether a file was played to its end, and its picture written."""
        if not self.capture.has_played or not self._ends_when_played:
            return False
        return self._out is None or self._picture_time() != self._first_picture_time

    def _picture_time(self) -> int | None:
        """Return when the viewer's picture file was written, in nanoseconds.

        None without such a file.
        """
        if self._out is not None and self._out.exists():
            return self._out.stat().st_mtime_ns
        return None


def _run_name(source: str) -> str:
    """Return a name for a new run: the user's, or the source in a word or two.

    It has nothing of the source that only its owner should see. Where a live run has
    that name, a number is put before it: the viewer finds this run by its name, also
    after the capturing process was started again. (A number after it would match too:
    ids begin alike.)
    """
    from splatview_ipc.control.run_folder import list_runs, runtime_folder

    kind = kind_of(source)
    if kind == "network":
        label = host_of(source).lower() or kind
    elif kind == "file":
        label = Path(source).name
    elif kind == "pipeline":
        label = kind
    else:
        label = display_name(source)
    wanted_name = os.environ.get("SPLATVIEW_NAME") or f"camera {label[:60]}"
    base = without_surrogates(wanted_name)
    used = {folder.description.name for folder in list_runs(runtime_folder())}
    name = base
    index = 1
    while name in used:
        index += 1
        name = f"{index}. {base}"
    return name
