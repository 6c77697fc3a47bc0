"""Pictures by way of OpenCV: cameras (V4L2), GStreamer pipelines, and what its FFmpeg reads."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from splatview.camera.sources import CameraError, DamagedError, HopelessError, device_path, fitted, kind_of, shown
from splatview_ipc.system.optional_packages import needed

if TYPE_CHECKING:
    import cv2
    import numpy as np
    from numpy.typing import NDArray

    from splatview.camera.sources import Buffers, SourceSettings


_MJPEG = int.from_bytes(b"MJPG", "little")


class OpenCVSource:
    """What `cv2.VideoCapture` reads."""

    def __init__(self, settings: SourceSettings):
        self._settings = settings
        self._kind = kind_of(settings.source)
        self._capture: cv2.VideoCapture | None = None
        self._compressed = False
        """Whether the pictures come as JPEG."""
        self.recorded = self._kind == "file"
        self.rate = 0.0
        self.words = f"{shown(settings.source)} by OpenCV"

    def open(self) -> None:
        with needed(f"{shown(self._settings.source)}: reading it needs", "cv2", error=HopelessError):
            import cv2

        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # our own errors tell it, once
        self.close()
        if self._kind == "pipeline":
            _check_gstreamer()
        name = ""
        if self._kind == "device":
            from splatview.camera.v4l2 import check_device

            name = check_device(device_path(self._settings.source))
        capture = self._opened()
        self._capture = capture
        width, height = (int(capture.get(p)) for p in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT))
        if self._kind == "network":
            self.recorded = 0 < capture.get(cv2.CAP_PROP_FRAME_COUNT) < 1e9
        rate = capture.get(cv2.CAP_PROP_FPS)
        # Of a network stream that is live, FFmpeg only guesses it.
        self.rate = float(rate) if 0 < rate < 1000 and (self.recorded or self._kind != "network") else 0.0
        self.words = self._describe(capture, name, width, height)
        # OpenCV makes a black picture of a damaged one; so it hands over the JPEG.
        self._compressed = (self._kind == "device" and int(capture.get(cv2.CAP_PROP_FOURCC)) == _MJPEG
                            and capture.set(cv2.CAP_PROP_CONVERT_RGB, 0))

    def _opened(self) -> cv2.VideoCapture:
        import cv2

        settings, patience = self._settings, int(self._settings.patience * 1000)
        if self._kind == "device":
            # Cameras are waited for in whole seconds, as many for all; 10 where nobody says it.
            os.environ.setdefault("OPENCV_VIDEOIO_V4L_SELECT_TIMEOUT", str(max(1, math.ceil(settings.patience))))
            capture = cv2.VideoCapture(device_path(settings.source), cv2.CAP_V4L2)
            if capture.isOpened():
                self._ask(capture)
        elif self._kind == "pipeline":
            pipeline = settings.source
            if "appsink" not in pipeline:
                pipeline += " ! videoconvert ! video/x-raw,format=BGR ! appsink drop=true max-buffers=2"
            capture = cv2.VideoCapture(pipeline, cv2.CAP_GSTREAMER)
        else:
            capture = cv2.VideoCapture(settings.source.removeprefix("file://"), cv2.CAP_FFMPEG,
                                       [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, patience,
                                        cv2.CAP_PROP_READ_TIMEOUT_MSEC, patience])
        if not capture.isOpened():
            capture.release()
            raise self._why_not()
        return capture

    def _ask(self, capture: cv2.VideoCapture) -> None:
        """Ask a camera for a size and rate; it gives what comes next to it."""
        import cv2

        settings = self._settings
        # Uncompressed, most cameras give a large picture only a few times a second.
        capture.set(cv2.CAP_PROP_FOURCC, _MJPEG)
        for prop, value in ((cv2.CAP_PROP_FRAME_WIDTH, settings.width), (cv2.CAP_PROP_FRAME_HEIGHT, settings.height),
                            (cv2.CAP_PROP_FPS, settings.fps)):
            if value:
                capture.set(prop, value)

    def _why_not(self) -> CameraError:
        source = shown(self._settings.source)
        if self._kind == "device":
            return CameraError(f"{device_path(source)} gives no pictures: another program may be using it")
        if self._kind == "pipeline":
            return CameraError(f"GStreamer does not start {source!r}; try it with gst-launch-1.0 -v")
        if self._kind == "network":
            return CameraError(f"{source} does not answer, or gives nothing that OpenCV reads")
        if not Path(source.removeprefix("file://")).exists():
            return CameraError(f"there is no file {source} any more")
        return HopelessError(f"{source} is no video that OpenCV reads")

    def _describe(self, capture: cv2.VideoCapture, name: str, width: int, height: int) -> str:
        import cv2

        source = device_path(self._settings.source) if self._kind == "device" else shown(self._settings.source)
        code = int(capture.get(cv2.CAP_PROP_FOURCC)) if self._kind != "pipeline" else 0
        letters = code.to_bytes(4, "little").decode("latin1") if 0 < code < 2**32 else ""
        codec = f" {letters.strip()}" if letters.isprintable() else ""
        rate = f" at {self.rate:.4g}/s" if self.rate else ""
        how = {"device": "V4L2", "pipeline": "GStreamer"}.get(self._kind, "FFmpeg")
        return f"{source}{f' ({name})' if name else ''}, {width} x {height}{rate}{codec}, by OpenCV ({how})"

    def grab(self) -> float | None:
        import cv2

        capture = self._capture
        if capture is None:
            raise CameraError(f"{self.words}: it is not open")
        if not capture.grab():
            if self.recorded:
                return None
            raise CameraError(f"{self.words}: no picture comes any more")
        return capture.get(cv2.CAP_PROP_POS_MSEC) / 1000 if self.recorded else time.monotonic()

    def retrieve(self, buffers: Buffers) -> NDArray[np.uint8]:
        import cv2

        capture = self._capture
        if capture is None:
            raise CameraError(f"{self.words}: it is not open")
        there, image = capture.retrieve()
        if there and self._compressed:
            image = cv2.imdecode(image, cv2.IMREAD_COLOR)
        if not there or image is None or image.ndim < 2 or not image.size:
            raise DamagedError(f"{self.words}: a picture cannot be decoded")
        height, width = image.shape[:2]
        if self._kind != "device" and (size := fitted(width, height, self._settings)) != (width, height):
            image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
            width, height = size
        result = buffers.take(height, width)
        if image.ndim == 2 or image.shape[2] == 1:
            cv2.cvtColor(image, cv2.COLOR_GRAY2RGB, dst=result)
        else:
            cv2.cvtColor(image, cv2.COLOR_BGR2RGB if image.shape[2] == 3 else cv2.COLOR_BGRA2RGB, dst=result)
        return result

    def close(self) -> None:
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.release()


def _check_gstreamer() -> None:
    """Raises HopelessError where this OpenCV cannot run pipelines."""
    import cv2

    if not has_gstreamer():
        raise HopelessError(
            f"this OpenCV ({cv2.__version__}) is built without GStreamer, as those from PyPI are; those of Linux "
            "distributions (apt install python3-opencv), of conda-forge and of NVIDIA's Jetson have it")


def has_gstreamer() -> bool:
    """Whether this OpenCV runs GStreamer pipelines."""
    import cv2

    line = next((text for text in cv2.getBuildInformation().splitlines() if "GStreamer:" in text), "")
    return "YES" in line
