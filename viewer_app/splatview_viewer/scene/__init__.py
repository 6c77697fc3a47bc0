"""Which of a scene's Gaussians are drawn, and which stand out."""

from splatview_viewer.scene.selection import (
    EVERYTHING,
    HIDDEN,
    MARKED,
    Box,
    Selection,
    Sphere,
    largest_scale,
    sh_energy,
)

__all__ = ["EVERYTHING", "HIDDEN", "MARKED", "Box", "Selection", "Sphere", "largest_scale", "sh_energy"]
