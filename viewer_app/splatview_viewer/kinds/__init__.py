"""Kinds of streams: a folder for each, with its `KIND`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.kind import Kind, Link
from splatview_viewer.core.shown_view import ShownView
from splatview_viewer.kinds import (
    cameras,
    controls,
    gaussians,
    image,
    memory,
    ranks,
    rendered,
    scalars,
    snapshot,
)

if TYPE_CHECKING:
    import moderngl

    from splatview_viewer.gpu.work import GpuWork

KINDS = (
    gaussians.KIND,
    rendered.KIND,
    rendered.PICTURE,
    image.KIND,
    image.OVERLAY,
    scalars.KIND,
    memory.KIND,
    cameras.KIND,
    controls.KIND,
    snapshot.KIND,
    ranks.KIND,
)
"""All kinds. Strips in the panel are in this order."""


def shown_kinds() -> tuple[str, ...]:
    """Return the names of the kinds that are entries of the list."""
    return tuple(kind.name for kind in KINDS if kind.has_view)


def kind_of(value: Any) -> str:
    """Return the name of the kind of a file's content."""
    return next(kind.name for kind in KINDS if kind.holds(value))


def recorded_kind() -> str:
    """Return the name of the kind that recordings are of."""
    return next(kind.name for kind in KINDS if kind.recorded)


def about(name: str) -> Kind:
    """Return the kind of this name; one without a view for a name that is none."""
    for kind in KINDS:
        if kind.name == name:
            return kind
    return Kind(name)


def are_comparable(first: str, second: str) -> bool:
    """Return whether entries of two kinds can be compared: scenes of any kinds can."""
    kinds = (about(first), about(second))
    if not all(kind.compared for kind in kinds):
        return False
    return first == second or all(kind.filmed for kind in kinds)


def can_be_merged(first: str, second: str) -> bool:
    """Return whether entries of two kinds can be put together in one space."""
    return first == second and about(first).merged


def links_of(name: str) -> tuple[Link, ...]:
    """Return the links that feed the views of a kind: its own, and the plots of its run."""
    kind = about(name)
    plots = (
        Link(plot_kind.name, plotted=True) for plot_kind in KINDS if plot_kind.strip
    )
    if kind.has_view:
        return (*kind.links, *plots)
    return kind.links


def make_view(
    name: str, ctx: moderngl.Context, gpu_work: GpuWork | None = None
) -> ShownView:
    """Make a view for a stream. Raises ViewerError for a kind that has none.

    gpu_work: times what the view gives the GPU.
    """
    from splatview_viewer.gpu.work import GpuWork

    view = about(name).view
    if view is None:
        raise ViewerError(
            f"a stream of kind {name!r} cannot be shown here; expected {', '.join(shown_kinds())}"
        )
    return ShownView(view(ctx, gpu_work or GpuWork(ctx)))
