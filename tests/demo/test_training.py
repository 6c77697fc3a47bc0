"""The demo's training: it learns, its number of Gaussians changes, and the optimiser
follows.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from support.reference import ReferenceRenderer

from splatview.demo import datasets
from splatview.demo.datasets import Capture, DatasetView
from splatview.demo.rasterizer import choose_device, draw
from splatview.demo.training import Training
from splatview_viewer.geometry.cameras import Camera
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.scene.scene import GaussianScene

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def capture() -> Capture:
    """The demo's own scene, small."""
    return datasets.load(datasets.PHOTOS, pixels=48 * 36, max_points=400)


def short(capture: Capture, device: torch.device = CPU) -> Training:
    torch.manual_seed(0)
    return Training(capture, device, steps=60, limit=700, refine_every=20)


def learns(training: Training) -> float:
    """By how many decibels it comes nearer to held-out views; its number of Gaussians
    changes within the limit.
    """
    first_psnr = training.evaluate()
    counts = set()
    for _ in range(60):
        training.step()
        counts.add(len(training.gaussians["means"]))
    last_psnr = training.evaluate()
    assert first_psnr is not None
    assert last_psnr is not None
    assert len(counts) >= 2
    assert max(counts) <= 700
    return last_psnr - first_psnr


def test_packaged_photographs_are_those_of_the_script(
    capture: Capture, photos: Path
) -> None:
    assert sum(path.stat().st_size for path in datasets.PHOTOS.iterdir()) < 1_000_000
    assert (len(capture.train), len(capture.held_out)) == (30, 5)
    remade = datasets.load(photos, pixels=48 * 36, max_points=400)
    assert len(remade.points) == len(capture.points) == 400
    for packaged, traced in zip(
        [capture.held_out[0], *capture.train[:2]], remade.train, strict=True
    ):
        assert (packaged.image - traced.image).abs().mean() < 0.05
        torch.testing.assert_close(packaged.viewmat, traced.viewmat)


def test_training_improves_held_out_views_and_changes_the_number_of_gaussians(
    capture: Capture,
) -> None:
    training = short(capture)
    assert learns(training) > 2.0
    assert training.sh_degree == 1
    assert training.gaussians["shN"].abs().max() > 0


def test_same_seed_gives_the_same_training(capture: Capture) -> None:
    first = short(capture)
    second = short(capture)
    torch.manual_seed(1)
    losses = [first.step()[0] for _ in range(25)]
    torch.manual_seed(1)
    assert [second.step()[0] for _ in range(25)] == losses


@pytest.mark.cuda
def test_gsplat_draws_and_trains_what_the_cpu_does(capture: Capture) -> None:
    on_cpu = short(capture)
    on_gpu = short(capture, choose_device("cuda"))
    for view, moved in zip(on_cpu.views[:3], on_gpu.views[:3], strict=True):
        a = on_cpu.draw(view)
        b = on_gpu.draw(moved)
        torch.testing.assert_close(a.image, b.image.cpu(), atol=2e-3, rtol=0)
        torch.testing.assert_close(a.alpha, b.alpha.cpu(), atol=2e-3, rtol=0)
    assert learns(on_gpu) > 3.0


@pytest.mark.parametrize("sh_degree", [0, 1])
def test_picture_equals_that_of_the_viewers_reference(sh_degree: int) -> None:
    # neither is a multiple of the tile, so tiles reach over both edges
    width = 21
    height = 14
    viewmat = torch.eye(4, dtype=torch.float64)
    c = math.cos(0.3)
    s = math.sin(0.3)
    viewmat[:3] = torch.tensor([[c, 0, s, 0.1], [0, 1, 0, -0.05], [-s, 0, c, 3.0]])
    K = torch.tensor(
        [
            [width * 1.1, 0, width / 2 + 0.7],
            [0, width * 1.2, height / 2 - 0.4],
            [0, 0, 1],
        ]
    ).double()
    random = torch.Generator().manual_seed(0)
    g = {
        name: torch.randn(60, *shape, generator=random) * scale + add
        for name, shape, scale, add in (
            ("means", (3,), 0.5, 0.0),
            ("scales", (3,), 0.4, -2.3),
            ("quats", (4,), 1.0, 0.0),
            ("opacities", (), 2.0, 0.0),
            ("sh0", (1, 3), 1.0, 0.0),
            ("shN", (3, 3), 0.3, 0.0),
        )
    }
    reference = ReferenceRenderer()
    reference.load(
        GaussianScene(
            g["means"],
            g["quats"],
            g["scales"],
            g["opacities"],
            g["sh0"][:, 0],
            g["shN"],
            sh_degree=sh_degree,
        )
    )
    pixels = reference.render(
        Camera(viewmat.numpy(), K.numpy(), width, height), RenderOptions()
    ).pixels()
    drawn = draw(
        {name: value.double() for name, value in g.items()},
        DatasetView(viewmat, K, width, height),
        sh_degree,
    )
    assert pixels.depth is not None
    for drawn_values, expected in (
        (drawn.image, pixels.color),
        (drawn.alpha, pixels.alpha),
        (drawn.depth, pixels.depth),
    ):
        np.testing.assert_allclose(drawn_values.detach().numpy(), expected, atol=1e-4)
