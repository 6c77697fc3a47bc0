"""Gaussians in PyTorch checkpoints: which tensors of which trainer mean what.

gsplat (simple_trainer.py): {"step", "splats": {...}}, one file per rank, with spherical harmonics or, under
appearance optimisation, with features and logit colours. inria: (capture_tuple, iteration). nerfstudio: "pipeline"
with ...gauss_params.*. SplaTAM: means3D, rgb_colors, log_scales (N, 1) or (N, 3), and so on. Besides these any mapping
that holds means, scales, quats, opacities and colours.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.errors import FileError
from splatview_viewer.files.bounds import check_memory
from splatview_viewer.files.common import Fields, Progress
from splatview_viewer.files.tensors import is_tensor, load_checkpoint
from splatview_viewer.scene import sh0_of_rgb

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from splatview_viewer.scene import GaussianScene

NAMES = {
    "means": ("means", "xyz", "_xyz", "means3D"),
    "scales": ("scales", "scaling", "_scaling", "log_scales"),
    "quats": ("quats", "rotation", "rotations", "_rotation", "unnorm_rotations"),
    "opacities": ("opacities", "opacity", "_opacity", "logit_opacities"),
    "sh0": ("sh0", "features_dc", "_features_dc", "f_dc"),
    "shN": ("shN", "features_rest", "_features_rest", "f_rest"),
    "colors": ("colors",),
    "rgb": ("rgb_colors",),
}
"""What trainers call the fields; the first is gsplat's."""
INRIA = ("means", "sh0", "shN", "scales", "quats", "opacities")
"""The order of the tensors in what inria's `GaussianModel.capture` returns, after the active degree."""
NESTED = ("splats", "pipeline", "gauss_params", "gaussians", "state_dict", "model", "params")
"""Keys under which trainers keep the mapping."""
RANK = re.compile(r"(?P<stem>.*)_rank(?P<rank>[0-9]{1,18})(?P<suffix>\.\w+)")
STEP = re.compile(r"([0-9]{1,18})$")


@dataclass
class _Found:
    """The tensors of one checkpoint by field name, and what else it says."""

    tensors: dict[str, Any]
    sh_degree: int | None = None


def read_checkpoint(path: Path, progress: Progress) -> GaussianScene:
    """The Gaussians of a checkpoint file or a folder of them; the ranks of one step are put together."""
    files, notes = _ranks(path)
    # torch reads all entries of a file, the optimizer's too; several ranks are there once more when they are joined.
    check_memory(sum(f.stat().st_size for f in files) * min(len(files), 2), f"the tensors of {path.name}")
    parts: list[Fields] = []
    degree = None
    for i, file in enumerate(files):
        progress("reading tensors", i / len(files))
        part, degree = _read_one(file)
        parts.append(part)
    progress("reading tensors", 1.0)
    if len({p.shN.shape[1:] for p in parts}) > 1:
        raise FileError("the ranks hold spherical harmonics of different degrees")
    whole = parts[0] if len(parts) == 1 else Fields(
        *(np.concatenate([getattr(p, name) for p in parts]) for name in parts[0].__dataclass_fields__))
    return whole.scene(sh_degree=degree, notes=notes)


def _read_one(file: Path) -> tuple[Fields, int | None]:
    """The Gaussians of one file and the degree it says is in use; the optimizer's state is let go of on return."""
    checkpoint = load_checkpoint(file)
    found = _find(checkpoint.root)
    return _fields({name: checkpoint.array(t, name) for name, t in found.tensors.items()}), found.sh_degree


def _ranks(path: Path) -> tuple[list[Path], tuple[str, ...]]:
    """The files that make one scene: a file with its sibling ranks, or the latest step of a folder."""
    if path.is_dir():
        folders = [path, path / "ckpts"]
        every = [f for folder in folders if folder.is_dir() for f in folder.iterdir() if RANK.fullmatch(f.name)]
        if not every:
            raise FileError("no checkpoint named *_rank*.pt in the folder")
        path = max(every, key=_step)
    match = RANK.fullmatch(path.name)
    if match is None:
        return [path], ()
    ranks = {int(m["rank"]): f for f in path.parent.iterdir()
             if (m := RANK.fullmatch(f.name)) and (m["stem"], m["suffix"]) == (match["stem"], match["suffix"])}
    notes = (f"{len(ranks)} ranks of {match['stem']} put together",) if len(ranks) > 1 else ()
    # A file may be called rank 10^18: the ranks before it are not counted through.
    absent = list(itertools.islice((r for r in range(max(ranks)) if r not in ranks), 8))
    if absent:
        notes += (f"rank {', '.join(map(str, absent))} of {match['stem']} is missing: the scene has holes",)
    return [ranks[r] for r in sorted(ranks)], notes


def _step(path: Path) -> tuple[int, str]:
    match = RANK.fullmatch(path.name)
    number = STEP.search(match["stem"]) if match else None
    return (int(number[1]) if number else -1, path.name)


def _find(root: Any) -> _Found:
    """Which tensors are the Gaussians' in whatever the checkpoint holds."""
    if isinstance(root, tuple) and len(root) == 2 and isinstance(root[0], tuple) and len(root[0]) >= 7:
        # inria: capture() = active_sh_degree, xyz, features_dc, features_rest, scaling, rotation, opacity, ...
        active, *rest = root[0]
        tensors: dict[str, Any] = dict(zip(INRIA, rest, strict=False))
        if isinstance(active, int) and all(map(is_tensor, tensors.values())):
            return _Found(tensors, active)
    if not isinstance(root, dict):
        raise FileError(f"checkpoint: it holds a {_kind(root)}, not a mapping of tensors nor inria's "
                        "(capture, iteration)")
    for mapping in (root, *(root[key] for key in NESTED if isinstance(root.get(key), dict))):
        for inside in _groups(mapping):
            tensors = {field: inside[alias] for field, aliases in NAMES.items() for alias in aliases
                       if is_tensor(inside.get(alias))}
            missing = {"means", "scales", "quats", "opacities"} - tensors.keys()
            if not missing and tensors.keys() & {"sh0", "colors", "rgb"}:
                return _Found(tensors)
    raise FileError(
        "checkpoint: no Gaussians in it. Looked for means, scales, quats, opacities and sh0 (or colors) under "
        f"{', '.join(NESTED)} or at the top; it has {_listing(root)}")


def _groups(mapping: dict[Any, Any]) -> Iterable[dict[str, Any]]:
    """Return the entries of each prefix (`model.gauss_params.`) by their last names, found in one pass."""
    groups: dict[str, dict[str, Any]] = {}
    for key, value in mapping.items():
        if isinstance(key, str):
            prefix, _, last = key.rpartition(".")
            groups.setdefault(prefix, {})[last] = value
    return groups.values()


def _kind(value: Any) -> str:
    return "tensor" if is_tensor(value) else type(value).__name__


def _listing(mapping: dict[Any, Any]) -> str:
    """Some keys of a mapping and of the mappings in it."""
    keys: list[str] = []
    for key, value in mapping.items():
        inside = itertools.islice(value, 8) if isinstance(value, dict) else ()
        keys += [f"{_short(key)}.{_short(k)}" for k in inside] or [_short(key)]
        if len(keys) > 16:
            break
    return ", ".join(k[:60] for k in keys[:16]) + (" ..." if len(keys) > 16 else "") if keys else "nothing"


def _short(key: Any) -> str:
    """Return a key for a message. One that is a tuple of tuples of tuples is not written out."""
    return str(key)[:60] if isinstance(key, (str, int, float)) else type(key).__name__


def _fields(arrays: dict[str, np.ndarray]) -> Fields:
    means, opacities = arrays["means"], arrays["opacities"]
    n = len(means) if means.ndim else 0
    if "colors" in arrays:  # gsplat's appearance optimisation: logits of the colour before the network's share
        arrays.setdefault("rgb", 1 / (1 + np.exp(-arrays["colors"])))
    sh0 = arrays["sh0"] if "sh0" in arrays else sh0_of_rgb(arrays["rgb"])
    return Fields(
        means=means, quats=arrays["quats"], scales=arrays["scales"],
        opacities=opacities[:, 0] if opacities.shape == (n, 1) else opacities,
        sh0=sh0[:, 0] if sh0.shape == (n, 1, 3) else sh0,
        shN=arrays.get("shN", np.zeros((n, 0, 3), np.float32)))
