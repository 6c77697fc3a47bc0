"""Scenes of Gaussians as torch tensors: selected, counted, moved and merged."""

from splatview_viewer.core.selection import (
    EVERYTHING,
    Box,
    Cylinder,
    Selection,
    Shape,
    Sphere,
)
from splatview_viewer.scene.selecting import (
    HIDDEN,
    MARKED,
    flags,
    largest_scale,
    sh_energy,
)

__all__ = [
    "EVERYTHING",
    "HIDDEN",
    "MARKED",
    "Box",
    "Cylinder",
    "Selection",
    "Shape",
    "Sphere",
    "flags",
    "largest_scale",
    "sh_energy",
]
