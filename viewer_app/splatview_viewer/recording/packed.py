"""A scene made small, to keep many of them: a third of its float32 numbers, and it can hardly be told from them.

means       float32, or float64, as they are
quats       unit quaternions times 32767, int16: off by at most 2e-5
scales      logarithms as float16: sizes off by at most 0.4 % (of Gaussians smaller than e**-16: 0.8 %); those of scenes
            that come activated as float32, as they are
opacities   logits as float16: opacities off by at most 2e-4; those of activated scenes as float16: 3e-4
sh0         float16: colours off by at most 1.4e-4 of full scale, up to four times the brightness of white
shN         int8, each Gaussian's as parts of its own largest one: off by at most 1/254 of that

What cannot be drawn (`Renderer.load`) cannot be drawn afterwards either.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.scene.scene import FIELDS, GaussianScene, HostCopy, as_floats

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from splatview_viewer.core.settings import Color

_CHUNK, _CHUNK_GPU = 1 << 15, 1 << 18
"""Gaussians that are packed in one go: on a CPU what is computed from them stays in the cache; on a GPU the pinned
memory that it passes through stays small."""
_HALF = 65504.0
"""The largest float16."""
_UNIT = 32767.0


@dataclass(frozen=True, eq=False)
class Packed:
    """N Gaussians as they are kept."""

    arrays: dict[str, np.ndarray]
    """By the names of `layout`, of its shapes and dtypes."""
    sh_degree: int
    activated: bool
    antialiased: bool
    background: Color | None = None
    """That came with the scene, RGB in [0, 1]."""
    gpu_ms: float = 0.0
    """Milliseconds that a GPU took to pack it."""

    def __len__(self) -> int:
        return len(self.arrays["means"])

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays.values())


def layout(count: int, coefficients: int, activated: bool,
           wide: bool = False) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and dtype of each array of `count` Gaussians with so many coefficients beyond degree 0, in their order.
    `wide`: with `means` of float64."""
    scale = np.float32 if activated else np.float16
    return {name: (shape, np.dtype(dtype)) for name, shape, dtype in (
        ("means", (count, 3), np.float64 if wide else np.float32), ("quats", (count, 4), np.int16),
        ("scales", (count, 3), scale), ("opacities", (count,), np.float16), ("sh0", (count, 3), np.float16),
        ("shN", (count, coefficients, 3), np.int8), ("sh_unit", (count if coefficients else 0,), np.float16))}


def packed_bytes(count: int, coefficients: int, activated: bool, wide: bool = False) -> int:
    """What such a scene takes."""
    sizes = layout(count, coefficients, activated, wide).values()
    return sum(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for shape, dtype in sizes)


def pack(scene: GaussianScene, background: Color | None = None, stream: torch.cuda.Stream | None = None) -> Packed:
    """Return copies of a scene's numbers, made small. From any thread.

    `stream`: for a scene on a GPU, the torch stream that reads it, which waits for the data by itself; the calling
    thread waits for it.
    """
    import torch

    count, coefficients = len(scene), scene.shN.shape[1]
    shapes = layout(count, coefficients, scene.activated, scene.means.dtype.itemsize == 8)
    arrays = {name: np.empty(shape, dtype) for name, (shape, dtype) in shapes.items()}
    gpu_ms = 0.0
    with torch.cuda.stream(stream):
        if scene.on_gpu:  # CUDA loads kernels at their first use: not in the time that is measured
            HostCopy(scene, lambda: pack_rows(scene[:1]))
        step = _CHUNK_GPU if scene.on_gpu else _CHUNK
        for start in range(0, count, step):
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if scene.on_gpu else []
            copy = HostCopy(scene, functools.partial(_pack_between, scene[start: start + step], marks))
            for array, part in zip(arrays.values(), copy.arrays(), strict=True):
                array[start: start + len(part)] = part
            gpu_ms += marks[0].elapsed_time(marks[1]) if marks else 0.0
    return Packed(arrays, min(scene.sh_degree, scene.stored_sh_degree), scene.activated, scene.antialiased, background,
                  gpu_ms)


def unpack(packed: Packed, *, version: int = 0, notes: tuple[str, ...] = ()) -> GaussianScene:
    """Return the scene again, as float32 (`means` also float64) on the CPU. From any thread."""
    import torch

    means, quats, scales, opacities, sh0, higher, unit = map(torch.from_numpy, packed.arrays.values())
    higher = higher.float()
    if higher.numel():
        higher *= unit.float()[:, None, None]
    return GaussianScene(means, quats * (1 / _UNIT), scales.float(), opacities.float(), sh0.float(), higher,
                         activated=packed.activated, sh_degree=packed.sh_degree, antialiased=packed.antialiased,
                         version=version, notes=notes, background=packed.background)


def _pack_between(scene: GaussianScene, marks: Sequence[torch.cuda.Event]) -> list[torch.Tensor]:
    """As `pack_rows`, with an event recorded before and after it."""
    for mark in marks[:1]:
        mark.record()
    made = pack_rows(scene)
    for mark in marks[1:]:
        mark.record()
    return made


def pack_rows(scene: GaussianScene) -> list[torch.Tensor]:
    """Return the arrays that `layout` names, as tensors on the scene's device."""
    import torch

    def half(t: torch.Tensor, defined: bool = False) -> torch.Tensor:
        """float16: what is too large is the largest there is, what is infinite is none unless that is `defined`."""
        return torch.where(t.isfinite() | defined, t.clamp(-_HALF, _HALF), torch.nan).half()

    means, quats, scales, opacities, sh0, higher = (as_floats(getattr(scene, name)) for name in FIELDS)
    unit = quats.double()
    unit = unit * (_UNIT / unit.norm(dim=1, keepdim=True))
    unit = torch.where(unit.isfinite().all(dim=1, keepdim=True), unit.round(), 0.0)  # 0: cannot be drawn
    made = [means, unit.to(torch.int16), scales if scene.activated else half(scales, defined=True),
            half(opacities, defined=not scene.activated), half(sh0)]
    if not higher.shape[1]:
        return [*made, higher.to(torch.int8), higher.new_empty(0, dtype=torch.half)]
    flat = higher.flatten(1)
    sh_unit = half(flat.abs().amax(dim=1) / 127)
    parts = (flat / torch.where(sh_unit > 0, sh_unit.float(), torch.inf)[:, None]).round()
    return [*made, parts.nan_to_num(0, 0, 0).clamp(-127, 127).to(torch.int8).reshape(higher.shape), sh_unit]
