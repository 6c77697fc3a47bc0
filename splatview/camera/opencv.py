"""Pictures through OpenCV: cameras (V4L2), network addresses (its FFmpeg), and GStreamer pipelines."""

from __future__ import annotations

import math
import os
import re
import time
from typing import TYPE_CHECKING

import cv2

from splatview.camera.http_status import refusal_of
from splatview.camera.only_host import (
    Connections,
    OnlyHost,
    can_limit,
    rtsp_leads_to,
)
from splatview.camera.orientation import Orientation, stored_size
from splatview.camera.sources import (
    CaptureError,
    NoPictureError,
    check_device,
    kind_of,
    shown,
)
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    import numpy as np

    from splatview.camera.sources import CaptureSettings

_MJPEG = int.from_bytes(b"MJPG", "little")
_APPSINK = " ! videoconvert ! video/x-raw,format=BGR ! appsink drop=true max-buffers=2"
_OPTIONS = "OPENCV_FFMPEG_CAPTURE_OPTIONS"
_SCANNING = "input_format;mjpeg|analyzeduration;200000"
"""Options with which FFmpeg looks for JPEGs in all that comes, whatever lies between them."""
_REFUSAL_S = 2.0
"""Patience with a server that is asked for its refusal."""
_SEGMENTED = (".m3u8", ".mpd")
"""Playlists of segments of some seconds, each of which arrives at once."""
_CLOSED = {
    "device": "{} gives no pictures: another program may be using it, or another node of this camera has them",
    "pipeline": "OpenCV does not start {}: PyPI's has no GStreamer; apt's, conda-forge's and Jetson's have it, "
    "where gst-launch-1.0 -v tries a pipeline",
    "network": "{} does not answer, or gives nothing that OpenCV reads",
}

_LED_AWAY = "{} leads to another host, {}, which is not reached: --follow follows it, or name that host"


class OpenCVSource:
    """Reads a `cv2.VideoCapture`."""

    def __init__(self, settings: CaptureSettings):
        self._settings = settings
        self._kind = kind_of(settings.source)
        self._capture = cv2.VideoCapture()
        self._compressed = False
        """Pictures come as JPEG."""
        self._pixel_aspect = 0.0
        """Width of a pixel over its height; 0 for unknown."""
        self._turned = Orientation()
        """OpenCV exchanges width and height of what is stored where this is transposed."""
        self._only_host: OnlyHost | None = None
        """Refuses other hosts than the named one, while the source is open."""
        self._was_asked = False
        """The server was asked for redirects, and has none."""
        self._scans = False
        """JPEGs are looked for in all that comes: the parts of this stream are not as FFmpeg reads them."""
        self._decoded = 0
        """Pictures that were decoded since the source was opened."""
        self._has_ended = False
        """The last grab gave no picture."""
        self._has_answered = False
        """The server was not silent when the address was opened last."""
        self.recorded = False
        self.rate = 0.0
        self.words = f"{shown(settings.source)} by OpenCV"

    def open(self) -> None:
        source = shown(self._settings.source)
        cv2.utils.logging.setLogLevel(
            cv2.utils.logging.LOG_LEVEL_SILENT
        )  # errors here are CameraErrors
        os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
        self.close()
        self._change_reading()
        capture, name = self._opened()
        self._capture = capture
        if not capture.isOpened():
            raise CaptureError(self._led_away() or self._refused())
        if self._kind == "network":
            path = re.split(r"[?#]", self._settings.source, maxsplit=1)[0]
            has_end = 0 < capture.get(cv2.CAP_PROP_FRAME_COUNT) < 1e9
            self.recorded = has_end or path.endswith(_SEGMENTED)
        rate = capture.get(cv2.CAP_PROP_FPS)
        # FFmpeg only guesses the rate of a live stream.
        if 0 < rate < 1000 and (self.recorded or self._kind != "network"):
            self.rate = float(rate)
        else:
            self.rate = 0.0
        code = int(capture.get(cv2.CAP_PROP_FOURCC)) if self._kind != "pipeline" else 0
        if 0 < code < 2**32:
            codec = code.to_bytes(4, "little").decode("latin1").strip()
        else:
            codec = ""
        width, height = (
            int(capture.get(p))
            for p in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT)
        )
        self.words = (
            f"{source}{f' ({name})' if name else ''}, {width} x {height}"
            f"{f' at {self.rate:.4g}/s' if self.rate else ''}{f' {codec}' if codec.isprintable() else ''}, "
            f"by OpenCV ({capture.getBackendName()})"
        )
        self._note_geometry(capture)
        # OpenCV makes a black picture of a damaged JPEG of a device. Of a network it keeps the first
        # picture's size for all. So they are decoded here.
        raw_mode = {
            "device": (cv2.CAP_PROP_CONVERT_RGB, 0),
            "network": (cv2.CAP_PROP_FORMAT, -1),
        }
        self._compressed = (
            code == _MJPEG
            and self._kind in raw_mode
            and capture.set(*raw_mode[self._kind])
        )

    def _change_reading(self) -> None:
        """Read a stream otherwise that ended after one picture or none: its parts may end in odd ways."""
        has_failed = self._has_ended and self._compressed and self._decoded <= 1
        if has_failed and not self.recorded:
            self._scans = not self._scans and self._may_choose_reading()
        # A server that does not answer next says nothing about its stream.
        self._has_ended = False
        self._decoded = 0

    def _note_geometry(self, capture: cv2.VideoCapture) -> None:
        """Read how the pictures of a network are displayed."""
        self._pixel_aspect = 0.0
        self._turned = Orientation()
        if self._kind != "network":
            return
        across = capture.get(cv2.CAP_PROP_SAR_NUM)
        down = capture.get(cv2.CAP_PROP_SAR_DEN)
        if across > 0 and down > 0:
            self._pixel_aspect = across / down
        is_turned = capture.get(cv2.CAP_PROP_ORIENTATION_META) % 180 == 90
        if is_turned and capture.get(cv2.CAP_PROP_ORIENTATION_AUTO):
            self._turned = Orientation(transposed=True)

    def _opened(self) -> tuple[cv2.VideoCapture, str]:
        """Return the capture, which may not be open, and a camera's name."""
        settings = self._settings
        source = self._settings.source
        if self._kind == "pipeline":
            return cv2.VideoCapture(
                source if "appsink" in source else source + _APPSINK, cv2.CAP_GSTREAMER
            ), ""
        if self._kind == "network":
            return self._opened_address(), ""
        name = check_device(shown(source))
        # In whole seconds, the same for all cameras of a process; OpenCV's own is 10.
        os.environ.setdefault(
            "OPENCV_VIDEOIO_V4L_SELECT_TIMEOUT",
            str(max(1, math.ceil(settings.patience))),
        )
        capture = cv2.VideoCapture(shown(source), cv2.CAP_V4L2)
        # Most cameras give large pictures at their full rate only as JPEG.
        for prop, value in (
            (cv2.CAP_PROP_FOURCC, _MJPEG),
            (cv2.CAP_PROP_FRAME_WIDTH, settings.width),
            (cv2.CAP_PROP_FRAME_HEIGHT, settings.height),
            (cv2.CAP_PROP_FPS, settings.fps),
        ):
            if value and capture.isOpened():
                capture.set(prop, value)
        return capture, name

    def _opened_address(self) -> cv2.VideoCapture:
        """Return the capture of a network source, which reaches the named host alone unless others are followed.

        Raises CameraError for a source that leads to another.
        """
        settings = self._settings
        source = self._settings.source
        is_limited = not settings.follow
        if is_limited and can_limit(source):
            self._only_host = OnlyHost(source)
        if is_limited and not self._was_asked:
            host = rtsp_leads_to(source, settings.patience)
            if host:
                raise CaptureError(_LED_AWAY.format(shown(source), printable(host)))
            # Not again: some servers take only one client at a time.
            self._was_asked = True
        connections = Connections()
        started_at = time.perf_counter()
        capture = self._connected()
        is_quick = time.perf_counter() - started_at < settings.patience
        self._has_answered = is_quick or capture.isOpened()
        if self._has_answered and not self._scans and self._may_scan(capture):
            self._scans = True
            capture.release()
            capture = self._connected()
            has_size = capture.get(cv2.CAP_PROP_FRAME_WIDTH) > 0
            self._scans = has_size
            if not has_size:
                capture.release()
        if is_limited and self._only_host is None and capture.isOpened():
            host = connections.foreign(source)
            if host:
                capture.release()
                raise CaptureError(_LED_AWAY.format(shown(source), host))
        return capture

    def _refused(self) -> str:
        """Return the error for a source that is not open."""
        source = self._settings.source
        refusal = ""
        if self._kind == "network" and self._has_answered:
            refusal = refusal_of(source, min(self._settings.patience, _REFUSAL_S))
        if refusal:
            return f"{shown(source)} answers {refusal}"
        return _CLOSED[self._kind].format(shown(source))

    def _connected(self) -> cv2.VideoCapture:
        """Return a capture of the address, which may not be open."""
        patience_ms = int(self._settings.patience * 1000)
        timeouts = [
            cv2.CAP_PROP_OPEN_TIMEOUT_MSEC,
            patience_ms,
            cv2.CAP_PROP_READ_TIMEOUT_MSEC,
            patience_ms,
        ]
        options = os.environ.get(_OPTIONS)
        if self._scans:
            os.environ[_OPTIONS] = f"{options}|{_SCANNING}" if options else _SCANNING
        try:
            return cv2.VideoCapture(self._settings.source, cv2.CAP_FFMPEG, timeouts)
        finally:
            if options is None:
                os.environ.pop(_OPTIONS, None)
            else:
                os.environ[_OPTIONS] = options

    def _may_scan(self, capture: cv2.VideoCapture) -> bool:
        """Return whether an address may have JPEGs in parts that FFmpeg refuses.

        It wants dashes before a boundary, image/jpeg as type, and lines that end as in HTTP.
        """
        if not self._may_choose_reading() or self._led_away():
            return False
        if not capture.isOpened():
            return True
        code = int(capture.get(cv2.CAP_PROP_FOURCC))
        return code == _MJPEG and capture.get(cv2.CAP_PROP_FRAME_WIDTH) <= 0

    def _may_choose_reading(self) -> bool:
        """Return whether FFmpeg may be told how to read the address."""
        scheme = self._settings.source.partition("://")[0].lower()
        is_chosen = "input_format" in os.environ.get(_OPTIONS, "")
        return scheme in ("http", "https") and not is_chosen

    def _led_away(self) -> str:
        """Return the error for a source that has led to another host; "" for any other."""
        host = self._only_host.refused if self._only_host is not None else ""
        if not host:
            return ""
        return _LED_AWAY.format(shown(self._settings.source), printable(host))

    def grab(self) -> float | None:
        self._has_ended = not self._capture.grab()
        if not self._has_ended:
            if self.recorded:
                return self._capture.get(cv2.CAP_PROP_POS_MSEC) / 1000
            return 0.0
        error = self._led_away() or f"{self.words}: no picture comes any more"
        if self._kind == "network":
            raise NoPictureError(error)
        raise CaptureError(error)

    def retrieve(self) -> np.ndarray | None:
        has_picture, image = self._capture.retrieve()
        if not has_picture or image is None or not image.size:
            return None
        if self._compressed:
            image = _decoded(image)
            self._decoded += image is not None
        if image is None or image.ndim < 2:
            return None
        size = self._display_size(image.shape[1], image.shape[0])
        if size != (image.shape[1], image.shape[0]):
            image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
        channels = 1 if image.ndim == 2 else image.shape[2]
        return cv2.cvtColor(
            image,
            {1: cv2.COLOR_GRAY2RGB, 3: cv2.COLOR_BGR2RGB}.get(
                channels, cv2.COLOR_BGRA2RGB
            ),
        )

    def _display_size(self, width: int, height: int) -> tuple[int, int]:
        """Return the size to show a picture of this size in, which OpenCV has turned already."""
        if self._kind == "device":
            return width, height
        if self._turned.transposed:
            width, height = height, width
        width, height = stored_size(
            width, height, self._pixel_aspect, self._turned, self._settings
        )
        return (height, width) if self._turned.transposed else (width, height)

    def close(self) -> None:
        self._capture.release()
        if self._only_host is not None:
            self._only_host.close()
            self._only_host = None


def _decoded(jpeg: np.ndarray) -> np.ndarray | None:
    """Return the picture in a JPEG, (H, W, 3) BGR; None if it is damaged."""
    try:
        return cv2.imdecode(jpeg, cv2.IMREAD_COLOR)
    except cv2.error:
        return None
