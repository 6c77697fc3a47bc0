"""The published tensors, as a render worker reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_ipc.transports import ZERO_COPY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_ipc.control.frame import StreamFrame
    from splatview_ipc.subscriber.remote_stream import RemoteStream

_TRIES = 4
"""Copies of a frame that the trainer writes meanwhile, until the last one is kept."""


class PublishedTensors:
    """The newest tensors of a scene: over the trainer's memory, or copies of a ring's."""

    def __init__(self, run: str, scene: str) -> None:
        """Follow a run.

        Args:
            run: its id.
            scene: name of the scene whose tensors are read.
        """
        self.values: Mapping[str, torch.Tensor] = {}
        """By name. Another mapping when one of them is another object."""
        self.meta: dict[str, Any] = {}
        self.subscriber = Subscriber(run, client="render worker")
        """Follows the run; also for others that read of it."""
        self._run = run
        self._scene = scene
        self._stream: RemoteStream | None = None
        self._frame: StreamFrame | None = None
        self._copies: dict[str, torch.Tensor] = {}

    @property
    def fault(self) -> str:
        """The reason why there are no tensors, for users; "" where none is known."""
        if self._stream is None:
            return "the training's tensors were not found so far"
        return self._stream.fault or "the training's tensors have not arrived so far"

    @property
    def device(self) -> torch.device:
        """The device that they are on."""
        first = next(iter(self.values.values()), None)
        return torch.device("cpu") if first is None else first.device

    def poll(self) -> None:
        """Take in what the run has said. Never waits."""
        self.subscriber.poll()
        if self._stream is not None:
            return
        for stream in self.subscriber.streams:
            is_ours = stream.run.id == self._run and stream.info.over == self._scene
            if is_ours and stream.kind == "tensors":
                self._stream = stream
                stream.open()
                self.subscriber.poll()

    def read(self) -> bool:
        """Take the newest version, if there is another; return whether there is any.

        What is on a GPU is complete for work of torch's current stream there.
        """
        stream = self._stream
        if stream is None:
            return False
        for is_last_try in [False] * (_TRIES - 1) + [True]:
            last_version = 0 if self._frame is None else self._frame.version
            frame = stream.read(last_version)
            if frame is None:
                break
            self._take(frame)
            if is_last_try or frame.intact() or stream.sharing in ZERO_COPY:
                self._keep(frame)
                break
        return bool(self.values)

    def wait(self, stream_handle: int) -> None:
        """Have work that is queued on a CUDA stream from now on find the version there."""
        if self._frame is not None and self._frame.on_gpu:
            self._frame.wait(stream_handle)

    def _take(self, frame: StreamFrame) -> None:
        """Make a frame's tensors the values."""
        values = {}
        for name, tensor in frame.tensors.items():
            if isinstance(tensor, RemoteTensor):
                values[name] = self._copied(name, tensor)
            else:
                values[name] = tensor.torch().detach()
        is_same = values.keys() == self.values.keys() and all(
            self.values[name].data_ptr() == value.data_ptr()
            and self.values[name].shape == value.shape
            for name, value in values.items()
        )
        if not is_same:
            self.values = values
        self.meta = frame.meta

    def _copied(self, name: str, tensor: RemoteTensor) -> torch.Tensor:
        """Return a copy of a tensor, in the memory of the last one where that fits."""
        dtype = getattr(torch, tensor.dtype)
        copy = self._copies.get(name)
        if copy is None or copy.shape != tensor.shape or copy.dtype != dtype:
            copy = torch.empty(tensor.shape, dtype=dtype)
            self._copies[name] = copy
        if copy.numel():
            np.copyto(_array_over(copy), tensor.array)
        return copy

    def _keep(self, frame: StreamFrame) -> None:
        """Hold a frame until there is a newer one, and let go of the last."""
        frame.hold()
        if self._frame is not None:
            self._frame.close()
        self._frame = frame

    def close(self) -> None:
        """Let go of everything. Idempotent."""
        self.values = {}
        if self._frame is not None:
            self._frame.close()
        self.subscriber.close()


def _array_over(tensor: torch.Tensor) -> np.ndarray:
    """Return an array over a tensor's memory, as frames hold it.

    bfloat16, which NumPy lacks, is there as uint16.
    """
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()
