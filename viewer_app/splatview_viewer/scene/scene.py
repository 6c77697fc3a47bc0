"""A Gaussian scene on the viewer's side, from a stream or a file: torch tensors, on the CPU or on a GPU."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.kinds.gaussians import SH_REST, Activated, activated_of
from splatview_viewer.core.selection import Box

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from splatview_viewer.core.selection import Selection, Sphere

SH_C0 = 0.28209479177387814
"""The constant spherical harmonic Y00: RGB = SH_C0 * sh0 + 0.5 (3D Gaussian Splatting, Kerbl et al. 2023)."""
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
"""Gaussians in one piece of `GaussianScene.chunks`: on a CPU what is computed from them stays in the cache."""


@dataclass(frozen=True, eq=False)
class GaussianScene:
    """N Gaussians in world space, in OpenCV axes (x right, y down, z forward), as trainers hold them.

    The tensors are all on the CPU, of float32, `means` also float64, or all on one CUDA device, of any floating dtype
    and any strides. They may be views of shared memory that is rewritten later: copy what must stay.
    """

    means: torch.Tensor
    """(N, 3) centres in world units. Far from the origin (georeferenced scenes) only float64 holds them; renderers
    subtract the scene's middle before they use float32."""
    quats: torch.Tensor
    """(N, 4) rotations as quaternions w, x, y, z; not normalised."""
    scales: torch.Tensor
    """(N, 3) standard deviations along the rotated axes: natural logarithms, or world units if `activated`. Of flat
    Gaussians the third one is 0, as a logarithm minus infinity."""
    opacities: torch.Tensor
    """(N,) logits, or values in [0, 1] if `activated`."""
    sh0: torch.Tensor
    """(N, 3) coefficients of degree 0, RGB."""
    shN: torch.Tensor  # noqa: N815  (gsplat's own name for the field)
    """(N, K-1, 3) coefficients of degrees 1 to 4 (K-1 is one of `SH_REST`), RGB."""
    _: KW_ONLY
    activated: bool | tuple[bool, bool] = False
    """True if `scales` and `opacities` already went through exp and sigmoid; a pair where one of them alone did."""
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

    @classmethod
    def of_arrays(
        cls,
        means: np.ndarray,
        quats: np.ndarray,
        scales: np.ndarray,
        opacities: np.ndarray,
        sh0: np.ndarray,
        shN: np.ndarray,
        **facts: Any,
    ) -> GaussianScene:
        """Wrap NumPy arrays that may be written, without a copy. `facts`: the other fields."""
        import torch

        return cls(
            *map(torch.from_numpy, (means, quats, scales, opacities, sh0, shN)), **facts
        )

    def __len__(self) -> int:
        return len(self.means)

    def __getitem__(self, rows: slice | torch.Tensor) -> GaussianScene:
        """Return some of the Gaussians; views of the same memory for a slice."""
        return replace(self, **{name: getattr(self, name)[rows] for name in FIELDS})

    def chunks(self) -> Iterator[tuple[int, GaussianScene]]:
        """Yield pieces in order, at least one, each with the index of its first Gaussian."""
        size = _CHUNK_GPU if self.on_gpu else _CHUNK
        for start in range(0, max(len(self), 1), size):
            yield start, self[start : start + size]

    @property
    def activation(self) -> Activated:
        """The meaning of `activated` for scales and for opacities."""
        return activated_of(self.activated)

    @property
    def stored_sh_degree(self) -> int:
        """The highest degree for which `shN` holds coefficients."""
        return SH_REST.index(self.shN.shape[1])

    @property
    def on_gpu(self) -> bool:
        """True if the tensors are on a CUDA device."""
        return self.means.is_cuda

    @property
    def gpu(self) -> torch.device | None:
        """The CUDA device of the tensors; None on the CPU."""
        return self.means.device if self.on_gpu else None

    def to_host(self, ready: Callable[[int], None] | None = None) -> GaussianScene:
        """Return the scene on the CPU, float32, `means` also float64; its own tensors where they are that.

        Work given to the CUDA stream that copies after `ready(stream)`, with its raw handle, finds the data there.
        """
        self.wait(ready)
        return replace(
            self, **{name: as_floats(getattr(self, name)).cpu() for name in FIELDS}
        )

    def sample(self, limit: int) -> list[torch.Tensor]:
        """Return centres (M, 3) and opacities in [0, 1] (M,) of M <= `limit` Gaussians evenly spread over the scene, on
        its device: enough to frame it.
        """
        step = max(-(-len(self) // max(limit, 1)), 1)
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


class HostCopy:
    """Copy a scene's computed values to arrays in host memory.

    A scene on a GPU is read at once, on torch's current stream, without waiting: it may be overwritten there
    afterwards. A scene on the CPU is read by `arrays`, in the calling thread, and has to stay as it is until then.
    """

    def __init__(
        self, scene: GaussianScene, compute: Callable[[], Sequence[torch.Tensor]]
    ) -> None:
        import torch

        self._compute = compute
        self._event = None
        if scene.on_gpu:
            with torch.no_grad(), torch.cuda.device(scene.gpu):
                copies = [
                    t.to("cpu", non_blocking=True) for t in compute()
                ]  # into pinned memory
                self._event = torch.cuda.Event(blocking=True)
                self._event.record()
            self._compute = lambda: copies

    @property
    def done(self) -> bool:
        """True if `arrays` does not wait for a GPU."""
        return self._event is None or self._event.query()

    def arrays(self) -> list[np.ndarray]:
        """Return them; waits for the GPU. They may be views of a scene on the CPU."""
        import torch

        if self._event is not None:
            self._event.synchronize()
        with torch.no_grad():
            return [t.numpy() for t in self._compute()]


def sh0_of_rgb(rgb: np.ndarray) -> np.ndarray:
    """Return the coefficients of degree 0 of colours in [0, 1]."""
    return (rgb - np.float32(0.5)) / np.float32(SH_C0)


@cache
def nothing() -> GaussianScene:
    """Return a scene without Gaussians."""
    shapes = (3,), (4,), (3,), (), (3,), (0, 3)
    return GaussianScene.of_arrays(
        *(np.zeros((0, *shape), np.float32) for shape in shapes),
        activated=True,
        sh_degree=0,
    )


def as_floats(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's values as float64 where they are that, else as float32."""
    tensor = tensor.detach()
    return tensor if tensor.dtype.itemsize == 8 else tensor.float()


def merged(
    scenes: Sequence[GaussianScene],
    smooth: Sequence[bool],
    device: torch.device | str = "cpu",
) -> GaussianScene:
    """Return one scene of all Gaussians, one scene's behind the other's, as tensors of its own on `device`: on torch's
    current stream, if that is a GPU.

    What a scene does not show, since a higher degree of spherical harmonics is not in use, it does not show here. The
    whole is antialiased if all are, as `smooth` says (renderers do not tell); a note says so if only some are.
    """
    import torch

    degree = max(min(s.sh_degree, s.stored_sh_degree) for s in scenes)
    with torch.no_grad():
        parts = []
        for scene in scenes:
            means, quats, scales, opacities, sh0, rest = (
                as_floats(getattr(scene, name)) for name in FIELDS
            )
            if not scene.activation.scales:
                scales = scales.exp()
            if not scene.activation.opacities:
                opacities = opacities.sigmoid()
            used = (min(scene.sh_degree, scene.stored_sh_degree) + 1) ** 2 - 1
            wanted = (degree + 1) ** 2 - 1
            rest = torch.cat(
                [rest[:, :used], rest.new_zeros(len(scene), max(wanted - used, 0), 3)],
                1,
            )
            parts.append(
                (means, quats, scales, opacities.reshape(len(scene)), sh0, rest)
            )
        joined = [
            torch.cat([part[i].to(device) for part in parts])
            for i in range(len(FIELDS))
        ]
    if any(smooth) and not all(smooth):
        notes = ("not all were trained antialiased: drawn without",)
    else:
        notes = ()
    return GaussianScene(
        *joined, activated=True, sh_degree=degree, antialiased=all(smooth), notes=notes
    )


# -- selected ---------------------------------------------------------------------------------------------------------

HIDDEN = 1
MARKED = 2
"""Bits of `flags`: not drawn; drawn in a colour of its own."""


def flags(scene: GaussianScene, selection: Selection) -> torch.Tensor:
    """(N,) uint8, `HIDDEN` and `MARKED`, for each Gaussian of an activated scene, on the scene's device: on torch's
    current stream and without waiting.
    """
    hidden = _beyond(scene.opacities, selection.opacity)
    if selection.scale != (0.0, math.inf):
        hidden |= _beyond(largest_scale(scene), selection.scale)
    if selection.sh_energy != (0.0, math.inf):
        hidden |= _beyond(sh_energy(scene), selection.sh_energy)
    for part in (selection.box, selection.sphere):
        if part is not None:
            hidden |= _excluded(scene.means, part)
    out = hidden.byte()
    for i in selection.marked:  # one at a time: no indices have to come to the GPU
        if i < len(scene):
            out[i] |= MARKED
    return out


def largest_scale(scene: GaussianScene) -> torch.Tensor:
    """(N,) the largest standard deviation of each Gaussian of an activated scene, world units."""
    x, y, z = scene.scales.unbind(-1)
    return x.maximum(y).maximum(
        z
    )  # on a CPU half the time of a maximum along an axis of three


def sh_energy(scene: GaussianScene) -> torch.Tensor:
    """(N,) the sum of squares of each Gaussian's coefficients of degrees 1 to 4, all channels."""
    import torch

    return torch.linalg.vector_norm(
        scene.shN, dim=(1, 2)
    ).square()  # without a square of each in memory


def _excluded(means: torch.Tensor, shape: Box | Sphere) -> torch.Tensor:
    """(N,) bool for centres (N, 3): those that the shape does not keep."""
    x, y, z = (means[:, i] - c for i, c in enumerate(shape.center))
    if isinstance(shape, Box):
        within = [
            (x * a + y * b + z * c).abs() <= half
            for (a, b, c), half in zip(shape.axes, shape.half, strict=True)
        ]
        inside = within[0] & within[1] & within[2]
    else:
        inside = x * x + y * y + z * z <= shape.radius * shape.radius
    return inside if shape.outside else ~inside


def _beyond(values: torch.Tensor, limits: tuple[float, float]) -> torch.Tensor:
    low, high = limits
    out = values < low
    return out | (values > high) if high < math.inf else out


# -- counted ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quantity:
    """One number of each Gaussian, and the bins in which it is counted."""

    name: str
    """The field of `Selection` that limits it."""
    low: float
    """Begin of the first bin, in `log10` units where that is set. What is below is counted there."""
    high: float
    bins: int
    log: bool = True

    def of(self, scene: GaussianScene) -> torch.Tensor:
        """(N,) its values, of an activated scene."""
        if self.name == "opacity":
            return scene.opacities
        return largest_scale(scene) if self.name == "scale" else sh_energy(scene)

    def edge(self, position: float) -> float:
        """The value at this position, counted in bins from the left."""
        at = self.low + position * (self.high - self.low) / self.bins
        return float(10.0**at) if self.log else at

    def position(self, value: float) -> float:
        """The inverse, from 0 to `bins`."""
        if self.log:
            value = float(np.log10(value)) if value > 0 else self.low
        return (
            min(max((value - self.low) / (self.high - self.low), 0.0), 1.0) * self.bins
        )


QUANTITIES = (
    Quantity("opacity", 0.0, 1.0, 64, log=False),
    Quantity("scale", -7.0, 5.0, 600),
    Quantity("sh_energy", -8.0, 4.0, 600),
)
"""Bins that are the same for every scene, so that its extremes need not be known first."""


@dataclass(frozen=True)
class Statistics:
    """Statistics of those Gaussians of one version of a scene that can be drawn."""

    total: int
    chosen: int
    """Number of those that the selection does not hide."""
    counts: dict[str, tuple[np.ndarray, np.ndarray]]
    """By the name of a quantity: how many lie in each bin, all and chosen ones; int64."""

    def used(self, quantity: Quantity) -> tuple[int, int]:
        """The first bin in which there is anything worth a look, and the one after the last; floaters, a ten-thousandth
        on each side, do not count.
        """
        counts = self.counts[quantity.name][0]
        if not quantity.log or not counts.any():
            return 0, quantity.bins
        below = np.cumsum(counts)
        few = int(below[-1]) // 10_000
        first = int(np.searchsorted(below, few, "right"))
        last = int(np.searchsorted(below, below[-1] - few))
        return max(first - 1, 0), min(last + 2, quantity.bins)


def count_later(scene: GaussianScene, selection: Selection) -> Callable[[], Statistics]:
    """Count what an activated scene holds; the returned function waits for it, in any thread. The scene is read as
    `HostCopy` says.
    """
    selection = replace(selection, marked=())
    copy = HostCopy(scene, lambda: [_counts(scene, selection)])

    def read() -> Statistics:
        (total, chosen), *counts = np.split(
            copy.arrays()[0], np.cumsum([2, *(2 * q.bins for q in QUANTITIES)])[:-1]
        )
        pairs = {
            q.name: np.split(pair, 2)
            for q, pair in zip(QUANTITIES, counts, strict=True)
        }
        return Statistics(
            int(total),
            int(chosen),
            {name: (every, some) for name, (every, some) in pairs.items()},
        )

    return read


def _counts(scene: GaussianScene, selection: Selection) -> torch.Tensor:
    """Numbers: that can be drawn, that are chosen, then of each quantity all bins of both, int64 in one row."""
    import torch

    rows = []
    for _, part in scene.chunks():
        drawn = part.opacities > 0
        chosen = drawn & ((flags(part, selection) & HIDDEN) == 0)
        row = [drawn.sum()[None], chosen.sum()[None]]
        for quantity in QUANTITIES:
            values = quantity.of(part).float()
            if quantity.log:
                values = values.clamp(10.0**quantity.low).log10()
            at = (values - quantity.low) * (
                quantity.bins / (quantity.high - quantity.low)
            )
            at = at.floor().nan_to_num(0.0).clamp(0, quantity.bins - 1)
            # Chosen ones are counted in bins of their own; what is beyond the ends is not counted.
            bins = at + 0.5 + quantity.bins * chosen
            apart = torch.histc(
                torch.where(drawn, bins, -1.0), 2 * quantity.bins, 0, 2 * quantity.bins
            ).long()
            others, counted = apart.chunk(2)
            row += [others + counted, counted]
        rows.append(torch.cat(row))
    return torch.stack(rows).sum(0)
