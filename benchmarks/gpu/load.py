"""Keep a GPU busy: one photometric step of a Gaussian scene, over and over.

The same load as the peer's script has (1M Gaussians of SH degree 3, 1920x1080, an L1
loss that is read at every step, fused Adam), so that ratios can be held side by side.
The learning rate is so small that the scene, and with it the load, stays as it is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.gpu.scenes import SIZE, activated, ball, intrinsics, viewmat
from benchmarks.harness import percentile

if TYPE_CHECKING:
    from collections.abc import Callable

_CAMERAS = 64


class Training:
    """The training of a ball of Gaussians."""

    def __init__(
        self,
        n: int = 1_000_000,
        size: tuple[int, int] = SIZE,
        device: str = "cuda",
    ) -> None:
        """Make scene, cameras and target.

        Args:
            n: the number of Gaussians.
            size: width and height of the pictures.
            device: where all of it is.
        """
        self.scene = {
            name: torch.nn.Parameter(tensor) for name, tensor in ball(n, device).items()
        }
        self._optimizer = torch.optim.Adam(
            list(self.scene.values()), lr=1e-7, eps=1e-15, fused=True
        )
        self.size = size
        width, height = size
        self._target = torch.rand(height, width, 3, device=device)
        rng = np.random.default_rng(0)
        views = [
            viewmat(rng.uniform(0, 6.283), rng.uniform(-0.6, 0.9))
            for _ in range(_CAMERAS)
        ]
        self._views = torch.tensor(np.array(views), dtype=torch.float32, device=device)
        self._K = torch.tensor(
            intrinsics(width, height), dtype=torch.float32, device=device
        )
        self.steps = 0

    def draw(self, view: torch.Tensor, K: torch.Tensor) -> torch.Tensor:
        """Return the picture (H, W, 3) of a camera, with gradients."""
        from gsplat import rasterization

        picture, _, _ = rasterization(
            *activated(self.scene),
            view[None],
            K[None],
            *self.size,
            sh_degree=3,
            packed=False,
        )
        return picture[0]

    def step(self) -> None:
        """Do one step."""
        picture = self.draw(self._views[self.steps * 37 % _CAMERAS], self._K)
        loss = (picture - self._target).abs().mean()
        loss.backward()
        loss.item()  # trainers show it in a progress bar
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.steps += 1


@dataclass
class Pace:
    """The course of a while of training."""

    seconds: list[float] = field(default_factory=list)
    """The time that each step took."""

    @property
    def rate(self) -> float:
        """Steps per second, over the whole while: stalls count."""
        return len(self.seconds) / sum(self.seconds)

    @property
    def median_ms(self) -> float:
        return percentile(self.seconds, 0.5) * 1e3

    @property
    def worst_ms(self) -> float:
        return max(self.seconds) * 1e3


def train(
    training: Training,
    seconds: float,
    after_step: Callable[[int], object] | None = None,
) -> Pace:
    """Run the training for so long; `after_step(i)` belongs to the step."""
    pace = Pace()
    i = 0
    end = time.perf_counter() + seconds
    previous = time.perf_counter()
    while previous < end:
        training.step()
        if after_step is not None:
            after_step(i)
        i += 1
        now = time.perf_counter()
        pace.seconds.append(now - previous)
        previous = now
    return pace
