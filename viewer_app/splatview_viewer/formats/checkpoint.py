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

import itertools
import os
import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.common import (
    SHARE,
    ZIP_MAGIC,
    Fields,
    Format,
    Progress,
    SceneFileFacts,
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
    "numpy._core.multiarray.scalar",
    "numpy._core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar",
    "numpy.core.multiarray._reconstruct",
    "argparse.Namespace",
    "pathlib.PosixPath",
    "pathlib._local.PosixPath",
    "builtins.int",
    "builtins.float",
    "builtins.list",
    "builtins.dict",
    "builtins.set",
    "__builtin__.int",
    "__builtin__.float",
    "__builtin__.list",
    "__builtin__.dict",
    "__builtin__.set",
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
MAX_CONFIG = 1 << 20
"""Bytes that are read of a file of settings."""
ANTIALIASED = re.compile(
    rb"^[ \t]*(rasterize_mode:[ \t]*['\"]?antialiased|antialiased:[ \t]*true)\b",
    re.MULTILINE,
)
REFUSED = re.compile(
    r"GLOBAL `?(.+?)`? (?:was not an allowed|whose module|instruction)", re.DOTALL
)
"""Errors of torch for an object that it does not import, with its name."""
MAX_FOREIGN = 64
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
NEXT_STEP = (
    "Save a state dict, torch.save({'splats': module.state_dict()}, path), or export a "
    ".ply."
)


class _Ignored:
    """Stands in for an object that is not needed: takes any state and keeps none."""

    def __new__(cls, *args: Any) -> Any:
        """Return a dict for a `collections.defaultdict`, whose items are set later."""
        if cls.__name__ == "defaultdict":
            return {}
        return super().__new__(cls)

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
    """Read the Gaussians of a checkpoint file, or of the latest one of a folder.

    The ranks of one step are joined.
    """
    files, notes = _ranks(path)
    size = sum(file.stat().st_size for file in files)
    limits = limits_for(size, SHARE)
    # The files are mapped, which takes no memory but counts against the limit.
    limits = limits._replace(memory=limits.memory + size)
    scene_facts, arrays = run(
        read_ranks,
        files,
        limits,
        SceneFileFacts,
        prepare=import_torch,
        progress=progress,
    )
    scene_facts = msgspec.structs.replace(
        scene_facts,
        notes=notes + scene_facts.notes,
        antialiased=scene_facts.antialiased or _was_antialiased(files[0]),
    )
    return fields_of(scene_facts, arrays)


def _was_antialiased(checkpoint: Path) -> bool:
    """Return whether a trainer's settings name antialiasing.

    They are beside a checkpoint, or above its folder.
    """
    folder = Path(os.path.abspath(checkpoint)).parent
    folders = [folder]
    if folder.name in CHECKPOINT_FOLDERS:
        folders.append(folder.parent)
    for config_folder, name in itertools.product(folders, CONFIGS):
        try:
            with open_regular(config_folder / name) as f:
                text = f.read(MAX_CONFIG)
        except (OSError, ValueError, FileError):
            continue
        if ANTIALIASED.search(text) is not None:
            return True
    return False


def import_torch(files: list[File]) -> None:
    """Import torch if a file may be a checkpoint.

    A confined process cannot, since torch starts programs at its import.
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
) -> tuple[SceneFileFacts, list[np.ndarray]]:
    """Read the files of one checkpoint, in the sandbox."""
    fields = read_tensors([file.path for file in files], progress)
    return fields.scene_facts, fields.arrays


def read_tensors(files: Sequence[Path], progress: Progress) -> Fields:
    """Read the Gaussians of checkpoint files, joined.

    Only for a process whose memory and time are bounded.

    Raises:
        FileError: not such a file, damaged, or it holds objects that only unpickling
            could bring back.
    """
    ranks: list[Fields] = []
    degree = None
    total_bytes = 0
    for i, file in enumerate(files):
        progress("reading tensors", i / len(files))
        root = _load(file)
        check_repeats(root, file.stat().st_size)
        saved = find_tensors(root, _is_tensor)
        degree = saved.degree
        arrays = {name: _array(t, name) for name, t in saved.tensors.items()}
        fields = fields_from(arrays, saved)
        total_bytes += sum(array.nbytes for array in fields.arrays)
        ranks.append(fields)
    progress("reading tensors", 1.0)
    check_memory(2 * total_bytes, "the tensors")
    return joined(ranks).checked(sh_degree=degree)


def _load(path: Path) -> Any:
    """Load the value that `torch.save` wrote, with tensors mapped from the file.

    It consists of mappings, lists, tuples, numbers, texts and tensors.

    Raises:
        FileError: `torch.load` would run it (a TorchScript archive, before torch 2.6:
            CVE-2025-32434), misread or refuse it.
    """
    _check_archive(path)
    import torch
    from torch import serialization

    serialization.add_safe_globals(_STAND_INS)
    error: Exception | None = None
    for _ in range(MAX_FOREIGN):
        try:
            with warnings.catch_warnings():
                # torch's warnings about a file's contents do not concern its user.
                warnings.simplefilter("ignore")
                return torch.load(
                    os.fspath(path), map_location="cpu", weights_only=True, mmap=True
                )
        except (OSError, MemoryError):
            raise
        except Exception as e:
            # A damaged file makes torch's reader raise anything.
            error = e
        name = _refused_name(error)
        if name is None or not _is_foreign(name):
            break
        serialization.add_safe_globals([_stand_in(name)])
    assert error is not None
    raise _load_error(error)


def _check_archive(path: Path) -> None:
    """Raise FileError for a file that is no plain zip of `torch.save`."""
    with open(path, "rb") as f:
        if f.read(4) != ZIP_MAGIC:
            raise FileError(
                "checkpoint: not a zip file of torch.save (torch older than 1.6, or a "
                f"plain pickle?). Nothing is unpickled here. {NEXT_STEP}"
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
                    "writes entries not compressed, and only such are read"
                )


def _refused_name(error: Exception) -> str | None:
    """Return the name of the object that torch did not import; None for other errors."""
    refused = REFUSED.search(str(error)[:4000])
    if refused is None:
        return None
    return refused[1]


def _load_error(error: Exception) -> Exception:
    """Return the exception to raise for an error of torch's reader."""
    text = str(error)[:4000]
    if "allocate memory" in text:
        return MemoryError()
    name = _refused_name(error)
    if name is not None:
        return FileError(
            "checkpoint: torch.load(weights_only=True) refuses the Python object "
            f"{name[:120]!r} in it: only unpickling, which runs code from the file, "
            f"could bring it back. {NEXT_STEP}"
        )
    text = text.partition("WeightsUnpickler error:")[2] or text
    text = text.strip().partition("\n")[0][:200]
    return FileError(
        "checkpoint: torch.load(weights_only=True) refuses it: damaged, or not only "
        f"tensors ({type(error).__name__}: {text}). {NEXT_STEP}"
    )


def _is_foreign(name: str) -> bool:
    """Return whether an object's name is of a trainer's own packages.

    Trainers save their settings, for example. A stand-in for them runs nothing. Names
    of Python, torch and NumPy stay refused: only a forged file has others of them than
    `HARMLESS` lists.
    """
    if _NAME.fullmatch(name) is None:
        return False
    return name.partition(".")[0] not in _OWN_PACKAGES


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _array(tensor: Any, name: str) -> np.ndarray:
    """Return a tensor's values as float32, or float64 where they are that.

    The array has the tensor's shape and may share its memory.

    Raises:
        FileError: not a dense tensor of real numbers, or one of more bytes than the
            file holds for it.
    """
    if tensor.is_nested:
        raise FileError(
            f"checkpoint: tensor {name!r} is a nested tensor; a dense tensor of real "
            "numbers is needed"
        )
    if not _is_dense(tensor):
        raise FileError(
            f"checkpoint: tensor {name!r} is {getattr(tensor, 'dtype', type(tensor))}, "
            f"{getattr(tensor, 'layout', '')}; a dense tensor of real numbers is needed"
        )
    stored_bytes = tensor.untyped_storage().nbytes()
    # With a stride of 0 a few bytes would become gigabytes.
    if tensor.numel() * tensor.element_size() > stored_bytes:
        raise FileError(
            f"checkpoint: tensor {name!r} of shape {tuple(tensor.shape)} claims more "
            f"than the {stored_bytes:,} bytes that the file holds for it"
        )
    return as_floats(tensor.resolve_neg()).numpy()


def _is_dense(tensor: Any) -> bool:
    """Return whether a tensor is a plain one of real numbers, in host memory."""
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return False
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return False
    return not tensor.is_complex() and not tensor.is_quantized


class _Scene(NamedTuple):
    """The files that make one scene, in the order of their ranks."""

    files: list[Path]
    notes: tuple[str, ...] = ()


def _ranks(path: Path) -> _Scene:
    """Return the files of a scene.

    They are a file and its sibling ranks, or those of the latest step of a folder.
    """
    if path.is_dir():
        path = _latest_checkpoint(path)
    match = RANK.fullmatch(path.name)
    if match is None:
        return _Scene([path])
    stem = match["stem"]
    ranks: dict[int, Path] = {}
    for sibling in path.parent.iterdir():
        sibling_match = RANK.fullmatch(sibling.name)
        if (
            sibling_match is None
            or sibling_match["stem"] != stem
            or sibling_match["suffix"] != match["suffix"]
        ):
            continue
        ranks[int(sibling_match["rank"])] = sibling
    notes: tuple[str, ...] = ()
    if len(ranks) > 1:
        notes += (f"{len(ranks)} ranks of {stem} put together",)
    absent = [str(rank) for rank in range(max(ranks)) if rank not in ranks]
    if absent:
        notes += (
            f"rank {', '.join(absent[:8])} of {stem} is missing: the scene has holes",
        )
    return _Scene([ranks[rank] for rank in sorted(ranks)], notes)


def _latest_checkpoint(folder: Path) -> Path:
    """Return the checkpoint of the latest step in a folder, or in its folder `ckpts`.

    Raises FileError where there is none.
    """
    checkpoints: list[tuple[int, str, Path]] = []
    for parent in (folder, folder / "ckpts"):
        if not parent.is_dir():
            continue
        for file in parent.iterdir():
            match = RANK.fullmatch(file.name)
            if match is not None:
                checkpoints.append((int(match["step"] or -1), file.name, file))
    if not checkpoints:
        raise FileError("no checkpoint named *_rank*.pt in the folder")
    _, _, path = max(checkpoints)
    return path


def _find_files(path: Path) -> list[Path]:
    return _ranks(path).files


def _is_checkpoint(start: Start) -> bool:
    if start.path.is_dir():
        patterns = ("*_rank*.pt", "ckpts/*_rank*.pt")
        return any(any(start.path.glob(pattern)) for pattern in patterns)
    if "data.pkl" in start.zip_names:
        return True
    # A plain pickle is none, and the reader's error explains that.
    return start.head[:1] == b"\x80" and start.suffix != ".splat"


CHECKPOINT = Format(
    "checkpoint",
    (".pt", ".pth", ".ckpt"),
    "checkpoints of gsplat (all ranks), inria, nerfstudio and other trainers",
    _is_checkpoint,
    read_checkpoint,
    by_suffix=True,
    parts=_find_files,
)
