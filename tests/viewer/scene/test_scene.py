"""Functions on scenes give the same values on the CPU and on a GPU."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import scene_files as w
from support.frames import scene as recorded
from support.programs import Programs
from support.reference import ReferenceRenderer
from support.renderer_cases import (
    CLASSIC,
    Chance,
    activated,
    draw,
    looking_at_origin,
    pick,
    random_scene,
    scene,
)
from support.wait import PATIENCE_S

from splatview_viewer.geometry.cameras import MODELS, Camera, intrinsics, look_at
from splatview_viewer.recording.packed import pack, unpack
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.render.picking import values_later
from splatview_viewer.scene import (
    HIDDEN,
    MARKED,
    Box,
    Cylinder,
    Selection,
    Sphere,
    flags,
    largest_scale,
    sh_energy,
)
from splatview_viewer.scene.scene import FIELDS, SH_C0, GaussianScene, merged
from splatview_viewer.scene.statistics import QUANTITIES, count_later
from splatview_viewer.scene.turning import Placement, transformed


@pytest.fixture(
    name="device", params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
)
def device_fixture(request: pytest.FixtureRequest) -> str:
    return request.param


def on(device: str, gaussians: GaussianScene) -> GaussianScene:
    return replace(
        gaussians, **{name: getattr(gaussians, name).to(device) for name in FIELDS}
    )


def some_gaussians(n: int, **chances: Any) -> GaussianScene:
    return activated(random_scene(2, Chance(n=n, **chances)))


def hidden(gaussians: GaussianScene, **limits: Any) -> list[bool]:
    return ((flags(gaussians, Selection(**limits)) & HIDDEN) != 0).tolist()


# -- selected ------------------------------------------------------------------------


def test_selection_includes_its_limits(device: str) -> None:
    gaussians = on(
        device,
        scene(
            [[i, 0, 0] for i in range(3)],
            opacities=[0.25, 0.5, 0.75],
            scales=np.array([[1, 2, 1], [4, 1, 1], [1, 1, 8]], np.float32),
            shN=np.array([np.full((3, 3), v) for v in (0, 1, 2)], np.float32),
        ),
    )
    assert hidden(gaussians, opacity=(0.5, 0.75)) == [True, False, False]
    assert hidden(gaussians, opacity=(0.25, 0.5)) == [False, False, True]
    assert hidden(gaussians, scale=(4.0, math.inf)) == [True, False, False]
    assert hidden(gaussians, scale=(0.0, 4.0)) == [False, False, True]
    assert hidden(gaussians, sh_energy=(8.9, 9.1)) == [True, False, True]
    assert hidden(gaussians, opacity=(0.5, 1.0), scale=(0.0, 4.0)) == [
        True,
        False,
        True,
    ]
    selection = Selection(opacity=(0.5, 1.0), marked=(0, 2, 9))
    assert flags(gaussians, selection).tolist() == [HIDDEN | MARKED, 0, MARKED]
    assert largest_scale(gaussians).tolist() == [2, 4, 8]
    assert sh_energy(gaussians).tolist() == pytest.approx([0, 9, 36], rel=1e-6)
    assert sh_energy(on(device, scene([[0, 0, 0]]))).tolist() == [0]


def test_shapes_keep_what_is_inside_or_outside(device: str) -> None:
    c = math.cos(0.3)
    s = math.sin(0.3)
    gaussians = on(
        device,
        scene([[0, 0, 0], [2, 0, 0], [0, 3, 0], [0.9, 0.9, 0.9], [3 * c, 3 * s, 0]]),
    )
    for inside, limits in (
        ([0, 3], {"box": Box()}),
        ([0, 3], {"sphere": Sphere(radius=1.6)}),
        ([1], {"sphere": Sphere((2, 0, 0), 0.5)}),
        (
            [0, 4],
            {
                "box": Box(
                    half=(4.0, 0.5, 0.5),
                    axes=((c, s, 0.0), (-s, c, 0.0), (0.0, 0.0, 1.0)),
                )
            },
        ),
        ([0, 2], {"cylinder": Cylinder(radius=0.5, half_height=3.0)}),
        # Its corner is in the box around it, and not in the cylinder.
        ([0], {"cylinder": Cylinder(radius=1.0, half_height=2.5)}),
        ([0, 1], {"cylinder": Cylinder(radius=0.5, half_height=2.5, axis_index=0)}),
        (
            [0, 4],
            {
                "cylinder": Cylinder(
                    radius=0.5,
                    half_height=4.0,
                    axes=((s, -c, 0.0), (c, s, 0.0), (0.0, 0.0, 1.0)),
                )
            },
        ),
        ([1], {"box": Box(half=(2.5, 0.5, 0.5)), "sphere": Sphere((2, 0, 0), 0.5)}),
    ):
        assert hidden(gaussians, **limits) == [i not in inside for i in range(5)]
        if len(limits) == 1:
            ((name, shape),) = limits.items()
            outside = replace(shape, outside=True)
            assert hidden(gaussians, **{name: outside}) == [
                i in inside for i in range(5)
            ]


# -- counted -------------------------------------------------------------------------


def test_statistics_count_all_and_selected_gaussians(device: str) -> None:
    # So many are counted in several chunks on a CPU.
    host = some_gaussians(40_000, sh_degree=1)
    # Without opacity it cannot be drawn.
    host.opacities[5] = 0
    selection = Selection(opacity=(0.25, 0.75), marked=(3,))
    statistics = count_later(on(device, host), selection)()
    is_selected = (host.opacities >= 0.25) & (host.opacities <= 0.75)
    assert statistics.total == 39_999
    assert statistics.selected == int(is_selected.sum())
    for quantity in QUANTITIES:
        all_counts, selected_counts = statistics.counts[quantity.name]
        assert all_counts.sum() == statistics.total
        assert selected_counts.sum() == statistics.selected
        values = np.delete(quantity.values_of(host).double().numpy(), 5)
        edges = [quantity.edge(i) for i in range(quantity.bins + 1)]
        expected = np.histogram(values, edges)[0]
        # A value on an edge may be counted on either side.
        assert np.abs(all_counts - expected).sum() <= 40
    all_counts, selected_counts = statistics.counts["opacity"]
    np.testing.assert_array_equal(selected_counts[17:47], all_counts[17:47])
    assert not selected_counts[:15].any()
    assert not selected_counts[49:].any()


def test_values_of_one_gaussian_are_read(device: str) -> None:
    host = some_gaussians(50)
    gaussians = on(device, some_gaussians(50))
    finish = values_later(gaussians, 17, 5)
    if gaussians.on_gpu:
        # The values were read before this change.
        gaussians.means.zero_()
    values = finish()
    gaussians.means.zero_()
    assert values.version == 5
    np.testing.assert_array_equal(values.mean, host.means[17])
    np.testing.assert_array_equal(values.shN, host.shN[17])
    assert values.opacity == host.opacities[17]
    assert sum(values.energies) == pytest.approx(float(sh_energy(host)[17]), rel=1e-5)
    np.testing.assert_allclose(
        values.color, (0.5 + SH_C0 * host.sh0[17]).clamp(0, 1), rtol=1e-6
    )


# -- picking, which test_selecting_pick.py compares with the reference ------------------


@pytest.mark.parametrize("model", MODELS)
def test_picking_gives_the_same_hit_as_on_the_cpu(device: str, model: Any) -> None:
    host = activated(random_scene(11, Chance(n=40_000)))
    view = looking_at_origin(model=model)
    options = RenderOptions("antialiased", selection=Selection(opacity=(0.2, 0.9)))
    hit_count = 0
    for x, y in ((100, 75), (60, 40), (130, 90), (20, 140), (199, 149)):
        expected = pick(host, view, x, y, options)
        hit = pick(on(device, host), view, x, y, options)
        assert (hit is None) == (expected is None)
        if hit is not None and expected is not None:
            hit_count += 1
            assert hit.index == expected.index
            assert hit.weight == pytest.approx(expected.weight, rel=1e-5)
            assert hit.depth == pytest.approx(expected.depth, rel=1e-5)
    assert hit_count >= 3


@pytest.mark.parametrize("model", MODELS)
def test_outline_follows_equal_density(device: str, model: Any) -> None:
    """The reference draws it with one alpha all along the outline."""
    view = looking_at_origin(model=model).resized(600, 450)
    gaussians = scene(
        [[0.1, -0.05, 0.2]],
        scales=[[0.5, 0.2, 0.1]],
        opacities=0.9,
        quats=np.array([[0.7, 0.3, -0.4, 0.2]], np.float32),
    )
    rim = values_later(on(device, gaussians), 0, 0)().outline(view)
    assert rim is not None
    alpha = draw(ReferenceRenderer(), gaussians, view).alpha
    # The tolerance is that of whole pixels.
    rim_alpha = [alpha[int(y), int(x)] for x, y in rim]
    np.testing.assert_allclose(rim_alpha, 0.9 * math.exp(-2.0), atol=0.02)


# -- placed and merged ---------------------------------------------------------------


def cloud(n: int = 40, degree: int = 3, seed: int = 0, **fields: Any) -> GaussianScene:
    chance = Chance(n=n, sh_degree=degree, log_scale=(-1.5, 0.4), logit=(1.0, 1.0))
    return replace(random_scene(seed, chance), **fields)


FRONT_VIEW = look_at((0.5, -1.0, -6.0), (0, 0, 0))


def picture(scene: GaussianScene, viewmat: np.ndarray = FRONT_VIEW) -> np.ndarray:
    camera = Camera(viewmat, intrinsics(50, 48, 36), 48, 36)
    return draw(ReferenceRenderer(), scene.to_host(), camera, CLASSIC).color


@pytest.mark.parametrize(("degree", "as_used"), [(0, False), (2, True), (4, False)])
def test_camera_moved_with_the_scene_sees_the_same(
    device: str, degree: int, as_used: bool
) -> None:
    host = cloud(degree=degree)
    original = on(device, host)
    if as_used:
        original = merged([original], [False], device)
    placement = Placement((3, -2, 1), (30, -50, 110), 2.0)
    pivot = np.array([0.5, 1.0, -0.25])
    moved = transformed(original, placement, pivot)
    assert moved.means.device == original.means.device
    assert original.activated == as_used
    a, b = placement.matrix(pivot)
    np.testing.assert_allclose(a @ pivot + b, pivot + placement.move)
    # With p' = s R p + b, a camera that sees p' at s times the distance sees the same
    # as before: w p = (1/s) (w R^T)(p' - b) ...
    moved_view = np.eye(4)
    moved_view[:3, :3] = FRONT_VIEW[:3, :3] @ placement.rotation.T
    moved_view[:3, 3] = placement.scale * FRONT_VIEW[:3, 3] - moved_view[:3, :3] @ b
    np.testing.assert_allclose(picture(moved, moved_view), picture(host), atol=2e-5)


def test_merged_scenes_may_differ_in_degree_and_activation(device: str) -> None:
    low = on(device, cloud(20, degree=1, seed=1))
    high = on(device, cloud(20, degree=3, seed=2, sh_degree=2))
    together = merged([merged([low], [False]), high], [True, False], device)
    assert together.sh_degree == together.stored_sh_degree == 2
    assert together.notes
    assert not together.antialiased
    for visible, invisible in ((low, high), (high, low)):
        # Only one of the two is in the picture.
        distant = replace(invisible, means=invisible.means + 100)
        both = merged([visible, distant], [False] * 2, device)
        np.testing.assert_allclose(picture(both), picture(visible), atol=1e-6)


def test_rotations_turn_around_x_then_y_then_z() -> None:
    for angles, point, expected in (
        ((90, 0, 0), [0, 1, 0], [0, 0, 1]),
        ((0, 90, 0), [0, 0, 1], [1, 0, 0]),
        ((0, 0, 90), [1, 0, 0], [0, 1, 0]),
        ((90, 0, 90), [0, 1, 0], [0, 0, 1]),
    ):
        turned = Placement(turn=angles).rotation @ point
        np.testing.assert_allclose(turned, expected, atol=1e-12)


# -- packed: tests/viewer/recording/test_recorder.py has how faithful it is ----------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_packing_gives_the_same_scene_as_on_the_cpu(
    device: str, dtype: torch.dtype
) -> None:
    # So many are packed in several chunks on a CPU.
    gaussians = on(device, recorded(70_000, degree=1))
    for name in FIELDS[1:]:
        getattr(gaussians, name)[7] = torch.nan
    gaussians.means[9] = torch.inf
    gaussians.sh0[10] = 1e4
    gaussians.quats[11] = 0
    gaussians = replace(
        gaussians, **{name: getattr(gaussians, name).to(dtype) for name in FIELDS}
    )
    expected = unpack(pack(gaussians.to_host()))
    stream = torch.cuda.Stream() if gaussians.on_gpu else None
    packed = pack(gaussians, (0.5, 0.25, 1.0), stream)
    assert (packed.gpu_ms > 0) == gaussians.on_gpu
    got = unpack(packed)
    assert got.background == (0.5, 0.25, 1.0)
    assert got.means.device.type == "cpu"
    for name in FIELDS:
        values = getattr(got, name)
        wanted = getattr(expected, name)
        np.testing.assert_allclose(values, wanted, rtol=2e-3, atol=1e-4)


# -- without scenes ------------------------------------------------------------------


def test_nothing_imports_torch_before_there_is_a_scene(
    programs: Programs, tmp_path: Path
) -> None:
    """Importing torch takes seconds.

    Neither the viewer's start nor the program that reads a file for it may wait for
    that.
    """
    path = w.write_ply(tmp_path / "a.ply", w.ply_columns(w.truth(20)))
    program = f"""
import sys
import splatview_viewer.app.loop, splatview_viewer.kinds.gaussians.view
from pathlib import Path
from splatview_viewer.formats.common import silent
from splatview_viewer.formats import find_format, read_as
path = Path({str(path)!r})
answer, arrays = read_as(find_format(path), path, silent)
print(len(arrays[0]), "torch" in sys.modules)"""
    output, _ = programs.code(program).communicate(timeout=PATIENCE_S)
    assert output.split() == ["20", "False"]
