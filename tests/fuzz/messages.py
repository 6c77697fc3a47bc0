"""Strategies of what comes over the socket and stands in shared memory: messages,
headers of frames, descriptions of runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec

from splatview_ipc.control import limits, messages
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.registry import RunningViewer
from splatview_ipc.control.render_requests import (
    PictureQueued,
    Ready,
    RenderError,
    RenderRequest,
    RenderResult,
    Show,
    WindowSettings,
    WindowState,
    decode_answer,
    decode_request,
    encode,
)
from splatview_ipc.control.run_folder import Description
from splatview_ipc.kinds import check_frame
from splatview_ipc.transports.zero_copy_reader import check_tensors

GPU = "0123456789abcdef" * 2
SEGMENT = messages.SegmentRef("ring-0123456789abcdef01234567", 1 << 20)
PIECES = messages.FdMemory("fds-0123456789abcdef01234567", (2 << 20, 4 << 20), GPU)
HANDLE = messages.IpcMemory(bytes(range(64)), 4096, GPU)
MEANS = messages.TensorRef("means", "float32", (300, 3), (3, 1), 0, 512)
QUATS = messages.TensorRef("quats", "float32", (64, 4), (4, 1), 1, 1024)


def to_trainer() -> list[Any]:
    """One message of each kind that viewers send."""
    return [
        messages.Hello(
            limits.PROTOCOL, 1234, "viewer", 4026531836, "0.2.0", "in-0123abcd"
        ),
        messages.Open(3, "device-ring"),
        messages.Release(3),
        messages.VersionPace(3, 10.0),
        messages.Fetch("fds-0123456789abcdef01234567"),
        messages.Pause(True),
        messages.Step(),
        messages.Snapshot(2),
        messages.Photos(1, 7, 64),
        messages.Draw(
            1, "0123abcd", 3, messages.DrawnCamera(64, 48, (1.0,) * 16, (1.0,) * 9)
        ),
        messages.SelectionBits(1, 3, 20, 0, b"abc"),
        messages.Bye(),
    ]


def to_viewer() -> list[Any]:
    """One message of each kind that trainers send, and one Offer of each transport."""
    info = messages.StreamInfo(
        0,
        "splats",
        "gaussians",
        (300, 3),
        "float32",
        "cuda:0",
        ("in-place", "device-ring"),
        (("host", "because"), ("torch-ipc", "another; reason")),
        GPU,
        True,
    )
    return [
        messages.Welcome(SEGMENT),
        messages.Manifest((info, info), (messages.ViewerInfo(77, "viewer"),)),
        messages.Offer(0, "ring", messages.RingRef(SEGMENT), "slow"),
        messages.Offer(0, "device-ring", messages.DeviceRingRef(SEGMENT, PIECES)),
        messages.Offer(
            0,
            "in-place",
            messages.InPlaceRef(SEGMENT, GPU, 3, (PIECES, HANDLE), (MEANS, QUATS)),
        ),
        messages.Refused("no"),
        messages.Descriptors("fds-0123456789abcdef01234567", 2),
    ]


def frame_headers() -> list[Any]:
    header = messages.TensorHeader
    meta = {
        "layout": "HWC",
        "step": 7,
        "note": "hello",
        "lr": 0.1,
        "flag": True,
        "pose": (1.0, 2.0),
    }
    gaussians = (
        header("means", "float32", (30, 3), 0),
        header("quats", "float32", (30, 4), 512),
        header("scales", "float32", (30, 3), 1024),
        header("opacities", "float32", (30,), 1536),
        header("rgb", "float16", (30, 3), 2048),
    )
    return [
        messages.FrameHeader("image", (header("image", "uint8", (4, 6, 3), 0),), meta),
        messages.FrameHeader(
            "gaussians", gaussians, {"color": "rgb", "activated": True, "sh_degree": 0}
        ),
        messages.FrameHeader(
            "gaussians",
            gaussians,
            {"color": "rgb", "activated": (1.0, 0.0), "sh_degree": 0},
        ),
    ]


def _to_trainer(data: bytes) -> None:
    with contextlib.suppress(*messages.DecodeError):
        message = messages.decode_to_trainer(data)
        assert messages.decode_to_trainer(messages.encode(message)) == message


def _to_viewer(data: bytes) -> None:
    with contextlib.suppress(*messages.DecodeError, SharingError):
        message = messages.decode_to_viewer(data)
        if isinstance(message, messages.Offer) and isinstance(
            message.ref, messages.InPlaceRef
        ):
            check_tensors(message.ref)


def _frame_header(data: bytes) -> None:
    with contextlib.suppress(*messages.DecodeError, ValueError):
        header = messages.decode_frame_header(data)
        check_frame(
            header.kind,
            {t.name: (t.dtype, t.shape) for t in header.tensors},
            header.meta,
        )


DESCRIPTIONS = [
    Description(limits.PROTOCOL, "run-1-ab12", "run", 1, 1.7e9),
    RunningViewer(7, "http://127.0.0.1:8080/?token=abc", "127.0.0.1", 8080),
    WindowSettings(640, 480, "title", 7),
    Show("image", "run-1"),
    WindowState(640, 480, 60.0),
]
"""Values of each type that is written to the run folder as JSON."""
DECODERS = [
    messages.decode_version_header,
    decode_request,
    decode_answer,
    *(msgspec.json.Decoder(type(value)).decode for value in DESCRIPTIONS),
]


def _descriptions(data: bytes) -> None:
    for decode in DECODERS:
        with contextlib.suppress(*messages.DecodeError, ValueError):
            decode(data)


READERS: dict[str, tuple[Callable[[bytes], object], list[bytes]]] = {
    "to_trainer": (_to_trainer, [messages.encode(m) for m in to_trainer()]),
    "to_viewer": (_to_viewer, [messages.encode(m) for m in to_viewer()]),
    "frame_header": (_frame_header, [messages.encode(m) for m in frame_headers()]),
    "descriptions": (
        _descriptions,
        [
            messages.encode(
                messages.VersionHeader("gaussians", 3, {"color": "rgb", "step": 1})
            ),
            *map(
                encode,
                (
                    RenderRequest(2.0, "run", "splats", camera="{}", size=(64, 48)),
                    Ready("run-1"),
                    RenderResult("host", 2),
                    PictureQueued(RenderResult("gpu", 3)),
                    RenderError("value", "no"),
                ),
            ),
            *map(msgspec.json.encode, DESCRIPTIONS),
        ],
    ),
}
"""Functions that take any bytes, and well-formed ones."""
