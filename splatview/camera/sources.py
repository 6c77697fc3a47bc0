"""Where pictures come from: one small protocol, and which of its implementations reads what.

`splatview.camera.opencv` and `splatview.camera.pyav` read what those libraries read, `splatview.camera.pattern` draws.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from splatview_ipc.system.optional_packages import require

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Reader = Literal["auto", "opencv", "pyav"]
_PACKAGES = {"opencv": "cv2", "pyav": "av"}
_POOL = 6
"""Buffers that are kept: the picture on show, one on its way there, one being read, and a few more."""
_POOL_BYTES = 1 << 28
"""Bytes of them, beyond those of two pictures."""


class CameraError(Exception):
    """A source cannot be read now. The message is for people; later it may well be readable."""


class HopelessError(CameraError):
    """What was asked for cannot be read, however often it is tried: no such file, no such library."""


class DamagedError(CameraError):
    """One picture cannot be decoded; the next may be."""


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What to read, and how."""

    source: str
    """"test", a number or /dev/videoN, a file, rtsp://, http(s)://, or a GStreamer pipeline."""
    reader: Reader = "auto"
    """Which library reads it."""
    width: int = 0
    height: int = 0
    """The size to ask for; of what comes in a size of its own, the most, in its own proportions. 0: whatever comes."""
    fps: float = 0.0
    """Pictures a second to ask for; of what comes at a rate of its own, the most. 0: whatever comes."""
    patience: float = 5.0
    """Seconds without a picture after which a source is taken for lost."""


class Source(Protocol):
    """Something that gives pictures. One thread uses it."""

    words: str
    """What is being read, for people. Says more once it is open."""
    rate: float
    """Pictures a second, as far as it is known; else 0."""
    recorded: bool
    """Whether it is read faster than it is to be shown and may be read again. Known once it is open."""

    def open(self) -> None:
        """Begin. Raises CameraError; HopelessError where it is of no use to try again."""
        ...

    def grab(self) -> float | None:
        """Wait for the next picture. Seconds on the source's own clock; None at its end. Raises CameraError."""
        ...

    def retrieve(self, buffers: Buffers) -> NDArray[np.uint8]:
        """The picture that was grabbed, (H, W, 3) RGB, in memory that is the caller's. Raises CameraError;
        DamagedError where the next one may be whole."""
        ...

    def close(self) -> None:
        """Give everything back. Idempotent; `open` may follow."""
        ...


class Buffers:
    """Memory for pictures that is used again once nobody holds it: fresh memory of this size costs more than filling
    it. Bounded."""

    def __init__(self) -> None:
        self._all: list[NDArray[np.uint8]] = []
        self._free = 0

    def take(self, height: int, width: int) -> NDArray[np.uint8]:
        """An array (height, width, 3) of uint8 that nobody else holds, with anything in it."""
        import numpy as np

        shape = (height, width, 3)
        if not self._all or self._all[0].shape != shape:
            self._all = [np.empty(shape, np.uint8)]
            self._free = self._holders(0)  # it is free now: so many references has one that nobody holds
        for i in range(len(self._all)):
            if self._holders(i) <= self._free:
                return self._all[i]
        fresh = np.empty(shape, np.uint8)
        if len(self._all) < max(2, min(_POOL, _POOL_BYTES // fresh.nbytes)):
            self._all.append(fresh)
        return fresh

    def _holders(self, index: int) -> int:
        return sys.getrefcount(self._all[index])


def kind_of(source: str) -> Literal["test", "device", "pipeline", "network", "file"]:
    """What a SOURCE names."""
    if source == "test":
        return "test"
    if source.isdecimal() or source.startswith("/dev/") or Path(source).is_char_device():
        return "device"
    if "!" in source and not Path(source).exists():
        return "pipeline"
    if "://" in source and not source.startswith("file://"):
        return "network"
    return "file"


def shown(source: str) -> str:
    """A SOURCE as people may see it: without the password that stands in an address."""
    return re.sub(r"(://[^/@:\s]*):[^/@\s]*@", r"\1:...@", source)


def device_path(source: str) -> str:
    """The V4L2 node that a number or path names."""
    return f"/dev/video{int(source)}" if source.isdecimal() else source


def check(settings: SourceSettings) -> None:
    """Find what can never be read, before anything is started. Loads no library. Raises HopelessError."""
    source, kind = settings.source, kind_of(settings.source)
    if not source.strip():
        raise HopelessError("SOURCE is empty; legal are a camera's number, /dev/videoN, a file, rtsp://, http://, "
                            "a GStreamer pipeline, or test")
    if kind == "device":
        from splatview.camera.v4l2 import check_device

        check_device(device_path(source))
    elif kind == "file":
        path = Path(source.removeprefix("file://"))
        if path.is_dir():
            raise HopelessError(f"{source} is a folder; name a video file")
        if not path.exists():
            raise HopelessError(f"there is no file {source}; legal are a camera's number, /dev/videoN, a file, "
                                "rtsp://, http://, a GStreamer pipeline, or test")
    elif kind == "network" and source.partition("://")[0].lower() not in NETWORK:
        raise HopelessError(f"{shown(source)}: {source.partition('://')[0]!r} is no protocol that can be read; legal "
                            f"are {', '.join(NETWORK)}")
    if kind != "test":
        _reader(settings, kind)


NETWORK = ("rtsp", "rtsps", "rtmp", "rtmps", "http", "https", "udp", "tcp", "srt", "rtp")


def _reader(settings: SourceSettings, kind: str) -> str:
    """"opencv" or "pyav": the first that is there of those that read this. Raises HopelessError."""
    able = ["opencv"] if kind in ("device", "pipeline") else ["pyav", "opencv"]
    if settings.reader != "auto":
        if settings.reader not in able:
            raise HopelessError(f"{shown(settings.source)}: only OpenCV reads {_THINGS[kind]}; leave --reader out")
        able = [settings.reader]
    modules = {_PACKAGES[name]: name for name in able}
    return modules[require(f"{shown(settings.source)}: reading {_THINGS[kind]} needs", *modules, error=HopelessError,
                           one=True)]


_THINGS = {"device": "a camera", "pipeline": "a GStreamer pipeline", "network": "a network stream", "file": "a video"}


def source_for(settings: SourceSettings) -> Source:
    """What reads these settings' source. Raises HopelessError; nothing is opened yet."""
    check(settings)
    kind = kind_of(settings.source)
    if kind == "test":
        from splatview.camera.pattern import PatternSource

        return PatternSource(settings)
    if _reader(settings, kind) == "opencv":
        from splatview.camera.opencv import OpenCVSource

        return OpenCVSource(settings)
    from splatview.camera.pyav import PyAVSource

    return PyAVSource(settings)


def fitted(width: int, height: int, settings: SourceSettings) -> tuple[int, int]:
    """The size that a picture of this size is given: its own, or smaller where the settings allow no more."""
    most = [most / own for most, own in ((settings.width, width), (settings.height, height)) if most]
    scale = min([1.0, *most])
    return max(1, round(width * scale)), max(1, round(height * scale))
