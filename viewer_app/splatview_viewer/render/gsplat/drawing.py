"""The kernels that draw one frame, in their order, and what they are given.

They work with a fixed number of slots for pairs and by gsplat's rules (`projection.cu`,
`frame.cu`), so the picture is gsplat's.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from splatview_viewer.geometry.cameras import MODELS
from splatview_viewer.render.base import EPS_2D
from splatview_viewer.render.gsplat.cuda import blocks, kernels
from splatview_viewer.render.gsplat.rules import defines, gsplat_rules
from splatview_viewer.render.paints import PAINTS

if TYPE_CHECKING:
    from splatview_viewer.render.gsplat.cuda import Launcher
    from splatview_viewer.render.gsplat.float_scene import FloatScene
    from splatview_viewer.render.gsplat.parameters import GraphKey, Parameters

BODY_FLOATS = 16
"""Numbers of `Body` in frame.cu."""
MAX_PART_SIZE = 1 << 23
"""Pairs sorted by tile at a time, at most: the memory that a sort needs besides is ten
times their keys."""
_BLEND_BLOCK = 256
"""Threads of a tile."""
_KEY_DTYPES = {"short": torch.int16, "int": torch.int32}
_INT = ctypes.c_int
_LONG = ctypes.c_longlong
_FLOAT = ctypes.c_float
_NULL = ctypes.c_void_p(0)


class FrameKernels(NamedTuple):
    """The kernels that frames of a kind are drawn with."""

    projection: Launcher
    """Those of projection.cu."""
    drawing: Launcher
    """Those of frame.cu for `GraphKey.key_type`."""


class _Frame(NamedTuple):
    """A frame to be drawn."""

    kind: GraphKey
    scene: FloatScene
    parameters: torch.Tensor
    """A `Parameters` on the device, as float32."""
    kernels: FrameKernels

    @property
    def gaussian_count(self) -> int:
        """Number of Gaussians."""
        return len(self.scene.means)

    @property
    def flags(self) -> Any:
        """Argument of kernels that read the flags of a selection."""
        if self.kind.selected:
            return self.scene.flags
        return _NULL

    def new(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return an uninitialised tensor on the device."""
        return torch.empty(shape, dtype=dtype, device=self.scene.means.device)


class _Shapes(NamedTuple):
    """Opacities and scales as the paint and the options have them."""

    opacities: torch.Tensor
    scales: torch.Tensor


class _Projection(NamedTuple):
    """The result of `gsplat.fully_fused_projection`, for one camera."""

    radii: torch.Tensor
    """(N, 2) int32."""
    means2d: torch.Tensor
    """(N, 2)."""
    depths: torch.Tensor
    """(N,)."""
    conics: torch.Tensor
    """(N, 3)."""
    compensations: Any
    """(N,); `_NULL` if the picture is not antialiased."""


class FrameBuffers:
    """Tensors that the steps of a frame pass on.

    A step deletes those that no later one reads: their memory makes room for the tensors
    that come.
    """

    footprints: torch.Tensor
    """(N, 8) of the Gaussians in the picture."""
    keys: torch.Tensor
    """(N,) depths to sort by."""
    counts: torch.Tensor
    """(N,) int64 numbers of tiles that each Gaussian touches."""
    colors: torch.Tensor
    """(N, 4)."""
    surfaces: torch.Tensor | None = None
    """(N, BODY_FLOATS) of bodies."""
    order: torch.Tensor
    """(N,) indices of the Gaussians, nearest first."""
    sorted_counts: torch.Tensor
    """(N,) `counts` in this order."""
    ends: torch.Tensor
    """(N,) sums of `sorted_counts`."""
    part_size: int
    """Pairs that are sorted at a time."""
    part_count: int
    """Number of parts."""
    ids: torch.Tensor
    """(slots,) int32 Gaussians of each tile's list, part by part."""
    starts: torch.Tensor
    """(parts, tiles + 1) int32 where each list starts; the last one ends the last tile."""


class RecordDrawing:
    """Draws frames as gsplat does, to the last bits: the pictures that are kept."""

    def __init__(self, device: torch.device) -> None:
        """Load the viewer's kernels; compiling them, once, takes about a second.

        Raises:
            RendererError: the kernels do not compile.
        """
        self._device = device
        self.rules = gsplat_rules(device)
        """The rules by which frames are drawn."""
        self._kernels("short")

    def set_frame(self, parameters: Parameters, target: torch.Tensor) -> None:
        """Write a frame's parameters to the device, queued on the current stream."""
        drawing = self._kernels("short").drawing
        drawing.launch("set_frame", 1, 64, parameters, target)

    def draw(self, kind: GraphKey, scene: FloatScene, parameters: torch.Tensor) -> None:
        """Queue the drawing of a frame, as `FrameDrawing.draw`."""
        draw(kind, scene, parameters, self._kernels(kind.key_type))

    def _kernels(self, key_type: str) -> FrameKernels:
        alpha_max, least_compensation = defines(self.rules)
        device = self._device.index
        return FrameKernels(
            projection=kernels("projection.cu", (least_compensation,), device),
            drawing=kernels("frame.cu", (f"KEY={key_type}", alpha_max), device),
        )


def draw(
    kind: GraphKey,
    scene: FloatScene,
    parameters: torch.Tensor,
    kernels: FrameKernels,
) -> None:
    """Draw a frame of a scene that is not empty.

    Args:
        kind: sizes and modes.
        scene: what to draw.
        parameters: a `Parameters` on the device, as float32: camera and targets.
        kernels: for this kind.
    """
    frame = _Frame(kind, scene, parameters, kernels)
    buffers = FrameBuffers()
    _project(frame, buffers)
    _sort(frame, buffers)
    _rasterise(frame, buffers)


# -- from Gaussians to footprints ---------------------------------------------------------


def _project(frame: _Frame, buffers: FrameBuffers) -> None:
    """Fill `footprints`, `keys`, `counts`, `colors` and, for bodies, `surfaces`."""
    shapes = _choose(frame)
    _shade(frame, buffers, shapes, _project_centers(frame, shapes))
    if frame.kind.paint_facts.composition == "nearest":
        _make_bodies(frame, buffers, shapes)


def _choose(frame: _Frame) -> _Shapes:
    """Return opacities and scales for the selection, the scale and the paint."""
    kind = frame.kind
    scene = frame.scene
    is_by_density = kind.paint_facts.by_density
    if not kind.selected and not kind.scaled and is_by_density:
        return _Shapes(scene.opacities, scene.scales)
    n = frame.gaussian_count
    opacities = frame.new(n)
    scales = scene.scales
    scales_target: Any = _NULL
    if kind.scaled:
        scales = frame.new(n, 3)
        scales_target = scales
    frame.kernels.drawing.launch(
        "choose",
        blocks(n, 256),
        256,
        _INT(n),
        frame.parameters,
        scene.opacities,
        scene.scales,
        frame.flags,
        _INT(not is_by_density),
        opacities,
        scales_target,
    )
    return _Shapes(opacities, scales)


def _project_centers(frame: _Frame, shapes: _Shapes) -> _Projection:
    """Find where the Gaussians lie in the picture."""
    kind = frame.kind
    scene = frame.scene
    n = frame.gaussian_count
    projection = _Projection(
        radii=frame.new(n, 2, dtype=torch.int32),
        means2d=frame.new(n, 2),
        depths=frame.new(n),
        conics=frame.new(n, 3),
        compensations=frame.new(n) if _is_antialiased(kind) else _NULL,
    )
    frame.kernels.projection.launch(
        "project",
        blocks(n, 256),
        256,
        _INT(n),
        scene.means,
        scene.quats,
        shapes.scales,
        shapes.opacities,
        frame.parameters[:16],
        frame.parameters[16:25],
        _INT(kind.width),
        _INT(kind.height),
        _FLOAT(EPS_2D),
        _FLOAT(kind.near),
        _FLOAT(kind.far),
        _FLOAT(0.0),
        _INT(MODELS.index(kind.model)),
        *projection,
    )
    return projection


def _is_antialiased(kind: GraphKey) -> bool:
    return kind.antialiased and kind.paint_facts.by_density


def _shade(
    frame: _Frame, buffers: FrameBuffers, shapes: _Shapes, projection: _Projection
) -> None:
    """Work out the colours, and the tiles that each Gaussian touches."""
    kind = frame.kind
    scene = frame.scene
    n = frame.gaussian_count
    columns, rows = kind.tiles
    buffers.footprints = frame.new(n, 8)
    buffers.keys = frame.new(n)
    buffers.counts = frame.new(n, dtype=torch.int64)
    buffers.colors = frame.new(n, 4)
    kernel = "shade"
    options: tuple[Any, ...] = ()
    if kind.paint != "color" or kind.selected:
        kernel = "shade_as"
        options = (
            _INT(list(PAINTS).index(kind.paint)),
            _INT(kind.model == "ortho"),
            _INT(kind.width),
            _INT(kind.height),
            frame.flags,
            scene.quats,
            scene.scales,
        )
    degree = kind.degree if kind.paint_facts.has_own_colors else 0
    frame.kernels.drawing.launch(
        kernel,
        blocks(n, 128),
        128,
        _INT(n),
        frame.parameters,
        scene.means,
        shapes.opacities,
        projection.compensations,
        scene.sh0,
        _LONG(scene.sh0.stride(0)),
        scene.shN,
        _LONG(scene.shN.stride(0)),
        _INT(degree),
        projection.radii,
        projection.means2d,
        projection.conics,
        projection.depths,
        _INT(columns),
        _INT(rows),
        buffers.footprints,
        buffers.keys,
        buffers.counts,
        buffers.colors,
        *options,
    )


def _make_bodies(frame: _Frame, buffers: FrameBuffers, shapes: _Shapes) -> None:
    """Fill `surfaces`."""
    kind = frame.kind
    n = frame.gaussian_count
    buffers.surfaces = frame.new(n, BODY_FLOATS)
    frame.kernels.drawing.launch(
        "bodies",
        blocks(n, 256),
        256,
        _INT(n),
        frame.parameters,
        frame.scene.means,
        frame.scene.quats,
        shapes.scales,
        buffers.counts,
        _INT(MODELS.index(kind.model)),
        _INT(kind.width),
        _INT(kind.height),
        _FLOAT(EPS_2D),
        buffers.surfaces,
    )


# -- from footprints to the lists of tiles ------------------------------------------------


def _sort(frame: _Frame, buffers: FrameBuffers) -> None:
    """Fill `ids` and `starts`: the list of each tile, nearest first."""
    # Equal depths stay in the Gaussians' order, as in gsplat.
    buffers.order = torch.sort(buffers.keys, stable=True).indices
    del buffers.keys
    buffers.sorted_counts = buffers.counts.index_select(0, buffers.order)
    del buffers.counts
    buffers.ends = buffers.sorted_counts.cumsum(0)
    slots = frame.kind.slots
    part_count = blocks(slots, MAX_PART_SIZE)
    buffers.part_size = 64 * blocks(blocks(slots, part_count), 64)
    buffers.part_count = blocks(slots, buffers.part_size)
    _group_by_tile(frame, buffers)


def _group_by_tile(frame: _Frame, buffers: FrameBuffers) -> None:
    """Bring the pairs of Gaussian and tile, which are nearest first, into lists."""
    kind = frame.kind
    n = frame.gaussian_count
    slots = kind.slots
    size = buffers.part_size
    tiles = frame.new(slots, dtype=_KEY_DTYPES[kind.key_type])
    # A part's list replaces the pairs of the part before.
    pairs = frame.new(slots + size, dtype=torch.int32)
    buffers.ids = pairs[:slots]
    gaussians = pairs[size:]
    frame.kernels.drawing.launch(
        "fill",
        blocks(max(n, slots), 256),
        256,
        _INT(n),
        _INT(slots),
        buffers.order,
        buffers.sorted_counts,
        buffers.ends,
        buffers.footprints,
        _INT(kind.tiles[0]),
        tiles,
        gaussians,
    )
    del buffers.order, buffers.sorted_counts
    buffers.starts = frame.new(
        buffers.part_count, kind.tile_count + 1, dtype=torch.int32
    )
    for part_index in range(buffers.part_count):
        first = part_index * size
        end = min(first + size, slots)
        grouped, positions = torch.sort(tiles[first:end], stable=True)
        frame.kernels.drawing.launch(
            "gather",
            blocks(end - first, 256),
            256,
            _INT(n),
            _INT(first),
            _INT(end - first),
            _INT(kind.tile_count),
            grouped,
            positions,
            gaussians[first:],
            buffers.ends,
            frame.parameters,
            buffers.ids[first:],
            buffers.starts[part_index],
        )
        del grouped, positions


# -- from lists to the picture ------------------------------------------------------------


def _rasterise(frame: _Frame, buffers: FrameBuffers) -> None:
    """Composite the picture, a block of threads for each tile."""
    kind = frame.kind
    options: tuple[Any, ...] = ()
    if buffers.surfaces is not None:
        options = (buffers.surfaces, _FLOAT(kind.near))
    frame.kernels.drawing.launch(
        kind.paint_facts.cuda_kernel,
        kind.tile_count,
        _BLEND_BLOCK,
        _INT(kind.width),
        _INT(kind.height),
        _INT(kind.tiles[0]),
        _INT(kind.element_size),
        _INT(buffers.part_count),
        _INT(kind.tile_count + 1),
        buffers.starts,
        buffers.ids,
        buffers.footprints,
        buffers.colors,
        frame.parameters,
        *options,
    )
