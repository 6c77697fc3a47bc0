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

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.scene.scene import GaussianScene, as_floats

if TYPE_CHECKING:
    import torch

    from splatview_viewer.core.settings import Color

_CHUNK = 1 << 16
"""Gaussians that are packed in one go: what comes between stays in the processor's cache."""
_CHUNK_GPU = 1 << 18
"""The same on a GPU: what comes between, and the pinned memory that it passes through, stays small."""
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


def pack(scene: GaussianScene, background: Color | None = None, stream: Any = None) -> Packed:
    """Copies of a scene's numbers, made small. From any thread.

    `stream`: for a scene on a GPU, the torch stream that reads it, which waits for the data by itself; the calling
    thread waits for it.
    """
    count, coefficients = len(scene), scene.shN.shape[1]
    arrays = {name: np.empty(shape, dtype)
              for name, (shape, dtype) in layout(
                  count, coefficients, scene.activated, scene.means.dtype.itemsize == 8).items()}
    gpu_ms = 0.0
    if scene.on_gpu:
        gpu_ms = _pack_on_gpu(scene, arrays, stream)
    else:
        with np.errstate(all="ignore"):
            for begin in range(0, count, _CHUNK):
                _pack_rows(scene, arrays, slice(begin, min(begin + _CHUNK, count)))
    return Packed(arrays, min(scene.sh_degree, scene.stored_sh_degree), scene.activated, scene.antialiased, background,
                  gpu_ms)


def unpack(packed: Packed, *, version: int = 0, notes: tuple[str, ...] = ()) -> GaussianScene:
    """The scene again, as float32 in host memory. From any thread."""
    a = packed.arrays
    quats = np.multiply(a["quats"], np.float32(1 / _UNIT), dtype=np.float32)
    higher = a["shN"].astype(np.float32)
    if higher.size:
        with np.errstate(invalid="ignore"):  # 0 times infinity, in a damaged file
            higher *= a["sh_unit"].astype(np.float32)[:, None, None]
    scales, opacities, sh0 = (a[name].astype(np.float32) for name in ("scales", "opacities", "sh0"))
    return GaussianScene(a["means"], quats, scales, opacities, sh0, higher, packed.activated, packed.sh_degree,
                         packed.antialiased, version, notes, packed.background)


def _pack_rows(scene: GaussianScene, arrays: dict[str, np.ndarray], rows: slice) -> None:
    arrays["means"][rows] = scene.means[rows]
    quats = scene.quats[rows]
    length = np.sqrt(np.einsum("ij,ij->i", quats, quats, dtype=np.float64))
    unit = quats * (_UNIT / length)[:, None]
    arrays["quats"][rows] = np.where(np.isfinite(unit).all(axis=1)[:, None], np.rint(unit), 0)  # 0: cannot be drawn
    arrays["scales"][rows] = scene.scales[rows] if scene.activated else _half(scene.scales[rows], defined=True)
    arrays["opacities"][rows] = _half(scene.opacities[rows], defined=not scene.activated)
    arrays["sh0"][rows] = _half(scene.sh0[rows])
    if arrays["shN"].size:
        higher = scene.shN[rows]
        flat = np.asarray(higher).reshape(len(higher), -1)
        unit = _half(np.maximum(flat.max(axis=1), -flat.min(axis=1)) * np.float32(1 / 127))
        arrays["sh_unit"][rows] = unit
        parts = np.rint(higher / np.where(unit > 0, unit, np.inf).astype(np.float32)[:, None, None])
        arrays["shN"][rows] = np.clip(np.nan_to_num(parts, copy=False), -127, 127)


def _half(a: Any, defined: bool = False) -> np.ndarray:
    """As float16: what is too large is the largest there is, what is infinite is none unless that is `defined`."""
    half = np.asarray(a).clip(-_HALF, _HALF).astype(np.float16)
    if not defined and not np.isfinite(np.asarray(a).sum()):
        half[~np.isfinite(a)] = np.nan
    return half


def _pack_on_gpu(scene: GaussianScene, arrays: dict[str, np.ndarray], stream: Any) -> float:
    """The same with CUDA: what goes to the host is small already, and passes through a little pinned memory.

    Milliseconds that the GPU took."""
    import torch

    ms = 0.0
    with torch.no_grad(), torch.cuda.device(scene.gpu), torch.cuda.stream(stream):
        pack_tensors(scene, slice(0, 1))  # CUDA loads kernels at their first use: not in the time that is taken
        for begin in range(0, len(scene), _CHUNK_GPU):
            rows = slice(begin, min(begin + _CHUNK_GPU, len(scene)))
            before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            before.record()
            made = pack_tensors(scene, rows)
            after.record()
            copies = {name: torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for name, t in made.items()}
            for name, t in made.items():
                copies[name].copy_(t, non_blocking=True)
            torch.cuda.current_stream().synchronize()
            ms += before.elapsed_time(after)
            for name, t in copies.items():
                arrays[name][rows] = t.numpy()
    return ms


def pack_tensors(scene: GaussianScene, rows: slice) -> dict[str, torch.Tensor]:
    """Some rows of what `layout` names, on the device where the scene's tensors lie."""
    import torch

    def half(t: torch.Tensor, defined: bool = False) -> torch.Tensor:
        t = t.float()
        return torch.where(t.isfinite() | defined, t.clamp(-_HALF, _HALF), torch.nan).half()

    means, quats, scales, opacities, sh0, higher = (
        as_floats(torch.as_tensor(getattr(scene, name)[rows]))
        for name in ("means", "quats", "scales", "opacities", "sh0", "shN"))
    unit = quats.double()
    unit = unit * (_UNIT / unit.norm(dim=1, keepdim=True))
    unit = torch.where(unit.isfinite().all(dim=1, keepdim=True), unit.round(), 0.0)
    out = {"means": means, "quats": unit.to(torch.int16),
           "scales": scales if scene.activated else half(scales, defined=True),
           "opacities": half(opacities, defined=not scene.activated), "sh0": half(sh0)}
    if higher.shape[1]:
        sh_unit = half(higher.abs().amax(dim=(1, 2)) / 127)
        parts = (higher / torch.where(sh_unit > 0, sh_unit.float(), torch.inf)[:, None, None]).round()
        out["shN"] = parts.nan_to_num(0, 0, 0).clamp(-127, 127).to(torch.int8)
        out["sh_unit"] = sh_unit
    return out
