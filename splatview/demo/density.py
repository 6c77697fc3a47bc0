"""Density control: where the picture still pulls at Gaussians there should be more of them, and fewer where none show.

The scheme of "3D Gaussian Splatting" (Kerbl et al. 2023, section 5.2) with the opacity correction of "Revising
Densification in Gaussian Splatting" (Rota Bulo et al. 2024). A refinement replaces every parameter by one of another
length and keeps Adam's moments of those that stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from splatview.demo.capture import View
    from splatview.demo.rasterizer import Drawn


@dataclass(frozen=True)
class DensityOptions:
    every: int = 100
    """Steps between refinements."""
    start: int = 100
    """First step at which Gaussians may be added."""
    stop: int = 1_000
    """Step after which their number stays."""
    limit: int = 12_000
    """Most Gaussians."""
    growth: float = 0.25
    """Most that are added at once, as a share of those there: each one disturbs the picture for some steps."""
    gradient: float = 2e-4
    """Mean length of the gradient by a Gaussian's place in the picture (of width and height 2) that asks for more."""
    small: float = 0.01
    """Gaussians up to this share of the scene's extent are cloned, larger ones split."""
    faint: float = 0.01
    """Opacity below which a Gaussian is removed."""


class DensityControl:
    """Gathers what the pictures ask for, and adds and removes Gaussians by it."""

    def __init__(self, options: DensityOptions, extent: float, seed: int = 0):
        self.options = options
        self.extent = extent
        self._seed = seed
        self._pull = torch.zeros(0)
        self._seen = torch.zeros(0)

    def observe(self, drawn: Drawn, view: View) -> None:
        """Take note of a picture after its backward pass."""
        gradient = drawn.means2d.grad
        if gradient is None:
            return
        if len(self._pull) != len(drawn.visible):
            self._pull, self._seen = gradient.new_zeros(2, len(drawn.visible))
        gradient = gradient.reshape(-1, 2)  # gsplat counts cameras first
        pull = (gradient * gradient.new_tensor([view.width / 2, view.height / 2])).norm(dim=1)
        self._pull += torch.where(drawn.visible, pull, 0)
        self._seen += drawn.visible

    @torch.no_grad()
    def refine(self, gaussians: torch.nn.ParameterDict, optimizer: torch.optim.Optimizer, step: int) -> tuple[int, int]:
        """Change the number of Gaussians if `step` is due: (added, removed).

        The optimizer has one group per parameter, with its key as "name".
        """
        o = self.options
        n = len(gaussians["means"])
        if step % o.every or not o.start <= step <= o.stop or len(self._pull) != n:
            return 0, 0
        pull = self._pull / self._seen.clamp_min(1)
        self._pull = self._pull[:0]
        size = gaussians["scales"].exp().amax(1)
        opacity = torch.sigmoid(gaussians["opacities"])
        removed = opacity < o.faint
        pull = torch.where(removed, 0, pull)
        room = max(min(o.limit - n + int(removed.sum()), int(o.growth * n)), 0)
        wanted = torch.argsort(pull, descending=True, stable=True)[:room]
        wanted = wanted[pull[wanted] > o.gradient]
        # Two of this opacity, one behind the other, hide as much as the one did.
        shared = torch.logit(1 - torch.sqrt(1 - opacity[wanted]), eps=1e-6)
        gaussians["opacities"][wanted] = shared
        added = {name: p[wanted].clone() for name, p in gaussians.items()}
        split = size[wanted] > o.small * self.extent
        self._split(gaussians, added, wanted, split)
        keep = torch.nonzero(~removed)[:, 0]
        for group in optimizer.param_groups:
            _replace(gaussians, optimizer, group, keep, added[group["name"]])
        return len(wanted), int(removed.sum())

    def _split(self, gaussians: torch.nn.ParameterDict, added: dict[str, torch.Tensor], wanted: torch.Tensor,
               split: torch.Tensor) -> None:
        """Two smaller ones at places drawn from the one that was too large; a clone starts where the original is."""
        self._seed += 1
        generator = torch.Generator().manual_seed(self._seed)
        for values in (added, None):
            index = wanted[split]
            drawn = torch.randn(len(index), 3, generator=generator).to(index.device)
            offset = _rotate(gaussians["quats"][index], drawn * gaussians["scales"][index].exp())
            if values is None:
                gaussians["means"][index] += offset
                gaussians["scales"][index] -= 0.47  # log 1.6: the paper's factor
            else:
                values["means"][split] += offset
                values["scales"][split] -= 0.47


def _rotate(quats: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Vectors (n, 3) turned by wxyz quaternions (n, 4) of any length."""
    q = torch.nn.functional.normalize(quats, dim=1)
    w, axis = q[:, :1], q[:, 1:]
    t = 2 * torch.linalg.cross(axis, v)
    return v + w * t + torch.linalg.cross(axis, t)


def _replace(gaussians: torch.nn.ParameterDict, optimizer: torch.optim.Optimizer, group: dict, keep: torch.Tensor,
             added: torch.Tensor) -> None:
    """A parameter of another length in its dictionary, its group and the optimizer's state; new rows start at rest."""
    old = group["params"][0]
    new = torch.nn.Parameter(torch.cat([old[keep], added]))
    state = optimizer.state.pop(old, {})
    for key, value in state.items():
        if torch.is_tensor(value) and value.shape == old.shape:
            state[key] = torch.cat([value[keep], torch.zeros_like(added)])
    optimizer.state[new] = state
    group["params"][0] = new
    gaussians[group["name"]] = new
