"""Activation of Gaussians that lie on a GPU: one kernel (activate.cu), and the same said in torch."""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from splatview_viewer.render.base import SCALE_MAX, SH_MAX, LeftOut
from splatview_viewer.render.kernels.frame import blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from splatview_viewer.render.kernels.frame import Launcher

THREADS = 128
BLOCKS = 8192
"""At most: some ten times what a large GPU runs at once. Each takes what is next until nothing is left."""
SAMPLE = 1024
"""Gaussians whose centres are told."""
TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
"""What the kernel reads."""


@dataclass(frozen=True)
class Raw:
    """N Gaussians as a trainer has them: of any floating dtypes and strides, on one device."""

    means: torch.Tensor
    """(N, 3)"""
    quats: torch.Tensor
    """(N, 4) w, x, y, z"""
    scales: torch.Tensor
    """(N, 3) natural logarithms, or world units if `activated`"""
    opacities: torch.Tensor
    """(N,) logits, or values in [0, 1] if `activated`"""
    sh0: torch.Tensor
    """(N, 3)"""
    shN: torch.Tensor  # noqa: N815
    """(N, K-1 or more, 3)"""
    activated: bool


@dataclass(frozen=True)
class Active:
    """N Gaussians to draw from: contiguous, float32, on one device. May be the very memory of a `Raw`."""

    means: torch.Tensor
    """(N, 3) relative to an origin"""
    quats: torch.Tensor
    """(N, 4); the largest component is 1 or -1"""
    scales: torch.Tensor
    """(N, 3) in world units"""
    opacities: torch.Tensor
    """(N,) in [0, 1]; 0 for a Gaussian that cannot be drawn: one that is not finite (`LeftOut`), a scale
    over `SCALE_MAX` or a quaternion of length zero. gsplat looks at nothing else of it"""
    colors: torch.Tensor
    """(N, K, 3); K is 1, 4, 9, 16 or 25"""


class Told:
    """What the host learns of a load, some time after it: pinned memory, which the GPU writes."""

    def __init__(self, pin_memory: bool = True) -> None:
        self.numbers = torch.zeros(4, dtype=torch.int64, pin_memory=pin_memory)
        """How many Gaussians cannot be drawn, for each reason in the order of `LeftOut`; the version of the last load
        that is done."""
        self.points = torch.zeros((SAMPLE, 3), dtype=torch.float32, pin_memory=pin_memory)
        """Centres of Gaussians evenly spread over the arrays, before the origin is subtracted."""
        self._array = self.numbers.numpy()

    @property
    def left_out(self) -> LeftOut:
        return LeftOut(*self._array[:3].tolist())

    @property
    def skipped(self) -> int:
        return self.left_out.total

    @property
    def version(self) -> int:
        return int(self._array[3])

    def sample(self, n: int) -> torch.Tensor:
        """The points that come from N Gaussians."""
        return self.points[: blocks(n, step(n))]


def step(n: int) -> int:
    """Of how many Gaussians one is in the sample."""
    return max(blocks(n, SAMPLE), 1)


class _Array(ctypes.Structure):
    _fields_ = (("data", ctypes.c_uint64), ("strides", ctypes.c_int64 * 3), ("type", ctypes.c_int),
                ("unused", ctypes.c_int))

    @classmethod
    def of(cls, t: torch.Tensor) -> _Array:
        return cls(t.data_ptr(), (ctypes.c_int64 * 3)(*t.stride()), TYPES[t.dtype], 0)


_ARRAYS = "means", "quats", "scales", "opacities", "sh0", "shN"


class _Source(ctypes.Structure):
    _fields_ = (*((name, _Array) for name in _ARRAYS),
                ("origin", ctypes.c_float * 3), ("activated", ctypes.c_int))


def activate_with_torch(raw: Raw, out: Active, origin: np.ndarray, told: Told, version: int) -> None:
    """The reference: some thirty kernels. Nothing is waited for. For the arguments see `activate`."""
    terms = out.colors.shape[1]
    for to, values in ((out.means, raw.means), (out.quats, raw.quats), (out.scales, raw.scales),
                       (out.opacities, raw.opacities), (out.colors[:, 0], raw.sh0),
                       (out.colors[:, 1:], raw.shN[:, : terms - 1])):
        if to.data_ptr() != values.data_ptr():
            to.copy_(values)
    # The largest magnitude among all numbers of a Gaussian: NaN or infinite if one of them is, unless exp or sigmoid
    # make that a number.
    largest, scales, opacities = _magnitude(out.means), out.scales, out.opacities
    if not raw.activated:
        most = torch.finfo(torch.float32).max
        scales, opacities = scales.clamp_min(-most), opacities.clamp(-most, most)
    for values in (scales, opacities[:, None], out.colors.view(len(out.means), -1)):
        torch.maximum(largest, _magnitude(values), out=largest)
    # By the largest component first: the square of a tiny one would vanish. 0 / 0 is NaN.
    turn = _magnitude(out.quats)
    torch.maximum(largest, turn, out=largest)
    out.quats.div_(turn[:, None])
    if not raw.activated:
        out.scales.exp_()
        out.opacities.sigmoid_()
    out.opacities.clamp_(0.0, 1.0)
    out.colors.clamp_(-SH_MAX, SH_MAX)
    finite = torch.isfinite(largest)
    fits, turned = _magnitude(out.scales) <= SCALE_MAX, turn > 0
    out.opacities.masked_fill_((finite & fits & turned).logical_not_(), 0.0)
    reasons = (~finite).sum(), (finite & ~fits).sum(), (finite & fits & ~turned).sum()
    n = len(out.means)
    told.sample(n).copy_(out.means[:: step(n)].contiguous(), non_blocking=True)
    if raw.means.dtype == torch.float64:  # rounded after the subtraction
        for axis, value in enumerate(origin.tolist()):
            out.means[:, axis] = raw.means[:, axis] - value
    else:
        shift(out.means, -origin)
    told.numbers.copy_(torch.stack([*reasons, torch.full((), version, device=finite.device)]), non_blocking=True)


def activate(raw: Raw, out: Active, origin: np.ndarray, told: Told, version: int, counters: torch.Tensor,
             own: Launcher) -> None:
    """The same, in one kernel.

    Args:
        raw: where a dtype is none of `TYPES`, that tensor is converted first.
        out: may share memory with `raw`, each tensor with its own counterpart.
        origin: (3,), subtracted from the means.
        told: written when it is done.
        version: what it then says.
        counters: (4,) int32 on the device, zeros.
        own: the kernels of activate.cu.
    """
    Activation(told, counters, own)(raw, out, origin, version)


class Activation:
    """`activate` again and again. What the kernel is told stays as long as it is given the very same tensors, which
    still lie where they did; nothing here keeps them."""

    def __init__(self, told: Told, counters: torch.Tensor, own: Launcher) -> None:
        self._told = told
        self._counters = counters
        self._own = own
        self._source = _Source()
        self._version = ctypes.c_int64()
        self._origin: np.ndarray | None = None
        self._launch: Callable[[], None] | None = None
        self._same: list[Callable[[], object]] = []
        """Weak references to the tensors of the `Raw`, and to the `Active`, that `_launch` is for."""
        self._addresses: list[int] = []

    def __call__(self, raw: Raw, out: Active, origin: np.ndarray, version: int) -> None:
        fields = (raw.means, raw.quats, raw.scales, raw.opacities, raw.sh0, raw.shN)
        read, launch = fields, self._launch
        if launch is None or not self._is_for(fields, out):
            self._launch = None
            read = tuple(t if t.dtype in TYPES else t.float() for t in fields)
            launch = self._prepare(read, out)
            if all(a is b for a, b in zip(read, fields, strict=True)):  # what is converted has to be each time
                self._launch = launch
                self._same = [weakref.ref(t) for t in (*fields, out)]
                self._addresses = [t.data_ptr() for t in fields]
        if origin is not self._origin:
            self._source.origin[:] = origin.tolist()
            self._origin = origin
        self._source.activated = raw.activated
        self._version.value = version
        launch()
        del read  # not before

    def _is_for(self, fields: tuple[torch.Tensor, ...], out: Active) -> bool:
        """A tensor may be given other memory, but then at another address (`t.data = ...`)."""
        for known, address, now in zip(self._same, self._addresses, fields, strict=False):
            if known() is not now or now.data_ptr() != address:
                return False
        return self._same[-1]() is out

    def _prepare(self, fields: tuple[torch.Tensor, ...], out: Active) -> Callable[[], None]:
        n, terms = out.colors.shape[:2]
        means, quats, scales, opacities, sh0, shN = fields
        for name, t in zip(_ARRAYS, (means, quats, scales, opacities, sh0[:, None], shN), strict=True):
            setattr(self._source, name, _Array.of(t))
        return self._own.prepare(
            "activate", min(blocks(n, THREADS), BLOCKS), THREADS, ctypes.c_int(n), ctypes.c_int(terms), self._source,
            out.means, out.quats, out.scales, out.opacities, out.colors, self._counters, ctypes.c_int(step(n)),
            self._told.points, self._version, self._told.numbers)


def shift(means: torch.Tensor, by: np.ndarray) -> None:
    """Add to each coordinate, in place."""
    for axis, value in enumerate(by.tolist()):
        if value:
            means[:, axis].add_(value)


def _magnitude(values: torch.Tensor) -> torch.Tensor:
    """(N,) the largest absolute value of each row of (N, M); NaN where one is NaN."""
    return torch.linalg.vector_norm(values, float("inf"), dim=1)
