"""The CUDA renderer's Gaussians for others to read, and which of them are to be drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from splatview_viewer.render.kernels.activate import shift
from splatview_viewer.scene import EVERYTHING, flags
from splatview_viewer.scene.scene import GaussianScene, nothing

if TYPE_CHECKING:
    from splatview_viewer.render.gsplat.scene import DeviceGaussians
    from splatview_viewer.scene import Selection


class Lending:
    """Gives out views of the buffers in which activated Gaussians lie. Everything happens on the CUDA stream that is
    current, the renderer's."""

    def __init__(self, gaussians: DeviceGaussians, stream: torch.cuda.Stream) -> None:
        self._gaussians = gaussians
        self._stream = stream
        self._readers: set[torch.cuda.Stream] = set()
        """Those that may still read what was lent."""
        self._loads = 0
        self._scene: tuple[int, GaussianScene] | None = None
        """What was lent last, and after how many loads."""
        self._flags = torch.empty(0, dtype=torch.uint8, device=gaussians.device)
        self._flags_of: tuple[int, Selection] | None = None

    def take_back(self) -> None:
        """The buffers are about to be written: after all that readers have given their streams by now."""
        self._loads += 1
        self._scene = None
        while self._readers:
            self._stream.wait_event(self._readers.pop().record_event())

    def scene(self, reader: torch.cuda.Stream | None) -> GaussianScene:
        """As `Renderer.scene`, for what `reader` does next; None: for the stream that is current."""
        scene = self._made()
        if reader is not None and len(scene):
            reader.wait_event(self._stream.record_event())
            if self._gaussians.device.type == "cuda":  # memory of its own, unlike the rest
                scene.means.record_stream(reader)
            self._readers.add(reader)
        return scene

    def _made(self) -> GaussianScene:
        g = self._gaussians
        if len(g) == 0:
            return nothing()
        if self._scene is None or self._scene[0] != self._loads:
            # A copy, as the others' origin may change with any picture.
            means = g.means.double() if g.origin.any() else g.means.clone()
            shift(means, g.origin)
            self._scene = self._loads, GaussianScene(means, g.quats, g.scales, g.opacities, g.colors[:, 0],
                                                     g.colors[:, 1:], activated=True, sh_degree=g.sh_degree)
        return self._scene[1]

    def flags(self, selection: Selection) -> torch.Tensor | None:
        """(N,) uint8 as `Selection.flags` gives them, found once for each load; at the same place as long as N stays.
        None where the selection leaves everything as it is."""
        if selection == EVERYTHING or len(self._gaussians) == 0:
            return None
        wanted = self._loads, selection
        if self._flags_of != wanted:
            made = flags(self._made(), selection)
            if len(made) != len(self._flags):
                self._flags = made
            else:
                self._flags.copy_(made)
            self._flags_of = wanted
        return self._flags

    def to_host(self) -> GaussianScene:
        """All of them in host memory. Waits."""
        g = self._gaussians
        means, quats, scales, opacities, colors = (
            t.cpu() for t in (g.means, g.quats, g.scales, g.opacities, g.colors))
        means = means + torch.from_numpy(g.origin) if g.origin.any() else means
        return GaussianScene(means, quats, scales, opacities, colors[:, 0], colors[:, 1:], activated=True,
                             sh_degree=g.sh_degree)
