"""Gaussians in PyTorch checkpoints: which tensors of which trainer mean what.

gsplat (simple_trainer.py): {"step", "splats": {...}}, one file per rank, with spherical
harmonics or, under appearance optimisation, with features and logit colours. inria:
(capture_tuple, iteration), also as hustvl/4DGaussians has it. nerfstudio: "pipeline"
with ...gauss_params.*. gaussian-splatting-lightning: "state_dict" with
gaussian_model.gaussians.*. 3DGRUT, fVDB, SplaTAM: `trainer_names` lists the names.
Besides these any mapping that holds means, scales, quats, opacities and colours, under
any common prefix.

`torch.load(weights_only=True)` reads them, in a sandbox: a pickle of a few hundred
bytes can take all memory, or never end. Objects that trainers save beside the tensors
(inria's `capture` has a NumPy number) become stand-ins, because NumPy's own
reconstructors are not safe with forged arguments.

torch before 2.10 lets a checkpoint made for the purpose corrupt memory
(CVE-2026-24747): open files from strangers with a current torch.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.common import (
    SHARE,
    ZIP_MAGIC,
    Fields,
    Format,
    Progress,
    SceneFacts,
    Start,
    check_memory,
    fields_of,
    open_zip,
)
from splatview_viewer.formats.repeats import check_repeats
from splatview_viewer.formats.sandbox import limits_for, run
from splatview_viewer.formats.trainer_names import fields_from, find_tensors, joined
from splatview_viewer.scene.scene import as_floats

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from splatview_viewer.formats.sandbox import File

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
    "typing.Any",
)
"""Names that checkpoints mention and whose values are not needed. torch 2.4 takes
protocol 2's names as they stand (`__builtin__`) and does not know sets, nor
`_codecs.encode`, the bytes of a NumPy number; later ones know and prefer their own."""
PICKLE_NAME = b"data.pkl"
_SCANNED = 1 << 20
"""Bytes at both ends of a file in which the name of a checkpoint's pickle is looked
for."""
CONFIGS = ("config.yml", "cfg.yml")
"""Names of nerfstudio's and gsplat's settings."""
CHECKPOINT_FOLDERS = ("nerfstudio_models", "ckpts", "checkpoints")
"""Names of folders of checkpoints, whose settings are in the folder above."""
MOST_CONFIG = 1 << 20
"""Bytes that are read of them."""
ANTIALIASED = re.compile(
    rb"^[ \t]*(rasterize_mode:[ \t]*['\"]?antialiased|antialiased:[ \t]*true)\b",
    re.MULTILINE,
)
REFUSED = re.compile(
    r"GLOBAL `?(.+?)`? (?:was not an allowed|whose module|instruction)", re.DOTALL
)
"""How torch names an object that it does not import."""
MOST_FOREIGN = 64
"""Names of trainers' own objects that a checkpoint may mention."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+", re.ASCII)
_OWN_PACKAGES = {
    *sys.stdlib_module_names,
    "__builtin__",
    "copy_reg",
    "torch",
    "functorch",
    "numpy",
    "splatview",
    "splatview_ipc",
    "splatview_viewer",
}
NEXT_STEP = "Save a state dict, torch.save({'splats': module.state_dict()}, path), or export a .ply."


class _Ignored:
    """Stands in for an object that is not looked at: takes any arguments and any state,
    and keeps none.
    """

    def __new__(cls, *args: Any) -> Any:
        """Return a plain dict for a `collections.defaultdict`, whose items are then set
        on it.
        """
        return {} if cls.__name__ == "defaultdict" else super().__new__(cls)

    def __init__(self, *args: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


def _stand_in(full_name: str) -> Any:
    """Return a class of this name that keeps nothing.

    torch knows what it may build by `__module__` and `__qualname__` (2.4: `__name__`).
    """
    module, _, name = full_name.rpartition(".")
    return type(name, (_Ignored,), {"__module__": module, "__qualname__": name})


_STAND_INS: list[Any] = [_stand_in(full_name) for full_name in HARMLESS]


def read_checkpoint(path: Path, progress: Progress) -> Fields:
    """Return the Gaussians of a checkpoint file, or of a folder of them; the ranks of
    one step are joined.
    """
    files, notes = _ranks(path)
    size = sum(file.stat().st_size for file in files)
    limits = limits_for(size, SHARE)
    limits = limits._replace(
        memory=limits.memory + size
    )  # the files are mapped, which takes no memory
    facts, arrays = run(
        read_ranks, files, limits, SceneFacts, prepare=import_torch, progress=progress
    )
    facts = msgspec.structs.replace(
        facts,
        notes=notes + facts.notes,
        antialiased=facts.antialiased or _was_antialiased(files[0]),
    )
    return fields_of(facts, arrays)


def _was_antialiased(checkpoint: Path) -> bool:
    """Return whether the settings beside a checkpoint, or above its folder, say that
    the scene was trained so.
    """
    folder = Path(os.path.abspath(checkpoint)).parent
    folders = [folder]
    if folder.name in CHECKPOINT_FOLDERS:
        folders.append(folder.parent)
    for path in (place / name for place in folders for name in CONFIGS):
        try:
            with open_regular(path) as f:
                text = f.read(MOST_CONFIG)
        except (OSError, ValueError, FileError):
            continue
        if ANTIALIASED.search(text) is not None:
            return True
    return False


def import_torch(files: list[File]) -> None:
    """Import torch for what may be a checkpoint: a confined process cannot, since torch
    starts programs for that.
    """
    with open(files[0].path, "rb") as f:
        head = f.read(_SCANNED)
        f.seek(max(0, f.seek(0, os.SEEK_END) - _SCANNED))
        tail = f.read(_SCANNED)
    # As `torch.save` names it; whether the zip is one is for the reader, which has
    # limits.
    if head[:4] == ZIP_MAGIC and (PICKLE_NAME in head or PICKLE_NAME in tail):
        import torch  # noqa: F401


def read_ranks(
    files: list[File], progress: Progress
) -> tuple[SceneFacts, list[np.ndarray]]:
    """Read the files of one checkpoint, in the sandbox."""
    fields = read_tensors([file.path for file in files], progress)
    return fields.scene_facts, fields.arrays


def read_tensors(files: Sequence[Path], progress: Progress) -> Fields:
    """Return the Gaussians of checkpoint files, joined.

    Only for a process whose memory and time are bounded.

    Raises:
        FileError: not such a file, damaged, or it holds objects that only unpickling
            could bring back.
    """
    parts: list[Fields] = []
    degree = None
    for i, file in enumerate(files):
        progress("reading tensors", i / len(files))
        root = _load(file)
        check_repeats(root, file.stat().st_size)
        found = find_tensors(root, _is_tensor)
        degree = found.degree
        arrays = {name: _array(t, name) for name, t in found.tensors.items()}
        parts.append(fields_from(arrays, found))
    progress("reading tensors", 1.0)
    check_memory(
        2 * sum(a.nbytes for part in parts for a in part.arrays), "the tensors"
    )
    return joined(parts).checked(sh_degree=degree)


def _load(path: Path) -> Any:
    """Return what `torch.save` wrote: mappings, lists, tuples, numbers, texts, and
    tensors mapped from the file.

    Raises FileError for what `torch.load` would run (a TorchScript archive, before
    torch 2.6: CVE-2025-32434), misread or refuse.
    """
    with open(path, "rb") as f:
        if f.read(4) != ZIP_MAGIC:
            raise FileError(
                "checkpoint: not a zip file of torch.save (torch older than 1.6, or a "
                "plain pickle?). "
                f"Nothing is unpickled here. {NEXT_STEP}"
            )
    with open_zip(path) as archive:
        for entry in archive.infolist():
            if entry.filename.rpartition("/")[2] == "constants.pkl":
                raise FileError(
                    "checkpoint: a TorchScript archive, which is a program. "
                    f"{NEXT_STEP}"
                )
            if entry.compress_type:
                raise FileError(
                    f"checkpoint: {entry.filename[:60]!r} is compressed; torch.save "
                    "writes entries not "
                    "compressed, and only such are read"
                )
    import torch
    from torch import serialization

    serialization.add_safe_globals(_STAND_INS)
    error: Exception | None = None
    for _ in range(MOST_FOREIGN):
        try:
            with warnings.catch_warnings():
                # What torch says of a file's contents is not for its reader's user.
                warnings.simplefilter("ignore")
                return torch.load(
                    os.fspath(path), map_location="cpu", weights_only=True, mmap=True
                )
        except (OSError, MemoryError):
            raise
        except Exception as e:  # a damaged file makes torch's reader raise anything
            error = e
        name = _refused_name(error)
        if name is None or not _is_foreign(name):
            break
        serialization.add_safe_globals([_stand_in(name)])
    assert error is not None
    raise _load_error(error)


def _refused_name(error: Exception) -> str | None:
    """Return the name of the object that torch did not import; None: the error is
    another one.
    """
    refused = REFUSED.search(str(error)[:4000])
    return None if refused is None else refused[1]


def _load_error(error: Exception) -> Exception:
    """Return what to raise for an error of torch's reader."""
    text = str(error)[:4000]
    if "allocate memory" in text:
        return MemoryError()
    name = _refused_name(error)
    if name is not None:
        return FileError(
            "checkpoint: torch.load(weights_only=True) refuses the Python object "
            f"{name[:120]!r} "
            "in it: only unpickling, which runs code from the file, could bring it "
            f"back. {NEXT_STEP}"
        )
    text = text.partition("WeightsUnpickler error:")[2] or text
    text = text.strip().partition("\n")[0][:200]
    return FileError(
        "checkpoint: torch.load(weights_only=True) refuses it: damaged, or not only "
        "tensors "
        f"({type(error).__name__}: {text}). {NEXT_STEP}"
    )


def _is_foreign(name: str) -> bool:
    """Return whether an object's name is of a trainer's own packages, such as that of
    its settings.

    What stands in for it runs nothing. Names of Python, torch and NumPy are refused all
    the same: no trainer saves them but with bad intent.
    """
    package, dot, _ = name.partition(".")
    return (
        bool(dot) and _NAME.fullmatch(name) is not None and package not in _OWN_PACKAGES
    )


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _array(tensor: Any, name: str) -> np.ndarray:
    """Return a tensor's values as float32, or float64 where they are that, in its own
    shape; may share its memory.

    Raises:
        FileError: not a dense tensor of real numbers, or it shows more than the file
            holds for it.
    """
    import torch

    if tensor.is_nested:
        raise FileError(
            f"checkpoint: tensor {name!r} is a nested tensor; a dense tensor of real "
            "numbers is needed"
        )
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
            f"checkpoint: tensor {name!r} of shape {tuple(tensor.shape)} claims more "
            "than the "
            f"{held:,} bytes that the file holds for it"
        )
    return as_floats(tensor.resolve_neg()).numpy()


def _ranks(path: Path) -> tuple[list[Path], tuple[str, ...]]:
    """Return the files that make one scene: a file with its sibling ranks, or the
    latest step of a folder.
    """
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
    if len(ranks) > 1:
        notes = (f"{len(ranks)} ranks of {match['stem']} put together",)
    else:
        notes = ()
    absent = [str(r) for r in range(max(ranks)) if r not in ranks]
    if absent:
        notes += (
            f"rank {', '.join(absent[:8])} of {match['stem']} is missing: the scene "
            "has holes",
        )
    return [ranks[r] for r in sorted(ranks)], notes


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
    "checkpoints of gsplat (all ranks), inria, nerfstudio and other trainers",
    _is_checkpoint,
    read_checkpoint,
    by_suffix=True,
    parts=lambda path: _ranks(path)[0],
)
