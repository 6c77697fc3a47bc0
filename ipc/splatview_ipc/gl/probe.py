"""The bridges that work here, why others do not, and the choice among them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import DeviceTensor
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
"""The results of `probe` by bridge, for each context."""


def forced_bridge() -> str | None:
    """Return the bridge that SPLATVIEW_INTEROP names.

    Raises SharingError for another name.
    """
    name = os.environ.get("SPLATVIEW_INTEROP") or None
    if name is not None and name not in BRIDGES:
        raise SharingError(
            f"SPLATVIEW_INTEROP={name!r}: expected {', '.join(BRIDGES)}; unset it for "
            "the best that works"
        )
    return name


def probe(ctx: moderngl.Context, name: str) -> str:
    """Return why a bridge does not work with this context; "" where it does.

    For `import` pictures go to OpenGL and back, once for each context. `direct` needs
    another process's memory: here only its requirements are checked, and its first
    `put` decides.
    """
    reasons = _reasons.setdefault(ctx, {})
    if name not in reasons:
        reasons[name] = ""
        try:
            if name == "direct":
                DirectBridge(ctx)
            elif name == "import":
                _round_trip(ctx)
        except Exception as error:
            # Also an unforeseen state of a driver or library: another bridge does the
            # work.
            if isinstance(error, SharingError):
                reasons[name] = str(error)
            else:
                reasons[name] = f"{type(error).__name__}: {error}"
        GL.current().clear_errors()
    return reasons[name]


def _round_trip(ctx: moderngl.Context) -> None:
    """Try `import` with a few KB.

    Raises SharingError when they do not arrive as they were.
    """
    device_index = driver.require_device(require_import(ctx))
    import torch

    height = 17
    width = 33
    with torch.cuda.device(device_index):
        numbers = torch.arange(height * width * 4, device="cuda").mul_(7)
        values = numbers.to(torch.uint8).view(height, width, 4)
        bridge = ImportBridge(ctx)
        try:
            received = read_source(ctx, bridge.put(values, "HWC"))
            flipped = read_source(ctx, bridge.put(values.flip(0), "HWC"))
        finally:
            bridge.close()
        sent = values.cpu().numpy()
    is_same = np.array_equal(np.rint(received * 255), sent)
    if not is_same or not np.array_equal(np.rint(flipped * 255), sent[::-1]):
        raise SharingError("a picture came back from OpenGL different")


def suitable(tensor: Pixels) -> tuple[str, ...]:
    """Return the bridges for tensors in such memory, best first."""
    if isinstance(tensor, DeviceTensor):
        if tensor.memory.pieces:
            return ("direct", "import", "host")
        return ("import", "host")
    # Arrays have no such attribute.
    if getattr(tensor, "is_cuda", False):
        return ("import", "host")
    return ("host",)


def make_canvas(ctx: moderngl.Context, gpu_uuid: str | None = None) -> Canvas:
    """Return the best canvas for drawing on a GPU.

    SPLATVIEW_INTEROP may name `import` or `host`.

    Args:
        ctx: the OpenGL context.
        gpu_uuid: the GPU; by default OpenGL's own, where it is visible.

    Raises:
        SharingError: `import` is named and does not work.
    """
    forced = forced_bridge()
    if forced == "host":
        return HostBridge(ctx, gpu_uuid)
    reason = probe(ctx, "import")
    if not reason:
        try:
            return ImportBridge(ctx, gpu_uuid)
        except SharingError as error:
            reason = str(error)
    if forced == "import":
        raise SharingError(f"import: {reason}")
    return HostBridge(ctx, gpu_uuid)


class AutoBridge:
    """The best bridge for each picture.

    One that failed is not tried again while tensors are of the same kind.
    """

    def __init__(self, ctx: moderngl.Context) -> None:
        """Make no bridge yet.

        Raises SharingError when SPLATVIEW_INTEROP names no bridge.
        """
        self._ctx = ctx
        self._forced = forced_bridge()
        self._bridges: dict[str, Bridge] = {}
        self._last_names: list[str] = []
        """The bridges of the last two pictures."""
        self._tensor_kind: object = None
        """Type and suitable bridges of the last tensor; None if none was taken."""
        self.reasons: dict[str, str] = {}
        """Why better bridges than the one in use were not taken, by name."""

    @property
    def name(self) -> str:
        """The bridge in use; "" before the first `put`."""
        return self._last_names[-1] if self._last_names else ""

    def put(self, tensor: Pixels, layout: str) -> PixelSource:
        """Make a picture readable; see `Bridge.put`.

        Raises SharingError, with every reason, when no bridge takes the tensor.
        """
        candidates = suitable(tensor)
        tensor_kind = (type(tensor), candidates)
        if tensor_kind != self._tensor_kind:
            self._tensor_kind = tensor_kind
            self.reasons = {}
        if self._forced not in (None, *candidates):
            raise SharingError(
                f"{self._forced}: cannot take such a tensor; {', '.join(candidates)} "
                "can"
            )
        for name in candidates:
            if name in self.reasons or self._forced not in (None, name):
                continue
            reason = probe(self._ctx, name)
            if not reason:
                try:
                    return self._put_by(name, tensor, layout)
                except SharingError as error:
                    reason = str(error)
            self.reasons[name] = reason
        self._tensor_kind = None  # the next one may come through
        reasons = [f"{name}: {reason}" for name, reason in self.reasons.items()]
        raise SharingError("; ".join(reasons))

    def _put_by(self, name: str, tensor: Pixels, layout: str) -> PixelSource:
        """Make a picture readable by one bridge, and close those not in use."""
        if name not in self._bridges:
            self._bridges[name] = BRIDGES[name](self._ctx)
        source = self._bridges[name].put(tensor, layout)
        self._last_names = [*self._last_names[-1:], name]
        for unused in self._bridges.keys() - self._last_names:
            self._bridges.pop(unused).close()
        return source

    def undo(self) -> None:
        """Drop the last picture; see `Bridge.undo`."""
        if self._last_names:
            self._bridges[self._last_names.pop()].undo()

    def close(self) -> None:
        """Release everything. Idempotent."""
        for bridge in self._bridges.values():
            bridge.close()
        self._bridges.clear()
        self._last_names.clear()
