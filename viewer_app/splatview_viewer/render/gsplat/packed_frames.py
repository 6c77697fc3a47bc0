"""The drafts of a scene: frames of its packed Gaussians, where there is memory for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from splatview_viewer.core.quantities import size_text
from splatview_viewer.render.gsplat.frame import FrameGraph
from splatview_viewer.render.gsplat.packed import PackedDrawing, obstacle
from splatview_viewer.render.gsplat.packed_scene import PackedScene, bytes_of
from splatview_viewer.scene import EVERYTHING

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.base import RenderOptions
    from splatview_viewer.render.gsplat.device_gaussians import DeviceGaussians

PAIRS_MAX = 1 << 24
"""Pairs of Gaussian and bin that are drawn of a slab; gsplat's way goes on from there."""
NO_MEMORY = "too little memory"
TOO_MANY = "too many Gaussians cover the picture"


class PackedFrames:
    """Draws what `DeviceGaussians` has loaded last, packed with the first frame of it."""

    def __init__(self, device: torch.device, gaussians: DeviceGaussians) -> None:
        """Load the viewer's kernels; compiling them, once, takes about two seconds.

        Raises:
            RendererError: the kernels do not compile.
        """
        self._gaussians = gaussians
        self._drawing = PackedDrawing(device)
        self.frame: FrameGraph[PackedScene] = FrameGraph(
            device, self._drawing, PAIRS_MAX
        )
        self._reason = ""
        """Why the last picture was drawn in another way."""
        self._drawn_bytes = 0
        """Size of the packed Gaussians of the last picture; 0: none was drawn."""
        self._refusal = ""
        """Why none is drawn here until `free` is called."""

    @property
    def note(self) -> str:
        """Return what `Renderer.draft_note` is to say."""
        if self._reason:
            return f"moving pictures are not packed: {self._reason}"
        if not self._drawn_bytes:
            return ""
        return f"packed while it moves: {size_text(self._drawn_bytes)}"

    def render(
        self, camera: Camera, options: RenderOptions, target: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Queue the drawing of a frame, as `FrameGraph.render`.

        Returns None if it has to be drawn in another way: `note` says why.
        """
        self._reason = self._obstacle(camera, options)
        if self._reason:
            return None
        try:
            return self._render(camera, options, target)
        except torch.cuda.OutOfMemoryError:
            self.give_up(NO_MEMORY)
            torch.cuda.empty_cache()
            return None

    def draws_all(self, camera: Camera, options: RenderOptions) -> bool:
        """Return True if a picture needs nothing but packed Gaussians."""
        if not options.is_draft or options.selection != EVERYTHING:
            return False
        return not self._obstacle(camera, options)

    def _obstacle(self, camera: Camera, options: RenderOptions) -> str:
        return self._refusal or obstacle(camera, options)

    def give_up(self, reason: str) -> None:
        """Draw in another way until `free` is called.

        To try again is to release memory and take it each time.
        """
        self.free()
        self._refusal = reason
        self._reason = reason

    def _render(
        self, camera: Camera, options: RenderOptions, target: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        gaussians = self._gaussians
        scene = gaussians.packed_scene()
        self.frame.load(scene, gaussians.flags(options.selection))
        self._drawn_bytes = scene.count * bytes_of(scene.degree)
        return self.frame.render(camera, options, target)

    def free(self) -> None:
        """Release the packed Gaussians, and what frames were captured with."""
        self._refusal = ""
        self._reason = ""
        self._drawn_bytes = 0
        self.frame.close()
        self._gaussians.drop_packed()

    def close(self) -> None:
        """Release everything. Idempotent."""
        self.frame.close()
