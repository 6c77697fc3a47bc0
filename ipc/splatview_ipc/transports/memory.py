"""Transport within one process, for tests and for programs that view themselves: frames are handed over as they are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.frame import RemoteTensor, StreamFrame

if TYPE_CHECKING:
    import torch


class MemoryTransport:
    """Writer and reader in one: keeps a copy of the newest version."""

    note = ""
    torn = 0
    known: frozenset[str] = frozenset()
    alive = staticmethod(lambda: True)
    ref: Any = None

    def __init__(
        self, tensors: dict[str, torch.Tensor] | None = None, growing: bool = False
    ):
        self._newest: tuple[Any, ...] | None = None
        self.busy = False
        """True: `write` finds no free slot."""

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        return True

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
        copies = {
            name: RemoteTensor(
                str(t.dtype).rpartition(".")[2], t.detach().clone().numpy()
            )
            for name, t in tensors.items()
        }
        self._newest = kind, version, time.time_ns(), dict(meta), copies, confirmed
        return True

    def follow(self, ref: Any, fds: Any) -> bool:
        return True

    def read(self, after: int = 0) -> StreamFrame | None:
        if self._newest is None or self._newest[1] <= after:
            return None
        *stamped, confirmed = self._newest
        return StreamFrame(*stamped, intact=lambda: True, confirmed=confirmed)  # type: ignore[arg-type]

    def turn(self, now: float) -> float | None:
        return None

    def close(self) -> None:
        self._newest = None
