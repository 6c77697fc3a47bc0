"""A scene on a GPU as gsplat takes it: activated, float32, in buffers that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.activation import medians
from splatview_viewer.render.base import LeftOut
from splatview_viewer.render.kernels.activate import Activation, Active, Raw, Told, activate_with_torch, shift, step
from splatview_viewer.render.kernels.compiler import kernels
from splatview_viewer.scene.scene import FIELDS, as_floats

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.scene.scene import GaussianScene

FAR = 64.0
"""A scene farther from the origin than this many times its own size is drawn relative to its middle."""


class DeviceGaussians:
    """N Gaussians on one GPU. Everything happens on the CUDA stream that is current, and nothing waits for it,
    except for the first scene.

    A Gaussian with a NaN or an infinity in any field, a scale over `SCALE_MAX` or a quaternion of length zero gets
    opacity 0, which gsplat skips before it looks at anything else.
    """

    def __init__(self, device: torch.device, *, plain: bool = False) -> None:
        """`plain`: activate with torch instead of the viewer's own kernel."""
        self.device = device
        self.sh_degree = 0
        """The degree in use."""
        self.origin = self._middle = np.zeros(3)  # never changed in place
        """float64: what was subtracted from the means, so that a scene far away keeps its detail."""
        self.note = ""
        """Why loading is slower than it could be; "" where it is not."""
        self._buffers: dict[str, torch.Tensor] = {}
        self._active: Active | None = None
        self._active_for = 0, 0
        """The number of Gaussians and the degree that there is room for, and that `_active` shows."""
        self._n = 0
        self._loads = 0
        self._told, self._heard = Told(), 0
        self._activation: Activation | None = None
        if not plain:
            try:
                own = kernels("activate.cu", device=device.index or 0)
                self._activation = Activation(self._told, torch.zeros(4, dtype=torch.int32, device=device), own)
            except (RendererError, RuntimeError) as e:
                self.note = f"activation with torch: {' '.join(str(e).split())[:160]}"

    def __len__(self) -> int:
        return self._n

    @property
    def active(self) -> Active:
        """All of the following. The same object as long as they lie in the same places."""
        if self._active is not None and self._active_for == (self._n, self.sh_degree):
            return self._active
        return self._views()

    @property
    def means(self) -> torch.Tensor:
        """(N, 3) float32 relative to `origin`; contiguous, as all of these."""
        return self.active.means

    @property
    def quats(self) -> torch.Tensor:
        """(N, 4) w, x, y, z; the largest component is 1 or -1."""
        return self.active.quats

    @property
    def scales(self) -> torch.Tensor:
        """(N, 3) standard deviations in world units."""
        return self.active.scales

    @property
    def opacities(self) -> torch.Tensor:
        """(N,) in [0, 1]; 0 for what cannot be drawn."""
        return self.active.opacities

    @property
    def colors(self) -> torch.Tensor:
        """(N, K, 3) coefficients up to the degree in use."""
        return self.active.colors

    @property
    def left_out(self) -> LeftOut:
        """What cannot be drawn, as far as known: of the last load that the GPU has finished."""
        return self._told.left_out if self._n else LeftOut()

    @property
    def skipped(self) -> int:
        """How many these are."""
        return self.left_out.total

    def load(self, scene: GaussianScene, begin: Callable[[], object] = lambda: None) -> None:
        """Activate into the buffers. The scene may lie here or in host memory. `begin` is called when everything that
        has to be awaited has been, before the GPU is given work."""
        self._listen()
        before, self._n = self._n, len(scene)
        if self._n == 0:
            return
        self._loads += 1
        self.sh_degree = min(scene.sh_degree, scene.stored_sh_degree)
        if not scene.on_gpu or before == 0:  # otherwise it is where it was, for a moment at least
            self._middle = _middle(as_floats(scene.means[:: step(self._n)]).cpu().numpy())
        begin()
        out = self._room_for_all()
        if self._activation is None:
            activate_with_torch(self._raw(scene, out), out, self._middle, self._told, self._loads)
        else:
            self._activation(self._raw(scene, out), out, self._middle, self._loads)
        self.origin = self._middle

    @property
    def rough(self) -> bool:
        """Whether the means turned out to lie far from `origin`, so that detail is lost; see `settle`."""
        self._listen()
        return self._n > 0 and self.origin is not self._middle

    def settle(self) -> None:
        """Take the origin that the means call for, as far as that is known."""
        if self.rough:
            shift(self.means, self.origin - self._middle)
            self.origin = self._middle

    def _listen(self) -> None:
        """What the last load told, if it is done."""
        if self._heard != self._told.version == self._loads and self._n:
            self._heard = self._loads
            middle = _middle(self._told.sample(self._n).numpy())
            if not np.array_equal(middle, self._middle):  # the same object says that nothing is rough
                self._middle = middle

    def _room_for_all(self) -> Active:
        """The buffers, with room for the scene. Each grows with some to spare, as scenes in training do."""
        wanted = self._n, self.sh_degree
        if self._active is None or self._active_for != wanted:
            self._active = None  # also if there is too little memory, and for what is going to be replaced
            k = (self.sh_degree + 1) ** 2
            for name, size in (("means", 3), ("quats", 4), ("scales", 3), ("opacities", 1), ("colors", 3 * k)):
                self._room(name, self._n * size)
            self._active, self._active_for = self._views(), wanted
        return self._active

    def _views(self) -> Active:
        k = (self.sh_degree + 1) ** 2
        return Active(self._field("means", 3), self._field("quats", 4), self._field("scales", 3),
                      self._field("opacities"), self._field("colors", k, 3))

    def _raw(self, scene: GaussianScene, to: Active) -> Raw:
        """Where it lies if it is here; what is not is copied to where it will stay."""
        if scene.on_gpu:
            tensors = {name: getattr(scene, name) for name in FIELDS}
            if self._activation is None:  # the kernel looks at the memory alone, and knows these tensors again
                tensors = {name: t.detach() for name, t in tensors.items()}
            if tensors["opacities"].ndim > 1:
                tensors["opacities"] = tensors["opacities"].reshape(self._n)
            return Raw(**tensors, activated=scene.activated)
        rest = (self.sh_degree + 1) ** 2 - 1
        wide = scene.means.dtype == torch.float64
        means = scene.means.to(self.device) if wide else to.means
        raw = Raw(means, to.quats, to.scales, to.opacities, to.colors[:, 0], to.colors[:, 1:], scene.activated)
        for name in ("quats", "scales", "opacities", "sh0") if wide else FIELDS[:-1]:
            values: torch.Tensor = getattr(raw, name)
            values.copy_(getattr(scene, name).reshape(values.shape))
        if rest:
            raw.shN.copy_(scene.shN[:, :rest])
        return raw

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


def _middle(points: np.ndarray) -> np.ndarray:
    """A point near the scene's middle, as float64 that float32 can hold, if the scene lies far from the origin."""
    finite = np.isfinite(points)
    if not finite.all():
        points = points[finite.all(axis=1)]
    if len(points) < 2:
        return np.zeros(3)
    axes = points.T.astype(np.float64, order="C")
    middle = medians(axes)
    size = float(medians(np.abs(axes - middle[:, None]).max(axis=0)))
    far = np.abs(middle).max() > FAR * max(size, 1e-30)
    return middle.astype(np.float32).astype(np.float64) if far else np.zeros(3)
