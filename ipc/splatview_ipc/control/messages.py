"""The typed messages between a trainer and its viewers, and the headers of frames.

All are msgspec structs with bounds: the decoder refuses unknown fields, wrong types and
numbers out of range. Nothing is ever unpickled. Viewers send over the run's Unix socket
(`control.sockets`), over which file descriptors and refusals come back; all else comes
over ZeroMQ (`control.mail`), to the socket that the viewer's Hello names.

The names of messages are their tags on the wire, those of fields the keys.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from splatview_ipc.control import limits
from splatview_ipc.control.dtypes import DType  # noqa: TC001  msgspec reads it
from splatview_ipc.kinds.cameras import CAMERA_LIMITS
from splatview_ipc.kinds.picture import MAX_SIDE

Index = Annotated[int, Meta(ge=0, lt=limits.MAX_STREAMS)]
Pid = Annotated[int, Meta(ge=1, lt=2**31)]
Counter = Annotated[int, Meta(ge=0, le=limits.MAX_COUNTER)]
Name = Annotated[str, Meta(min_length=1, max_length=limits.MAX_NAME)]
Text = Annotated[str, Meta(max_length=limits.MAX_META_TEXT)]
Identifier = Annotated[
    str, Meta(min_length=1, max_length=40, pattern=r"\A[A-Za-z_][A-Za-z0-9_]*\Z")
]
TensorName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=limits.MAX_TENSOR_NAME,
        pattern=r"\A[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*\Z",
    ),
]
"""As of parameters of a torch module: "net.0.weight"."""
Kind = Literal[
    "image",
    "gaussians",
    "cameras",
    "overlay",
    "scalars",
    "memory",
    "rendered",
    "picture",
    "tensors",
    "controls",
]
Extent = Annotated[int, Meta(ge=0, le=limits.MAX_EXTENT)]
Shape = Annotated[tuple[Extent, ...], Meta(max_length=limits.MAX_DIMS)]
Numbers = Annotated[tuple[float, ...], Meta(max_length=16)]
MetaValue = (
    bool | Annotated[int, Meta(ge=-(2**63) + 1, le=2**63 - 1)] | float | Text | Numbers
)
TransportName = Literal["ring", "device-ring", "in-place", "host", "torch-ipc"]
Gpu = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
"""A GPU's UUID."""
Bytes = Annotated[int, Meta(ge=0, le=limits.MAX_SEGMENT)]
Shard = tuple[
    Annotated[int, Meta(ge=0, lt=limits.MAX_SHARDS)],
    Annotated[int, Meta(ge=1, le=limits.MAX_SHARDS)],
]
"""A rank, and the number of ranks."""
Token = Annotated[str, Meta(min_length=1, max_length=40, pattern=r"\A[a-z0-9-]+\Z")]
MetaDict = Annotated[dict[Identifier, MetaValue], Meta(max_length=limits.MAX_META)]


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class SegmentRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sealed memfd of the trainer, which viewers fetch with the token."""

    token: Token
    size: Annotated[int, Meta(ge=1, le=limits.MAX_SEGMENT)]


class IpcMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ipc"):
    """One cudaMalloc allocation of the sending process, by its cudaIpcMemHandle.

    Equal handles: the same memory.
    """

    handle: Annotated[bytes, Meta(min_length=64, max_length=64)]
    size: Bytes
    gpu: Gpu


class FdMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="fd"):
    """CUDA virtual memory of the trainer: adjacent chunks, one descriptor each.

    Equal tokens: the same memory.
    """

    token: Token
    pieces: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=limits.MAX_SEGMENT)], ...],
        Meta(min_length=1, max_length=limits.MAX_PIECES),
    ]
    """Bytes of each chunk."""
    gpu: Gpu

    @property
    def size(self) -> int:
        """Return the bytes of all chunks."""
        return sum(self.pieces)


class TorchMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="torch"):
    """One storage of torch.

    Behind the token is one descriptor, a file that describes an export made for its
    reader.
    """

    token: Token
    size: Bytes
    gpu: Gpu


MemoryRef = IpcMemory | FdMemory | TorchMemory


class TensorRef(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True
):
    """A tensor in one of a list of memories."""

    name: TensorName
    dtype: DType
    shape: Shape
    strides: Shape
    """Strides in elements."""
    memory: Annotated[int, Meta(ge=0, lt=limits.MAX_MEMORIES)]
    """Index in the list of memories."""
    offset: Bytes
    """Bytes from the start of the memory to the first element."""


class RingRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ring"):
    """Slots in host memory: the transports ring and host."""

    segment: SegmentRef


class DeviceRingRef(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="device-ring"
):
    """Slots in GPU memory, with the control page and the headers in host memory."""

    control: SegmentRef
    memory: FdMemory


class InPlaceRef(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="in-place"
):
    """One generation of tensors that are shared without a copy.

    These are the transports in-place and torch-ipc.
    """

    control: SegmentRef
    gpu: Gpu
    generation: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    memories: Annotated[tuple[MemoryRef, ...], Meta(max_length=limits.MAX_MEMORIES)]
    tensors: Annotated[tuple[TensorRef, ...], Meta(max_length=limits.MAX_TENSORS)]


Ref = RingRef | DeviceRingRef | InPlaceRef


def descriptor_counts(ref: Ref | SegmentRef) -> dict[str, int]:
    """Return the tokens in a reference and the number of descriptors behind each."""
    if isinstance(ref, SegmentRef):
        return {ref.token: 1}
    if isinstance(ref, RingRef):
        return descriptor_counts(ref.segment)
    counts = descriptor_counts(ref.control)
    if isinstance(ref, DeviceRingRef):
        counts[ref.memory.token] = len(ref.memory.pieces)
        return counts
    for memory in ref.memories:
        if isinstance(memory, FdMemory):
            counts[memory.token] = len(memory.pieces)
        elif isinstance(memory, TorchMemory):
            counts[memory.token] = 1
    return counts


class StreamInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stream, described by its run.

    Its version is not in here: it is read from the control block.
    """

    index: Index
    name: Name
    kind: Kind
    shape: Shape
    dtype: DType
    device: Annotated[str, Meta(max_length=40)]
    transports: Annotated[tuple[TransportName, ...], Meta(max_length=5)]
    """The transports that the run offers, the best first."""
    why: Annotated[tuple[tuple[TransportName, Text], ...], Meta(max_length=5)] = ()
    """Transports that are not among them, or bring nothing now, each with the reason,
    for users."""
    gpu: Annotated[str, Meta(pattern=r"\A([0-9a-f]{32})?\Z")] = ""
    """UUID of the GPU of its tensors; empty for the CPU."""
    live: bool = False
    """True if the tensors change in place between two versions."""
    over: Annotated[str, Meta(max_length=limits.MAX_NAME)] = ""
    """The name of the stream that an overlay is drawn over, or that a stream of cameras
    is a part of."""
    over_run: Annotated[str, Meta(max_length=64)] = ""
    """The id of the run which publishes that stream; "": this run if it has one of the
    name, otherwise any."""
    shard: Shard | None = None
    """The part of a scene that this is, where each rank of a training publishes its
    own; None: a scene of its own."""
    group: Annotated[str, Meta(pattern=r"\A([0-9a-f]{16})?\Z")] = ""
    """The same for the parts of one scene: those of one name and one number of ranks
    belong together."""
    wants_selection: bool = False
    """True if the script reads which Gaussians a viewer selects (`SelectionBits`)."""

    def __post_init__(self) -> None:
        if self.shard is not None and self.shard[0] >= self.shard[1]:
            raise ValueError(f"rank {self.shard[0]} of {self.shard[1]}")

    @property
    def reasons(self) -> str:
        """Return `why` as one text; "" if there is none."""
        return "; ".join(f"{name}: {reason}" for name, reason in self.why)


class ViewerInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pid: Pid
    client: Annotated[str, Meta(max_length=40)]


# From a viewer to a trainer.


class Hello(_Message, frozen=True):
    """The first message of a viewer.

    Repeated when it connects again, or has lost a message.
    """

    protocol: Counter
    pid: Pid
    client: Annotated[str, Meta(max_length=40)]
    namespace: Counter = 0
    """The PID namespace of `pid` (the inode of /proc/self/ns/pid); 0: unknown."""
    version: Annotated[str, Meta(max_length=limits.MAX_VERSION)] = ""
    inbox: Annotated[str, Meta(pattern=r"\A(in-[0-9a-f]{8})?\Z")] = ""
    """Name of the ZeroMQ socket that the viewer has bound in the run's folder; "": one
    of another protocol."""


class Open(_Message, frozen=True):
    """Share a stream over this transport until Release or the next Open.

    Repeated, it requests the offer again.
    """

    index: Index
    transport: TransportName


class Release(_Message, frozen=True):
    index: Index


class VersionPace(_Message, frozen=True):
    """Expect the viewer to take at most this many versions of an opened stream a second.

    It counts until Release or the next Open; without it MAX_PACE does. It also wakes the
    helper thread: a viewer repeats it when it lacks the last version of a run that has
    stopped publishing.
    """

    index: Index
    hz: Annotated[float, Meta(gt=0, le=limits.MAX_PACE)]


class Fetch(_Message, frozen=True):
    """Send the descriptors of this token over the connection.

    Answered by packets of `Descriptors`.
    """

    token: Token


class Pause(_Message, frozen=True):
    """Pause the run, or resume it. A viewer that resumes the run resumes it for all."""

    paused: bool


class Step(_Message, frozen=True):
    """Let a paused run pass `wait_while_paused` once.

    Ignored by a run that is not paused.
    """


class Snapshot(_Message, frozen=True):
    """Take a full snapshot of the GPU's memory.

    Its name appears in the metadata of this opened stream.
    """

    index: Index


class Photos(_Message, frozen=True):
    """Send photographs in this opened stream of kind cameras.

    With `side` 0: that of `camera` as it is. Otherwise a batch of those from `camera`
    on, scaled to `side` pixels in width and height.
    """

    index: Index
    camera: Annotated[int, Meta(ge=0, lt=CAMERA_LIMITS["cameras"])]
    side: Annotated[int, Meta(ge=0, le=512)] = 0


class DrawnCamera(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The camera of a picture, as `kinds.picture` describes it."""

    width: Annotated[int, Meta(ge=1, le=MAX_SIDE)]
    height: Annotated[int, Meta(ge=1, le=MAX_SIDE)]
    viewmat: Annotated[tuple[float, ...], Meta(min_length=16, max_length=16)]
    """World to camera in OpenCV axes, row by row."""
    K: Annotated[tuple[float, ...], Meta(min_length=9, max_length=9)]
    """In pixels, row by row; pixel centres are at +0.5."""
    model: Literal["pinhole", "ortho", "fisheye"] = "pinhole"
    near: float = 0.01
    far: float = 1e10


class Draw(_Message, frozen=True):
    """Draw a picture of a scene, in this opened stream of kind picture.

    A newer request of the same viewer takes the place of one that was not begun.
    """

    index: Index
    viewer: Token
    """Who asks: the picture comes with it in its metadata."""
    number: Annotated[int, Meta(ge=1, le=limits.MAX_COUNTER)]
    """The number of the request, which grows; the picture comes with it as well."""
    camera: DrawnCamera
    is_draft: bool = False
    """The camera moves: another request follows soon."""


class SetControl(_Message, frozen=True):
    """A user has set a control, in this opened stream of kind controls.

    The script checks the value against the control as it is declared then.
    """

    index: Index
    control: Name
    value: MetaValue = 0
    clicks: Annotated[int, Meta(ge=0, le=1000)] = 0
    """Clicks of a button since the last message, which are added; of others 0."""


class SelectionBits(_Message, frozen=True):
    """A piece of a mask: the Gaussians that the user has selected in an opened stream.

    The pieces of one mask come one after the other, each but the last
    `limits.MAX_SELECTION_PIECE` bytes long. With `count` 0 nothing is selected any more.
    """

    index: Index
    number: Annotated[int, Meta(ge=1, le=limits.MAX_COUNTER)]
    """The number of the mask, which grows."""
    count: Annotated[int, Meta(ge=0, le=limits.MAX_EXTENT)]
    """Gaussians of the scene; a mask of another number than it has now is ignored."""
    offset: Bytes
    """The piece's first byte within the mask."""
    bits: Annotated[bytes, Meta(max_length=limits.MAX_SELECTION_PIECE)]
    """A bit for each Gaussian, the highest of a byte first."""
    is_again: bool = False
    """The user has changed nothing, but the Gaussians are others: a mask that counts only
    if it comes from the viewer that changed its selection last."""

    def __post_init__(self) -> None:
        if self.offset % limits.MAX_SELECTION_PIECE:
            raise ValueError(f"a piece at byte {self.offset}")
        left = (self.count + 7) // 8 - self.offset
        expected = min(left, limits.MAX_SELECTION_PIECE)
        if len(self.bits) != expected or (self.count and not expected):
            raise ValueError(f"{len(self.bits)} bytes of {left} that are left")


class Bye(_Message, frozen=True):
    pass


ToTrainer = (
    Hello
    | Open
    | Release
    | VersionPace
    | Fetch
    | Pause
    | Step
    | Snapshot
    | Photos
    | Draw
    | SetControl
    | SelectionBits
    | Bye
)


# From a trainer to a viewer.


class Welcome(_Message, frozen=True):
    """The answer to Hello: the control block."""

    control: SegmentRef


class Manifest(_Message, frozen=True):
    """All streams and viewers of the run.

    Sent after Welcome, and whenever one of them changes.
    Streams that one message does not hold come in several.
    """

    streams: Annotated[tuple[StreamInfo, ...], Meta(max_length=limits.MAX_STREAMS)]
    viewers: Annotated[tuple[ViewerInfo, ...], Meta(max_length=limits.MAX_VIEWERS)]
    continued: bool = False
    """True if further streams follow in the next message."""


class Offer(_Message, frozen=True):
    """Memory with the frames of an opened stream; sent again whenever it changes."""

    index: Index
    transport: TransportName
    ref: Ref
    note: Text = ""
    """The reason why this transport is worse here than usual, for users."""


class Refused(_Message, frozen=True):
    """The viewer cannot attach; the reason is for users."""

    reason: Text


class Descriptors(_Message, frozen=True):
    """A packet of the answer to Fetch.

    It comes over the Unix socket, with descriptors attached (SCM_RIGHTS).
    """

    token: Token
    total: Annotated[int, Meta(ge=0, le=limits.MAX_PIECES)]
    """Descriptors of the token in all packets; 0: it is not offered."""


ToViewer = Welcome | Manifest | Offer | Refused | Descriptors


# In shared memory, one page in front of the data of each slot.


class TensorHeader(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True
):
    name: TensorName
    dtype: DType
    shape: Shape
    offset: Annotated[int, Meta(ge=0, le=limits.MAX_SEGMENT)]
    """Bytes from the start of the slot's data."""


class FrameHeader(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True
):
    kind: Kind
    tensors: Annotated[tuple[TensorHeader, ...], Meta(max_length=limits.MAX_TENSORS)]
    meta: MetaDict
    confirmed: bool = True
    """False: copied by the helper thread, perhaps while the training wrote into the
    tensor."""


class VersionHeader(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True
):
    """The header of a version that is shared without a copy.

    Its tensors are those of the generation.
    """

    kind: Kind
    generation: Counter
    meta: MetaDict
    """Where "step" is a whole number, 0 stands for it: the slot has the number."""


encode = msgspec.msgpack.Encoder().encode
decode_to_trainer = msgspec.msgpack.Decoder(ToTrainer).decode
decode_to_viewer = msgspec.msgpack.Decoder(ToViewer).decode
decode_frame_header = msgspec.msgpack.Decoder(FrameHeader).decode
decode_version_header = msgspec.msgpack.Decoder(VersionHeader).decode
DecodeError = (
    msgspec.DecodeError,
    msgspec.ValidationError,
    RecursionError,
    UnicodeDecodeError,
)


def mismatch(viewer: tuple[str, int], run: tuple[str, int]) -> str:
    """Return the reason why a viewer and a run do not talk, for users.

    Args:
        viewer: its release ("": unknown) and protocol.
        run: the same of the run.
    """
    viewer_release, viewer_protocol = viewer
    run_release, run_protocol = run
    return (
        f"the viewer is splatview {viewer_release or 'of an unknown version'} "
        f"(protocol {viewer_protocol}), the run {run_release or 'of an unknown version'} "
        f"(protocol {run_protocol}): install the same version of splatview on both "
        "sides"
    )
