"""One picture by `gsplat.rasterization` itself: the plain way, which asks the host twice in each frame.

Same interface as `frame_graph.FrameGraph`, which takes its place where the viewer's own kernels compile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from splatview_ipc.kinds.gaussians import SH_REST
from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.base import COLOR_MAX, EPS_2D, MARK_COLOR
from splatview_viewer.render.kernels.frame import TILE
from splatview_viewer.render.work import PAIRS_MAX, words
from splatview_viewer.scene import HIDDEN, MARKED

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.base import RenderOptions

PLAIN_PAINTS = "color", "normals"
"""What `PlainFrame` can draw."""


class Frame(Protocol):
    """Draws activated Gaussians on torch's current CUDA stream."""

    failure: str
    """Why it is not as fast as it could be, in one line; "" when it is."""

    @property
    def thinned(self) -> str:
        """As `Renderer.thinned`, of the last frame that `overflowed` was asked about."""
        ...

    def load(self, means: torch.Tensor, quats: torch.Tensor, scales: torch.Tensor, opacities: torch.Tensor,
             sh0: torch.Tensor, shN: torch.Tensor) -> None:
        """The scene from now on: (N, 3), (N, 4), (N, 3), (N,), (N, 3), (N, K-1, 3), float32. Nothing is copied."""
        ...

    def select(self, flags: torch.Tensor | None) -> None:
        """(N,) uint8 as `Selection.flags` gives them, for the frames from now on: `RenderOptions.selection` is not
        looked at. Not copied. None, and after `load` in other places: all are drawn, none stands out."""
        ...

    def render(self, camera: Camera, options: RenderOptions,
               rgba: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Colour (premultiplied, over black) and alpha (H, W, 4), in `rgba` or a new float32 tensor, and, if asked
        for, accumulated depth (H, W) float32. Whole unless `overflowed()` says otherwise."""
        ...

    def overflowed(self) -> bool:
        """Whether the last picture lacks Gaussians, and has to be rendered again. Waits for it."""
        ...

    def close(self) -> None: ...


class PlainFrame:
    """See `Frame`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.failure = self.thinned = ""
        self._scene: tuple[torch.Tensor, ...] | None = None
        self._flags: torch.Tensor | None = None
        self._degree = 0

    def load(self, means: torch.Tensor, quats: torch.Tensor, scales: torch.Tensor, opacities: torch.Tensor,
             sh0: torch.Tensor, shN: torch.Tensor) -> None:
        self._degree = SH_REST.index(shN.shape[1])
        self._scene = means, quats, scales, opacities, _together(sh0, shN)
        self._flags = None

    def select(self, flags: torch.Tensor | None) -> None:
        self._flags = flags

    def render(self, camera: Camera, options: RenderOptions,
               rgba: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
        if options.paint not in PLAIN_PAINTS:
            raise RendererError(f"gsplat by itself does not draw {options.paint!r}; it draws {', '.join(PLAIN_PAINTS)}")
        size = camera.height, camera.width
        if rgba is None:
            rgba = torch.empty((*size, 4), dtype=torch.float32, device=self._device)
        if self._scene is None or len(self._scene[0]) == 0:
            return rgba.zero_(), torch.zeros(size, device=self._device) if options.depth else None
        from gsplat import rasterization

        means, quats, scales, opacities, colors = self._scene
        degree: int | None = self._degree if options.sh_degree is None else min(options.sh_degree, self._degree)
        viewmat, K = _upload(camera, self._device)
        if self._flags is not None or options.paint == "normals":
            colors, degree = self._colors(options, viewmat[0], camera.model == "ortho", degree), None
        if self._flags is not None:
            opacities = opacities.masked_fill((self._flags & HIDDEN).bool(), 0.0)
        if options.scale != 1.0:
            scales = scales * options.scale
        opacities = self._affordable(opacities, scales, (viewmat, K), camera, options)
        picture, alphas, _ = rasterization(
            means, quats, scales, opacities, colors, viewmat, K, camera.width, camera.height, near_plane=camera.near,
            far_plane=camera.far, eps2d=EPS_2D, sh_degree=degree, packed=False,
            render_mode="RGB+D" if options.depth else "RGB", rasterize_mode=options.mode, camera_model=camera.model)
        rgba[..., :3].copy_(picture[0, ..., :3].clamp_max(COLOR_MAX))
        rgba[..., 3:].copy_(alphas[0])
        return rgba, picture[0, ..., 3].contiguous() if options.depth else None

    def _affordable(self, opacities: torch.Tensor, scales: torch.Tensor, matrices: tuple[torch.Tensor, torch.Tensor],
                    camera: Camera, options: RenderOptions) -> torch.Tensor:
        """(N,) opacities, 0 for the farthest Gaussians whose pairs with tiles would be too many: gsplat makes room for
        all of them, however many these are."""
        from gsplat import fully_fused_projection

        assert self._scene is not None
        means, quats = self._scene[:2]
        radii, centers, depths, *_ = fully_fused_projection(
            means, None, quats, scales, *matrices, camera.width, camera.height, eps2d=EPS_2D, near_plane=camera.near,
            far_plane=camera.far, camera_model=camera.model, opacities=opacities)
        self.thinned = ""
        ends: Any = torch.tensor([-(-camera.width // TILE), -(-camera.height // TILE)], device=self._device)
        reach, centers = radii[0].float() / TILE, centers[0] / TILE
        sides = torch.minimum((centers + reach).ceil().clamp_min(0), ends) - (centers - reach).floor().clamp_min(0)
        counts = torch.where((radii[0] > 0).all(-1), sides.clamp_min(0).prod(-1), 0.0).long()
        total = int(counts.sum())
        if total <= PAIRS_MAX:
            return opacities
        order = torch.argsort(depths[0])
        spent = counts[order].cumsum(0)
        self.thinned = words(total, PAIRS_MAX)
        return opacities.index_fill(0, order[spent > PAIRS_MAX], 0.0)

    def _colors(self, options: RenderOptions, viewmat: torch.Tensor, ortho: bool, degree: int) -> torch.Tensor:
        """(N, 3) RGB: normals or what spherical harmonics make, with marks."""
        from gsplat import quat_scale_to_covar_preci, spherical_harmonics

        assert self._scene is not None
        means, quats, scales, _, colors = self._scene
        rotation = viewmat[:3, :3]
        if options.paint == "normals":
            shortest = torch.nn.functional.one_hot(scales.argmin(-1), 3).to(scales.dtype)
            # n n^T is what is left of a covariance with this axis only: of it, the column with the largest entry is n.
            covariance: Any = quat_scale_to_covar_preci(quats, shortest, True, False, False)[0]
            column = covariance.diagonal(dim1=1, dim2=2).argmax(-1)
            n = covariance.gather(2, column[:, None, None].expand(-1, 3, 1))[..., 0]
            n = torch.nn.functional.normalize(n, dim=-1) @ rotation.T
            towards = n[:, 2] if ortho else (n * (means @ rotation.T + viewmat[:3, 3])).sum(-1)
            rgb = 0.5 + 0.5 * torch.where(towards[:, None] > 0, -n, n)
        else:
            position = -rotation.T @ viewmat[:3, 3]
            rgb = (spherical_harmonics(degree, means - position, colors) + 0.5).clamp_min(0.0)
        if self._flags is not None:
            marked = (self._flags & MARKED).bool()[:, None]
            rgb = torch.where(marked, (rgb + rgb.new_tensor(MARK_COLOR)) / 2, rgb)
        return rgb

    def overflowed(self) -> bool:
        return False

    def close(self) -> None:
        self._scene = self._flags = None


def possible(frame: Frame, options: RenderOptions) -> tuple[RenderOptions, str]:
    """What this frame can draw instead of what it cannot, and why; "" where it can."""
    if not isinstance(frame, PlainFrame) or options.paint in PLAIN_PAINTS:
        return options, ""
    return replace(options, paint="color"), (
        f"gsplat by itself does not draw {options.paint!r}, so colour is shown; it draws {', '.join(PLAIN_PAINTS)}; "
        "SPLATVIEW_RENDERER=gl draws all of them")


def make_frame(device: torch.device) -> tuple[Frame, str]:
    """The best there is, and why it is not the faster one ("" if it is)."""
    try:
        from splatview_viewer.render.gsplat.frame_graph import FrameGraph

        return FrameGraph(device), ""
    except Exception as e:  # whatever a compiler or driver has to say: the plain way needs neither
        return PlainFrame(device), f"plain gsplat: {' '.join(str(e).split())[:160]}"


def _together(sh0: torch.Tensor, shN: torch.Tensor) -> torch.Tensor:
    """(N, K, 3) of both; without a copy where they are parts of one such tensor."""
    n, rest = len(sh0), shN.shape[1]
    row = 3 * (rest + 1)
    if rest == 0:
        return sh0[:, None].contiguous()
    if (shN.data_ptr() == sh0.data_ptr() + 12 and sh0.stride() == (row, 1) and shN.stride() == (row, 3, 1)):
        return sh0.as_strided((n, rest + 1, 3), (row, 3, 1))
    return torch.cat([sh0[:, None], shN], dim=1)


def _upload(camera: Camera, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """viewmats (1, 4, 4) and Ks (1, 3, 3), through pinned memory so that nothing waits."""
    numbers: Any = torch.empty(25, dtype=torch.float32, pin_memory=True)
    numbers.numpy()[:] = np.concatenate([camera.viewmat.ravel(), camera.K.ravel()])
    numbers = numbers.to(device, non_blocking=True)
    return numbers[:16].view(1, 4, 4), numbers[16:].view(1, 3, 3)
