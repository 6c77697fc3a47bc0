"""The rectangles of a picture that changed, and their files without loss."""

from __future__ import annotations

from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.screen import Rect
from splatview_viewer.web.encoders import host_pixels

if TYPE_CHECKING:
    from splatview_viewer.screens.draw_target import Copy, Pixels

TILE = 32
"""Pixels of a tile's side: pictures are compared by tiles."""
MAX_RECTS = 12
"""Rectangles of one update at most."""
_NEAR = 3
"""Tiles between two changed ones of a row that are taken with them."""


def changed_rects(picture: Copy, previous: Copy | None) -> list[Rect]:
    """Return a few rectangles that hold all pixels that differ from a previous picture.

    Without a previous picture of the same size it is one: the whole.
    """
    width, height = picture.size
    if previous is None or previous.size != picture.size:
        return [Rect(0, 0, width, height)]
    spans = _spans(_changed_tiles(picture.pixels, previous.pixels))
    return [
        _in_pixels(columns, rows, width, height) for columns, rows in _joined(spans)
    ]


def _changed_tiles(a: Pixels, b: Pixels) -> np.ndarray:
    """Return which tiles of two pictures differ: (rows, columns) bool."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return _changed_tiles_of_arrays(a.view(np.uint32), b.view(np.uint32))
    import torch

    assert isinstance(a, torch.Tensor)
    assert isinstance(b, torch.Tensor)
    differ = (a.view(torch.int32) != b.view(torch.int32))[None, :, :, 0]
    tiles = torch.nn.functional.max_pool2d(differ.float(), TILE, ceil_mode=True)
    return tiles[0].bool().cpu().numpy()


def _changed_tiles_of_arrays(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    height, width = a.shape[:2]
    a = a.reshape(height, width)
    b = b.reshape(height, width)
    starts = np.arange(0, width, TILE)
    tiles = np.zeros((-(-height // TILE), len(starts)), bool)
    for row in range(len(tiles)):
        rows = slice(row * TILE, (row + 1) * TILE)
        # Most rows are the same, which is found out faster than where they differ.
        if not np.array_equal(a[rows], b[rows]):
            columns = (a[rows] != b[rows]).any(axis=0)
            tiles[row] = np.logical_or.reduceat(columns, starts)
    return tiles


Span = tuple[int, int]
"""First and last tile."""


def _spans(tiles: np.ndarray) -> list[tuple[Span, Span]]:
    """Return the changed spans of columns, each with its span of rows.

    Those of neighbouring rows that are the same are one.
    """
    spans: list[tuple[Span, Span]] = []
    spans_above: dict[Span, int] = {}
    for row, changed in enumerate(tiles):
        current: dict[Span, int] = {}
        for columns in _runs(np.flatnonzero(changed).tolist()):
            index = spans_above.get(columns)
            if index is None:
                index = len(spans)
                spans.append((columns, (row, row)))
            else:
                spans[index] = columns, (spans[index][1][0], row)
            current[columns] = index
        spans_above = current
    return spans


def _runs(columns: list[int]) -> list[Span]:
    """Return the spans of a row's changed columns, near ones joined."""
    runs: list[Span] = []
    for column in columns:
        if runs and column - runs[-1][1] <= _NEAR:
            runs[-1] = runs[-1][0], column
        else:
            runs.append((column, column))
    return runs


def _joined(spans: list[tuple[Span, Span]]) -> list[tuple[Span, Span]]:
    """Join neighbours, those first that grow least by it, until there are few."""
    spans = list(spans)
    while len(spans) > MAX_RECTS:
        growths = [
            _area(_union(a, b)) - _area(a) - _area(b) for a, b in pairwise(spans)
        ]
        index = growths.index(min(growths))
        spans[index : index + 2] = [_union(spans[index], spans[index + 1])]
    return spans


def _union(a: tuple[Span, Span], b: tuple[Span, Span]) -> tuple[Span, Span]:
    return _cover(a[0], b[0]), _cover(a[1], b[1])


def _cover(a: Span, b: Span) -> Span:
    return min(a[0], b[0]), max(a[1], b[1])


def _area(span: tuple[Span, Span]) -> int:
    (left, right), (bottom, top) = span
    return (right - left + 1) * (top - bottom + 1)


def _in_pixels(columns: Span, rows: Span, width: int, height: int) -> Rect:
    """Return tiles in pixels; tiles count from the lowest row, pixels from the top."""
    left = columns[0] * TILE
    right = min((columns[1] + 1) * TILE, width)
    bottom = rows[0] * TILE
    top = min((rows[1] + 1) * TILE, height)
    return Rect(left, height - top, right - left, top - bottom)


def encode_part(picture: Copy, rect: Rect) -> bytes:
    """Return a WebP file of a part of a premultiplied picture, without loss.

    The file's colours are straight, as browsers have it; they are the same again once
    multiplied.

    Raises:
        ViewerError: encoding fails.
    """
    from PIL import Image

    _, bottom, width, height = rect.viewport(picture.size[1])
    region = picture.pixels[bottom : bottom + height, rect.x : rect.x + width]
    pixels = straight(host_pixels(region)[::-1])
    file = BytesIO()
    try:
        Image.fromarray(pixels).save(file, "WEBP", lossless=True, quality=0, method=0)
    except (OSError, ValueError) as e:
        raise ViewerError(
            f"WebP: a part of {width} x {height} could not be encoded: {e}"
        ) from e
    return file.getvalue()


def straight(premultiplied: np.ndarray) -> np.ndarray:
    """Return (H, W, 4) uint8 with colours that are not multiplied by alpha."""
    pixels = np.ascontiguousarray(premultiplied)
    alpha = pixels[..., 3]
    partial = (alpha != 255) & (alpha != 0)
    if not partial.any():
        return pixels
    if pixels is premultiplied:
        pixels = pixels.copy()
    partial_pixels = pixels[partial].astype(np.uint16)
    divisor = partial_pixels[:, 3:]
    partial_pixels[:, :3] = np.minimum(
        (partial_pixels[:, :3] * 255 + divisor // 2) // divisor, 255
    )
    pixels[partial] = partial_pixels.astype(np.uint8)
    return pixels
