"""Functions that were written for nerfview and for gsplat's trainer draw unchanged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from splatview.integrations.nerfview import adapt
from splatview.rendering.camera import RenderCamera
from splatview.rendering.control_values import ControlValues
from splatview.rendering.function import draw_picture
from splatview_ipc.control.messages import Draw, DrawnCamera

VIEWMAT = torch.eye(4)
VIEWMAT[2, 3] = 3.0


def camera() -> RenderCamera:
    drawn_camera = DrawnCamera(
        width=8,
        height=4,
        viewmat=tuple(VIEWMAT.flatten().tolist()),
        K=(2.0, 0.0, 4.5, 0.0, 2.0, 2.0, 0.0, 0.0, 1.0),
    )
    return RenderCamera.of(Draw(index=0, viewer="ab", number=1, camera=drawn_camera))


class PanelState:
    """Stands for gsplat's panel, on which its trainer insists."""

    render_mode = "rgb"
    preview_render = True
    render_width = 0
    render_height = 0
    viewer_width = 0
    viewer_height = 0
    total_gs_count = 0


def test_function_of_gsplat_gets_its_camera_and_its_panel() -> None:
    # As in gsplat's examples/simple_trainer.py.
    def render_fn(camera_state: Any, render_tab_state: Any) -> np.ndarray:
        assert isinstance(render_tab_state, PanelState)
        if render_tab_state.preview_render:
            width = render_tab_state.render_width
            height = render_tab_state.render_height
        else:
            width = render_tab_state.viewer_width
            height = render_tab_state.viewer_height
        c2w = torch.from_numpy(camera_state.c2w).float()
        K = torch.from_numpy(camera_state.get_K((width, height))).float()
        torch.testing.assert_close(c2w, VIEWMAT.inverse())
        assert K[:2].tolist() == [[2, 0, 4.5], [0, 2, 2]]
        render_tab_state.total_gs_count = 7
        return np.full((height, width, 3), 0.2)

    state = PanelState()
    picture = draw_picture(adapt(render_fn, state), (camera(),), None)
    assert (picture.color == 51).all()
    assert state.total_gs_count == 7
    assert draw_picture(adapt(render_fn, PanelState), (camera(),), None)


def test_depth_and_controls_are_passed_on() -> None:
    def render_fn(camera_state: Any, render_tab_state: Any) -> Any:
        assert camera_state.fov == math.pi / 2
        assert camera_state.aspect == 2
        assert camera_state.get_K((16, 8))[0].tolist() == [4, 0, 9]
        assert render_tab_state.max_sh_degree == 2
        assert render_tab_state.near_plane == 0.01
        rgb = np.zeros((4, 8, 3), np.uint8)
        return rgb, np.ones((4, 8, 1), np.float32)

    function = adapt(render_fn)
    assert function.__name__ == "render_fn"
    controls = ControlValues({"max_sh_degree": 2})
    picture = draw_picture(function, (camera(),), controls)
    assert picture.depth is not None
    assert (picture.depth == 1).all()
