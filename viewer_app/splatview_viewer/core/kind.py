"""A kind of stream: how it is shown, and what other rooms may do with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    import moderngl

    from splatview_viewer.core.view import View


def _nothing(value: Any) -> bool:
    return False


@dataclass(frozen=True)
class Kind:
    """The registration of a kind. `splatview_viewer.kinds.KINDS` lists all of them."""

    name: str
    """As publishers write it."""
    old_view: Callable[[], Callable[..., Any]] | None = None
    """Imports the class of a view that implements `core.old_view.View`."""
    rank: int = 1
    """Streams of a lower rank are shown first where the user chose none."""
    still: Literal["view", "plot"] = "view"
    """A single picture of it is what its view draws, or a plot with words and axes."""
    compared: bool = False
    """Its views have a camera, or a place and a zoom, so that two can be compared and tied."""
    scene: bool = False
    """Holds Gaussians, which can be merged, recorded, sharded, counted, and filmed along a path."""
    strip: bool = False
    """Belongs to a run, and is plotted in the panel beside other streams of that run."""
    holds: Callable[[Any], bool] = _nothing
    """Returns whether the content of a file is of this kind."""
    view: Callable[[moderngl.Context, Any], View[Any, Any]] | None = None
    """Makes a view over new data, given the OpenGL context and the `GpuWork` that times what it gives the GPU."""

    @property
    def shown(self) -> bool:
        """True for an entry of the list, False for what is drawn over other streams."""
        return (self.view or self.old_view) is not None
