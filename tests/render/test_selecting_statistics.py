"""How the Gaussians of a scene are counted, and the numbers of one of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.renderer_cases import CLASSIC, Chance, camera, looking_at_origin, random_scene, scene

from splatview.viewer_app.renderers.activation import activate
from splatview.viewer_app.renderers.reference import ReferenceRenderer
from splatview.viewer_app.scene import SH_C0, GaussianScene
from splatview.viewer_app.selecting import EVERYTHING, Selection, sh_energy
from splatview.viewer_app.selecting.statistics import QUANTITIES, _bins, count_later
from splatview.viewer_app.selecting.values import values_later


def activated(n: int = 3000) -> GaussianScene:
    a = activate(random_scene(4, Chance(n=n)))
    return GaussianScene(a.means, a.quats, a.scales, a.opacities, a.sh0, a.shN, activated=True, sh_degree=a.sh_degree)


def test_all_are_counted_where_their_values_lie() -> None:
    given = activated()
    found = count_later(given, EVERYTHING)()
    assert (found.total, found.chosen) == (3000, 3000)
    for quantity in QUANTITIES:
        every, chosen = found.counts[quantity.name]
        np.testing.assert_array_equal(every, chosen)
        assert every.sum() == 3000
        values = np.asarray(quantity.of(given), np.float64)
        edges = [quantity.edge(i) for i in range(quantity.bins + 1)]
        # A value that lies on an edge may be counted on either side.
        wanted = np.histogram(values, edges)[0]
        assert np.abs(every - wanted).sum() <= 6


def test_chosen_ones_are_counted_beside_the_rest() -> None:
    given = activated()
    selection = Selection(opacity=(0.25, 0.75), marked=(3,))
    found = count_later(given, selection)()
    inside = (given.opacities >= 0.25) & (given.opacities <= 0.75)
    assert found.chosen == inside.sum()
    every, chosen = found.counts["opacity"]
    np.testing.assert_array_equal(chosen[17:47], every[17:47])
    assert not chosen[:15].any() and not chosen[49:].any()
    assert found.counts["scale"][1].sum() == found.chosen


def test_those_that_are_never_drawn_do_not_count() -> None:
    given = activated(10)
    opacities, scales = np.array(given.opacities), np.array(given.scales)
    opacities[:3], scales[:3] = 0, np.nan
    found = count_later(replace(given, opacities=opacities, scales=scales), Selection(sh_energy=(0.0, 1e9)))()
    assert (found.total, found.chosen) == (7, 7)
    assert found.counts["scale"][0].sum() == 7


def test_extremes_lie_in_the_outermost_bins() -> None:
    given = scene([[0, 0, 0]] * 4, opacities=1.0)
    given = replace(given, scales=np.array([[v] * 3 for v in (0, 1e-30, 1e20, math.inf)], np.float32))
    every = count_later(given, EVERYTHING)().counts["scale"][0]
    assert (every[0], every[-1], every.sum()) == (2, 2, 4)


def test_an_empty_scene_has_none() -> None:
    found = count_later(scene(np.empty((0, 3))), EVERYTHING)()
    assert (found.total, found.chosen) == (0, 0)
    assert all(found.used(q) == (0, q.bins) for q in QUANTITIES)


def test_what_is_used_leaves_floaters_out() -> None:
    given = scene([[0, 0, 0]] * 30_000, opacities=0.5)
    scales = np.full((30_000, 3), 0.1, np.float32)
    scales[15_000:], scales[0] = 0.2, 1000.0
    quantity = QUANTITIES[1]
    first, last = count_later(replace(given, scales=scales), EVERYTHING)().used(quantity)
    assert 0.08 < quantity.edge(first) <= 0.1
    assert 0.2 < quantity.edge(last) < 0.25


@pytest.mark.parametrize("quantity", QUANTITIES, ids=lambda q: q.name)
def test_positions_and_edges(quantity: object) -> None:
    q = next(q for q in QUANTITIES if q is quantity)
    for at in (0.0, 1.5, q.bins / 2, q.bins - 0.25):
        assert q.position(q.edge(at)) == pytest.approx(at)
    assert (q.position(-1.0), q.position(math.inf)) == (0, q.bins)


@pytest.mark.parametrize("quantity", QUANTITIES, ids=lambda q: q.name)
def test_numpy_and_torch_use_the_same_bins(quantity: object) -> None:
    q = next(q for q in QUANTITIES if q is quantity)
    values = np.array([0, 1e-9, 0.003, 0.5, 1, 7, 1e12, np.inf, np.nan], np.float32)
    with np.errstate(all="ignore"):
        wanted = _bins(np, q, values)
    np.testing.assert_array_equal(_bins(torch, q, torch.from_numpy(values)).numpy(), wanted)


def test_the_numbers_of_one() -> None:
    given = activated(50)
    values = values_later(given, 17, 5)()
    assert values.version == 5
    np.testing.assert_array_equal(values.mean, given.means[17])
    np.testing.assert_array_equal(values.shN, given.shN[17])
    assert values.opacity == given.opacities[17]
    assert sum(values.energies) == pytest.approx(float(sh_energy(given)[17]), rel=1e-5)
    np.testing.assert_allclose(values.color, np.clip(0.5 + SH_C0 * given.sh0[17], 0, 1), rtol=1e-6)
    given.means[17] = 0
    assert values.mean.any()  # its own


@pytest.mark.parametrize("model", ["pinhole", "ortho", "fisheye"])
def test_an_outline_goes_where_density_has_fallen_alike(model: str) -> None:
    """The reference draws it with one alpha all along the outline."""
    view = looking_at_origin(model=model).resized(1000, 750)
    given = scene([[0.1, -0.05, 0.2]], scales=[[0.5, 0.2, 0.1]], opacities=0.9,
                  quats=np.array([[0.7, 0.3, -0.4, 0.2]], np.float32))
    rim = values_later(given, 0, 0)().outline(view)
    assert rim is not None
    renderer = ReferenceRenderer()
    renderer.load(given)
    alpha = renderer.render(view, CLASSIC).pixels().alpha
    seen = [alpha[int(y), int(x)] for x, y in rim]
    np.testing.assert_allclose(seen, 0.9 * math.exp(-2.0), atol=0.02)  # pixels


def test_what_is_behind_has_no_outline() -> None:
    assert values_later(scene([[0, 0, -1]]), 0, 0)().outline(camera()) is None
    assert values_later(scene([[np.nan, 0, 1]]), 0, 0)().outline(camera()) is None
