"""Messages between `splatview.grab` and the program that draws for it: typed JSON, one message a line.

The picture itself comes back as a stream of the program's own hidden run (`Publisher(hidden=True)`): uint8 (H, W, 3 or
4), whose fourth channel has no meaning.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from splatview_ipc.control import limits, messages

MAX_CAMERA = 1 << 20
"""Characters of a camera's JSON."""
MAX_LINE = 8 << 20
"""Bytes of one message: a camera whose every character is escaped fits."""
HOST, GPU = "host", "gpu"
"""The streams in which pictures come back."""

_Number = Annotated[int, Meta(ge=1, le=2**63 - 1)]
_Pixels = Annotated[int, Meta(ge=1, le=2**31)]


class RenderRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: _Number
    """Comes back in the answer."""
    timeout: Annotated[float, Meta(gt=0, le=86400)]
    """Seconds within which the stream must bring what is to be drawn."""
    run: Annotated[str, Meta(min_length=1, max_length=limits.MAX_NAME)] | None = None
    """A run's id, the beginning of one, its name or its process id; None: any."""
    stream: messages.Name | None = None
    """None: the one that `splatview shot` draws."""
    after: messages.Counter = 0
    """The least version of the stream that is to be drawn; 0: the newest that can be had."""
    streams: messages.Counter = 0
    """Least number of streams of that run: overlays of the stream to be drawn are among them."""
    camera: Annotated[str, Meta(max_length=MAX_CAMERA)] | None = None
    """JSON, as `splatview shot --camera`."""
    size: tuple[_Pixels, _Pixels] | None = None
    """Width and height."""
    background: tuple[float, float, float] | None = None
    """RGB in [0, 1]; None: what comes with the stream, else black."""
    gpu: bool = False
    """True if the picture may come back in GPU memory."""


class Ready(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ready"):
    """The program's first line: it can draw."""

    run: Annotated[str, Meta(min_length=1, max_length=64)]
    """The id of its hidden run."""


class RenderResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="drawn"):
    number: _Number
    stream: Literal["host", "gpu"]
    version: _Number
    """Of that stream."""
    flipped: bool = False
    """True if the lowest row comes first."""


class RenderError(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="failed"):
    number: messages.Counter
    """0: the program cannot draw at all, and ends."""
    kind: Literal["value", "lookup", "timeout", "fault"]
    """The request makes no sense; names what is not there; came to nothing in time; or could not be drawn."""
    reason: str


Answer = Ready | RenderResult | RenderError

DecodeError = messages.DecodeError
encode = msgspec.json.Encoder().encode
decode_request = msgspec.json.Decoder(RenderRequest).decode
decode_answer = msgspec.json.Decoder(Answer).decode
