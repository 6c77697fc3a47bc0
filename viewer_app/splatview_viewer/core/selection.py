"""A choice of Gaussians as plain numbers, which holds for every version of a scene.

`scene/selecting.py` makes masks of it, `scene/shapes.py` knows the geometry of boxes,
spheres and cylinders (edges, handles, fitting), and `scene_view/crop.py` is the tool
with which users crop, `scene_view/crop_panel.py` its panel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

Vector = tuple[float, float, float]
Axes = tuple[Vector, Vector, Vector]
_WORLD_AXES: Axes = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


@dataclass(frozen=True)
class Box:
    """A box of any orientation, world units."""

    center: Vector = (0.0, 0.0, 0.0)
    half: Vector = (1.0, 1.0, 1.0)
    """Half the lengths of its edges, along its own axes."""
    axes: Axes = _WORLD_AXES
    """Its axes in the world, unit vectors at right angles."""
    outside: bool = False
    """True to keep what is outside instead of what is inside."""


@dataclass(frozen=True)
class Sphere:
    """A sphere, world units."""

    center: Vector = (0.0, 0.0, 0.0)
    radius: float = 1.0
    outside: bool = False
    """True to keep what is outside instead of what is inside."""


@dataclass(frozen=True)
class Cylinder:
    """A cylinder of any orientation, world units."""

    center: Vector = (0.0, 0.0, 0.0)
    radius: float = 1.0
    half_height: float = 1.0
    axes: Axes = _WORLD_AXES
    """The axes of the box that it fits into, unit vectors at right angles."""
    axis_index: Literal[0, 1, 2] = 1
    """Which of its axes it goes around. One that stands upright in a scene whose up is an
    axis of the world is not turned."""
    outside: bool = False
    """True to keep what is outside instead of what is inside."""

    @property
    def half(self) -> Vector:
        """Half the lengths of the box that it fits into, as `Box.half`."""
        lengths = [self.radius, self.radius, self.radius]
        lengths[self.axis_index] = self.half_height
        x, y, z = lengths
        return x, y, z


Shape = Box | Sphere | Cylinder
"""A region that a scene is cut to."""


@dataclass(frozen=True, eq=False, repr=False)
class Mask:
    """Some of a scene's Gaussians, by their indices; equal to itself alone."""

    bits: bytes
    """A bit for each, as `numpy.packbits` packs them."""
    total: int
    """Gaussians of the scene."""
    count: int
    """Those that it has."""


@dataclass(frozen=True)
class Selection:
    """The conditions that a Gaussian must meet, all of them, to be drawn.

    Immutable, so that it can be part of what a picture is known by.
    """

    opacity: tuple[float, float] = (0.0, 1.0)
    """Lowest and highest opacity, both included."""
    scale: tuple[float, float] = (0.0, math.inf)
    """Smallest and largest value of its largest standard deviation, in world units."""
    sh_energy: tuple[float, float] = (0.0, math.inf)
    """Smallest and largest `scene.sh_energy`: how much its colour depends on the
    direction of view."""
    box: Box | None = None
    """Where its centre has to be."""
    sphere: Sphere | None = None
    """As `box`, for a sphere."""
    cylinder: Cylinder | None = None
    """As `box`, for a cylinder."""
    marked: tuple[int, ...] = ()
    """Indices into the scene of Gaussians that stand out, ascending. Those that it does
    not have do not count."""

    hidden: Mask | None = None
    """Gaussians that the user has hidden."""

    @property
    def unmarked(self) -> Selection:
        """The same conditions, with nothing that stands out."""
        if not self.marked:
            return self
        return replace(self, marked=())

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes that it crops by."""
        shapes = (self.box, self.sphere, self.cylinder)
        return tuple(shape for shape in shapes if shape is not None)

    def cropped_by(self, shape: Shape | None) -> Selection:
        """Return the same conditions with this shape alone; None: without any."""
        uncropped = replace(self, box=None, sphere=None, cylinder=None)
        match shape:
            case Box():
                return replace(uncropped, box=shape)
            case Sphere():
                return replace(uncropped, sphere=shape)
            case Cylinder():
                return replace(uncropped, cylinder=shape)
            case None:
                return uncropped


EVERYTHING = Selection()
