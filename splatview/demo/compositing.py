"""Composite projected Gaussians front to back on the CPU, with gradients.

This takes a few large tensor operations. The picture is cut into square tiles. Each
tile has the list of Gaussians that touch it, nearest first. Tiles whose lists are about
equally long are drawn together as one (tiles, pixels, Gaussians) block, small enough
for the cache. Inside a tile the exponent of every Gaussian is a quadratic polynomial of
the pixel's position, so that all exponents of a block are one matrix product, and so
are the sums that the backward pass needs.

The rules are those of gsplat 1.5.3's rasteriser
(gsplat/cuda/csrc/RasterizeToPixels3DGSFwd.cu): pixel centres at +0.5, alpha =
min(0.999, opacity exp(-sigma)), nothing below 1/255, and the list ends before the
Gaussian that would take the transmittance to 1e-4 or below. Its test for sigma < 0 is
not needed: a covariance that was blurred is positive definite, and what rounding leaves
below zero belongs to the centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterator

ALPHA_MIN = 1.0 / 255.0
ALPHA_MAX = 0.999
TRANSMITTANCE_MIN = 1e-4
TILE = 8
"""Side of a tile in pixels. Larger tiles spend more on Gaussians that miss most of the
tile."""
BLOCK_ELEMENTS = 1 << 17
"""Elements of one block: half a megabyte of float32, so that the few arrays in use stay
in the cache."""
_LOG_ZERO = -1e4
"""Logarithm of an alpha that is 0 in floating point."""


@dataclass(frozen=True)
class Tiling:
    """The Gaussians that touch each tile."""

    width: int
    height: int
    """The picture's size in pixels."""
    columns: int
    rows: int
    gaussians: torch.Tensor
    """(P,) int64, the Gaussian of each (tile, Gaussian) pair; by tile, nearest
    first."""
    tiles: torch.Tensor
    """(P,) int64, the tile of each pair, in row-major order of tiles, ascending."""
    counts: np.ndarray
    """(T,) int64, pairs per tile."""

    def blocks(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the tiles (t,) and pairs (t, K) of each block.

        The tiles have lists of similar length, padded with P to the longest.
        """
        starts = np.concatenate([[0], np.cumsum(self.counts)])
        order = np.argsort(-self.counts, kind="stable")[: np.count_nonzero(self.counts)]
        while len(order):
            longest = int(self.counts[order[0]])
            tile_count = max(1, BLOCK_ELEMENTS // (longest * TILE * TILE))
            tiles = order[:tile_count]
            order = order[tile_count:]
            rank = np.arange(longest)
            is_pair = rank < self.counts[tiles, None]
            pairs = np.where(is_pair, starts[tiles, None] + rank, starts[-1])
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
        extents: (N, 2) half the width and height of the box outside which a Gaussian's
            alpha is below 1/255; zero or less: not drawn.
        depths: (N,) camera z.
        width: the width of the picture in pixels.
        height: the height of the picture in pixels.
    """
    columns = -(-width // TILE)
    rows = -(-height // TILE)
    centre = means2d.detach().double().numpy()
    half = extents.detach().double().numpy()
    # A pixel belongs to the box when its centre does; without any, the Gaussian touches
    # nothing.
    low = np.ceil(centre - half - 0.5)
    high = np.floor(centre + half - 0.5)
    has_pixels = (half > 0).all(1) & (high >= low).all(1)
    is_inside = (high >= 0).all(1) & (low < [width, height]).all(1)
    is_drawn = has_pixels & is_inside & np.isfinite(centre).all(1)
    drawn = np.flatnonzero(is_drawn)
    drawn = drawn[np.argsort(depths.detach().numpy()[drawn], kind="stable")]
    low = np.maximum(low[drawn], 0).astype(np.int64) // TILE
    high = np.minimum(high[drawn], [width - 1, height - 1]).astype(np.int64) // TILE
    tiles_across, tiles_down = (high - low + 1).T
    pair_counts = tiles_across * tiles_down
    # Of each pair, the position of its Gaussian in `drawn`, and its number among the
    # pairs of that Gaussian.
    owner = np.repeat(np.arange(len(drawn)), pair_counts)
    first_pairs = np.cumsum(pair_counts) - pair_counts
    rank = np.arange(len(owner)) - np.repeat(first_pairs, pair_counts)
    row = low[owner, 1] + rank // tiles_across[owner]
    column = low[owner, 0] + rank % tiles_across[owner]
    tiles = row * columns + column
    # A stable sort by tile keeps the order by depth within each; 16-bit keys take
    # numpy's radix sort.
    keys = tiles.astype(np.uint16) if columns * rows <= 1 << 16 else tiles
    order = np.argsort(keys, kind="stable")
    return Tiling(
        width=width,
        height=height,
        columns=columns,
        rows=rows,
        gaussians=torch.from_numpy(drawn[owner[order]]),
        tiles=torch.from_numpy(tiles[order]),
        counts=np.bincount(tiles, minlength=columns * rows),
    )


class _BlockResult(NamedTuple):
    """The numbers of a block that its gradients need; K Gaussians a tile."""

    tiles: torch.Tensor
    """(t,)."""
    pairs: torch.Tensor
    """(t, K)."""
    odds: torch.Tensor
    """(t, pixels, K) alpha / (1 - alpha)."""
    weights: torch.Tensor
    """(t, pixels, K) alpha times the transmittance before it."""
    is_clamped: torch.Tensor | None
    """(t, pixels, K) alpha was over ALPHA_MAX; None if it was nowhere."""
    features: torch.Tensor
    """(t, K, C + 1)."""


class Composite(torch.autograd.Function):
    """Composites features front to back.

    `apply` takes means2d (N, 2) in pixels, conics (N, 3), the upper triangle of the
    inverse 2-D covariance, opacities (N,) in [0, 1], features (N, C), colours or
    anything else to be blended, and a tiling. It returns (H, W, C) features,
    premultiplied, and (H, W) alpha. Gradients flow to all four tensors, in their own
    float dtype.
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
        """Return the blended features and alpha."""
        gaussians = tiling.gaussians
        channels = features.shape[1]
        basis = _basis(means2d.dtype)
        # The centre of each pair's Gaussian, from the centre of its tile.
        u = means2d[gaussians, 0] - _centres(tiling.tiles % tiling.columns)
        v = means2d[gaussians, 1] - _centres(tiling.tiles // tiling.columns)
        a, b, c = conics[gaussians].unbind(1)
        # log alpha = log opacity - a/2 (x-u)^2 - b (x-u)(y-v) - c/2 (y-v)^2, expanded
        # in powers of x and y.
        coefficients = [
            opacities.log()[gaussians] - 0.5 * (a * u * u + c * v * v) - b * u * v,
            a * u + b * v,
            b * u + c * v,
            -0.5 * a,
            -b,
            -0.5 * c,
        ]
        polynomials = functional.pad(torch.stack(coefficients, 1), (0, 0, 0, 1))
        # The padding of blocks has an alpha of 0.
        polynomials[-1, 0] = _LOG_ZERO
        # One more column of ones: what it blends to is the picture's alpha.
        pair_features = functional.pad(features[gaussians], (0, 1), value=1.0)
        pair_features = functional.pad(pair_features, (0, 0, 0, 1))
        may_clamp = bool((opacities > ALPHA_MAX).any())
        tile_count = tiling.rows * tiling.columns
        blended = means2d.new_zeros(tile_count, TILE * TILE, channels + 1)
        results = []
        for tiles, pairs in tiling.blocks():
            exponents = torch.matmul(basis, polynomials[pairs].transpose(1, 2))
            odds, weights, is_clamped = _blend_weights(exponents, may_clamp)
            block_features = pair_features[pairs]
            blended[tiles] = torch.bmm(weights, block_features)
            if any(ctx.needs_input_grad):
                results.append(
                    _BlockResult(
                        tiles, pairs, odds, weights, is_clamped, block_features
                    )
                )
        ctx.save_for_backward(opacities, blended, basis, u, v, a, b, c)
        ctx.blocks = results
        ctx.tiling = tiling
        picture = _to_picture(blended, tiling)
        return picture[..., :channels], picture[..., channels]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients by the four tensors.

        With w_k = alpha_k T_k and g_k = <grad of the pixel, features of k>, the
        gradient by the log of alpha_k is w_k g_k - alpha_k / (1 - alpha_k) * sum over j
        > k of w_j g_j: what k adds less what it hides.
        """
        opacities, blended, basis, u, v, a, b, c = ctx.saved_tensors
        tiling = ctx.tiling
        channels = blended.shape[2] - 1
        picture_grad = torch.cat([grads[0], grads[1][..., None]], -1)
        grad_by_pixel = _to_tiles(picture_grad, tiling)
        # The sum over all j of w_j g_j.
        total = (grad_by_pixel * blended).sum(-1, keepdim=True)
        # One more row each, for the padding of blocks.
        pair_moments = blended.new_zeros(len(u) + 1, 6)
        by_feature = blended.new_zeros(len(u) + 1, channels)
        for block in ctx.blocks:
            grad = grad_by_pixel[block.tiles]
            by_feature[block.pairs] = torch.bmm(
                block.weights.transpose(1, 2), grad[..., :channels]
            )
            contribution = torch.bmm(grad, block.features.transpose(1, 2))
            contribution.mul_(block.weights)
            # Minus the sum over j > k of w_j g_j.
            minus_hidden = torch.cumsum(contribution, -1).sub_(total[block.tiles])
            by_log_alpha = contribution.addcmul_(block.odds, minus_hidden)
            if block.is_clamped is not None:
                by_log_alpha.masked_fill_(block.is_clamped, 0)
            pair_moments[block.pairs] = torch.matmul(
                by_log_alpha.transpose(1, 2), basis
            )
        m, mx, my, mxx, mxy, myy = pair_moments[:-1].unbind(1)
        # First moments about the Gaussian's centre.
        dx = mx - u * m
        dy = my - v * m
        by_shape = torch.stack(
            [
                a * dx + b * dy,
                b * dx + c * dy,
                -0.5 * (mxx - u * (mx + dx)),
                -(mxy - u * my - v * dx),
                -0.5 * (myy - v * (my + dy)),
                m / opacities[tiling.gaussians],
            ],
            1,
        )
        by_pair = torch.cat([by_shape, by_feature[:-1]], 1)
        by_gaussian = blended.new_zeros(len(opacities), 6 + channels)
        by_gaussian.index_add_(0, tiling.gaussians, by_pair)
        return (
            by_gaussian[:, :2],
            by_gaussian[:, 2:5],
            by_gaussian[:, 5],
            by_gaussian[:, 6:],
            None,
        )


def _basis(dtype: torch.dtype) -> torch.Tensor:
    """Return the monomials 1, x, y, x^2, xy, y^2 at each pixel of a tile, (pixels, 6).

    x and y are counted from the tile's centre: rounding harms least there.
    """
    offsets = torch.arange(TILE, dtype=dtype) + 0.5 - TILE / 2
    y, x = (v.reshape(-1) for v in torch.meshgrid(offsets, offsets, indexing="ij"))
    return torch.stack([torch.ones_like(x), x, y, x * x, x * y, y * y], 1)


def _centres(indices: torch.Tensor) -> torch.Tensor:
    """Return the centres of columns or rows of tiles, pixels."""
    return indices * TILE + TILE / 2


def _blend_weights(
    exponents: torch.Tensor, may_clamp: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return odds, weights and clamped alphas of a block, as `_BlockResult` has them.

    In place where possible: these arrays take most of the time.

    Args:
        exponents: (t, pixels, K) log alpha; overwritten.
        may_clamp: an alpha can be over ALPHA_MAX.
    """
    alpha = exponents.exp_()
    is_clamped = alpha > ALPHA_MAX if may_clamp else None
    # torch's threshold keeps what is greater; the bound is one step lower so that 1/255
    # itself is kept.
    cutoff = float(np.nextafter(np.float32(ALPHA_MIN), np.float32(0)))
    torch.threshold_(alpha.clamp_(max=ALPHA_MAX), cutoff, 0.0)
    transparency = 1 - alpha
    transmittance = torch.cumprod(transparency, -1)
    weights = torch.threshold_(transmittance, TRANSMITTANCE_MIN, 0.0)
    odds = alpha.div_(transparency)
    # The transmittance behind a Gaussian, times its odds, is that before it times
    # alpha.
    weights.mul_(odds)
    return odds, weights, is_clamped


def _to_picture(tiles: torch.Tensor, tiling: Tiling) -> torch.Tensor:
    """Return the pixels of tiles (T, pixels, C) as a picture (H, W, C)."""
    columns = tiles.permute(2, 1, 0).reshape(1, -1, len(tiles))
    size = (tiling.rows * TILE, tiling.columns * TILE)
    canvas = functional.fold(columns, size, TILE, stride=TILE)[0]
    picture = canvas[:, : tiling.height, : tiling.width]
    return picture.permute(1, 2, 0).contiguous()


def _to_tiles(picture: torch.Tensor, tiling: Tiling) -> torch.Tensor:
    """Return a picture (H, W, C) as tiles (T, pixels, C); zeros beyond its edge."""
    right = tiling.columns * TILE - tiling.width
    bottom = tiling.rows * TILE - tiling.height
    canvas = functional.pad(picture.permute(2, 0, 1), (0, right, 0, bottom))
    columns = functional.unfold(canvas[None], TILE, stride=TILE)
    tiles = columns.reshape(picture.shape[2], TILE * TILE, -1)
    return tiles.permute(2, 1, 0).contiguous()
