"""What Gaussians are trained from: posed views and coloured points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

Gaussians = Mapping[str, torch.Tensor] | torch.nn.ParameterDict
"""As gsplat's trainer holds them: means (N, 3), scales (N, 3) log, quats (N, 4) wxyz of any length, opacities (N,)
logit, sh0 (N, 1, 3), shN (N, K-1, 3)."""


@dataclass(frozen=True)
class View:
    """A pinhole camera with its place in the world, and what it saw."""

    viewmat: torch.Tensor
    """(4, 4) float world to camera, OpenCV axes: x right, y down, z forward."""
    K: torch.Tensor
    """(3, 3) float in pixels; pixel centres lie at +0.5."""
    width: int
    height: int
    image: torch.Tensor | None = None
    """(H, W, 3) float in [0, 1]."""

    @property
    def position(self) -> torch.Tensor:
        """(3,) the camera's centre in the world."""
        return -self.viewmat[:3, :3].T @ self.viewmat[:3, 3]

    def to(self, device: torch.device | str) -> View:
        image = None if self.image is None else self.image.to(device)
        return View(self.viewmat.to(device), self.K.to(device), self.width, self.height, image)

    def resized(self, width: int, height: int) -> View:
        """The same view at another size, without a picture; the intrinsics follow."""
        K = self.K * torch.tensor([[width / self.width], [height / self.height], [1.0]])
        return View(self.viewmat, K, width, height)

    def to_json(self) -> dict[str, object]:
        """As `splatview shot --camera` reads it."""
        return {"viewmat": self.viewmat.tolist(), "K": self.K.tolist(), "width": self.width, "height": self.height}


def fitted(width: int, height: int, pixels: int) -> tuple[int, int]:
    """The size of this shape with at most about `pixels` pixels; never larger than it is."""
    scale = min(1.0, math.sqrt(pixels / (width * height)))
    return max(1, round(width * scale)), max(1, round(height * scale))


@dataclass(frozen=True)
class Capture:
    """A scene as a camera and structure from motion leave it."""

    train: list[View]
    held_out: list[View]
    """Views that no gradient sees: quality is measured on these."""
    points: torch.Tensor
    """(N, 3) float32, world."""
    colors: torch.Tensor
    """(N, 3) float32 in [0, 1]."""
    camera: dict[str, object] | None = None
    """Where to look from, in the form that `splatview shot --camera` reads; None: the first training view."""
    notes: tuple[str, ...] = ()
    """What the user should know about how this was read."""

    @property
    def extent(self) -> float:
        """The scene's size in world units: how far the cameras are from their common middle, at most."""
        centres = torch.stack([view.position for view in self.train])
        return max(float((centres - centres.mean(0)).norm(dim=1).max()), 1e-3)


def look_at(position: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """World-to-camera matrix (4, 4) of an upright camera in a world whose y axis points down."""
    forward = functional.normalize(target - position, dim=0)
    right = functional.normalize(torch.linalg.cross(torch.tensor([0.0, 1.0, 0.0]), forward), dim=0)
    rotation = torch.stack([right, torch.linalg.cross(forward, right), forward])
    viewmat = torch.eye(4)
    viewmat[:3, :3] = rotation
    viewmat[:3, 3] = -rotation @ position
    return viewmat


def hold_out(views: list[View], every: int = 8) -> tuple[list[View], list[View]]:
    """(training, held-out) views: every eighth is kept back, as the field does; none when there are too few."""
    if len(views) < every:
        return views, []
    return [v for i, v in enumerate(views) if i % every], views[::every]
