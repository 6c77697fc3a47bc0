"""A Gaussian scene on the viewer's side, wherever it came from: a stream or a file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from splatview_ipc.kinds.gaussians import SH_REST

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    Array: TypeAlias = np.ndarray | torch.Tensor
    """float32 or float64 in memory, or a CUDA tensor of any floating dtype and any strides."""

SH_C0 = 0.28209479177387814
"""The constant spherical harmonic Y00: RGB = SH_C0 * sh0 + 0.5 (3D Gaussian Splatting, Kerbl et al. 2023)."""
FIELDS = "means", "quats", "scales", "opacities", "sh0", "shN"
"""The arrays of a `GaussianScene`."""
UPS: dict[str, tuple[float, float, float]] = {
    "-y": (0, -1, 0), "+y": (0, 1, 0), "+z": (0, 0, 1), "-z": (0, 0, -1), "+x": (1, 0, 0), "-x": (-1, 0, 0),
}
"""Directions upward by name."""


@dataclass(frozen=True, eq=False)
class GaussianScene:
    """N Gaussians in world space, in OpenCV axes (x right, y down, z forward), as trainers hold them.

    The arrays are all of one sort: NumPy arrays of float32, `means` also float64, or torch tensors on one CUDA device.
    They may be views of shared memory that is rewritten later: copy what must stay.
    """

    means: Array
    """(N, 3) centres in world units. Far from the origin (georeferenced scenes) only float64 holds them; renderers
    subtract the scene's middle before they use float32."""
    quats: Array
    """(N, 4) rotations as quaternions w, x, y, z; not normalised."""
    scales: Array
    """(N, 3) standard deviations along the rotated axes: natural logarithms, or world units if `activated`."""
    opacities: Array
    """(N,) logits, or values in [0, 1] if `activated`."""
    sh0: Array
    """(N, 3) coefficients of degree 0, RGB."""
    shN: Array  # noqa: N815  (gsplat's own name for the field)
    """(N, K-1, 3) coefficients of degrees 1 to 4 (K-1 is one of `SH_REST`), RGB."""
    activated: bool = False
    """Whether `scales` and `opacities` already went through exp and sigmoid."""
    sh_degree: int = 3
    """The degree in use, which a trainer raises as it goes; at most what `shN` holds."""
    antialiased: bool = False
    """Whether the scene was trained with the antialiased (mip) mode."""
    version: int = 0
    """Counts updates of the stream; 0 for a file."""
    notes: tuple[str, ...] = field(default=())
    """What a reader wants said about this scene, one line each."""
    background: tuple[float, float, float] | None = None
    """The colour that comes with it, RGB in [0, 1]."""
    up: tuple[float, float, float] | None = None
    """The direction upward, of length 1, where a file names it."""
    shards: tuple[tuple[int, int], ...] = ()
    """Of a scene of which each process of a training publishes a part, in order: its rank and its number of Gaussians;
    () for others."""

    def __len__(self) -> int:
        return len(self.means)

    @property
    def stored_sh_degree(self) -> int:
        """The highest degree for which `shN` holds coefficients."""
        return SH_REST.index(self.shN.shape[1])

    @property
    def on_gpu(self) -> bool:
        """Whether the arrays are CUDA tensors."""
        return not isinstance(self.means, np.ndarray)

    @property
    def gpu(self) -> torch.device | None:
        """The CUDA device of the arrays; None where they lie in host memory."""
        return None if isinstance(self.means, np.ndarray) else self.means.device

    def to_host(self, ready: Callable[[int], None] | None = None) -> GaussianScene:
        """This scene as NumPy arrays: itself where it is one already, otherwise a copy.

        What the CUDA stream that copies is given after `ready(stream)`, with its raw handle, finds the data there.
        """
        if not self.on_gpu:
            return self
        self._wait(ready)
        return replace(self, **{name: _host(getattr(self, name)) for name in FIELDS})

    def sample(self, limit: int, ready: Callable[[int], None] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Centres (M, 3) and opacities in [0, 1] (M,) of M <= `limit` Gaussians evenly spread over the
        arrays: enough to frame the scene. From a GPU only these are copied. `ready`: see `to_host`.
        """
        step = max(-(-len(self) // max(limit, 1)), 1)
        self._wait(ready)
        means, opacities = _host(self.means[::step]), _host(self.opacities[::step])
        if not self.activated:
            with np.errstate(over="ignore", invalid="ignore"):
                opacities = 1 / (1 + np.exp(-opacities))
        return means, opacities

    def _wait(self, ready: Callable[[int], None] | None) -> None:
        if ready is not None and self.gpu is not None:
            import torch

            ready(torch.cuda.current_stream(self.gpu).cuda_stream)


def sh0_of_rgb(rgb: np.ndarray) -> np.ndarray:
    """Return the coefficients of degree 0 of colours in [0, 1]."""
    return (rgb - np.float32(0.5)) / np.float32(SH_C0)


NOTHING = GaussianScene(*(np.zeros((0, *shape), np.float32) for shape in ((3,), (4,), (3,), (), (3,), (0, 3))),
                        activated=True, sh_degree=0)
"""A scene without Gaussians."""


def as_floats(tensor: Any) -> torch.Tensor:
    """Return a tensor's values as float64 where they are that, else as float32."""
    tensor = tensor.detach()
    return tensor if tensor.dtype.itemsize == 8 else tensor.float()


def _host(array: Array) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else as_floats(array).cpu().numpy()
