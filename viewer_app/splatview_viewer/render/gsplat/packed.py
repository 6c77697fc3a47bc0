"""Frames from packed Gaussians, for pictures that something moves in.

A scene is packed once a version: 128 bytes a Gaussian of degree 3 in place of 236. Its
frames leave out early what others hide (`packed.cuh`), and take about a third of the
time of gsplat's. They are not gsplat's to the last bit, for halves have 11 bits, so that
pictures that stay are drawn by `drawing`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from splatview_viewer.render.base import EPS_2D
from splatview_viewer.render.gsplat.cuda import blocks, kernels
from splatview_viewer.render.gsplat.packed_scene import HALVES, PackedScene
from splatview_viewer.render.gsplat.parameters import TILE, GraphKey, Parameters
from splatview_viewer.render.gsplat.rules import defines, gsplat_rules

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.base import RenderOptions
    from splatview_viewer.render.gsplat.cuda import Launcher

MODELS = ("pinhole", "ortho")
"""The camera models that packed scenes are drawn with."""
PAINTS = ("color", "normals")
"""The paints that packed scenes are drawn in."""
BIN = 4 * TILE
"""Pixels a side of a bin."""
BINS = (512, 1024, 2048)
"""Bins that kernels are compiled for: pictures of 1920x1080, 2560x1440, 3840x2160. Of
fewer, a block lists more Gaussians at a time."""
SLABS = (0, 80, 256)
SLABS_OF_MANY = (0, 24, 80, 256)
"""Where slabs of depth begin and end, in 256ths of what is in sight. After each slab the
tiles are left out where nothing more can show, which costs some 40 us."""
MANY = 5_000_000
"""Gaussians from which on there is one slab more."""
NEAR_GROUPS = 512
"""Groups of 32 Gaussians before those of `_group_size`: what is nearest may cover much
of the picture."""
_THREADS = 256
_DEPTHS_OF_BLOCK = 8 * _THREADS
"""Gaussians of a block of `find_depths`."""
_KEYS_OF_BLOCK = 16 * _THREADS
"""Gaussians of a block of a sort."""
_PASSES = 4
_DIGITS = 256
_COUNTER_WORDS = 2048
"""At least those of `Counters` in packed.cuh."""
_WARP = 32
_INT = ctypes.c_int
_U32 = ctypes.c_uint32
_POINTER = ctypes.c_uint64
_NULL = ctypes.c_void_p(0)


def obstacle(camera: Camera, options: RenderOptions) -> str:
    """Return why a picture cannot be drawn from packed Gaussians; "" if it can."""
    if camera.model not in MODELS:
        return f"{camera.model} cameras"
    if options.paint not in PAINTS:
        return f'"{options.paint}"'
    if camera.near <= 0:
        return "a near plane behind the camera"
    if blocks(camera.width, BIN) * blocks(camera.height, BIN) > BINS[-1]:
        return "pictures larger than 3840x2160"
    return ""


# -- arguments of the kernels: packed.cuh -------------------------------------------------


class _Packed(ctypes.Structure):
    """Mirrors `Packed`."""

    _fields_ = (
        ("n", _INT),
        ("degree", _INT),
        ("pitch", _INT),
        ("shows_normals", _INT),
        ("shapes", _POINTER),
        ("colors", _POINTER),
        ("flags", _POINTER),
    )

    @classmethod
    def of_scene(cls, kind: GraphKey, scene: PackedScene) -> _Packed:
        flags = 0
        if kind.selected and scene.flags is not None:
            flags = scene.flags.data_ptr()
        return cls(
            n=scene.count,
            degree=min(kind.degree, scene.degree),
            pitch=scene.colors.shape[1] // HALVES,
            shows_normals=kind.paint == "normals",
            shapes=scene.shapes.data_ptr(),
            colors=scene.colors.data_ptr(),
            flags=flags,
        )


class _Picture(ctypes.Structure):
    """Mirrors `Picture`."""

    _fields_ = (
        ("width", _INT),
        ("height", _INT),
        ("tiles_x", _INT),
        ("tiles_y", _INT),
        ("bins_x", _INT),
        ("bins", _INT),
        ("ortho", _INT),
        ("antialiased", _INT),
        ("near", ctypes.c_float),
        ("far", ctypes.c_float),
        ("blur", ctypes.c_float),
    )

    @classmethod
    def of_kind(cls, kind: GraphKey) -> _Picture:
        columns, rows = kind.tiles
        bins_x = blocks(kind.width, BIN)
        return cls(
            width=kind.width,
            height=kind.height,
            tiles_x=columns,
            tiles_y=rows,
            bins_x=bins_x,
            bins=bins_x * blocks(kind.height, BIN),
            ortho=kind.model == "ortho",
            antialiased=kind.antialiased,
            near=kind.near,
            far=kind.far,
            blur=EPS_2D,
        )


class _Slab(ctypes.Structure):
    """Mirrors `Slab`."""

    _fields_ = (
        ("index", _INT),
        ("is_last", _INT),
        ("begin", _INT),
        ("end", _INT),
        ("near_groups", _INT),
        ("groups", _INT),
    )


class _Lists(ctypes.Structure):
    """Mirrors `Lists`."""

    _fields_ = (
        ("slots", _U32),
        ("unused", _U32),
        ("footprints", _POINTER),
        ("tints", _POINTER),
        ("touched", _POINTER),
        ("mask_begins", _POINTER),
        ("masks", _POINTER),
        ("counts", _POINTER),
        ("totals", _POINTER),
        ("bins", _POINTER),
        ("pair_gaussians", _POINTER),
        ("pair_tiles", _POINTER),
    )


# -- frames -------------------------------------------------------------------------------


@dataclass(frozen=True)
class PackedKernels:
    """The kernels that packed frames are drawn with."""

    order: Launcher
    """Those of packed_order.cu."""
    slab: Launcher
    """Those of packed_slab.cu."""


class PackedDrawing:
    """Draws frames of packed scenes."""

    def __init__(self, device: torch.device) -> None:
        """Load the viewer's kernels; compiling them, once, takes about two seconds.

        Raises:
            RendererError: the kernels do not compile.
        """
        self._device_index = device.index
        self._defines = defines(gsplat_rules(device))
        self._kernels(BINS[0])

    def set_frame(self, parameters: Parameters, target: torch.Tensor) -> None:
        """Write a frame's parameters to the device, queued on the current stream."""
        order = self._kernels(BINS[0]).order
        order.launch("set_frame", 1, 64, parameters, target)

    def draw(
        self, kind: GraphKey, scene: PackedScene, parameters: torch.Tensor
    ) -> None:
        """Queue the drawing of a frame, as `FrameDrawing.draw`."""
        draw(kind, scene, parameters, self._kernels(bins_max(kind)))

    def _kernels(self, bins: int) -> PackedKernels:
        """Return the kernels for pictures of up to so many bins, one of `BINS`."""
        macros = (*self._defines, f"BINS_MAX={bins}")
        return PackedKernels(
            order=kernels("packed_order.cu", macros, self._device_index),
            slab=kernels("packed_slab.cu", macros, self._device_index),
        )


def bins_max(kind: GraphKey) -> int:
    """Return the first of `BINS` that is enough for a picture."""
    bins = _Picture.of_kind(kind).bins
    return next(limit for limit in BINS if bins <= limit)


def draw(
    kind: GraphKey,
    scene: PackedScene,
    parameters: torch.Tensor,
    kernels: PackedKernels,
) -> None:
    """Draw a frame of a scene that is not empty.

    Args:
        kind: sizes and modes, without an `obstacle`.
        scene: what to draw.
        parameters: a `Parameters` on the device, as float32: camera and targets.
        kernels: for `bins_max(kind)`.
    """
    frame = _PackedFrame(kind, scene, parameters, kernels)
    frame.sort()
    frame.draw_slabs()


class _PackedFrame:
    """One frame, and the arrays that its steps pass on."""

    def __init__(
        self,
        kind: GraphKey,
        scene: PackedScene,
        parameters: torch.Tensor,
        kernels: PackedKernels,
    ) -> None:
        self._kind = kind
        self._count = scene.count
        self._device = scene.shapes.device
        self._parameters = parameters
        self._kernels = kernels
        self._scene = _Packed.of_scene(kind, scene)
        self._picture = _Picture.of_kind(kind)
        self._open = self._new_tensor(self._picture.bins)
        """Tiles of each bin that are not finished."""
        self._counters = self._new_tensor(_COUNTER_WORDS)
        self._order: torch.Tensor
        """(N,) int32 Gaussians in sight, nearest first."""

    def _new_tensor(
        self, *shape: int, dtype: torch.dtype = torch.int32
    ) -> torch.Tensor:
        """Return an uninitialised tensor on the device."""
        return torch.empty(shape, dtype=dtype, device=self._device)

    def sort(self) -> None:
        """Put what is in sight into the order of depth."""
        launch = self._kernels.order.launch
        count = self._count
        block_count = blocks(count, _KEYS_OF_BLOCK)
        status = self._new_tensor(_PASSES, block_count * _DIGITS)
        counters = self._counters
        launch(
            "begin_frame",
            _THREADS,
            _THREADS,
            self._picture,
            counters,
            status,
            _INT(status.numel()),
            self._open,
        )
        depths = self._new_tensor(count)
        launch(
            "find_depths",
            blocks(count, _DEPTHS_OF_BLOCK),
            _THREADS,
            self._parameters,
            self._scene,
            self._picture,
            depths,
            counters,
        )
        launch("start_digits", 1, _THREADS, counters)
        keys = self._new_tensor(count)
        ids = self._new_tensor(count)
        other_ids = self._new_tensor(count)
        # Each pass writes into what the one before it has read.
        for name, passed, arrays in (
            ("sort_by_first_digit", status[0], (depths, _NULL, keys, ids)),
            ("sort_by_second_digit", status[1], (keys, ids, depths, other_ids)),
            ("sort_by_third_digit", status[2], (depths, other_ids, keys, ids)),
            ("sort_by_last_digit", status[3], (keys, ids, _NULL, other_ids)),
        ):
            launch(name, block_count, _THREADS, _INT(count), *arrays, counters, passed)
        self._order = other_ids

    def draw_slabs(self) -> None:
        """Draw the picture, the nearest Gaussians first."""
        kind = self._kind
        bounds = SLABS_OF_MANY if self._count >= MANY else SLABS
        slabs = [self._slab(bounds, i) for i in range(len(bounds) - 1)]
        size = max(self._slab_size(slab) for slab in slabs)
        bins = self._picture.bins
        # The tensors have to stay until the last kernel is launched.
        tensors = {
            "footprints": self._new_tensor(size, 8),
            "tints": self._new_tensor(size, 4),
            "touched": self._new_tensor(size, 4),
            "mask_begins": self._new_tensor(size),
            "masks": self._new_tensor(kind.slots, dtype=torch.int16),
            "counts": self._new_tensor(bins, max(slab.groups for slab in slabs)),
            "totals": self._new_tensor(bins),
            "bins": self._new_tensor(bins, 2),
            "pair_gaussians": self._new_tensor(kind.slots),
            # Eight are read at a time.
            "pair_tiles": self._new_tensor(kind.slots + 8, dtype=torch.int16),
        }
        addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
        lists = _Lists(slots=kind.slots, **addresses)
        colors = self._new_tensor(kind.height, kind.width, 4)
        depths: Any = _NULL
        if kind.depth:
            depths = self._new_tensor(kind.height, kind.width)
        for slab in slabs:
            self._list_slab(slab, lists)
            self._blend_slab(slab, lists, colors, depths)

    def _slab(self, bounds: tuple[int, ...], index: int) -> _Slab:
        near_groups = NEAR_GROUPS if index == 0 else 0
        slab = _Slab(
            index=index,
            is_last=index == len(bounds) - 2,
            begin=bounds[index],
            end=bounds[index + 1],
            near_groups=near_groups,
        )
        slab.groups = near_groups + blocks(self._slab_size(slab), self._group_size)
        return slab

    def _slab_size(self, slab: _Slab) -> int:
        """Return the number of Gaussians that a slab may have."""
        return blocks(self._count * (slab.end - slab.begin), 256) + 1

    @property
    def _group_size(self) -> int:
        """Return the number of Gaussians that a block lists: GROUP in packed.cuh."""
        return 8 * 1024 // bins_max(self._kind) * _WARP

    def _list_slab(self, slab: _Slab, lists: _Lists) -> None:
        """Make lists of a slab's Gaussians by bins."""
        launch = self._kernels.slab.launch
        picture = self._picture
        counters = self._counters
        launch(
            "shade",
            slab.groups,
            _THREADS,
            self._parameters,
            self._scene,
            picture,
            slab,
            lists,
            self._order,
            self._open,
            counters,
        )
        bins = picture.bins
        launch(
            "place", bins, _THREADS, self._parameters, picture, slab, lists, counters
        )
        launch("list", slab.groups, _THREADS, picture, slab, lists, counters)

    def _blend_slab(
        self, slab: _Slab, lists: _Lists, colors: torch.Tensor, depths: Any
    ) -> None:
        """Draw the lists over what the slabs before have drawn."""
        kind = self._kind
        self._kernels.slab.launch(
            "blend_with_depth" if kind.depth else "blend",
            kind.tile_count,
            _THREADS,
            self._parameters,
            self._picture,
            _INT(kind.element_size),
            slab,
            lists,
            self._open,
            colors,
            depths,
        )
