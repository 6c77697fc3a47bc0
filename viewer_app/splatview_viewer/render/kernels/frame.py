"""One frame from gsplat's projection to the picture: the order of the kernels of frame.cu and torch's sorts.

Nothing here asks the device for anything, and memory comes from torch's allocator alone, so that a CUDA graph can
record it.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from splatview_ipc.kinds.gaussians import SH_REST
from splatview_viewer.geometry.cameras import MODELS
from splatview_viewer.render.base import BY_DENSITY, EPS_2D, PAINTS

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera, CameraModel
    from splatview_viewer.render.base import Paint, RenderOptions

TILE = 16
"""Pixels a side of gsplat's tiles."""
SHORT_TILES = 32766
"""Up to so many tiles, a tile's number is sorted as 16 bits, in half the time."""
BODY_FLOATS = 16
"""Numbers of `Body` in frame.cu."""
PART = 1 << 23
"""Pairs sorted by tile at a time, at most: what a sort needs beside them is ten times their keys."""


class Launcher(Protocol):
    """Launcher of kernels by name: `compiler.Kernels`."""

    def launch(self, name: str, grid: int, block: int, *args: Any) -> None: ...


class Parameters(ctypes.Structure):
    """Parameters that change with each frame: `Frame` in frame.cu. Passed to a kernel by value, which writes it to the
    device in stream order, so that nothing on the host must stay as it is until then."""

    _fields_ = (("viewmat", ctypes.c_float * 16), ("intrinsics", ctypes.c_float * 9),
                ("position", ctypes.c_float * 3), ("scale", ctypes.c_float), ("point_reach", ctypes.c_float),
                ("rgba", ctypes.c_uint64), ("depth", ctypes.c_uint64),
                ("needed", ctypes.c_uint64))

    @classmethod
    def of(cls, camera: Camera, options: RenderOptions, rgba: torch.Tensor, depth: torch.Tensor | None,
           needed: int) -> Parameters:
        """`rgba` and `depth`: where the picture goes; `needed`: address of an int64 for the number of pairs."""
        viewmat = np.asarray(camera.viewmat, np.float32)  # as the kernels get it
        position = np.linalg.inv(viewmat.astype(np.float64))[:3, 3]
        made = cls(scale=options.scale, point_reach=options.point_reach, rgba=rgba.data_ptr(),
                   depth=0 if depth is None else depth.data_ptr(), needed=needed)
        made.viewmat[:], made.intrinsics[:], made.position[:] = (
            np.ravel(values).tolist() for values in (viewmat, camera.K, position))
        return made


@dataclass(frozen=True)
class Kind:
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
    """Bytes of a channel of the picture: 1 (uint8), 2 (float16) or 4 (float32)."""
    slots: int
    """Capacity: pairs of Gaussian and tile."""
    paint: Paint = "color"
    selected: bool = False
    """True if `Scene.flags` say which are hidden and which marked."""
    scaled: bool = False
    """True if standard deviations are multiplied by `Parameters.scale`."""

    @property
    def by_density(self) -> bool:
        """True if opacity and density make the picture, not shapes."""
        return self.paint in BY_DENSITY

    @property
    def tiles(self) -> tuple[int, int]:
        """Columns and rows of tiles."""
        return -(-self.width // TILE), -(-self.height // TILE)

    @property
    def key_type(self) -> str:
        """C's name for the type in which tiles are sorted."""
        return "short" if self.tiles[0] * self.tiles[1] <= SHORT_TILES else "int"


@dataclass(frozen=True)
class Scene:
    """N Gaussians as the kernels read them. Everything is float32 on one device."""

    means: torch.Tensor
    """(N, 3), contiguous as the next three."""
    quats: torch.Tensor
    """(N, 4) w, x, y, z; any length but 0."""
    scales: torch.Tensor
    """(N, 3) in world units."""
    opacities: torch.Tensor
    """(N,) in [0, 1]."""
    sh0: torch.Tensor
    """(N, 3), rows may lie apart."""
    shN: torch.Tensor  # noqa: N815
    """(N, K-1, 3), rows of (K-1) * 3 may lie apart."""
    flags: torch.Tensor | None = None
    """(N,) uint8 as `Selection.flags` gives them, for kinds of frames that are `selected`."""

    @property
    def degree(self) -> int:
        """The highest one that `shN` holds coefficients for."""
        return SH_REST.index(self.shN.shape[1])

    @property
    def layout(self) -> tuple[Any, ...]:
        """All that a graph remembers of the tensors, but for `flags`."""
        return tuple((t.data_ptr(), t.shape, t.stride()) for name, t in vars(self).items() if name != "flags")


def draw(kind: Kind, scene: Scene, parameters: torch.Tensor, gsplat: Any, own: Launcher) -> None:
    """Draw a frame of a scene that is not empty.

    Args:
        kind: sizes and modes.
        scene: what to draw.
        parameters: a `Parameters` on the device, as float32: camera and targets.
        gsplat: its compiled module.
        own: the kernels of frame.cu for `kind.key_type`.
    """
    n, slots, device = len(scene.means), kind.slots, scene.means.device
    columns, rows = kind.tiles
    antialiased = kind.antialiased and kind.by_density

    def new(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    opacities, scales = scene.opacities, scene.scales
    flags: Any = scene.flags if kind.selected else _NULL
    if kind.selected or kind.scaled or not kind.by_density:
        opacities, scales = new(n), new(n, 3) if kind.scaled else scene.scales
        own.launch("choose", blocks(n, 256), 256, _int(n), parameters, scene.opacities, scene.scales, flags,
                   _int(not kind.by_density), opacities, scales if kind.scaled else _NULL)
    radii, means2d, depths, conics, compensations = gsplat.projection_ewa_3dgs_fused_fwd(
        scene.means, None, scene.quats, scales, opacities, parameters[:16].view(1, 4, 4),
        parameters[16:25].view(1, 3, 3), kind.width, kind.height, EPS_2D, kind.near, kind.far, 0.0, antialiased,
        getattr(gsplat.CameraModelType, kind.model.upper()))
    footprints, keys, counts, colors = new(n, 8), new(n), new(n, dtype=torch.int64), new(n, 4)
    plain = kind.paint == "color" and not kind.selected
    more = () if plain else (_int(PAINTS.index(kind.paint)), _int(kind.model == "ortho"), _int(kind.width),
                             _int(kind.height), flags, scene.quats, scene.scales)
    degree = 0 if kind.paint in ("normals", "overdraw") else kind.degree
    own.launch("shade" if plain else "shade_as", blocks(n, 128), 128, _int(n), parameters, scene.means, opacities,
               compensations if antialiased else _NULL, scene.sh0, _long(scene.sh0.stride(0)), scene.shN,
               _long(scene.shN.stride(0)), _int(degree), radii, means2d, conics, depths, _int(columns), _int(rows),
               footprints, keys, counts, colors, *more)
    del radii, depths, compensations  # what is not needed again makes room for what comes
    surfaces = None
    if kind.paint == "ellipsoids":
        surfaces = new(n, BODY_FLOATS)
        own.launch("bodies", blocks(n, 256), 256, _int(n), parameters, scene.means, scene.quats, scales, counts,
                   _int(MODELS.index(kind.model)), _int(kind.width), _int(kind.height), _float(EPS_2D), surfaces)
    del means2d, conics
    order = torch.sort(keys, stable=True).indices  # equal depths stay in the Gaussians' order, as in gsplat
    del keys
    sorted_counts = counts.index_select(0, order)
    del counts
    ends = sorted_counts.cumsum(0)
    # A part's list replaces the pairs of the part before.
    most = 64 * blocks(blocks(slots, blocks(slots, PART)), 64)
    parts = blocks(slots, most)
    tiles, pairs = new(slots, dtype=_KEY_TYPES[kind.key_type]), new(slots + most, dtype=torch.int32)
    ids, gaussians = pairs[:slots], pairs[most:]
    own.launch("fill", blocks(max(n, slots), 256), 256, _int(n), _int(slots), order, sorted_counts, ends, footprints,
               _int(columns), tiles, gaussians)
    del order, sorted_counts
    starts = new(parts, columns * rows + 1, dtype=torch.int32)  # and one more, which ends the last tile
    for part in range(parts):
        first, end = part * most, min((part + 1) * most, slots)
        grouped, places = torch.sort(tiles[first:end], stable=True)
        own.launch("gather", blocks(end - first, 256), 256, _int(n), _int(first), _int(end - first),
                   _int(columns * rows), grouped, places, gaussians[first:], ends, parameters, ids[first:],
                   starts[part])
        del grouped, places
    last = () if surfaces is None else (surfaces, _float(kind.near))
    own.launch(_BLENDS[kind.paint], columns * rows, 256, _int(kind.width), _int(kind.height), _int(columns),
               _int(kind.element_size), _int(parts), _int(columns * rows + 1), starts, ids, footprints, colors,
               parameters, *last)


def blocks(threads: int, block: int) -> int:
    """Number of blocks of `block` threads for so many threads."""
    return -(-threads // block)


_int, _long, _float, _NULL = ctypes.c_int, ctypes.c_longlong, ctypes.c_float, ctypes.c_void_p(0)
_BLENDS: dict[Paint, str] = {"color": "blend", "normals": "blend", "ellipsoids": "blend_bodies", "rings": "blend_rings",
                             "points": "blend_points", "overdraw": "blend_overdraw"}
_KEY_TYPES = {"short": torch.int16, "int": torch.int32}
