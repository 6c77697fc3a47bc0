"""Light that comes through the Gaussians of a picture, from any depth.

A coarse picture of layers: each cell of a few pixels holds the share of light that passes
all Gaussians up to a depth. It needs no order of them, unlike a picture.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.render.base import ALPHA_MAX
from splatview_viewer.render.picking import blur_covariance, project_root

if TYPE_CHECKING:
    import torch

    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.scene.scene import GaussianScene

_CELLS = (6, 8, 12, 16, 24, 32, 48, 96)
"""Pixels along the side of a cell, the finest first."""
_MAX_CELLS = 1 << 16
_MAX_PAIRS = 1 << 20
"""Pairs of a Gaussian and a cell that it covers; with more of them, cells are coarser."""
_SMALL = 0.5
"""Standard deviation, in cells, up to which a Gaussian counts in the cell of its centre
alone."""
_REACH_SIGMAS = 2.0
"""Standard deviations beyond which a large Gaussian hides nothing."""
_LAYERS = 96
"""Depths that are told apart."""
_EVEN_SHARE = 0.5
"""Share of the layers that lie evenly in the logarithm of depth, so that little in front
of much is told apart from it. The others lie so that each has as many Gaussians."""
_OUTLIERS = 0.002
"""Share of the farthest Gaussians, for which there are no even layers."""
_DEPTH_STEPS = 4096
_DEPTH_SAMPLE = 1 << 14
"""Gaussians of which the depths of layers are taken."""


class Centres(NamedTuple):
    """Centres and sizes of Gaussians in a picture, each (N,) float32."""

    x: torch.Tensor
    y: torch.Tensor
    """Pixels."""
    right: torch.Tensor
    down: torch.Tensor
    depth: torch.Tensor
    """Camera axes, world units."""
    sigma: torch.Tensor
    """The largest standard deviation, pixels."""
    area: torch.Tensor
    """The product of the two largest standard deviations, square pixels."""
    is_drawn: torch.Tensor
    """(N,) bool."""


class LayeredLight:
    """The light that passes Gaussians, by cells of the picture and layers of depth."""

    def __init__(self, scene: GaussianScene, centres: Centres, camera: Camera) -> None:
        """Gather the light of a scene's Gaussians as a camera sees them."""
        import torch

        self._depths = _Depths(centres.depth[centres.is_drawn])
        self._cell, pairs = _choose_cell(centres, camera)
        self._columns = ceil_div(camera.width, self._cell)
        self._rows = ceil_div(camera.height, self._cell)
        cells = self._columns * self._rows
        self._layers = self._depths.layer(centres.depth)
        logarithms = torch.zeros(cells, _LAYERS, device=centres.x.device)
        is_small = centres.sigma <= _SMALL * self._cell
        self._add_small(logarithms.view(-1), scene, centres, is_small)
        is_large = centres.is_drawn & ~is_small
        # Where even the coarsest cells are too many, some stand for all.
        step = max(int(pairs / _MAX_PAIRS), 1)
        indices = is_large.nonzero()[::step, 0]
        if len(indices):
            large = torch.zeros(cells * _LAYERS, device=centres.x.device)
            self._add_large(large, scene, centres, indices, camera)
            logarithms += step * large.view(cells, _LAYERS)
        # What lies in a layer hides nothing of that layer.
        self._passed = (logarithms.cumsum(1) - logarithms).exp_().view(-1)

    def _entry(
        self, column: torch.Tensor, row: torch.Tensor, layer: torch.Tensor
    ) -> torch.Tensor:
        """Return the index of a cell's layer."""
        return (row * self._columns + column) * _LAYERS + layer

    def _cell_of(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        """Return the column and the row of the cells that are nearest to pixels."""
        # What is not a number is in no cell, and is left out elsewhere.
        column = (x / self._cell).nan_to_num_(0.0).clamp_(0, self._columns - 1).int()
        row = (y / self._cell).nan_to_num_(0.0).clamp_(0, self._rows - 1).int()
        return [column, row]

    def _add_small(
        self,
        logarithms: torch.Tensor,
        scene: GaussianScene,
        centres: Centres,
        is_small: torch.Tensor,
    ) -> None:
        """Add the logarithm of what small Gaussians let pass in the cells they are in."""
        import torch

        cell = self._cell
        counts = centres.is_drawn & is_small
        counts &= (centres.x >= 0) & (centres.x < self._columns * cell)
        counts &= (centres.y >= 0) & (centres.y < self._rows * cell)
        share = centres.area * (2 * math.pi / cell**2)
        alpha = scene.opacities * share.clamp_(max=1)
        alpha = torch.where(counts, alpha, 0.0).clamp_(max=ALPHA_MAX)
        column, row = self._cell_of(centres.x, centres.y)
        entry = self._entry(column, row, self._layers)
        entry = torch.where(counts, entry, 0)
        logarithms.index_add_(0, entry, torch.log1p(-alpha))

    def _add_large(
        self,
        logarithms: torch.Tensor,
        scene: GaussianScene,
        centres: Centres,
        indices: torch.Tensor,
        camera: Camera,
    ) -> None:
        """Add the logarithm of what Gaussians let pass in all cells that they cover."""
        import torch

        axes = (centres.right, centres.down, centres.depth)
        local = [axis[indices] for axis in axes]
        _, root = project_root(
            scene.quats[indices].float(), scene.scales[indices].float(), local, camera
        )
        xx, xy, yy = blur_covariance(root).entries
        x = centres.x[indices]
        y = centres.y[indices]
        reach_x = _REACH_SIGMAS * xx.sqrt()
        reach_y = _REACH_SIGMAS * yy.sqrt()
        low_column, low_row = self._cell_of(x - reach_x, y - reach_y)
        high_column, high_row = self._cell_of(x + reach_x, y + reach_y)
        width = high_column - low_column + 1
        counts = width * (high_row - low_row + 1)
        owner = torch.repeat_interleave(counts)
        first = counts.cumsum(0) - counts
        position = torch.arange(len(owner), device=owner.device) - first[owner]
        row_offset = torch.div(position, width[owner], rounding_mode="floor")
        row = low_row[owner] + row_offset
        column = low_column[owner] + position - row_offset * width[owner]
        dx = (column + 0.5) * self._cell - x[owner]
        dy = (row + 0.5) * self._cell - y[owner]
        det = xx * yy - xy * xy
        exponent = (yy / det)[owner] * dx * dx + (xx / det)[owner] * dy * dy
        exponent = 0.5 * exponent - (xy / det)[owner] * dx * dy
        alpha = scene.opacities[indices][owner] * (-exponent).exp_()
        # A covariance that is not a number covers nothing.
        alpha = alpha.nan_to_num_(0.0).clamp_(0, ALPHA_MAX)
        entry = self._entry(column, row, self._layers[indices][owner])
        logarithms.index_add_(0, entry, torch.log1p(-alpha))

    def passed(
        self, x: torch.Tensor, y: torch.Tensor, depth: torch.Tensor
    ) -> torch.Tensor:
        """Return the share of light that comes from places in the picture, (M,)."""
        column, row = self._cell_of(x, y)
        entry = self._entry(column, row, self._depths.layer(depth))
        return self._passed[entry]


class _Depths:
    """Layers of depth."""

    def __init__(self, depths: torch.Tensor) -> None:
        """Divide depths (M,)."""
        import torch

        step = max(len(depths) // _DEPTH_SAMPLE, 1) | 1
        sample = depths[::step].sort().values
        if not len(sample):
            sample = torch.ones(1, device=depths.device)
        # The logarithm, as scenes reach far.
        self._low = sample[0].log()
        self._factor = _DEPTH_STEPS / (sample[-1].log() - self._low).clamp(min=1e-6)
        steps = torch.arange(_DEPTH_STEPS + 1, device=depths.device)
        values = (steps / self._factor + self._low).exp()
        rank = torch.searchsorted(sample, values) / len(sample)
        farthest = sample[int((len(sample) - 1) * (1 - _OUTLIERS))].log() - self._low
        even = steps / (self._factor * farthest.clamp(min=1e-6))
        share = _EVEN_SHARE * even.clamp_(max=1) + (1 - _EVEN_SHARE) * rank
        self._layers = (share * _LAYERS).clamp_(max=_LAYERS - 1).int()

    def layer(self, depth: torch.Tensor) -> torch.Tensor:
        """Return the layers of depths, (M,) int32."""
        step = (depth.clamp(min=1e-20).log_() - self._low) * self._factor
        index = step.nan_to_num_(0.0).clamp_(0, _DEPTH_STEPS).int()
        return self._layers[index]


def _choose_cell(centres: Centres, camera: Camera) -> tuple[int, float]:
    """Choose the finest cells that are few enough for all Gaussians.

    Returns their pixels along the side, and about how many pairs there are of a large
    Gaussian and a cell that it covers.
    """
    sigma = centres.sigma[centres.is_drawn & (centres.sigma > _SMALL * _CELLS[0])]
    pairs = 0.0
    for cell in _CELLS:
        columns_of_picture = ceil_div(camera.width, cell)
        rows_of_picture = ceil_div(camera.height, cell)
        if cell != _CELLS[-1] and columns_of_picture * rows_of_picture > _MAX_CELLS:
            continue
        large = sigma[sigma > _SMALL * cell]
        reach = 2 * _REACH_SIGMAS * large / cell + 1
        columns = reach.clamp(max=columns_of_picture)
        rows = reach.clamp(max=rows_of_picture)
        pairs = float((columns * rows).sum())
        if pairs <= _MAX_PAIRS:
            return cell, pairs
    return _CELLS[-1], pairs
