"""The kind of Gaussians: its view, the cache of a scene, and a file for each tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.core.kind import Kind
from splatview_viewer.scene_view.training_link import CamerasLink

if TYPE_CHECKING:
    import moderngl

    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.kinds.gaussians.view import GaussianView


def _view(ctx: moderngl.Context, gpu_work: GpuWork) -> GaussianView:
    from splatview_viewer.kinds.gaussians.cache import SceneCache
    from splatview_viewer.kinds.gaussians.state import GaussianState
    from splatview_viewer.kinds.gaussians.view import GaussianView

    return GaussianView(SceneCache(ctx, gpu_work), GaussianState())


def _holds(value: Any) -> bool:
    from splatview_viewer.scene.scene import GaussianScene

    return isinstance(value, GaussianScene)


def _fact(content: Any) -> str:
    """Return the number of Gaussians."""
    summary = content.summary
    if summary is None:
        return ""
    return f"{summary.count:,}"


KIND = Kind(
    "gaussians",
    view=_view,
    rank=0,
    compared=True,
    merged=True,
    recorded=True,
    sharded=True,
    counted=True,
    holds_many=True,
    selected=True,
    fact=_fact,
    filmed=True,
    paced=True,
    holds=_holds,
    links=(CamerasLink("cameras"),),
)
