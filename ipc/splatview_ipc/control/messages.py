"""The typed messages between a trainer and its viewers, and the header of a frame in shared memory.

All are msgspec structs with bounds: unknown fields, wrong types and numbers out of range are refused by the
decoder, before any of our code sees them. Nothing is ever unpickled.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from splatview_ipc.control import limits
from splatview_ipc.kinds.cameras import CAMERAS_MOST

Index = Annotated[int, Meta(ge=0, lt=limits.MAX_STREAMS)]
Pid = Annotated[int, Meta(ge=1, lt=2**31)]
Counter = Annotated[int, Meta(ge=0, le=limits.MAX_COUNTER)]
Name = Annotated[str, Meta(min_length=1, max_length=limits.MAX_NAME)]
Text = Annotated[str, Meta(max_length=limits.MAX_META_TEXT)]
Word = Annotated[str, Meta(min_length=1, max_length=40, pattern=r"\A[A-Za-z_][A-Za-z0-9_]*\Z")]
DType = Literal["uint8", "float16", "bfloat16", "float32", "float64", "int32"]
Kind = Literal["image", "gaussians", "cameras", "overlay", "scalars", "memory"]
Extent = Annotated[int, Meta(ge=0, le=limits.MAX_EXTENT)]
Shape = Annotated[tuple[Extent, ...], Meta(max_length=limits.MAX_DIMS)]
Numbers = Annotated[tuple[float, ...], Meta(max_length=16)]
MetaValue = bool | Annotated[int, Meta(ge=-(2**63) + 1, le=2**63 - 1)] | float | Text | Numbers
Way = Literal["ring", "device-ring", "in-place", "host"]
Gpu = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
"""A GPU's UUID."""
Bytes = Annotated[int, Meta(ge=0, le=limits.MAX_SEGMENT)]
Shard = tuple[Annotated[int, Meta(ge=0, lt=limits.MAX_SHARDS)], Annotated[int, Meta(ge=1, le=limits.MAX_SHARDS)]]
"""A rank, and how many there are."""
Token = Annotated[str, Meta(min_length=1, max_length=40, pattern=r"\A[a-z0-9-]+\Z")]
Edition = Annotated[str, Meta(max_length=limits.MAX_VERSION)]
"""A release of splatview, for people; "": not known."""
MetaDict = Annotated[dict[Word, MetaValue], Meta(max_length=limits.MAX_META)]


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class SegmentRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sealed memfd of the sending process."""

    fd: Annotated[int, Meta(ge=0, lt=2**31)]
    size: Annotated[int, Meta(ge=1, le=limits.MAX_SEGMENT)]
    token: Token


class IpcMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ipc"):
    """One cudaMalloc allocation of the sending process, by its cudaIpcMemHandle. Equal handles: the same memory."""

    handle: Annotated[bytes, Meta(min_length=64, max_length=64)]
    size: Bytes
    gpu: Gpu


class FdMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="fd"):
    """CUDA virtual memory of the sending process: chunks that lie one behind the other, one descriptor each.

    The descriptors are fetched with the token (`splatview_ipc.control.descriptors`). Equal tokens: the same memory.
    """

    token: Token
    pieces: Annotated[tuple[Annotated[int, Meta(ge=1, le=limits.MAX_SEGMENT)], ...],
                      Meta(min_length=1, max_length=limits.MAX_PIECES)]
    """Bytes of each chunk."""
    gpu: Gpu


MemoryRef = IpcMemory | FdMemory


class TensorRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """A tensor in one of a list of memories."""

    name: Word
    dtype: DType
    shape: Shape
    strides: Shape
    """In elements, one per dimension; never negative."""
    memory: Annotated[int, Meta(ge=0, lt=limits.MAX_MEMORIES)]
    """Which of the memories."""
    offset: Bytes
    """Bytes from the start of the memory to the first element."""


class RingRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ring"):
    """Slots in host memory: the ways ring and host."""

    segment: SegmentRef


class DeviceRingRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="device-ring"):
    """Slots in GPU memory, with the control page and the headers in host memory."""

    control: SegmentRef
    memory: FdMemory


class InPlaceRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="in-place"):
    """One generation of tensors shared where they lie."""

    control: SegmentRef
    gpu: Gpu
    generation: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    memories: Annotated[tuple[MemoryRef, ...], Meta(max_length=limits.MAX_MEMORIES)]
    tensors: Annotated[tuple[TensorRef, ...], Meta(max_length=limits.MAX_TENSORS)]
    event: Annotated[bytes, Meta(min_length=64, max_length=64)]
    """cudaIpcEventHandle, the same for every generation; recorded after each version's work."""


Ref = RingRef | DeviceRingRef | InPlaceRef


class StreamInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run says about one of its streams. Versions are not in here: they are read from the board."""

    index: Index
    name: Name
    kind: Kind
    shape: Shape
    dtype: DType
    device: Annotated[str, Meta(max_length=40)]
    ways: Annotated[tuple[Way, ...], Meta(max_length=4)]
    """How the run can bring its frames (`splatview_ipc.transports.WAYS`), the best first."""
    why: Text = ""
    """Why a way that would be better is not among them, for people."""
    gpu: Annotated[str, Meta(pattern=r"\A([0-9a-f]{32})?\Z")] = ""
    """UUID of the GPU that its tensors lie on; empty for the CPU."""
    live: bool = False
    """Whether the tensors change in place between two versions."""
    over: Annotated[str, Meta(max_length=limits.MAX_NAME)] = ""
    """Of kind overlay: the name of the stream that it is drawn over; of kind cameras: of that which it is a part of."""
    over_run: Annotated[str, Meta(max_length=64)] = ""
    """The id of the run which publishes that stream; "": this run if it has one of the name, otherwise any."""
    shard: Shard | None = None
    """Which part of a scene this is, where each rank of a training publishes its own; None: a scene of its own."""
    group: Annotated[str, Meta(pattern=r"\A([0-9a-f]{16})?\Z")] = ""
    """The same for the parts of one scene: those of one name and one number of ranks belong together."""

    def __post_init__(self) -> None:
        if self.shard is not None and self.shard[0] >= self.shard[1]:
            raise ValueError(f"rank {self.shard[0]} of {self.shard[1]}")


class ViewerInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pid: Pid
    client: Annotated[str, Meta(max_length=40)]


# From a viewer to a trainer.

class Hello(_Message, frozen=True):
    """The first message of a viewer; repeated when it reconnects."""

    protocol: Counter
    pid: Pid
    client: Annotated[str, Meta(max_length=40)]
    namespace: Counter = 0
    """Which PID namespace the number is of (the inode of /proc/self/ns/pid); 0: not known."""
    version: Edition = ""
    inbox: Annotated[str, Meta(pattern=r"\A(inbox-[0-9a-f]{16})?\Z")] = ""
    """Where the viewer takes what it is told: a ZeroMQ socket of this name, which it has bound in the run's folder (see
    `splatview_ipc.control.mail`); "": by the connection that this comes from."""


class Open(_Message, frozen=True):
    """Share this stream's data with me in this way, from now until Release or an Open with another way."""

    index: Index
    way: Way


class Took(_Message, frozen=True):
    """I read generation `generation` of an in-place stream now, and no older one any more."""

    index: Index
    generation: Counter


class Want(_Message, frozen=True):
    """I asked for a newer version of an in-place stream in the lease table, and the trainer has published none since.

    It goes to the helper thread, which marks the newest version by itself."""

    index: Index


class Release(_Message, frozen=True):
    index: Index


class Pause(_Message, frozen=True):
    """The pause button. The trainer's `wait_while_paused` reads it from shared memory. Whoever resumes, resumes the
    run, whichever viewers paused it."""

    paused: bool


class Step(_Message, frozen=True):
    """Let a paused run pass `wait_while_paused` once. Says nothing to one that is not paused."""


class Snapshot(_Message, frozen=True):
    """Take a full snapshot of the GPU's memory, and name it in the metadata of this stream, which I opened."""

    index: Index


class Photos(_Message, frozen=True):
    """Show photographs in frames of this stream of kind cameras, which I opened: that of `camera` as it is (`side` 0),
    or those from `camera` on, as many as go together, brought to `side` pixels in width and height."""

    index: Index
    camera: Annotated[int, Meta(ge=0, lt=CAMERAS_MOST["cameras"])]
    side: Annotated[int, Meta(ge=0, le=512)] = 0


class Bye(_Message, frozen=True):
    pass


ToTrainer = Hello | Open | Took | Want | Release | Pause | Step | Snapshot | Photos | Bye


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


class Offer(_Message, frozen=True):
    """Where the frames of a stream that you opened lie; sent again whenever that changes."""

    index: Index
    way: Way
    ref: Ref
    note: Text = ""
    """What is worse about the way here than it usually is, for people."""


class Refused(_Message, frozen=True):
    """The viewer cannot attach; `reason` is for people."""

    reason: Text


ToViewer = Welcome | Manifest | Offer | Refused


# In shared memory, one page before the data of each slot.

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


class VersionHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """The header of a version that is shared in place: its tensors are those of the generation."""

    kind: Kind
    generation: Counter
    meta: MetaDict


encode = msgspec.msgpack.Encoder().encode
decode_to_trainer = msgspec.msgpack.Decoder(ToTrainer).decode
decode_to_viewer = msgspec.msgpack.Decoder(ToViewer).decode
decode_frame_header = msgspec.msgpack.Decoder(FrameHeader).decode
decode_version_header = msgspec.msgpack.Decoder(VersionHeader).decode


class _Stranger(msgspec.Struct, frozen=True, tag="Hello"):
    """What the Hello of any protocol says."""

    protocol: Counter
    version: Edition = ""


_decode_stranger = msgspec.msgpack.Decoder(_Stranger).decode
DecodeError = (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeDecodeError)


def stranger(packet: bytes) -> tuple[str, int] | None:
    """The release and the protocol of a viewer of another protocol, whose Hello may have fields that ours lacks; None
    if this is no such Hello."""
    try:
        hello = _decode_stranger(packet)
    except DecodeError:
        return None
    return (hello.version, hello.protocol) if hello.protocol != limits.PROTOCOL else None


def mismatch(viewer: tuple[str, int], run: tuple[str, int]) -> str:
    """Why a viewer and a run of these releases and protocols do not talk, for people."""
    (theirs, spoken), (ours, understood) = viewer, run
    return (f"the viewer is splatview {theirs or 'of an unknown version'} (protocol {spoken}), the run "
            f"{ours or 'of an unknown version'} (protocol {understood}): install the same version of splatview on both "
            "sides")
