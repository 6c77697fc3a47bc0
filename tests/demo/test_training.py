"""The demo's training: it learns, its number of Gaussians changes, and the optimiser follows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from splatview.demo import datasets
from splatview.demo.datasets import View
from splatview.demo.rasterizer import choose_device, draw
from splatview.demo.training import Training

if TYPE_CHECKING:
    from pathlib import Path

    from splatview.demo.datasets import Capture

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def capture() -> Capture:
    """The demo's own scene, small."""
    return datasets.load(datasets.PHOTOS, pixels=48 * 36, max_points=400)


def short(capture: Capture, device: torch.device = CPU) -> Training:
    torch.manual_seed(0)
    return Training(capture, device, steps=60, limit=700, refine_every=20)


def test_the_packaged_photographs_are_those_of_the_script(capture: Capture, photos: Path) -> None:
    assert sum(path.stat().st_size for path in datasets.PHOTOS.iterdir()) < 1_000_000
    assert (len(capture.train), len(capture.held_out)) == (30, 5)
    made = datasets.load(photos, pixels=48 * 36, max_points=400)
    assert len(made.points) == len(capture.points) == 400
    for here, there in zip([capture.held_out[0], *capture.train[:2]], made.train, strict=True):
        assert (here.image - there.image).abs().mean() < 0.05
        torch.testing.assert_close(here.viewmat, there.viewmat)


def test_training_improves_held_out_views_and_changes_the_number_of_gaussians(capture: Capture) -> None:
    training = short(capture)
    before = training.evaluate()
    counts = set()
    for _ in range(60):
        training.step()
        counts.add(len(training.gaussians["means"]))
    after = training.evaluate()
    assert before is not None and after is not None and after > before + 2.0
    assert len(counts) >= 2 and max(counts) <= 700
    assert training.sh_degree == 1 and training.gaussians["shN"].abs().max() > 0


def test_the_same_seed_gives_the_same_training(capture: Capture) -> None:
    first, second = short(capture), short(capture)
    torch.manual_seed(1)
    losses = [first.step()[0] for _ in range(25)]
    torch.manual_seed(1)
    assert [second.step()[0] for _ in range(25)] == losses


@pytest.mark.cuda
def test_gsplat_draws_and_trains_what_the_cpu_does(capture: Capture) -> None:
    here, there = short(capture), short(capture, choose_device("cuda"))
    for view, moved in zip(here.views[:3], there.views[:3], strict=True):
        a, b = here.draw(view), there.draw(moved)
        torch.testing.assert_close(a.image, b.image.cpu(), atol=2e-3, rtol=0)
        torch.testing.assert_close(a.alpha, b.alpha.cpu(), atol=2e-3, rtol=0)
    before = there.evaluate()
    counts = set()
    for _ in range(60):
        there.step()
        counts.add(len(there.gaussians["means"]))
    after = there.evaluate()
    assert before is not None and after is not None and after > before + 3.0 and len(counts) >= 2


# -- the rasteriser against a reference that shares no code with it ----------------------------------------------------


WIDTH, HEIGHT = 21, 14  # neither is a multiple of the tile, so tiles reach over both edges


def make_view(width=WIDTH, height=HEIGHT, dtype=torch.float64):
    viewmat = torch.eye(4, dtype=dtype)
    angle = 0.3
    viewmat[:3, :3] = torch.tensor([[math.cos(angle), 0, math.sin(angle)], [0, 1, 0],
                                    [-math.sin(angle), 0, math.cos(angle)]])
    viewmat[:3, 3] = torch.tensor([0.1, -0.05, 3.0])
    K = torch.tensor([[width * 1.1, 0, width / 2 + 0.7], [0, width * 1.2, height / 2 - 0.4], [0, 0, 1]], dtype=dtype)
    return View(viewmat, K, width, height)


def make_gaussians(n, seed=0, dtype=torch.float64, spread=0.5, size=-2.3):
    g = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype)

    return {"means": normal(n, 3) * spread, "scales": normal(n, 3) * 0.4 + size, "quats": normal(n, 4),
            "opacities": normal(n) * 2, "sh0": normal(n, 1, 3), "shN": normal(n, 3, 3) * 0.3}


def naive(gaussians, view, sh_degree):
    """Image, alpha and depth (H, W, 5), by the rules of gsplat 1.5.3, one pixel and one Gaussian at a time."""
    g = {k: v.double().numpy() for k, v in gaussians.items()}
    viewmat, K = view.viewmat.double().numpy(), view.K.double().numpy()
    R, t = viewmat[:3, :3], viewmat[:3, 3]
    W, H = view.width, view.height
    splats = []
    for n in range(len(g["means"])):
        p = R @ g["means"][n] + t
        if p[2] <= 0.01:
            continue
        w, x, y, z = g["quats"][n] / np.linalg.norm(g["quats"][n])
        turn = np.array([[1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                         [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                         [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]])
        cov = R @ turn @ np.diag(np.exp(2 * g["scales"][n])) @ turn.T @ R.T
        tan_x, tan_y = 0.5 * W / K[0, 0], 0.5 * H / K[1, 1]
        tx = np.clip(p[0] / p[2], -(K[0, 2] / K[0, 0] + 0.3 * tan_x), (W - K[0, 2]) / K[0, 0] + 0.3 * tan_x) * p[2]
        ty = np.clip(p[1] / p[2], -(K[1, 2] / K[1, 1] + 0.3 * tan_y), (H - K[1, 2]) / K[1, 1] + 0.3 * tan_y) * p[2]
        J = np.array([[K[0, 0] / p[2], 0, -K[0, 0] * tx / p[2] ** 2], [0, K[1, 1] / p[2], -K[1, 1] * ty / p[2] ** 2]])
        conic = np.linalg.inv(J @ cov @ J.T + 0.3 * np.eye(2))
        rgb = 0.28209479177387814 * g["sh0"][n, 0] + 0.5
        if sh_degree:
            d = g["means"][n] + R.T @ t
            d /= np.linalg.norm(d)
            s = g["shN"][n]
            rgb = rgb + 0.4886025119029199 * (-d[1] * s[0] + d[2] * s[1] - d[0] * s[2])
        centre = (K @ p)[:2] / p[2]
        splats.append((p[2], centre, conic, 1 / (1 + math.exp(-g["opacities"][n])), np.maximum(rgb, 0)))
    splats.sort(key=lambda s: s[0])
    out = np.zeros((H, W, 5))
    for row in range(H):
        for column in range(W):
            T = 1.0
            for depth, centre, conic, opacity, rgb in splats:
                d = np.array([column + 0.5, row + 0.5]) - centre
                sigma = 0.5 * d @ conic @ d
                alpha = min(0.999, opacity * math.exp(-sigma))
                if sigma < 0 or alpha < 1 / 255:
                    continue
                if T * (1 - alpha) <= 1e-4:
                    break
                out[row, column] += alpha * T * np.array([*rgb, 1.0, depth])
                T *= 1 - alpha
    return out


def stacked(drawn):
    return torch.cat([drawn.image, drawn.alpha[..., None], drawn.depth[..., None]], -1).detach().numpy()


@pytest.mark.parametrize("sh_degree", [0, 1])
def test_picture_equals_the_per_pixel_reference(sh_degree):
    gaussians, view = make_gaussians(60), make_view()
    np.testing.assert_allclose(stacked(draw(gaussians, view, sh_degree)), naive(gaussians, view, sh_degree), atol=1e-9)


@pytest.mark.parametrize("opaque", [False, True])
def test_gradients_of_every_parameter_equal_finite_differences(opaque):
    gaussians, view = make_gaussians(12, seed=2, size=1.0 if opaque else -2.3), make_view(11, 9)
    gaussians["opacities"] += 12.0 * opaque  # also through the clamp and the early end

    def picture(*values):
        drawn = draw(dict(zip(gaussians, values, strict=True)), view, 1)
        return drawn.image, drawn.alpha

    assert torch.autograd.gradcheck(picture, [p.requires_grad_() for p in gaussians.values()], fast_mode=True)
