"""What is picked of a scene on a GPU is what is picked of the same in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.renderer_cases import Chance, looking_at_origin, random_scene

from splatview_viewer.render.activation import activate
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.render.picking import pick
from splatview_viewer.scene import EVERYTHING, Box, Selection, Sphere
from splatview_viewer.scene.scene import FIELDS, GaussianScene

pytestmark = pytest.mark.cuda


def both(n: int = 20_000) -> tuple[GaussianScene, GaussianScene]:
    a = activate(random_scene(11, Chance(n=n)))
    there = GaussianScene(a.means, a.quats, a.scales, a.opacities, a.sh0, a.shN, activated=True, sh_degree=a.sh_degree)
    return there, replace(there, **{name: torch.from_numpy(np.array(getattr(there, name))).cuda() for name in FIELDS})


@pytest.mark.parametrize("model", ["pinhole", "ortho", "fisheye"])
def test_the_same_is_picked(model: str) -> None:
    host, device = both()
    view = looking_at_origin(model=model)
    options = RenderOptions("antialiased", selection=Selection(opacity=(0.2, 0.9)))
    found = 0
    for x, y in ((100, 75), (60, 40), (130, 90), (20, 140), (199, 149)):
        wanted = pick(host, view, x, y, options)
        hit = pick(device, view, x, y, options)
        assert (hit is None) == (wanted is None)
        if hit is None or wanted is None:
            continue
        found += 1
        assert hit.index == wanted.index
        assert hit.weight == pytest.approx(wanted.weight, rel=1e-5)
        assert hit.depth == pytest.approx(wanted.depth, rel=1e-5)
    assert found >= 3


@pytest.mark.parametrize("selection", [
    EVERYTHING, Selection(opacity=(0.3, 0.8), marked=(1, 5, 9999)), Selection(scale=(0.02, 0.1)),
    Selection(sh_energy=(1.0, 4.0)), Selection(box=Box(half=(1, 2, 0.7)), sphere=Sphere(radius=1.4, outside=True)),
], ids=["everything", "opacity", "scale", "energy", "crop"])
def test_on_a_gpu_the_same_are_hidden(selection: Selection) -> None:
    given, there = both(2000)
    flags = selection.flags(there)
    assert flags.device.type == "cuda"  # type: ignore[union-attr]
    wanted = np.asarray(selection.flags(given))
    # The order of sums may differ in the last bit.
    assert (flags.cpu().numpy() != wanted).sum() <= 1  # type: ignore[union-attr]
