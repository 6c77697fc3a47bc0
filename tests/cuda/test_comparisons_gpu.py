"""Comparing on a GPU: scenes are put together where they lie, and look as they do on the host."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.comparison_cases import house_fixture  # noqa: F401

from splatview.viewer_app.comparing.merging import merged
from splatview.viewer_app.comparing.pair_view import PairView
from splatview.viewer_app.comparing.turning import Placement, placed
from splatview.viewer_app.scene import FIELDS, GaussianScene

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.comparison_cases import House
    from support.programs import Programs

pytestmark = pytest.mark.cuda

SPLATS = """
import sys, torch, splatview
n, name = int(sys.argv[1]), sys.argv[2]
g = torch.Generator().manual_seed(n)
splats = {"means": torch.randn(n, 3, generator=g), "quats": torch.randn(n, 4, generator=g),
          "scales": torch.full((n, 3), -2.0), "opacities": torch.full((n,), 3.0),
          "sh0": torch.rand(n, 1, 3, generator=g), "shN": torch.zeros(n, 0, 3)}
splats = {k: v.cuda() for k, v in splats.items()}
splatview.publish(splats, name)
print("published", flush=True)
for line in sys.stdin:
    splats = {k: v[: int(line)].clone() for k, v in splats.items()}
    splatview.publish(splats, name)
"""
"""Arguments: number of Gaussians, the stream's name. Each line of the input: publish so many of them."""


def scene(degree: int, seed: int) -> GaussianScene:
    rng = np.random.default_rng(seed)
    shapes = (3,), (4,), (3,), (), (3,), ((degree + 1) ** 2 - 1, 3)
    return GaussianScene(*(rng.normal(size=(500, *shape)).astype(np.float32) for shape in shapes), activated=False,
                         sh_degree=degree)


def on_gpu(of: GaussianScene) -> GaussianScene:
    return replace(of, **{name: torch.from_numpy(getattr(of, name)).cuda() for name in FIELDS})


def test_scenes_are_placed_and_put_together_where_they_lie() -> None:
    parts = [scene(3, 0), scene(1, 1)]
    where, pivot = Placement((1, -2, 3), (40, -70, 110), 0.5), np.array([0.1, 0.2, 0.3])
    host = merged([placed(parts[0], where, pivot), parts[1]], [False, False])
    device = torch.device("cuda", 0)
    there = merged([placed(on_gpu(parts[0]), where, pivot), parts[1]], [False, False], device)  # one lies on the host
    assert there.gpu == device
    assert there.sh_degree == host.sh_degree == 3
    for name in FIELDS:
        values = getattr(there, name)
        assert values.dtype == torch.float32
        np.testing.assert_allclose(values.cpu().numpy(), getattr(host, name), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("how", ["together", "pair"])
def test_streams_on_a_gpu_are_compared(house: Callable[..., House], programs: Programs, how: str) -> None:
    h = house("a")
    program = programs.code(SPLATS, "300", "splats")
    h.app.until(lambda: len(h.app.state.entries) == 2)
    entry = next(e for e in h.app.state.entries if e.name == "splats")
    stream = h.app.catalogue.slots[entry.key].source.stream  # type: ignore[attr-defined]
    h.show("a")
    getattr(h.comparisons, how)(h.pane, entry.key)

    def counts() -> list[str]:
        view = h.pane.view
        views = view.views if isinstance(view, PairView) else [] if view is None else [view]
        return [v.details[0] for v in views if not v.empty]

    def seen(n: int) -> Callable[[], bool]:
        wanted = [f"{200 + n} Gaussians"] if how == "together" else ["200 Gaussians", f"{n} Gaussians"]
        return lambda: counts() == wanted

    h.app.until(seen(300))
    assert program.stdin is not None
    for count in (200, 100, 50):
        program.stdin.write(f"{count}\n")
        program.stdin.flush()
        h.app.until(seen(count))
        assert not h.pane.entry.fault
    assert h.picture().max() > 60
    h.show("a")
    h.app.until(lambda: not stream.opened)
