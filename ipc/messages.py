"""The typed messages between a trainer and its viewers, and the header of a frame in shared memory.

All are msgspec structs with bounds: unknown fields, wrong types and numbers out of range are refused by the
decoder, before any of our code sees them. Nothing is ever unpickled.
"""

from __future__ import annotations

from typing import Annotated, Literal, Union

import msgspec
from msgspec import Meta

from ipc import limits

Index = Annotated[int, Meta(ge=0, lt=limits.MAX_STREAMS)]
Pid = Annotated[int, Meta(ge=1, le=2**31)]
Counter = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=limits.MAX_NAME)]
Text = Annotated[str, Meta(max_length=limits.MAX_META_TEXT)]
Word = Annotated[str, Meta(min_length=1, max_length=40, pattern=r"\A[A-Za-z_][A-Za-z0-9_]*\Z")]
DType = Literal["uint8", "float16", "bfloat16", "float32", "float64"]
Kind = Literal["image", "gaussians", "cameras", "overlay", "scalars", "memory"]
Extent = Annotated[int, Meta(ge=0, le=limits.MAX_EXTENT)]
Shape = Annotated[tuple[Extent, ...], Meta(max_length=limits.MAX_DIMS)]
Numbers = Annotated[tuple[float, ...], Meta(max_length=16)]
MetaValue = Union[bool, Annotated[int, Meta(ge=-(2**63) + 1, le=2**63 - 1)], float, Text, Numbers]
MetaDict = Annotated[dict[Word, MetaValue], Meta(max_length=limits.MAX_META)]


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class SegmentRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sealed memfd of the sending process."""

    fd: Annotated[int, Meta(ge=0, lt=2**31)]
    size: Annotated[int, Meta(ge=1, le=limits.MAX_SEGMENT)]
    token: Annotated[str, Meta(min_length=1, max_length=40, pattern=r"\A[a-z0-9-]+\Z")]


class StreamInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run says about one of its streams. Versions are not in here: they are read from the board."""

    index: Index
    name: Name
    kind: Kind
    shape: Shape
    dtype: DType
    device: Annotated[str, Meta(max_length=40)]
    sharing: Literal["ring", "host"]
    """Which of `ipc.sharing.WAYS` brings its frames."""
    ring: SegmentRef | None = None
    """Where they lie, while somebody looks."""


class ViewerInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pid: Pid
    client: Annotated[str, Meta(max_length=40)]


# From a viewer to a trainer.

class Hello(_Message, frozen=True):
    """The first message of a viewer; repeated when it reconnects."""

    protocol: Counter
    pid: Pid
    client: Annotated[str, Meta(max_length=40)]


class Open(_Message, frozen=True):
    """Share this stream's data with me, from now until Release."""

    index: Index


class Release(_Message, frozen=True):
    index: Index


class Pause(_Message, frozen=True):
    """The pause button. The trainer's `wait_while_paused` reads it from shared memory."""

    paused: bool


class Bye(_Message, frozen=True):
    pass


ToTrainer = Union[Hello, Open, Release, Pause, Bye]


# From a trainer to a viewer.

class Welcome(_Message, frozen=True):
    """The answer to Hello. `reader` is the viewer's column in the lease table."""

    protocol: Counter
    pid: Pid
    board: SegmentRef
    leases: SegmentRef
    reader: Annotated[int, Meta(ge=0, lt=limits.MAX_VIEWERS)]


class Manifest(_Message, frozen=True):
    """All streams and viewers of the run; sent after Welcome and whenever one of them changes."""

    streams: Annotated[tuple[StreamInfo, ...], Meta(max_length=limits.MAX_STREAMS)]
    viewers: Annotated[tuple[ViewerInfo, ...], Meta(max_length=limits.MAX_VIEWERS)]


class Refused(_Message, frozen=True):
    """The viewer cannot attach; `reason` is for people."""

    reason: Text


class Ping(_Message, frozen=True):
    """Is anyone there? Needs no answer: sending it tells whether the peer is still connected."""


ToViewer = Union[Welcome, Manifest, Refused, Ping]


# In shared memory, at the start of a ring's slot.

class TensorHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    name: Word
    dtype: DType
    shape: Shape
    offset: Annotated[int, Meta(ge=0, le=limits.MAX_SEGMENT)]
    """Bytes from the start of the slot's data."""


class FrameHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    kind: Kind
    tensors: Annotated[tuple[TensorHeader, ...], Meta(max_length=limits.MAX_TENSORS)]
    meta: MetaDict


encode = msgspec.msgpack.Encoder().encode
decode_to_trainer = msgspec.msgpack.Decoder(ToTrainer).decode
decode_to_viewer = msgspec.msgpack.Decoder(ToViewer).decode
decode_frame_header = msgspec.msgpack.Decoder(FrameHeader).decode
DecodeError = (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeDecodeError)
