"""The CUDA renderer's pictures as another camera sees them, while the next one is being drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from splatview_viewer.core.errors import RendererError
from splatview_viewer.gpu.stream import Clock, OnStream
from splatview_viewer.render.kernels.compiler import kernels
from splatview_viewer.render.kernels.warp import grid_of, warp

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.gl.base import PixelSource
    from splatview_viewer.geometry.cameras import Camera

BRIDGES = ("import",)
"""Canvases, by name, whose pictures are moved: those where CUDA draws straight into memory of OpenGL's."""


@dataclass
class Kept:
    """A picture on the GPU that can be moved; it stays as long as it is referenced."""

    mover: Mover
    color: torch.Tensor
    """(H, W, 4) float16."""
    grid: torch.Tensor | None
    """`grid_of` it; None: nothing is known of where its things are, and its colours lie where the renderer draws."""
    made: Any
    """An event: from then on these can be read."""


class Mover:
    """Moves pictures on a stream of its own, so that none waits for the scene that is being drawn meanwhile."""

    def __init__(self, device: torch.device, make_canvas: Callable[[], Any]) -> None:
        """Compiles the kernels if that was not done yet; where that is impossible, `failure` says so.

        `make_canvas`: for what OpenGL reads; asked once.
        """
        self.clock = Clock()
        self.failure = ""
        """Why it moves nothing any more."""
        self._device = device
        self._make_canvas = make_canvas
        self._canvas: Any = None
        with torch.cuda.device(device):
            self._stream = torch.cuda.Stream(device, priority=-1)
        self._on = OnStream(self._stream)
        self._nearness = torch.empty((0, 0), dtype=torch.int32, device=device)
        try:
            self._own = kernels("warp.cu", (), device.index or 0)
        except (RendererError, RuntimeError) as e:
            self.failure = str(e) or type(e).__name__

    def keep(self, color: torch.Tensor, rgba: torch.Tensor, depth: torch.Tensor, stream: torch.cuda.Stream) -> Kept:
        """A picture that was drawn on `stream`, the current one, with its depth; a copy.

        `color`: float16 (H, W, 4); `rgba`: the same in float32; `depth`: (H, W) float32, accumulated.
        """
        return self._kept(color.clone(), grid_of(rgba, depth, self._own), stream)

    def borrow(self, color: torch.Tensor, stream: torch.cuda.Stream) -> Kept:
        """A picture of which only the colours are there, for as long as nothing is written there."""
        return self._kept(color, None, stream)

    def _kept(self, color: torch.Tensor, grid: torch.Tensor | None, stream: torch.cuda.Stream) -> Kept:
        if grid is not None and grid.is_cuda:  # this memory is written anew only when it has been read
            color.record_stream(self._stream)
            grid.record_stream(self._stream)
        return Kept(self, color, grid, stream.record_event())

    def take(self, kept: Kept, seen: Camera, camera: Camera, middle: float) -> PixelSource:
        """The picture as `camera` sees it, valid until the next `take` but one.

        `seen`: the camera that took it; `camera`: the one that looks now, of the size of the result; `middle`: how far
        away the scene's middle is from `seen`, world units, more than 0.

        Raises RendererError, SharingError or RuntimeError: it cannot be done.
        """
        if self.failure:
            raise RendererError(self.failure)
        with self._on:
            self._canvas = self._canvas or self._make_canvas()
            out = self._canvas.begin(camera.height, camera.width, 4, "float16")
            self._stream.wait_event(kept.made)
            if self._nearness.shape != out.shape[:2]:
                self._nearness = torch.zeros(out.shape[:2], dtype=torch.int32, device=self._device)
            self.clock.begin(self._stream)
            warp(kept.color, kept.grid, (seen, camera), middle, self._nearness, out, self._own)
            self.clock.end(self._stream)
            return self._canvas.show()

    def drop(self) -> None:
        """Give back what depends on the pictures' size."""
        self._nearness = torch.empty((0, 0), dtype=torch.int32, device=self._device)

    def close(self) -> None:
        """Give back everything. Idempotent. The OpenGL context must be current."""
        self.failure = self.failure or "gsplat: this renderer is closed; it moves no pictures any more"
        self.clock.clear()
        if self._canvas is not None:
            self._canvas.close()
            self._canvas = None
