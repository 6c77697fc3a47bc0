"""What goes over the WebSocket: small JSON texts both ways, and pictures to the page as binary messages.

A page's events are those of `splatview_viewer.core.events`, with its own clock in `at`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Annotated, Literal
from unicodedata import category

import msgspec

from splatview_viewer.core import events

PROTOCOL = 2
"""Raised when page and viewer of two versions would misunderstand each other."""
MAX_MESSAGE = 64 * 1024
"""Bytes; no message of a page is longer."""

_Number = Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)]
_Id = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]


class MessageError(ValueError):
    """A message of a page that is none. The text says what is wrong with it."""


class ProtocolError(MessageError):
    """A page of another version of splatview."""


class _Message(msgspec.Struct, frozen=True, tag_field="t", tag=str.lower, forbid_unknown_fields=True):
    """Base of all: `t` names the kind, which is the class's name in small letters."""


class Hello(_Message, frozen=True, kw_only=True):
    """What a page says first. `id` is the tab's own and stays over reconnections."""

    protocol: int
    id: _Id
    width: Annotated[int, msgspec.Meta(ge=16, le=8192)]
    height: Annotated[int, msgspec.Meta(ge=16, le=8192)]
    scale: Annotated[float, msgspec.Meta(ge=0.25, le=8)] = 1.0
    visible: bool = True


class Visible(_Message, frozen=True):
    """Whether anyone can see the page."""

    on: bool


class Ack(_Message, frozen=True):
    """Picture `number` stands on the page."""

    number: _Number


ClientMessage = Hello | Visible | Ack | events.PageEvent


class Welcome(_Message, frozen=True):
    """The answer to a hello. `viewer` is another one for each viewer process. The page sends files with `key`, which is
    its own, of `most` bytes at most; 0: it may send none."""

    protocol: int
    version: str
    viewer: str
    key: str = ""
    most: int = 0


class Caption(_Message, frozen=True):
    """What the surroundings of the picture say; `trouble` is what is wrong, `typing` asks for a keyboard."""

    title: str = "splatview"
    trouble: str = ""
    typing: bool = False


class Clipboard(_Message, frozen=True):
    """Put this on the user's clipboard."""

    text: str


class Offer(_Message, frozen=True):
    """A file of `size` bytes for the user to keep, which is fetched once, with `key`."""

    name: str
    key: str
    size: int


class Refused(_Message, frozen=True):
    """The connection is about to be closed; `again`: whether trying again makes sense."""

    reason: str
    again: bool = False


ServerMessage = Welcome | Caption | Clipboard | Offer | Refused


class _Greeting(msgspec.Struct, tag_field="t", tag="hello"):
    """As much of a hello as every version has."""

    protocol: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ClientMessage)
_greeting = msgspec.json.Decoder(_Greeting)
_answers = msgspec.json.Decoder(ServerMessage)


def parse(text: str | bytes) -> ClientMessage:
    """The message that a page sent. Raises MessageError for anything else, ProtocolError for the hello of
    another protocol."""
    if len(text) > MAX_MESSAGE:
        raise MessageError(f"a message of {len(text)} bytes; {MAX_MESSAGE} is the most")
    try:
        message = _decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:
        _refuse_other_protocol(text)  # it may have other fields, so that it is not understood here
        raise MessageError(f"not a message of protocol {PROTOCOL}: {e}") from None
    if isinstance(message, Hello) and message.protocol != PROTOCOL:
        _refuse_other_protocol(text)
    return message


def _refuse_other_protocol(text: str | bytes) -> None:
    try:
        protocol = _greeting.decode(text).protocol
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return
    if protocol != PROTOCOL:
        raise ProtocolError(f"the page speaks protocol {protocol}, this viewer {PROTOCOL}: reload the page")


def encode(message: ServerMessage | ClientMessage) -> str:
    """The message as JSON."""
    return _encoder.encode(message).decode()


def parse_answer(text: str | bytes) -> ServerMessage:
    """What the server said, for tests and benchmarks. Raises MessageError for anything else."""
    try:
        return _answers.decode(text)
    except (msgspec.MsgspecError, ValueError) as e:
        raise MessageError(str(e)) from None


def event_of(message: ClientMessage, clicks: events.ClickCounter, now: float, scale: float) -> events.Event | None:
    """Complete an event: the clicks of a press, and text without control characters. None for other messages and for
    text that has nothing else.

    Double clicks are told by the page's clock, so that a slow network does not pull two presses apart; by `now`
    (seconds) where the page gives no time. `scale` is framebuffer pixels per point.
    """
    if isinstance(message, (Hello, Visible, Ack)):
        return None
    if isinstance(message, events.PointerPress):
        time = message.at / 1000 if message.at > 0 else now
        count = clicks.count(time, message.x, message.y, message.button, scale)
        return msgspec.structs.replace(message, clicks=count)
    if isinstance(message, events.Text):
        text = "".join(c for c in message.text.replace("\r\n", "\n") if c in "\n\t" or category(c) != "Cc")
        return msgspec.structs.replace(message, text=text) if text else None
    return message


_HEADER = struct.Struct("<BBBBIHHHHdIHH")
_PICTURE, _FILE = 1, 2
Format = Literal["jpeg", "png", "webp"]
_FORMATS: dict[Format, int] = {"jpeg": 1, "png": 2, "webp": 3}
_FORMAT_OF: dict[int, Format] = {number: name for name, number in _FORMATS.items()}


@dataclass(frozen=True)
class Picture:
    """One encoded picture on its way to the page."""

    number: int
    format: Format
    size: tuple[int, int]
    """Width and height of the encoded image."""
    full: tuple[int, int]
    """Width and height of the framebuffer; the page scales up."""
    at: float
    """The newest `at` of the page's events that this shows, in ms; 0: none."""
    spent_us: int
    """Microseconds from taking that event in to handing the bytes over."""
    quality: int
    """1 to 100."""
    lossless: bool
    data: bytes


@dataclass(frozen=True)
class File:
    """A picture that the user wants to keep: a download."""

    name: str
    png: bytes


def pack(picture: Picture) -> bytes:
    """The binary message of a picture: 32 bytes of header, little endian, and the image."""
    p = picture
    header = _HEADER.pack(_PICTURE, _FORMATS[p.format], int(p.lossless), 0, p.number & 0xFFFFFFFF, *p.size, *p.full,
                          p.at, min(max(p.spent_us, 0), 0xFFFFFFFF), p.quality, 0)
    return b"".join((header, p.data))


def pack_file(name: str, png: bytes) -> bytes:
    """The binary message of a file to keep. Raises ValueError for a name of more than 255 bytes of UTF-8."""
    title = name.encode()
    if not 0 < len(title) <= 255:
        raise ValueError(f"a file name has 1 to 255 bytes, not {len(title)}: {name[:40]!r}")
    return b"".join((_HEADER.pack(_FILE, _FORMATS["png"], 1, 0, 0, 0, 0, 0, 0, 0.0, 0, 100, len(title)), title, png))


def unpack(message: bytes) -> Picture | File:
    """What `pack` or `pack_file` made. Raises MessageError for anything else."""
    if len(message) < _HEADER.size:
        raise MessageError(f"{len(message)} bytes; a header has {_HEADER.size}")
    (kind, form, flags, _, number, width, height, full_width, full_height, at, spent, quality,
     name_size) = _HEADER.unpack_from(message)
    start = _HEADER.size + name_size
    if kind not in (_PICTURE, _FILE) or form not in _FORMAT_OF or len(message) < start:
        raise MessageError(f"no picture and no file: kind {kind}, format {form}, {len(message)} bytes")
    if kind == _FILE:
        try:
            return File(message[_HEADER.size:start].decode(), message[start:])
        except UnicodeDecodeError as e:
            raise MessageError(f"the file's name is no text: {e}") from None
    return Picture(number, _FORMAT_OF[form], (width, height), (full_width, full_height), at, spent, quality,
                   bool(flags & 1), message[start:])
