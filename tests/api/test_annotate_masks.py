"""Masks for `annotate`: tensors, and the run lengths of COCO."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.annotate_cases import made


def random_masks(n: int, h: int, w: int, seed: int = 0) -> np.ndarray:
    """(n, h, w) bool: blobs, one of them empty, one full."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:h, :w]
    found = np.stack([(x - rng.uniform(0, w)) ** 2 + (y - rng.uniform(0, h)) ** 2 < rng.uniform(1, h * w / 6)
                      for _ in range(n)]) ^ (rng.random((n, h, w)) < 0.02)
    found[0], found[1] = False, True
    return found


def runs_of(mask: np.ndarray) -> list[int]:
    """COCO's run lengths, in the plainest way: column by column, the first run outside."""
    runs, inside, length = [], False, 0
    for pixel in mask.T.reshape(-1).tolist():
        if pixel != inside:
            runs.append(length)
            inside, length = pixel, 0
        length += 1
    return [*runs, length]


def compressed(runs: list[int]) -> bytes:
    """`rleToString` of COCO's maskApi.c, line by line."""
    out = bytearray()
    for i, count in enumerate(runs):
        x = count - (runs[i - 2] if i > 2 else 0)
        more = True
        while more:
            c = x & 0x1F
            x >>= 5
            more = x != -1 if c & 0x10 else x != 0
            out.append((c | 0x20 if more else c) + 48)
    return bytes(out)


def pixels(tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> np.ndarray:
    """(N, h, w) bool of an overlay frame with runs, as the frame's law says."""
    width, height = meta["mask_width"], meta["mask_height"]
    found, begin = [], 0
    for end in tensors["run_ends"].tolist():
        runs = tensors["runs"][begin:end].tolist()
        flat = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
        found.append(flat.reshape(width, height).T)
        begin = end
    assert begin == len(tensors["runs"])
    return np.stack(found)


BOXES = np.zeros((6, 4))
MASKS = random_masks(6, 23, 37)


@pytest.mark.parametrize("make", [
    lambda m: m, torch.from_numpy, lambda m: m.astype(np.uint8) * 255, lambda m: m.astype(np.int64),
    lambda m: torch.from_numpy(m).to(torch.bfloat16), lambda m: torch.from_numpy(m)[:, None].float(),
    lambda m: list(torch.from_numpy(m)), lambda m: m.tolist(), lambda m: np.asfortranarray(m),
    lambda m: np.where(m, 0.51, 0.5),
])
def test_masks_as_tensors(make: Any) -> None:
    tensors, meta = made(boxes=BOXES, masks=make(MASKS))
    assert tensors["masks"].dtype == torch.uint8
    assert np.array_equal(tensors["masks"].numpy() != 0, MASKS)
    assert (meta["mask_width"], meta["mask_height"], meta["width"]) == (0, 0, 0)


def test_masks_of_bytes_are_not_copied() -> None:
    for given in (torch.from_numpy(MASKS), torch.from_numpy(MASKS.astype(np.uint8))):
        assert made(boxes=BOXES, masks=given)[0]["masks"].data_ptr() == given.data_ptr()


@pytest.mark.parametrize("make", [
    lambda r: r, np.array, lambda r: np.array(r, np.uint32), tuple, compressed, lambda r: compressed(r).decode(),
    lambda r: torch.tensor(r),
])
def test_masks_as_coco_writes_them(make: Any) -> None:
    given = [{"size": [23, 37], "counts": make(runs_of(mask))} for mask in MASKS]
    tensors, meta = made(boxes=BOXES, masks=given)
    assert np.array_equal(pixels(tensors, meta), MASKS)
    one, meta = made(boxes=BOXES[:1], masks=given[3])
    assert np.array_equal(pixels(one, meta), MASKS[3:4])


def test_compressed_counts_of_every_size() -> None:
    """Differences of both signs, one to four characters long; runs of no length."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        runs = (rng.integers(0, 8, 50) * 10 ** rng.integers(0, 5, 50)).tolist()
        runs[-1] += -sum(runs) % 1000
        given = {"size": [1000, sum(runs) // 1000], "counts": compressed(runs)}
        assert made(boxes=BOXES[:1], masks=given)[0]["runs"].tolist() == runs


def test_masks_alone_have_boxes_around_them() -> None:
    around = []
    for mask in MASKS:
        y, x = np.nonzero(mask)
        around.append([x.min(), y.min(), x.max() + 1, y.max() + 1] if len(x) else [np.nan] * 4)
    runs = [{"size": [23, 37], "counts": runs_of(mask)} for mask in MASKS]
    for given in (MASKS, runs):
        tensors, meta = made(masks=given, labels="road")
        np.testing.assert_array_equal(tensors["boxes"].numpy(), around)
        assert (meta["width"], meta["height"]) == (37, 23)
        assert "trouble" not in meta
        tensors, meta = made(masks=given, size=(74, 92))
        np.testing.assert_array_equal(tensors["boxes"].numpy(), np.array(around) * [2, 4, 2, 4])
        assert (meta["width"], meta["height"]) == (74, 92)
    assert made(masks=np.zeros((0, 5, 5)))[0]["boxes"].shape == (0, 4)
    assert made(masks=MASKS[2])[0]["boxes"].shape == (1, 4)


def test_too_many_runs_are_refused() -> None:
    half = [1] * (2048 * 1024)
    given = [{"size": [2048, 1024], "counts": half}, {"size": [2048, 1024], "counts": half},
             {"size": [2048, 1024], "counts": [2048 * 1024]}]
    with pytest.raises(ValueError, match="4194305 runs; at most 4194304"):
        made(boxes=BOXES[:3], masks=given)


def test_no_bytes_of_counts_do_harm() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        counts = bytes(rng.integers(40 if seed % 2 else 0, 120 if seed % 2 else 256, rng.integers(1, 40)).tolist())
        try:
            tensors, meta = made(boxes=BOXES[:1], masks={"size": [7, 9], "counts": counts})
        except ValueError as e:
            assert "masks[0]" in str(e)
        else:
            assert pixels(tensors, meta).shape == (1, 7, 9)
