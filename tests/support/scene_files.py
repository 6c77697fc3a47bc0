"""Writers of every scene format, for the tests of the readers: short, from the formats' descriptions."""

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
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from splatview_viewer.geometry.rotations import matrix, quaternion
from splatview_viewer.scene.scene import FIELDS, SH_C0
from splatview_viewer.scene.turning import harmonics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIDE = 64  # pixels per row of a SOG palette entry
EXACT = {"means": 1e-6, "degrees": 1e-4, "scales": 1e-6, "alpha": 1e-6, "color": 1e-5}
FLIP = np.diag([1.0, -1.0, -1.0])  # between RDF and RUB axes


@dataclass
class Truth:
    """A scene to be written: log scales, logit opacities, shN (N, K-1, 3), in RDF axes."""

    means: np.ndarray
    quats: np.ndarray
    scales: np.ndarray
    opacities: np.ndarray
    sh0: np.ndarray
    shN: np.ndarray  # noqa: N815


def truth(n: int = 300, degree: int = 3, seed: int = 0) -> Truth:
    """A scene without any symmetry, within what the quantised formats can hold."""
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


def degree_of(t: Truth) -> int:
    return int((t.shN.shape[1] + 1) ** 0.5) - 1


def colors(s, directions: np.ndarray) -> np.ndarray:
    """(N, D, 3) colours of spherical harmonics, without the 0.5 and the clamp."""
    along = harmonics(directions, 4)[:, : s.shN.shape[1]]
    return SH_C0 * s.sh0[:, None] + np.einsum("dk,nkc->ndc", along, s.shN)


def to_rub(t: Truth, axes: np.ndarray = FLIP) -> Truth:
    """The same object in right-up-back axes, or in those which `axes` (3, 3) makes RDF again. The harmonics are fitted,
    not taken from a table of signs.
    """
    k = t.shN.shape[1]
    d = np.random.default_rng(5).normal(size=(64, 3))
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    turn = np.linalg.lstsq(
        harmonics(d, 4)[:, :k], harmonics(d @ axes.T, 4)[:, :k], rcond=None
    )[0]
    own = axes if axes[1, 1] else np.eye(3) * np.linalg.det(axes)
    quats = [quaternion(axes.T @ r @ own) for r in matrix(t.quats)]
    return replace(
        t,
        means=(t.means @ axes).astype(np.float32),
        quats=np.array(quats, np.float32).reshape(-1, 4),
        shN=np.einsum("jk,nkc->njc", turn, t.shN).astype(np.float32),
    )


def ply_columns(t: Truth, normals: bool = True) -> dict[str, np.ndarray]:
    """The properties of inria's PLY in its order."""
    flat = t.shN.transpose(0, 2, 1).reshape(
        len(t.means), 3 * t.shN.shape[1]
    )  # channel-major
    zero = np.zeros(len(t.means), np.float32)
    return {
        **dict(zip("xyz", t.means.T, strict=True)),
        **({f"n{a}": zero for a in "xyz"} if normals else {}),
        **{f"f_dc_{i}": t.sh0[:, i] for i in range(3)},
        **{f"f_rest_{i}": flat[:, i] for i in range(flat.shape[1])},
        "opacity": t.opacities,
        **{f"scale_{i}": t.scales[:, i] for i in range(3)},
        **{f"rot_{i}": t.quats[:, i] for i in range(4)},
    }


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
    """A PLY with a vertex element. `order`: "a" for a text. `header` and `footer` stand around it in the header,
    `before` and `after` around its data.
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
"""Of a mesh: two triangles around a polygon of four corners, as `faces` writes them."""


def faces(order: str = "<") -> bytes:
    """The records of `FACES`."""
    rows = [3, 0, 1, 2, 7], [4, 0, 1, 2, 3, 7], [3, 2, 3, 0, 7]
    if order == "a":
        return "\n".join(" ".join(map(str, row)) for row in rows).encode() + b"\n"
    packed = (struct.pack(f"{order}B{len(r) - 2}iB", *r) for r in rows)
    return b"".join(packed)


def write_compressed_ply(path: Path, t: Truth, colored: bool = True) -> Path:
    """SuperSplat's compressed PLY, without the reordering that its writers do."""
    n = len(t.means)
    chunks = -(-len(t.means) // 256)
    rgb = t.sh0 * SH_C0 + 0.5
    parts = {"": t.means, "scale_": t.scales} | ({"rgb": rgb} if colored else {})
    bounds = []
    scaled = {}
    names: list[str] = []
    for key, values in parts.items():
        axes = "rgb" if key == "rgb" else [key + a for a in "xyz"]
        low, high = (
            np.stack(
                [f(values[i * 256 : (i + 1) * 256], axis=0) for i in range(chunks)]
            )
            if chunks
            else np.zeros((0, 3))
            for f in (np.min, np.max)
        )
        bounds += [low, high]
        names += [f"{m}_{a}" for m in ("min", "max") for a in axes]
        of = np.arange(n) // 256
        scaled[key] = (values - low[of]) / np.maximum(high[of] - low[of], 1e-9)

    def pack(values, *bits):
        word = np.zeros(n, np.uint32)
        for v, b in zip(np.asarray(values).T, bits, strict=True):
            word = (word << np.uint32(b)) | np.clip(
                np.round(v * ((1 << b) - 1)), 0, (1 << b) - 1
            ).astype(np.uint32)
        return word

    largest, rest = smallest_three(t.quats)
    rotation = (largest.astype(np.uint32) << 30) | pack(rest / 2**0.5 + 0.5, 10, 10, 10)
    alpha = 1 / (1 + np.exp(-t.opacities))
    words = np.stack(
        [
            pack(scaled[""], 11, 10, 11),
            rotation,
            pack(scaled["scale_"], 11, 10, 11),
            pack(np.column_stack([scaled.get("rgb", rgb), alpha]), 8, 8, 8, 8),
        ],
        axis=1,
    ).astype("<u4")
    text = f"ply\nformat binary_little_endian 1.0\nelement chunk {chunks}\n"
    text += (
        "".join(f"property float {name}\n" for name in names) + f"element vertex {n}\n"
    )
    text += "".join(
        f"property uint packed_{w}\n"
        for w in ("position", "rotation", "scale", "color")
    )
    sh = b""
    if t.shN.shape[1]:
        flat = t.shN.transpose(0, 2, 1).reshape(n, 3 * t.shN.shape[1])
        text += f"element sh {n}\n" + "".join(
            f"property uchar f_rest_{i}\n" for i in range(flat.shape[1])
        )
        sh = (
            np.clip(np.floor((flat / 8 + 0.5) * 256), 0, 255).astype(np.uint8).tobytes()
        )
    table = np.concatenate(bounds, axis=1).astype("<f4").tobytes()
    path.write_bytes((text + "end_header\n").encode() + table + words.tobytes() + sh)
    return path


def smallest_three(quats: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of the largest component, and the others with that one made positive."""
    q = quats / np.linalg.norm(quats, axis=1, keepdims=True)
    largest = np.abs(q).argmax(axis=1)
    q = q * np.sign(q[np.arange(len(q)), largest])[:, None]
    return largest, np.array(
        [np.delete(row, i) for row, i in zip(q, largest, strict=True)]
    ).reshape(-1, 3)


def write_splat(path: Path, t: Truth) -> Path:
    out = np.empty(
        len(t.means), [("p", "<f4", 3), ("s", "<f4", 3), ("c", "u1", 4), ("q", "u1", 4)]
    )
    out["p"] = t.means
    out["s"] = np.exp(t.scales)
    rgba = np.column_stack([t.sh0 * SH_C0 + 0.5, 1 / (1 + np.exp(-t.opacities))])
    out["c"] = np.clip(np.round(rgba * 255), 0, 255)
    unit = t.quats / np.linalg.norm(t.quats, axis=1, keepdims=True)
    out["q"] = np.clip(np.round(unit * 128 + 128), 0, 255)
    path.write_bytes(out.tobytes())
    return path


def spz_sections(t: Truth, version: int = 3) -> list[bytes]:
    """The attributes as SPZ packs them; `t` in RUB axes."""

    def bytes_of(v):
        return np.clip(np.round(v), 0, 255).astype(np.uint8).tobytes()

    q = t.quats / np.linalg.norm(t.quats, axis=1, keepdims=True)
    if version == 1:
        positions = t.means.astype("<f2").tobytes()
    else:
        fixed = np.round(t.means.astype(np.float64) * 4096).astype("<i4")
        positions = fixed.reshape(-1, 1).view(np.uint8)[:, :3].tobytes()
    if version < 3:
        rotation = bytes_of((q * np.where(q[:, :1] < 0, -1, 1))[:, 1:] * 127.5 + 127.5)
    else:
        largest, rest = smallest_three(np.roll(q, -1, axis=1))
        word = largest.astype("<u4")
        for i in range(3):
            size = np.round(np.abs(rest[:, i]) * 2**0.5 * 511).astype("<u4")
            word = (word << 10) | ((rest[:, i] < 0).astype("<u4") << 9) | size
        rotation = word.astype("<u4").tobytes()
    alpha = 1 / (1 + np.exp(-t.opacities))
    return [
        positions,
        bytes_of(alpha * 255),
        bytes_of(t.sh0 * 0.15 * 255 + 127.5),
        bytes_of((t.scales + 10) * 16),
        rotation,
        bytes_of(t.shN * 128 + 128),
    ]


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
    """The files of a SOG by name; each Gaussian has its own entry in the palette of harmonics. Version 1 has bounds in
    place of codebooks, and the logit of the opacity among the colours.
    """
    n = len(t.means)
    k = t.shN.shape[1]
    width = -(-int(n**0.5 + 1) // 4) * 4
    height = -(-n // width) or 1

    def plane(rgba: np.ndarray) -> bytes:
        full = np.zeros((width * height, 4), np.uint8)
        full[:n] = rgba
        return webp(full.reshape(height, width, 4))

    logs = np.sign(t.means) * np.log1p(np.abs(t.means))
    low, high = (f(logs, axis=0) if n else np.zeros(3) for f in (np.min, np.max))
    sixteen = np.round((logs - low) / np.maximum(high - low, 1e-9) * 65535).astype(
        np.uint16
    )
    full = np.full((n, 1), 255, np.uint8)
    largest, rest = smallest_three(t.quats)
    quats = np.column_stack(
        [np.round((rest / 2**0.5 + 0.5) * 255), largest + 252]
    ).astype(np.uint8)
    alpha = 1 / (1 + np.exp(-t.opacities))
    head: dict = {"version": 2, "count": n} if version == 2 else {}
    shape = {} if version == 2 else {"shape": [n, 3]}
    meta: dict = head | {
        "means": shape
        | {
            "mins": low.tolist(),
            "maxs": high.tolist(),
            "files": ["means_l.webp", "means_u.webp"],
        },
        "quats": {"files": ["quats.webp"]},
    }
    files = {
        "means_l.webp": plane(
            np.concatenate([(sixteen & 255).astype(np.uint8), full], axis=1)
        ),
        "means_u.webp": plane(
            np.concatenate([(sixteen >> 8).astype(np.uint8), full], axis=1)
        ),
        "quats.webp": plane(quats),
    }

    def quantised(name: str, values: np.ndarray) -> np.ndarray:
        lo, hi = (float(f(values)) if values.size else 0.0 for f in (np.min, np.max))
        steps = np.round((values - lo) / max(hi - lo, 1e-9) * 255).astype(np.uint8)
        channels = values.shape[1]
        bounds: dict = {"mins": [lo] * channels, "maxs": [hi] * channels}
        if name == "shN":
            bounds = {"mins": lo, "maxs": hi}
        if version == 2:
            bounds = {"codebook": np.linspace(lo, hi, 256).tolist()}
        meta[name] = {"files": [f"{name}.webp"]} | bounds
        return steps

    files["scales.webp"] = plane(
        np.concatenate([quantised("scales", t.scales), full], axis=1)
    )
    if version == 2:
        rgba = np.column_stack([quantised("sh0", t.sh0), np.round(alpha * 255)])
    else:
        rgba = quantised("sh0", np.column_stack([t.sh0, t.opacities]))
    files["sh0.webp"] = plane(rgba)
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
        files["shN_labels.webp"] = plane(
            np.column_stack([label & 255, label >> 8, 0 * label, full])
        )
    return {"meta.json": json.dumps(meta).encode(), **files}


def gsplat_png_files(t: Truth) -> dict[str, bytes]:
    """The files of gsplat's PNG compression by name, of a square number of Gaussians; each is its own centroid."""
    side = math.isqrt(len(t.means))
    assert side * side == len(t.means)
    unit = t.quats / np.linalg.norm(t.quats, axis=1, keepdims=True)
    fields = {
        "means": np.sign(t.means) * np.log1p(np.abs(t.means)),
        "scales": t.scales,
        "quats": unit,
        "opacities": t.opacities[:, None],
        "sh0": t.sh0,
    }
    shapes = {"opacities": [len(t.means)], "sh0": [len(t.means), 1, 3]}
    meta: dict = {}
    files: dict[str, bytes] = {}

    def png(name: str, values: np.ndarray) -> None:
        grid = values.astype(np.uint8).reshape(side, side, -1).squeeze()
        Image.fromarray(grid).save(out := io.BytesIO(), "PNG")
        files[f"{name}.png"] = out.getvalue()

    for name, values in fields.items():
        low = values.min(0)
        high = values.max(0)
        top = 65535 if name == "means" else 255
        steps = np.round((values - low) / (high - low) * top).astype(int)
        if name == "means":
            png("means_l", steps & 255)
            png("means_u", steps >> 8)
        else:
            png(name, steps)
        meta[name] = {
            "shape": shapes.get(name, list(values.shape)),
            "dtype": "float32",
            "mins": low.tolist(),
            "maxs": high.tolist(),
        }
    low = float(t.shN.min())
    high = float(t.shN.max())
    centroids = np.round((t.shN.reshape(len(t.means), -1) - low) / (high - low) * 63)
    np.savez_compressed(
        out := io.BytesIO(),
        centroids=np.asfortranarray(centroids.astype(np.uint8)[::-1]),
        labels=np.arange(len(t.means), dtype=np.uint16)[::-1],
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
    """As gsplat, inria or nerfstudio save it, or ("mapping") a plain mapping of views and doubles."""
    import torch

    def p(a):
        return torch.nn.Parameter(torch.from_numpy(np.array(a)))

    if kind == "gsplat":
        splats = torch.nn.ParameterDict(
            {
                "means": p(t.means),
                "scales": p(t.scales),
                "quats": p(t.quats),
                "opacities": p(t.opacities),
                "sh0": p(t.sh0[:, None]),
                "shN": p(t.shN),
            }
        )
        value = {"step": 6999, "splats": splats.state_dict()}
    elif kind == "inria":
        xyz = p(t.means)
        zeros = torch.zeros(len(t.means), 3)
        optimizer = {
            "state": {
                0: {"step": torch.tensor(1.0), "exp_avg": zeros, "exp_avg_sq": zeros}
            },
            "param_groups": [
                {"lr": 1e-4, "name": "xyz", "betas": (0.9, 0.999), "params": [0]}
            ],
        }
        capture = (
            degree_of(t),
            xyz,
            p(t.sh0[:, None]),
            p(t.shN),
            p(t.scales),
            p(t.quats),
            p(t.opacities[:, None]),
            torch.zeros(len(t.means)),
            torch.zeros(len(t.means), 1),
            torch.zeros(len(t.means), 1),
            optimizer,
            np.float64(4.2),
        )
        value = (capture, 30_000)
    elif kind == "nerfstudio":
        g = {
            "means": t.means,
            "scales": t.scales,
            "quats": t.quats,
            "features_dc": t.sh0,
            "features_rest": t.shN,
            "opacities": t.opacities[:, None],
        }
        pipeline = {
            f"_model.gauss_params.{k}": torch.from_numpy(v) for k, v in g.items()
        }
        value = {
            "step": 10,
            "pipeline": {"_model.camera_optimizer.x": torch.zeros(3), **pipeline},
            "optimizers": {},
            "schedulers": {},
        }
    else:  # a mapping of tensors, one of them a view with an offset and strides
        wide = torch.zeros(len(t.means), 9)
        wide[:, 2:8:2] = torch.from_numpy(t.means)
        value = {
            "means": wide[:, 2:8:2],
            "scales": torch.from_numpy(t.scales).double(),
            "quats": torch.from_numpy(t.quats),
            "opacities": torch.from_numpy(t.opacities),
            "sh0": torch.from_numpy(t.sh0),
            "shN": torch.from_numpy(t.shN).transpose(0, 1).clone().transpose(0, 1),
        }
    torch.save(value, path)
    return path


ENDLESS = (
    b"\x80\x02](K\x01K\x01\x86q\x00"
    + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(60))
    + b"}h\x3cK\x01se."
)
"""A small pickle with a key that is hashed without end: a tower of values that each hold the one before twice."""


@contextmanager
def little_memory() -> Iterator[None]:
    """A reader that believes a lying count fails in here instead of filling the machine's memory."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * os.sysconf("SC_PAGESIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def assert_same(s, t: Truth, tolerance: dict[str, float]) -> None:
    """The scene `s` is `t` up to what a format's steps allow; degrees of rotation, alpha and colour as seen."""
    s = Truth(*(np.asarray(getattr(s, name)) for name in FIELDS))
    assert s.means.shape == t.means.shape
    assert s.shN.shape == t.shN.shape
    assert np.abs(s.means - t.means).max() <= tolerance["means"]
    apart = np.linalg.norm(
        matrix(s.quats) - matrix(t.quats), axis=(1, 2)
    )  # sqrt(8) sin(angle / 2)
    assert (
        2 * np.degrees(np.arcsin(np.minimum(apart / 8**0.5, 1))).max()
        <= tolerance["degrees"]
    )
    assert np.abs(s.scales - t.scales).max() <= tolerance["scales"]
    assert (
        np.abs(1 / (1 + np.exp(-s.opacities)) - 1 / (1 + np.exp(-t.opacities))).max()
        <= tolerance["alpha"]
    )
    d = np.random.default_rng(8).normal(size=(40, 3))
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    assert np.abs(colors(s, d) - colors(t, d)).max() <= tolerance["color"]
