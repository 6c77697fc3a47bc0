"""The other paints and selections in the CUDA renderer, with its kernels run on the CPU (see `test_gsplat_cpu.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from renderer_cases import Chance, psnr, random_scene
from test_gsplat_cpu import CPU, SHOWN, VIEW, compiled, no_gpu, on_gpu, renderer_fixture, shown  # noqa: F401

from splatview.viewer_app.errors import RendererError
from splatview.viewer_app.renderers import gsplat_frame
from splatview.viewer_app.renderers.base import PAINTS, RenderOptions
from splatview.viewer_app.renderers.reference import ReferenceRenderer
from splatview.viewer_app.selecting import Selection

if TYPE_CHECKING:
    from splatview.viewer_app.cameras import Camera
    from splatview.viewer_app.renderers.gsplat import GsplatRenderer


@pytest.mark.parametrize("paint", PAINTS)
def test_other_paints_and_selections(renderer: GsplatRenderer, paint: Any) -> None:
    options = RenderOptions(paint=paint, scale=1.2, selection=Selection(opacity=(0.2, 1.0), marked=(3, 50)))
    plain, view = RenderOptions(paint=paint), VIEW
    for seed, place in ((1, on_gpu), (2, on_gpu), (3, lambda scene: scene)):
        s = random_scene(seed, Chance(n=150))
        expected = ReferenceRenderer()
        expected.load(s)
        renderer.load(place(s))
        for o in (plain, options, plain):
            wanted = expected.render(view, o).pixels()
            values = shown(renderer, view, replace(o, depth=False))
            edge = np.abs(values[..., 3] - wanted.alpha) == 1
            assert psnr(values[~edge][:, :3], wanted.color[~edge], float(wanted.color.max())) > 45
            assert renderer.note == ""


def test_what_gsplat_by_itself_cannot_draw_is_said_and_colour_shown(renderer: GsplatRenderer,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[RenderOptions] = []

    class Plain(gsplat_frame.PlainFrame):
        def render(self, camera: Camera, options: RenderOptions, rgba: Any = None) -> Any:
            asked.append(options)
            return torch.zeros(camera.height, camera.width, 4) if rgba is None else rgba, None

    renderer.load(random_scene(1, Chance(n=20)))
    renderer.render(VIEW, SHOWN)
    monkeypatch.setattr(renderer, "_frame", Plain(CPU))
    renderer.render(VIEW, replace(SHOWN, paint="rings"))
    assert asked[-1].paint == "color" and "'rings'" in renderer.note and "color, normals" in renderer.note
    renderer.render(VIEW, replace(SHOWN, paint="normals"))
    assert asked[-1].paint == "normals" and renderer.note == ""
    with pytest.raises(RendererError, match="does not draw 'rings'; it draws color, normals"):
        gsplat_frame.PlainFrame(CPU).render(VIEW, replace(SHOWN, paint="rings"))
