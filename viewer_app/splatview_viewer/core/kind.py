"""A kind of stream: how it is shown, and what other rooms may do with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable


def _nothing(value: Any) -> bool:
    return False


@dataclass(frozen=True)
class Kind:
    """The registration of a kind. `splatview_viewer.kinds.KINDS` lists all of them."""

    name: str
    """As publishers write it."""
    view: Callable[[], Callable[..., Any]] | None = None
    """Imports the class of its view. None: it is drawn over another stream, and is no entry of the list."""
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
