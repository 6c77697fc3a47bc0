"""Streams of cameras as a viewer reads them, and poses to publish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from splatview_ipc.kinds import check_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.control.frame import Frame
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_ipc.subscriber.subscriber import Subscriber


def poses(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, 4, 4) rigid transforms and (n, 3, 3) intrinsics."""
    g = torch.Generator().manual_seed(seed)
    turn, _ = torch.linalg.qr(torch.randn(n, 3, 3, generator=g))
    turn = turn * torch.linalg.det(turn)[:, None, None].sign()
    views = torch.eye(4).repeat(n, 1, 1)
    views[:, :3, :3], views[:, :3, 3] = turn, torch.randn(n, 3, generator=g)
    K = torch.tensor([[50.0, 0, 20], [0, 50, 15], [0, 0, 1]])
    return views, K.repeat(n, 1, 1)


def stream_of(subscriber: Subscriber, wait_until: Callable[..., Any], name: str = "cameras") -> RemoteStream:
    """Wait for the stream, and open it."""
    def found() -> RemoteStream | None:
        subscriber.poll()
        return next((s for s in subscriber.streams if s.name == name), None)

    stream = wait_until(found, what=f"a stream {name}")
    stream.open()
    return stream


def newest(subscriber: Subscriber, stream: RemoteStream, wait_until: Callable[..., Any],
           fits: Callable[[Frame], bool] = lambda frame: True) -> Frame:
    """Wait for a frame that fits; every frame has to pass the receiver's check."""
    seen = 0

    def read() -> Frame | None:
        nonlocal seen
        subscriber.poll()
        frame = stream.read(seen)
        if frame is None:
            return None
        seen = frame.version
        check_frame(frame.kind, {k: (t.dtype, t.shape) for k, t in frame.tensors.items()}, frame.meta)
        if fits(frame):
            return frame
        frame.close()
        return None

    return wait_until(read, what=f"a frame of {stream.name}")
