"""Sources of pictures: their protocol, their kinds, and checks before one is read.

`splatview.camera.opencv` reads devices and network addresses, `splatview.camera.pyav`
files; `splatview.camera.pattern` draws.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import unquote

import msgspec

from splatview_ipc.system.optional_packages import require

if TYPE_CHECKING:
    import numpy as np

_LEGAL = (
    "expected a camera's number, /dev/videoN, a file, rtsp://, http://, "
    "a GStreamer pipeline, or test"
)
_NETWORK = (
    "rtsp",
    "rtsps",
    "rtmp",
    "rtmps",
    "http",
    "https",
    "udp",
    "tcp",
    "srt",
    "rtp",
)
_LOGIN = re.compile(r"(://[^/?#@:\s]*):[^/?#\s]*@")
"""User and password in an address; others write "@" in a password as it is."""
_SECRET = re.compile(
    r"([?&;][\w-]*(?:pass|pwd|token|secret|key|auth)[\w-]*=)[^&;#\s]+", re.IGNORECASE
)
"""Passwords among the parameters of an address, as many cameras take them."""


class CaptureError(Exception):
    """A source cannot be read. The message is for users."""


class NoPictureError(CaptureError):
    """A grab gave no picture: a damaged one, the end, or a lost source.

    The next grab tells which.
    """


class CaptureSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of `python -m splatview.camera.capture`: a source, and its use."""

    source: str
    """"test", a number or /dev/videoN, a file, rtsp://, http(s)://, or a GStreamer
    pipeline."""
    width: int = 0
    height: int = 0
    """Size to request from cameras; maximum size of other pictures, which keep their
    proportions. 0: any."""
    fps: float = 0.0
    """Pictures a second to request from cameras; maximum rate of others. 0: any."""
    patience: float = 5.0
    """Seconds without a picture after which a source is lost."""
    stream: str = "camera"
    loop: bool = True
    """Play a recording again at its end."""
    follow: bool = False
    """Follow redirects and playlists of a network source to other hosts."""


class PictureSource(Protocol):
    """A source of pictures, used by one thread."""

    description: str
    """Text for users; with size and rate while the source is open."""
    rate: float
    """Pictures a second; 0 for unknown."""
    recorded: bool
    """The source can be read faster than it is to be shown, and again. Known once it is
    open."""

    def open(self) -> None:
        """Open the source, from its beginning. Raises CaptureError."""
        ...

    def grab(self) -> float | None:
        """Wait for the next picture; return its time.

        Returns:
            Seconds in a recording, or 0; None at the end.

        Raises:
            NoPictureError: the next grab may give a picture.
            CaptureError: none will.
        """
        ...

    def retrieve(self) -> np.ndarray | None:
        """Return the picture that was grabbed, (H, W, 3) RGB; None for a damaged one.

        It belongs to the caller.
        """
        ...

    def close(self) -> None:
        """Release everything. Idempotent."""
        ...


def kind_of(source: str) -> Literal["test", "device", "pipeline", "network", "file"]:
    """Return the kind of a SOURCE."""
    if source == "test":
        return "test"
    has_device_name = source.isdecimal() or source.startswith("/dev/")
    if has_device_name or Path(source).is_char_device():
        return "device"
    if "!" in source and not Path(source).exists():
        return "pipeline"
    if "://" in source and not source.startswith("file://"):
        return "network"
    return "file"


def file_path(source: str) -> str:
    """Return the absolute path of a file.

    FFmpeg would take a relative one such as "12:30:00.mp4" or "concat:a" for the
    address of a protocol.
    """
    path = source.removeprefix("file://")
    if path != source and not os.path.lexists(path):
        path = unquote(path)
    return os.path.abspath(path)


def display_name(source: str) -> str:
    """Return a SOURCE for messages.

    Passwords in an address are left out; a camera's number becomes its node.
    """
    if source.isdecimal():
        return f"/dev/video{int(source)}"
    without_login = _LOGIN.sub(r"\1:...@", source)
    return _SECRET.sub(r"\1...", without_login)


def cameras() -> dict[str, str]:
    """Return the names of this machine's cameras by their nodes (/dev/video0)."""
    nodes = list(Path("/sys/class/video4linux").glob("video*"))
    nodes.sort(key=lambda node: (len(node.name), node.name))
    return {f"/dev/{node.name}": (node / "name").read_text().strip() for node in nodes}


def check_device(path: str) -> str:
    """Return the name of the camera behind a V4L2 node. Raises CaptureError."""
    try:
        # A container may give its node another name.
        device = os.stat(path).st_rdev
        device_id = f"{os.major(device)}:{os.minor(device)}"
        name = Path(f"/sys/dev/char/{device_id}/name").read_text().strip()
    except OSError:
        existing = ", ".join(f"{node} ({name})" for node, name in cameras().items())
        if existing:
            advice = f"there are {existing}"
        else:
            advice = "this machine has none; try splatview camera test"
        raise CaptureError(f"{path} is no camera; {advice}") from None
    if not os.access(path, os.R_OK | os.W_OK):
        raise CaptureError(
            f"{path} may not be opened by you: sudo usermod -aG video $USER, "
            "and log in again"
        )
    return name


def check(settings: CaptureSettings) -> None:
    """Raise CaptureError for a source that can never be read. Loads no library."""
    source = settings.source
    kind = kind_of(source)
    if not source.strip():
        raise CaptureError(f"SOURCE is empty; {_LEGAL}")
    if kind == "test":
        return
    if kind == "device":
        check_device(display_name(source))
    elif kind == "file":
        path = Path(file_path(source))
        if not path.exists() or path.is_dir():
            raise CaptureError(f"there is no file {source}; {_LEGAL}")
    elif kind == "network":
        _check_scheme(source)
    library = library_for(kind)
    name = display_name(source)
    require(f"{name}: reading it needs", library, error=CaptureError)


def _check_scheme(source: str) -> None:
    """Raise CaptureError for an address of a protocol that is not read."""
    scheme = source.partition("://")[0]
    if scheme.lower() not in _NETWORK:
        raise CaptureError(
            f"{display_name(source)}: {scheme!r} is no protocol that can be read; expected "
            f"{', '.join(_NETWORK)}"
        )


def library_for(kind: str) -> str:
    """Return the module that reads sources of a kind."""
    return "av" if kind == "file" else "cv2"


def fitted(width: int, height: int, settings: CaptureSettings) -> tuple[int, int]:
    """Return the size to show a picture in: its own, or smaller to fit the settings."""
    scale = 1.0
    if settings.width:
        scale = min(scale, settings.width / width)
    if settings.height:
        scale = min(scale, settings.height / height)
    return max(1, round(width * scale)), max(1, round(height * scale))
