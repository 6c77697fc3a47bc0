"""Run the programs of the demo: a trainer, a viewer, and pictures of what it shows."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import re
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from splatview.demo.progress import ProgressPrinter
from splatview_ipc.system.child_program import ChildProgram
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview.demo.command import Demo

_SHOT_TIMEOUT_S = 120.0
"""Drawing without a GPU can be slow, but not that slow."""
_FIRST_PICTURE_S = 5.0
_STOP_TIMEOUT_S = 15.0
"""Time for the trainer to finish a step and report its result."""
_POLL_S = 0.1
_NO_RUN = "splatview: serve: no run"
"""First words of the viewer while the trainer only begins its run."""


class DemoSession:
    """The programs, and their reports."""

    def __init__(self, options: Demo) -> None:
        self.signals: list[int] = []
        """Signals that ask to end, as they came."""
        self._options = options
        self._trainer: ChildProgram | None = None
        self._viewer: ChildProgram | None = None
        self._shot: ChildProgram | None = None
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._camera_options: list[str] = []
        """Options of `shot`: where the picture is drawn from."""
        self._viewer_end = ""
        """Words on how long the viewer stays: its address, once it is known."""
        self._is_trained = False
        self._picture_due_at = math.inf
        self._progress = ProgressPrinter(time.monotonic())
        self._screen = _screen_of(options)
        if self._screen == "window":
            self._viewer_end = "until its window is closed"

    def run(self) -> int:
        """Run the programs to their end; return the exit status."""
        trainer = self._start()
        self._show_until(lambda: self._is_trained or not trainer.is_running())
        # The trainer stays until its input ends: an end before is a failure.
        status = 0 if self._is_trained else 1
        if self.signals:
            status = self._interrupt(trainer)
        elif self._is_trained:
            status = self._draw_last_picture(trainer)
            if not self._options.exit:
                self._wait_for_viewer()
        trainer_code = trainer.exit_code
        trainer.end()
        self._show_until(self._events.empty, max_signals=math.inf)
        if self.signals:
            return status
        return _shell_status(trainer_code) or status

    def end(self) -> None:
        """End all programs."""
        for program in (self._shot, self._viewer, self._trainer):
            if program is not None:
                program.end()

    def _start(self) -> ChildProgram:
        """Start the trainer and the viewer; return the trainer."""
        options = self._options
        trainer_options = {
            "device": options.device,
            "seed": options.seed,
            "steps": options.steps,
            "data": options.data and str(options.data),
            "save": options.save and str(options.save),
        }
        trainer = ChildProgram(
            "splatview.demo.trainer",
            json.dumps(trainer_options),
            pipes=True,
            on_output=self._read_event,
            on_error=self._note,
            env={"SPLATVIEW_NAME": "demo", **os.environ},
        )
        self._trainer = trainer
        if self._screen == "offscreen":
            return trainer
        screen = ["--window"]
        if self._screen == "web":
            screen = ["--web", "--port", str(options.port)]
        self._viewer = ChildProgram(
            "splatview_viewer",
            "serve",
            *screen,
            "--run",
            str(trainer.pid),
            "--size",
            options.size,
            on_error=self._read_viewer_line,
        )
        return trainer

    def _read_event(self, line: str) -> None:
        """Queue a line of the trainer's output, which another thread reads."""
        try:
            self._events.put({"event": "note", **json.loads(line)})
        except (ValueError, TypeError):
            # A library's own words.
            self._note(line)

    def _read_viewer_line(self, line: str) -> None:
        """Queue a line of the viewer: its address, or how to reach it over ssh."""
        address = re.search(r"http://\S+", line)
        if address and not self._viewer_end:
            self._viewer_end = f"at {address[0]}"
        if line.strip() and not line.startswith(_NO_RUN):
            self._note(line)

    def _note(self, text: str) -> None:
        """Queue a text to print."""
        self._events.put({"event": "note", "text": text})

    def _show_until(
        self,
        is_done: Callable[[], bool],
        timeout_s: float = math.inf,
        max_signals: float = 1,
    ) -> None:
        """Show what the programs report until `is_done`, a timeout, or signals."""
        end = time.monotonic() + timeout_s
        while not is_done() and len(self.signals) < max_signals:
            now = time.monotonic()
            if now >= end:
                return
            with contextlib.suppress(queue.Empty):
                self._handle(self._events.get(timeout=_POLL_S), now)
            self._draw_when_due(now)
            self._note_end_of_viewer()

    def _handle(self, event: dict[str, Any], now: float) -> None:
        """Show one event of the trainer, or a note."""
        name = event["event"]
        if name == "camera":
            self._camera_options = ["--camera", json.dumps(event["camera"])]
        elif name == "error":
            print(f"splatview demo: {event['text']}", file=sys.stderr, flush=True)
        else:
            self._progress.show(event, now)
        if name == "train" and math.isinf(self._picture_due_at):
            delay_s = min(_FIRST_PICTURE_S, self._options.picture_every)
            self._picture_due_at = now + delay_s
        if name == "done":
            self._is_trained = True
            self._picture_due_at = math.inf

    def _draw_when_due(self, now: float) -> None:
        """Start to draw a picture when it is due, and the last one is done."""
        if self._trainer is None or now < self._picture_due_at:
            return
        if self._shot is not None and self._shot.is_running():
            return
        self._start_shot(self._trainer)
        self._picture_due_at = now + self._options.picture_every

    def _start_shot(self, trainer: ChildProgram) -> ChildProgram:
        """Start the program that draws a picture."""
        if self._shot is not None:
            self._shot.end()
        self._shot = ChildProgram(
            "splatview_viewer",
            "shot",
            str(self._options.out),
            "--stream",
            "gaussians",
            "--run",
            str(trainer.pid),
            "--size",
            self._options.size,
            *self._camera_options,
        )
        return self._shot

    def _note_end_of_viewer(self) -> None:
        """Report a viewer that has ended."""
        if self._viewer is None or self._viewer.is_running():
            return
        code = _shell_status(self._viewer.exit_code)
        self._viewer.end()
        self._viewer = None
        is_closed = code == 0 and self._screen == "window"
        text = "the window was closed"
        if not is_closed:
            text = f"the viewer ended with code {code}"
        if not self._is_trained:
            text += "; training goes on"
        self._note(text)

    def _interrupt(self, trainer: ChildProgram) -> int:
        """Pass a signal to the trainer, and wait for its report; return the status.

        A second signal ends the waiting.
        """
        status = 128 + self.signals[0]
        trainer.send_signal(signal.SIGINT)
        self._show_until(
            lambda: not trainer.is_running(), _STOP_TIMEOUT_S, max_signals=2
        )
        if self._options.out.exists():
            print(f"the last picture: {self._options.out.absolute()}", flush=True)
        return status

    def _draw_last_picture(self, trainer: ChildProgram) -> int:
        """Draw the trained Gaussians; return the exit status."""
        shot = self._start_shot(trainer)
        self._show_until(lambda: not shot.is_running(), _SHOT_TIMEOUT_S)
        if shot.exit_code == 0:
            print(f"what the viewer shows: {self._options.out.absolute()}", flush=True)
            return 0
        if self.signals:
            return 128 + self.signals[0]
        if shot.exit_code is None:
            reason = f"not drawn within {_SHOT_TIMEOUT_S:.0f} s"
        else:
            reason = printable(shot.last_error_lines())
        print(f"splatview demo: no picture: {reason}", file=sys.stderr, flush=True)
        return 1

    def _wait_for_viewer(self) -> None:
        """Wait until the viewer ends, or a signal comes, as it is meant to end."""
        self._show_until(lambda: self._viewer is None or bool(self._viewer_end))
        if self._viewer is not None and not self.signals:
            has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
            command = "Ctrl-C" if has_terminal else f"kill {os.getpid()}"
            print(
                f"The viewer stays {self._viewer_end}; end it with: {command}",
                flush=True,
            )
            self._show_until(lambda: self._viewer is None)
        if self.signals:
            # Behind the terminal's ^C.
            print(flush=True)


def _screen_of(options: Demo) -> str:
    """Return the screen to show the training on: "window", "web" or "offscreen"."""
    for name in ("window", "web", "offscreen"):
        if getattr(options, name):
            return name
    has_display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return "window" if has_display else "web"


def _shell_status(code: int | None) -> int:
    """Return the exit status as a shell reports it; 0 for a program that runs.

    A process that a signal ended has a negative code in Python.
    """
    if code is None:
        return 0
    if code < 0:
        return 128 - code
    return code
