"""Every function that works on scenes, on the CPU and on a GPU with the same values."""

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
from support.wait import PATIENCE

from splatview_viewer.geometry.cameras import MODELS, Camera, intrinsics, look_at
from splatview_viewer.recording.packed import layout, pack, unpack
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.render.picking import values_later
from splatview_viewer.scene import (
    HIDDEN,
    MARKED,
    Box,
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


def on(device: str, given: GaussianScene) -> GaussianScene:
    return replace(given, **{name: getattr(given, name).to(device) for name in FIELDS})


def some(n: int, **more: Any) -> GaussianScene:
    return activated(random_scene(2, Chance(n=n, **more)))


def hidden(given: GaussianScene, **limits: Any) -> list[bool]:
    return ((flags(given, Selection(**limits)) & HIDDEN) != 0).tolist()


# -- selected ------------------------------------------------------------------------------------------------------


def test_limits_are_included(device: str) -> None:
    given = on(
        device,
        scene(
            [[i, 0, 0] for i in range(3)],
            opacities=[0.25, 0.5, 0.75],
            scales=np.array([[1, 2, 1], [4, 1, 1], [1, 1, 8]], np.float32),
            shN=np.array([np.full((3, 3), v) for v in (0, 1, 2)], np.float32),
        ),
    )
    assert hidden(given, opacity=(0.5, 0.75)) == [True, False, False]
    assert hidden(given, opacity=(0.25, 0.5)) == [False, False, True]
    assert hidden(given, scale=(4.0, math.inf)) == [True, False, False]
    assert hidden(given, scale=(0.0, 4.0)) == [False, False, True]
    assert hidden(given, sh_energy=(8.9, 9.1)) == [True, False, True]
    assert hidden(given, opacity=(0.5, 1.0), scale=(0.0, 4.0)) == [True, False, True]
    assert flags(given, Selection(opacity=(0.5, 1.0), marked=(0, 2, 9))).tolist() == [
        HIDDEN | MARKED,
        0,
        MARKED,
    ]
    assert largest_scale(given).tolist() == [2, 4, 8]
    assert sh_energy(given).tolist() == pytest.approx([0, 9, 36], rel=1e-6)
    assert sh_energy(on(device, scene([[0, 0, 0]]))).tolist() == [0]


def test_boxes_and_spheres_keep_what_is_inside_or_outside(device: str) -> None:
    c = math.cos(0.3)
    s = math.sin(0.3)
    given = on(
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
        ([1], {"box": Box(half=(2.5, 0.5, 0.5)), "sphere": Sphere((2, 0, 0), 0.5)}),
    ):
        assert hidden(given, **limits) == [i not in inside for i in range(5)]
        if len(limits) == 1:
            outside = {
                name: replace(shape, outside=True) for name, shape in limits.items()
            }
            assert hidden(given, **outside) == [i in inside for i in range(5)]


# -- counted -------------------------------------------------------------------------------------------------------


def test_all_are_counted_and_the_chosen_ones_beside_them(device: str) -> None:
    host = some(40_000, sh_degree=1)  # several chunks on a CPU
    host.opacities[5] = 0  # cannot be drawn
    found = count_later(
        on(device, host), Selection(opacity=(0.25, 0.75), marked=(3,))
    )()
    assert (found.total, found.selected) == (
        39_999,
        int(((host.opacities >= 0.25) & (host.opacities <= 0.75)).sum()),
    )
    for quantity in QUANTITIES:
        every, chosen = found.counts[quantity.name]
        assert (every.sum(), chosen.sum()) == (found.total, found.selected)
        values = np.delete(quantity.values_of(host).double().numpy(), 5)
        wanted = np.histogram(
            values, [quantity.edge(i) for i in range(quantity.bins + 1)]
        )[0]
        assert np.abs(every - wanted).sum() <= 40, (
            "a value on an edge may be counted on either side"
        )
    every, chosen = found.counts["opacity"]
    np.testing.assert_array_equal(chosen[17:47], every[17:47])
    assert not chosen[:15].any()
    assert not chosen[49:].any()


def test_the_numbers_of_one(device: str) -> None:
    host = some(50)
    given = on(device, some(50))
    tell = values_later(given, 17, 5)
    if given.on_gpu:
        given.means.zero_()  # it was read before
    values = tell()
    given.means.zero_()
    assert values.version == 5
    np.testing.assert_array_equal(values.mean, host.means[17])
    np.testing.assert_array_equal(values.shN, host.shN[17])
    assert values.opacity == host.opacities[17]
    assert sum(values.energies) == pytest.approx(float(sh_energy(host)[17]), rel=1e-5)
    np.testing.assert_allclose(
        values.color, (0.5 + SH_C0 * host.sh0[17]).clamp(0, 1), rtol=1e-6
    )


# -- picked: tests/viewer/render/test_selecting_pick.py compares it with what the reference draws ----------------------


@pytest.mark.parametrize("model", MODELS)
def test_the_same_is_picked_as_on_the_cpu(device: str, model: Any) -> None:
    host = activated(random_scene(11, Chance(n=40_000)))
    view = looking_at_origin(model=model)
    options = RenderOptions("antialiased", selection=Selection(opacity=(0.2, 0.9)))
    found = 0
    for x, y in ((100, 75), (60, 40), (130, 90), (20, 140), (199, 149)):
        wanted = pick(host, view, x, y, options)
        hit = pick(on(device, host), view, x, y, options)
        assert (hit is None) == (wanted is None)
        if hit is not None and wanted is not None:
            found += 1
            assert hit.index == wanted.index
            assert (hit.weight, hit.depth) == (
                pytest.approx(wanted.weight, rel=1e-5),
                pytest.approx(wanted.depth, rel=1e-5),
            )
    assert found >= 3


@pytest.mark.parametrize("model", MODELS)
def test_an_outline_goes_where_density_has_fallen_alike(
    device: str, model: Any
) -> None:
    """The reference draws it with one alpha all along the outline."""
    view = looking_at_origin(model=model).resized(600, 450)
    given = scene(
        [[0.1, -0.05, 0.2]],
        scales=[[0.5, 0.2, 0.1]],
        opacities=0.9,
        quats=np.array([[0.7, 0.3, -0.4, 0.2]], np.float32),
    )
    rim = values_later(on(device, given), 0, 0)().outline(view)
    assert rim is not None
    alpha = draw(ReferenceRenderer(), given, view).alpha
    np.testing.assert_allclose(
        [alpha[int(y), int(x)] for x, y in rim], 0.9 * math.exp(-2.0), atol=0.02
    )  # pixels


# -- placed and merged -------------------------------------------------------------------------------------------------


def cloud(n: int = 40, degree: int = 3, seed: int = 0, **more: Any) -> GaussianScene:
    return replace(
        random_scene(
            seed, Chance(n=n, sh_degree=degree, log_scale=(-1.5, 0.4), logit=(1.0, 1.0))
        ),
        **more,
    )


def picture(of: GaussianScene, viewmat: np.ndarray | None = None) -> np.ndarray:
    viewmat = look_at((0.5, -1.0, -6.0), (0, 0, 0)) if viewmat is None else viewmat
    return draw(
        ReferenceRenderer(),
        of.to_host(),
        Camera(viewmat, intrinsics(50, 48, 36), 48, 36),
        CLASSIC,
    ).color


@pytest.mark.parametrize(("degree", "as_used"), [(0, False), (2, True), (4, False)])
def test_a_camera_that_goes_with_the_scene_sees_the_same(
    device: str, degree: int, as_used: bool
) -> None:
    host = cloud(degree=degree)
    if as_used:
        before = merged([on(device, host)], [False], device)
    else:
        before = on(device, host)
    placement = Placement((3, -2, 1), (30, -50, 110), 2.0)
    pivot = np.array([0.5, 1.0, -0.25])
    after = transformed(before, placement, pivot)
    assert after.means.device == before.means.device
    assert before.activated == as_used
    a, b = placement.matrix(pivot)
    np.testing.assert_allclose(a @ pivot + b, pivot + placement.move)
    # p' = s R p + b; a camera that sees p' at s times the distance sees what it saw: w p = (1/s) (w R^T)(p' - b) ...
    here = look_at((0.5, -1.0, -6.0), (0, 0, 0))
    there = np.eye(4)
    there[:3, :3] = here[:3, :3] @ placement.rotation.T
    there[:3, 3] = placement.scale * here[:3, 3] - there[:3, :3] @ b
    np.testing.assert_allclose(picture(after, there), picture(host, here), atol=2e-5)


def test_degrees_and_activations_differ_in_one_scene(device: str) -> None:
    low, high = (
        on(device, s)
        for s in (cloud(20, degree=1, seed=1), cloud(20, degree=3, seed=2, sh_degree=2))
    )
    together = merged([merged([low], [False]), high], [True, False], device)
    assert together.sh_degree == together.stored_sh_degree == 2
    assert together.notes
    assert not together.antialiased
    for shown, other in ((low, high), (high, low)):
        apart = replace(
            other, means=other.means + 100
        )  # so that only one of them is seen
        np.testing.assert_allclose(
            picture(merged([shown, apart], [False] * 2, device)),
            picture(shown),
            atol=1e-6,
        )


def test_turns_go_around_x_then_y_then_z() -> None:
    for turn, before, after in (
        ((90, 0, 0), [0, 1, 0], [0, 0, 1]),
        ((0, 90, 0), [0, 0, 1], [1, 0, 0]),
        ((0, 0, 90), [1, 0, 0], [0, 1, 0]),
        ((90, 0, 90), [0, 1, 0], [0, 0, 1]),
    ):
        np.testing.assert_allclose(
            Placement(turn=turn).rotation @ before, after, atol=1e-12
        )


# -- packed: tests/viewer/recording/test_recorder.py has how faithful it is --------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_it_is_packed_as_on_the_cpu(device: str, dtype: torch.dtype) -> None:
    given = on(device, recorded(40_000, degree=1))  # several chunks on a CPU
    for name in FIELDS[1:]:
        getattr(given, name)[7] = torch.nan
    given.means[9] = torch.inf
    given.sh0[10] = 1e4
    given.quats[11] = 0
    given = replace(given, **{name: getattr(given, name).to(dtype) for name in FIELDS})
    wanted = pack(given.to_host()).arrays
    made = pack(given, (0.5, 0.25, 1.0), torch.cuda.Stream() if given.on_gpu else None)
    assert made.header.background == (0.5, 0.25, 1.0)
    assert (made.gpu_ms > 0) == given.on_gpu
    for name, (shape, kind) in layout(len(given), 3, given.activated).items():
        assert (made.arrays[name].shape, made.arrays[name].dtype) == (shape, kind)
        if kind.kind == "f":
            np.testing.assert_allclose(
                made.arrays[name], wanted[name], rtol=2e-3, atol=1e-6
            )
        else:
            assert (
                np.abs(made.arrays[name].astype(int) - wanted[name].astype(int)).max(
                    initial=0
                )
                <= 1
            )
    assert unpack(made).means.device.type == "cpu"


# -- without scenes ------------------------------------------------------------------------------------------------


def test_nothing_imports_torch_before_there_is_a_scene(
    programs: Programs, tmp_path: Path
) -> None:
    """It takes seconds: neither the viewer's start nor the program that reads a file for it may wait for that."""
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
    assert programs.code(program).communicate(timeout=PATIENCE)[0].split() == [
        "20",
        "False",
    ]
