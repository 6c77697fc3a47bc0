"""The transports that a stream offers to its viewers, and what this depends on.

The caller's options, the device of the tensors, whether Gaussians stay where they are,
and failures. A transport that fails is not offered any more, and its viewers take the
next one.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from splatview_ipc.control.errors import SharingError
from splatview_ipc.transports import ZERO_COPY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CPU_TRANSPORTS = ("ring",)
STAYING_KINDS = ("gaussians", "rendered", "tensors")
"""Kinds of tensors that a trainer keeps and steps, so that they stay where they are."""
_MAX_MOVES = 3
"""Publishes in a row with new addresses after which Gaussians are copied."""


class Options(NamedTuple):
    """The caller's options of a stream."""

    copy: bool | None = None
    """Copy the tensors (True), share them (False), or do what suits them (None)."""
    live: bool = False
    """True if the caller changes the tensors in place between two publishes."""


class TrainerGpu:
    """A CUDA device that a stream's tensors are on."""

    def __init__(self, device: str) -> None:
        import torch

        self.index = int(device.partition(":")[2] or 0)
        self.current_stream: Callable[[int], int] = torch._C._cuda_getCurrentRawStream
        self.is_capturing: Callable[[], bool] = torch._C._cuda_isCurrentStreamCapturing
        self.trainer_stream = self.current_stream(self.index)
        """The trainer's current CUDA stream at the newest publish."""
        self.uuid = ""
        self.error: SharingError | None = None
        """The reason why memory of this GPU cannot be shared; None if it can."""
        try:
            from splatview_ipc.cuda import driver

            self.uuid = driver.gpu_uuid(self.index)
        except SharingError as error:
            self.error = error


class TransportChoice:
    """The transports that suit a stream's tensors, without those that failed.

    Any thread may read it: dictionaries are replaced, never changed in place.
    """

    def __init__(self, kind: str) -> None:
        self.options = Options()
        self.gpu: TrainerGpu | None = None
        """The device of the newest value; None for the CPU."""
        self.failures: dict[str, str] = {}
        """The reason, by transport that does not work or whose memory is short."""
        self._kind = kind
        self._gpus: dict[str, TrainerGpu] = {}
        """By device: values of an earlier device may still be written."""
        self._addresses: list[int] = []
        """Where the tensors of the last version that was compared were stored."""
        self.move_count = 0
        """Publishes in a row that were stored somewhere else than the one before.

        While it is 0, only versions that are shared are compared.
        """
        self._keeps_moving = False
        """True for good once there were too many of these."""

    def change_device(self, device: str) -> SharingError | None:
        """Take in the device of the values to come, and forget all failures.

        Returns the reason why memory of the device cannot be shared, if it cannot.
        """
        gpu: TrainerGpu | None = None
        if device != "cpu":
            gpu = TrainerGpu(device)
            self._gpus = {**self._gpus, device: gpu}
        self.gpu = gpu
        self.failures = {}
        if gpu is None or gpu.error is None:
            return None
        reason = str(gpu.error)
        self.failures = {"in-place": reason, "device-ring": reason}
        return gpu.error

    def count_move(self, addresses: list[int]) -> bool:
        """Compare the addresses of a version's tensors with the last ones.

        Returns True once, when tensors that should stay have moved so often that a copy
        suits them better from now on.
        """
        if self._kind not in STAYING_KINDS or self._keeps_moving:
            return False
        if addresses == self._addresses:
            self.move_count = 0
            return False
        self._addresses = addresses
        self.move_count += 1
        if self.move_count < _MAX_MOVES:
            return False
        self.move_count = 0
        self._keeps_moving = True
        return True

    def add_failure(self, transport: str, reason: str) -> None:
        """Offer a transport no more, because of this reason."""
        self.failures = {**self.failures, transport: reason}

    def remove_failure(self, transport: str) -> None:
        """Offer a transport again."""
        failures = self.failures
        self.failures = {n: r for n, r in failures.items() if n != transport}

    def offered(self) -> tuple[str, ...]:
        """Return the transports that viewers may choose from, the best first.

        Those that failed are not among them, unless all did: then it is the last
        resort.
        """
        suitable = self.suitable()
        working = tuple(name for name in suitable if name not in self.failures)
        return working or suitable[-1:]

    def suitable(self) -> tuple[str, ...]:
        """Return the transports for tensors like the newest ones, the best first."""
        if self.gpu is None:
            return CPU_TRANSPORTS
        copy, live = self.options
        if copy is True:
            return ("device-ring", "host")
        shared = ZERO_COPY
        if os.environ.get("SPLATVIEW_SHARE") == "torch":
            shared = ZERO_COPY[1:]
        if copy is False:
            return (*shared, "host")
        stays = self._kind in STAYING_KINDS and not self._keeps_moving
        if live or stays:
            return (*shared, "device-ring", "host")
        return ("device-ring", *shared, "host")

    @contextlib.contextmanager
    def behind_trainer(self, device: str) -> Iterator[bool]:
        """Queue the GPU work of the block after the trainer's on this device.

        Yields False if that is not possible now: a CUDA graph is being captured.
        """
        gpu = self._gpus.get(device)
        if gpu is None:
            yield True
            return
        from splatview_ipc.cuda.driver import stream_after

        with stream_after(gpu.index, gpu.trainer_stream) as can_queue:
            yield can_queue
