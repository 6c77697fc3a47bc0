"""`splatview camera`: the options, and the three programs: started, watched, ended. Capture, inference, viewer."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import tyro

from splatview.adapters.checks import stream_name
from splatview.camera.capture import PLAYED
from splatview.camera.detectors import LEGAL
from splatview.camera.only_host import host_of
from splatview.camera.sources import (
    CaptureError,
    CaptureSettings,
    check,
    kind_of,
    shown,
)
from splatview_ipc.system import entry
from splatview_ipc.system.child_program import ChildProgram
from splatview_ipc.system.files import check_picture
from splatview_ipc.system.optional_packages import require
from splatview_ipc.system.terminal import printable, without_surrogates

RESTART_S = 3.0
"""Pause before a program that died is started again."""
_LOOK_S = 0.05
_NOISE = (
    "splatview: serve: no run",
    "Corrupt JPEG data:",
    "Premature end of JPEG file",
)
"""First words of the viewer before the first picture, and of libjpeg about each damaged one."""
_EXPLAINED = 2
"""Exit status of a program whose stderr has the reason why it cannot do what was requested."""


@dataclass(frozen=True)
class CameraCommand:
    """Show a camera, a video or a network stream, and what a detector finds in it.

    A webcam:   splatview camera 0

    What is in the pictures:   splatview camera 0 --detect yolo11n.onnx

    People, without any model:   splatview camera street.mp4 --detect people

    Your own detector, a function of an (H, W, 3) RGB array:   splatview camera 0 --detect mymodule:find

    Without a camera:   splatview camera test

    Capturing, detecting and showing are three processes: none waits for another. Any other process can have the
    pictures as well: for frame in splatview.frames("camera"), and draw over them with splatview.annotate.
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """A camera's number or /dev/videoN (V4L2), a video file, rtsp://, http:// or https://, a GStreamer pipeline (with
    an OpenCV that has GStreamer), or test: a moving test picture."""
    detect: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """What looks at the pictures: a model that Ultralytics exported (MODEL.onnx), people (OpenCV's own detector, needs
    no model), or a Python function (module:function)."""
    every: Annotated[int | Literal["auto"], tyro.conf.arg(metavar="N")] = "auto"
    """Look at every N-th picture, or, with auto, always at the newest, as fast as the detector goes."""
    labels: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """The names of the classes: a file with one a line, in JSON, or a data.yaml; or coco. Default: those in the model."""
    threshold: Annotated[float | None, tyro.conf.arg(metavar="SCORE")] = None
    """Leave out what scores less, 0 to 1. Default: the detector's own."""
    nms: Annotated[float | None, tyro.conf.arg(metavar="IOU")] = None
    """Of two boxes of a class that overlap by more than this, 0 to 1, keep the better one: of models. Default:
    0.45."""
    provider: Literal["cuda", "cpu"] | None = None
    """Where onnxruntime runs a model. Default: on CUDA where it works."""
    size: Annotated[str | None, tyro.conf.arg(metavar="WxH")] = None
    """The size to ask of a camera. Other pictures are made smaller to fit into it. Default: as they come."""
    fps: Annotated[float | None, tyro.conf.arg(metavar="N")] = None
    """The pictures a second to ask of a camera. Of others, at most so many are shown. Default: as they come."""
    once: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Play a file once. Without it, it begins again at its end."""
    follow: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Follow redirects and playlists of a network stream to other hosts. Without it, only the host in SOURCE is
    reached."""
    name: Annotated[str, tyro.conf.arg(metavar="NAME")] = "camera"
    """What the stream of pictures is called."""
    patience: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 5.0
    """After so many seconds without a picture, that is said, and the source is opened again."""
    viewer: bool = True
    """Without a viewer, the pictures are published all the same: splatview serve shows them."""
    window: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Show a window. The default where there is a display."""
    web: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Show it in browsers: prints the address to open. The default where there is no display."""
    offscreen: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Show it nowhere: for --out."""
    port: Annotated[int, tyro.conf.arg(metavar="N")] = 7007
    """Where --web serves; if it is taken, at the next one that is free."""
    host: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Let --web be reached at this address of the machine from elsewhere as well; as for splatview serve."""
    allow_host: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME")
    ] = ()
    """Answer --web by this name of a reverse proxy as well; may be given more than once; as for splatview serve."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PICTURE")] = None
    """Write what is shown to this .png, .jpg or .webp: once a second when it changed, and at the end."""
    window_size: Annotated[str, tyro.conf.arg(metavar="WxH")] = "1280x720"
    """Width and height of the window, or of the picture of --out."""
    max_fps: Annotated[float, tyro.conf.arg(metavar="N")] = 60.0
    """Never draw more pictures a second than this."""


def main(args: list[str]) -> int:
    """Return the exit status: 2 for a request that cannot be met, with the cause on stderr."""
    options: CameraCommand = entry.options(CameraCommand, "splatview camera", args)
    try:
        capture, detector, viewer = _programs(options)
        check(capture)
    except (ValueError, OSError, CaptureError) as e:
        print(f"splatview camera: {e}", file=sys.stderr)
        return 2
    return launch(
        capture, detector, viewer, offscreen=options.offscreen, out=options.out
    )


def _programs(
    o: CameraCommand,
) -> tuple[CaptureSettings, dict[str, object] | None, tuple[str, ...] | None]:
    """Return what `launch` starts. Raises ValueError, and OSError for a file that cannot be written."""
    stream_name(o.name)
    width, height = _size("--size", o.size) if o.size else (0, 0)
    _size("--window-size", o.window_size)
    for name, value, least, most in (
        ("fps", o.fps, 0.01, 1000),
        ("patience", o.patience, 0.1, 3600),
        ("max-fps", o.max_fps, 0.01, 1000),
        ("threshold", o.threshold, 0, 1),
        ("nms", o.nms, 0, 1),
        ("every", o.every, 1, 1_000_000),
    ):
        if isinstance(value, (int, float)) and not least <= value <= most:
            raise ValueError(f"--{name} is {value:g}, not from {least:g} to {most}")
    if o.once and kind_of(o.source) in ("test", "device"):
        raise ValueError(f"--once is for files, and {o.source} has no end")
    if o.follow and kind_of(o.source) != "network":
        raise ValueError(f"--follow is for network streams, and {o.source} is none")
    detector = _detector(o)
    screens = [
        f"--{name}" for name in ("window", "web", "offscreen") if getattr(o, name)
    ]
    more = [
        *(["--host", o.host] if o.host else []),
        *(word for name in o.allow_host for word in ("--allow-host", name)),
        *(["--out", str(o.out)] if o.out else []),
    ]
    if len(screens) > 1:
        raise ValueError(f"{' and '.join(screens)} exclude each other; name one")
    if not o.viewer and (screens or more):
        raise ValueError(
            f"--no-viewer and {[*screens, *more][0]} exclude each other; name one"
        )
    for option, value in (("--host", o.host), ("--allow-host", o.allow_host)):
        if value and screens not in ([], ["--web"]):
            raise ValueError(f"{option} is for --web, and {screens[0]} was named")
    if o.out is not None:
        check_picture(o.out)
    viewer = (
        *screens,
        "--port",
        str(o.port),
        "--size",
        o.window_size,
        "--max-fps",
        f"{o.max_fps:g}",
        *more,
    )
    capture = CaptureSettings(
        source=o.source,
        width=width,
        height=height,
        fps=o.fps or 0.0,
        patience=o.patience,
        stream=o.name,
        loop=not o.once,
        follow=o.follow,
    )
    return capture, detector, viewer if o.viewer else None


def _size(name: str, text: str) -> tuple[int, int]:
    width, mark, height = text.lower().partition("x")
    if not (
        mark and all(n.isdecimal() and 1 <= int(n) <= 16384 for n in (width, height))
    ):
        raise ValueError(
            f"{name} is {text!r}, not a width and a height from 1 to 16384, such as 1280x720"
        )
    return int(width), int(height)


def _detector(o: CameraCommand) -> dict[str, object] | None:
    """Return the settings of the inference process, less the run that it follows; None where there is none."""
    given = {
        name: value
        for name in ("labels", "threshold", "nms", "provider", "every")
        if (value := getattr(o, name)) is not None
        and value is not False
        and value != "auto"
    }
    if o.detect is None:
        if given:
            raise ValueError(
                f"--{next(iter(given))} is for --detect, which was not given"
            )
        return None
    if o.labels not in (None, "coco") and not Path(o.labels).is_file():
        raise ValueError(f"--labels: there is no file {o.labels}")
    if o.detect.endswith(".onnx"):
        if not Path(o.detect).is_file():
            raise ValueError(f"--detect: there is no file {o.detect}")
        require(f"--detect {o.detect} needs", "onnxruntime", "cv2", error=ValueError)
    elif o.detect == "people":
        require("--detect people needs", "cv2", error=ValueError)
    elif ":" not in o.detect:
        raise ValueError(f"--detect is {o.detect!r}; legal are {LEGAL}")
    return {**given, "stream": o.name, "detect": o.detect}


def launch(
    capture: CaptureSettings,
    detector: dict[str, object] | None,
    viewer: tuple[str, ...] | None,
    *,
    offscreen: bool = False,
    out: Path | None = None,
) -> int:
    """Run until the viewer is closed, a signal comes, or there is nothing more to show. Return the exit status.

    Args:
        detector: settings of the inference process, less its run; None: there is none.
        viewer: arguments of `python -m splatview_viewer serve`; None: there is no viewer.
        offscreen: the viewer has neither a window nor pages: the session ends once a file was played.
        out: the viewer's picture file: a session whose file was played waits for its first picture.
    """
    session = _CameraSession(
        capture, detector, viewer, viewer is None or offscreen, out
    )
    with entry.ending(session.end):
        try:
            return session.run()
        finally:
            entry.ignore()  # nothing interrupts the cleaning up
            for program in (
                session.viewer,
                session.inference,
                session.capture,
            ):  # the viewer keeps its last picture
                program.end()


class _Program:
    """One of the three programs, started again after it has died."""

    def __init__(
        self, title: str, module: str, *arguments: str, env: dict[str, str]
    ) -> None:
        self.title = title
        self.start_at: float | None = 0.0
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
            self._child = ChildProgram(
                *self._arguments, env=self._env, on_error=self.tell
            )
        if self._child is None or self._child.running():
            return None
        code = self._child.exit_code or 0
        self.end()
        if code not in (0, _EXPLAINED):
            if code > 0:
                how = f"with code {code}"
            else:
                how = f"by a signal ({signal.strsignal(-code)})"
            self.tell(f"it ended {how}")
        return code

    def start_again(self, now: float) -> None:
        """Have it started again after a pause, and say so."""
        self.start_at = now + RESTART_S
        self.tell(f"it is started again in {RESTART_S:g} s")

    def tell(self, line: str) -> None:
        if line == PLAYED:
            self.played = True
        elif line.strip() and not line.startswith(
            _NOISE
        ):  # one write: threads of several programs call this
            print(
                f"{self.title}: {printable(line.rstrip().removeprefix('splatview: '))}\n",
                end="",
                file=sys.stderr,
                flush=True,
            )

    def end(self) -> None:
        if self._child is not None:
            self._child.end()
        self._child = None
        self.start_at = None


class _CameraSession:
    """The programs, and the state of what they show."""

    def __init__(
        self,
        settings: CaptureSettings,
        detector: dict[str, object] | None,
        viewer: tuple[str, ...] | None,
        ends_played: bool,
        out: Path | None,
    ) -> None:
        """`ends_played`: it ends once a file was played; the rest as for `launch`."""
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
            self.capture.tell(
                f"published as {settings.stream!r}; splatview serve shows it. Ctrl-C ends it"
            )
        self.code: int | None = None
        """The exit status, once it is over."""
        self._ends_played = ends_played
        self._out = out
        self._picture_before = self._picture_time()

    def end(self, *_: object) -> None:
        """End the session: handles signals."""
        self.code = 0

    def run(self) -> int:
        while self.code is None:
            self.turn(time.monotonic())
            time.sleep(_LOOK_S)
        return self.code

    def turn(self, now: float) -> None:
        """Start programs that are due, and note which have ended."""
        viewer, capture, inference = (
            program.turn(now) for program in (self.viewer, self.capture, self.inference)
        )
        if self.code is not None:  # a signal came meanwhile
            return
        if viewer is not None:
            self.code = viewer if viewer >= 0 else 1
        elif (
            self.capture.played
            and self._ends_played
            and (self._out is None or self._picture_time() != self._picture_before)
        ):
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
        if self._out is not None and self._out.exists():
            return self._out.stat().st_mtime_ns
        return None


def _run_name(source: str) -> str:
    """Return the name of a new run: the user's, or the source in a word or two, without what only its owner should see.

    Where a live run has that name, a number is put before it: the viewer finds this run by its name, also after the
    capturing process was started again. (A number behind it would match too: ids begin alike.)
    """
    from splatview_ipc.control.run_folder import list_runs, runtime_folder

    kind = kind_of(source)
    if kind == "network":
        short = host_of(source).lower() or kind
    else:
        short = {"file": Path(source).name, "pipeline": kind}.get(kind, shown(source))
    name = without_surrogates(
        os.environ.get("SPLATVIEW_NAME") or f"camera {short[:60]}"
    )
    taken = {folder.description.name for folder in list_runs(runtime_folder())}
    return next(
        n
        for n in (name, *(f"{i}. {name}" for i in range(2, len(taken) + 3)))
        if n not in taken
    )
