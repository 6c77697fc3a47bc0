"""The state of a view of a scene that a function draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from splatview_viewer.scene_view.state import CameraPlace, TrainingDisplay


@dataclass(frozen=True)
class RenderedState:
    """The camera of a view, and what lies behind and over the picture."""

    UNSHARED: ClassVar[tuple[str, ...]] = ("training",)
    """Settings that panes which are tied do not share: they are of one scene."""
    place: CameraPlace = field(default_factory=CameraPlace)
    background: tuple[float, float, float] | None = None
    """RGB in [0, 1], seen where the function's picture is transparent; None: that around
    pictures, and black in a picture of the scene itself."""
    smooth: bool = True
    """While the next picture is drawn, the last one is moved along by its depth."""
    training: TrainingDisplay = field(default_factory=TrainingDisplay)
