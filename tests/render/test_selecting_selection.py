"""Which Gaussians a selection hides and marks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.renderer_cases import Chance, random_scene, scene

from splatview.viewer_app.renderers.activation import activate
from splatview.viewer_app.scene import FIELDS, GaussianScene
from splatview.viewer_app.selecting import EVERYTHING, HIDDEN, MARKED, Box, Selection, Sphere, largest_scale, sh_energy


def activated(n: int = 2000) -> GaussianScene:
    a = activate(random_scene(2, Chance(n=n)))
    return GaussianScene(a.means, a.quats, a.scales, a.opacities, a.sh0, a.shN, activated=True, sh_degree=a.sh_degree)


def hidden(selection: Selection, given: GaussianScene) -> list[bool]:
    return [bool(f & HIDDEN) for f in np.asarray(selection.flags(given))]


def test_everything_hides_nothing() -> None:
    assert not np.asarray(EVERYTHING.flags(activated())).any()


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
    given = scene([[0, 0, 0]])
    assert sh_energy(given).tolist() == [0]
    assert hidden(Selection(sh_energy=(0.1, 1.0)), given) == [True]


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


@pytest.mark.parametrize("selection", [
    EVERYTHING, Selection(opacity=(0.3, 0.8), marked=(1, 5, 9999)), Selection(scale=(0.02, 0.1)),
    Selection(marked=tuple(range(0, 2000, 7))), Selection(sh_energy=(1.0, 4.0)),
    Selection(box=Box(half=(1, 2, 0.7)), sphere=Sphere(radius=1.4, outside=True)),
], ids=["everything", "opacity", "scale", "many marks", "energy", "crop"])
def test_tensors_are_chosen_as_arrays_are(selection: Selection) -> None:
    given = activated()
    tensors = replace(given, **{name: torch.from_numpy(np.array(getattr(given, name))) for name in FIELDS})
    flags = selection.flags(tensors)
    assert isinstance(flags, torch.Tensor) and flags.dtype == torch.uint8
    # The order of sums may differ in the last bit.
    assert (flags.numpy() != np.asarray(selection.flags(given))).sum() <= 1


def test_tensors_without_harmonics_have_no_energy() -> None:
    given = scene([[0, 0, 0], [1, 0, 0]])
    tensors = replace(given, **{name: torch.from_numpy(np.array(getattr(given, name))) for name in FIELDS})
    assert sh_energy(tensors).tolist() == [0, 0]
