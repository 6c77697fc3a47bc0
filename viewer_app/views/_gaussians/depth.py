"""A picture's depth, stretched over [0, 1], for a shader to colour."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from ipc.interop.host import HostBridge

if TYPE_CHECKING:
    import moderngl
    import torch

    from ipc.interop.base import PixelSource
    from ipc.interop.canvas import Canvas
    from viewer_app.renderers.base import Picture

_SEEN = 0.3
"""Alpha from which on a pixel counts for the range."""
_RANGE_PERIOD = 0.25
"""Seconds between looks at the range of a picture on a GPU, which wait for it."""
_SAMPLE = 1 << 20
"""Pixels that are looked at for that."""


class DepthPicture:
    """Makes of a picture one of depth: expected depth over the range that is seen, no colour, and alpha.

    A picture that lies on a GPU (it has `on_gpu`, as gsplat's) stays there.
    """

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._bridge = HostBridge(ctx)
        self._canvas: Canvas | None = None
        self._source: PixelSource | None = None
        self._of: Any = None
        self._on_gpu = False
        self._ranged_at = -1e9
        self.range = (0.0, 0.0)
        """What is shown as 0 and as 1, in world units: the 1st and 99th percentile."""

    def source(self, picture: Picture, version: Any) -> PixelSource:
        """Four channels: depth in [0, 1], 0, 0, alpha. Made once for each `version`."""
        if self._source is None or self._of != version:
            on_gpu = getattr(picture, "on_gpu", None)
            self._on_gpu = on_gpu is not None
            if on_gpu is None:
                self._source = self._from_host(picture)
            else:
                with on_gpu() as (rgba, depth):
                    self._source = self._from_device(rgba, depth)
            self._of = version
        return self._source

    def undo(self) -> None:
        """The last one is not to be shown: the one before stays as it is."""
        if self._source is None:
            return
        self._source = self._of = None
        if self._on_gpu and self._canvas is not None:
            self._canvas.undo()
        else:
            self._bridge.undo()

    def _from_host(self, picture: Picture) -> PixelSource:
        pixels = picture.pixels()
        assert pixels.depth is not None, "drawn without depth"
        seen = pixels.alpha > _SEEN
        depth = np.divide(pixels.depth, pixels.alpha, out=np.zeros_like(pixels.depth), where=pixels.alpha > 1e-6)
        self.range = (0.0, 0.0)
        if seen.any():
            low, high = np.percentile(depth[seen], (1, 99))
            self.range = float(low), float(high)
            depth = (depth - low) / max(high - low, 1e-12)
        rgba = np.zeros((*depth.shape, 4), np.float32)
        rgba[..., 0], rgba[..., 3] = depth, pixels.alpha
        return self._bridge.put(rgba, "HWC")

    def _from_device(self, rgba: torch.Tensor, depth: torch.Tensor) -> PixelSource:
        import torch

        from ipc.cuda.driver import gpu_uuid
        from ipc.interop.canvas import make_canvas

        if self._canvas is None:
            self._canvas = make_canvas(self._ctx, gpu_uuid(rgba.device.index))
        alpha = rgba[..., 3]
        expected = torch.where(alpha > 1e-6, depth / alpha.clamp(min=1e-6), 0.0)
        now = time.monotonic()
        if now - self._ranged_at >= _RANGE_PERIOD:
            self._ranged_at = now
            step = max(alpha.numel() // _SAMPLE, 1)
            values = expected.reshape(-1)[::step][alpha.reshape(-1)[::step] > _SEEN]
            if len(values):
                low, high = torch.quantile(values, values.new_tensor([0.01, 0.99])).tolist()
                self.range = low, high
            else:
                self.range = (0.0, 0.0)
        low, high = self.range
        target = self._canvas.begin(alpha.shape[0], alpha.shape[1], 4, "float16")
        target[..., 0].copy_(((expected - low) / max(high - low, 1e-12)).clamp(0, 1))
        target[..., 1:3] = 0
        target[..., 3].copy_(alpha)
        return self._canvas.show()

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._source = None
        self._bridge.close()
        if self._canvas is not None:
            self._canvas.close()
            self._canvas = None
