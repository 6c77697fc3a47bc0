"""`splatview camera`: the options. What they start is `splatview.camera.launcher`'s."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from splatview.camera.launcher import Plan, ViewerOptions, launch
from splatview.camera.sources import CameraError, SourceSettings, check, kind_of
from splatview_ipc.system import entry
from splatview_ipc.system.files import check_picture
from splatview_ipc.system.optional_packages import require

if TYPE_CHECKING:
    from collections.abc import Sequence


class _OptionError(Exception):
    """An option cannot be used; the message says why."""


@dataclass(frozen=True)
class Camera:
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
    """What looks at the pictures: a model for onnxruntime (MODEL.onnx), people (OpenCV's own detector, needs no
    model), or a Python function (module:function)."""
    every: Annotated[str, tyro.conf.arg(metavar="N")] = "auto"
    """Look at every N-th picture, or, with auto, always at the newest, as fast as the detector goes."""
    labels: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """The names of the classes, one a line, or coco. Default: those in the model."""
    threshold: Annotated[float | None, tyro.conf.arg(metavar="SCORE")] = None
    """Leave out what scores less, 0 to 1. Default: the detector's own."""
    nms: Annotated[float | None, tyro.conf.arg(metavar="IOU")] = None
    """Of two boxes of a class that overlap by more than this, 0 to 1, keep the better one. Default: the detector's
    own."""
    provider: Literal["tensorrt", "cuda", "cpu"] | None = None
    """Where onnxruntime runs a model. Default: the fastest that works."""
    decode: Annotated[str | None, tyro.conf.arg(metavar="KIND")] = None
    """Of which kind a model's answers are, where they do not say it: yolov5, yolov8, yolov10, yolov7-end2end, ssd,
    ssd-tensorflow or torchvision."""
    normalize: Annotated[str | None, tyro.conf.arg(metavar="HOW")] = None
    """How a model wants colours, where it does not say it: 0..1, -1..1, 0..255 or imagenet."""
    motion: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Move boxes along between two results."""
    size: Annotated[str | None, tyro.conf.arg(metavar="WxH")] = None
    """The size to ask of a camera. Other pictures are made smaller to fit into it. Default: as they come."""
    fps: Annotated[float | None, tyro.conf.arg(metavar="N")] = None
    """The pictures a second to ask of a camera. Of others, at most so many are shown. Default: as they come."""
    once: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Play a file once. Without it, it begins again at its end."""
    name: Annotated[str, tyro.conf.arg(metavar="NAME")] = "camera"
    """What the stream of pictures is called."""
    reader: Literal["auto", "opencv", "pyav"] = "auto"
    """The library that reads the source, where two can."""
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
    out: Annotated[Path | None, tyro.conf.arg(metavar="PICTURE")] = None
    """Write what is shown to this .png, .jpg or .webp: once a second when it changed, and at the end."""
    window_size: Annotated[str, tyro.conf.arg(metavar="WxH")] = "1280x720"
    """Width and height of the window, or of the picture of --out."""
    max_fps: Annotated[float, tyro.conf.arg(metavar="N")] = 60.0
    """Never draw more pictures a second than this."""


def main(args: list[str]) -> int:
    """The exit status; 2 for what cannot be done, and stderr says why."""
    options: Camera = entry.options(Camera, "splatview camera", args)
    try:
        plan = _plan(options)
        check(plan.source)
    except (_OptionError, CameraError) as e:
        print(f"splatview camera: {e}", file=sys.stderr)
        return 2
    return launch(plan)


def _plan(options: Camera) -> Plan:
    """What to start. Raises _OptionError."""
    from splatview.api import checks

    o = options
    try:
        checks.stream_name(o.name)
    except ValueError as e:
        raise _OptionError(f"--name: {e}") from None
    width, height = _size("--size", o.size) if o.size else (0, 0)
    _size("--window-size", o.window_size)
    if o.fps is not None and not 0 < o.fps <= 1000:
        raise _OptionError(f"--fps is {o.fps:g}, not a number over 0 up to 1000")
    if not 0.1 <= o.patience <= 3600:
        raise _OptionError(f"--patience is {o.patience:g}, not from 0.1 to 3600 seconds")
    if not 0 < o.max_fps <= 1000:
        raise _OptionError(f"--max-fps is {o.max_fps:g}, not a number over 0 up to 1000")
    if o.once and kind_of(o.source) in ("test", "device"):
        raise _OptionError(f"--once is for files, and {o.source} has no end")
    source = SourceSettings(source=o.source, reader=o.reader, width=width, height=height, fps=o.fps or 0.0,
                            patience=o.patience)
    return Plan(source, o.name, not o.once, _detector(o), _viewer(o))


def _size(name: str, text: str) -> tuple[int, int]:
    width, mark, height = text.lower().partition("x")
    if not (mark and width.isdecimal() and height.isdecimal() and 1 <= int(width) <= 16384
            and 1 <= int(height) <= 16384):
        raise _OptionError(f"{name} is {text!r}, not a width and a height from 1 to 16384, such as 1280x720")
    return int(width), int(height)


_OF_DETECTOR = ("labels", "threshold", "nms", "provider", "decode", "normalize")
"""Options that are for --detect, and are called the same in the inference process's settings."""


def _detector(o: Camera) -> dict[str, object] | None:
    """The settings of the inference process, less the run that it follows; None where nothing is to be detected."""
    if o.detect is None:
        given = [f"--{name}" for name in _OF_DETECTOR if getattr(o, name) is not None]
        given += [f"--{name}" for name, is_given in (("every", o.every != "auto"), ("motion", o.motion)) if is_given]
        if given:
            raise _OptionError(f"{given[0]} is for --detect, which was not given")
        return None
    for name, value in (("threshold", o.threshold), ("nms", o.nms)):
        if value is not None and not 0 <= value <= 1:
            raise _OptionError(f"--{name} is {value:g}, not from 0 to 1")
    if o.every != "auto" and not (o.every.isdecimal() and 1 <= int(o.every) <= 1_000_000):
        raise _OptionError(f"--every is {o.every!r}, not auto or a number from 1")
    if o.labels not in (None, "coco") and not Path(o.labels).is_file():
        raise _OptionError(f"--labels: there is no file {o.labels}")
    if o.detect.endswith(".onnx") and not Path(o.detect).is_file():
        raise _OptionError(f"--detect: there is no file {o.detect}")
    if not (o.detect == "people" or o.detect.endswith(".onnx") or ":" in o.detect):
        raise _OptionError(f"--detect is {o.detect!r}; legal are a file MODEL.onnx, people, or module:function")
    if o.detect == "people":
        require("--detect people needs", "cv2", error=_OptionError)
    elif o.detect.endswith(".onnx"):
        require(f"--detect {o.detect} needs", "onnxruntime", "cv2", error=_OptionError)
    settings: dict[str, object] = {"stream": o.name, "detect": o.detect, "motion": o.motion,
                                   "every": "auto" if o.every == "auto" else int(o.every)}
    return settings | {name: value for name in _OF_DETECTOR if (value := getattr(o, name)) is not None}


def _viewer(o: Camera) -> ViewerOptions | None:
    screens: Sequence[str] = [f"--{name}" for name in ("window", "web", "offscreen") if getattr(o, name)]
    if len(screens) > 1:
        raise _OptionError(f"{' and '.join(screens)} exclude each other; name one")
    if not o.viewer:
        wanted = [*screens, *(["--out"] if o.out else []), *(["--host"] if o.host else [])]
        if wanted:
            raise _OptionError(f"--no-viewer and {wanted[0]} exclude each other; name one")
        return None
    if o.host is not None and screens and screens != ["--web"]:
        raise _OptionError(f"--host is for --web, and {screens[0]} was named")
    if o.out is not None:
        try:
            check_picture(o.out)
        except OSError as e:
            raise _OptionError(f"--out: {e}") from None
    arguments = [*screens, "--port", str(o.port), "--size", o.window_size, "--max-fps", f"{o.max_fps:g}"]
    arguments += [] if o.host is None else ["--host", o.host]
    arguments += [] if o.out is None else ["--out", str(o.out)]
    return ViewerOptions(tuple(arguments), offscreen=o.offscreen, out=o.out)
