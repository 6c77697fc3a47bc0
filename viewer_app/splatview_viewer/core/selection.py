"""A choice of Gaussians as plain numbers, which holds for every version of a scene."""

from __future__ import annotations

import math
from dataclasses import dataclass

Vector = tuple[float, float, float]


@dataclass(frozen=True)
class Box:
    """A box of any orientation, world units."""

    center: Vector = (0.0, 0.0, 0.0)
    half: Vector = (1.0, 1.0, 1.0)
    """Half the lengths of its edges, along its own axes."""
    axes: tuple[Vector, Vector, Vector] = (
        (1.0, 0.0, 0.0),
        (0.0, 1.0, 0.0),
        (0.0, 0.0, 1.0),
    )
    """Its axes in the world, unit vectors at right angles."""
    outside: bool = False
    """True to keep what is outside instead of what is inside."""


@dataclass(frozen=True)
class Sphere:
    """A sphere, world units."""

    center: Vector = (0.0, 0.0, 0.0)
    radius: float = 1.0
    outside: bool = False
    """As `Box.outside`."""


@dataclass(frozen=True)
class Selection:
    """The conditions that a Gaussian must meet, all of them, to be drawn.

    Immutable, so that it can be part of what a picture is known by.
    """

    opacity: tuple[float, float] = (0.0, 1.0)
    """Lowest and highest opacity, both included."""
    scale: tuple[float, float] = (0.0, math.inf)
    """The same of its largest standard deviation, world units."""
    sh_energy: tuple[float, float] = (0.0, math.inf)
    """The same of `scene.sh_energy`: how much its colour depends on the direction of
    view."""
    box: Box | None = None
    """Where its centre has to be."""
    sphere: Sphere | None = None
    """The same."""
    marked: tuple[int, ...] = ()
    """Indices into the scene of Gaussians that stand out, ascending. Those that it does
    not have do not count."""


EVERYTHING = Selection()
