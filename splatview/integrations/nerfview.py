"""nerfview's and gsplat's `render_fn(camera_state, render_tab_state)` without nerfview.

    splatview.renderer("scene", points=means)(adapt(render_fn))

in the place of `nerfview.Viewer(server=server, render_fn=render_fn)`, and
`splatview.draw()` in the loop in the place of the viewer's lock, `rerender` and `update`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview.rendering.camera import RenderCamera


@dataclass
class CameraState:
    """The camera as nerfview describes it. OpenCV axes."""

    fov: float
    """Vertical, in radians."""
    aspect: float
    """Width by height."""
    c2w: np.ndarray
    """(4, 4), camera to world."""
    K: np.ndarray
    """(3, 3), for a picture of the size that is asked for."""
    size: tuple[int, int]
    """Width and height of that."""

    def get_K(self, img_wh: tuple[int, int]) -> np.ndarray:  # noqa: N802  nerfview's
        """Return the intrinsics (3, 3) for a picture of a width and height."""
        scales = np.array([img_wh[0] / self.size[0], img_wh[1] / self.size[1], 1.0])
        return self.K * scales[:, None]


@dataclass
class RenderTabState:
    """Holds the values that the panels of nerfview and of gsplat's viewer start with."""

    render_width: int = 1280
    render_height: int = 960
    viewer_width: int = 1280
    viewer_height: int = 960
    viewer_res: int = 2048
    preview_render: bool = False
    preview_fov: float = 0.0
    preview_time: float = 0.0
    preview_aspect: float = 1.0
    num_train_rays_per_sec: float | None = None
    num_view_rays_per_sec: float = 100_000.0
    total_gs_count: int = 0
    rendered_gs_count: int = 0
    max_sh_degree: int = 5
    near_plane: float = 0.01
    far_plane: float = 100.0
    radius_clip: float = 0.0
    eps2d: float = 0.3
    backgrounds: tuple[float, float, float] = (0.0, 0.0, 0.0)
    render_mode: str = "rgb"
    normalize_nearfar: bool = False
    inverse: bool = False
    colormap: str = "turbo"
    rasterize_mode: str = "classic"
    camera_model: str = "pinhole"


def adapt(render_fn: Callable[..., Any], tab_state: Any = None) -> Callable[..., Any]:
    """Return a function for `splatview.renderer` that calls one written for nerfview.

    Args:
        render_fn: takes a camera state and a tab state, and returns the picture, (H, W, 3)
            uint8 or floating point in [0, 1], or the picture and its depth.
        tab_state: the object that it is given, or its class, where it insists on one, as
            gsplat's trainer does on its `GsplatRenderTabState`; None: a `RenderTabState`. The
            size of the picture is written into it, and the values of the script's
            controls that have its attributes' names.
    """
    if tab_state is None:
        tab_state = RenderTabState
    state = tab_state() if isinstance(tab_state, type) else tab_state

    def draw(camera: RenderCamera, controls: Any = None) -> Any:
        size = camera.width, camera.height
        state.render_width, state.render_height = size
        state.viewer_width, state.viewer_height = size
        state.preview_render = False
        if isinstance(controls, Mapping):
            for name, value in controls.items():
                setattr(state, name, value)
        camera_state = CameraState(
            fov=camera.fov,
            aspect=camera.width / camera.height,
            c2w=camera.c2w_host.copy(),
            K=camera.K_host.copy(),
            size=size,
        )
        picture = render_fn(camera_state, state)
        if isinstance(picture, tuple) and len(picture) == 2:
            color, depth = picture
            return color, depth, None
        return picture

    draw.__name__ = getattr(render_fn, "__name__", type(render_fn).__name__)
    return draw
