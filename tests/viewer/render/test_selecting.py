"""Which Gaussians a selection hides and marks, how those of a scene are counted, and the numbers of one of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.renderer_cases import CLASSIC, Chance, activated, looking_at_origin, random_scene, scene

from splatview_viewer.geometry.cameras import MODELS
from splatview_viewer.render.reference import ReferenceRenderer
from splatview_viewer.scene import EVERYTHING, HIDDEN, MARKED, Box, Selection, Sphere, largest_scale, sh_energy
from splatview_viewer.scene.scene import FIELDS, SH_C0, GaussianScene
from splatview_viewer.scene.statistics import QUANTITIES, count_later
from splatview_viewer.scene.values import values_later


def some(n: int = 2000) -> GaussianScene:
    return activated(random_scene(2, Chance(n=n)))


def tensors_of(given: GaussianScene) -> GaussianScene:
    return replace(given, **{name: torch.from_numpy(np.array(getattr(given, name))) for name in FIELDS})


def hidden(selection: Selection, given: GaussianScene) -> list[bool]:
    return [bool(f & HIDDEN) for f in np.asarray(selection.flags(given))]


def test_limits_are_included() -> None:
    given = scene([[i, 0, 0] for i in range(3)], opacities=[0.25, 0.5, 0.75])
    given = replace(given, scales=np.array([[1, 2, 1], [4, 1, 1], [1, 1, 8]], np.float32),
                    shN=np.array([np.full((3, 3), v) for v in (0, 1, 2)], np.float32))
    assert hidden(Selection(opacity=(0.5, 0.75)), given) == [True, False, False]
    assert hidden(Selection(opacity=(0.25, 0.5)), given) == [False, False, True]
    assert hidden(Selection(scale=(4.0, math.inf)), given) == [True, False, False]
    assert hidden(Selection(scale=(0.0, 4.0)), given) == [False, False, True]
    assert hidden(Selection(sh_energy=(9.0, 9.0)), given) == [True, False, True]
    assert hidden(Selection(opacity=(0.5, 1.0), scale=(0.0, 4.0)), given) == [True, False, True]
    assert largest_scale(given).tolist() == [2, 4, 8]
    assert sh_energy(given).tolist() == [0, 9, 36]


def test_without_harmonics_there_is_no_energy() -> None:
    given = scene([[0, 0, 0], [1, 0, 0]])
    assert sh_energy(given).tolist() == sh_energy(tensors_of(given)).tolist() == [0, 0]
    assert hidden(Selection(sh_energy=(0.1, 1.0)), given) == [True, True]


def test_boxes_and_spheres_keep_what_is_inside_or_outside() -> None:
    given = scene([[0, 0, 0], [2, 0, 0], [0, 3, 0], [0.9, 0.9, 0.9]])
    assert hidden(Selection(box=Box()), given) == [False, True, True, False]
    assert hidden(Selection(box=Box(outside=True)), given) == [True, False, False, True]
    assert hidden(Selection(sphere=Sphere()), given) == [False, True, True, True]
    assert hidden(Selection(sphere=Sphere((2.0, 0, 0), 0.5)), given) == [True, False, True, True]
    assert hidden(Selection(sphere=Sphere(outside=True)), given) == [True, False, False, False]
    assert hidden(Selection(box=Box(half=(3.0, 0.5, 0.5)), sphere=Sphere((2.0, 0, 0), 0.5)), given) == [
        True, False, True, True]


def test_a_box_turns_with_its_axes() -> None:
    c, s = math.cos(0.3), math.sin(0.3)
    turned = Box(half=(4.0, 0.5, 0.5), axes=((c, s, 0.0), (-s, c, 0.0), (0.0, 0.0, 1.0)))
    given = scene([[3 * c, 3 * s, 0], [3, 0, 0]])
    assert hidden(Selection(box=turned), given) == [False, True]


def test_marks_go_with_the_rest() -> None:
    given = scene([[i, 0, 0] for i in range(4)], opacities=[0.1, 0.9, 0.9, 0.9])
    flags = Selection(opacity=(0.5, 1.0), marked=(0, 2, 77)).flags(given)
    assert np.asarray(flags).tolist() == [HIDDEN | MARKED, 0, MARKED, 0]
    assert np.asarray(flags).dtype == np.uint8


def test_tensors_are_chosen_as_arrays_are() -> None:
    given = some()
    for selection in (EVERYTHING, Selection(opacity=(0.3, 0.8), marked=(1, 5, 9999)), Selection(scale=(0.02, 0.1)),
                      Selection(sh_energy=(1.0, 4.0)),
                      Selection(box=Box(half=(1, 2, 0.7)), sphere=Sphere(radius=1.4, outside=True))):
        flags = selection.flags(tensors_of(given))
        assert isinstance(flags, torch.Tensor) and flags.dtype == torch.uint8
        expected = np.asarray(selection.flags(given))
        assert (flags.numpy() != expected).sum() <= 1, "the order of sums may differ in the last bit"
        assert expected.any() == (selection != EVERYTHING)


# -- counted -------------------------------------------------------------------------------------------------------


def test_all_are_counted_where_their_values_lie() -> None:
    given = some(3000)
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
    given = some(3000)
    selection = Selection(opacity=(0.25, 0.75), marked=(3,))
    found = count_later(given, selection)()
    inside = (given.opacities >= 0.25) & (given.opacities <= 0.75)
    assert found.chosen == inside.sum()
    every, chosen = found.counts["opacity"]
    np.testing.assert_array_equal(chosen[17:47], every[17:47])
    assert not chosen[:15].any() and not chosen[49:].any()
    assert found.counts["scale"][1].sum() == found.chosen


def test_the_numbers_of_one() -> None:
    given = some(50)
    values = values_later(given, 17, 5)()
    assert values.version == 5
    np.testing.assert_array_equal(values.mean, given.means[17])
    np.testing.assert_array_equal(values.shN, given.shN[17])
    assert values.opacity == given.opacities[17]
    assert sum(values.energies) == pytest.approx(float(sh_energy(given)[17]), rel=1e-5)
    np.testing.assert_allclose(values.color, np.clip(0.5 + SH_C0 * given.sh0[17], 0, 1), rtol=1e-6)
    given.means[17] = 0
    assert values.mean.any()  # its own


@pytest.mark.parametrize("model", MODELS)
def test_an_outline_goes_where_density_has_fallen_alike(model: str) -> None:
    """The reference draws it with one alpha all along the outline."""
    view = looking_at_origin(model=model).resized(600, 450)
    given = scene([[0.1, -0.05, 0.2]], scales=[[0.5, 0.2, 0.1]], opacities=0.9,
                  quats=np.array([[0.7, 0.3, -0.4, 0.2]], np.float32))
    rim = values_later(given, 0, 0)().outline(view)
    assert rim is not None
    renderer = ReferenceRenderer()
    renderer.load(given)
    alpha = renderer.render(view, CLASSIC).pixels().alpha
    seen = [alpha[int(y), int(x)] for x, y in rim]
    np.testing.assert_allclose(seen, 0.9 * math.exp(-2.0), atol=0.02)  # pixels
