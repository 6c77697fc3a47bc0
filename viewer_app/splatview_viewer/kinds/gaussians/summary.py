"""Facts about a scene of Gaussians, and a sample of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.scene.scene import SceneCopy
from splatview_viewer.scene_view.sample import SceneSample

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.scene.scene import GaussianScene

_SAMPLE_SIZE = 200_000
"""Gaussians that are looked at to frame a scene."""


@dataclass(frozen=True)
class GaussianSummary:
    """Facts about the scene that is shown; its arrays may be gone by now."""

    count: int
    sh_degree: int
    stored_sh_degree: int
    antialiased: bool
    notes: tuple[str, ...]
    up: tuple[float, float, float] | None = None
    """Direction upward by the scene's file."""
    customary_ups: tuple[tuple[float, float, float], ...] = ()
    """Directions upward of most files of this kind, the most usual first."""

    @classmethod
    def of_scene(cls, scene: GaussianScene) -> GaussianSummary:
        """Return the facts about a scene."""
        return cls(
            count=len(scene),
            sh_degree=scene.sh_degree,
            stored_sh_degree=scene.stored_sh_degree,
            antialiased=scene.antialiased,
            notes=scene.notes,
            up=scene.up,
            customary_ups=scene.customary_ups,
        )

    @property
    def step(self) -> int | None:
        """The step of the training; None where the trainer names none."""
        for note in self.notes:
            if re.fullmatch(r"step [\d,]+", note):
                return int(note.removeprefix("step ").replace(",", ""))
        return None

    @property
    def drawn_sh_degree(self) -> int:
        """The highest degree of spherical harmonics that is drawn."""
        return min(self.sh_degree, self.stored_sh_degree)

    @property
    def phrases(self) -> list[str]:
        """Short phrases for the status line."""
        phrases = []
        if self.drawn_sh_degree < self.stored_sh_degree:
            phrases.append(f"SH {self.drawn_sh_degree} of {self.stored_sh_degree}")
        elif self.stored_sh_degree:
            phrases.append(f"SH {self.stored_sh_degree}")
        if self.antialiased:
            phrases.append("antialiased")
        return phrases


def sample_scene(
    scene: GaussianScene, ready: Callable[[int], None] | None = None
) -> SceneSample:
    """Return some of a scene's Gaussians; waits for the GPU where they lie on one.

    Args:
        ready: as for `GaussianScene.to_host`.
    """
    scene.wait(ready)
    arrays = SceneCopy(scene, lambda: scene.sample(_SAMPLE_SIZE)).arrays()
    means, opacities = map(np.copy, arrays)
    return SceneSample(means, opacities)
