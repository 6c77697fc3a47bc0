"""The base of the forms of snapshots: a header that knows the bytes behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from splatview_viewer.blocks.unpacking import SceneBlocks
    from splatview_viewer.scene.scene import GaussianScene

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class SnapshotHeader(msgspec.Struct, frozen=True):
    """Description of a packed scene: a form is a class that fills in the methods."""

    magic: ClassVar[bytes]
    """The first 8 bytes of files of this form."""

    count: Count
    """Gaussians."""
    sh_degree: Annotated[int, msgspec.Meta(ge=0, le=4)]
    """The degree in use."""
    antialiased: bool

    @property
    def unpacked_coefficients(self) -> int:
        """Coefficients beyond degree 0 of the unpacked scene, for each Gaussian."""
        raise NotImplementedError

    @property
    def body_bytes(self) -> int:
        """Bytes of the scene behind the header."""
        raise NotImplementedError

    def row_spans(self, index: int) -> Sequence[tuple[int, int]]:
        """Return which bytes of the scene `row` needs: offsets and sizes."""
        raise NotImplementedError

    def scene(
        self, body: np.ndarray, *, version: int = 0, notes: tuple[str, ...] = ()
    ) -> GaussianScene:
        """Unpack a scene on the CPU, from any thread.

        Args:
            body: all bytes behind the header, (N,) uint8.
            version: of the scene.
            notes: of the scene.
        """
        raise NotImplementedError

    def row(self, row_bytes: np.ndarray, index: int) -> GaussianScene:
        """Unpack one Gaussian from the bytes of `row_spans`, one after the other."""
        raise NotImplementedError

    def blocks(self, body: np.ndarray) -> SceneBlocks | None:
        """Return the blocks of a scene; None where this form has none."""
        return None
