"""What a picture says beside colours, depth or how many Gaussians there are, for a shader to colour."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.gl.host import HostBridge

if TYPE_CHECKING:
    import moderngl
    import torch

    from splatview_ipc.gl.base import Canvas, PixelSource
    from splatview_viewer.core.settings import GaussianSettings
    from splatview_viewer.render.base import Picture

_SEEN = 0.3
"""Alpha from which on a pixel counts for the range."""
_RANGE_PERIOD = 0.25
"""Seconds between looks at the range of a picture on a GPU, which wait for it."""
_SAMPLE, _SAMPLE_HOST = 1 << 20, 1 << 17
"""Pixels that are looked at for that, on a GPU and in host memory."""


class DepthPicture:
    """Makes of a picture one of numbers: expected depth, or how many Gaussians there are, and alpha.

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
        self._counts = False
        self._range_before = (0.0, 0.0)
        self.range = (0.0, 0.0)
        """What is seen of it: the 1st and 99th percentile of depths, world units; 0 and the 99th of counts."""

    def shown_range(self, settings: GaussianSettings) -> tuple[float, float]:
        """What lies at both ends of the colour map."""
        if settings.show == "depth" and settings.depth_range is not None:
            return settings.depth_range
        return self.range

    def source(self, picture: Picture, version: Any, now: float, *, counts: bool = False) -> PixelSource:
        """Four channels, float32: expected depth in world units or, if `counts`, the picture's first channel; 0, 0,
        alpha. Made once for each `version`."""
        if self._source is None or self._of != version:
            if counts != self._counts:
                self._counts, self._ranged_at = counts, -1e9
            on_gpu = getattr(picture, "on_gpu", None)
            self._on_gpu, self._range_before = on_gpu is not None, self.range
            if on_gpu is None:
                self._source = self._from_host(picture)
            else:
                with on_gpu() as (rgba, depth):
                    self._source = self._from_device(rgba, depth, now)
            self._of = version
        return self._source

    def undo(self) -> None:
        """The last one is not to be shown: the one before stays as it is."""
        if self._source is None:
            return
        self._source = self._of = None
        self.range = self._range_before
        if self._on_gpu and self._canvas is not None:
            self._canvas.undo()
        else:
            self._bridge.undo()

    def _from_host(self, picture: Picture) -> PixelSource:
        pixels = picture.pixels()
        if self._counts:
            values = pixels.color[..., 0]
        else:
            assert pixels.depth is not None, "drawn without depth"
            values = np.divide(pixels.depth, pixels.alpha, out=np.zeros_like(pixels.depth), where=pixels.alpha > 1e-6)
        step = max(values.size // _SAMPLE_HOST, 1) | 1  # odd, so that it does not keep to some columns
        sample = values.reshape(-1)[::step][pixels.alpha.reshape(-1)[::step] > _SEEN]
        self.range = self._range_of(*np.percentile(sample, (1, 99)).tolist()) if len(sample) else (0.0, 0.0)
        rgba = np.zeros((*values.shape, 4), np.float32)
        rgba[..., 0], rgba[..., 3] = values, pixels.alpha
        return self._bridge.put(rgba, "HWC")

    def _range_of(self, low: float, high: float) -> tuple[float, float]:
        return (0.0, max(math.ceil(high), 1.0)) if self._counts else (low, high)

    def _from_device(self, rgba: torch.Tensor, depth: torch.Tensor | None, now: float) -> PixelSource:
        import torch

        from splatview_ipc.cuda.driver import gpu_uuid
        from splatview_ipc.gl.probe import make_canvas

        if self._canvas is None:
            self._canvas = make_canvas(self._ctx, gpu_uuid(rgba.device.index))
        alpha = rgba[..., 3]
        if self._counts:
            shown = rgba[..., 0]
        else:
            assert depth is not None, "drawn without depth"
            shown = torch.where(alpha > 1e-6, depth / alpha.clamp(min=1e-6), 0.0)
        if now - self._ranged_at >= _RANGE_PERIOD:
            self._ranged_at = now
            step = max(alpha.numel() // _SAMPLE, 1)
            values = shown.reshape(-1)[::step][alpha.reshape(-1)[::step] > _SEEN]
            if len(values):
                self.range = self._range_of(*torch.quantile(values, values.new_tensor([0.01, 0.99])).tolist())
            else:
                self.range = (0.0, 0.0)
        target = self._canvas.begin(alpha.shape[0], alpha.shape[1], 4, "float32")
        target[..., 0].copy_(shown)
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
