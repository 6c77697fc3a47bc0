"""A Gaussian scene on the viewer's side, from a stream or a file.

It consists of torch tensors, on the CPU or on a GPU.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.kinds.gaussians import SH_REST_COUNTS, Activated, parse_activated
from splatview_viewer.core.arithmetic import ceil_div

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

SH_C0 = 0.28209479177387814
"""The constant spherical harmonic Y00: RGB = SH_C0 * sh0 + 0.5 (3D Gaussian Splatting,
Kerbl et al. 2023)."""
FIELDS = "means", "quats", "scales", "opacities", "sh0", "shN"
"""The tensors of a `GaussianScene`, in the order of its fields."""
UPS: dict[str, tuple[float, float, float]] = {
    "-y": (0, -1, 0),
    "+y": (0, 1, 0),
    "+z": (0, 0, 1),
    "-z": (0, 0, -1),
    "+x": (1, 0, 0),
    "-x": (-1, 0, 0),
}
"""Directions upward by name."""
_CHUNK = 1 << 16
_CHUNK_GPU = 1 << 21
"""Gaussians in one piece of `GaussianScene.chunks`: on a CPU what is computed from them
stays in the cache."""


@dataclass(frozen=True, eq=False)
class GaussianScene:
    """N Gaussians in world space, as trainers hold them.

    World axes are OpenCV's (x right, y down, z forward). The tensors are all on the CPU,
    of float32, `means` also float64, or all on one CUDA device, of any floating dtype and
    any strides. They may be views of shared memory that is rewritten later: copy what
    must stay.
    """

    means: torch.Tensor
    """(N, 3) centres in world units. Far from the origin (georeferenced scenes) only
    float64 holds them; renderers subtract the scene's middle before they use float32."""
    quats: torch.Tensor
    """(N, 4) rotations as quaternions w, x, y, z; not normalised."""
    scales: torch.Tensor
    """(N, 3) standard deviations along the rotated axes: natural logarithms, or world
    units if `activated`. Of flat Gaussians the third one is 0, as a logarithm minus
    infinity."""
    opacities: torch.Tensor
    """(N,) logits, or values in [0, 1] if `activated`."""
    sh0: torch.Tensor
    """(N, 3) coefficients of degree 0, RGB."""
    shN: torch.Tensor  # noqa: N815  (gsplat's own name for the field)
    """(N, K-1, 3) coefficients of degrees 1 to 4 (K-1 is one of `SH_REST_COUNTS`), RGB."""
    _: KW_ONLY
    activated: bool | tuple[bool, bool] = False
    """True if `scales` and `opacities` already went through exp and sigmoid; a pair where
    one of them alone did."""
    sh_degree: int = 3
    """The degree in use, which a trainer raises as it goes; at most what `shN` holds."""
    antialiased: bool = False
    """True if the scene was trained with the antialiased (mip) mode."""
    version: int = 0
    """Counts updates of the stream; 0 for a file."""
    notes: tuple[str, ...] = field(default=())
    """Notes of the reader about this scene, one line each."""
    background: tuple[float, float, float] | None = None
    """The colour that comes with it, RGB in [0, 1]."""
    up: tuple[float, float, float] | None = None
    """The direction upward, of length 1, where a file names it."""
    customary_ups: tuple[tuple[float, float, float], ...] = ()
    """Directions upward, of length 1, of most files of its format, the most usual first;
    none where there is no custom."""

    @classmethod
    def of_arrays(
        cls,
        means: np.ndarray,
        quats: np.ndarray,
        scales: np.ndarray,
        opacities: np.ndarray,
        sh0: np.ndarray,
        shN: np.ndarray,
        **options: Any,
    ) -> GaussianScene:
        """Wrap NumPy arrays that may be written, without a copy.

        options: the other fields.
        """
        import torch

        arrays = (means, quats, scales, opacities, sh0, shN)
        return cls(*map(torch.from_numpy, arrays), **options)

    def __len__(self) -> int:
        return len(self.means)

    def __getitem__(self, rows: slice | torch.Tensor) -> GaussianScene:
        """Return some of the Gaussians; views of the same memory for a slice."""
        tensors = {name: getattr(self, name)[rows] for name in FIELDS}
        return replace(self, **tensors)

    def chunks(self) -> Iterator[tuple[int, GaussianScene]]:
        """Yield pieces in order, at least one, each with the index of its first Gaussian."""
        size = _CHUNK
        if self.on_gpu:
            size = _CHUNK_GPU
        for start in range(0, max(len(self), 1), size):
            yield start, self[start : start + size]

    @property
    def activation(self) -> Activated:
        """The meaning of `activated` for scales and for opacities."""
        return parse_activated(self.activated)

    @property
    def stored_sh_degree(self) -> int:
        """The highest degree for which `shN` holds coefficients."""
        return SH_REST_COUNTS.index(self.shN.shape[1])

    @property
    def on_gpu(self) -> bool:
        """True if the tensors are on a CUDA device."""
        return self.means.is_cuda

    @property
    def gpu(self) -> torch.device | None:
        """The CUDA device of the tensors; None on the CPU."""
        if not self.on_gpu:
            return None
        return self.means.device

    def to_host(self, ready: Callable[[int], None] | None = None) -> GaussianScene:
        """Return the scene on the CPU, float32, `means` also float64.

        Its own tensors where they are that. Work given to the CUDA stream that copies
        after `ready(stream)`, with its raw handle, finds the data there.
        """
        self.wait(ready)
        tensors = {name: as_floats(getattr(self, name)).cpu() for name in FIELDS}
        return replace(self, **tensors)

    def sample(self, limit: int) -> list[torch.Tensor]:
        """Return centres (M, 3) and opacities in [0, 1] (M,) of M <= `limit` Gaussians.

        They are evenly spread over the scene, on its device: enough to frame it.
        """
        step = max(ceil_div(len(self), max(limit, 1)), 1)
        means = as_floats(self.means[::step])
        opacities = as_floats(self.opacities[::step])
        if not self.activation.opacities:
            opacities = opacities.sigmoid()
        return [means, opacities]

    def wait(self, ready: Callable[[int], None] | None) -> None:
        """Have torch's current stream wait for the data, as `to_host`."""
        if ready is not None and self.on_gpu:
            import torch

            ready(torch.cuda.current_stream(self.gpu).cuda_stream)


class SceneCopy:
    """Copies values that are computed of a scene to arrays in host memory.

    A scene on a GPU is read at once, on torch's current stream, without waiting: it may be
    overwritten there afterwards. A scene on the CPU is read by `arrays`, in the calling
    thread, and has to stay as it is until then.
    """

    def __init__(
        self, scene: GaussianScene, compute: Callable[[], Sequence[torch.Tensor]]
    ) -> None:
        import torch

        self._compute = compute
        self._event: torch.cuda.Event | None = None
        if not scene.on_gpu:
            return
        with torch.no_grad(), torch.cuda.device(scene.gpu):
            # The copies lie in pinned memory.
            copies = [t.to("cpu", non_blocking=True) for t in compute()]
            self._event = torch.cuda.Event(blocking=True)
            self._event.record()
        self._compute = lambda: copies

    @property
    def done(self) -> bool:
        """True if `arrays` does not wait for a GPU."""
        return self._event is None or self._event.query()

    def arrays(self) -> list[np.ndarray]:
        """Return the values; waits for the GPU. They may be views of a scene on the CPU."""
        import torch

        if self._event is not None:
            self._event.synchronize()
        with torch.no_grad():
            return [t.numpy() for t in self._compute()]


def sh0_of_rgb(rgb: np.ndarray) -> np.ndarray:
    """Return the coefficients of degree 0 of colours in [0, 1]."""
    return (rgb - np.float32(0.5)) / np.float32(SH_C0)


@cache
def empty_scene() -> GaussianScene:
    """Return a scene without Gaussians."""
    arrays = []
    for row_shape in row_shapes(coefficients=0).values():
        arrays.append(np.zeros((0, *row_shape), np.float32))
    return GaussianScene.of_arrays(*arrays, activated=True, sh_degree=0)


def row_shapes(coefficients: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of one Gaussian's row in each tensor, by its name.

    Args:
        coefficients: of degrees 1 and more.
    """
    shapes = (3,), (4,), (3,), (), (3,), (coefficients, 3)
    return dict(zip(FIELDS, shapes, strict=True))


def as_floats(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's values as float64 where they are that, else as float32."""
    tensor = tensor.detach()
    if tensor.dtype.itemsize == 8:
        return tensor
    return tensor.float()


def merged(
    scenes: Sequence[GaussianScene],
    smooth: Sequence[bool],
    device: torch.device | str = "cpu",
) -> GaussianScene:
    """Return one scene of all Gaussians, one scene's after the other's.

    Its tensors are its own. A scene's degree of spherical harmonics that is not in use is
    not shown here either. The result is antialiased if all scenes are; a note says so if
    only some are.

    Args:
        scenes: at least one.
        smooth: for each scene, whether it is antialiased (renderers do not tell).
        device: where the result lies; on a GPU, torch's current stream is used.
    """
    import torch

    degree = max(min(s.sh_degree, s.stored_sh_degree) for s in scenes)
    with torch.no_grad():
        rows = [_activated_tensors(scene, degree) for scene in scenes]
        joined = []
        for column in zip(*rows, strict=True):
            moved = [tensor.to(device) for tensor in column]
            joined.append(torch.cat(moved))
    notes: tuple[str, ...] = ()
    if any(smooth) and not all(smooth):
        notes = ("not all were trained antialiased: drawn without",)
    return GaussianScene(
        *joined, activated=True, sh_degree=degree, antialiased=all(smooth), notes=notes
    )


def _activated_tensors(scene: GaussianScene, degree: int) -> list[torch.Tensor]:
    """Return the activated tensors of a scene, with coefficients up to `degree`."""
    import torch

    means = as_floats(scene.means)
    quats = as_floats(scene.quats)
    scales = as_floats(scene.scales)
    opacities = as_floats(scene.opacities).reshape(len(scene))
    sh0 = as_floats(scene.sh0)
    harmonics = as_floats(scene.shN)
    if not scene.activation.scales:
        scales = scales.exp()
    if not scene.activation.opacities:
        opacities = opacities.sigmoid()
    used_degree = min(scene.sh_degree, scene.stored_sh_degree)
    used_count = (used_degree + 1) ** 2 - 1
    full_count = (degree + 1) ** 2 - 1
    missing_count = max(full_count - used_count, 0)
    padding = harmonics.new_zeros(len(scene), missing_count, 3)
    harmonics = torch.cat([harmonics[:, :used_count], padding], 1)
    return [means, quats, scales, opacities, sh0, harmonics]
