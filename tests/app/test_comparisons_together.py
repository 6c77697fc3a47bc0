"""Several scenes in one picture, live ones as well: each is seen or not, and put where one likes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.comparison_cases import house_fixture  # noqa: F401

from splatview.viewer_app.comparing.pair_view import PairView
from splatview.viewer_app.comparing.turning import STAYS, Placement

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.comparison_cases import House
    from support.programs import Programs

SPLATS = """
import sys, time, torch, splatview
n, name = int(sys.argv[1]), sys.argv[2]
g = torch.Generator().manual_seed(n)
splats = {"means": torch.randn(n, 3, generator=g), "quats": torch.randn(n, 4, generator=g),
          "scales": torch.full((n, 3), -2.0), "opacities": torch.full((n,), 3.0),
          "sh0": torch.rand(n, 1, 3, generator=g), "shN": torch.zeros(n, 0, 3)}
splatview.publish(splats, name)
print("published", flush=True)
for line in sys.stdin:
    splats = {k: v[: int(line)] for k, v in splats.items()}
    splatview.publish(splats, name)
"""
"""Arguments: number of Gaussians, the stream's name. Each line of the input: publish so many of them."""


def test_together_they_are_one_scene(house: Callable[..., House]) -> None:
    h = house("a", "b", "ab")
    h.together("a", "b")
    together = h.picture()
    np.testing.assert_allclose(together, h.alone("ab", h.pane.view), atol=1)


def test_each_is_seen_or_not(house: Callable[..., House]) -> None:
    h = house("a", "b")
    source = h.together("a", "b")
    both, look = h.picture(), h.pane.view
    source.parts[1].visible = False
    only = h.picture()
    assert (only != both).any()
    assert look.details[0] == "200 Gaussians"
    source.parts[0].visible = False
    assert h.picture().max() == 0
    source.parts[0].visible = source.parts[1].visible = True
    np.testing.assert_array_equal(h.picture(), both)
    np.testing.assert_allclose(only, h.alone("a", look), atol=1)


def test_each_is_put_where_one_likes(house: Callable[..., House]) -> None:
    h = house("a", "b")
    source = h.together("a", "b")
    before = h.picture()
    source.parts[0].visible = False
    source.parts[1].placement = Placement((1.0, 0, 0), (0, 90, 0), 0.5)
    moved = h.picture()
    source.parts[1].placement = STAYS
    assert (h.picture() != moved).any()
    source.parts[0].visible = True
    np.testing.assert_array_equal(h.picture(), before)


def test_scenes_come_and_go(house: Callable[..., House]) -> None:
    h = house("a", "b", "c")
    source = h.together("a", "b")
    assert h.pane.entry.name == "a.ply + b.ply"
    h.comparisons.together(h.pane, h.keys["c"])
    h.app.until(lambda: h.pane.view.details[0] == "600 Gaussians")
    assert h.pane.entry.name == "a.ply + b.ply + c.ply"
    assert [e.group for e in h.app.state.entries].count("Compare") == 1
    h.app.catalogue.forget(h.keys["b"])
    h.app.until(lambda: h.pane.view.details[0] == "400 Gaussians")
    source.remove(source.parts[0])
    h.app.until(lambda: h.pane.view.details[0] == "200 Gaussians")
    h.app.catalogue.forget(h.keys["c"])
    h.app.until(lambda: len(h.app.state.entries) == 1)
    assert h.show("a").details[0] == "200 Gaussians"


def test_a_pair_of_one_with_several(house: Callable[..., House]) -> None:
    h = house("a", "b")
    h.together("a", "b")
    h.keys["both"] = h.pane.key
    view = h.pair("a", "both")
    assert sorted(v.details[0] for v in view.views) == ["200 Gaussians", "400 Gaussians"]


def test_closed_in_the_middle_it_gives_back_everything(house: Callable[..., House]) -> None:
    h = house("a", "b")
    h.show("a")
    h.comparisons.together(h.pane, h.keys["b"])
    h.app.turn()
    h.app.catalogue.forget(h.pane.key)
    h.app.do()
    for name in "ab":
        assert h.show(name).details[0] == "200 Gaussians"
        assert h.picture().max() > 60
    assert not h.comparisons.slots


# -- live streams ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["together", "pair"])
def test_live_streams_are_open_while_they_are_compared_and_no_longer(house: Callable[..., House], programs: Programs,
                                                                     how: str) -> None:
    h = house("a")
    program = programs.code(SPLATS, "300", "splats")
    h.app.until(lambda: len(h.app.state.entries) == 2)
    entry = next(e for e in h.app.state.entries if e.name == "splats")
    stream = h.app.catalogue.slots[entry.key].source.stream  # type: ignore[attr-defined]
    h.show("a")
    h.app.until(lambda: not stream.opened)
    getattr(h.comparisons, how)(h.pane, entry.key)

    def counts() -> list[str]:
        view = h.pane.view
        views = view.views if isinstance(view, PairView) else [] if view is None else [view]
        return [v.details[0] for v in views if not v.empty]

    h.app.until(lambda: counts() == (["500 Gaussians"] if how == "together" else ["200 Gaussians", "300 Gaussians"]))
    assert program.stdin is not None
    program.stdin.write("100\n")
    program.stdin.flush()
    h.app.until(lambda: counts() == (["300 Gaussians"] if how == "together" else ["200 Gaussians", "100 Gaussians"]))
    h.show("a")
    h.app.until(lambda: not stream.opened)
