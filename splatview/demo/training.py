"""Optimise Gaussians: coloured points that learn to look like the views."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from gsplat.strategy import ops

from splatview.demo.rasterizer import SH_C0, Drawn, draw

if TYPE_CHECKING:
    from splatview.demo.views import Capture, DatasetView

_RATES = {
    "means": 1.2e-3,
    "scales": 1e-2,
    "quats": 4e-3,
    "opacities": 5e-2,
    "sh0": 1e-2,
    "shN": 1e-3,
}
"""Learning rates of gsplat's examples/simple_trainer.py, raised for a run of a thousand
steps instead of thirty thousand. That of the means is a multiple of the scene's extent,
and falls to a fiftieth."""
_SSIM_WEIGHT = 0.2
"""Weight of the structural part of the loss; the rest is the mean absolute
difference."""
_SH_FROM = 0.4
"""Share of the run after which colours may depend on the direction (SH degree 1)."""
_REFINE_UNTIL = 0.7
"""Share of the run after which their number stays."""
_GROWTH = 0.25
"""Most Gaussians added at once, as a share of those there: each one disturbs the
picture for some steps."""
_MIN_PULL = 2e-4
"""Mean length of the gradient by a Gaussian's position in the picture (of width and
height 2) that asks for more."""
_SMALL = 0.01
"""Gaussians up to this share of the scene's extent are cloned, larger ones split."""
_FAINT = 0.01
"""Opacity below which a Gaussian is removed."""
_EXACT_POINTS = 16_384
_INITIAL_OPACITY = 0.3
_DISTANCES_AT_ONCE = 1 << 24


class StepResult(NamedTuple):
    """The outcome of one gradient step."""

    loss: float
    psnr: float
    """PSNR in dB."""
    view_index: int
    """Index of the view that was drawn."""


class Training:
    """Trains Gaussians from a capture.

    `gaussians` is what a trainer would publish: a dictionary of parameters in the
    names, shapes and activations of gsplat's examples. torch's seed determines the
    result.
    """

    def __init__(
        self,
        capture: Capture,
        device: torch.device,
        steps: int,
        limit: int,
        refine_every: int = 100,
    ) -> None:
        """Make the first Gaussians.

        Args:
            capture: views and points.
            device: to train on.
            steps: gradient steps of the whole run.
            limit: most Gaussians.
            refine_every: steps between refinements, which add and remove Gaussians.
        """
        self.extent = capture.extent
        self.steps = steps
        self.limit = limit
        self.refine_every = refine_every
        self.views = [view.to(device) for view in capture.train]
        self.held_out = [view.to(device) for view in capture.held_out]
        self.gaussians = initial_gaussians(capture.points, capture.colors).to(device)
        self.optimizers: dict[str, torch.optim.Optimizer] = {
            name: torch.optim.Adam([parameter], lr=_RATES[name], eps=1e-15)
            for name, parameter in self.gaussians.items()
        }
        self.step_number = 0
        self._order: list[int] = []
        """Indices of the views that are still to be drawn in this round."""
        self._pull = torch.zeros(0)
        """(N,) sum of the lengths of the gradients by each Gaussian's position."""
        self._visible_steps = torch.zeros(0)
        """(N,) steps in which each Gaussian was visible."""

    @property
    def sh_degree(self) -> int:
        """The degree in use: colours become directional once the shapes are there."""
        return int(self.step_number >= _SH_FROM * self.steps)

    def step(self) -> StepResult:
        """Take one gradient step by one view, and refine when that is due."""
        if not self._order:
            self._order = torch.randperm(len(self.views)).tolist()
        view_index = self._order.pop()
        view = self.views[view_index]
        self.step_number += 1
        progress = min(self.step_number / self.steps, 1.0)
        rate = _RATES["means"] * self.extent * 0.02**progress
        self.optimizers["means"].param_groups[0]["lr"] = rate
        drawn = self.draw(view)
        difference = (drawn.image - view.image).abs().mean()
        dissimilarity = 1 - ssim(drawn.image, view.image)
        loss = (1 - _SSIM_WEIGHT) * difference + _SSIM_WEIGHT * dissimilarity
        loss.backward()
        may_refine = self.step_number <= _REFINE_UNTIL * self.steps
        if may_refine:
            self._add_up_pull(drawn, view)
        for optimizer in self.optimizers.values():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if may_refine and self.step_number % self.refine_every == 0:
            self._refine()
        return StepResult(
            loss=float(loss.detach()),
            psnr=psnr(drawn.image.detach(), view.image),
            view_index=view_index,
        )

    def draw(self, view: DatasetView) -> Drawn:
        """Draw the Gaussians as a view sees them."""
        return draw(self.gaussians, view, self.sh_degree)

    @torch.no_grad()
    def evaluate(self) -> float | None:
        """Return the mean PSNR over the held-out views, dB; None without any."""
        values = [psnr(self.draw(view).image, view.image) for view in self.held_out]
        return sum(values) / len(values) if values else None

    def _add_up_pull(self, drawn: Drawn, view: DatasetView) -> None:
        """Add up how far the picture pulls at each Gaussian."""
        if drawn.means2d.grad is None:
            return
        count = len(drawn.visible)
        if len(self._pull) != count:
            self._pull = drawn.means2d.new_zeros(count)
            self._visible_steps = drawn.means2d.new_zeros(count)
        half_size = self._pull.new_tensor([view.width / 2, view.height / 2])
        pull = drawn.means2d.grad.reshape(-1, 2) * half_size
        self._pull += torch.where(drawn.visible, pull.norm(dim=1), 0)
        self._visible_steps += drawn.visible

    @torch.no_grad()
    def _refine(self) -> None:
        """Add Gaussians where the picture still pulls, and remove the faint ones.

        The scheme of "3D Gaussian Splatting" (Kerbl et al. 2023, section 5.2) with the
        opacity correction of "Revising Densification in Gaussian Splatting" (Rota Bulo
        et al. 2024). A refinement replaces every parameter by one of another length and
        keeps Adam's moments of those that stay.
        """
        gaussians = self.gaussians
        is_faint = torch.sigmoid(gaussians["opacities"]) < _FAINT
        pull = (self._pull / self._visible_steps.clamp_min(1))[~is_faint]
        self._pull = self._pull[:0]
        ops.remove(gaussians, self.optimizers, {}, is_faint)
        count = len(pull)
        max_added = max(min(self.limit - count, int(_GROWTH * count)), 0)
        strongest = torch.argsort(pull, descending=True, stable=True)[:max_added]
        needs_more = torch.zeros(count, dtype=torch.bool, device=pull.device)
        needs_more[strongest[pull[strongest] > _MIN_PULL]] = True
        # Two of this opacity, one after the other, hide as much as the one did.
        opacities = torch.sigmoid(gaussians["opacities"][needs_more])
        halved = torch.logit(1 - torch.sqrt(1 - opacities), eps=1e-6)
        gaussians["opacities"][needs_more] = halved
        is_large = gaussians["scales"].exp().amax(1) > _SMALL * self.extent
        ops.duplicate(gaussians, self.optimizers, {}, needs_more & ~is_large)
        is_new = is_large.new_zeros(len(gaussians["means"]) - count)
        is_split = torch.cat([needs_more & is_large, is_new])
        ops.split(gaussians, self.optimizers, {}, is_split)


def initial_gaussians(
    points: torch.Tensor, colors: torch.Tensor
) -> torch.nn.ParameterDict:
    """Return one Gaussian per point, round and a third opaque.

    Each is as large as its distance to the nearest others.

    Args:
        points: (N, 3).
        colors: (N, 3), 0 to 1.
    """
    count = len(points)
    opacity = math.log(_INITIAL_OPACITY / (1 - _INITIAL_OPACITY))
    radii = nearest_distances(points.float()).clamp(1e-5) * 0.7
    values = {
        "means": points.float().clone(),
        "scales": torch.log(radii)[:, None].repeat(1, 3),
        "quats": torch.tensor([1.0, 0.0, 0.0, 0.0]).repeat(count, 1),
        "opacities": torch.full((count,), opacity),
        "sh0": ((colors.float() - 0.5) / SH_C0)[:, None, :],
        "shN": torch.zeros(count, 3, 3),
    }
    parameters = torch.nn.ParameterDict()
    for name, value in values.items():
        parameters[name] = torch.nn.Parameter(value.contiguous())
    return parameters


def nearest_distances(points: torch.Tensor, k: int = 3) -> torch.Tensor:
    """Return the distance from each point to its k nearest others, (N,).

    The root mean square of the k. Of many points the others are a random choice, and
    the distance is scaled to the density of all: on surfaces it falls with the square
    root of the number.
    """
    sample = points[torch.randperm(len(points))[:_EXACT_POINTS]]
    k = min(k, len(sample) - 1)
    chunks = []
    for chunk in points.split(max(1, _DISTANCES_AT_ONCE // len(sample))):
        distances = torch.cdist(
            chunk, sample, compute_mode="donot_use_mm_for_euclid_dist"
        )
        nearest = distances.topk(k + 1, largest=False).values
        # The first is the point itself, if it was chosen.
        is_itself = nearest[:, :1] < 1e-6
        nearest = torch.where(is_itself, nearest[:, 1:], nearest[:, :-1])
        chunks.append(nearest.square().mean(1).sqrt())
    return torch.cat(chunks) * math.sqrt(len(sample) / len(points))


def psnr(image: torch.Tensor, target: torch.Tensor) -> float:
    """Return the peak signal-to-noise ratio in dB of pictures in [0, 1].

    What exceeds the range is cut off first.
    """
    error = float((image.clamp(0, 1) - target).square().mean())
    return -10 * math.log10(max(error, 1e-10))


def ssim(image: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the mean structural similarity of two pictures (H, W, 3) in [0, 1].

    Wang et al. 2004: 11x11 Gaussian, sigma 1.5; zeros beyond the edge. The window
    slides as two products with banded matrices: on a CPU a tenth of what torch's
    convolution and its gradient cost.
    """
    a = image.permute(2, 0, 1)
    b = target.permute(2, 0, 1)
    maps = torch.cat([a, b, a * a, b * b, a * b])
    blurred = _sliding_window(a.shape[1], a) @ maps @ _sliding_window(a.shape[2], a)
    mean_a, mean_b, aa, bb, ab = blurred.split(3)
    c1 = 0.01**2
    c2 = 0.03**2
    covariance = ab - mean_a * mean_b
    variances = (aa - mean_a * mean_a) + (bb - mean_b * mean_b)
    numerator = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    denominator = (mean_a * mean_a + mean_b * mean_b + c1) * (variances + c2)
    return (numerator / denominator).mean()


def _sliding_window(size: int, like: torch.Tensor) -> torch.Tensor:
    """Return a symmetric matrix (size, size) whose rows are the window's weights.

    Row i has those about i, cut off at the ends.
    """
    indices = torch.arange(size, device=like.device)
    distance = (indices[:, None] - indices).abs()
    weights = torch.exp(-0.5 * (distance.to(like.dtype) / 1.5) ** 2) * (distance <= 5)
    offsets = torch.arange(-5, 6, dtype=torch.float64)
    return weights / float(torch.exp(-0.5 * (offsets / 1.5) ** 2).sum())
