"""The demo's training: it learns, its number of Gaussians changes, and the optimiser follows."""

import pytest
import torch

from splatview.demo import backends, scene
from splatview.demo.capture import Capture
from splatview.demo.density import DensityControl, DensityOptions
from splatview.demo.errors import DemoError
from splatview.demo.training import Training, TrainingOptions, initial_gaussians


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


def prepared(n=40):
    """Gaussians with an optimiser that has moments, and a control that has seen pictures."""
    gaussians = initial_gaussians(torch.rand(n, 3, generator=torch.Generator().manual_seed(0)), torch.full((n, 3), 0.5))
    optimizer = torch.optim.Adam([{"params": [p], "lr": 0.0, "name": k} for k, p in gaussians.items()])
    for i, p in enumerate(gaussians.values()):
        p.grad = torch.arange(p.numel(), dtype=torch.float32).reshape(p.shape) + i + 1
    optimizer.step()
    control = DensityControl(DensityOptions(every=1, start=1, limit=1000, gradient=0.5, small=0.01), extent=1.0)
    control._pull, control._seen = torch.zeros(n), torch.ones(n)
    return gaussians, optimizer, control


def test_refinement_keeps_parameters_optimiser_and_dictionary_one(capture):
    gaussians, optimizer, control = prepared()
    with torch.no_grad():
        gaussians["opacities"][:5] = -9.0  # faint: go
        gaussians["scales"].fill_(-1.0)
        gaussians["scales"][10:13] = -6.0  # small: cloned
    control._pull[10:16] = 1.0
    old = {name: p.detach().clone() for name, p in gaussians.items()}
    moments = {g["name"]: optimizer.state[g["params"][0]]["exp_avg"].clone() for g in optimizer.param_groups}
    control.options = DensityOptions(every=1, start=1, limit=1000, gradient=0.5, small=0.01)
    assert control.refine(gaussians, optimizer, 1) == (6, 5)
    assert {len(p) for p in gaussians.values()} == {41}
    assert len(optimizer.state) == len(gaussians)
    for group in optimizer.param_groups:
        (parameter,) = group["params"]
        name = group["name"]
        assert parameter is gaussians[name] and parameter.requires_grad and parameter.is_leaf
        for key in ("exp_avg", "exp_avg_sq"):
            assert optimizer.state[parameter][key].shape == parameter.shape
        torch.testing.assert_close(optimizer.state[parameter]["exp_avg"][:35], moments[name][5:])
        assert not optimizer.state[parameter]["exp_avg"][35:].any()
    torch.testing.assert_close(gaussians["sh0"][35:], old["sh0"][10:16])
    torch.testing.assert_close(gaussians["means"][35:38], old["means"][10:13])  # clones stay
    assert (gaussians["means"][38:] != old["means"][13:16]).any(1).all()  # halves of split ones move
    torch.testing.assert_close(gaussians["scales"][38:], old["scales"][13:16] - 0.47)
    torch.testing.assert_close(gaussians["scales"][8:11], old["scales"][13:16] - 0.47)
    both = 1 - (1 - torch.sigmoid(gaussians["opacities"][35:])) * (1 - torch.sigmoid(gaussians["opacities"][5:11]))
    torch.testing.assert_close(both, torch.sigmoid(old["opacities"][10:16]))
    for p in gaussians.values():  # and the next step works
        p.grad = torch.ones_like(p)
    optimizer.step()


def test_no_refinement_between_before_and_after():
    gaussians, optimizer, control = prepared()
    control._pull[:] = 9.0
    control.options = DensityOptions(every=100, start=100, stop=1000)
    for step in (5, 205, 1100):
        assert control.refine(gaussians, optimizer, step) == (0, 0)
    assert len(gaussians["means"]) == 40


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
