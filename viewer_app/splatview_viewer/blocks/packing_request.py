"""A version of a scene that pages request, and the packing that comes of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview_viewer.blocks.layout import BlockPart, block_count, part_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from splatview_viewer.blocks.unpacking import SceneBlocks
    from splatview_viewer.scene.scene import GaussianScene

STALLED_S = 5.0
"""Seconds after which a packing of which nothing was sent is taken back, where others
wait for its room: a page may have stopped reading in the middle of it."""


class PackingTerms(NamedTuple):
    """When versions are packed beside a training that needs the GPU as well."""

    fresh_from_s: float = math.inf
    """Packings that were begun since then serve who asks for the newest version, though
    there is a newer one."""
    is_held: bool = False
    """No packing begins soon, but for a reader that has nothing yet."""


class VersionFacts(NamedTuple):
    """Facts about a version of a scene."""

    version_number: int
    """Another one for each version of each scene."""
    gaussians: int
    sh_degree: int
    antialiased: bool
    origin: tuple[float, float, float]
    """What positions are relative to."""

    @property
    def coefficients(self) -> int:
        """Coefficients in use beyond degree 0."""
        return (self.sh_degree + 1) ** 2 - 1


class PackingForm(NamedTuple):
    """The parts of a version that a packing holds, and of how many Gaussians."""

    parts: tuple[BlockPart, ...]
    gaussians: int
    """The most important ones, the first ones first, if they are fewer than all."""


class SceneToPack(NamedTuple):
    """The newest version, as a worker can read it."""

    scene: GaussianScene
    ready: Any
    """A CUDA event, recorded once the GPU has the scene; None: it lies in host memory,
    and stays as it is."""
    blocks: SceneBlocks | None = None
    """The same version in blocks, where it was read from them."""


@dataclass
class SendingProgress:
    """Tells whether anything of a packing is sent."""

    pieces: int = 0
    """Pieces that were sent, to all pages together. The web thread alone counts them."""
    _seen_pieces: int = -1
    _moved_s: float = 0.0
    """When `_seen_pieces` was seen to change."""

    def has_stalled(self, now: float) -> bool:
        """Return whether nothing was sent for long. In the thread that draws."""
        if self.pieces != self._seen_pieces:
            self._seen_pieces = self.pieces
            self._moved_s = now
        return now - self._moved_s >= STALLED_S


class GpuTime(NamedTuple):
    """The milliseconds that a GPU took for a packing, beside what else it does."""

    work_key: tuple[object, ...]
    """The same for packings that cost about the same."""
    ms: float
    copied_bytes: int
    """That it sent to host memory."""


@dataclass(eq=False)
class Packing:
    """A version in one form, once it `is_done`."""

    version_facts: VersionFacts
    form: PackingForm
    is_for_newest: bool
    """Any version will do that is the newest when it is begun with."""
    is_first: bool = False
    """A reader that has nothing yet waits for it."""
    blocks: dict[BlockPart, np.ndarray] = field(default_factory=dict)
    """(blocks, bytes) uint8 by part."""
    rows: np.ndarray | None = None
    """Indices of its Gaussians in the scene, in its order, (N,) int32; None: it has all
    of them in their own."""
    is_done: bool = False
    has_failed: bool = False
    is_begun: bool = False
    begun_s: float = -math.inf
    """When it was begun with; time of the loop."""
    is_reading: bool = False
    """The scene is being read on a GPU, and has to stay as it is."""
    users: int = 0
    listeners: list[Callable[[], object]] = field(default_factory=list)
    progress: SendingProgress = field(default_factory=SendingProgress)

    @property
    def is_taken_back(self) -> bool:
        """True if it was dropped while pages had it, as nothing of it was sent."""
        return self.is_done and not self.has_failed and not self.blocks

    @property
    def is_ranked(self) -> bool:
        """True if it holds the most important Gaussians first."""
        return self.form.gaussians < self.version_facts.gaussians

    @property
    def is_under_way(self) -> bool:
        """True while a worker is at it."""
        return self.is_begun and not self.is_done

    @property
    def bytes(self) -> int:
        """Bytes of all its blocks."""
        sizes = [
            part_bytes(p, self.version_facts.coefficients) for p in self.form.parts
        ]
        return block_count(self.form.gaussians) * sum(sizes)
