"""Memory of the host that a frame's kernels draw into: `support.on_cpu`."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from splatview_viewer.render.base import Pixels
from splatview_viewer.render.gsplat.parameters import GraphKey, Parameters
from splatview_viewer.scene import EVERYTHING

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.base import RenderOptions
    from splatview_viewer.render.gsplat.cuda import Launcher


class FrameTarget:
    """One frame's picture, depth and number of pairs, none of them drawn yet."""

    def __init__(
        self,
        view: Camera,
        options: RenderOptions,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._view = view
        self._options = options
        size = (view.height, view.width)
        self.rgba = torch.full((*size, 4), 7.0, dtype=dtype)
        self.depth = torch.full(size, 7.0) if options.depth else None
        self._needed = torch.full((1,), -1)

    def kind(self, degree: int, slots: int) -> GraphKey:
        """Return the kind of the frame, of a scene of this degree."""
        view = self._view
        options = self._options
        if options.sh_degree is not None:
            degree = min(options.sh_degree, degree)
        return GraphKey(
            width=view.width,
            height=view.height,
            model=view.model,
            near=view.near,
            far=view.far,
            antialiased=options.mode == "antialiased",
            depth=options.depth,
            degree=degree,
            element_size=self.rgba.element_size(),
            slots=slots,
            paint=options.paint,
            selected=options.selection != EVERYTHING,
            scaled=options.scale != 1.0,
        )

    def parameters(self, kernels: Launcher) -> torch.Tensor:
        """Return the frame's parameters as `set_frame` has written them."""
        parameters = Parameters.of(
            self._view, self._options, self.rgba, self.depth, self._needed.data_ptr()
        )
        written = torch.zeros(ctypes.sizeof(Parameters) // 4)
        kernels.launch("set_frame", 1, 64, parameters, written)
        return written

    @property
    def needed(self) -> int:
        """Return the number of pairs of the frame."""
        return int(self._needed)

    @property
    def pixels(self) -> Pixels:
        """Return the picture."""
        rgba = self.rgba.float().numpy()
        depth = None if self.depth is None else self.depth.numpy()
        return Pixels(rgba[..., :3], rgba[..., 3], depth)
