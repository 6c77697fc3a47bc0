"""Gaussians in PyTorch checkpoints: which tensors of which trainer mean what.

gsplat (simple_trainer.py): {"step", "splats": {...}}, one file per rank, with spherical harmonics or, under
appearance optimisation, with features and logit colours. inria: (capture_tuple, iteration). nerfstudio: "pipeline"
with ...gauss_params.*. SplaTAM: means3D, rgb_colors, log_scales (N, 1) or (N, 3), and so on. Besides these any mapping
that holds means, scales, quats, opacities and colours.

`torch.load(weights_only=True)` reads them, in a sandbox: a pickle of a few hundred bytes can take all memory, or never
end. Objects that trainers save beside the tensors (inria's `capture` has a NumPy number) become stand-ins, because
NumPy's own reconstructors are not safe with forged arguments.

torch before 2.10 lets a checkpoint made for the purpose corrupt memory (CVE-2026-24747): open files from strangers
with a current torch.
"""

from __future__ import annotations

import itertools
import os
import re
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import (
    SHARE,
    ZIP_MAGIC,
    Fields,
    Format,
    Progress,
    SceneFacts,
    Start,
    check_memory,
    clipped,
    fields_of,
    open_zip,
)
from splatview_viewer.formats.sandbox import limits_for, run
from splatview_viewer.scene.scene import as_floats, sh0_of_rgb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from splatview_viewer.formats.sandbox import File

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
RANK = re.compile(
    r"(?P<stem>.*?(?P<step>[0-9]{0,18}))_rank(?P<rank>[0-9]{1,6})(?P<suffix>\.\w+)"
)
HARMLESS = (
    "numpy.dtype",
    "numpy.ndarray",
    *(
        f"numpy.{m}.multiarray.{n}"
        for m in ("_core", "core")
        for n in ("scalar", "_reconstruct")
    ),
    "argparse.Namespace",
    "pathlib.PosixPath",
    "pathlib._local.PosixPath",
    *(
        f"{m}.{n}"
        for m in ("builtins", "__builtin__")
        for n in ("int", "float", "list", "dict", "set")
    ),
    "_codecs.encode",
    "collections.defaultdict",
)
"""Names that checkpoints mention and whose values are not needed. torch 2.4 takes protocol 2's names as they stand
(`__builtin__`) and does not know sets, nor `_codecs.encode`, the bytes of a NumPy number; later ones know and prefer
their own.
"""
REFUSED = re.compile(
    r"GLOBAL `?(.+?)`? (?:was not an allowed|whose module|instruction)", re.DOTALL
)
"""How torch names an object that it does not import."""
NEXT_STEP = "Save a state dict, torch.save({'splats': module.state_dict()}, path), or export a .ply."


class _Ignored:
    """Stands in for an object that is not looked at: takes any arguments and any state, and keeps none."""

    def __new__(cls, *args: Any) -> Any:
        """Return a plain dict for a `collections.defaultdict`, whose items are then set on it."""
        return {} if cls.__name__ == "defaultdict" else super().__new__(cls)

    def __init__(self, *args: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


# torch knows what it may build by `__module__` and `__qualname__` (2.4: `__name__`).
_STAND_INS: list[Any] = [
    type(name, (_Ignored,), {"__module__": module, "__qualname__": name})
    for module, _, name in (full.rpartition(".") for full in HARMLESS)
]


def read_checkpoint(path: Path, progress: Progress) -> Fields:
    """Return the Gaussians of a checkpoint file, or of a folder of them; the ranks of one step are joined."""
    files, notes = _ranks(path)
    size = sum(file.stat().st_size for file in files)
    limits = limits_for(size, SHARE)
    limits = limits._replace(
        memory=limits.memory + size
    )  # the files are mapped, which takes no memory
    facts, arrays = run(
        read_ranks, files, limits, SceneFacts, prepare=import_torch, progress=progress
    )
    return fields_of(msgspec.structs.replace(facts, notes=notes + facts.notes), arrays)


def import_torch(files: list[File]) -> None:
    """Import torch for what may be a checkpoint."""
    with open(files[0].path, "rb") as f:
        if f.read(4) == ZIP_MAGIC and not files[0].name.lower().endswith(
            (".sog", ".zip")
        ):
            import torch  # noqa: F401


def read_ranks(
    files: list[File], progress: Progress
) -> tuple[SceneFacts, list[np.ndarray]]:
    """Read the files of one checkpoint, in the sandbox."""
    fields = read_tensors([file.path for file in files], progress)
    return fields.facts, fields.arrays


def read_tensors(files: Sequence[Path], progress: Progress) -> Fields:
    """Return the Gaussians of checkpoint files, joined. Only for a process whose memory and time are bounded.

    Raises:
        FileError: not such a file, damaged, or it holds objects that only unpickling could bring back.
    """
    parts: list[Fields] = []
    degree = None
    for i, file in enumerate(files):
        progress("reading tensors", i / len(files))
        tensors, degree = _find(_load(file))
        arrays = {name: _array(tensor, name) for name, tensor in tensors.items()}
        means, opacities = arrays["means"], arrays["opacities"]
        n = len(means) if means.ndim else 0
        if (
            "colors" in arrays
        ):  # gsplat's appearance optimisation: logits of the colour before the network's share
            arrays.setdefault("rgb", 1 / (1 + np.exp(-arrays["colors"])))
        sh0 = arrays["sh0"] if "sh0" in arrays else sh0_of_rgb(arrays["rgb"])
        parts.append(
            Fields(
                means=means,
                quats=arrays["quats"],
                scales=arrays["scales"],
                opacities=opacities[:, 0] if opacities.shape == (n, 1) else opacities,
                sh0=sh0[:, 0] if sh0.shape == (n, 1, 3) else sh0,
                shN=arrays.get("shN", np.zeros((n, 0, 3), np.float32)),
            )
        )
    progress("reading tensors", 1.0)
    check_memory(
        2 * sum(a.nbytes for part in parts for a in part.arrays), "the tensors"
    )
    if len({p.shN.shape[1:] for p in parts}) > 1:
        raise FileError("the ranks hold spherical harmonics of different degrees")
    whole = (
        parts[0]
        if len(parts) == 1
        else Fields(
            *(
                np.concatenate(columns)
                for columns in zip(*(p.arrays for p in parts), strict=True)
            )
        )
    )
    return whole.checked(sh_degree=degree)


def _load(path: Path) -> Any:
    """Return what `torch.save` wrote: mappings, lists, tuples, numbers, texts, and tensors mapped from the file.

    Raises FileError for what `torch.load` would run (a TorchScript archive, before torch 2.6: CVE-2025-32434), misread
    or refuse.
    """
    import torch
    from torch import serialization

    with open(path, "rb") as f:
        if f.read(4) != ZIP_MAGIC:
            raise FileError(
                "checkpoint: not a zip file of torch.save (torch older than 1.6, or a plain pickle?). "
                f"Nothing is unpickled here. {NEXT_STEP}"
            )
    with open_zip(path) as archive:
        for entry in archive.infolist():
            if entry.filename.rpartition("/")[2] == "constants.pkl":
                raise FileError(
                    f"checkpoint: a TorchScript archive, which is a program. {NEXT_STEP}"
                )
            if entry.compress_type:
                raise FileError(
                    f"checkpoint: {entry.filename[:60]!r} is compressed; torch.save writes entries not "
                    "compressed, and only such are read"
                )
    serialization.add_safe_globals(_STAND_INS)
    try:
        return torch.load(
            os.fspath(path), map_location="cpu", weights_only=True, mmap=True
        )
    except (OSError, MemoryError):
        raise
    except Exception as e:  # a damaged file makes torch's reader raise nearly anything
        text = str(e)[:4000]
        if "allocate memory" in text:
            raise MemoryError from None
        if refused := REFUSED.search(text):
            raise FileError(
                f"checkpoint: torch.load(weights_only=True) refuses the Python object {refused[1][:120]!r} "
                f"in it: only unpickling, which runs code from the file, could bring it back. {NEXT_STEP}"
            ) from None
        text = (
            (text.partition("WeightsUnpickler error:")[2] or text)
            .strip()
            .partition("\n")[0][:200]
        )
        raise FileError(
            "checkpoint: torch.load(weights_only=True) refuses it: damaged, or not only tensors "
            f"({type(e).__name__}: {text}). {NEXT_STEP}"
        ) from None


def _array(tensor: Any, name: str) -> np.ndarray:
    """Return a tensor's values as float32, or float64 where they are that, in its own shape; may share its memory.

    Raises:
        FileError: not a dense tensor of real numbers, or it shows more than the file holds for it.
    """
    import torch

    plain = (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
    )
    if (
        not plain
        or tensor.layout is not torch.strided
        or tensor.is_complex()
        or tensor.is_quantized
    ):
        raise FileError(
            f"checkpoint: tensor {name!r} is {getattr(tensor, 'dtype', type(tensor))}, "
            f"{getattr(tensor, 'layout', '')}; a dense tensor of real numbers is needed"
        )
    held = tensor.untyped_storage().nbytes()
    if (
        tensor.numel() * tensor.element_size() > held
    ):  # a stride of 0: a few bytes that would become gigabytes
        raise FileError(
            f"checkpoint: tensor {name!r} of shape {tuple(tensor.shape)} claims more than the "
            f"{held:,} bytes that the file holds for it"
        )
    return as_floats(tensor).numpy()


def _ranks(path: Path) -> tuple[list[Path], tuple[str, ...]]:
    """Return the files that make one scene: a file with its sibling ranks, or the latest step of a folder."""
    if path.is_dir():
        folders = [path, path / "ckpts"]
        every = [
            (int(m["step"] or -1), f.name, f)
            for folder in folders
            if folder.is_dir()
            for f in folder.iterdir()
            if (m := RANK.fullmatch(f.name))
        ]
        if not every:
            raise FileError("no checkpoint named *_rank*.pt in the folder")
        path = max(every)[2]
    match = RANK.fullmatch(path.name)
    if match is None:
        return [path], ()
    ranks = {
        int(m["rank"]): f
        for f in path.parent.iterdir()
        if (m := RANK.fullmatch(f.name))
        and (m["stem"], m["suffix"]) == (match["stem"], match["suffix"])
    }
    notes = (
        (f"{len(ranks)} ranks of {match['stem']} put together",)
        if len(ranks) > 1
        else ()
    )
    if absent := [str(r) for r in range(max(ranks)) if r not in ranks]:
        notes += (
            f"rank {', '.join(absent[:8])} of {match['stem']} is missing: the scene has holes",
        )
    return [ranks[r] for r in sorted(ranks)], notes


def _find(root: Any) -> tuple[dict[str, Any], int | None]:
    """Return the tensors of the Gaussians by field in whatever the checkpoint holds, and the degree in use."""
    from torch import Tensor

    if (
        isinstance(root, tuple)
        and len(root) == 2
        and isinstance(root[0], tuple)
        and len(root[0]) >= 7
    ):
        # inria: capture() = active_sh_degree, xyz, features_dc, features_rest, scaling, rotation, opacity, ...
        active, *rest = root[0]
        tensors: dict[str, Any] = dict(zip(INRIA, rest, strict=False))
        if isinstance(active, int) and all(
            isinstance(t, Tensor) for t in tensors.values()
        ):
            return tensors, active
    if not isinstance(root, dict):
        raise FileError(
            f"checkpoint: it holds a {'tensor' if isinstance(root, Tensor) else type(root).__name__}, not "
            "a mapping of tensors nor inria's (capture, iteration)"
        )
    for mapping in (
        root,
        *(value for value in root.values() if isinstance(value, dict)),
    ):
        groups: dict[
            str, dict[str, Any]
        ] = {}  # by prefix (`model.gauss_params.`), found in one pass
        for key, value in mapping.items():
            if isinstance(key, str):
                prefix, _, last = key.rpartition(".")
                groups.setdefault(prefix, {})[last] = value
        for inside in groups.values():
            tensors = {
                field: inside[alias]
                for field, aliases in NAMES.items()
                for alias in aliases
                if isinstance(inside.get(alias), Tensor)
            }
            found = tensors.keys()
            if found >= {"means", "scales", "quats", "opacities"} and found & {
                "sh0",
                "colors",
                "rgb",
            }:
                return tensors, None
    keys = [
        key
        for value in (root, *root.values())
        if isinstance(value, dict)
        for key in itertools.islice(value, 8)
    ]
    raise FileError(
        "checkpoint: no Gaussians in it. Looked for means, scales, quats, opacities and sh0 (or colors); it has "
        f"{', '.join(clipped(key) for key in keys[:16] if isinstance(key, str)) or 'no names'}"
    )


def _is_checkpoint(start: Start) -> bool:
    if start.path.is_dir():
        return any(start.path.glob("*_rank*.pt")) or any(
            start.path.glob("ckpts/*_rank*.pt")
        )
    # A pickle is none, and the reader has the words for it.
    return "data.pkl" in start.zip_names or (
        start.head[:1] == b"\x80" and start.suffix != ".splat"
    )


CHECKPOINT = Format(
    "checkpoint",
    (".pt", ".pth", ".ckpt"),
    "checkpoints of gsplat (all ranks), inria and nerfstudio",
    _is_checkpoint,
    read_checkpoint,
    by_suffix=True,
    parts=lambda path: _ranks(path)[0],
)
