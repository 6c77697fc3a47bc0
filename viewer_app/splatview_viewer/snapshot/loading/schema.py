"""Types of the values in a snapshot's pickle, and errors that name what is wrong."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from splatview_viewer.core.errors import FileError
from splatview_viewer.snapshot.model import SIZE_LIMIT

_NonNegative = Annotated[int, Meta(ge=0)]
_PoolNumber = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Bytes = Annotated[int, Meta(ge=0, lt=SIZE_LIMIT)]
_Stream = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Pool = tuple[_PoolNumber, _PoolNumber]

ADDRESS_END = 2**64
"""Addresses, and the ends of what lies there, are smaller."""


class FrameEntry(msgspec.Struct):
    """One frame of a stack."""

    filename: str = ""
    line: int = 0
    name: str = ""


class TraceEntry(msgspec.Struct, gc=False):
    """One event of a trace."""

    action: str
    addr: _NonNegative = 0
    size: _NonNegative = 0
    device_free: _NonNegative | None = None
    """Bytes that the driver still had: of an oom, which has no address."""
    time_us: _Bytes = 0
    stream: _Stream = 0
    pool_id: _Pool | None = None
    compile_context: str | None = None
    user_metadata: str | None = None
    frames: Any = None


class BlockEntry(msgspec.Struct):
    """One block of a segment."""

    address: _NonNegative
    size: _Bytes
    requested_size: _Bytes | None = None
    state: str = "inactive"
    frames: Any = None


class SegmentEntry(msgspec.Struct):
    """One segment, with its blocks."""

    address: _NonNegative
    total_size: _Bytes
    device: Annotated[int, Meta(ge=0, lt=2**15)] = 0
    allocated_size: _Bytes = 0
    active_size: _Bytes = 0
    requested_size: _Bytes = 0
    stream: _Stream = 0
    segment_type: Any = ""
    segment_pool_id: _Pool | None = None
    is_expandable: Any = False
    frames: Any = None
    blocks: list[BlockEntry] | None = None


class SnapshotFile(msgspec.Struct):
    """Content of a pickle. Entries of traces are converted later, many at once."""

    segments: list[SegmentEntry] | None = None
    device_traces: list[Any] | None = None
    external_annotations: list[Any] | None = None
    allocator_settings: dict[Any, Any] | None = None
    host_segments: list[Any] | None = None
    host_traces: list[Any] | None = None


def convert_value(value: Any, kind: Any, name: str) -> Any:
    """Return a value of a file as an object of this type.

    Raises:
        FileError: it is of another type; the message names what is wrong.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise FileError(f"{name}: {error}") from None


def error_text(value: Any) -> str:
    """Return a value as it stands in an error: short, never with all that it holds."""
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:40] + "...")
    if isinstance(value, int) and value.bit_length() > 64:
        return "a very large number"
    if isinstance(value, (bool, int, float, type(None))):
        return repr(value)
    return f"a {type(value).__name__}"
