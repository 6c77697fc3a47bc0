"""The bridges that work here, the reasons why others do not, and the choice among them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda import driver
from splatview_ipc.gl.direct import DirectBridge, require_import
from splatview_ipc.gl.glapi import GL
from splatview_ipc.gl.host import HostBridge
from splatview_ipc.gl.imported import ImportBridge
from splatview_ipc.gl.sources import read_source

if TYPE_CHECKING:
    import moderngl

    from splatview_ipc.gl.base import Bridge, Canvas, Pixels, PixelSource

BRIDGES: dict[str, Any] = {
    "direct": DirectBridge,
    "import": ImportBridge,
    "host": HostBridge,
}
"""Every bridge by name, best first."""

_reasons: WeakKeyDictionary[moderngl.Context, dict[str, str]] = WeakKeyDictionary()


def forced_bridge() -> str | None:
    """The bridge that SPLATVIEW_INTEROP names. Raises SharingError for another name."""
    name = os.environ.get("SPLATVIEW_INTEROP") or None
    if name is not None and name not in BRIDGES:
        raise SharingError(
            f"SPLATVIEW_INTEROP={name!r}: legal are {', '.join(BRIDGES)}; unset it for the best that "
            "works"
        )
    return name


def probe(ctx: moderngl.Context, name: str) -> str:
    """Why a bridge does not work with this context; "" where it does.

    For `import` pictures go to OpenGL and back, once for each context. `direct` needs another process's memory: here
    only its requirements are checked, and its first `put` decides.
    """
    known = _reasons.setdefault(ctx, {})
    if name not in known:
        known[name] = ""
        try:
            if name == "direct":
                DirectBridge(ctx)
            elif name == "import":
                _round_trip(ctx)
        except Exception as e:  # an unforeseen state of a driver or library, too: another bridge does the work
            known[name] = (
                str(e) if isinstance(e, SharingError) else f"{type(e).__name__}: {e}"
            )
        GL.current().clear_errors()
    return known[name]


def _round_trip(ctx: moderngl.Context) -> None:
    """Try `import` with a few KB. Raises SharingError when they do not arrive as they were."""
    device = driver.here(require_import(ctx))
    import torch

    with torch.cuda.device(device):
        values = (
            torch.arange(33 * 17 * 4, device="cuda")
            .mul_(7)
            .to(torch.uint8)
            .view(17, 33, 4)
        )
        bridge = ImportBridge(ctx)
        try:
            got = read_source(ctx, bridge.put(values, "HWC"))
            again = read_source(ctx, bridge.put(values.flip(0), "HWC"))
        finally:
            bridge.close()
        sent = values.cpu().numpy()
    if not (
        np.array_equal(np.rint(got * 255), sent)
        and np.array_equal(np.rint(again * 255), sent[::-1])
    ):
        raise SharingError("a picture came back from OpenGL different")


def suitable(tensor: Pixels) -> tuple[str, ...]:
    """The bridges for tensors in such memory, best first."""
    memory = getattr(tensor, "memory", None)
    if memory is not None:
        return ("direct", "import", "host") if memory.pieces else ("import", "host")
    return ("import", "host") if getattr(tensor, "is_cuda", False) else ("host",)


def make_canvas(ctx: moderngl.Context, gpu_uuid: str | None = None) -> Canvas:
    """The best canvas for drawing on a GPU (by default OpenGL's own, where it is visible).

    SPLATVIEW_INTEROP may name `import` or `host`. Raises SharingError where `import` is named and does not work.
    """
    forced = forced_bridge()
    if forced != "host":
        reason = probe(ctx, "import")
        if not reason:
            try:
                return ImportBridge(ctx, gpu_uuid)
            except SharingError as e:
                reason = str(e)
        if forced == "import":
            raise SharingError(f"import: {reason}")
    return HostBridge(ctx, gpu_uuid)


class AutoBridge:
    """The best bridge for each picture. One that failed is not tried again while tensors are of the same kind."""

    def __init__(self, ctx: moderngl.Context) -> None:
        """Raises SharingError when SPLATVIEW_INTEROP names no bridge."""
        self._ctx = ctx
        self._forced = forced_bridge()
        self._bridges: dict[str, Bridge] = {}
        self._shown: list[str] = []
        """The bridges of the last two pictures."""
        self._kind: object = None
        self.reasons: dict[str, str] = {}
        """Why better bridges than the one in use were not taken, by name."""

    @property
    def name(self) -> str:
        """The bridge in use; "" before the first `put`."""
        return self._shown[-1] if self._shown else ""

    def put(self, tensor: Pixels, layout: str) -> PixelSource:
        """As `Bridge.put`. Raises SharingError, with every reason, when no bridge takes the tensor."""
        candidates = suitable(tensor)
        if (type(tensor), candidates) != self._kind:
            self._kind = (type(tensor), candidates)
            self.reasons = {}
        if self._forced not in (None, *candidates):
            raise SharingError(
                f"{self._forced}: cannot take such a tensor; {', '.join(candidates)} can"
            )
        for name in candidates:
            if name in self.reasons or self._forced not in (None, name):
                continue
            reason = probe(self._ctx, name)
            if not reason:
                try:
                    if name not in self._bridges:
                        self._bridges[name] = BRIDGES[name](self._ctx)
                    source = self._bridges[name].put(tensor, layout)
                except SharingError as e:
                    reason = str(e)
                else:
                    self._shown = [*self._shown[-1:], name]
                    for other in self._bridges.keys() - self._shown:
                        self._bridges.pop(other).close()
                    return source
            self.reasons[name] = reason
        self._kind = None  # the next one may come through
        raise SharingError("; ".join(f"{n}: {why}" for n, why in self.reasons.items()))

    def undo(self) -> None:
        """As `Bridge.undo`."""
        if self._shown:
            self._bridges[self._shown.pop()].undo()

    def close(self) -> None:
        for bridge in self._bridges.values():
            bridge.close()
        self._bridges.clear()
        self._shown.clear()
