"""What shows one kind of stream: one protocol (`base`), one file per kind."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from splatview_viewer.core.errors import ViewerError

if TYPE_CHECKING:
    import moderngl

    from splatview_viewer.core.settings import ViewSettings
    from splatview_viewer.core.view import View
    from splatview_viewer.gpu.work import GpuWork

_VIEWS = {"image": ("image", "ImageView"), "gaussians": ("gaussians", "GaussianView"),
          "memory": ("memory", "MemoryView"),
          "scalars": ("scalars", "ScalarsView"), "cameras": ("cameras", "CamerasView"),
          "snapshot": ("snapshot", "SnapshotView")}
KINDS = tuple(_VIEWS)
"""The kinds of streams that can be shown."""


def make_view(kind: str, ctx: moderngl.Context, settings: ViewSettings, work: GpuWork | None = None) -> View:
    """A view for a kind of stream; `work` times what it gives the GPU. Raises ViewerError for a kind that has none."""
    if kind not in _VIEWS:
        raise ViewerError(f"a stream of kind {kind!r} cannot be shown here; legal are {', '.join(KINDS)}")
    module, name = _VIEWS[kind]
    return getattr(import_module(f"splatview_viewer.kinds.{module}.view"), name)(
        ctx, getattr(settings, kind), work=work)
