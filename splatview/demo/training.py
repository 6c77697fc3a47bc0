"""The optimisation: Gaussians that start as coloured points and learn to look like the views."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from splatview.demo.density import DensityControl, DensityOptions
from splatview.demo.rasterizer import SH_C0

if TYPE_CHECKING:
    from splatview.demo.backends import Backend
    from splatview.demo.capture import Capture, View
    from splatview.demo.rasterizer import Drawn


@dataclass(frozen=True)
class TrainingOptions:
    """Learning rates are those of gsplat's examples/simple_trainer.py, raised for a run of a thousand steps instead of
    thirty thousand."""

    steps: int = 1_500
    seed: int = 0
    density: DensityOptions = field(default_factory=DensityOptions)
    ssim: float = 0.2
    """Weight of the structural part of the loss; the rest is the mean absolute difference."""
    sh_from: float = 0.4
    """Share of the run after which colours may depend on the direction (SH degree 1)."""
    means: float = 1.2e-3
    """Learning rate of places, times the scene's extent; falls to a fiftieth."""
    scales: float = 1e-2
    quats: float = 4e-3
    opacities: float = 5e-2
    sh0: float = 1e-2
    sh_rest: float = 1e-3


@dataclass(frozen=True)
class Report:
    """What one step did."""

    step: int
    """Counts from 1."""
    loss: float
    psnr: float
    """Of the view that was trained on, dB."""
    count: int
    """Gaussians after the step."""
    view: int
    """Which of the views was trained on."""


class Training:
    """Trains Gaussians from a capture. `gaussians` is what a trainer would publish: a dictionary of parameters in the
    names, shapes and activations of gsplat's examples."""

    def __init__(self, capture: Capture, backend: Backend, options: TrainingOptions):
        self.options, self.backend = options, backend
        device = backend.device
        self.views = [view.to(device) for view in capture.train]
        self.held_out = [view.to(device) for view in capture.held_out]
        self.gaussians = initial_gaussians(capture.points, capture.colors).to(device)
        extent = capture.extent
        rates = {"means": options.means * extent, "scales": options.scales, "quats": options.quats,
                 "opacities": options.opacities, "sh0": options.sh0, "shN": options.sh_rest}
        self.optimizer = torch.optim.Adam(
            [{"params": [p], "lr": rates[name], "name": name} for name, p in self.gaussians.items()], eps=1e-15)
        self.density = DensityControl(options.density, extent, options.seed)
        self.step_number = 0
        self._order: list[int] = []
        self._generator = torch.Generator().manual_seed(options.seed)
        self._means_rate = rates["means"]

    @property
    def sh_degree(self) -> int:
        """The degree in use: colours become directional once the shapes are there."""
        return int(self.step_number >= self.options.sh_from * self.options.steps)

    def step(self) -> Report:
        """One view, one gradient step, and a refinement when one is due."""
        if not self._order:
            self._order = torch.randperm(len(self.views), generator=self._generator).tolist()
        number = self._order.pop()
        view = self.views[number]
        assert view.image is not None
        self.step_number += 1
        progress = self.step_number / self.options.steps
        for group in self.optimizer.param_groups:
            if group["name"] == "means":
                group["lr"] = self._means_rate * 0.02 ** min(progress, 1.0)
        drawn = self.draw(view)
        difference = (drawn.image - view.image).abs().mean()
        loss = (1 - self.options.ssim) * difference + self.options.ssim * (1 - ssim(drawn.image, view.image))
        loss.backward()
        self.density.observe(drawn, view)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.density.refine(self.gaussians, self.optimizer, self.step_number)
        return Report(self.step_number, float(loss.detach()), psnr(drawn.image.detach(), view.image),
                      len(self.gaussians["means"]), number)

    def draw(self, view: View) -> Drawn:
        return self.backend.draw(self.gaussians, view, self.sh_degree)

    @torch.no_grad()
    def evaluate(self) -> float | None:
        """Mean PSNR over the held-out views, dB; None when there are none."""
        found = [psnr(self.draw(view).image, view.image) for view in self.held_out if view.image is not None]
        return sum(found) / len(found) if found else None


def initial_gaussians(points: torch.Tensor, colors: torch.Tensor) -> torch.nn.ParameterDict:
    """One Gaussian per point (N, 3): round, as large as its distance to the nearest others, a tenth opaque."""
    n = len(points)
    distances = nearest_distances(points).clamp(1e-5)
    values = {
        "means": points.float().clone(),
        "scales": torch.log(distances * 0.7)[:, None].repeat(1, 3),
        "quats": torch.tensor([1.0, 0.0, 0.0, 0.0]).repeat(n, 1),
        "opacities": torch.full((n,), math.log(0.3 / 0.7)),
        "sh0": ((colors.float() - 0.5) / SH_C0)[:, None, :],
        "shN": torch.zeros(n, 3, 3),
    }
    return torch.nn.ParameterDict({name: torch.nn.Parameter(v.contiguous()) for name, v in values.items()})


def nearest_distances(points: torch.Tensor, k: int = 3, exact_up_to: int = 16_384) -> torch.Tensor:
    """(N,) root mean square distance from each point to its k nearest others.

    Beyond `exact_up_to` points the others are a random choice of so many, and the distance is scaled to the density
    of all: on surfaces it falls with the square root of the number.
    """
    n = len(points)
    if n < 2:
        return torch.full((n,), 0.1)
    points = points.float()
    others, scale = points, 1.0
    if n > exact_up_to:
        others = points[torch.randperm(n, generator=torch.Generator().manual_seed(0))[:exact_up_to]]
        scale = math.sqrt(exact_up_to / n)
    k = min(k, n - 1)
    parts = []
    for part in points.split(max(1, (1 << 24) // len(others))):
        near = torch.cdist(part, others).topk(k + 1, largest=False).values
        itself = near[:, :1] < 1e-6 if n > exact_up_to else torch.ones_like(near[:, :1], dtype=torch.bool)
        parts.append(torch.where(itself, near[:, 1:], near[:, :-1]).square().mean(1).sqrt())
    return torch.cat(parts) * scale


def psnr(image: torch.Tensor, target: torch.Tensor) -> float:
    """Peak signal-to-noise ratio in dB of pictures in [0, 1]; what exceeds the range is cut off first."""
    error = float((image.clamp(0, 1) - target).square().mean())
    return -10 * math.log10(max(error, 1e-10))


def ssim(image: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean structural similarity of two pictures (H, W, 3) in [0, 1] (Wang et al. 2004: 11x11 Gaussian, sigma 1.5;
    zeros beyond the edge).

    The window slides as two products with banded matrices: on a CPU a tenth of what torch's convolution and its
    gradient cost.
    """
    a, b = image.permute(2, 0, 1), target.permute(2, 0, 1)
    maps = torch.cat([a, b, a * a, b * b, a * b])
    blurred = _sliding_window(a.shape[1], a) @ maps @ _sliding_window(a.shape[2], a)
    mean_a, mean_b, aa, bb, ab = blurred.split(3)
    c1, c2 = 0.01 ** 2, 0.03 ** 2
    covariance = ab - mean_a * mean_b
    numerator = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    spread = (aa - mean_a * mean_a) + (bb - mean_b * mean_b)
    return (numerator / ((mean_a * mean_a + mean_b * mean_b + c1) * (spread + c2))).mean()


def _sliding_window(n: int, like: torch.Tensor) -> torch.Tensor:
    """(n, n): row i holds the window's weights about i, cut off at the ends. Symmetric."""
    i = torch.arange(n, device=like.device)
    distance = (i[:, None] - i).abs()
    window = torch.exp(-0.5 * (distance.to(like.dtype) / 1.5) ** 2) * (distance <= 5)
    reach = torch.arange(-5, 6, dtype=torch.float64)
    return window / float(torch.exp(-0.5 * (reach / 1.5) ** 2).sum())
