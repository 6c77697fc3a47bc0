"""The demo's training: it learns, its number of Gaussians changes, and the optimiser follows."""

import pytest
import torch

from splatview.demo import backends, scene
from splatview.demo.capture import Capture
from splatview.demo.density import DensityOptions
from splatview.demo.errors import DemoError
from splatview.demo.training import Training, TrainingOptions


@pytest.fixture(scope="module")
def capture():
    """The demo's own scene at the size of a stamp."""
    return scene.still_life(48, 36, n_points=400)


def short(steps=60, **density_options):
    options = {"every": 20, "start": 20, "stop": 50, "limit": 700, **density_options}
    return TrainingOptions(steps=steps, density=DensityOptions(**options))


def test_training_improves_held_out_views_and_changes_the_number_of_gaussians(capture):
    training = Training(capture, backends.choose("cpu"), short())
    before = training.evaluate()
    reports = [training.step() for _ in range(60)]
    counts = {r.count for r in reports}
    after = training.evaluate()
    assert before is not None and after is not None and after > before + 2.0
    assert len(counts) >= 2 and max(counts) <= 700
    assert training.sh_degree == 1 and training.gaussians["shN"].abs().max() > 0


def test_devices_that_cannot_be_had_are_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DemoError, match="torch finds no CUDA device"):
        backends.choose("cuda")
    with pytest.raises(DemoError, match="'tpu' is not 'auto', 'cpu' or 'cuda'"):
        backends.choose("tpu")
    assert backends.choose("auto").device.type == "cpu"


@pytest.mark.cuda
def test_gsplat_draws_and_trains_what_the_cpu_does(capture):
    cuda, cpu = backends.choose("cuda"), backends.choose("cpu")
    on_gpu = Capture(capture.train, capture.held_out, capture.points, capture.colors)
    here, there = (Training(on_gpu, backend, short()) for backend in (cpu, cuda))
    for view, moved in zip(here.views[:3], there.views[:3], strict=True):
        a, b = here.draw(view), there.draw(moved)
        torch.testing.assert_close(a.image, b.image.cpu(), atol=2e-3, rtol=0)
        torch.testing.assert_close(a.alpha, b.alpha.cpu(), atol=2e-3, rtol=0)
    before = there.evaluate()
    counts = {there.step().count for _ in range(60)}
    after = there.evaluate()
    assert before is not None and after is not None and after > before + 3.0 and len(counts) >= 2
