"""Which ways a stream offers, the best first, and on what device its tensors lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.control.errors import SharingError
from splatview_ipc.publisher.preference import Preference
from splatview_ipc.transports import CPU_WAYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.publisher.tally import Tally


class Offered:
    """What suits the tensors as they come, without what failed."""

    def __init__(self, kind: str):
        self.preference = Preference(kind)
        self.ways: tuple[str, ...] = CPU_WAYS
        self.failed: dict[str, str] = {}
        """Ways that this run cannot offer, and why."""
        self.short: dict[str, str] = {}
        """Ways whose memory is not to be had at present (`splatview_ipc.publisher.ring_allocation`), and why."""
        self.device = "cpu"
        """As `Form.device`."""
        self.gpu = ""
        """The device's UUID; "" for the CPU."""
        self.capturing: Callable[[], bool] | None = None
        """Whether a CUDA graph is being captured; None for the CPU."""

    @property
    def why(self) -> str:
        """Why better ways are not offered, for people."""
        return "; ".join(f"{way}: {reason}" for way, reason in (self.failed | self.short).items())

    def order(self) -> None:
        """Settle `ways` anew; none are left where memory is short for the last one. Any thread, at any moment: what
        another changes meanwhile counts."""
        settled = None
        while settled != (settled := self._settled()):
            self.ways = settled

    def _settled(self) -> tuple[str, ...]:
        ways = CPU_WAYS if self.device == "cpu" else self.preference.ways()
        usable = tuple(w for w in ways if w not in self.failed) or ways[-1:]
        return tuple(w for w in usable if w not in self.short)

    def settle_on(self, device: str, tally: Tally) -> SharingError | None:
        """Tensors lie on this device from now on; why nothing can be shared within its memory, if so."""
        self.failed.clear()
        self.short.clear()
        self.device, self.gpu, tally.raw_stream, self.capturing = device, "", None, None
        if device == "cpu":
            return None
        import torch

        tally.device = int(device.partition(":")[2] or 0)
        tally.raw_stream = torch._C._cuda_getCurrentRawStream
        self.capturing = torch._C._cuda_isCurrentStreamCapturing
        tally.cuda_stream = tally.raw_stream(tally.device)
        try:
            from splatview_ipc.cuda import driver

            self.gpu = driver.gpu_uuid(tally.device)
        except SharingError as e:
            self.failed |= {"in-place": str(e), "device-ring": str(e)}
            return e
        return None
