"""Pictures drawn from packed Gaussians keep their promises.

A packed Gaussian takes little memory, and its numbers are rounded to the nearest half.
A frame draws exactly the Gaussians in sight, nearest first, those of equal depth as they
come in the scene. Tiles where nothing more can show are left out, which is not seen: a
picture is the readable reference's of the rounded Gaussians, to 80 dB, so that it is
within 55 dB of that without rounding. With too little room for its lists, a frame writes
nothing beyond, and says that it needs more.

The kernels (`packed.cuh`) run on the CPU (`support/kernels_on_cpu.h`), where the viewer's
own code launches them; memory that is not initialised holds no zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.frame_target import FrameTarget
from support.packed_on_cpu import (
    SLOTS,
    SORTS,
    Crowd,
    LateBlocks,
    RoomWatcher,
    SlabWatcher,
    activation_kernels,
    drawn,
    empty_packed,
    order_of,
    packed_kernels,
    packed_scene,
    tile_shape,
    tiles_of_bin,
    unpacked_scene,
)
from support.reference import ReferenceRenderer, ellipses
from support.renderer_cases import (
    CLASSIC,
    Chance,
    activated,
    camera,
    close,
    draw,
    looking_at_origin,
    random_scene,
    scene,
)

from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import Camera
from splatview_viewer.render.base import ALPHA_MIN, RenderOptions
from splatview_viewer.render.gsplat import packed
from splatview_viewer.render.gsplat.activation import activate
from splatview_viewer.render.gsplat.float_scene import FloatScene
from splatview_viewer.render.gsplat.packed import PackedKernels
from splatview_viewer.render.gsplat.packed_scene import bytes_of, pack, unpacked
from splatview_viewer.render.gsplat.parameters import TILE
from splatview_viewer.scene import Selection
from splatview_viewer.scene.scene import FIELDS, GaussianScene

VIEW = looking_at_origin(100, 70)
"""Two by two bins."""
WIDE = looking_at_origin(200, 140)
"""Four by three bins: Gaussians may touch more than two by two."""


@pytest.fixture(scope="module")
def kernels() -> PackedKernels:
    return packed_kernels()


@pytest.fixture(autouse=True)
def no_zeros() -> Iterator[None]:
    """Fill memory that is not initialised with the largest numbers."""
    torch.set_deterministic_debug_mode("error")
    yield
    torch.set_deterministic_debug_mode("default")


@pytest.fixture(autouse=True)
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out most of the first slab's blocks: scenes here have no Gaussians for them."""
    monkeypatch.setattr(packed, "NEAR_GROUPS", 8)


# -- packing -------------------------------------------------------------------------


def test_packed_gaussian_of_degree_three_takes_at_most_130_bytes() -> None:
    assert bytes_of(3) <= 130
    assert bytes_of(0) < bytes_of(1) < bytes_of(2)


@pytest.mark.parametrize("degree", range(5))
def test_packed_numbers_are_the_nearest_halves(degree: int) -> None:
    gaussians = activated(random_scene(degree, Chance(n=300, sh_degree=degree)))
    # Halves end at 65504, and have fewer bits below 6e-5.
    gaussians.sh0[:4] = torch.tensor([[1e6], [-1e6], [3e-6], [65519.0]])
    gaussians.opacities[:2] = torch.tensor([0.0, 1.0])
    gaussians.scales[0] = 0
    gaussians.scales[1, 2] = 0
    result = packed_scene(gaussians)
    size = result.shapes.nbytes + result.colors.nbytes
    assert size == len(gaussians) * bytes_of(degree)

    shapes = result.shapes.numpy()
    assert np.array_equal(shapes[:, :3], gaussians.means.numpy())
    scales = gaussians.scales.numpy()
    assert np.array_equal(shapes[:, 3], scales.max(1))
    halves = shapes.view(np.float16)
    ratios = scales / np.maximum(scales.max(1, keepdims=True), 1e-30)
    assert np.array_equal(halves[:, 12:15], ratios.astype(np.float16))
    opacities = gaussians.opacities.numpy().astype(np.float16)
    assert np.array_equal(halves[:, 15], opacities)
    quats = gaussians.quats.double().numpy()
    quats /= np.linalg.norm(quats, axis=1, keepdims=True)
    nearest = quats.astype(np.float16)
    # The length is known to 24 bits: few are rounded to the other side.
    assert (halves[:, 8:12] == nearest).mean() > 0.99
    assert np.abs(halves[:, 8:12] - quats).max() < 2.0**-12 * 1.001

    terms = 3 * (degree + 1) ** 2
    colors = torch.cat([gaussians.sh0, gaussians.shN.flatten(1)], 1).numpy()
    expected = colors.clip(-65504, 65504).astype(np.float16)
    assert np.array_equal(result.colors[:, :terms].numpy(), expected)
    assert not result.colors[:, terms:].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_version_that_is_packed_where_it_lies_has_the_same_bits(
    dtype: torch.dtype,
) -> None:
    n = 300
    raw = random_scene(1, Chance(n=n))
    raw = replace(raw, **{name: getattr(raw, name).to(dtype) for name in FIELDS})
    raw.means[3] = torch.nan
    raw.shN[70, 5, 1] = torch.inf
    raw.quats[150] = 0
    raw.scales[290] = 20
    shapes = ((3,), (4,), (3,), (), (9, 3))
    floats = FloatScene(*(torch.empty(n, *shape) for shape in shapes))
    activation = activation_kernels()
    at_once = empty_packed(n, degree=2)
    left_out = []
    for target in (floats, at_once):
        counts = torch.empty(3, dtype=torch.int64)
        counters = torch.zeros(4, dtype=torch.int32)
        activate(raw, target, np.zeros(3), counts, counters, activation)
        left_out.append(counts.tolist())
    assert left_out == [[2, 1, 1], [2, 1, 1]]
    in_steps = empty_packed(n, degree=2)
    pack(floats, in_steps, activation)
    is_valid = floats.opacities > 0
    assert is_valid.sum() == n - 4
    for name in ("means", "quats", "scales", "opacities", "colors"):
        direct_field = getattr(unpacked(at_once.to_host()), name)[is_valid]
        stepped_field = getattr(unpacked(in_steps), name)[is_valid]
        assert torch.equal(direct_field, stepped_field), name


# -- order ---------------------------------------------------------------------------


def in_order(depths: np.ndarray, near: float, far: float) -> np.ndarray:
    """Return the stable order of depths between the planes."""
    in_sight = np.flatnonzero((depths >= near) & (depths <= far))
    return in_sight[np.argsort(depths[in_sight], kind="stable")]


@pytest.mark.parametrize("n", [1, 4095, 4096, 4097, 20_000])
@pytest.mark.parametrize("far", [12.0, 1e10])
def test_order_is_that_of_a_stable_sort(
    kernels: PackedKernels, n: int, far: float
) -> None:
    # A block sorts 4096.
    chance = np.random.default_rng(n)
    depths = chance.uniform(0.1, 12.5, n).astype(np.float32)
    # Every second one is one of a few, so that there are ties in and between blocks.
    depths[::2] = chance.choice([0.2, 1.0, 1.0000001, 3.0, 11.9], len(depths[::2]))
    depths[::7] *= -1
    depths[0] = 1.0
    view = camera(16, 16, near=0.15, far=far)
    means = np.stack([0 * depths, 0 * depths, depths], 1)
    order = order_of(kernels, scene(means), view)
    assert np.array_equal(order, in_order(depths, 0.15, far))


def test_sort_looks_back_over_blocks_that_are_at_work(kernels: PackedKernels) -> None:
    depths = np.random.default_rng(1).integers(100, 500, 5 * 4096) / 100
    means = np.stack([0 * depths, 0 * depths, depths], 1)
    late = LateBlocks(kernels.order)
    order = order_of(replace(kernels, order=late), scene(means), camera(16, 16))
    assert late.repeated == len(SORTS) * 4096
    assert np.array_equal(order, np.argsort(depths, kind="stable"))


def test_order_of_a_scene_out_of_sight_is_empty(kernels: PackedKernels) -> None:
    gaussians = scene(np.full((5000, 3), -1.0))
    assert order_of(kernels, gaussians, camera()).size == 0
    target = drawn(kernels, gaussians, camera(48, 32))
    assert not target.rgba.any()
    assert target.needed == 0


# -- lists ---------------------------------------------------------------------------


def densities(gaussians: GaussianScene, view: Camera) -> np.ndarray:
    """Compute alphas (N, rows of half a pixel, columns) of tiles that cover the view.

    Gaussians that are not between the planes have none.
    """
    rotation = view.viewmat[:3, :3]
    p = gaussians.means.double().numpy() @ rotation.T + view.viewmat[:3, 3]
    scales = gaussians.scales.double().numpy()
    axes = rotations.matrix(gaussians.quats.numpy()) * scales[:, None]
    centers, _, (xx, xy, yy), det, _ = ellipses(p, view, rotation @ axes)
    rows, columns = tile_shape(view)
    is_between = (p[:, 2] >= view.near) & (p[:, 2] <= view.far)
    opacities = gaussians.opacities.numpy() * is_between
    columns_of_table = (*centers.T, yy / det, -xy / det, xx / det, opacities)
    table = np.stack(columns_of_table).astype(np.float32)
    center_x, center_y, a, b, c, opacity = table[:, :, None, None]
    x = np.arange(0.5, columns * TILE, dtype=np.float32) - center_x
    y = np.arange(0.5, rows * TILE + 0.5, 0.5, dtype=np.float32)[:, None] - center_y
    return opacity * np.exp(-0.5 * (a * x * x + c * y * y) - b * x * y)


def tile_maxima(values: np.ndarray, step: int, view: Camera) -> np.ndarray:
    """Return the largest of `densities` (N, rows, columns) of each tile.

    Args:
        values: The densities.
        step: 2 for pixels' centres alone, 1 also between two rows of a tile.
        view: The camera.
    """
    rows, columns = tile_shape(view)
    by_tile = values.reshape(len(values), rows, 2 * TILE, columns, TILE)
    return by_tile[:, :, : 2 * TILE - 1 : step].max((2, 4))


@pytest.mark.parametrize(
    ("n", "view", "bounds"), [(150, WIDE, (0, 192, 256)), (600, VIEW, (0, 24, 80, 256))]
)
def test_lists_hold_the_visible_gaussians_in_the_order_of_depth(
    kernels: PackedKernels,
    monkeypatch: pytest.MonkeyPatch,
    n: int,
    view: Camera,
    bounds: tuple[int, ...],
) -> None:
    # The first block of the first slab lists 32 Gaussians, the others 256.
    monkeypatch.setattr(packed, "NEAR_GROUPS", 1)
    monkeypatch.setattr(packed, "SLABS", bounds)
    faint = Chance(n=n, log_scale=(-3.0, 0.7), logit=(-3.5, 0.3))
    gaussians = activated(random_scene(8, faint))
    watcher = SlabWatcher(kernels.slab)
    target = drawn(replace(kernels, slab=watcher), gaussians, view)
    assert len(watcher.slabs) == len(bounds) - 1
    for slab in watcher.slabs:
        assert np.array_equal(slab.open_tiles, watcher.slabs[0].open_tiles)
        assert target.needed >= slab.pair_count
        # Kernels read the tiles of eight pairs at a time.
        assert not (slab.starts % 8).any()
        for ranks in slab.ranks:
            assert (np.diff(ranks.astype(int)) > 0).all()
    is_listed = watcher.tiles_of_gaussians(view, n)
    values = densities(gaussians, view)
    may_be = tile_maxima(values, 1, view) >= 0.8 * ALPHA_MIN
    values[:, 2 * view.height :] = 0
    values[:, :, view.width :] = 0
    must_be = tile_maxima(values, 2, view) >= 1.01 * ALPHA_MIN
    assert must_be.sum() > n
    assert not (must_be & ~is_listed).any()
    assert not (is_listed & ~may_be).any()


def test_tiles_where_nothing_more_shows_are_left_out(kernels: PackedKernels) -> None:
    chance = np.random.default_rng(0)
    # Three opaque walls before the left half of the picture, and others behind them.
    x, y, z = np.meshgrid(
        np.linspace(-2.5, -0.9, 5), np.linspace(-1.8, 1.8, 10), [2, 2.2, 2.4]
    )
    wall = np.stack([x.ravel(), y.ravel(), z.ravel()], 1)
    hidden = chance.uniform((-3, -2, 4), (3, 2, 6), (400, 3))
    means = np.concatenate([wall, hidden])
    opacities = np.repeat([0.9999, 0.5], [len(wall), len(hidden)])
    rgb = chance.uniform(0, 1, (len(means), 3))
    scales = np.full((len(means), 1), 0.25)
    # These touch three bins in a row, and are listed in another way.
    scales[len(wall) :: 10] = 1.0
    gaussians = scene(means, rgb, scales, opacities)
    view = camera(170, 112, focal=80.0)
    watcher = SlabWatcher(kernels.slab)
    target = drawn(replace(kernels, slab=watcher), gaussians, view)
    near, far = watcher.slabs
    assert far.pair_count > 100
    for bin_index, open_tiles in enumerate(near.open_tiles):
        bits, _, columns = tiles_of_bin(view, bin_index)
        is_open = open_tiles >> bits & 1
        assert not is_open[columns < 2].any()
        assert is_open[columns > 7].all()
        assert not (far.tiles[bin_index] & ~open_tiles).any()
    assert_agrees(kernels, target, gaussians, view)


# -- pictures ------------------------------------------------------------------------

USUAL = Chance(n=300)
SELECTED = Selection(opacity=(0.3, 0.95), marked=(5, 17))
CASES = {
    "antialiased": (replace(USUAL, log_scale=(-4.5, 1)), RenderOptions("antialiased")),
    "lower degree": (USUAL, RenderOptions(sh_degree=1)),
    "without depth": (USUAL, RenderOptions(depth=False)),
    "selection": (USUAL, RenderOptions(selection=SELECTED)),
    "scaled": (USUAL, RenderOptions(scale=0.6)),
    "normals": (USUAL, RenderOptions(paint="normals")),
    "marked normals": (USUAL, RenderOptions(paint="normals", selection=SELECTED)),
    "huge": (Chance(n=100, log_scale=(0.0, 0.5)), CLASSIC),
    "thin": (replace(USUAL, log_scale=(-3.0, 2.0)), CLASSIC),
    "opaque": (replace(USUAL, log_scale=(-1.0, 0.5), logit=(6.0, 1.0)), CLASSIC),
    "thin antialiased": (
        replace(USUAL, log_scale=(-3.0, 2.0)),
        RenderOptions("antialiased"),
    ),
    "faint": (replace(USUAL, logit=(-4.5, 1.0)), CLASSIC),
}
for sh_degree in range(5):
    CASES[f"degree {sh_degree}"] = (replace(USUAL, sh_degree=sh_degree), CLASSIC)


def assert_agrees(
    kernels: PackedKernels,
    target: FrameTarget,
    gaussians: GaussianScene,
    view: Camera = VIEW,
    options: RenderOptions = CLASSIC,
    decibels: float = 80,
) -> None:
    """Check a picture against the reference's.

    Args:
        kernels: The kernels.
        target: The picture.
        gaussians: The scene that was packed.
        view: The camera.
        options: The picture's options.
        decibels: Likeness to the reference's picture of the rounded Gaussians.
    """
    pixels = target.pixels
    rounded = unpacked_scene(packed_scene(gaussians))
    close(pixels, draw(ReferenceRenderer(), rounded, view, options), decibels)
    expected = draw(ReferenceRenderer(), gaussians, view, options)
    close(pixels, expected, 55)
    if pixels.depth is None or expected.depth is None:
        return
    is_covered = expected.alpha > 0.02
    ratios = pixels.depth[is_covered] / expected.depth[is_covered]
    # Rounding decides in a pixel in a thousand whether a Gaussian is the one too many.
    assert np.quantile(np.abs(ratios - 1), 0.999) < 0.01


ORTHO_CASES = ("antialiased", "normals", "huge", "thin", "opaque", "degree 3")


@pytest.mark.parametrize(
    ("model", "case"),
    [("pinhole", case) for case in CASES] + [("ortho", case) for case in ORTHO_CASES],
)
def test_picture_agrees_with_the_reference(
    kernels: PackedKernels, model: Any, case: str
) -> None:
    chance, options = CASES[case]
    gaussians = activated(random_scene(3, chance))
    view = looking_at_origin(100, 70, model=model)
    assert not packed.obstacle(view, options)
    target = drawn(kernels, gaussians, view, options)
    assert_agrees(kernels, target, gaussians, view, options)


@pytest.mark.parametrize(
    ("view", "options", "reason"),
    [
        (camera(model="fisheye"), CLASSIC, "fisheye"),
        (camera(model="ortho", near=-1.0), CLASSIC, "near plane"),
        (camera(), RenderOptions(paint="rings"), "rings"),
        (camera(3841, 2160), CLASSIC, "larger than 3840x2160"),
    ],
)
def test_other_pictures_are_not_drawn_from_packed_gaussians(
    view: Camera, options: RenderOptions, reason: str
) -> None:
    assert reason in packed.obstacle(view, options)
    assert not packed.obstacle(camera(3840, 2160), CLASSIC)


@pytest.mark.parametrize("bounds", [packed.SLABS, packed.SLABS_OF_MANY])
def test_picture_of_many_groups_agrees_with_the_reference(
    kernels: PackedKernels,
    monkeypatch: pytest.MonkeyPatch,
    bounds: tuple[int, ...],
) -> None:
    # Each slab has several groups, the first one of both sizes.
    monkeypatch.setattr(packed, "NEAR_GROUPS", 3)
    monkeypatch.setattr(packed, "SLABS", bounds)
    chance = Chance(n=3000, log_scale=(-2.5, 0.8), logit=(-2.0, 2.0))
    gaussians = activated(random_scene(4, chance))
    target = drawn(kernels, gaussians, WIDE)
    assert_agrees(kernels, target, gaussians, WIDE)


@pytest.mark.parametrize("size", [(1, 1), (16, 16), (17, 130)])
def test_picture_of_any_size_agrees_with_the_reference(
    kernels: PackedKernels, size: tuple[int, int]
) -> None:
    gaussians = activated(random_scene(5, replace(USUAL, log_scale=(-1.0, 0.5))))
    view = camera(*size, focal=20.0)
    target = drawn(kernels, gaussians, view)
    assert_agrees(kernels, target, gaussians, view)


def test_picture_of_float16_agrees_with_the_reference(kernels: PackedKernels) -> None:
    gaussians = activated(random_scene(3, USUAL))
    target = drawn(kernels, gaussians, view=VIEW, dtype=torch.float16)
    assert_agrees(kernels, target, gaussians, decibels=60)


def test_nothing_but_the_opacity_of_a_gaussian_without_any_is_looked_at(
    kernels: PackedKernels,
) -> None:
    gaussians = activated(random_scene(3, USUAL))
    gaussians.opacities[::3] = 0
    expected = drawn(kernels, gaussians, VIEW).rgba
    for name, value in (
        ("means", np.inf),
        ("quats", 0.0),
        ("scales", np.inf),
        ("sh0", np.nan),
        ("shN", np.nan),
    ):
        getattr(gaussians, name)[::3] = value
    assert torch.equal(drawn(kernels, gaussians, VIEW).rgba, expected)


# -- room ----------------------------------------------------------------------------


def test_frame_with_too_little_room_says_what_it_needs(kernels: PackedKernels) -> None:
    # Some of these Gaussians touch many bins, some a few.
    gaussians = activated(random_scene(6, Chance(n=400, log_scale=(-2.5, 1.5))))
    complete = drawn(kernels, gaussians, WIDE)
    assert complete.needed < SLOTS
    for slots in (1, 8, 150, complete.needed - 1):
        watcher = RoomWatcher(kernels.slab)
        short = drawn(replace(kernels, slab=watcher), gaussians, WIDE, slots=slots)
        assert short.needed > slots
        assert watcher.is_untouched_after(slots)
        assert short.rgba.isfinite().all()
    # What has no room is not counted whole, and hides nothing of what comes later.
    target = drawn(kernels, gaussians, WIDE, slots=1)
    slots = 1
    draws = 1
    while target.needed > slots:
        slots = target.needed
        target = drawn(kernels, gaussians, WIDE, slots=slots)
        draws += 1
    assert draws <= 4
    assert torch.equal(target.rgba, complete.rgba)


def test_frame_without_room_for_masks_says_so(kernels: PackedKernels) -> None:
    # Across the picture: their boxes have twelve bins, they show in eight or so.
    chance = np.random.default_rng(1)
    means = chance.uniform((-0.2, -0.2, 3), (0.2, 0.2, 5), (30, 3))
    quats = np.tile(np.array([0.956, 0, 0, 0.294], np.float32), (30, 1))
    needles = scene(means, scales=(1.5, 0.06, 0.06), quats=quats)
    view = camera(200, 140, focal=150.0)
    watcher = SlabWatcher(kernels.slab)
    complete = drawn(replace(kernels, slab=watcher), needles, view)
    most_pairs = max(slab.pair_count for slab in watcher.slabs)
    masks = complete.needed
    assert most_pairs + 8 * 12 < masks
    short = drawn(kernels, needles, view, slots=masks - 1)
    assert short.needed >= masks
    assert torch.equal(drawn(kernels, needles, view, slots=masks).rgba, complete.rgba)


def test_number_of_masks_does_not_begin_again_at_zero(kernels: PackedKernels) -> None:
    # At 2 ** 32, millions of Gaussians would seem to have room.
    gaussians = scene([[0, 0, 2], [0, 0, 3]], scales=2.0)
    view = camera(200, 140)
    assert drawn(kernels, gaussians, view).needed > 0
    for masks in (2**31, 2**32 - 5):
        crowd = Crowd(kernels.slab, masks)
        target = drawn(replace(kernels, slab=crowd), gaussians, view)
        assert target.needed >= masks
