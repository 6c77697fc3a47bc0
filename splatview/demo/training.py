"""The optimisation: Gaussians that start as coloured points and learn to look like the views."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from gsplat.strategy import ops

from splatview.demo.rasterizer import SH_C0, Drawn, draw

if TYPE_CHECKING:
    from splatview.demo.datasets import Capture, DatasetView

_RATES = {
    "means": 1.2e-3,
    "scales": 1e-2,
    "quats": 4e-3,
    "opacities": 5e-2,
    "sh0": 1e-2,
    "shN": 1e-3,
}
"""Learning rates of gsplat's examples/simple_trainer.py, raised for a run of a thousand steps instead of thirty
thousand. That of the means is a multiple of the scene's extent, and falls to a fiftieth."""
_SSIM = 0.2
"""Weight of the structural part of the loss; the rest is the mean absolute difference."""
_SH_FROM = 0.4
"""Share of the run after which colours may depend on the direction (SH degree 1)."""
_REFINE_UNTIL = 0.7
"""Share of the run after which their number stays."""
_GROWTH = 0.25
"""Most Gaussians added at once, as a share of those there: each one disturbs the picture for some steps."""
_PULL = 2e-4
"""Mean length of the gradient by a Gaussian's place in the picture (of width and height 2) that asks for more."""
_SMALL = 0.01
"""Gaussians up to this share of the scene's extent are cloned, larger ones split."""
_FAINT = 0.01
"""Opacity below which a Gaussian is removed."""
_EXACT_POINTS = 16_384


class Training:
    """Trains Gaussians from a capture. `gaussians` is what a trainer would publish: a dictionary of parameters in the
    names, shapes and activations of gsplat's examples. torch's seed determines the result.

    Args:
        steps: gradient steps of the whole run.
        limit: most Gaussians.
        refine_every: steps between refinements, which add and remove Gaussians.
    """

    def __init__(
        self,
        capture: Capture,
        device: torch.device,
        steps: int,
        limit: int,
        refine_every: int = 100,
    ) -> None:
        self.extent = capture.extent
        self.steps = steps
        self.limit = limit
        self.refine_every = refine_every
        self.views = [view.to(device) for view in capture.train]
        self.held_out = [view.to(device) for view in capture.held_out]
        self.gaussians = initial_gaussians(capture.points, capture.colors).to(device)
        self.optimizers: dict[str, torch.optim.Optimizer] = {
            name: torch.optim.Adam([p], lr=_RATES[name], eps=1e-15)
            for name, p in self.gaussians.items()
        }
        self.step_number = 0
        self._order: list[int] = []
        self._pull = self._seen = torch.zeros(0)

    @property
    def sh_degree(self) -> int:
        """The degree in use: colours become directional once the shapes are there."""
        return int(self.step_number >= _SH_FROM * self.steps)

    def step(self) -> tuple[float, float, int]:
        """One view, one gradient step, and a refinement when one is due: (loss, PSNR, index of the view)."""
        self._order = self._order or torch.randperm(len(self.views)).tolist()
        number = self._order.pop()
        view = self.views[number]
        self.step_number += 1
        progress = min(self.step_number / self.steps, 1.0)
        self.optimizers["means"].param_groups[0]["lr"] = (
            _RATES["means"] * self.extent * 0.02**progress
        )
        drawn = self.draw(view)
        difference = (drawn.image - view.image).abs().mean()
        loss = (1 - _SSIM) * difference + _SSIM * (1 - ssim(drawn.image, view.image))
        loss.backward()
        refines = self.step_number <= _REFINE_UNTIL * self.steps
        if (
            refines and drawn.means2d.grad is not None
        ):  # add up how far the picture pulls at each Gaussian
            if len(self._pull) != len(drawn.visible):
                self._pull, self._seen = drawn.means2d.new_zeros(2, len(drawn.visible))
            pull = drawn.means2d.grad.reshape(-1, 2) * self._pull.new_tensor(
                [view.width / 2, view.height / 2]
            )
            self._pull += torch.where(drawn.visible, pull.norm(dim=1), 0)
            self._seen += drawn.visible
        for optimizer in self.optimizers.values():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if refines and self.step_number % self.refine_every == 0:
            self._refine()
        return float(loss.detach()), psnr(drawn.image.detach(), view.image), number

    def draw(self, view: DatasetView) -> Drawn:
        return draw(self.gaussians, view, self.sh_degree)

    @torch.no_grad()
    def evaluate(self) -> float | None:
        """Mean PSNR over the held-out views, dB; None when there are none."""
        found = [psnr(self.draw(view).image, view.image) for view in self.held_out]
        return sum(found) / len(found) if found else None

    @torch.no_grad()
    def _refine(self) -> None:
        """Add Gaussians where the picture still pulls, and remove those that do not show.

        The scheme of "3D Gaussian Splatting" (Kerbl et al. 2023, section 5.2) with the opacity correction of "Revising
        Densification in Gaussian Splatting" (Rota Bulo et al. 2024). A refinement replaces every parameter by one of
        another length and keeps Adam's moments of those that stay.
        """
        g = self.gaussians
        faint = torch.sigmoid(g["opacities"]) < _FAINT
        pull = (self._pull / self._seen.clamp_min(1))[~faint]
        self._pull = self._pull[:0]
        ops.remove(g, self.optimizers, {}, faint)
        n = len(pull)
        strongest = torch.argsort(pull, descending=True, stable=True)
        strongest = strongest[: max(min(self.limit - n, int(_GROWTH * n)), 0)]
        wanted = torch.zeros(n, dtype=torch.bool, device=pull.device)
        wanted[strongest[pull[strongest] > _PULL]] = True
        # Two of this opacity, one behind the other, hide as much as the one did.
        g["opacities"][wanted] = torch.logit(
            1 - torch.sqrt(1 - torch.sigmoid(g["opacities"][wanted])), eps=1e-6
        )
        large = g["scales"].exp().amax(1) > _SMALL * self.extent
        ops.duplicate(g, self.optimizers, {}, wanted & ~large)
        added = large.new_zeros(len(g["means"]) - n)
        ops.split(g, self.optimizers, {}, torch.cat([wanted & large, added]))


def initial_gaussians(
    points: torch.Tensor, colors: torch.Tensor
) -> torch.nn.ParameterDict:
    """One Gaussian per point (N, 3): round, as large as its distance to the nearest others, a third opaque."""
    n = len(points)
    values = {
        "means": points.float().clone(),
        "scales": torch.log(nearest_distances(points.float()).clamp(1e-5) * 0.7)[
            :, None
        ].repeat(1, 3),
        "quats": torch.tensor([1.0, 0.0, 0.0, 0.0]).repeat(n, 1),
        "opacities": torch.full((n,), math.log(0.3 / 0.7)),
        "sh0": ((colors.float() - 0.5) / SH_C0)[:, None, :],
        "shN": torch.zeros(n, 3, 3),
    }
    return torch.nn.ParameterDict(
        {name: torch.nn.Parameter(v.contiguous()) for name, v in values.items()}
    )


def nearest_distances(points: torch.Tensor, k: int = 3) -> torch.Tensor:
    """(N,) root mean square distance from each point to its k nearest others.

    Of many points the others are a random choice, and the distance is scaled to the density of all: on surfaces it
    falls with the square root of the number.
    """
    others = points[torch.randperm(len(points))[:_EXACT_POINTS]]
    k = min(k, len(others) - 1)
    parts = []
    for part in points.split(max(1, (1 << 24) // len(others))):
        distances = torch.cdist(
            part, others, compute_mode="donot_use_mm_for_euclid_dist"
        )
        near = distances.topk(
            k + 1, largest=False
        ).values  # the first is the point itself, if it was chosen
        parts.append(
            torch.where(near[:, :1] < 1e-6, near[:, 1:], near[:, :-1])
            .square()
            .mean(1)
            .sqrt()
        )
    return torch.cat(parts) * math.sqrt(len(others) / len(points))


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
    a = image.permute(2, 0, 1)
    b = target.permute(2, 0, 1)
    maps = torch.cat([a, b, a * a, b * b, a * b])
    blurred = _sliding_window(a.shape[1], a) @ maps @ _sliding_window(a.shape[2], a)
    mean_a, mean_b, aa, bb, ab = blurred.split(3)
    c1 = 0.01**2
    c2 = 0.03**2
    covariance = ab - mean_a * mean_b
    numerator = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    spread = (aa - mean_a * mean_a) + (bb - mean_b * mean_b)
    return (
        numerator / ((mean_a * mean_a + mean_b * mean_b + c1) * (spread + c2))
    ).mean()


def _sliding_window(n: int, like: torch.Tensor) -> torch.Tensor:
    """(n, n): row i holds the window's weights about i, cut off at the ends. Symmetric."""
    i = torch.arange(n, device=like.device)
    distance = (i[:, None] - i).abs()
    window = torch.exp(-0.5 * (distance.to(like.dtype) / 1.5) ** 2) * (distance <= 5)
    reach = torch.arange(-5, 6, dtype=torch.float64)
    return window / float(torch.exp(-0.5 * (reach / 1.5) ** 2).sum())
