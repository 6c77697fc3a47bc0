"""Draw packed Gaussians on the CPU, and watch what one kernel hands to the next."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from splatview_viewer.render.gsplat import packed
from splatview_viewer.render.gsplat.cuda import blocks
from splatview_viewer.render.gsplat.float_scene import FloatScene
from splatview_viewer.render.gsplat.packed import PackedKernels
from splatview_viewer.render.gsplat.packed_scene import (
    SHAPE_FLOATS,
    PackedScene,
    halves_of,
    pack,
    unpacked,
)
from splatview_viewer.render.gsplat.parameters import TILE
from splatview_viewer.scene import EVERYTHING
from splatview_viewer.scene import flags as flags_of
from splatview_viewer.scene.scene import GaussianScene
from support.frame_target import FrameTarget
from support.on_cpu import OnCpu
from support.renderer_cases import CLASSIC

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.base import RenderOptions
    from splatview_viewer.render.gsplat.cuda import Launcher

SORTS = (
    "sort_by_first_digit",
    "sort_by_second_digit",
    "sort_by_third_digit",
    "sort_by_last_digit",
)
ORDER_KERNELS = (
    "set_frame",
    "begin_frame",
    "find_depths",
    "start_digits",
    *SORTS,
)
SLAB_KERNELS = ("shade", "place", "list", "blend", "blend_with_depth")
DEFINES = {"ALPHA_MAX": "0.999f", "LEAST_COMPENSATION": "0.0f"}
SLOTS = 1 << 14
"""Enough for a few thousand Gaussians."""
TILES = 16
"""Tiles of a bin."""
DIGITS = 256
TAKEN_BLOCKS = len(SORTS) * DIGITS
"""Place of `parts` in `Counters`, which follows the histograms."""
VISIBLE = TAKEN_BLOCKS + len(SORTS)
"""Place of `visible` in `Counters`."""
MASKS = VISIBLE + 1 + 8
"""Place of `masks` in `Counters`, which follows the numbers of blocks of 8 slabs."""


def packed_kernels() -> PackedKernels:
    """Compile the kernels unless an earlier run has done so."""
    defines = {**DEFINES, "BINS_MAX": str(packed.BINS[0])}
    return PackedKernels(
        order=OnCpu("packed_order.cu", ORDER_KERNELS, defines),
        slab=OnCpu("packed_slab.cu", SLAB_KERNELS, defines),
    )


def activation_kernels() -> OnCpu:
    """Compile the kernels that activate and pack unless an earlier run has done so."""
    return OnCpu("activation.cu", ("activate", "activate_packed", "pack"))


def empty_packed(n: int, degree: int) -> PackedScene:
    """Return memory for a packed scene, uninitialised."""
    shapes = torch.empty(n, SHAPE_FLOATS)
    colors = torch.empty(n, halves_of(degree), dtype=torch.float16)
    return PackedScene(shapes, colors, degree)


def packed_scene(gaussians: GaussianScene) -> PackedScene:
    """Return an activated scene, packed, without a selection."""
    colors = torch.cat([gaussians.sh0[:, None], gaussians.shN], 1)
    floats = FloatScene(
        means=gaussians.means.contiguous(),
        quats=gaussians.quats.contiguous(),
        scales=gaussians.scales.contiguous(),
        opacities=gaussians.opacities.contiguous(),
        colors=colors.contiguous(),
    )
    target = empty_packed(len(gaussians), gaussians.sh_degree)
    pack(floats, target, activation_kernels())
    return target


def unpacked_scene(scene: PackedScene) -> GaussianScene:
    """Return the activated Gaussians that a packed scene stands for."""
    floats = unpacked(scene)
    return GaussianScene(
        means=floats.means,
        quats=torch.nn.functional.normalize(floats.quats),
        scales=floats.scales,
        opacities=floats.opacities,
        sh0=floats.sh0,
        shN=floats.shN,
        activated=True,
        sh_degree=scene.degree,
    )


def drawn(
    kernels: PackedKernels,
    gaussians: GaussianScene,
    view: Camera,
    options: RenderOptions = CLASSIC,
    slots: int = SLOTS,
    dtype: torch.dtype = torch.float32,
) -> FrameTarget:
    """Draw an activated scene."""
    target = FrameTarget(view, options, dtype)
    scene = packed_scene(gaussians)
    if options.selection != EVERYTHING:
        scene = scene.with_flags(flags_of(gaussians, options.selection))
    parameters = target.parameters(kernels.order)
    packed.draw(target.kind(scene.degree, slots), scene, parameters, kernels)
    return target


# -- order ----------------------------------------------------------------------------


class OrderWatcher:
    """Takes the place of the kernels of packed_slab.cu; remembers their Gaussians."""

    def __init__(self) -> None:
        self.order: np.ndarray = np.empty(0, np.int32)
        """The Gaussians in sight, nearest first."""

    def launch(self, name: str, grid: int, block: int, *args: Any) -> None:
        if name == "shade":
            *_, order, _, counters = args
            self.order = _visible(order, counters)


def order_of(
    kernels: PackedKernels, gaussians: GaussianScene, view: Camera
) -> np.ndarray:
    """Return the Gaussians in sight, nearest first, as the kernels sort them."""
    watcher = OrderWatcher()
    drawn(replace(kernels, slab=watcher), gaussians, view)
    return watcher.order


def _visible(order: torch.Tensor, counters: torch.Tensor) -> np.ndarray:
    """Return the part of an order that is set."""
    return order[: int(counters[VISIBLE])].numpy()


class LateBlocks:
    """Launches the kernels of packed_order.cu, and a sort's last block once more.

    On the CPU a block finds the sum of all parts before its own. Many blocks are at work
    on a GPU: here, the last one looks back over parts of which only their own counts are
    known, to the sum of the first.
    """

    _VALUE = (1 << 30) - 1
    _COUNTED = 1 << 30

    def __init__(self, kernels: Launcher) -> None:
        self._kernels = kernels
        self.repeated = 0
        """Gaussians that the last blocks have written once more."""

    def launch(self, name: str, grid: int, block: int, *args: Any) -> None:
        self._kernels.launch(name, grid, block, *args)
        if name not in SORTS:
            return
        *_, ids, counters, status = args
        by_block = status.view(grid, DIGITS)
        counts = (by_block & self._VALUE).diff(dim=0)
        by_block[1:-1] = counts[:-1] | self._COUNTED
        by_block[-1] = 0
        counters[TAKEN_BLOCKS + SORTS.index(name)] = grid - 1
        sorted_ids = ids.clone()
        ids.fill_(-1)
        self._kernels.launch(name, 1, block, *args)
        is_missing = ids < 0
        self.repeated += int((~is_missing).sum())
        ids[is_missing] = sorted_ids[is_missing]


# -- lists ----------------------------------------------------------------------------


@dataclass
class ListedSlab:
    """The lists of a slab."""

    first: int
    """Place of its first Gaussian in the order of depth."""
    ranks: list[np.ndarray]
    """For each bin: the listed Gaussians, as places in the slab."""
    tiles: list[np.ndarray]
    """For each bin and Gaussian: a bit for each tile where it shows."""
    starts: np.ndarray
    """(bins,) where the lists begin."""
    open_tiles: np.ndarray
    """(bins,) a bit for each tile that is not finished after the slab."""

    @property
    def pair_count(self) -> int:
        """Return the number of pairs of a Gaussian and a bin."""
        return sum(len(ranks) for ranks in self.ranks)


class SlabWatcher:
    """Launches the kernels of packed_slab.cu, and remembers each slab's lists."""

    def __init__(self, kernels: Launcher) -> None:
        self._kernels = kernels
        self.order: np.ndarray = np.empty(0, np.int32)
        """The Gaussians in sight, nearest first."""
        self.slabs: list[ListedSlab] = []

    def launch(self, name: str, grid: int, block: int, *args: Any) -> None:
        self._kernels.launch(name, grid, block, *args)
        if name == "shade":
            *_, order, _, counters = args
            self.order = _visible(order, counters)
        elif name == "list":
            self._remember_lists(*args)
        elif name.startswith("blend"):
            # Tiles of each bin, of those that are open.
            *_, open_tiles, _, _ = args
            self.slabs[-1].open_tiles = open_tiles.numpy().copy()

    def _remember_lists(self, picture: Any, slab: Any, lists: Any, _: Any) -> None:
        ranges = _copy(lists.bins, "u4", picture.bins, 2)
        gaussians = _copy(lists.pair_gaussians, "u4", lists.slots)
        tiles = _copy(lists.pair_tiles, "u2", lists.slots)
        listed = ListedSlab(
            first=len(self.order) * slab.begin // 256,
            ranks=[gaussians[first:end] for first, end in ranges],
            tiles=[tiles[first:end] for first, end in ranges],
            starts=ranges[:, 0],
            open_tiles=np.empty(0),
        )
        self.slabs.append(listed)

    def tiles_of_gaussians(self, view: Camera, n: int) -> np.ndarray:
        """Return (N, rows, columns) in which tiles the scene's Gaussians are listed."""
        is_listed = np.zeros((n, *tile_shape(view)), bool)
        for slab in self.slabs:
            for bin_index, ranks in enumerate(slab.ranks):
                gaussians = self.order[slab.first + ranks]
                bits, rows, columns = tiles_of_bin(view, bin_index)
                shows = slab.tiles[bin_index][:, None] >> bits & 1
                is_listed[gaussians[:, None], rows, columns] |= shows == 1
        return is_listed


def _copy(address: int, dtype: str, *shape: int) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(ctypes.string_at(address, size), dtype).reshape(shape)


def tile_shape(view: Camera) -> tuple[int, int]:
    """Return the rows and columns of tiles."""
    return blocks(view.height, TILE), blocks(view.width, TILE)


def tiles_of_bin(view: Camera, bin_index: int) -> tuple[np.ndarray, ...]:
    """Return bits, rows and columns of a bin's tiles that are in the picture."""
    bin_row, bin_column = divmod(bin_index, blocks(view.width, packed.BIN))
    bits = np.arange(TILES)
    rows = bin_row * 4 + bits // 4
    columns = bin_column * 4 + bits % 4
    row_count, column_count = tile_shape(view)
    is_inside = (rows < row_count) & (columns < column_count)
    return bits[is_inside], rows[is_inside], columns[is_inside]


# -- room -----------------------------------------------------------------------------


class RoomWatcher:
    """Launches the kernels of packed_slab.cu with more memory than they are told of."""

    _UNTOUCHED = 0x5555
    _DTYPES: ClassVar = {
        "masks": torch.int16,
        "pair_tiles": torch.int16,
        "pair_gaussians": torch.int32,
    }

    def __init__(self, kernels: Launcher) -> None:
        self._kernels = kernels
        self._arrays = {
            name: torch.full((SLOTS,), self._UNTOUCHED, dtype=dtype)
            for name, dtype in self._DTYPES.items()
        }

    def launch(self, name: str, grid: int, block: int, *args: Any) -> None:
        for lists in args:
            if hasattr(lists, "pair_tiles"):
                for array_name, array in self._arrays.items():
                    setattr(lists, array_name, array.data_ptr())
        self._kernels.launch(name, grid, block, *args)

    def is_untouched_after(self, slots: int) -> bool:
        """Return True if nothing is written after so many slots."""
        remainders = [array[slots:] for array in self._arrays.values()]
        return all(bool((values == self._UNTOUCHED).all()) for values in remainders)


class Crowd:
    """Launches the kernels of packed_slab.cu as behind millions of large Gaussians."""

    def __init__(self, kernels: Launcher, masks: int) -> None:
        """Take the kernels to call.

        Args:
            kernels: The kernels.
            masks: The number of masks that Gaussians before those of the scene have taken.
        """
        self._kernels = kernels
        self._masks = masks

    def launch(self, name: str, grid: int, block: int, *args: Any) -> None:
        if name == "shade":
            *_, slab, _, _, _, counters = args
            counters.view(torch.uint32)[MASKS + slab.index] = self._masks
        self._kernels.launch(name, grid, block, *args)
