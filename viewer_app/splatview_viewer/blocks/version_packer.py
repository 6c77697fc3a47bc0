"""Packs versions of a scene for pages, in the one thread that packs.

On a GPU it works on a stream of its own, in pieces through pinned memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.blocks.host_packing import HostPacker
from splatview_viewer.blocks.importance import drawn_rows, ranked_by_importance
from splatview_viewer.blocks.layout import block_count, part_bytes
from splatview_viewer.blocks.packing import BlockedScene
from splatview_viewer.blocks.packing_request import GpuTime
from splatview_viewer.core.selection import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import torch

    from splatview_viewer.blocks.layout import BlockPart
    from splatview_viewer.blocks.packing_request import (
        Packing,
        SceneToPack,
        VersionFacts,
    )
    from splatview_viewer.core.selection import Selection
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.scene.scene import GaussianScene


class _VersionRows(NamedTuple):
    """Some Gaussians of a version, which its other forms need as well."""

    version_number: int
    rows: torch.Tensor
    """Their indices in the scene, int32."""


class VersionPacker:
    """Packs the versions of one scene. The packing thread alone uses it."""

    def __init__(
        self, selection: Selection, note_drawn: Callable[[Packing, int, int], None]
    ) -> None:
        """Start without a version.

        Args:
            selection: the Gaussians that are packed.
            note_drawn: called before a packing is made, with how many Gaussians the
                selection leaves, and of how many, unless it leaves all.
        """
        self._selection = selection
        self._note_drawn = note_drawn
        self._drawn: _VersionRows | None = None
        """The Gaussians that the selection leaves, of the version packed last."""
        self._ranked: _VersionRows | None = None
        """All Gaussians by importance, of the version packed last."""
        self._host_packer = HostPacker()
        self._stream: torch.cuda.Stream | None = None

    def pack(
        self, packing: Packing, source: SceneToPack, cameras: Sequence[Camera]
    ) -> GpuTime | None:
        """Fill a packing with its blocks.

        Args:
            packing: with what was requested.
            source: the version.
            cameras: what they see counts as important.

        Returns:
            What a GPU took; None if the scene is in host memory.
        """
        import torch

        if source.ready is None:
            with torch.no_grad():
                self._pack_parts(packing, source, cameras)
            return None
        gpu = source.scene.gpu
        with torch.no_grad(), torch.cuda.device(gpu):
            if self._stream is None or self._stream.device != gpu:
                self._stream = torch.cuda.Stream()
            start = torch.cuda.Event(enable_timing=True)
            self._host_packer.gpu_ms = 0.0
            with torch.cuda.stream(self._stream):
                self._stream.wait_event(source.ready)
                start.record()
                self._pack_parts(packing, source, cameras, start)
            magnitude = len(source.scene).bit_length()
            work_key = ("pack", *packing.form.parts, packing.is_ranked, magnitude)
            return GpuTime(work_key, self._host_packer.gpu_ms, packing.bytes)

    def _pack_parts(
        self,
        packing: Packing,
        source: SceneToPack,
        cameras: Sequence[Camera],
        start: torch.cuda.Event | None = None,
    ) -> None:
        """Pack all parts of a packing, or take what is packed.

        start: recorded where a GPU began with it.
        """
        rows = self._rows(packing, source.scene, cameras)
        coefficients = 0
        if "harmonics" in packing.form.parts:
            coefficients = packing.version_facts.coefficients
        scene = replace(source.scene, shN=source.scene.shN[:, :coefficients])
        blocked = BlockedScene(scene, packing.version_facts.origin, rows)
        targets: dict[BlockPart, np.ndarray] = {}
        for block_part in packing.form.parts:
            packed = None
            if rows is None and source.blocks is not None:
                packed = source.blocks.packed(block_part, coefficients)
            if packed is None:
                packed = _memory_for(block_part, packing)
                targets[block_part] = packed
            packing.blocks[block_part] = packed
        self._host_packer.pack(blocked, targets, start)
        if rows is not None:
            # Not before: a GPU would be waited for between ranking and packing.
            packing.rows = rows.cpu().numpy()

    def _rows(
        self, packing: Packing, scene: GaussianScene, cameras: Sequence[Camera]
    ) -> torch.Tensor | None:
        """Return the Gaussians of a packing in its order; None: all, in their own."""
        import torch

        drawn = None
        if self._selection != EVERYTHING:
            drawn = self._drawn_rows(packing, scene)
        if not packing.is_ranked:
            return drawn
        ranked = self._ranked_rows(packing.version_facts, scene, cameras)
        if drawn is not None:
            is_drawn = torch.zeros(len(ranked), dtype=torch.bool, device=ranked.device)
            is_drawn[drawn] = True
            ranked = ranked[is_drawn[ranked]]
        return ranked[: packing.form.gaussians]

    def _drawn_rows(self, packing: Packing, scene: GaussianScene) -> torch.Tensor:
        """Return the Gaussians that the selection leaves, and note their number."""
        version_number = packing.version_facts.version_number
        if self._drawn is None or self._drawn.version_number != version_number:
            # Not both at once: a version may fill the GPU's memory.
            self._drawn = None
            rows = drawn_rows(scene, self._selection)
            self._drawn = _VersionRows(version_number, rows)
        rows = self._drawn.rows
        self._note_drawn(packing, len(rows), len(scene))
        return rows

    def _ranked_rows(
        self,
        version_facts: VersionFacts,
        scene: GaussianScene,
        cameras: Sequence[Camera],
    ) -> torch.Tensor:
        """Return the Gaussians by importance: the same order for all forms of a version."""
        version_number = version_facts.version_number
        if self._ranked is None or self._ranked.version_number != version_number:
            self._ranked = None
            rows = ranked_by_importance(scene, version_facts.origin, cameras)
            self._ranked = _VersionRows(version_number, rows)
        return self._ranked.rows


def _memory_for(block_part: BlockPart, packing: Packing) -> np.ndarray:
    """Return memory for a part of all blocks: (blocks, bytes) uint8."""
    import numpy as np

    size = part_bytes(block_part, packing.version_facts.coefficients)
    return np.empty((block_count(packing.form.gaussians), size), np.uint8)
