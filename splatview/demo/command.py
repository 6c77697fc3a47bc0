"""`splatview demo`: a training process, a viewer process, a progress bar, and a picture of what the viewer shows."""

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
from typing import TYPE_CHECKING, Any, Literal

from splatview.demo.errors import DemoError
from splatview.demo.progress import Progress, style_for
from splatview_ipc.system import entry, programs
from splatview_ipc.system.files import check_output, check_picture
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from types import FrameType
    from typing import IO

SHOT_TIMEOUT = 120.0
"""Seconds after which a picture is given up; drawing without a GPU can be slow, but not that slow."""
_FIRST_PICTURE = 5.0
_NOISE = ("libEGL warning", "MESA", "splatview: serve: no run")
"""How lines begin that would only alarm: of the graphics drivers, and about the trainer before it has begun its run."""


@dataclass(frozen=True)
class Demo:
    """Train a small Gaussian scene in one process and watch it from another.

    Photographs of a still life are made on the spot, Gaussians learn from them, and the viewer shows them while they
    do: in a window where there is a display, else in your browser, and as a picture in a file everywhere. Nothing is
    downloaded.
    """

    steps: int | None = None
    """Gradient steps. Left out: 1000 without a GPU (about a minute on two cores), 3000 with one."""
    out: Path = Path("splatview-demo.png")
    """Where the viewer's picture of the Gaussians goes (.png, .jpg, .webp); it is renewed while they train."""
    data: Path | None = None
    """Train on this instead: a COLMAP folder, a folder with transforms.json, or an .npz."""
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


def run(options: Demo) -> int:
    """Run the demo to its end. Returns 0, the exit code of a training that failed, 1 if no picture could be drawn,
    2 for options that cannot be used, 128 + signal when ended early."""
    try:
        _check(options)
    except DemoError as e:
        print(f"splatview demo: {e}", file=sys.stderr)
        return 2
    return _Session(options).run()


def _check(options: Demo) -> None:
    screens = [f"--{name}" for name in ("window", "web", "offscreen") if getattr(options, name)]
    if len(screens) > 1:
        raise DemoError(f"{' and '.join(screens)} exclude each other; name one")
    if not 0 <= options.port <= 65535:
        raise DemoError(f"--port {options.port} must be from 1 to 65535, or 0 for any that is free")
    if options.steps is not None and options.steps < 1:
        raise DemoError(f"--steps {options.steps} must be at least 1")
    if not options.picture_every > 0:
        raise DemoError(f"--picture-every {options.picture_every} must be more than 0 seconds")
    for name, check, path in (("--out", check_picture, options.out), ("--save", check_output, options.save)):
        if path is not None:
            try:
                check(path)
            except OSError as e:
                raise DemoError(f"{name}: {e}") from None


def _screen(options: Demo) -> str:
    """"window", "web" or "offscreen"."""
    for name in ("window", "web", "offscreen"):
        if getattr(options, name):
            return name
    return "window" if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") else "web"


class _EndedBySignalError(Exception):
    """A signal asked to end."""

    def __init__(self, number: int):
        self.number = number


class _Session:
    """The two processes and what is told about them."""

    def __init__(self, options: Demo):
        self.options = options
        self.tell = Progress(style_for(sys.stdout, False))
        # Not a Queue, whose lock a signal's exception may leave taken.
        self.events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.camera: dict[str, Any] | None = None
        self.trainer: subprocess.Popen[str] | None = None
        self.viewer: subprocess.Popen[str] | None = None
        self.shot: subprocess.Popen[str] | None = None
        self.screen = _screen(options)
        self.trained = False

    def run(self) -> int:
        with entry.ending(self._ended):
            return self._run()

    def _run(self) -> int:
        try:
            self._start()
            code = self._follow()
            return code or self._finish()
        except _EndedBySignalError as e:
            self._stop_early()
            return 128 + e.number
        finally:
            for number in entry.SIGNALS:  # nothing interrupts the cleaning up
                signal.signal(number, signal.SIG_IGN)
            for process in (self.shot, self.viewer, self.trainer):
                programs.end(process)

    def _ended(self, number: int, frame: FrameType | None) -> None:
        raise _EndedBySignalError(number)

    def _start(self) -> None:
        o = self.options
        environment = {"SPLATVIEW_NAME": "demo", **os.environ}
        command = ["splatview.demo.trainer", "--json-progress", "--hold", "--device", o.device,
                   "--seed", str(o.seed)]
        for name, value in (("--steps", o.steps), ("--data", o.data), ("--save", o.save)):
            command += [] if value is None else [name, str(value)]
        self.trainer = programs.start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      env=environment)
        threading.Thread(target=self._read, daemon=True).start()
        # Offscreen nobody looks: two pictures a second leave the cores to the training.
        screen = {"window": ["--window"], "web": ["--web", "--port", str(o.port)],
                  "offscreen": ["--offscreen", "--max-fps", "2"]}[self.screen]
        said = subprocess.DEVNULL if self.screen == "offscreen" else subprocess.PIPE
        self.viewer = programs.start("splatview_viewer", "serve", *screen, "--run", str(self.trainer.pid),
                                     "--size", o.size, stderr=said, text=True, env=environment)
        if self.viewer.stderr is not None:
            threading.Thread(target=self._pass_on, args=(self.viewer.stderr,), daemon=True).start()

    def _read(self) -> None:
        """The trainer's events, in a thread: reading waits."""
        assert self.trainer is not None and self.trainer.stdout is not None
        for line in self.trainer.stdout:
            try:
                event = json.loads(line)
                self.events.put({"event": event.pop("event"), "values": event})
            except (ValueError, KeyError, AttributeError):
                self.events.put({"event": "note", "values": {"text": line.rstrip()}})  # a library's own words
        self.events.put(None)

    def _pass_on(self, said: IO[str]) -> None:
        """What the viewer says: its address, and what to type where it was reached over ssh. In a thread, too."""
        with contextlib.suppress(ValueError), said:  # closed when all ends
            for line in said:
                if line.strip() and not line.startswith(_NOISE):
                    self.events.put({"event": "note", "values": {"text": line.rstrip()}})

    def _follow(self) -> int:
        """Show the progress until the training is done; the exit code of one that failed."""
        assert self.trainer is not None
        next_picture = float("inf")
        while True:
            try:
                event = self.events.get(timeout=0.1)
            except queue.Empty:
                event = {"event": "", "values": {}}
            if event is None:
                return _exit_code(self.trainer.wait()) or 1  # it holds until told otherwise: an end here is a failure
            self._show(event)
            if event["event"] == "done":
                return 0
            now = time.monotonic()
            if event["event"] == "train" and next_picture == float("inf"):
                next_picture = now + min(_FIRST_PICTURE, self.options.picture_every)
            if now >= next_picture and (self.shot is None or self.shot.poll() is not None):
                self._start_shot()
                next_picture = now + self.options.picture_every
            self._watch_viewer()

    def _show(self, event: dict[str, Any]) -> None:
        if event["event"] == "camera":
            self.camera = event["values"]["camera"]
        elif event["event"]:
            self.tell(event["event"], **event["values"])

    def _watch_viewer(self) -> None:
        """Training needs no viewer: it goes on without one, but not silently."""
        if self.viewer is None or self.viewer.poll() is None:
            return
        code, self.viewer = self.viewer.returncode, None
        end = "the window was closed" if code == 0 and self.screen == "window" else f"the viewer ended with code {code}"
        self.tell("note", text=end if self.trained else f"{end}; training goes on")

    def _start_shot(self) -> None:
        assert self.trainer is not None
        o = self.options
        camera = [] if self.camera is None else ["--camera", json.dumps(self.camera)]
        self.shot = programs.start("splatview_viewer", "shot", str(o.out), "--stream", "gaussians", "--run",
                                   str(self.trainer.pid), "--size", o.size, *camera,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def _finish(self) -> int:
        """The last picture, and time to look at the window or in the browser."""
        self.trained = True
        programs.end(self.shot)  # of the one that is under way, a newer takes the place
        self._start_shot()
        assert self.shot is not None and self.trainer is not None and self.trainer.stdin is not None
        code = 0
        try:
            _, said = self.shot.communicate(timeout=SHOT_TIMEOUT)
            code = int(self.shot.returncode != 0)
        except subprocess.TimeoutExpired:
            code, said = 1, f"not drawn within {SHOT_TIMEOUT:.0f} s"
        if code:
            print(f"splatview demo: no picture: {printable(said.strip())}", file=sys.stderr, flush=True)
        else:
            print(f"what the viewer shows: {self.options.out.absolute()}", flush=True)
        if self.screen != "offscreen" and not self.options.exit:
            self._serve_on()
        self.trainer.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = _exit_code(self.trainer.wait(timeout=20)) or code
        while (event := self._next_event()) is not None:
            self._show(event)
        return code

    def _serve_on(self) -> None:
        """Until Ctrl-C or another signal, which is how it is meant to end, or until the viewer ends."""
        told = False
        self._watch_viewer()
        try:
            while self.viewer is not None:
                event = self._next_event()
                if event is None:  # the trainer is gone: the viewer keeps what it showed last
                    self.events.put(None)
                    time.sleep(0.5)
                else:
                    self._show(event)
                told = told or self._tell_where()
                self._watch_viewer()
        except _EndedBySignalError:
            print(flush=True)  # behind the terminal's ^C

    def _tell_where(self) -> bool:
        """Once the viewer is up, say so, and how to end it."""
        from splatview_ipc.control.registry import viewers

        where = "until its window is closed" if self.screen == "window" else next(
            (f"at {v.url}" for v in viewers() if self.viewer is not None and v.pid == self.viewer.pid), "")
        if where:
            end = "Ctrl-C" if sys.stdin.isatty() and sys.stdout.isatty() else f"kill {os.getpid()}"
            print(f"The viewer stays {where}; end it with: {end}", flush=True)
        return bool(where)

    def _stop_early(self) -> None:
        """Let the trainer say how far it came."""
        if self.trainer is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.trainer.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline and (event := self._next_event(timeout=1.0)) is not None:
            if event["event"] != "train":
                self._show(event)
        if self.options.out.exists():
            print(f"the last picture: {self.options.out.absolute()}", flush=True)

    def _next_event(self, timeout: float = 0.5) -> dict[str, Any] | None:
        """The next event; an empty one if none came in time, None at the end."""
        try:
            return self.events.get(timeout=timeout)
        except queue.Empty:
            return {"event": "", "values": {}} if self.trainer is not None and self.trainer.poll() is None else None


def _exit_code(returned: int) -> int:
    """What a shell would report: a process that a signal ended has a negative code in Python."""
    return 128 - returned if returned < 0 else returned
