"""The form of snapshots that is written: packed blocks, as pages draw them.

Behind the header are the exact blocks of all Gaussians, then their harmonics up to the
degree in use (`splatview_viewer.blocks.layout` names the bits). So faithful is it:

means       float32, relative to the middle of the scene
quats       off by at most 7e-5
scales      sizes off by at most 0.4 % (of Gaussians smaller than e**-16: 0.8 %)
opacities   off by at most 2.5e-4
sh0         colours off by at most 1.4e-4 of full scale, up to four times the brightness
            of white
shN         off by at most 1/255 of a coefficient's largest colour
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.blocks.layout import BLOCK, block_count, part_bytes
from splatview_viewer.blocks.unpacking import SceneBlocks
from splatview_viewer.recording.snapshot_header import Share, SnapshotHeader

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from splatview_viewer.scene.scene import GaussianScene


class BlockHeader(SnapshotHeader, frozen=True, kw_only=True):
    """Description of a scene in blocks."""

    magic = b"SVSCENE2"

    origin: tuple[float, float, float]
    """What positions are relative to, in world units."""
    background: tuple[Share, Share, Share] | None = None
    """The scene's own, RGB in [0, 1]."""
    wide: bool = False
    """True for positions that were float64."""

    @property
    def unpacked_coefficients(self) -> int:
        return (self.sh_degree + 1) ** 2 - 1

    @property
    def body_bytes(self) -> int:
        return block_form_bytes(self.count, self.unpacked_coefficients)

    @property
    def _sizes(self) -> tuple[int, int]:
        """Bytes of one block: its exact part, its harmonics."""
        harmonics = part_bytes("harmonics", self.unpacked_coefficients)
        return part_bytes("exact", 0), harmonics

    def row_spans(self, index: int) -> Sequence[tuple[int, int]]:
        exact, harmonics = self._sizes
        block = index // BLOCK
        first_harmonics = block_count(self.count) * exact
        return [
            (block * exact, exact),
            (first_harmonics + block * harmonics, harmonics),
        ]

    def scene(
        self, body: np.ndarray, *, version: int = 0, notes: tuple[str, ...] = ()
    ) -> GaussianScene:
        return self._unpack(self.blocks(body), version, notes)

    def row(self, row_bytes: np.ndarray, index: int) -> GaussianScene:
        block = self._split(row_bytes, min(self.count, BLOCK))
        row = index % BLOCK
        return self._unpack(block, 0, ())[row : row + 1]

    def blocks(self, body: np.ndarray) -> SceneBlocks:
        return self._split(body, self.count)

    def _split(self, body: np.ndarray, gaussians: int) -> SceneBlocks:
        """Return blocks of so many Gaussians, which lie in their bytes."""
        exact, harmonics = self._sizes
        blocks = block_count(gaussians)
        return SceneBlocks(
            gaussians=gaussians,
            origin=self.origin,
            coefficients=self.unpacked_coefficients,
            exact=body[: blocks * exact].reshape(blocks, exact),
            harmonics=body[blocks * exact :].reshape(blocks, harmonics),
        )

    def _unpack(
        self, blocks: SceneBlocks, version: int, notes: tuple[str, ...]
    ) -> GaussianScene:
        return blocks.scene(
            is_wide=self.wide,
            antialiased=self.antialiased,
            background=self.background,
            version=version,
            notes=notes,
        )


def block_form_bytes(count: int, coefficients: int) -> int:
    """Return the bytes of a scene in this form.

    Args:
        count: Gaussians.
        coefficients: beyond degree 0 that are in use, for each Gaussian.
    """
    block_bytes = part_bytes("exact", coefficients)
    if coefficients:
        block_bytes += part_bytes("harmonics", coefficients)
    return block_count(count) * block_bytes
