"""The command `splatview camera`: its options, and what they ask of each program."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import tyro

from splatview.adapters.checks import stream_name
from splatview.camera.detectors import LEGAL
from splatview.camera.programs import launch
from splatview.camera.sources import CaptureError, CaptureSettings, check, kind_of
from splatview_ipc.system import entry
from splatview_ipc.system.files import check_picture
from splatview_ipc.system.optional_packages import require

_BOUNDS = {
    "fps": (0.01, 1000),
    "patience": (0.1, 3600),
    "max_fps": (0.01, 1000),
    "threshold": (0, 1),
    "nms": (0, 1),
    "every": (1, 1_000_000),
}
"""Smallest and largest value of each option that is a number."""
_MAX_SIDE = 16384


@dataclass(frozen=True)
class CameraCommand:
    """Show a camera, a video or a network stream, and what a detector finds in it.

    Examples:

        splatview camera 0                                  # a webcam
        splatview camera test                               # without any camera
        splatview camera 0 --detect yolo11n.onnx            # boxes around what is there
        splatview camera street.mp4 --detect people         # without any model
        splatview camera 0 --detect mymodule:find           # a function of yours

    The function takes an (H, W, 3) RGB array and returns boxes, (N, 4 to 6) of x0 y0 x1
    y1, score, class, or a mapping of what splatview.annotate takes.

    Capturing, detecting and showing are three processes: none waits for another. Any
    other process can have the pictures as well: for frame in
    splatview.frames("camera"), and draw over them with splatview.annotate.
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """A camera's number or /dev/videoN (V4L2), a video file, rtsp://, http:// or
    https://, a GStreamer pipeline (with an OpenCV that has GStreamer), or test: a
    moving test picture."""
    detect: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """What looks at the pictures: a model that Ultralytics exported (MODEL.onnx),
    people (OpenCV's own detector, needs no model), or a Python function
    (module:function)."""
    every: Annotated[int | Literal["auto"], tyro.conf.arg(metavar="N")] = "auto"
    """Look at every N-th picture, or, with auto, always at the newest, as fast as the
    detector goes."""
    labels: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """The names of the classes: a file with one a line, in JSON, or a data.yaml; or
    coco. Default: those in the model."""
    threshold: Annotated[float | None, tyro.conf.arg(metavar="SCORE")] = None
    """Leave out what scores less, 0 to 1. Default: the detector's own."""
    nms: Annotated[float | None, tyro.conf.arg(metavar="IOU")] = None
    """Of two boxes of a class that overlap by more than this, 0 to 1, keep the better
    one: of models. Default: 0.45."""
    provider: Literal["cuda", "cpu"] | None = None
    """Where onnxruntime runs a model. Default: on CUDA where it works."""
    size: Annotated[str | None, tyro.conf.arg(metavar="WxH")] = None
    """The size to ask of a camera. Other pictures are made smaller to fit into it.
    Default: as they come."""
    fps: Annotated[float | None, tyro.conf.arg(metavar="N")] = None
    """The pictures a second to ask of a camera. Of others, at most this many are shown.
    Default: as they come."""
    once: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Play a file once. Without it, it begins again at its end."""
    follow: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Follow redirects and playlists of a network stream to other hosts. Without it,
    only the host in SOURCE is reached."""
    name: Annotated[str, tyro.conf.arg(metavar="NAME")] = "camera"
    """What the stream of pictures is called."""
    patience: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 5.0
    """After this many seconds without a picture, the command says so, and opens the source
    again."""
    viewer: bool = True
    """Without a viewer, the pictures are published all the same: splatview serve shows
    them."""
    window: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Show a window. The default where there is a display."""
    web: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Show it in browsers: prints the address to open. The default where there is no
    display."""
    offscreen: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Show it in neither: --out alone is written."""
    port: Annotated[int, tyro.conf.arg(metavar="N")] = 7007
    """The port of --web; if it is taken, the next one that is free."""
    host: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Let --web be reached at this address of the machine from elsewhere as well;
    as for splatview serve."""
    allow_host: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME")
    ] = ()
    """Answer --web by this name of a reverse proxy as well; may be given more than
    once; as for splatview serve."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PICTURE")] = None
    """Write what is shown to this .png, .jpg or .webp: once a second when it changed,
    and at the end."""
    window_size: Annotated[str, tyro.conf.arg(metavar="WxH")] = "1280x720"
    """Width and height of the window, or of the picture of --out."""
    max_fps: Annotated[float, tyro.conf.arg(metavar="N")] = 60.0
    """Never draw more pictures a second than this."""


def main(args: list[str]) -> int:
    """Run `splatview camera` with these arguments.

    Returns:
        The exit status: 2 for a request that cannot be met, with the cause on stderr.
    """
    options: CameraCommand = entry.parse_options(
        CameraCommand, "splatview camera", args
    )
    try:
        plan = _plan(options)
        check(plan.capture)
    except (ValueError, OSError, CaptureError) as error:
        print(f"splatview camera: {error}", file=sys.stderr)
        return 2
    return launch(
        plan.capture,
        plan.detector,
        plan.viewer,
        offscreen=options.offscreen,
        out=options.out,
    )


class _Plan(NamedTuple):
    """Settings of the three programs; of one that is not started, None."""

    capture: CaptureSettings
    detector: dict[str, object] | None
    viewer: tuple[str, ...] | None


def _plan(options: CameraCommand) -> _Plan:
    """Return the settings that options ask for, checked.

    Raises ValueError, and OSError for a file that cannot be written.
    """
    stream_name(options.name)
    capture = _capture_settings(options)
    detector = _detector_settings(options)
    viewer = _viewer_arguments(options)
    return _Plan(capture, detector, viewer if options.viewer else None)


def _capture_settings(options: CameraCommand) -> CaptureSettings:
    """Return the settings of the capturing process. Raises ValueError."""
    width = 0
    height = 0
    if options.size:
        width, height = _parse_size("--size", options.size)
    _parse_size("--window-size", options.window_size)
    _check_numbers(options)
    kind = kind_of(options.source)
    if options.once and kind in ("test", "device"):
        raise ValueError(f"--once is for files, and {options.source} has no end")
    if options.follow and kind != "network":
        raise ValueError(
            f"--follow is for network streams, and {options.source} is none"
        )
    return CaptureSettings(
        source=options.source,
        width=width,
        height=height,
        fps=options.fps or 0.0,
        patience=options.patience,
        stream=options.name,
        loop=not options.once,
        follow=options.follow,
    )


def _check_numbers(options: CameraCommand) -> None:
    """Raise ValueError for an option that is out of its bounds."""
    for name, (smallest, largest) in _BOUNDS.items():
        value = getattr(options, name)
        if value is None or isinstance(value, str):
            continue
        if not smallest <= value <= largest:
            option = name.replace("_", "-")
            raise ValueError(
                f"--{option} is {value:g}, not from {smallest} to {largest}"
            )


def _parse_size(option: str, text: str) -> tuple[int, int]:
    """Return the width and height in a text such as "1280x720". Raises ValueError."""
    width, mark, height = text.lower().partition("x")
    if not mark or not _is_side(width) or not _is_side(height):
        raise ValueError(
            f"{option} is {text!r}, not a width and a height from 1 to {_MAX_SIDE}, "
            "such as 1280x720"
        )
    return int(width), int(height)


def _is_side(text: str) -> bool:
    """Return whether a text is a legal number of pixels along a side."""
    return text.isdecimal() and 1 <= int(text) <= _MAX_SIDE


def _viewer_arguments(options: CameraCommand) -> tuple[str, ...]:
    """Return the arguments of the viewer program.

    Raises ValueError for options that exclude each other, OSError for a picture that
    cannot be written.
    """
    screens = [
        f"--{name}" for name in ("window", "web", "offscreen") if getattr(options, name)
    ]
    extras: list[str] = []
    if options.host:
        extras += ["--host", options.host]
    for name in options.allow_host:
        extras += ["--allow-host", name]
    if options.out:
        extras += ["--out", str(options.out)]
    if len(screens) > 1:
        raise ValueError(f"{' and '.join(screens)} exclude each other; name one")
    for_viewer = [*screens, *extras]
    if for_viewer and not options.viewer:
        raise ValueError(
            f"--no-viewer and {for_viewer[0]} exclude each other; name one"
        )
    is_served = screens in ([], ["--web"])
    for option, value in (
        ("--host", options.host),
        ("--allow-host", options.allow_host),
    ):
        if value and not is_served:
            raise ValueError(f"{option} is for --web, and {screens[0]} was named")
    if options.out is not None:
        check_picture(options.out)
    return (
        *screens,
        "--port",
        str(options.port),
        "--size",
        options.window_size,
        "--max-fps",
        f"{options.max_fps:g}",
        *extras,
    )


def _detector_settings(options: CameraCommand) -> dict[str, object] | None:
    """Return the settings of the inference process, less the run that it follows.

    None without a detector. Raises ValueError.
    """
    settings: dict[str, object] = {}
    for name in ("labels", "threshold", "nms", "provider", "every"):
        value = getattr(options, name)
        if value is not None and value != "auto":
            settings[name] = value
    if options.detect is None:
        if settings:
            first = next(iter(settings))
            raise ValueError(f"--{first} is for --detect, which was not given")
        return None
    has_file = options.labels not in (None, "coco")
    if has_file and not Path(str(options.labels)).is_file():
        raise ValueError(f"--labels: there is no file {options.labels}")
    _check_detector(options.detect)
    return {**settings, "stream": options.name, "detect": options.detect}


def _check_detector(detect: str) -> None:
    """Raise ValueError for a detector that cannot be made. Loads no library."""
    if detect.endswith(".onnx"):
        if not Path(detect).is_file():
            raise ValueError(f"--detect: there is no file {detect}")
        require(f"--detect {detect} needs", "onnxruntime", "cv2", error=ValueError)
    elif detect == "people":
        require("--detect people needs", "cv2", error=ValueError)
    elif ":" not in detect:
        raise ValueError(f"--detect is {detect!r}; expected {LEGAL}")
