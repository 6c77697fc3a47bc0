"""Few numbers, and few rows of numbers, that stand for many.

A codebook is made as Lloyd's algorithm does. A palette is made in two levels, as a tree
of vectors is: rows are divided into groups that are alike, and each group gets entries of
its own. The time grows with the rows, and hardly with the entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.core.threads import one_thread
from splatview_viewer.formats.common import silent

if TYPE_CHECKING:
    import torch

    from splatview_viewer.formats.common import Progress

CODES = 256
"""Numbers of a codebook, so that a byte names one."""
MOST_ENTRIES = 1 << 16
"""Entries of a palette, so that two bytes name one."""
_MOST_VALUES = 1 << 20
"""Values that a codebook is made from; of more, evenly spread ones."""
_QUANTILES = 4096
_CODE_ROUNDS = 20
_GROUPS = 256
"""Groups of rows that are alike: about the square root of the entries."""
_MOST_OF_GROUP = 1 << 10
"""Entries of a group, which bound the time that its rows take."""
_SAMPLES = 32
"""Rows for each entry that it is made from."""
_ROUNDS = 5
_QUOTA_ROUNDS = 10
_NEARLY_ZERO = 1e-300
_CHUNK = 1 << 14
"""Rows that are compared with all entries at a time."""


# -- numbers ---------------------------------------------------------------------------


def make_codebook(values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return 256 increasing numbers, (256,) float32, near all values of an array.

    The squared distances of the values to the nearest ones are as small as can be. An
    array of no more different values than that comes back without a loss.

    Args:
        values: of any shape.
        weights: over 0, how much the distance of each value counts; None: all the same.
    """
    step = ceil_div(values.size, _MOST_VALUES)
    sample = values.ravel()[::step].astype(np.float64)
    distinct = np.unique(sample)
    if len(distinct) <= CODES:
        padding = np.full(CODES - len(distinct), distinct[-1])
        return np.concatenate([distinct, padding]).astype(np.float32)
    order = sample.argsort()
    sample = sample[order]
    sample_weights = np.ones(len(sample))
    if weights is not None:
        sample_weights = weights.ravel()[::step][order].astype(np.float64)
    codes = _first_codes(sample, sample_weights)
    weights_before = _sums_before(sample_weights)
    values_before = _sums_before(sample * sample_weights)
    for _ in range(_CODE_ROUNDS):
        bounds = np.searchsorted(sample, _middles(codes))
        bounds = np.concatenate([[0], bounds, [len(sample)]])
        code_weights = np.diff(weights_before[bounds])
        is_used = code_weights > 0
        means = np.diff(values_before[bounds]) / np.where(is_used, code_weights, 1)
        codes = np.where(is_used, means, codes)
    return codes.astype(np.float32)


def _sums_before(numbers: np.ndarray) -> np.ndarray:
    """Return for each number, and for the end, the sum of all that come before."""
    return np.concatenate([[0.0], numbers.cumsum()])


def _first_codes(sample: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return codes that lie as dense as the cube root of the density of sorted values.

    That is the best for many codes (Panter and Dite, 1951).
    """
    reached = weights.cumsum() - weights / 2
    levels = np.linspace(0, reached[-1], _QUANTILES + 1)
    quantiles = np.interp(levels, reached, sample)
    passed = _sums_before(np.diff(quantiles) ** (2 / 3))
    wanted = (np.arange(CODES) + 0.5) / CODES * passed[-1]
    return np.interp(wanted, passed, quantiles)


def nearest_codes(values: np.ndarray, codebook: np.ndarray) -> np.ndarray:
    """Return the index of the nearest number of a codebook for each value, as uint8."""
    return np.searchsorted(_middles(codebook), values).astype(np.uint8)


def _middles(codes: np.ndarray) -> np.ndarray:
    return (codes[1:] + codes[:-1]) / 2


# -- rows ------------------------------------------------------------------------------


class RowPalette(NamedTuple):
    """Rows that stand for many."""

    entries: torch.Tensor
    """(M, D), at most MOST_ENTRIES, in the order in which they are used first."""
    labels: torch.Tensor
    """(N,) int64, the entry of each row."""


def make_palette(rows: torch.Tensor, progress: Progress = silent) -> RowPalette:
    """Return a palette for rows (N, D) of float32, made on their device.

    No row changes where no more than MOST_ENTRIES differ from each other.
    """
    import torch

    with torch.no_grad(), one_thread():
        palette = _distinct_rows(rows)
        if len(palette.entries) > MOST_ENTRIES:
            palette = _clustered(rows, progress)
        return _in_order_of_use(palette)


def _distinct_rows(rows: torch.Tensor) -> RowPalette:
    """Return a palette of all rows that differ.

    Rows are told apart by their products with one vector.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(rows.shape[1], dtype=torch.float64, generator=generator)
    keys = (rows * vector.to(rows.device)).sum(1)
    distinct, labels = keys.unique(return_inverse=True)
    numbers = torch.arange(len(rows), device=rows.device)
    first_rows = torch.full_like(distinct, len(rows), dtype=torch.int64)
    first_rows.scatter_reduce_(0, labels, numbers, "amin")
    return RowPalette(rows[first_rows], labels)


def _clustered(rows: torch.Tensor, progress: Progress) -> RowPalette:
    """Return a palette of the means of rows that are alike, group by group."""
    import torch

    middles = _means_of_alike(rows, _GROUPS)
    groups = _nearest(rows, middles)
    sizes = torch.bincount(groups, minlength=len(middles))
    distances = (rows - middles[groups]).square().sum(1).double()
    spreads = torch.zeros_like(sizes, dtype=torch.float64)
    spreads.scatter_add_(0, groups, distances)
    quotas = _quotas(spreads, sizes)
    labels = torch.empty_like(groups)
    pieces: list[torch.Tensor] = []
    entry_count = 0
    for group, quota in enumerate(quotas.tolist()):
        progress("making a palette of harmonics", group / len(quotas))
        members = (groups == group).nonzero()[:, 0]
        if not len(members):
            continue
        member_rows = rows[members]
        entries = _means_of_alike(member_rows, quota)
        labels[members] = _nearest(member_rows, entries) + entry_count
        pieces.append(entries)
        entry_count += len(entries)
    return RowPalette(torch.cat(pieces), labels)


def _quotas(spreads: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """Return how many entries each group gets, (G,) int64, MOST_ENTRIES in all.

    In many dimensions, errors are smallest where entries follow the squared distances.

    Args:
        spreads: (G,), sums of squared distances to the group's middle.
        sizes: (G,), the rows of each group.
    """
    import torch

    most = sizes.clamp(max=_MOST_OF_GROUP).double()
    budget = MOST_ENTRIES - len(sizes)
    factor = budget / spreads.sum().clamp(min=_NEARLY_ZERO)
    quotas = torch.zeros_like(spreads)
    for _ in range(_QUOTA_ROUNDS):
        # What is beyond the most of some groups goes to the others.
        quotas = (spreads * factor).minimum(most)
        factor *= budget / quotas.sum().clamp(min=1)
    return quotas.long().clamp(min=1)


def _means_of_alike(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Return at most so many means of rows that are alike, by k-means of a sample."""
    import torch

    sample = rows[:: ceil_div(len(rows), count * _SAMPLES)]
    means = sample[:: ceil_div(len(sample), count)].clone()
    for _ in range(_ROUNDS):
        labels = _nearest(sample, means)
        # `index_add_` takes ten times as long on a CPU.
        targets = labels[:, None].expand_as(sample)
        sums = torch.zeros_like(means).scatter_add_(0, targets, sample)
        counts = torch.bincount(labels, minlength=len(means))[:, None]
        means = torch.where(counts > 0, sums / counts.clamp(min=1), means)
    return means


def _nearest(rows: torch.Tensor, entries: torch.Tensor) -> torch.Tensor:
    """Return the index of the nearest entry for each row, (N,)."""
    import torch

    lengths = entries.square().sum(1)
    columns = entries.T.contiguous()
    nearest: list[torch.Tensor] = []
    for chunk in rows.split(_CHUNK):
        distances = torch.addmm(lengths, chunk, columns, alpha=-2)
        nearest.append(distances.argmin(1))
    return torch.cat(nearest)


def _in_order_of_use(palette: RowPalette) -> RowPalette:
    """Return the entries that are used, in the order in which they are used first.

    Labels of neighbours are alike then, and pictures of them small.
    """
    import torch

    used, labels = palette.labels.unique(return_inverse=True)
    numbers = torch.arange(len(labels), device=labels.device)
    first_uses = torch.full_like(used, len(labels))
    first_uses.scatter_reduce_(0, labels, numbers, "amin")
    order = first_uses.argsort()
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order), device=order.device)
    return RowPalette(palette.entries[used[order]], ranks[labels])
