"""The kernel that activates Gaussians, run on the CPU, against the same in torch."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.on_cpu import OnCpu
from support.renderer_cases import Chance, random_scene

from splatview.viewer_app.renderers.kernels import activate as module
from splatview.viewer_app.renderers.kernels.activate import (
    SAMPLE,
    Activation,
    Active,
    Raw,
    Told,
    activate,
    activate_with_torch,
    step,
)
from splatview.viewer_app.scene import FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable

NOWHERE = np.zeros(3)


@pytest.fixture(scope="module")
def own() -> OnCpu:
    return OnCpu("activate.cu", {"activate": True})


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
    got, counters = out or room(n, terms), torch.zeros(4, dtype=torch.int32)
    activate(r, got, origin, here, 3, counters, own)
    good = expected.opacities != 0  # nobody looks at anything else of the others
    assert torch.equal(got.opacities != 0, good)
    for name in vars(got):
        a, b = getattr(got, name)[good], getattr(expected, name)[good]
        assert torch.allclose(a, b, rtol=3e-7, atol=0), f"{name}: {(a - b).abs().max()}"
    assert torch.equal(got.colors[good], expected.colors[good])
    assert here.left_out == there.left_out and here.skipped == (~good).sum() and here.version == there.version == 3
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
    activate(inside, out, NOWHERE, told := Told(pin_memory=False), 1, torch.zeros(4, dtype=torch.int32), own)
    assert all(torch.equal(getattr(out, name), getattr(apart, name)) for name in vars(out))
    assert told.skipped == 0


class Again:
    """One `Activation` for a row of loads, each of which must be what a new one makes of it."""

    def __init__(self, own: OnCpu) -> None:
        self.own = own
        self.prepared = 0
        self.version = 0
        self.told = Told(pin_memory=False)
        self.counters = torch.zeros(4, dtype=torch.int32)
        self.activation = Activation(self.told, self.counters, self)

    def prepare(self, name: str, grid: int, block: int, *args: Any) -> Callable[[], None]:
        self.prepared += 1
        return self.own.prepare(name, grid, block, *args)

    def launch(self, name: str, grid: int, block: int, *args: Any) -> None:
        raise AssertionError("launched without being prepared")

    def __call__(self, r: Raw, out: Active, origin: np.ndarray = NOWHERE) -> bool:
        """Whether it was prepared anew."""
        before, self.version = self.prepared, self.version + 1
        for t in vars(out).values():
            t.fill_(77.0)
        self.activation(r, out, origin, self.version)
        n, terms = out.colors.shape[:2]
        expected, told = room(n, terms), Told(pin_memory=False)
        activate(r, expected, origin, told, self.version, torch.zeros(4, dtype=torch.int32), self.own)
        for name in vars(out):
            assert torch.equal(getattr(out, name), getattr(expected, name)), name
        assert (self.told.version, self.told.skipped) == (self.version, told.skipped) and not self.counters.any()
        assert torch.equal(self.told.sample(n), told.sample(n))
        return self.prepared > before


def test_the_same_tensors_again_are_told_once(own: OnCpu) -> None:
    again, r, out = Again(own), raw(), room(300, 16)
    assert again(r, out)
    for step_ in range(3):
        r.means.add_(0.5)
        r.opacities[step_] = float("nan")
        assert not again(replace(r), out), "a version in place writes into what is there"
    assert not again(replace(r, activated=True), out)
    assert not again(r, out, np.array([1.0, -2.0, 3.0]))
    assert not again(r, out)


CHANGED: dict[str, Callable[[Raw], Raw]] = {
    "other memory": lambda r: replace(r, scales=r.scales - 1),
    "the same memory, read otherwise": lambda r: replace(r, quats=r.quats.view(4, 300).T),
    "another tensor over the same memory": lambda r: replace(r, shN=r.shN.view_as(r.shN)),
    "another dtype": lambda r: replace(r, sh0=r.sh0.half()),
    "a dtype that is converted": lambda r: replace(r, sh0=r.sh0.to(torch.float8_e5m2)),
}


@pytest.mark.parametrize("name", CHANGED)
def test_other_tensors_are_told_anew(own: OnCpu, name: str) -> None:
    again, r, out = Again(own), raw(), room(300, 16)
    changed = CHANGED[name](r)
    again(r, out)
    assert again(changed, out)
    assert again(r, out), "and back"
    assert not again(r, out)
    again(changed, out)
    changed.sh0.copy_(changed.sh0.float() + 0.5)
    again(changed, out)


def test_a_tensor_that_was_given_other_memory(own: OnCpu) -> None:
    again, r, out = Again(own), raw(), room(300, 16)
    again(r, out)
    r.means.data = r.means + 1
    assert again(r, out)
    assert not again(r, out)


def test_other_buffers_and_sizes_and_back(own: OnCpu) -> None:
    again, large, small = Again(own), raw(300), raw(120)
    buffers = {300: room(300, 16), 120: room(120, 16)}
    for r in (large, small, large):
        assert again(r, buffers[len(r.means)])
    assert again(large, room(300, 4)), "a lower degree"
    assert again(large, room(300, 16)), "other buffers, which may lie where some were"
    assert again(large, Active(*vars(buffers[300]).values())), "the caller says by the object that nothing moved"


def test_what_is_known_again_is_not_kept(own: OnCpu) -> None:
    again, r, out = Again(own), raw(), room(300, 16)
    again(r, out)
    left = [weakref.ref(t) for t in (*(getattr(r, name) for name in FIELDS), out)]
    del r, out
    assert [one() for one in left] == [None] * 7
    assert again(raw(), room(300, 16))
