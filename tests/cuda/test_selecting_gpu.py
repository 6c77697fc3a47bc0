"""What is picked of a scene on a GPU is what is picked of the same in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.renderer_cases import Chance, looking_at_origin, random_scene

from splatview.viewer_app.renderers.activation import activate
from splatview.viewer_app.renderers.base import RenderOptions
from splatview.viewer_app.renderers.gsplat import GsplatRenderer
from splatview.viewer_app.scene import FIELDS, GaussianScene
from splatview.viewer_app.selecting import EVERYTHING, Box, Selection, Sphere
from splatview.viewer_app.selecting.pick import pick, pick_later
from splatview.viewer_app.selecting.statistics import count_later
from splatview.viewer_app.selecting.values import values_later

if TYPE_CHECKING:
    import moderngl

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


def test_what_is_loaded_meanwhile_is_not_mixed_in() -> None:
    """The GPU was given all of the work: writes that follow come after it."""
    host, device = both()
    view = looking_at_origin()
    wanted = pick(host, view, 100, 75, RenderOptions())
    tell = pick_later(device, view, 100, 75, RenderOptions())
    for name in FIELDS:
        getattr(device, name).zero_()
    hit = tell()
    assert hit is not None and wanted is not None
    assert (hit.index, hit.depth) == (wanted.index, pytest.approx(wanted.depth, rel=1e-5))


def test_an_empty_scene_has_nothing() -> None:
    _, device = both()
    empty = replace(device, **{name: getattr(device, name)[:0] for name in FIELDS})
    assert pick(empty, looking_at_origin(), 100, 75, RenderOptions()) is None


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


def test_what_the_renderer_lends_is_picked_like_what_it_was_given(ctx: moderngl.Context) -> None:
    """Logarithms, logits and unnormalised quaternions, some of them without a meaning."""
    given = random_scene(11, Chance(n=20_000))
    given.means[::50] = np.nan
    view, renderer = looking_at_origin(), GsplatRenderer(ctx)
    try:
        renderer.load(replace(given, **{name: torch.from_numpy(np.array(getattr(given, name))).cuda()
                                        for name in FIELDS}))
        lent = renderer.scene()
        hit = pick(lent, view, 100, 75, RenderOptions())
        a = activate(given)
        assert a.kept is not None
        there = GaussianScene(a.means, a.quats, a.scales, a.opacities, a.sh0, a.shN, activated=True)
        wanted = pick(there, view, 100, 75, RenderOptions())
        assert hit is not None and wanted is not None
        assert hit.index == a.kept[wanted.index]
        assert hit.weight == pytest.approx(wanted.weight, rel=1e-3)
        np.testing.assert_allclose(values_later(lent, hit.index, 0)().mean, given.means[hit.index], atol=1e-5)
        assert count_later(lent, EVERYTHING)().total == len(there)
    finally:
        renderer.close()


@pytest.mark.parametrize("selection", [EVERYTHING, Selection(opacity=(0.3, 0.8)), Selection(sphere=Sphere())],
                         ids=["everything", "opacity", "sphere"])
def test_the_same_is_counted(selection: Selection) -> None:
    host, device = both()
    wanted, found = count_later(host, selection)(), count_later(device, selection)()
    assert found.total == wanted.total
    assert abs(found.chosen - wanted.chosen) <= 1
    for name, pairs in wanted.counts.items():
        for a, b in zip(pairs, found.counts[name], strict=True):
            assert abs(int(a.sum()) - int(b.sum())) <= 1
            assert np.abs(a - b).sum() <= 40  # values on an edge, whose logarithms differ in the last bit


def test_the_numbers_of_one_are_the_same() -> None:
    host, device = both(100)
    tell = values_later(device, 42, 3)
    device.means.zero_()  # type: ignore[union-attr]
    wanted, found = values_later(host, 42, 3)(), tell()
    assert (found.version, found.opacity) == (3, wanted.opacity)
    for name in ("mean", "quat", "scale", "sh0", "shN"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
