"""Examples that only a GPU can run."""

from __future__ import annotations

import runpy
import sys

import pytest
import torch
from support.example_runs import EXAMPLES

from splatview.api import script_controls
from splatview.rendering.camera import RenderCamera
from splatview.rendering.control_values import ControlValues
from splatview.rendering.function import draw_picture
from splatview_ipc.control.messages import Draw, DrawnCamera

pytestmark = pytest.mark.cuda


def test_2d_gaussians_are_drawn_as_they_were_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", ["render_2dgs", "--steps", "300"])
    script = runpy.run_path(str(EXAMPLES / "render_2dgs.py"), run_name="__main__")
    view = script["views"][2]
    viewmat = tuple(view.viewmat.flatten().tolist())
    K = tuple(view.K.flatten().tolist())
    draw = Draw(0, "ab" * 16, 1, DrawnCamera(view.width, view.height, viewmat, K))
    camera = RenderCamera.of(draw, "cuda")
    picture = draw_picture(
        script["picture"], (camera,), script_controls.registry.values()
    )
    difference = (picture.color[..., :3] / 255 - view.image).abs().mean()
    assert difference < 0.5 * view.image.mean()
    assert picture.depth is not None
    depths = picture.depth[view.image.sum(-1) > 0]
    torch.testing.assert_close(depths.median().item(), 2.7, atol=0.3, rtol=0.0)
    values = ControlValues({"show": "normals"})
    normals = draw_picture(script["picture"], (camera,), values)
    assert normals.color.float().std() > 10
