"""Messages of `splatview.grab` and `splatview.Window` with the programs that draw.

They are typed JSON, one message a line of the program's standard input or output.

The picture for `grab` comes back as a stream of the program's own hidden run
(`RunRole(hidden=True)`): uint8 (H, W, 3 or 4), whose fourth channel has no meaning.
"""

from __future__ import annotations

import contextlib
import os
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from splatview_ipc.control import limits, messages

MAX_CAMERA = 1 << 20
"""Characters of a camera's JSON."""
MAX_LINE = 8 << 20
"""Bytes of one message: a camera whose every character is escaped fits."""
HOST = "host"
GPU = "gpu"
"""The streams in which pictures come back."""
MIN_SIDE = 16
MAX_SIDE = 16384
"""Points of a window's side."""

_Side = Annotated[int, Meta(ge=MIN_SIDE, le=MAX_SIDE)]
_Pixels = Annotated[int, Meta(ge=1, le=2**31)]


class RenderRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Draw a stream.

    Answered by a RenderResult or a RenderError, before the next request is sent. A
    PictureQueued may precede them.
    """

    timeout: Annotated[float, Meta(gt=0, le=86400)]
    """Seconds within which the stream must bring what is to be drawn."""
    run: Annotated[str, Meta(min_length=1, max_length=limits.MAX_NAME)] | None = None
    """A run's id, the beginning of one, its name or its process id; None for any."""
    stream: messages.Name | None = None
    """None: the one that `splatview shot` draws."""
    after: messages.Counter = 0
    """The least version of the stream that is to be drawn; 0: the newest that can be
    had."""
    streams: messages.Counter = 0
    """Least number of streams of that run: overlays of the stream to be drawn are among
    them."""
    camera: Annotated[str, Meta(max_length=MAX_CAMERA)] | None = None
    """JSON, as `splatview shot --camera`."""
    size: tuple[_Pixels, _Pixels] | None = None
    background: tuple[float, float, float] | None = None
    """RGB in [0, 1]; None: what comes with the stream, else black."""
    gpu: bool = False
    """True if the picture may come back in GPU memory."""


class Ready(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ready"):
    """The program's first line: it can draw, and this is the id of its hidden run."""

    run: Annotated[str, Meta(min_length=1, max_length=64)]


class RenderResult(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="drawn"
):
    stream: Literal["host", "gpu"]
    version: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    flipped: bool = False
    """True if the lowest row comes first."""


class RenderError(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="failed"
):
    kind: Literal["value", "lookup", "timeout", "fault"]
    """The request is invalid ("value"), names what is not there ("lookup"), brought
    nothing in time ("timeout"), or could not be drawn ("fault")."""
    reason: str


class PictureQueued(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="queued"
):
    """A GPU is drawing a picture, which may be read as soon as it is there.

    It counts if the RenderResult that follows equals `picture`; otherwise it was not
    whole.
    """

    picture: RenderResult


Answer = Ready | PictureQueued | RenderResult | RenderError


class WindowSettings(msgspec.Struct, frozen=True):
    """The argument of a window's program. `pid` is the caller's."""

    width: _Side
    height: _Side
    title: Annotated[str, Meta(max_length=limits.MAX_NAME)]
    pid: Annotated[int, Meta(ge=1, lt=2**31)]


class Show(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Show a stream in the window."""

    stream: messages.Name
    run: Annotated[str, Meta(max_length=64)]


class WindowState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a window, written whenever it changed."""

    width: Annotated[int, Meta(ge=0)] = 0
    height: Annotated[int, Meta(ge=0)] = 0
    """Pixels."""
    fps: float = 0.0
    """Pictures drawn in the last second."""
    closed: bool = False
    reason: str = ""
    """The fault by which it was closed, or could not be opened."""


DecodeError = messages.DecodeError
encode = msgspec.json.Encoder().encode
decode_request = msgspec.json.Decoder(RenderRequest).decode
decode_answer = msgspec.json.Decoder(Answer).decode


class NewestLines:
    """Pipes between two programs of which neither waits for the other.

    Only the newest line either way matters.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        self._received = b""
        self._unsent = b""

    def newest(self) -> bytes | None:
        """Return the newest line since the last call; None if there is none.

        Also sends the line that the other pipe could not take before.
        """
        self.send(self._unsent)
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._read_fd, 1 << 16):
                self._received += chunk
        *lines, self._received = self._received.split(b"\n")
        return lines[-1] if lines else None

    def send(self, line: bytes) -> None:
        """Write a line, which a pipe takes whole or not at all.

        A line that the pipe cannot take now waits for the next call.
        """
        self._unsent = line
        with contextlib.suppress(BlockingIOError):
            # BrokenPipeError: the other program has ended.
            with contextlib.suppress(BrokenPipeError):
                os.write(self._write_fd, line)
            self._unsent = b""
