"""Numbers and rows that stand for many are near them all."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from splatview_viewer.formats import palettes
from splatview_viewer.formats.palettes import (
    make_codebook,
    make_palette,
    nearest_codes,
)


def mean_square(values: np.ndarray, codebook: np.ndarray) -> float:
    codes = codebook[nearest_codes(values, codebook)]
    return float(np.square(values - codes).mean())


def test_few_numbers_come_back_without_a_loss() -> None:
    values = np.array([3.0, -1.5, 3.0, 2e6], np.float32)
    codebook = make_codebook(values)
    assert codebook.shape == (256,)
    np.testing.assert_array_equal(codebook[nearest_codes(values, codebook)], values)


def test_codes_lie_better_than_evenly() -> None:
    values = np.random.default_rng(1).standard_normal(20_000).astype(np.float32)
    codebook = make_codebook(values)
    assert (np.diff(codebook) >= 0).all()
    even = np.linspace(values.min(), values.max(), 256)
    assert mean_square(values, codebook) < 0.6 * mean_square(values, even)


def test_numbers_of_more_weight_are_nearer() -> None:
    values = np.linspace(0, 1, 20_000, dtype=np.float32)
    codebook = make_codebook(values, np.where(values < 0.5, 100.0, 1.0))
    low = mean_square(values[:10_000], codebook)
    assert low < 0.2 * mean_square(values[10_000:], codebook)


def test_rows_that_are_few_stay_and_are_numbered_as_they_come() -> None:
    rows = torch.randn(50, 9, generator=torch.Generator().manual_seed(1))
    palette = make_palette(rows.repeat(3, 1))
    assert torch.equal(palette.entries, rows)
    assert torch.equal(palette.labels, torch.arange(50).repeat(3))


def test_many_rows_get_means_of_those_that_are_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A palette of a quarter of the rows, which lie in clouds of different sizes."""
    monkeypatch.setattr(palettes, "MOST_ENTRIES", 2048)
    random = torch.Generator().manual_seed(1)
    clouds = torch.randn(40, 9, generator=random)[torch.arange(8192) % 40]
    rows = clouds + 0.05 * torch.randn(8192, 9, generator=random)
    fractions: list[float] = []
    palette = make_palette(rows, lambda _, fraction: fractions.append(fraction))
    assert 1500 < len(palette.entries) <= 2048
    distances = (palette.entries[palette.labels] - rows).square().sum(1)
    assert distances.mean() < 0.75 * 9 * 0.05**2
    assert fractions == sorted(fractions)
    assert 0 <= fractions[0] <= fractions[-1] < 1


@pytest.mark.cuda
def test_a_gpu_makes_the_same_palette_of_few_rows() -> None:
    rows = torch.randn(50, 9, generator=torch.Generator().manual_seed(1))
    palette = make_palette(rows.cuda())
    assert torch.equal(palette.entries.cpu(), rows)
