"""The messages of the WebSocket: JSON texts both ways.

A page shows two layers: pictures of panes, and the interface over them. The files of an
`InterfaceUpdate` follow it in one binary message. The image of a `Picture` follows it
in binary messages of a part each, between which an `InterfaceUpdate` may come. So does
the content of `Blocks` and of a `PanePhoto`; none of these three ever comes between the
parts of another one.

A page that says `Draws` draws the Gaussians of panes by itself. For each pane it gets a
`HandedScene` whenever the viewer's side of it changes, and the Gaussians of its scene, or
of both that it compares, in passes: `SceneBegin`, any number of `Blocks`, `SceneEnd`.
`MarkedScene` may come at any time. It answers `Blocks` and `SceneEnd` by `Taken`, and sends
the events `Placed` when its user has moved the camera, `Ranged` when numbers that it shows
by colours have another range, and `Measured` when two scenes differ by another number.

A page's events are those of `splatview_viewer.core.events`, with its own clock in `at`.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple
from unicodedata import category

import msgspec

from splatview_ipc.system.terminal import without_surrogates
from splatview_viewer.blocks.layout import BlockPart  # noqa: TC001
from splatview_viewer.core import events
from splatview_viewer.core.handed import HandedDrawing  # noqa: TC001
from splatview_viewer.core.screen import Caption, Favour

PAGE_PROTOCOL = 6
"""Raised when page and viewer of two versions would misunderstand each other."""
MAX_MESSAGE = 64 * 1024
"""Bytes; no message of a page is longer."""

_Number = Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)]
_Id = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]


class MessageError(ValueError):
    """An invalid message of a page. The text says what is wrong with it."""


class _Message(
    msgspec.Struct,
    frozen=True,
    tag_field="t",
    tag=str.lower,
    forbid_unknown_fields=True,
):
    """Base of all messages: `t` is the class's name in small letters."""


class Hello(_Message, frozen=True, kw_only=True):
    """A page's first message. `id` is the tab's own and stays over reconnections."""

    id: _Id
    width: Annotated[int, msgspec.Meta(ge=16, le=8192)]
    height: Annotated[int, msgspec.Meta(ge=16, le=8192)]
    scale: Annotated[float, msgspec.Meta(ge=0.25, le=8)] = 1.0
    visible: bool = True


class Visible(_Message, frozen=True):
    """The page was shown or hidden."""

    on: bool


class Ack(_Message, frozen=True):
    """An update of a layer is on the page, or was skipped there.

    `took`: ms from the arrival of its message until its last byte had arrived, which
    leaves out the way to the page, what was sent before, and its decoding.
    """

    number: _Number
    took: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    layer: Literal["scene", "interface"] = "scene"
    latency: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None
    """From the event that it tells of until it was seen, in ms; None: it tells of none.
    """


class Lost(_Message, frozen=True):
    """The page lost what its layers showed: they are sent anew."""


class Draws(_Message, frozen=True, kw_only=True):
    """The page draws Gaussians by itself, or no longer. Said again, it begins anew."""

    on: bool
    reason: Annotated[str, msgspec.Meta(max_length=300)] = ""
    """Why it does not, for users."""
    max_gaussians: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] = 6_000_000
    """That it can hold."""


class Taken(_Message, frozen=True):
    """Answers `Blocks` once they are put, and with them all before.

    Answers each `SceneEnd` once the pass is drawn, or another one has overtaken it.
    """

    number: _Number


ClientMessage = Hello | Visible | Ack | Lost | Draws | Taken | events.PageEvent


PageInput = Visible | Lost | Draws | events.Event
"""What the thread that draws takes of a page."""


class Welcome(_Message, frozen=True):
    """The first message to a page.

    A page of another protocol loads itself again. `viewer` is another one for each
    viewer process. The page sends files with `key`, which is its own, of `most` bytes
    at most. `command` starts such a viewer again.
    """

    protocol: int
    version: str
    viewer: str
    key: str
    most: int
    command: str = ""


class Clipboard(_Message, frozen=True):
    """A text to put on the user's clipboard."""

    text: str


class Offer(_Message, frozen=True):
    """A file of `size` bytes for the user to keep, which is fetched once, with `key`."""

    name: str
    key: str
    size: int


class Ask(_Message, frozen=True):
    """The page does this by itself, if its browser lets it, or with the next press.

    "fullscreen" also ends the full screen.
    """

    favour: Favour


Side = Literal[0, 1]
"""One of the two scenes of a pane; the second is `HandedDrawing.second`."""
Box = tuple[int, int, int, int]
"""x, y, width and height in pixels from the top left corner."""


class PaneBox(NamedTuple):
    """The rectangle of one picture; `number` is the same as long as the pane is open."""

    number: int
    box: Box


class PageLayout(_Message, frozen=True, tag="layout"):
    """Tells where the panes lie.

    It holds from the first `InterfaceUpdate` on that names it. A `Picture` of another
    one is shown in the rectangles of now.
    """

    number: int
    size: tuple[int, int]
    """Width and height of both layers."""
    panes: list[PaneBox]


class InterfaceUpdate(_Message, frozen=True, kw_only=True, tag="interface"):
    """Parts of the interface, each as a file without loss; what it leaves out stays.

    The next binary message has the files, one after the other, of `sizes` bytes.
    """

    number: _Number
    layout: int
    boxes: list[Box]
    sizes: list[int]
    format: Literal["webp", "png"] = "webp"
    at: float = 0.0
    """As in `Picture`, where no picture tells of the event."""


class Picture(_Message, frozen=True, kw_only=True):
    """One encoded picture of all panes, and what lies between them."""

    number: _Number
    format: Literal["jpeg", "webp", "png"]
    layout: int
    """The layout that it was drawn for."""
    box: Box
    """What it shows of that, to which the page scales the image up."""
    bytes: int
    """Of the image, in all of the binary messages that follow."""
    at: float = 0.0
    """The newest `at` of the page's events that this shows, in ms; 0: none."""
    quality: int = 100
    """1 to 100."""
    lossless: bool = False

    @property
    def size(self) -> tuple[int, int]:
        return self.box[2], self.box[3]


class HandedScene(_Message, frozen=True, kw_only=True):
    """Tells what a page draws in a pane by itself, or why it gets pictures of it."""

    pane: int
    drawing: HandedDrawing | None = None
    """None: the pane is part of pictures."""
    reason: str = ""
    """Why it is, for users."""


class SceneBegin(_Message, frozen=True, kw_only=True):
    """A pass begins: Gaussians of a pane, all in one form."""

    pane: int
    side: Side = 0
    pass_number: _Number = msgspec.field(name="pass")
    """Counts the passes of a page."""
    version: int
    """The same for all passes of one version of a scene, and for no other."""
    refines: bool
    """True: its blocks replace those of `version`, which the page draws. False: they are
    those of a version that is to be drawn once all have come."""
    count: int
    """Gaussians of the pass: the most important ones, if they are fewer than `total`."""
    total: int
    """Gaussians of the version."""
    form: Literal["quick", "exact"]
    has_harmonics: bool
    sh_degree: int
    sh_stored: int
    """Coefficients beyond degree 0 that the version has, and a later pass may bring."""
    origin: tuple[float, float, float]
    antialiased: bool
    bytes: int
    """Of all `Blocks` of the pass."""


class Blocks(_Message, frozen=True, kw_only=True):
    """One part of some blocks, one after the other, in the binary messages that follow."""

    pane: int
    side: Side = 0
    pass_number: _Number = msgspec.field(name="pass")
    number: _Number
    """Counts `Blocks` and `SceneEnd` together."""
    part: BlockPart
    first: int
    count: int
    bytes: int
    """Of all binary messages."""


class SceneEnd(_Message, frozen=True, kw_only=True):
    """A pass has come as a whole, or `is_whole` is False and it ends as it is."""

    pane: int
    side: Side = 0
    pass_number: _Number = msgspec.field(name="pass")
    number: _Number
    is_whole: bool = True


class PanePhoto(_Message, frozen=True, kw_only=True, tag="photo"):
    """A photograph for a pane, as a JPEG file in the binary messages that follow.

    It is shown as long as a `HandedScene` says where.
    """

    pane: int
    number: int
    """As `HandedPhoto.number`."""
    bytes: int
    """Of all binary messages."""


class MarkedScene(_Message, frozen=True, kw_only=True):
    """The Gaussians of a pass that stand out from now on, in place of those before."""

    pane: int
    side: Side = 0
    pass_number: _Number = msgspec.field(name="pass")
    """The pass that brought the Gaussians: it `refines` none."""
    marked: list[int]
    """Their places in the pass."""


Drawing = PageLayout | InterfaceUpdate | Picture
SceneMessage = HandedScene | SceneBegin | Blocks | SceneEnd | MarkedScene | PanePhoto
ServerMessage = Welcome | Caption | Clipboard | Offer | Ask | Drawing | SceneMessage


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ClientMessage)


def parse(text: str | bytes) -> ClientMessage:
    """Decode a page's message.

    Raises:
        MessageError: the text is anything else.
    """
    if len(text) > MAX_MESSAGE:
        raise MessageError(f"a message of {len(text)} bytes; {MAX_MESSAGE} is the most")
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise MessageError(f"not a message of protocol {PAGE_PROTOCOL}: {e}") from None


def encode(message: ServerMessage | ClientMessage) -> str:
    """Return the message as JSON.

    A text with what UTF-8 cannot hold, such as a file's name, gets signs of
    replacement.
    """
    try:
        return _encoder.encode(message).decode()
    except UnicodeEncodeError:
        return _encoder.encode(_in_utf8(message)).decode()


def _in_utf8(message: ServerMessage | ClientMessage) -> ServerMessage | ClientMessage:
    """Return a message whose texts UTF-8 can hold."""
    texts = {}
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if isinstance(value, str):
            texts[name] = without_surrogates(value)
    return msgspec.structs.replace(message, **texts)


def event_of(
    message: events.Event, clicks: events.ClickCounter, scale: float
) -> events.Event | None:
    """Complete an event: the clicks of a press, and text without control characters.

    Double clicks are recognised by the page's clock, so that a slow network does not
    pull two presses apart; there is none where the page gives no time.

    Args:
        message: a message of a page.
        clicks: the clicks of this page until now.
        scale: framebuffer pixels per point.

    Returns:
        The event; None for text that has nothing but control characters.
    """
    if isinstance(message, events.PointerPress):
        return _count_clicks(message, clicks, scale)
    if not isinstance(message, events.Text):
        return message
    text = _without_control_characters(message.text.replace("\r\n", "\n"))
    if not text:
        return None
    return msgspec.structs.replace(message, text=text)


def _count_clicks(
    press: events.PointerPress, clicks: events.ClickCounter, scale: float
) -> events.PointerPress:
    """Return a press with its number of clicks: 2 for a double click."""
    count = 1
    if press.at > 0:
        count = clicks.count(press.at / 1000, press.x, press.y, press.button, scale)
    return msgspec.structs.replace(press, clicks=count)


def _without_control_characters(text: str) -> str:
    """Return a text in which line breaks and tabs are the only control characters."""
    return "".join(c for c in text if c in "\n\t" or category(c) != "Cc")
