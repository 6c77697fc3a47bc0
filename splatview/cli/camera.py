"""`splatview camera`: the options. `splatview.camera.launcher` starts the programs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from splatview.camera.detectors import LEGAL
from splatview.camera.launcher import Plan, launch
from splatview.camera.sources import CameraError, CaptureSettings, check, kind_of
from splatview_ipc.system import entry
from splatview_ipc.system.files import check_picture
from splatview_ipc.system.optional_packages import require


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
    """What looks at the pictures: a model that Ultralytics exported (MODEL.onnx), people (OpenCV's own detector, needs
    no model), or a Python function (module:function)."""
    every: Annotated[int | Literal["auto"], tyro.conf.arg(metavar="N")] = "auto"
    """Look at every N-th picture, or, with auto, always at the newest, as fast as the detector goes."""
    labels: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """The names of the classes, one a line, or coco. Default: those in the model."""
    threshold: Annotated[float | None, tyro.conf.arg(metavar="SCORE")] = None
    """Leave out what scores less, 0 to 1. Default: the detector's own."""
    nms: Annotated[float | None, tyro.conf.arg(metavar="IOU")] = None
    """Of two boxes of a class that overlap by more than this, 0 to 1, keep the better one: of models. Default:
    0.45."""
    provider: Literal["cuda", "cpu"] | None = None
    """Where onnxruntime runs a model. Default: on CUDA where it works."""
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
    """Return the exit status: 2 for a request that cannot be met, with the cause on stderr."""
    options: Camera = entry.options(Camera, "splatview camera", args)
    try:
        plan = _plan(options)
        check(plan.capture)
    except (ValueError, OSError, CameraError) as e:
        print(f"splatview camera: {e}", file=sys.stderr)
        return 2
    return launch(plan)


def _plan(o: Camera) -> Plan:
    """Return what to start. Raises ValueError, and OSError for a file that cannot be written."""
    from splatview.adapters.checks import stream_name

    stream_name(o.name)
    width, height = _size("--size", o.size) if o.size else (0, 0)
    _size("--window-size", o.window_size)
    for name, value, least, most in (("fps", o.fps, 0.01, 1000), ("patience", o.patience, 0.1, 3600),
                                     ("max-fps", o.max_fps, 0.01, 1000), ("threshold", o.threshold, 0, 1),
                                     ("nms", o.nms, 0, 1), ("every", o.every, 1, 1_000_000)):
        if isinstance(value, (int, float)) and not least <= value <= most:
            raise ValueError(f"--{name} is {value:g}, not from {least:g} to {most}")
    if o.once and kind_of(o.source) in ("test", "device"):
        raise ValueError(f"--once is for files, and {o.source} has no end")
    detector = _detector(o)
    screens = [f"--{name}" for name in ("window", "web", "offscreen") if getattr(o, name)]
    more = [*(["--host", o.host] if o.host else []), *(["--out", str(o.out)] if o.out else [])]
    if len(screens) > 1:
        raise ValueError(f"{' and '.join(screens)} exclude each other; name one")
    if not o.viewer and (screens or more):
        raise ValueError(f"--no-viewer and {[*screens, *more][0]} exclude each other; name one")
    if o.host and screens not in ([], ["--web"]):
        raise ValueError(f"--host is for --web, and {screens[0]} was named")
    if o.out is not None:
        check_picture(o.out)
    viewer = (*screens, "--port", str(o.port), "--size", o.window_size, "--max-fps", f"{o.max_fps:g}", *more)
    capture = CaptureSettings(source=o.source, width=width, height=height, fps=o.fps or 0.0, patience=o.patience,
                              stream=o.name, loop=not o.once)
    return Plan(capture, detector, viewer if o.viewer else None, offscreen=o.offscreen, out=o.out)


def _size(name: str, text: str) -> tuple[int, int]:
    width, mark, height = text.lower().partition("x")
    if not (mark and all(n.isdecimal() and 1 <= int(n) <= 16384 for n in (width, height))):
        raise ValueError(f"{name} is {text!r}, not a width and a height from 1 to 16384, such as 1280x720")
    return int(width), int(height)


def _detector(o: Camera) -> dict[str, object] | None:
    """Return the settings of the inference process, less the run that it follows; None where there is none."""
    given = {name: value for name in ("labels", "threshold", "nms", "provider", "every", "motion")
             if (value := getattr(o, name)) is not None and value is not False and value != "auto"}
    if o.detect is None:
        if given:
            raise ValueError(f"--{next(iter(given))} is for --detect, which was not given")
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
