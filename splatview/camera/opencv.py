"""Read cameras (V4L2), network addresses (FFmpeg) and GStreamer pipelines by OpenCV."""

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
    display_name,
    kind_of,
)
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    import numpy as np

    from splatview.camera.sources import CaptureSettings

_MJPEG = int.from_bytes(b"MJPG", "little")
_APPSINK = " ! videoconvert ! video/x-raw,format=BGR ! appsink drop=true max-buffers=2"
_OPTIONS = "OPENCV_FFMPEG_CAPTURE_OPTIONS"
_SCANNING = "input_format;mjpeg|analyzeduration;200000"
"""Options with which FFmpeg looks for JPEGs in all that comes, whatever lies
between."""
_MAX_REFUSAL_S = 2.0
"""Maximum wait for a server that is asked for its refusal."""
_SEGMENTED = (".m3u8", ".mpd")
"""Playlists of segments of some seconds, each of which arrives at once."""
_MAX_RATE = 1000
_SILENT = 0
"""OpenCV's level of logging at which it prints nothing."""
_CLOSED = {
    "device": "{} gives no pictures: another program may be using it, or another node of "
    "this camera has them",
    "pipeline": "OpenCV does not start {}: PyPI's has no GStreamer; apt's, conda-forge's "
    "and Jetson's have it, where gst-launch-1.0 -v tries a pipeline",
    "network": "{} does not answer, or gives nothing that OpenCV reads",
}
_LED_AWAY = (
    "{} leads to another host, {}, which is not reached: --follow follows it, or name "
    "that host"
)
_RAW_MODES = {
    "device": (cv2.CAP_PROP_CONVERT_RGB, 0),
    "network": (cv2.CAP_PROP_FORMAT, -1),
}
"""Property and value with which OpenCV hands out JPEGs undecoded."""
_TO_RGB = {
    1: cv2.COLOR_GRAY2RGB,
    3: cv2.COLOR_BGR2RGB,
    4: cv2.COLOR_BGRA2RGB,
}
"""Conversions of OpenCV's pictures by their number of channels."""


class OpenCVSource:
    """Reads a `cv2.VideoCapture`."""

    def __init__(self, settings: CaptureSettings):
        self._settings = settings
        self._kind = kind_of(settings.source)
        self._name = display_name(settings.source)
        self._capture = cv2.VideoCapture()
        self._is_compressed = False
        """Pictures come as JPEG."""
        self._pixel_aspect = 0.0
        """Width of a pixel over its height; 0 for unknown."""
        self._orientation = Orientation()
        """OpenCV exchanges width and height of what is stored where this is
        transposed."""
        self._address = NetworkAddress(settings)
        self._decoded = 0
        """Pictures that were decoded since the source was opened."""
        self._has_ended = False
        """The last grab gave no picture."""
        self.recorded = False
        self.rate = 0.0
        self.description = f"{self._name} by OpenCV"

    def open(self) -> None:
        _silence_opencv()
        os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
        self.close()
        self._change_reading()
        camera_name = ""
        if self._kind == "pipeline":
            capture = _open_pipeline(self._settings.source)
        elif self._kind == "network":
            capture = self._address.open()
        else:
            camera_name = check_device(self._name)
            capture = _open_device(self._settings)
        self._capture = capture
        if not capture.isOpened():
            raise CaptureError(self._refusal())
        self._note_rate(capture)
        self._note_geometry(capture)
        code = 0
        if self._kind != "pipeline":
            code = int(capture.get(cv2.CAP_PROP_FOURCC))
        self.description = self._describe(capture, camera_name, code)
        # OpenCV makes a black picture of a damaged JPEG of a device. Of a network it
        # keeps the first picture's size for all. So they are decoded here.
        self._is_compressed = (
            code == _MJPEG
            and self._kind in _RAW_MODES
            and capture.set(*_RAW_MODES[self._kind])
        )

    def _change_reading(self) -> None:
        """Read a stream in the other way that ended after one picture or none.

        Its parts may end in odd ways.
        """
        has_failed = self._has_ended and self._is_compressed and self._decoded <= 1
        if has_failed and not self.recorded:
            self._address.change_reading()
        # A server that does not answer next says nothing about its stream.
        self._has_ended = False
        self._decoded = 0

    def _note_rate(self, capture: cv2.VideoCapture) -> None:
        """Read the rate of the pictures, and whether those of a network have an end."""
        if self._kind == "network":
            path = re.split(r"[?#]", self._settings.source, maxsplit=1)[0]
            has_end = 0 < capture.get(cv2.CAP_PROP_FRAME_COUNT) < 1e9
            self.recorded = has_end or path.endswith(_SEGMENTED)
        rate = capture.get(cv2.CAP_PROP_FPS)
        # FFmpeg only guesses the rate of a live stream.
        is_known = self.recorded or self._kind != "network"
        self.rate = float(rate) if is_known and 0 < rate < _MAX_RATE else 0.0

    def _note_geometry(self, capture: cv2.VideoCapture) -> None:
        """Read how the pictures of a network are displayed."""
        self._pixel_aspect = 0.0
        self._orientation = Orientation()
        if self._kind != "network":
            return
        aspect_width = capture.get(cv2.CAP_PROP_SAR_NUM)
        aspect_height = capture.get(cv2.CAP_PROP_SAR_DEN)
        if aspect_width > 0 and aspect_height > 0:
            self._pixel_aspect = aspect_width / aspect_height
        is_turned = capture.get(cv2.CAP_PROP_ORIENTATION_META) % 180 == 90
        if is_turned and capture.get(cv2.CAP_PROP_ORIENTATION_AUTO):
            self._orientation = Orientation(transposed=True)

    def _describe(self, capture: cv2.VideoCapture, camera_name: str, code: int) -> str:
        """Return the description of the open source; `code`: FFmpeg's of the codec."""
        width = int(capture.get(cv2.CAP_PROP_FRAME_WIDTH))
        height = int(capture.get(cv2.CAP_PROP_FRAME_HEIGHT))
        codec = ""
        if 0 < code < 2**32:
            codec = code.to_bytes(4, "little").decode("latin1").strip()
        if codec.isprintable():
            codec = f" {codec}".rstrip()
        else:
            codec = ""
        title = f"{self._name} ({camera_name})" if camera_name else self._name
        speed = f" at {self.rate:.4g}/s" if self.rate else ""
        backend = capture.getBackendName()
        return f"{title}, {width} x {height}{speed}{codec}, by OpenCV ({backend})"

    def _refusal(self) -> str:
        """Return the error for a source that is not open."""
        if self._kind == "network":
            error = self._address.error() or self._address.refusal()
            if error:
                return error
        return _CLOSED[self._kind].format(self._name)

    def grab(self) -> float | None:
        self._has_ended = not self._capture.grab()
        if not self._has_ended:
            if self.recorded:
                return self._capture.get(cv2.CAP_PROP_POS_MSEC) / 1000
            return 0.0
        error = self._address.error()
        error = error or f"{self.description}: no picture comes any more"
        if self._kind == "network":
            raise NoPictureError(error)
        raise CaptureError(error)

    def retrieve(self) -> np.ndarray | None:
        has_picture, image = self._capture.retrieve()
        if not has_picture or image is None or not image.size:
            return None
        if self._is_compressed:
            image = _decode(image)
            self._decoded += image is not None
        if image is None or image.ndim < 2:
            return None
        size = self._display_size(image.shape[1], image.shape[0])
        if size != (image.shape[1], image.shape[0]):
            image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
        channels = 1 if image.ndim == 2 else image.shape[2]
        conversion = _TO_RGB.get(channels, cv2.COLOR_BGRA2RGB)
        return cv2.cvtColor(image, conversion)

    def _display_size(self, width: int, height: int) -> tuple[int, int]:
        """Return the size to show a picture in, which OpenCV has turned already."""
        if self._kind == "device":
            return width, height
        if self._orientation.transposed:
            width, height = height, width
        width, height = stored_size(
            width, height, self._pixel_aspect, self._orientation, self._settings
        )
        if self._orientation.transposed:
            return height, width
        return width, height

    def close(self) -> None:
        self._capture.release()
        self._address.close()


def _open_pipeline(source: str) -> cv2.VideoCapture:
    """Return the capture of a GStreamer pipeline, which may not be open."""
    if "appsink" not in source:
        source += _APPSINK
    return cv2.VideoCapture(source, cv2.CAP_GSTREAMER)


def _open_device(settings: CaptureSettings) -> cv2.VideoCapture:
    """Return the capture of a camera, which may not be open."""
    # In whole seconds, the same for all cameras of a process; OpenCV's own is 10.
    timeout_s = max(1, math.ceil(settings.patience))
    os.environ.setdefault("OPENCV_VIDEOIO_V4L_SELECT_TIMEOUT", str(timeout_s))
    capture = cv2.VideoCapture(display_name(settings.source), cv2.CAP_V4L2)
    # Most cameras give large pictures at their full rate only as JPEG.
    for prop, value in (
        (cv2.CAP_PROP_FOURCC, _MJPEG),
        (cv2.CAP_PROP_FRAME_WIDTH, settings.width),
        (cv2.CAP_PROP_FRAME_HEIGHT, settings.height),
        (cv2.CAP_PROP_FPS, settings.fps),
    ):
        if value and capture.isOpened():
            capture.set(prop, value)
    return capture


def _decode(jpeg: np.ndarray) -> np.ndarray | None:
    """Return the picture in a JPEG, (H, W, 3) BGR; None if it is damaged."""
    try:
        return cv2.imdecode(jpeg, cv2.IMREAD_COLOR)
    except cv2.error:
        return None


class NetworkAddress:
    """The address of a network source, and the ways in which FFmpeg reads it."""

    def __init__(self, settings: CaptureSettings) -> None:
        self._settings = settings
        self._source = settings.source
        self._name = display_name(settings.source)
        self._only_host: OnlyHost | None = None
        """Refuses other hosts than the named one, while the source is open."""
        self._has_checked_redirects = False
        """The server was asked for redirects, and has none."""
        self._scans = False
        """JPEGs are looked for in all that comes: the parts of this stream are not as
        FFmpeg reads them."""
        self._has_answered = False
        """The server was not silent when the address was opened last."""

    def open(self) -> cv2.VideoCapture:
        """Return the capture of the address, which may not be open.

        It reaches the named host alone unless others are followed.

        Raises:
            CaptureError: the source leads to another host.
        """
        is_limited = not self._settings.follow
        if is_limited and can_limit(self._source):
            self._only_host = OnlyHost(self._source)
        if is_limited:
            self._check_redirects()
        connections = Connections()
        started_at = time.perf_counter()
        capture = self._connect()
        is_quick = time.perf_counter() - started_at < self._settings.patience
        self._has_answered = is_quick or capture.isOpened()
        if self._has_answered and not self._scans and self._may_scan(capture):
            capture.release()
            capture = self._connect_scanning()
        if is_limited and self._only_host is None and capture.isOpened():
            host = connections.foreign(self._source)
            if host:
                capture.release()
                raise CaptureError(_LED_AWAY.format(self._name, host))
        return capture

    def _check_redirects(self) -> None:
        """Raise CaptureError for an RTSP server that redirects to another host."""
        if self._has_checked_redirects:
            return
        host = rtsp_leads_to(self._source, self._settings.patience)
        if host:
            raise CaptureError(_LED_AWAY.format(self._name, printable(host)))
        # Not again: some servers take only one client at a time.
        self._has_checked_redirects = True

    def _connect(self) -> cv2.VideoCapture:
        """Return a capture of the address, which may not be open."""
        timeout_ms = int(self._settings.patience * 1000)
        timeouts = [
            cv2.CAP_PROP_OPEN_TIMEOUT_MSEC,
            timeout_ms,
            cv2.CAP_PROP_READ_TIMEOUT_MSEC,
            timeout_ms,
        ]
        options = os.environ.get(_OPTIONS)
        if self._scans:
            os.environ[_OPTIONS] = f"{options}|{_SCANNING}" if options else _SCANNING
        try:
            return cv2.VideoCapture(self._source, cv2.CAP_FFMPEG, timeouts)
        finally:
            if options is None:
                os.environ.pop(_OPTIONS, None)
            else:
                os.environ[_OPTIONS] = options

    def _connect_scanning(self) -> cv2.VideoCapture:
        """Return a capture that looks for JPEGs in all that comes; closed if none do."""
        self._scans = True
        capture = self._connect()
        has_size = capture.get(cv2.CAP_PROP_FRAME_WIDTH) > 0
        self._scans = has_size
        if not has_size:
            capture.release()
        return capture

    def _may_scan(self, capture: cv2.VideoCapture) -> bool:
        """Return whether an address may have JPEGs in parts that FFmpeg refuses.

        It wants dashes before a boundary, image/jpeg as type, and lines that end as in
        HTTP.
        """
        if not self._may_choose_reading() or self.error():
            return False
        if not capture.isOpened():
            return True
        code = int(capture.get(cv2.CAP_PROP_FOURCC))
        return code == _MJPEG and capture.get(cv2.CAP_PROP_FRAME_WIDTH) <= 0

    def _may_choose_reading(self) -> bool:
        """Return whether we choose how FFmpeg reads the address, not the user."""
        scheme = self._source.partition("://")[0].lower()
        is_chosen = "input_format" in os.environ.get(_OPTIONS, "")
        return scheme in ("http", "https") and not is_chosen

    def change_reading(self) -> None:
        """Look for JPEGs in all that comes from now on, or no longer."""
        self._scans = not self._scans and self._may_choose_reading()

    def error(self) -> str:
        """Return the error for a source that has led to another host; "" for others."""
        if self._only_host is None or not self._only_host.refused:
            return ""
        return _LED_AWAY.format(self._name, printable(self._only_host.refused))

    def refusal(self) -> str:
        """Return the error for a server that refuses the address; "" for others."""
        if not self._has_answered:
            return ""
        timeout_s = min(self._settings.patience, _MAX_REFUSAL_S)
        reason = refusal_of(self._source, timeout_s)
        if not reason:
            return ""
        return f"{self._name} answers {reason}"

    def close(self) -> None:
        """Let other hosts be reached again. Idempotent."""
        if self._only_host is not None:
            self._only_host.close()
            self._only_host = None


def _silence_opencv() -> None:
    """Stop OpenCV's own lines about errors, which are CaptureErrors here."""
    # OpenCV has moved the function: it is in `cv2` until 4.12, then in `cv2.utils`.
    set_level = getattr(cv2, "setLogLevel", None)
    if set_level is None:
        set_level = cv2.utils.logging.setLogLevel
    set_level(_SILENT)
