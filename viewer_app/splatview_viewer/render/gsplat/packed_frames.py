"""The drafts of a scene: frames of its packed Gaussians, where there is memory for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from splatview_viewer.render.gsplat.frame import FrameGraph
from splatview_viewer.render.gsplat.packed import (
    PackedDrawing,
    PackedScene,
    bytes_of,
    obstacle,
)

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.base import RenderOptions
    from splatview_viewer.render.gsplat.scene import DeviceGaussians

MIB = 1 << 20


class PackedFrames:
    """Draws what `DeviceGaussians` has loaded last, packed with the first frame of it."""

    def __init__(self, device: torch.device, gaussians: DeviceGaussians) -> None:
        """Compile the viewer's kernels if that was not done yet, about two seconds.

        Raises:
            RendererError: gsplat does not draw here, or the viewer's own kernels do not
                compile.
        """
        self._gaussians = gaussians
        self._drawing = PackedDrawing(device)
        self.frame: FrameGraph[PackedScene] = FrameGraph(device, self._drawing)
        self.note = ""
        """As `Renderer.draft_note`."""
        self._is_short_of_memory = False

    def render(
        self, camera: Camera, options: RenderOptions, target: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Queue the drawing of a frame, as `FrameGraph.render`.

        Returns None if it has to be drawn in another way: `note` says why.
        """
        reason = obstacle(camera, options)
        if not reason and self._is_short_of_memory:
            reason = "too little memory"
        if reason:
            self.note = f"moving pictures are not packed: {reason}"
            return None
        try:
            return self._render(camera, options, target)
        except torch.cuda.OutOfMemoryError:
            self.free()
            torch.cuda.empty_cache()
            # Until `free`: to try again is to release memory and take it each time.
            self._is_short_of_memory = True
            self.note = "moving pictures are not packed: too little memory"
            return None

    def _render(
        self, camera: Camera, options: RenderOptions, target: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        gaussians = self._gaussians
        scene = gaussians.packed(self._drawing.order)
        self.frame.load(scene)
        self.frame.select(gaussians.flags(options.selection))
        drawn = self.frame.render(camera, options, target)
        self.note = f"packed while it moves: {scene.count * bytes_of(scene.degree) / MIB:,.0f} MiB"
        return drawn

    def free(self) -> None:
        """Release the packed Gaussians, and what frames were captured with."""
        self._is_short_of_memory = False
        self.note = ""
        self.frame.close()
        self._gaussians.drop_packed()

    def close(self) -> None:
        """Release everything. Idempotent."""
        self.frame.close()
