"""`splatview demo`: a training process, a viewer process, a progress bar, and a picture of what the viewer shows."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import re
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from splatview.demo import DemoError
from splatview_ipc.system import entry
from splatview_ipc.system.child_program import ChildProgram
from splatview_ipc.system.files import check_output, check_picture
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable

_SHOT_TIMEOUT_S = 120.0
"""Drawing without a GPU can be slow, but not that slow."""
_FIRST_PICTURE_S = 5.0
_STOP_TIMEOUT_S = 15.0
"""Time for the trainer to finish a step and report its result."""
_BAR_PERIOD_S = 0.1
_LINE_PERIOD_S = 5.0
"""Between two updates of the progress, on a terminal and in a log."""


@dataclass(frozen=True)
class Demo:
    """Train a small Gaussian scene in one process and watch it from another.

    Gaussians learn from photographs of a still life, and the viewer shows them while they do: in a window where there
    is a display, else in your browser, and as a picture in a file everywhere. Nothing is downloaded.
    """

    steps: int | None = None
    """Gradient steps. Left out: 1000 without a GPU (about a minute on two cores), 3000 with one."""
    out: Path = Path("splatview-demo.png")
    """Where the viewer's picture of the Gaussians goes (.png, .jpg, .webp); it is renewed while they train."""
    data: Path | None = None
    """Train on this instead: a COLMAP folder (binary), or a nerfstudio folder with transforms.json."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train: gsplat on CUDA, plain torch on the CPU."""
    seed: int = 0
    """The same seed gives the same training."""
    save: Path | None = None
    """Write the trained Gaussians to this .ply."""
    size: str = "1280x720"
    """Width and height of the picture and of the window."""
    window: bool = False
    """Show a window. The default where there is a display."""
    web: bool = False
    """Show it in a browser, and print the address. The default where there is no display."""
    offscreen: bool = False
    """Neither a window nor a browser: pictures alone."""
    port: int = 7007
    """Where the browser finds it. When it is taken, one of the next, which is said; 0: any that is free."""
    picture_every: float = 20.0
    """Seconds between pictures while training."""
    exit: bool = False
    """End with the last picture, the viewer too. Left out, it stays until it is closed, or Ctrl-C or a signal comes."""


def main(args: list[str]) -> int:
    return run(entry.options(Demo, "splatview demo", args))


def run(options: Demo) -> int:
    """Run the demo to its end. Returns 0, the exit code of a training that failed, 1 if no picture could be drawn,
    2 for options that cannot be used, 128 + signal when ended early.
    """
    try:
        screens = [
            f"--{name}"
            for name in ("window", "web", "offscreen")
            if getattr(options, name)
        ]
        if len(screens) > 1:
            raise DemoError(f"{' and '.join(screens)} exclude each other; name one")
        if not 0 <= options.port <= 65535:
            raise DemoError(
                f"--port {options.port} must be from 1 to 65535, or 0 for any that is free"
            )
        if options.steps is not None and options.steps < 1:
            raise DemoError(f"--steps {options.steps} must be at least 1")
        if options.data is not None and not options.data.exists():
            raise DemoError(f"--data {options.data}: no such file or folder")
        if not options.picture_every > 0:
            raise DemoError(
                f"--picture-every {options.picture_every} must be more than 0 seconds"
            )
        check_picture(options.out)
        if options.save is not None:
            check_output(options.save)
    except (DemoError, OSError) as e:
        print(f"splatview demo: {e}", file=sys.stderr)
        return 2
    session = _DemoSession(options)
    with entry.ending(lambda number, frame: session.signals.append(number)):
        try:
            return session.run()
        finally:
            for program in (session.shot, session.viewer, session.trainer):
                if program is not None:
                    program.end()


class _DemoSession:
    """The programs, and what is reported of them."""

    def __init__(self, options: Demo) -> None:
        self.options = options
        self.signals: list[int] = []
        """Signals that ask to end, as they came."""
        self.trainer: ChildProgram | None = None
        self.viewer: ChildProgram | None = None
        self.shot: ChildProgram | None = None
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._camera: list[str] = []
        """Options of `shot`: where the picture is drawn from."""
        self._place = ""
        """The viewer's address, once it is known."""
        self._trained = False
        self._picture_due = math.inf
        self._progress = _Progress(time.monotonic())
        self._screen = next(
            (name for name in ("window", "web", "offscreen") if getattr(options, name)),
            "",
        ) or (
            "window"
            if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
            else "web"
        )
        if self._screen == "window":
            self._place = "until its window is closed"

    def run(self) -> int:
        trainer = self._start()
        self._show_until(lambda: self._trained or not trainer.running())
        # it stays until its input ends: an end before is a failure
        if self._trained:
            code = 0
        else:
            code = 1
        if self.signals:
            code = 128 + self.signals[0]
            trainer.send_signal(
                signal.SIGINT
            )  # it reports how far it came; a second signal ends the waiting
            self._show_until(lambda: not trainer.running(), _STOP_TIMEOUT_S, signals=2)
            if self.options.out.exists():
                print(f"the last picture: {self.options.out.absolute()}", flush=True)
        elif self._trained:
            code = self._last_picture(trainer)
            if not self.options.exit:  # until a signal, which is how it is meant to end, or until the viewer ends
                self._show_until(lambda: self.viewer is None or bool(self._place))
                if self.viewer is not None and not self.signals:
                    if sys.stdin.isatty() and sys.stdout.isatty():
                        end = "Ctrl-C"
                    else:
                        end = f"kill {os.getpid()}"
                    print(
                        f"The viewer stays {self._place}; end it with: {end}",
                        flush=True,
                    )
                    self._show_until(lambda: self.viewer is None)
                if self.signals:
                    print(flush=True)  # behind the terminal's ^C
        ended = trainer.exit_code
        trainer.end()
        self._show_until(self._events.empty, signals=math.inf)
        return code if self.signals else _status(ended) or code

    def _start(self) -> ChildProgram:
        """Start the trainer and the viewer; return the trainer."""

        def read_event(line: str) -> None:
            try:
                self._events.put({"event": "note", **json.loads(line)})
            except (ValueError, TypeError):
                self._note(line)  # a library's own words

        def read_viewer(line: str) -> None:
            """Its address, and what to type where it was reached over ssh."""
            address = re.search(r"http://\S+", line)
            if address:
                self._place = self._place or f"at {address[0]}"
            if line.strip() and not line.startswith(
                "splatview: serve: no run"
            ):  # the trainer only begins its run
                self._note(line)

        o = self.options
        options = {
            "device": o.device,
            "seed": o.seed,
            "steps": o.steps,
            "data": o.data and str(o.data),
            "save": o.save and str(o.save),
        }
        self.trainer = ChildProgram(
            "splatview.demo.trainer",
            json.dumps(options),
            pipes=True,
            on_output=read_event,
            on_error=self._note,
            env={"SPLATVIEW_NAME": "demo", **os.environ},
        )
        if self._screen != "offscreen":
            if self._screen == "web":
                screen = ["--web", "--port", str(o.port)]
            else:
                screen = ["--window"]
            self.viewer = ChildProgram(
                "splatview_viewer",
                "serve",
                *screen,
                "--run",
                str(self.trainer.pid),
                "--size",
                o.size,
                on_error=read_viewer,
            )
        return self.trainer

    def _start_shot(self, trainer: ChildProgram) -> ChildProgram:
        if self.shot is not None:
            self.shot.end()
        self.shot = ChildProgram(
            "splatview_viewer",
            "shot",
            str(self.options.out),
            "--stream",
            "gaussians",
            "--run",
            str(trainer.pid),
            "--size",
            self.options.size,
            *self._camera,
        )
        return self.shot

    def _note(self, text: str) -> None:
        self._events.put({"event": "note", "text": text})

    def _show_until(
        self, done: Callable[[], bool], timeout_s: float = math.inf, signals: float = 1
    ) -> None:
        """Show what the programs report until `done`, that time has passed, or so many signals came."""
        end = time.monotonic() + timeout_s
        while (
            not done()
            and len(self.signals) < signals
            and (now := time.monotonic()) < end
        ):
            with contextlib.suppress(queue.Empty):
                event = self._events.get(timeout=0.1)
                name = event["event"]
                if name == "camera":
                    self._camera = ["--camera", json.dumps(event["camera"])]
                elif name == "error":
                    print(
                        f"splatview demo: {event['text']}", file=sys.stderr, flush=True
                    )
                else:
                    self._progress.show(event, now)
                if name == "train" and math.isinf(self._picture_due):
                    self._picture_due = now + min(
                        _FIRST_PICTURE_S, self.options.picture_every
                    )
                if name == "done":
                    self._trained = True
                    self._picture_due = math.inf
            if (
                self.trainer is not None
                and now >= self._picture_due
                and (self.shot is None or not self.shot.running())
            ):
                self._start_shot(self.trainer)
                self._picture_due = now + self.options.picture_every
            if self.viewer is not None and not self.viewer.running():
                code = _status(self.viewer.exit_code)
                self.viewer.end()
                self.viewer = None
                closed = code == 0 and self._screen == "window"
                if closed:
                    text = "the window was closed"
                else:
                    text = f"the viewer ended with code {code}"
                self._note(text if self._trained else f"{text}; training goes on")

    def _last_picture(self, trainer: ChildProgram) -> int:
        shot = self._start_shot(trainer)
        self._show_until(lambda: not shot.running(), _SHOT_TIMEOUT_S)
        if shot.exit_code == 0:
            print(f"what the viewer shows: {self.options.out.absolute()}", flush=True)
            return 0
        if self.signals:
            return 128 + self.signals[0]
        if shot.exit_code is None:
            why = f"not drawn within {_SHOT_TIMEOUT_S:.0f} s"
        else:
            why = shot.last_words()
        print(
            f"splatview demo: no picture: {printable(why)}", file=sys.stderr, flush=True
        )
        return 1


class _Progress:
    """The trainer's events as text: a bar on a terminal, plain lines in a log."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._shown = -math.inf
        self._terminal = sys.stdout.isatty()

    def show(self, event: dict[str, Any], now: float) -> None:
        text = printable(event.get("text", ""))
        end = "\n"
        seconds = f"{now - self._began:.0f} s"
        if event["event"] == "done":
            text = f"{text}, {seconds}"
        elif event["event"] in ("progress", "train"):
            done = event["done"] / event["of"]
            if done < 1 and now - self._shown < (
                _BAR_PERIOD_S if self._terminal else _LINE_PERIOD_S
            ):
                return
            self._shown = now
            if self._terminal:
                text = f"  {text}  {seconds}"
                width = max(shutil.get_terminal_size().columns - len(text) - 3, 5)
                text = f"[{'=' * round(width * done):{width}}]{text}"
                end = "" if done < 1 else "\n"
        sys.stdout.write(
            ("\r\x1b[2K" if self._terminal else "") + text + end
        )  # over the bar, where there is one
        sys.stdout.flush()


def _status(code: int | None) -> int:
    """The exit status as a shell reports it: a process that a signal ended has a negative code in Python."""
    if code is None:
        return 0
    if code < 0:
        return 128 - code
    return code
