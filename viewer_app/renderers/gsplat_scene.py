"""A scene on a GPU as gsplat takes it: activated, float32, in buffers that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from viewer_app.scene import Array, GaussianScene

SAMPLE = 1024
"""Gaussians whose centres are looked at to find the scene's middle."""
FAR = 64.0
"""A scene farther from the origin than this many times its own size is drawn relative to its middle."""


class DeviceGaussians:
    """N Gaussians on one GPU. Everything happens on the CUDA stream that is current, and nothing waits for it,
    except for the first scene or one from host memory.

    A Gaussian with a NaN or an infinity in any field, a scale beyond float32 or a quaternion of length zero gets
    opacity 0, which gsplat skips before it looks at anything else.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.sh_degree = 0
        """The degree in use."""
        self.origin = np.zeros(3)
        """float64: what was subtracted from the means, so that a scene far away keeps its detail."""
        self._buffers: dict[str, torch.Tensor] = {}
        self._n = 0
        self._skipped = 0
        self._middle = np.zeros(3)
        self._measuring, self._sampled = False, 0
        self._measured: torch.cuda.Event | None = None
        self._count = torch.zeros(1, dtype=torch.int64, pin_memory=True)
        self._points = torch.zeros((SAMPLE, 3), dtype=torch.float32, pin_memory=True)

    def __len__(self) -> int:
        return self._n

    @property
    def means(self) -> torch.Tensor:
        """(N, 3) float32 relative to `origin`; contiguous, as all of these."""
        return self._field("means", 3)

    @property
    def quats(self) -> torch.Tensor:
        """(N, 4) w, x, y, z; the largest component is 1 or -1."""
        return self._field("quats", 4)

    @property
    def scales(self) -> torch.Tensor:
        """(N, 3) standard deviations in world units."""
        return self._field("scales", 3)

    @property
    def opacities(self) -> torch.Tensor:
        """(N,) in [0, 1]; 0 for what cannot be drawn."""
        return self._field("opacities")

    @property
    def colors(self) -> torch.Tensor:
        """(N, K, 3) coefficients up to the degree in use."""
        return self._field("colors", (self.sh_degree + 1) ** 2, 3)

    @property
    def skipped(self) -> int:
        """How many cannot be drawn, as far as known: of the last load that the GPU has finished."""
        self._read_measures(wait=False)
        return self._skipped

    def load(self, scene: GaussianScene) -> None:
        """Activate into the buffers. The scene may lie here or in host memory."""
        self._read_measures(wait=False)
        first = self._n == 0 or not scene.on_gpu
        self._n = n = len(scene)
        if n == 0:
            self._skipped, self._measuring = 0, False
            return
        self.sh_degree = min(scene.sh_degree, scene.stored_sh_degree)
        k = (self.sh_degree + 1) ** 2
        for name, size in (("means", 3), ("quats", 4), ("scales", 3), ("opacities", 1)):
            self._room(name, n * size).view(n, size).copy_(_tensor(getattr(scene, name)).reshape(n, size))
        self._room("colors", n * k * 3)
        self.colors[:, 0].copy_(_tensor(scene.sh0).reshape(n, 3))
        if k > 1:
            self.colors[:, 1:].copy_(_tensor(scene.shN[:, : k - 1]))
        bad = self._activate(scene.activated)
        self._measure(bad)
        if first:
            self._read_measures(wait=True)
        self.origin = self._middle
        if self.origin.any():
            self._shift(self.origin)

    @property
    def rough(self) -> bool:
        """Whether the means turned out to lie far from `origin`, so that detail is lost; see `settle`."""
        self._read_measures(wait=False)
        return self._n > 0 and not np.array_equal(self.origin, self._middle)

    def settle(self) -> None:
        """Take the origin that the means call for, as far as that is known."""
        if self.rough:
            self._shift(self._middle - self.origin)
            self.origin = self._middle

    def _shift(self, by: np.ndarray) -> None:
        for axis, value in enumerate(by.tolist()):
            self.means[:, axis].sub_(value)

    def _activate(self, activated: bool) -> torch.Tensor:
        """In place. Returns which Gaussians cannot be drawn, (N,) bool."""
        means, quats, scales, opacities = self.means, self.quats, self.scales, self.opacities
        # The largest magnitude among all numbers of a Gaussian: NaN or infinite if one of them is.
        largest = _magnitude(means)
        for values in (scales, opacities[:, None], self.colors.view(self._n, -1)):
            torch.maximum(largest, _magnitude(values), out=largest)
        if not activated:
            scales.exp_()
            opacities.sigmoid_()
            torch.maximum(largest, _magnitude(scales), out=largest)
        # By the largest component first: the square of a tiny one would vanish. 0 / 0 is NaN.
        quats.div_(_magnitude(quats)[:, None])
        torch.maximum(largest, _magnitude(quats), out=largest)
        bad = torch.isfinite(largest).logical_not_()
        opacities.masked_fill_(bad, 0.0)
        return bad

    def _measure(self, bad: torch.Tensor) -> None:
        """Have the count of bad ones and a sample of the means copied to the host, some time; not while that is
        still going on for an earlier load."""
        if self._measuring:
            return
        sample = self.means[:: -(-self._n // SAMPLE)]
        self._sampled = len(sample)
        self._count.copy_(bad.sum().view(1), non_blocking=True)
        self._points[: self._sampled].copy_(sample.contiguous(), non_blocking=True)
        self._measured = self._measured or torch.cuda.Event()
        self._measured.record()
        self._measuring = True

    def _read_measures(self, wait: bool) -> None:
        if not self._measuring or self._measured is None:
            return
        if wait:
            self._measured.synchronize()
        elif not self._measured.query():
            return
        self._skipped, self._measuring = int(self._count[0]), False
        self._middle = _middle(self._points[: self._sampled].numpy())

    def _room(self, name: str, size: int) -> torch.Tensor:
        """A flat buffer of `size` numbers. It grows with some room to spare, as scenes in training do."""
        held = self._buffers.get(name)
        if held is None or not size <= held.numel() <= 4 * size:
            capacity = size if held is None or held.numel() > size else size + size // 4
            self._buffers.pop(name, None)
            del held  # before the new one is made
            held = torch.empty(capacity, dtype=torch.float32, device=self.device)
            self._buffers[name] = held
        return held[:size]

    def _field(self, name: str, *shape: int) -> torch.Tensor:
        size = self._n * int(np.prod(shape))
        if name not in self._buffers:
            return torch.empty((self._n, *shape), dtype=torch.float32, device=self.device)
        return self._buffers[name][:size].view(self._n, *shape)


def _tensor(array: Array) -> torch.Tensor:
    if isinstance(array, np.ndarray):  # torch wants memory that it could write
        return torch.from_numpy(np.require(array, np.float32, ["C", "W"]))
    return array.detach()


def _magnitude(values: torch.Tensor) -> torch.Tensor:
    """(N,) the largest absolute value of each row of (N, M); NaN where one is NaN."""
    return torch.linalg.vector_norm(values, float("inf"), dim=1)


def _middle(points: np.ndarray) -> np.ndarray:
    """A point near the scene's middle, as float64 that float32 can hold, if the scene lies far from the origin."""
    points = points[np.isfinite(points).all(axis=1)].astype(np.float64)
    if len(points) == 0:
        return np.zeros(3)
    middle = np.median(points, axis=0)
    size = float(np.median(np.abs(points - middle).max(axis=1)))
    far = np.abs(middle).max() > FAR * max(size, 1e-30)
    return middle.astype(np.float32).astype(np.float64) if far and len(points) > 1 else np.zeros(3)
