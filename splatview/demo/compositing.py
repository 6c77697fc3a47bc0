"""Front-to-back compositing of projected Gaussians on the CPU, differentiable, in a few large tensor operations.

The picture is cut into square tiles. Each tile has the list of Gaussians that touch it, nearest first. Tiles whose
lists are about equally long are drawn together as one (tiles, pixels, Gaussians) block, small enough for the cache.
Inside a tile the exponent of every Gaussian is a quadratic polynomial of the pixel's place, so that all exponents of a
block are one matrix product, and so are the sums that the backward pass needs.

The rules are those of gsplat 1.5.3's rasteriser (gsplat/cuda/csrc/RasterizeToPixels3DGSFwd.cu): pixel centres at +0.5,
alpha = min(0.999, opacity exp(-sigma)), nothing below 1/255, and the list ends before the Gaussian that would take the
transmittance to 1e-4 or below. Its test for sigma < 0 is not needed: a covariance that was blurred is positive
definite, and what rounding leaves below zero belongs to the centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterator

ALPHA_MIN = 1.0 / 255.0
ALPHA_MAX = 0.999
TRANSMITTANCE_MIN = 1e-4
TILE = 8
"""Side of a tile in pixels. Larger tiles spend more on Gaussians that miss most of the tile."""
BLOCK_ELEMENTS = 1 << 17
"""Elements of one block: half a megabyte of float32, so that the few arrays in use stay in the cache."""


@dataclass(frozen=True)
class Tiling:
    """The Gaussians that touch each tile."""

    width: int
    height: int
    """The picture's size in pixels."""
    columns: int
    rows: int
    gaussians: torch.Tensor
    """(P,) int64, the Gaussian of each (tile, Gaussian) pair; by tile, nearest first."""
    tiles: torch.Tensor
    """(P,) int64, the tile of each pair, in row-major order of tiles, ascending."""
    counts: np.ndarray
    """(T,) int64, pairs per tile."""

    def blocks(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """(tiles (t,), pairs (t, K)) per block: tiles of similar list length, padded with P to the longest."""
        starts = np.concatenate([[0], np.cumsum(self.counts)])
        order = np.argsort(-self.counts, kind="stable")[: np.count_nonzero(self.counts)]
        while len(order):
            longest = int(self.counts[order[0]])
            tiles, order = np.split(
                order, [max(1, BLOCK_ELEMENTS // (longest * TILE * TILE))]
            )
            rank = np.arange(longest)
            pairs = np.where(
                rank < self.counts[tiles, None], starts[tiles, None] + rank, starts[-1]
            )
            yield torch.from_numpy(tiles), torch.from_numpy(pairs)


def tile(
    means2d: torch.Tensor,
    extents: torch.Tensor,
    depths: torch.Tensor,
    width: int,
    height: int,
) -> Tiling:
    """Sort Gaussians into tiles.

    Args:
        means2d: (N, 2) centres in pixels.
        extents: (N, 2) half the width and height of the box outside which a Gaussian's alpha is below 1/255; zero or
            less: not drawn.
        depths: (N,) camera z.
    """
    columns = -(-width // TILE)
    rows = -(-height // TILE)
    centre = means2d.detach().double().numpy()
    half = extents.detach().double().numpy()
    # A pixel belongs to the box when its centre does; without any, the Gaussian touches nothing.
    low = np.ceil(centre - half - 0.5)
    high = np.floor(centre + half - 0.5)
    drawn = (half > 0).all(1) & (high >= low).all(1)
    drawn &= (
        (high >= 0).all(1) & (low < [width, height]).all(1) & np.isfinite(centre).all(1)
    )
    index = np.flatnonzero(drawn)
    index = index[np.argsort(depths.detach().numpy()[index], kind="stable")]
    low = np.maximum(low[index], 0).astype(np.int64) // TILE
    high = np.minimum(high[index], [width - 1, height - 1]).astype(np.int64) // TILE
    across, down = (high - low + 1).T
    per_gaussian = across * down
    which = np.repeat(np.arange(len(index)), per_gaussian)
    nth = np.arange(len(which)) - np.repeat(
        np.cumsum(per_gaussian) - per_gaussian, per_gaussian
    )
    tiles = (
        (low[which, 1] + nth // across[which]) * columns
        + low[which, 0]
        + nth % across[which]
    )
    # A stable sort by tile keeps the order by depth within each; 16-bit keys take numpy's radix sort.
    order = np.argsort(
        tiles.astype(np.uint16) if columns * rows <= 1 << 16 else tiles, kind="stable"
    )
    tiles = tiles[order]
    return Tiling(
        width,
        height,
        columns,
        rows,
        torch.from_numpy(index[which[order]]),
        torch.from_numpy(tiles),
        np.bincount(tiles, minlength=columns * rows),
    )


class Composite(torch.autograd.Function):
    """Composite features front to back: ((H, W, C) features, premultiplied; (H, W) alpha).

    `apply` takes means2d (N, 2) in pixels, conics (N, 3), the upper triangle of the inverse 2-D covariance, opacities
    (N,) in [0, 1], features (N, C), colours or anything else to be blended, and a tiling. Gradients flow to all four
    tensors, in their own float dtype.
    """

    @staticmethod
    def forward(
        ctx: Any,
        means2d: torch.Tensor,
        conics: torch.Tensor,
        opacities: torch.Tensor,
        features: torch.Tensor,
        tiling: Tiling,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        g = tiling.gaussians
        channels = features.shape[1]
        at = (
            torch.arange(TILE, dtype=means2d.dtype) + 0.5 - TILE / 2
        )  # from the tile's centre: rounding harms least
        y, x = (v.reshape(-1) for v in torch.meshgrid(at, at, indexing="ij"))
        basis = torch.stack([torch.ones_like(x), x, y, x * x, x * y, y * y], 1)
        u = means2d[g, 0] - (tiling.tiles % tiling.columns * TILE + TILE / 2)
        v = means2d[g, 1] - (tiling.tiles // tiling.columns * TILE + TILE / 2)
        a, b, c = conics[g].unbind(1)
        # log alpha = log opacity - a/2 (x-u)^2 - b (x-u)(y-v) - c/2 (y-v)^2, expanded in powers of x and y.
        polynomial = torch.stack(
            [
                opacities.log()[g] - 0.5 * (a * u * u + c * v * v) - b * u * v,
                a * u + b * v,
                b * u + c * v,
                -0.5 * a,
                -b,
                -0.5 * c,
            ],
            1,
        )
        polynomial = functional.pad(polynomial, (0, 0, 0, 1))
        polynomial[-1, 0] = -1e4  # the padding of blocks has an alpha of 0
        # One more column of ones: what it blends to is the picture's alpha.
        weighted = functional.pad(
            functional.pad(features[g], (0, 1), value=1.0), (0, 0, 0, 1)
        )
        may_clamp = bool((opacities > ALPHA_MAX).any())
        below = float(np.nextafter(np.float32(ALPHA_MIN), np.float32(0)))
        out = means2d.new_zeros(tiling.rows * tiling.columns, TILE * TILE, channels + 1)
        saved = []
        for tiles, pairs in tiling.blocks():
            alpha = torch.matmul(
                basis, polynomial[pairs].transpose(1, 2)
            ).exp_()  # (t, pixels, K)
            clamped = alpha > ALPHA_MAX if may_clamp else None
            # torch's threshold keeps what is greater; the bound is one step lower so that 1/255 itself is kept.
            torch.threshold_(alpha.clamp_(max=ALPHA_MAX), below, 0.0)
            keep = 1 - alpha
            weight = torch.threshold_(torch.cumprod(keep, -1), TRANSMITTANCE_MIN, 0.0)
            odds = alpha.div_(keep)
            weight.mul_(odds)  # alpha times the transmittance before it
            block_features = weighted[pairs]
            out[tiles] = torch.bmm(weight, block_features)
            if any(ctx.needs_input_grad):
                saved.append((tiles, pairs, odds, weight, clamped, block_features))
        ctx.save_for_backward(opacities, out, basis, u, v, a, b, c)
        ctx.blocks = saved
        ctx.tiling = tiling
        size = (tiling.rows * TILE, tiling.columns * TILE)
        whole = functional.fold(
            out.permute(2, 1, 0).reshape(1, -1, len(out)), size, TILE, stride=TILE
        )[0]
        picture = (
            whole[:, : tiling.height, : tiling.width].permute(1, 2, 0).contiguous()
        )
        return picture[..., :channels], picture[..., channels]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """With w_k = alpha_k T_k and g_k = <grad of the pixel, features of k>, the gradient by the log of alpha_k is
        w_k g_k - alpha_k / (1 - alpha_k) * sum over j > k of w_j g_j: what k adds less what it hides.
        """
        opacities, out, basis, u, v, a, b, c = ctx.saved_tensors
        tiling = ctx.tiling
        channels = out.shape[2] - 1
        padding = (
            0,
            tiling.columns * TILE - tiling.width,
            0,
            tiling.rows * TILE - tiling.height,
        )
        whole = functional.pad(
            torch.cat([grads[0], grads[1][..., None]], -1).permute(2, 0, 1), padding
        )
        by_pixel = functional.unfold(whole[None], TILE, stride=TILE).reshape(
            channels + 1, TILE * TILE, -1
        )
        by_pixel = by_pixel.permute(2, 1, 0).contiguous()
        total = (by_pixel * out).sum(-1, keepdim=True)  # sum over all j of w_j g_j
        # and the padding's
        moments = out.new_zeros(len(u) + 1, 6)
        by_feature = out.new_zeros(len(u) + 1, channels)
        for tiles, pairs, odds, weight, clamped, block_features in ctx.blocks:
            g = by_pixel[tiles]
            by_feature[pairs] = torch.bmm(weight.transpose(1, 2), g[..., :channels])
            contribution = torch.bmm(g, block_features.transpose(1, 2)).mul_(weight)
            unhidden = torch.cumsum(contribution, -1).sub_(total[tiles])
            by_log_alpha = contribution.addcmul_(odds, unhidden)
            if clamped is not None:
                by_log_alpha.masked_fill_(clamped, 0)
            moments[pairs] = torch.matmul(by_log_alpha.transpose(1, 2), basis)
        m, mx, my, mxx, mxy, myy = moments[:-1].unbind(1)
        # first moments about the Gaussian's centre
        dx = mx - u * m
        dy = my - v * m
        by_pair = torch.cat(
            [
                torch.stack(
                    [
                        a * dx + b * dy,
                        b * dx + c * dy,
                        -0.5 * (mxx - u * (mx + dx)),
                        -(mxy - u * my - v * dx),
                        -0.5 * (myy - v * (my + dy)),
                        m / opacities[tiling.gaussians],
                    ],
                    1,
                ),
                by_feature[:-1],
            ],
            1,
        )
        by_gaussian = out.new_zeros(len(opacities), 6 + channels).index_add_(
            0, tiling.gaussians, by_pair
        )
        return (
            by_gaussian[:, :2],
            by_gaussian[:, 2:5],
            by_gaussian[:, 5],
            by_gaussian[:, 6:],
            None,
        )
