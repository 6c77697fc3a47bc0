"""Transport within one process, for tests and programs that view themselves.

Frames are handed over as they are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.dtypes import dtype_name
from splatview_ipc.control.frame import RemoteTensor, StreamFrame

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy of one version."""

    kind: str
    version: int
    time_ns: int
    meta: dict[str, Any]
    tensors: dict[str, RemoteTensor]
    confirmed: bool


class MemoryTransport:
    """Writer and reader in one: keeps a copy of the newest version."""

    note = ""
    torn = 0
    known_tokens: frozenset[str] = frozenset()
    alive = staticmethod(lambda: True)
    ref: Any = None

    def __init__(
        self, tensors: dict[str, torch.Tensor] | None = None, growing: bool = False
    ) -> None:
        """Make a transport for tensors of any shape; the arguments are not used."""
        self._newest: _Copy | None = None
        self.busy = False
        """True if `write` finds no free slot."""

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        return True

    def holds(self, tensors: dict[str, torch.Tensor]) -> bool:
        return False

    def write(
        self,
        kind: str,
        tensors: dict[str, torch.Tensor],
        meta: dict[str, Any],
        version: int,
        confirmed: bool = True,
    ) -> bool:
        if self.busy:
            return False
        copies: dict[str, RemoteTensor] = {}
        for name, tensor in tensors.items():
            array = tensor.detach().clone().numpy()
            copies[name] = RemoteTensor(dtype_name(tensor), array)
        self._newest = _Copy(
            kind, version, time.time_ns(), dict(meta), copies, confirmed
        )
        return True

    def follow(self, ref: Any, fds: Any) -> bool:
        return True

    def read(self, after: int = 0) -> StreamFrame | None:
        newest = self._newest
        if newest is None or newest.version <= after:
            return None
        return StreamFrame(
            kind=newest.kind,
            version=newest.version,
            time_ns=newest.time_ns,
            meta=newest.meta,
            tensors=dict(newest.tensors),
            intact=lambda: True,
            confirmed=newest.confirmed,
        )

    def read_next(self, last_version: int = 0) -> StreamFrame | None:
        """Return the newest frame: no other one is kept."""
        return self.read(last_version)

    def turn(self, now: float) -> float | None:
        return None

    def close(self) -> None:
        self._newest = None
