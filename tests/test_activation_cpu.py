"""The kernel that activates Gaussians, run on the CPU, against the same in torch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from on_cpu import OnCpu
from renderer_cases import Chance, random_scene

from viewer_app.renderers.kernels import activate as module
from viewer_app.renderers.kernels.activate import SAMPLE, Active, Raw, Told, activate, activate_with_torch, step
from viewer_app.scene import FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable

NOWHERE = np.zeros(3)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> OnCpu:
    return OnCpu(tmp_path_factory.mktemp("activate"), "activate.cu", {"activate": True})


def raw(n: int = 300, degree: int = 3, dtype: torch.dtype = torch.float32, activated: bool = False) -> Raw:
    scene = random_scene(n, Chance(n=n, sh_degree=degree))
    tensors = {name: torch.from_numpy(np.array(getattr(scene, name))).to(dtype) for name in FIELDS}
    if activated:
        tensors["scales"], tensors["opacities"] = tensors["scales"].exp(), tensors["opacities"].sigmoid()
    return Raw(**tensors, activated=activated)


def room(n: int, terms: int) -> Active:
    """Filled with what is easily seen."""
    return Active(*(torch.full((n, *shape), 77.0) for shape in ((3,), (4,), (3,), (), (terms, 3))))


def assert_same(own: OnCpu, r: Raw, terms: int, origin: np.ndarray = NOWHERE, out: Active | None = None) -> Active:
    """By both; returns what the kernel made."""
    n = len(r.means)
    expected, there, here = room(n, terms), Told(pin_memory=False), Told(pin_memory=False)
    activate_with_torch(r, expected, origin, there, 3)
    got, counters = out or room(n, terms), torch.zeros(2, dtype=torch.int32)
    activate(r, got, origin, here, 3, counters, own)
    good = expected.opacities != 0  # nobody looks at anything else of the others
    assert torch.equal(got.opacities != 0, good)
    for name in vars(got):
        a, b = getattr(got, name)[good], getattr(expected, name)[good]
        assert torch.allclose(a, b, rtol=3e-7, atol=0), f"{name}: {(a - b).abs().max()}"
    assert torch.equal(got.colors[good], expected.colors[good])
    assert here.skipped == there.skipped == (~good).sum() and here.version == there.version == 3
    assert torch.allclose(here.points, there.points, rtol=0, atol=0, equal_nan=True) and not counters.any()
    assert torch.equal(here.sample(n), r.means[::step(n)].float()) or r.means.isnan().any()
    return got


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("n", [1, 31, 32, 33, 300])
@pytest.mark.parametrize("activated", [False, True])
def test_every_size(own: OnCpu, n: int, degree: int, activated: bool) -> None:
    got = assert_same(own, raw(n, degree, activated=activated), (degree + 1) ** 2)
    assert (got.opacities > 0).all() and (got.scales > 0).all()
    assert torch.equal(got.quats.abs().amax(1), torch.ones(n))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn], ids=str)
def test_every_dtype(own: OnCpu, dtype: torch.dtype) -> None:
    assert_same(own, raw(dtype=dtype), 16)


def test_dtypes_together(own: OnCpu) -> None:
    assert_same(own, replace(raw(), shN=raw().shN.half(), means=raw().means.double(),
                             quats=raw().quats.bfloat16()), 16)


def test_numbers_of_half_precision_that_are_hard(own: OnCpu) -> None:
    r = raw(64, 0, torch.float16)
    r.sh0.view(-1)[:6] = torch.tensor([6e-8, -6e-5, 65504.0, -0.0, 1e-6, float("inf")])
    got = assert_same(own, r, 1)
    assert got.colors.view(-1)[0] > 0 and got.opacities[1] == 0


@pytest.mark.parametrize("used", [0, 1, 2])
def test_a_lower_degree_than_the_stored(own: OnCpu, used: int) -> None:
    """What is not used is not looked at."""
    r = raw(degree=3)
    r.shN[5, -1] = float("nan")
    assert (assert_same(own, r, (used + 1) ** 2).opacities > 0).all()


STRIDED: dict[str, Callable[[Raw], Raw]] = {
    "rows apart": lambda r: replace(r, means=r.means.repeat_interleave(2, 0)[::2],
                                    opacities=r.opacities.repeat_interleave(3)[::3]),
    "columns first": lambda r: replace(r, means=r.means.T.contiguous().T, quats=r.quats.T.contiguous().T,
                                       sh0=r.sh0.T.contiguous().T),
    "channels first": lambda r: replace(r, shN=r.shN.mT.contiguous().mT),
    "one tensor of all coefficients": lambda r: replace(r, sh0=(c := torch.cat([r.sh0[:, None], r.shN], 1))[:, 0],
                                                        shN=c[:, 1:]),
    "one tensor of everything": lambda r: replace(
        r, means=(t := torch.cat([r.means, r.quats, r.scales, r.opacities[:, None]], 1))[:, :3], quats=t[:, 3:7],
        scales=t[:, 7:10], opacities=t[:, 10]),
    "all the same": lambda r: replace(r, means=r.means[:1].expand(300, 3), shN=r.shN[:1].expand(300, 15, 3)),
}


@pytest.mark.parametrize("name", STRIDED)
def test_strides(own: OnCpu, name: str) -> None:
    changed = STRIDED[name](raw())
    assert_same(own, changed, 16)


def test_relative_to_an_origin(own: OnCpu) -> None:
    r = raw()
    origin = np.array([1e5, -3.0, 0.0])
    got = assert_same(own, replace(r, means=r.means + torch.tensor([1e5, 0, 0])), 16, origin)
    assert got.means.abs().max() < 20


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_bad_numbers(own: OnCpu, bad: float) -> None:
    r = raw(500)
    for i, name in enumerate(FIELDS):
        getattr(r, name)[40 * i].view(-1)[-1] = bad
    r.quats[300] = 0
    r.scales[301, 1] = 200.0
    r.quats[302] = torch.tensor([1e-42, 0, 0, 1e-42])
    r.shN[33] = bad  # the second warp
    got = assert_same(own, r, 16)
    assert (got.opacities == 0).nonzero().flatten().tolist() == [0, 33, 40, 80, 120, 160, 200, 300, 301]


def test_more_gaussians_than_threads(own: OnCpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCKS", 2)
    monkeypatch.setattr(module, "SAMPLE", 100)
    r = raw(1003, 1)
    r.means[::7] = float("nan")
    got = assert_same(own, r, 4)
    assert (got.opacities == 0).sum() == 144


@pytest.mark.parametrize("n", [1, 1023, 1024, 1025, 2048, 2049, 1_000_000])
def test_a_sample_is_spread_over_all(n: int) -> None:
    count = len(Told(pin_memory=False).sample(n))
    assert min(n, SAMPLE // 2) <= count <= SAMPLE and (count - 1) * step(n) < n <= count * step(n)


def test_in_place(own: OnCpu) -> None:
    """As with a scene from host memory, which is copied to where it will stay."""
    r, out = raw(), room(300, 16)
    for to, values in ((out.means, r.means), (out.quats, r.quats), (out.scales, r.scales), (out.opacities, r.opacities),
                       (out.colors[:, 0], r.sh0), (out.colors[:, 1:], r.shN)):
        to.copy_(values)
    apart = assert_same(own, r, 16)
    inside = Raw(out.means, out.quats, out.scales, out.opacities, out.colors[:, 0], out.colors[:, 1:], False)
    activate(inside, out, NOWHERE, told := Told(pin_memory=False), 1, torch.zeros(2, dtype=torch.int32), own)
    assert all(torch.equal(getattr(out, name), getattr(apart, name)) for name in vars(out))
    assert told.skipped == 0
