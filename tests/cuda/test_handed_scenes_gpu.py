"""Scenes on a GPU that are packed for pages which draw by themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from support.unpacked_blocks import unpacked
from support.view_cases import scene_view
from support.wait import PATIENCE_S

from splatview_viewer.blocks.packing_request import Packing, PackingForm
from splatview_viewer.core.screen import Rect
from splatview_viewer.render.gsplat.renderer import GsplatRenderer
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.screens.offscreen import OffscreenScreen

pytestmark = pytest.mark.cuda
RECT = Rect(0, 0, 320, 240)


def make_scene(count: int, offset: float) -> GaussianScene:
    random = torch.Generator("cuda").manual_seed(0)

    def normal_values(*shape: int) -> torch.Tensor:
        return torch.randn(count, *shape, generator=random, device="cuda")

    return GaussianScene(
        means=normal_values(3) + offset,
        quats=normal_values(4),
        scales=normal_values(3) - 4,
        opacities=normal_values(),
        sh0=normal_values(3),
        shN=normal_values(15, 3) * 0.1,
    )


@pytest.fixture
def view() -> Iterator[Any]:
    screen = OffscreenScreen(RECT.width, RECT.height)
    view = scene_view(screen, GsplatRenderer(screen.ctx))
    yield view
    view.close()
    error = screen.ctx.error
    screen.close()
    assert error == "GL_NO_ERROR"


def packed(view: Any, form: PackingForm) -> Packing:
    """Have the view's newest version packed, as a page's connection does."""
    done = threading.Event()
    handed = view.hand_on(RECT)
    assert handed.drawing is not None, handed.reason
    packing = handed.versions.request(form, None, done.set)
    view.tick(1.0)
    assert done.wait(PATIENCE_S)
    assert not packing.has_failed
    return packing


def test_each_version_is_packed_as_it_is_on_the_gpu(view: Any) -> None:
    for count in (5000, 300, 70_000):
        scene = make_scene(count, float(count))
        view.update(scene)
        packing = packed(view, PackingForm(("exact", "harmonics"), count))
        page_scene = unpacked(
            packing.blocks["exact"],
            packing.blocks["harmonics"],
            count,
            packing.version_facts.origin,
            15,
        )
        torch.testing.assert_close(page_scene.means.float(), scene.means.cpu())
        torch.testing.assert_close(page_scene.shN, scene.shN.cpu(), atol=2e-3, rtol=0)
        assert not view.wants.busy
        assert view.view.picture.is_empty, "nothing was drawn"


def test_the_most_important_ones_come_first(view: Any) -> None:
    scene = make_scene(20_000, 0.0)
    scene.opacities[:] = -4.0
    scene.opacities[::20] = 4.0
    view.update(scene)
    packing = packed(view, PackingForm(("quick",), 1024))
    page_scene = unpacked(
        packing.blocks["quick"], None, 1024, packing.version_facts.origin, 0
    )
    assert (page_scene.opacities > 0.9).sum() > 500
