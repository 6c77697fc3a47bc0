"""Write every scene format, for the tests of the readers.

The writers are short and follow the formats' descriptions.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import resource
import struct
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from splatview_viewer.formats import sandbox
from splatview_viewer.geometry.rotations import matrix, quaternion
from splatview_viewer.scene.scene import FIELDS, SH_C0
from splatview_viewer.scene.turning import harmonics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import torch

SIDE = 64
"""Palette entries in a row of a SOG's picture of harmonics."""
EXACT = {"means": 1e-6, "degrees": 1e-4, "scales": 1e-6, "alpha": 1e-6, "color": 1e-5}
FLIP = np.diag([1.0, -1.0, -1.0])
"""Rotation between right-down-front and right-up-back axes."""


@dataclass
class Truth:
    """Hold a scene to be written: log scales, logit opacities, in RDF axes."""

    means: np.ndarray
    quats: np.ndarray
    scales: np.ndarray
    opacities: np.ndarray
    sh0: np.ndarray
    shN: np.ndarray  # noqa: N815
    """(N, K - 1, 3)."""


def truth(n: int = 300, degree: int = 3, seed: int = 0) -> Truth:
    """Make a scene without any symmetry that the quantised formats can hold."""
    r = np.random.default_rng(seed)
    k = (degree + 1) ** 2 - 1
    quats = r.normal(size=(n, 4))
    quats *= r.uniform(0.5, 2, (n, 1)) / np.linalg.norm(quats, axis=1, keepdims=True)
    alpha = r.uniform(0.05, 0.95, n)
    arrays = (
        r.uniform(-2, 2, (n, 3)),
        quats,
        r.uniform(-6, -1, (n, 3)),
        np.log(alpha / (1 - alpha)),
        (r.uniform(0.1, 0.9, (n, 3)) - 0.5) / SH_C0,
        r.uniform(-0.6, 0.6, (n, k, 3)),
    )
    return Truth(*(a.astype(np.float32) for a in arrays))


def read_in_process(
    function: Callable[..., Any], paths: list[Path], *_: Any, **options: Any
) -> Any:
    """Stand for `sandbox.run`, in this process.

    A program of its own takes a second to load torch, which reads checkpoints.
    """
    files = [sandbox.File(path, str(path)) for path in paths]
    return function(files, options["progress"])


def degree_of(t: Truth) -> int:
    return int((t.shN.shape[1] + 1) ** 0.5) - 1


def alpha_of(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


def unit_quats(t: Truth) -> np.ndarray:
    return t.quats / np.linalg.norm(t.quats, axis=1, keepdims=True)


def flat_harmonics(t: Truth) -> np.ndarray:
    """Return the higher harmonics as (N, 3 * (K - 1)), channel by channel."""
    return t.shN.transpose(0, 2, 1).reshape(len(t.means), 3 * t.shN.shape[1])


def quantize(values: np.ndarray) -> np.ndarray:
    return np.clip(np.round(values), 0, 255).astype(np.uint8)


def limits_of(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and greatest row (3,) of values (N, 3); zeros without any."""
    if not len(values):
        return np.zeros(3), np.zeros(3)
    return values.min(axis=0), values.max(axis=0)


def colors(s, directions: np.ndarray) -> np.ndarray:
    """Compute (N, D, 3) colours of harmonics, without the 0.5 and the clamp."""
    basis = harmonics(directions, 4)[:, : s.shN.shape[1]]
    return SH_C0 * s.sh0[:, None] + np.einsum("dk,nkc->ndc", basis, s.shN)


def to_rub(t: Truth, axes: np.ndarray = FLIP) -> Truth:
    """Convert a scene to right-up-back axes.

    The harmonics are fitted, not taken from a table of signs.

    Args:
        t: The scene, in right-down-front axes.
        axes: (3, 3) what makes the new axes right-down-front again.
    """
    k = t.shN.shape[1]
    d = np.random.default_rng(5).normal(size=(64, 3))
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    basis = harmonics(d, 4)[:, :k]
    turned_basis = harmonics(d @ axes.T, 4)[:, :k]
    rotation = np.linalg.lstsq(basis, turned_basis, rcond=None)[0]
    if axes[1, 1]:
        own_axes = axes
    else:
        own_axes = np.eye(3) * np.linalg.det(axes)
    quats = [quaternion(axes.T @ r @ own_axes) for r in matrix(t.quats)]
    return replace(
        t,
        means=(t.means @ axes).astype(np.float32),
        quats=np.array(quats, np.float32).reshape(-1, 4),
        shN=np.einsum("jk,nkc->njc", rotation, t.shN).astype(np.float32),
    )


def ply_columns(t: Truth, normals: bool = True) -> dict[str, np.ndarray]:
    """Return the properties of inria's PLY in its order."""
    columns = dict(zip("xyz", t.means.T, strict=True))
    if normals:
        zero = np.zeros(len(t.means), np.float32)
        columns |= {f"n{axis}": zero for axis in "xyz"}
    columns |= {f"f_dc_{i}": t.sh0[:, i] for i in range(3)}
    columns |= {f"f_rest_{i}": c for i, c in enumerate(flat_harmonics(t).T)}
    columns["opacity"] = t.opacities
    columns |= {f"scale_{i}": t.scales[:, i] for i in range(3)}
    columns |= {f"rot_{i}": t.quats[:, i] for i in range(4)}
    return columns


def write_ply(
    path: Path,
    columns: dict[str, np.ndarray],
    *,
    order: str = "<",
    types: dict[str, str] | None = None,
    before: bytes = b"",
    after: bytes = b"",
    header: str = "",
    footer: str = "",
) -> Path:
    """Write a PLY with a vertex element.

    Args:
        path: The file.
        columns: The vertices' properties by name.
        order: Byte order, or "a" for a text.
        types: NumPy types of properties that are not float32.
        before: Data before the vertices.
        after: Data after the vertices.
        header: Lines of the header before the element.
        footer: Lines of the header after the element.
    """
    names = {"f4": "float", "f8": "double", "u1": "uchar", "i2": "short", "u4": "uint"}
    kinds = {name: (types or {}).get(name, "f4") for name in columns}
    n = len(next(iter(columns.values())))
    forms = {"<": "binary_little_endian", ">": "binary_big_endian", "a": "ascii"}
    text = f"ply\nformat {forms[order]} 1.0\n{header}element vertex {n}\n"
    text += "".join(f"property {names[kinds[c]]} {c}\n" for c in columns)
    text += footer + "end_header\n"
    if order == "a":
        rows = zip(*(values.tolist() for values in columns.values()), strict=True)
        data = "".join(" ".join(map(repr, row)) + "\n" for row in rows).encode()
    else:
        records = np.empty(n, [(c, order + kinds[c]) for c in columns])
        for c, values in columns.items():
            records[c] = values
        data = records.tobytes()
    path.write_bytes(text.encode() + before + data + after)
    return path


FACES = "element face 3\nproperty list uchar int vertex_indices\nproperty uchar flags\n"
"""Element of a mesh: two triangles around a polygon of four corners; see `faces`."""


def faces(order: str = "<") -> bytes:
    """Return the records of `FACES`."""
    rows = [3, 0, 1, 2, 7], [4, 0, 1, 2, 3, 7], [3, 2, 3, 0, 7]
    if order == "a":
        return "\n".join(" ".join(map(str, row)) for row in rows).encode() + b"\n"
    packed = (struct.pack(f"{order}B{len(r) - 2}iB", *r) for r in rows)
    return b"".join(packed)


def pack_bits(values: np.ndarray, *bits: int) -> np.ndarray:
    """Pack columns of numbers from 0 to 1 into words of this many bits each."""
    values = np.asarray(values)
    packed = np.zeros(len(values), np.uint32)
    for column, width in zip(values.T, bits, strict=True):
        top = (1 << width) - 1
        steps = np.clip(np.round(column * top), 0, top).astype(np.uint32)
        packed = (packed << np.uint32(width)) | steps
    return packed


def chunk_limits(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and greatest values of each 256 rows."""
    if not len(values):
        return np.zeros((0, 3)), np.zeros((0, 3))
    starts = np.arange(0, len(values), 256)
    low = np.minimum.reduceat(values, starts, axis=0)
    return low, np.maximum.reduceat(values, starts, axis=0)


def write_compressed_ply(path: Path, t: Truth, colored: bool = True) -> Path:
    """Write SuperSplat's compressed PLY, without the reordering of its writers."""
    n = len(t.means)
    chunks = -(-n // 256)
    chunk_of = np.arange(n) // 256
    rgb = t.sh0 * SH_C0 + 0.5
    fields = {"": t.means, "scale_": t.scales}
    if colored:
        fields["rgb"] = rgb
    bounds = []
    scaled = {}
    names: list[str] = []
    for prefix, values in fields.items():
        axes = ["r", "g", "b"]
        if prefix != "rgb":
            axes = [prefix + axis for axis in "xyz"]
        low, high = chunk_limits(values)
        bounds += [low, high]
        names += [f"min_{axis}" for axis in axes]
        names += [f"max_{axis}" for axis in axes]
        extent = np.maximum(high[chunk_of] - low[chunk_of], 1e-9)
        scaled[prefix] = (values - low[chunk_of]) / extent

    largest, remaining = smallest_three(t.quats)
    rotation = pack_bits(remaining / 2**0.5 + 0.5, 10, 10, 10)
    rotation |= largest.astype(np.uint32) << 30
    rgba = np.column_stack([scaled.get("rgb", rgb), alpha_of(t.opacities)])
    packed = {
        "position": pack_bits(scaled[""], 11, 10, 11),
        "rotation": rotation,
        "scale": pack_bits(scaled["scale_"], 11, 10, 11),
        "color": pack_bits(rgba, 8, 8, 8, 8),
    }
    text = f"ply\nformat binary_little_endian 1.0\nelement chunk {chunks}\n"
    text += "".join(f"property float {name}\n" for name in names)
    text += f"element vertex {n}\n"
    text += "".join(f"property uint packed_{name}\n" for name in packed)
    sh = b""
    if t.shN.shape[1]:
        flat = flat_harmonics(t)
        text += f"element sh {n}\n"
        text += "".join(f"property uchar f_rest_{i}\n" for i in range(flat.shape[1]))
        steps = np.clip(np.floor((flat / 8 + 0.5) * 256), 0, 255)
        sh = steps.astype(np.uint8).tobytes()
    table = np.concatenate(bounds, axis=1).astype("<f4").tobytes()
    vertices = np.stack([*packed.values()], axis=1).astype("<u4").tobytes()
    path.write_bytes((text + "end_header\n").encode() + table + vertices + sh)
    return path


def smallest_three(quats: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest component's index, and the remaining with it made positive."""
    q = quats / np.linalg.norm(quats, axis=1, keepdims=True)
    largest = np.abs(q).argmax(axis=1)
    q = q * np.sign(q[np.arange(len(q)), largest])[:, None]
    remaining = [np.delete(row, i) for row, i in zip(q, largest, strict=True)]
    return largest, np.array(remaining).reshape(-1, 3)


def write_splat(path: Path, t: Truth) -> Path:
    record = [("p", "<f4", 3), ("s", "<f4", 3), ("c", "u1", 4), ("q", "u1", 4)]
    records = np.empty(len(t.means), record)
    records["p"] = t.means
    records["s"] = np.exp(t.scales)
    rgba = np.column_stack([t.sh0 * SH_C0 + 0.5, alpha_of(t.opacities)])
    records["c"] = quantize(rgba * 255)
    records["q"] = quantize(unit_quats(t) * 128 + 128)
    path.write_bytes(records.tobytes())
    return path


def spz_sections(t: Truth, version: int = 3) -> list[bytes]:
    """Pack the attributes as SPZ does; `t` is in RUB axes."""
    if version == 1:
        positions = t.means.astype("<f2").tobytes()
    else:
        fixed = np.round(t.means.astype(np.float64) * 4096).astype("<i4")
        positions = fixed.reshape(-1, 1).view(np.uint8)[:, :3].tobytes()
    return [
        positions,
        quantize(alpha_of(t.opacities) * 255).tobytes(),
        quantize(t.sh0 * 0.15 * 255 + 127.5).tobytes(),
        quantize((t.scales + 10) * 16).tobytes(),
        spz_rotations(t, version),
        quantize(t.shN * 128 + 128).tobytes(),
    ]


def spz_rotations(t: Truth, version: int) -> bytes:
    q = unit_quats(t)
    if version < 3:
        with_positive_w = q * np.where(q[:, :1] < 0, -1, 1)
        return quantize(with_positive_w[:, 1:] * 127.5 + 127.5).tobytes()
    largest, remaining = smallest_three(np.roll(q, -1, axis=1))
    packed = largest.astype("<u4")
    for column in remaining.T:
        magnitude = np.round(np.abs(column) * 2**0.5 * 511).astype("<u4")
        packed = (packed << 10) | ((column < 0).astype("<u4") << 9) | magnitude
    return packed.astype("<u4").tobytes()


def write_spz(
    path: Path,
    t: Truth,
    version: int = 3,
    flags: int = 0,
    extensions: bytes = b"",
    axes: np.ndarray = FLIP,
) -> Path:
    head = struct.pack(
        "<4sIIBBBB", b"NGSP", version, len(t.means), degree_of(t), 12, flags, 0
    )
    data = head + b"".join(spz_sections(to_rub(t, axes), version)) + extensions
    path.write_bytes(gzip.compress(data, 6, mtime=0))
    return path


def write_spz_4(
    path: Path,
    t: Truth,
    compress,
    extensions: bytes = b"",
    axes: np.ndarray = FLIP,
) -> Path:
    sections = [s for s in spz_sections(to_rub(t, axes)) if s]
    packed = [compress(s) for s in sections]
    head = struct.pack(
        "<4sIIBBBBI12x",
        b"NGSP",
        4,
        len(t.means),
        degree_of(t),
        12,
        2 * bool(extensions),
        len(sections),
        32 + len(extensions),
    )
    toc = b"".join(
        struct.pack("<QQ", len(p), len(s))
        for p, s in zip(packed, sections, strict=True)
    )
    path.write_bytes(head + extensions + toc + b"".join(packed))
    return path


def sog_files(t: Truth, version: int = 2) -> dict[str, bytes]:
    """Return the files of a SOG by name.

    Each Gaussian has its own entry in the palette of harmonics. Version 1 has bounds in
    place of codebooks, and the logit of the opacity among the colours.
    """
    n = len(t.means)
    k = t.shN.shape[1]
    width = -(-int(n**0.5 + 1) // 4) * 4
    height = -(-n // width) or 1

    def plane(*columns: np.ndarray) -> bytes:
        rgba = np.zeros((width * height, 4), np.uint8)
        rgba[:n] = np.column_stack(columns)
        return webp(rgba.reshape(height, width, 4))

    logs = np.sign(t.means) * np.log1p(np.abs(t.means))
    low, high = limits_of(logs)
    scaled = (logs - low) / np.maximum(high - low, 1e-9)
    sixteen_bits = np.round(scaled * 65535).astype(np.uint16)
    opaque = np.full((n, 1), 255, np.uint8)
    largest, remaining = smallest_three(t.quats)
    means: dict = {
        "mins": low.tolist(),
        "maxs": high.tolist(),
        "files": ["means_l.webp", "means_u.webp"],
    }
    meta: dict = {"means": means, "quats": {"files": ["quats.webp"]}}
    if version == 2:
        meta |= {"version": 2, "count": n}
    else:
        means["shape"] = [n, 3]
    files = {
        "means_l.webp": plane(sixteen_bits & 255, opaque),
        "means_u.webp": plane(sixteen_bits >> 8, opaque),
        "quats.webp": plane(np.round((remaining / 2**0.5 + 0.5) * 255), largest + 252),
    }

    def quantised(name: str, values: np.ndarray) -> np.ndarray:
        lo = 0.0
        hi = 0.0
        if values.size:
            lo = float(values.min())
            hi = float(values.max())
        channels = values.shape[1]
        if version == 2:
            bounds: dict = {"codebook": np.linspace(lo, hi, 256).tolist()}
        elif name == "shN":
            bounds = {"mins": lo, "maxs": hi}
        else:
            bounds = {"mins": [lo] * channels, "maxs": [hi] * channels}
        meta[name] = {"files": [f"{name}.webp"]} | bounds
        return np.round((values - lo) / max(hi - lo, 1e-9) * 255).astype(np.uint8)

    files["scales.webp"] = plane(quantised("scales", t.scales), opaque)
    if version == 2:
        alpha = np.round(alpha_of(t.opacities) * 255)
        files["sh0.webp"] = plane(quantised("sh0", t.sh0), alpha)
    else:
        logits_last = np.column_stack([t.sh0, t.opacities])
        files["sh0.webp"] = plane(quantised("sh0", logits_last))
    if k:
        rows = max(-(-n // SIDE), 1)
        palette = np.zeros((rows * SIDE, k, 4), np.uint8)
        palette[:n, :, :3] = quantised("shN", t.shN)
        palette[..., 3] = 255
        meta["shN"]["files"] = ["shN_centroids.webp", "shN_labels.webp"]
        if version == 2:
            meta["shN"] |= {"count": n, "bands": degree_of(t)}
        files["shN_centroids.webp"] = webp(palette.reshape(rows, SIDE * k, 4))
        label = np.arange(n)
        files["shN_labels.webp"] = plane(label & 255, label >> 8, 0 * label, opaque)
    return {"meta.json": json.dumps(meta).encode(), **files}


def gsplat_png_files(t: Truth) -> dict[str, bytes]:
    """Return the files of gsplat's PNG compression by name.

    The scene has a square number of Gaussians, each of which is its own centroid.
    """
    n = len(t.means)
    side = math.isqrt(n)
    assert side * side == n
    fields = {
        "means": np.sign(t.means) * np.log1p(np.abs(t.means)),
        "scales": t.scales,
        "quats": unit_quats(t),
        "opacities": t.opacities[:, None],
        "sh0": t.sh0,
    }
    shapes = {"opacities": [n], "sh0": [n, 1, 3]}
    meta: dict = {}
    files: dict[str, bytes] = {}

    def add_png(name: str, values: np.ndarray) -> None:
        grid = values.astype(np.uint8).reshape(side, side, -1).squeeze()
        out = io.BytesIO()
        Image.fromarray(grid).save(out, "PNG")
        files[f"{name}.png"] = out.getvalue()

    for name, values in fields.items():
        low = values.min(0)
        high = values.max(0)
        scaled = (values - low) / (high - low)
        if name == "means":
            steps = np.round(scaled * 65535).astype(int)
            add_png("means_l", steps & 255)
            add_png("means_u", steps >> 8)
        else:
            add_png(name, np.round(scaled * 255).astype(int))
        meta[name] = {
            "shape": shapes.get(name, list(values.shape)),
            "dtype": "float32",
            "mins": low.tolist(),
            "maxs": high.tolist(),
        }
    low = float(t.shN.min())
    high = float(t.shN.max())
    centroids = np.round((t.shN.reshape(n, -1) - low) / (high - low) * 63)
    out = io.BytesIO()
    np.savez_compressed(
        out,
        centroids=np.asfortranarray(centroids.astype(np.uint8)[::-1]),
        labels=np.arange(n, dtype=np.uint16)[::-1],
    )
    files["shN.npz"] = out.getvalue()
    meta["shN"] = {
        "shape": list(t.shN.shape),
        "dtype": "float32",
        "mins": low,
        "maxs": high,
        "quantization": 6,
    }
    return {"meta.json": json.dumps(meta).encode(), **files}


def webp(rgba: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(rgba, np.uint8)).save(
        out, "WEBP", lossless=True, exact=True, method=0
    )
    return out.getvalue()


def write_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return path


def write_checkpoint(path: Path, t: Truth, kind: str = "gsplat") -> Path:
    """Write a checkpoint as a trainer saves it.

    Args:
        path: The file.
        t: The scene.
        kind: gsplat, inria, nerfstudio, or mapping: one of views and doubles.
    """
    import torch

    values = {
        "gsplat": gsplat_checkpoint,
        "inria": inria_checkpoint,
        "nerfstudio": nerfstudio_checkpoint,
        "mapping": plain_mapping,
    }
    torch.save(values[kind](t), path)
    return path


def parameter(array: np.ndarray) -> torch.nn.Parameter:
    import torch

    return torch.nn.Parameter(torch.from_numpy(np.array(array)))


def gsplat_checkpoint(t: Truth) -> object:
    import torch

    splats = torch.nn.ParameterDict(
        {
            "means": parameter(t.means),
            "scales": parameter(t.scales),
            "quats": parameter(t.quats),
            "opacities": parameter(t.opacities),
            "sh0": parameter(t.sh0[:, None]),
            "shN": parameter(t.shN),
        }
    )
    return {"step": 6999, "splats": splats.state_dict()}


def inria_checkpoint(t: Truth) -> object:
    import torch

    n = len(t.means)
    zeros = torch.zeros(n, 3)
    state = {"step": torch.tensor(1.0), "exp_avg": zeros, "exp_avg_sq": zeros}
    group = {"lr": 1e-4, "name": "xyz", "betas": (0.9, 0.999), "params": [0]}
    capture = (
        degree_of(t),
        parameter(t.means),
        parameter(t.sh0[:, None]),
        parameter(t.shN),
        parameter(t.scales),
        parameter(t.quats),
        parameter(t.opacities[:, None]),
        torch.zeros(n),
        torch.zeros(n, 1),
        torch.zeros(n, 1),
        {"state": {0: state}, "param_groups": [group]},
        np.float64(4.2),
    )
    return capture, 30_000


def nerfstudio_checkpoint(t: Truth) -> object:
    import torch

    arrays = {
        "means": t.means,
        "scales": t.scales,
        "quats": t.quats,
        "features_dc": t.sh0,
        "features_rest": t.shN,
        "opacities": t.opacities[:, None],
    }
    pipeline = {"_model.camera_optimizer.x": torch.zeros(3)}
    for name, array in arrays.items():
        pipeline[f"_model.gauss_params.{name}"] = torch.from_numpy(array)
    return {"step": 10, "pipeline": pipeline, "optimizers": {}, "schedulers": {}}


def plain_mapping(t: Truth) -> object:
    """Return a mapping of tensors, of which one is a view with offset and strides."""
    import torch

    wide = torch.zeros(len(t.means), 9)
    wide[:, 2:8:2] = torch.from_numpy(t.means)
    return {
        "means": wide[:, 2:8:2],
        "scales": torch.from_numpy(t.scales).double(),
        "quats": torch.from_numpy(t.quats),
        "opacities": torch.from_numpy(t.opacities),
        "sh0": torch.from_numpy(t.sh0),
        "shN": torch.from_numpy(t.shN).transpose(0, 1).clone().transpose(0, 1),
    }


ENDLESS = (
    b"\x80\x02](K\x01K\x01\x86q\x00"
    + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(60))
    + b"}h\x3cK\x01se."
)
"""A small pickle with a key that is hashed without end.

The key is a tower of values that each hold the one before twice.
"""


@contextmanager
def little_memory() -> Iterator[None]:
    """Limit the process's memory: a reader that believes a lying count fails in here."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * os.sysconf("SC_PAGESIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def assert_same(s, t: Truth, tolerance: dict[str, float]) -> None:
    """Check that the scene `s` is `t` up to what a format's steps allow.

    Rotations are compared in degrees, opacities and colours as they are drawn.
    """
    s = Truth(*(np.asarray(getattr(s, name)) for name in FIELDS))
    assert s.means.shape == t.means.shape
    assert s.shN.shape == t.shN.shape
    assert np.abs(s.means - t.means).max() <= tolerance["means"]
    # The norm of the matrices' difference is sqrt(8) sin(angle / 2).
    norms = np.linalg.norm(matrix(s.quats) - matrix(t.quats), axis=(1, 2))
    angles = 2 * np.degrees(np.arcsin(np.minimum(norms / 8**0.5, 1)))
    assert angles.max() <= tolerance["degrees"]
    assert np.abs(s.scales - t.scales).max() <= tolerance["scales"]
    alpha_error = np.abs(alpha_of(s.opacities) - alpha_of(t.opacities))
    assert alpha_error.max() <= tolerance["alpha"]
    d = np.random.default_rng(8).normal(size=(40, 3))
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    assert np.abs(colors(s, d) - colors(t, d)).max() <= tolerance["color"]
