"""The parameters that frames are drawn with: those of one frame, and those of a graph."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.render.gsplat.cuda import blocks
from splatview_viewer.render.paints import PAINTS

if TYPE_CHECKING:
    import torch

    from splatview_viewer.geometry.cameras import Camera, CameraModel
    from splatview_viewer.render.base import RenderOptions
    from splatview_viewer.render.paints import Paint, PaintFacts

TILE = 16
"""Pixels a side of gsplat's tiles."""
SHORT_TILES = 32766
"""Up to this many tiles, a tile's number is sorted as 16 bits, in half the time."""
_FLOAT = ctypes.c_float


class Parameters(ctypes.Structure):
    """Parameters that change with each frame: `Frame` in frame.cu.

    They are passed to a kernel by value, which writes them to the device in stream order,
    so that nothing on the host must stay as it is until then.
    """

    _fields_ = (
        ("viewmat", _FLOAT * 16),
        ("intrinsics", _FLOAT * 9),
        ("position", _FLOAT * 3),
        ("scale", _FLOAT),
        ("point_reach", _FLOAT),
        ("rgba", ctypes.c_uint64),
        ("depth", ctypes.c_uint64),
        ("needed", ctypes.c_uint64),
    )

    @classmethod
    def of(
        cls,
        camera: Camera,
        options: RenderOptions,
        rgba: torch.Tensor,
        depth: torch.Tensor | None,
        needed: int,
    ) -> Parameters:
        """Make the parameters of a frame.

        Args:
            camera: the camera.
            options: the options of the picture.
            rgba: target of the picture.
            depth: target of its depth.
            needed: address of an int64 for the number of pairs.
        """
        # In float32, as the kernels get it.
        viewmat = np.asarray(camera.viewmat, np.float32).ravel().tolist()
        depth_address = 0
        if depth is not None:
            depth_address = depth.data_ptr()
        # In the order of the fields: arrays of ctypes take several times as long.
        numbers = [
            *viewmat,
            *camera.K.ravel().tolist(),
            *_position(viewmat),
            options.scale,
            options.point_reach,
        ]
        addresses = [rgba.data_ptr(), depth_address, needed]
        floats = np.array(numbers, np.float32).tobytes()
        return cls.from_buffer_copy(floats + np.array(addresses, np.uint64).tobytes())


def _position(viewmat: list[float]) -> tuple[float, float, float]:
    """Return the place of a camera in the world, as gsplat inverts its matrix.

    Without NumPy, which is slow on few numbers: it is done for each frame.

    Args:
        viewmat: (4, 4) world to camera, by rows.
    """
    ax, ay, az, a_shift, bx, by, bz, b_shift, cx, cy, cz, c_shift, *_ = viewmat
    # The columns of the inverse are the cross products of the rows, by the determinant.
    bc = by * cz - bz * cy, bz * cx - bx * cz, bx * cy - by * cx
    ca = cy * az - cz * ay, cz * ax - cx * az, cx * ay - cy * ax
    ab = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
    determinant = ax * bc[0] + ay * bc[1] + az * bc[2]
    return (
        -(a_shift * bc[0] + b_shift * ca[0] + c_shift * ab[0]) / determinant,
        -(a_shift * bc[1] + b_shift * ca[1] + c_shift * ab[1]) / determinant,
        -(a_shift * bc[2] + b_shift * ca[2] + c_shift * ab[2]) / determinant,
    )


class GraphKey(NamedTuple):
    """All that frames drawn by one graph have in common."""

    width: int
    height: int
    model: CameraModel
    near: float
    far: float
    antialiased: bool
    depth: bool
    degree: int
    element_size: int
    """Bytes of a channel of the picture: 2 (float16) or 4 (float32)."""
    slots: int
    """Capacity: pairs of Gaussian and tile."""
    paint: Paint = "color"
    selected: bool = False
    """True if `Scene.flags` say which are hidden and which marked."""
    scaled: bool = False
    """True if standard deviations are multiplied by `Parameters.scale`."""

    @property
    def paint_facts(self) -> PaintFacts:
        """Facts about the paint."""
        return PAINTS[self.paint]

    @property
    def tiles(self) -> tuple[int, int]:
        """Return columns and rows of tiles."""
        return blocks(self.width, TILE), blocks(self.height, TILE)

    @property
    def tile_count(self) -> int:
        """Return the number of tiles."""
        columns, rows = self.tiles
        return columns * rows

    @property
    def key_type(self) -> str:
        """Return C's name for the type in which tiles are sorted."""
        if self.tile_count <= SHORT_TILES:
            return "short"
        return "int"
