"""The pieces of a scene in a page that is a single file: compressed blocks as text.

`scene_page/unpack.js` reads them.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.blocks.layout import HEADER, QUICK_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.blocks.layout import BlockPart
    from splatview_viewer.blocks.packing import BlockedScene

_BLOCKS = 64
"""Blocks of a piece: a page says how far it is after each, and never holds many twice."""
_FIRST_DIGIT = ord("(")
"""The digits of base 85 are this character and those that follow it."""
_ENDING = ord("<")
"""The one digit that could end a script; "}", the first character beyond, replaces it."""
_REPLACEMENT = _FIRST_DIGIT + 85


class CompressedBlocks(NamedTuple):
    """A piece of a scene: some of its blocks."""

    layer: BlockPart
    """The part of the blocks that is packed here."""
    first_block: int
    block_count: int
    byte_count: int
    """Bytes that the text stands for."""
    text: str


def pieces_of(blocked: BlockedScene) -> Iterator[CompressedBlocks]:
    """Yield the pieces of a scene: all quick blocks, then all harmonics."""
    layers: list[BlockPart] = ["quick"]
    if blocked.coefficients:
        layers.append("harmonics")
    for layer in layers:
        for first in range(0, blocked.block_count, _BLOCKS):
            end = min(first + _BLOCKS, blocked.block_count)
            blocks = blocked.pack(layer, first, end).cpu().numpy()
            if layer == "quick":
                data = _in_planes(blocks)
            else:
                data = blocks.tobytes()
            packed = zlib.compress(data, 9)
            yield CompressedBlocks(
                layer, first, end - first, len(packed), text_of(packed)
            )


def _in_planes(blocks: np.ndarray) -> bytes:
    """Return quick blocks so that they compress better: by a tenth.

    All headers come first, then the first bytes of all Gaussians, then the second ones,
    each as what is added to the one before.
    """
    header_bytes = HEADER * 4
    gaussians = blocks[:, header_bytes:].reshape(-1, QUICK_WORDS * 4)
    steps = np.diff(gaussians, axis=0, prepend=np.zeros_like(gaussians[:1]))
    return blocks[:, :header_bytes].tobytes() + steps.T.tobytes()


def text_of(data: bytes) -> str:
    """Return bytes as text of five characters for each four; base64 would need 5.33."""
    numbers = np.frombuffer(data + bytes(-len(data) % 4), "<u4")
    digits = np.empty((len(numbers), 5), np.uint8)
    for column in reversed(range(5)):
        numbers, digits[:, column] = np.divmod(numbers, 85)
    characters = digits + _FIRST_DIGIT
    characters[characters == _ENDING] = _REPLACEMENT
    return characters.tobytes().decode("ascii")
