"""The demo's training: it learns, its number of Gaussians changes, and the optimiser follows."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from splatview.demo import backends, density, scene, stilllife
from splatview.demo.capture import Capture, View, fitted, hold_out, look_at
from splatview.demo.density import DensityControl, DensityOptions
from splatview.demo.errors import DemoError
from splatview.demo.training import Training, TrainingOptions, initial_gaussians, nearest_distances, psnr, ssim


@pytest.fixture(scope="module")
def capture():
    """The demo's own scene at the size of a stamp."""
    return scene.still_life(48, 36, n_points=400)


def short(steps=60, **density_options):
    options = {"every": 20, "start": 20, "stop": 50, "limit": 700, **density_options}
    return TrainingOptions(steps=steps, density=DensityOptions(**options))


@pytest.mark.exhaustive  # quick: the training example learns
def test_training_improves_held_out_views_and_changes_the_number_of_gaussians(capture):
    training = Training(capture, backends.choose("cpu"), short())
    before = training.evaluate()
    reports = [training.step() for _ in range(60)]
    counts = {r.count for r in reports}
    after = training.evaluate()
    assert before is not None and after is not None and after > before + 3.0
    assert len(counts) >= 2 and max(counts) <= 700
    assert training.sh_degree == 1 and training.gaussians["shN"].abs().max() > 0


@pytest.mark.exhaustive
def test_the_same_seed_trains_the_same(capture):
    losses = []
    for seed in (3, 3, 4):
        options = TrainingOptions(steps=25, seed=seed, density=DensityOptions(every=10, start=10, stop=20, limit=500))
        training = Training(capture, backends.choose("cpu"), options)
        losses.append([training.step().loss for _ in range(25)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert losses[0] != losses[2]


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


def test_the_limit_goes_to_those_that_are_pulled_most():
    gaussians, optimizer, control = prepared()
    control._pull[:] = torch.arange(40) + 1.0
    control.options = DensityOptions(every=1, start=1, limit=43, gradient=0.5, small=10)
    assert control.refine(gaussians, optimizer, 1) == (3, 0)
    torch.testing.assert_close(gaussians["means"][40:], gaussians["means"][[39, 38, 37]])
    control._pull, control._seen = torch.ones(2, 43)
    control.options = DensityOptions(every=1, start=1, limit=1000, gradient=0.5, small=10, growth=0.1)
    assert control.refine(gaussians, optimizer, 2) == (4, 0)


@pytest.mark.parametrize("step", [5, 205, 1100])
def test_no_refinement_between_before_and_after(step):
    gaussians, optimizer, control = prepared()
    control._pull[:] = 9.0
    control.options = DensityOptions(every=100, start=100, stop=1000)
    assert control.refine(gaussians, optimizer, step) == (0, 0)
    assert len(gaussians["means"]) == 40


def test_splits_follow_the_gaussians_orientation():
    """A needle along x, turned by 90 degrees about z, splits along y."""
    half = 0.5 ** 0.5
    quats = torch.tensor([[half, 0.0, 0.0, half]]) * 3
    torch.testing.assert_close(density._rotate(quats, torch.tensor([[1.0, 0.0, 0.0]])), torch.tensor([[0.0, 1.0, 0.0]]))


def test_ssim_equals_a_sliding_window():
    a, b = torch.rand(2, 20, 26, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    window = torch.exp(-0.5 * ((torch.arange(11, dtype=torch.float64) - 5) / 1.5) ** 2)
    kernel = torch.outer(window, window) / window.sum() ** 2

    def blur(x):
        return functional.conv2d(x.permute(2, 0, 1)[:, None], kernel[None, None], padding=5)[:, 0]

    ma, mb = blur(a), blur(b)
    va, vb, cov = blur(a * a) - ma * ma, blur(b * b) - mb * mb, blur(a * b) - ma * mb
    expected = ((2 * ma * mb + 1e-4) * (2 * cov + 9e-4) / ((ma * ma + mb * mb + 1e-4) * (va + vb + 9e-4))).mean()
    torch.testing.assert_close(ssim(a, b), expected)
    torch.testing.assert_close(ssim(a, a), torch.ones((), dtype=torch.float64))
    assert psnr(torch.full((4, 4, 3), 0.6), torch.full((4, 4, 3), 0.5)) == pytest.approx(20.0, abs=1e-4)


def test_nearest_distances_and_first_gaussians():
    points = torch.tensor([[0.0, 0, 0], [1, 0, 0], [3, 0, 0], [6, 0, 0]])
    torch.testing.assert_close(nearest_distances(points, 1), torch.tensor([1.0, 1.0, 2.0, 3.0]))
    gaussians = initial_gaussians(points, torch.tensor([[0.5, 0.25, 1.0]]).repeat(4, 1))
    assert {name: tuple(p.shape) for name, p in gaussians.items()} == {
        "means": (4, 3), "scales": (4, 3), "quats": (4, 4), "opacities": (4,), "sh0": (4, 1, 3), "shN": (4, 3, 3)}
    torch.testing.assert_close(gaussians["sh0"][0, 0] * 0.28209479 + 0.5, torch.tensor([0.5, 0.25, 1.0]))
    plane = torch.rand(4000, 3, generator=torch.Generator().manual_seed(2)) * torch.tensor([1.0, 1.0, 0.0])
    ratio = nearest_distances(plane, exact_up_to=1000).mean() / nearest_distances(plane).mean()
    assert float(ratio) == pytest.approx(1.0, abs=0.1)  # an estimate from a quarter of the points
    assert len(initial_gaussians(points[:1], torch.zeros(1, 3))["means"]) == 1


def test_the_scene_is_upright_centred_and_its_views_agree(capture):
    """World y points down; and the points, which come from one view each, lie on what the others show."""
    assert float(capture.points.norm(dim=1).max()) < 1.7
    assert all(float(view.position[1]) < 0 for view in capture.train)  # above the table
    table = capture.points[capture.points[:, 1] > 0.2]
    assert len(table) > 100 and float(table[:, 1].median()) == pytest.approx(scene.LIFT, abs=0.02)
    generator = torch.Generator().manual_seed(0)
    agreeing, by_chance = [], []
    for view in capture.held_out:
        p = capture.points @ view.viewmat[:3, :3].T + view.viewmat[:3, 3]
        pixel = (p[:, :2] / p[:, 2:] * view.K[[0, 1], [0, 1]] + view.K[:2, 2]).long()
        inside = (pixel >= 0).all(1) & (pixel[:, 0] < view.width) & (pixel[:, 1] < view.height)
        seen = view.image[pixel[inside, 1], pixel[inside, 0]]
        colors = capture.colors[inside]
        agreeing.append((seen - colors).abs().mean(1))
        by_chance.append((seen - colors[torch.randperm(len(colors), generator=generator)]).abs().mean(1))
    # Some are hidden, and a pixel of a stamp holds more than one square of the chessboard; yet most agree.
    assert float(torch.cat(agreeing).median()) < 0.6 * float(torch.cat(by_chance).median())


def test_distances_are_signed_and_never_too_long():
    """Sphere tracing needs a bound: no step may pass the surface. Checked along random rays against small steps."""
    generator = torch.Generator().manual_seed(0)
    p = (torch.rand(3, 300, generator=generator) - 0.5) * 2.4 * torch.tensor([[1.0], [0.4], [1.0]]) + 0.3
    d = functional.normalize(torch.randn(3, 300, generator=generator), dim=0)
    start = stilllife.distances(p).amin(0)
    outside = start > 0
    assert outside.any() and (~outside).any()
    share = torch.linspace(0, 0.95, 30)
    path = p[:, outside, None] + d[:, outside, None] * (start[outside, None] * share)
    assert (stilllife.distances(path.reshape(3, -1)) > -1e-3).all()


def test_look_at_and_sizes():
    viewmat = look_at(torch.tensor([0.0, -1.0, -3.0]), torch.zeros(3))
    x, y, z = (viewmat @ torch.tensor([0.0, -1.0, 0.0, 1.0]))[:3]
    assert float(x) == pytest.approx(0, abs=1e-6) and float(y) < 0 < float(z)  # what is above shows above
    assert fitted(400, 300, 30_000) == (200, 150)
    assert fitted(40, 30, 30_000) == (40, 30)
    K = torch.tensor([[50.0, 0, 20], [0, 52, 15], [0, 0, 1]])
    view = View(viewmat, K, 40, 30)
    torch.testing.assert_close(view.resized(20, 15).K, torch.tensor([[25.0, 0, 10], [0, 26, 7.5], [0, 0, 1]]))
    train, held_out = hold_out([view] * 17)
    assert (len(train), len(held_out)) == (14, 3)
    assert hold_out([view] * 5) == ([view] * 5, [])


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
