"""The state of a view of Gaussians: all that decides its picture beside the scene."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from splatview_viewer.core.selection import EVERYTHING, Mask, Selection
from splatview_viewer.render.paints import PAINTS, Paint, PaintFacts
from splatview_viewer.scene_view.state import CameraPlace, TrainingDisplay

Show = Literal[Paint, "depth", "alpha"]
"""A paint, or another quantity of the picture that the paint "color" makes."""
_COLOR = PAINTS["color"]
SHOWS: dict[Show, PaintFacts] = {
    "color": _COLOR,
    "depth": replace(
        _COLOR,
        title="Depth",
        tip=(
            "How far away it is: the mean along the line of sight, by what each "
            "Gaussian contributes."
        ),
        has_own_colors=False,
        is_mapped=True,
        legend="Depth",
        range_name="depth",
    ),
    "alpha": replace(
        _COLOR,
        title="Alpha",
        tip="How much of the background is covered.",
        has_own_colors=False,
    ),
    **PAINTS,
}
"""Facts by what is shown, in the order in which users choose."""


def paint_of(show: Show) -> Paint:
    """Return the paint that makes the picture of which `show` shows a part."""
    if show in ("depth", "alpha"):
        return "color"
    return show


@dataclass(frozen=True)
class GaussianState:
    """The camera of a view, and what is drawn of the scene."""

    UNSHARED: ClassVar[tuple[str, ...]] = ("selection", "chosen", "training")
    """Settings that panes which are tied do not share: they are of one scene."""
    place: CameraPlace = field(default_factory=CameraPlace)
    show: Show = "color"
    mode: Literal["scene", "classic", "antialiased"] = "scene"
    """scene: as the scene was trained."""
    sh_degree: int | None = None
    """Highest degree of spherical harmonics to show; None: the scene's own."""
    scale: float = 1.0
    """Factor of the Gaussians' sizes."""
    point_px: float = 3.0
    """Diameter of points, in points of the screen."""
    background: tuple[float, float, float] | None = None
    """RGB in [0, 1]; None: the stream's own, otherwise black."""
    color_map: str = "turbo"
    """For what is shown by numbers (`PaintFacts.is_mapped`)."""
    depth_range: tuple[float, float] | None = None
    """Depth at both ends of the colour map, world units; None: the 1st and 99th
    percentile of what is seen."""
    overdraw_range: tuple[float, float] | None = None
    """Gaussians per pixel at both ends of the colour map; None: none, and nearly the
    most that are seen."""
    selection: Selection = EVERYTHING
    """The Gaussians that are drawn."""
    chosen: Mask | None = None
    """Gaussians that the user has chosen; None: there are none. Dots over the picture show
    them, so that it stays as it is."""
    training: TrainingDisplay = field(default_factory=TrainingDisplay)
    smooth: bool = True
    """While the camera moves, the picture before may be moved along until the next one
    is done."""

    def for_another_scene(self, state: GaussianState) -> GaussianState:
        """Return this state for a view of another scene, which has a state already.

        What names single Gaussians stays as it is there: here it is others.
        """
        selection = replace(
            self.selection,
            marked=state.selection.marked,
            hidden=state.selection.hidden,
        )
        return replace(self, selection=selection, chosen=state.chosen)
