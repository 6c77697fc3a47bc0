"""The table of paints: what is drawn of each Gaussian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from splatview_viewer.core.quantities import count_labels, number_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Paint = Literal["color", "normals", "ellipsoids", "rings", "points", "overdraw"]


@dataclass(frozen=True)
class PaintFacts:
    """Facts about one way to draw each Gaussian: all that is decided by the paint alone.

    Its colours, numbers too, lie in [0, `COLOR_MAX`]: the tiles of OpenGL keep them
    without a sign, and half precision keeps them finite.
    """

    title: str
    tip: str
    """Explanation for users."""
    by_density: bool = False
    """Opacity and density make the picture, and `RenderOptions.mode` counts; otherwise
    shapes do."""
    has_own_colors: bool = True
    """The picture is in the Gaussians' own colours, so that harmonics count."""
    is_mapped: bool = False
    """The first channel is a number, which a colour map shows: what is counted, or else
    the mean of what is blended, so that the view divides it by alpha."""
    legend: str = ""
    """Title of the colour map's legend."""
    labels: Callable[[Sequence[float]], list[str]] = number_labels
    """Texts of numbers below the legend."""
    range_name: str = ""
    """The numbers in the status line, which then has their range; empty: it has none."""
    composition: Literal["blended", "nearest", "counted"] = "blended"
    """nearest: only the nearest surface counts in a pixel. counted: all Gaussians are
    added up, also those that others hide."""
    shader_name: str = "COLOR"
    """Its name in `enum Paint` of gsplat/frame.cu, and as a define of OpenGL's shaders,
    which are without one for colours."""
    changes_color_only: bool = False
    """Nothing but a Gaussian's colour is another one than in the paint "color": of
    OpenGL's shaders only the projection has the define."""
    cuda_kernel: str = "blend"
    """Kernel of gsplat/frame.cu that composites the picture."""

    @property
    def can_be_moved(self) -> bool:
        """True if the picture can be moved along with the camera: colours can."""
        return not self.is_mapped

    @property
    def is_counted(self) -> bool:
        return self.composition == "counted"

    @property
    def projection_defines(self) -> tuple[str, ...]:
        """Defines of the shader that projects Gaussians."""
        if self.shader_name == "COLOR":
            return ()
        return (self.shader_name,)

    @property
    def compositing_defines(self) -> tuple[str, ...]:
        """Defines of the shaders that composite what was projected."""
        if self.changes_color_only:
            return ()
        return self.projection_defines


PAINTS: dict[Paint, PaintFacts] = {
    "color": PaintFacts(
        title="Colour",
        tip="The quantity that is drawn",
        by_density=True,
    ),
    "normals": PaintFacts(
        title="Normals",
        tip=(
            "The direction of each Gaussian's shortest axis: red to the right, green "
            "down, blue away from you."
        ),
        by_density=True,
        has_own_colors=False,
        shader_name="NORMALS",
        changes_color_only=True,
    ),
    "ellipsoids": PaintFacts(
        title="Ellipsoids",
        tip="Each Gaussian as a solid body of two standard deviations.",
        composition="nearest",
        shader_name="BODIES",
        cuda_kernel="blend_bodies",
    ),
    "rings": PaintFacts(
        title="Outlines",
        tip="The outline of each Gaussian at two standard deviations.",
        shader_name="RINGS",
        cuda_kernel="blend_rings",
    ),
    "points": PaintFacts(
        title="Centres",
        tip="Where the middle of each Gaussian is.",
        shader_name="POINTS",
        cuda_kernel="blend_points",
    ),
    "overdraw": PaintFacts(
        title="Overdraw",
        tip="How many Gaussians are drawn over each other in a pixel.",
        by_density=True,
        has_own_colors=False,
        is_mapped=True,
        legend="Gaussians per pixel",
        labels=count_labels,
        composition="counted",
        shader_name="OVERDRAW",
        cuda_kernel="blend_overdraw",
    ),
}
"""Facts by paint. gsplat/frame.cu knows the paints by their places in this order;
`tests/viewer/render/test_renderer_paints.py` compares the two, and `Paint`."""
