"""The views of a scene, and what a data set holds before and after its pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import numpy as np

    from splatview.demo.pictures import LeftOutViews

Gaussians = Mapping[str, torch.Tensor] | torch.nn.ParameterDict
"""As gsplat's trainer holds them: means (N, 3), scales (N, 3) log, quats (N, 4) wxyz of
any length, opacities (N,) logit, sh0 (N, 1, 3), shN (N, K-1, 3)."""


@dataclass(frozen=True)
class DatasetView:
    """A pinhole camera with its pose in the world, and its photograph."""

    viewmat: torch.Tensor
    """(4, 4) float world to camera, OpenCV axes: x right, y down, z forward."""
    K: torch.Tensor
    """(3, 3) float in pixels; pixel centres are at +0.5."""
    width: int
    height: int
    image: torch.Tensor = field(default_factory=torch.Tensor)
    """(H, W, 3) float in [0, 1]; empty until it is read."""
    path: Path = Path()
    """The photograph's file; its size may be another one."""
    distorted: bool = False
    """The lens has a distortion that K does not describe."""

    @property
    def position(self) -> torch.Tensor:
        """(3,) the camera's centre in the world."""
        return -self.viewmat[:3, :3].T @ self.viewmat[:3, 3]

    def to(self, device: torch.device | str) -> DatasetView:
        """Return the view with its tensors on a device."""
        return replace(
            self,
            viewmat=self.viewmat.to(device),
            K=self.K.to(device),
            image=self.image.to(device),
        )


@dataclass(frozen=True)
class Capture:
    """A scene as a camera and structure from motion leave it."""

    train: list[DatasetView]
    held_out: list[DatasetView]
    """Views that no gradient sees: quality is measured on these."""
    points: torch.Tensor
    """(N, 3) float32, world."""
    colors: torch.Tensor
    """(N, 3) float32 in [0, 1]."""
    notes: tuple[str, ...] = ()
    """Notes for the user about the reading."""

    @property
    def extent(self) -> float:
        """The scene's size: the largest distance of a camera from their common middle.

        In units of the world.
        """
        centres = torch.stack([view.position for view in self.train])
        return max(float((centres - centres.mean(0)).norm(dim=1).max()), 1e-3)


@dataclass
class UnreadCapture:
    """A data set before its pictures are read."""

    views: list[DatasetView]
    """By name, with the files of their pictures and without these."""
    points: np.ndarray
    """(N, 3)."""
    colors: np.ndarray
    """(N, 3) of 0 to 255."""
    left_out: LeftOutViews
    notes: list[str] = field(default_factory=list)
