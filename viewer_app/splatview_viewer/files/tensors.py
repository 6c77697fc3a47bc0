"""Loads what `torch.save` wrote without running code from it, and gives its tensors as arrays.

`torch.load(weights_only=True)` builds tensors, mappings, lists, numbers and texts, and refuses every other object.
Two things are added. Harmless objects that trainers save beside the tensors (inria's `capture` has a NumPy number)
are taken by stand-ins, because NumPy's own reconstructors are not safe with forged arguments. And the file is looked
at first, because torch allocates whatever a zip entry claims to hold, and because torch before 2.6 runs code from a
TorchScript archive or a tar file in spite of `weights_only` (CVE-2025-32434).

torch before 2.10 lets a checkpoint made for the purpose corrupt memory (CVE-2026-24747): open files from strangers
with a current torch.
"""

from __future__ import annotations

import re
import threading
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from splatview_viewer.errors import FileError
from splatview_viewer.files.bounds import check_memory
from splatview_viewer.files.common import open_zip
from splatview_viewer.files.pickled import check_pickle
from splatview_viewer.scene import as_floats

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np

PICKLE_LIMIT = 4 << 20
"""Bytes of data.pkl, which holds no tensor's data: 250 for each tensor. A byte may become 70 in memory."""
PROTOCOL = 2
"""The pickle protocol of `torch.save`; the reader behind `weights_only` knows no other."""
HARMLESS = (
    "numpy.dtype", "numpy.ndarray", *(f"numpy.{m}.multiarray.{n}" for m in ("_core", "core")
                                      for n in ("scalar", "_reconstruct")),
    "argparse.Namespace", "pathlib.PosixPath", "pathlib._local.PosixPath",
    *(f"{m}.{n}" for m in ("builtins", "__builtin__") for n in ("int", "float", "list", "dict", "set")),
    "_codecs.encode",
)
"""Names that checkpoints mention and whose values are not needed. torch 2.4 takes protocol 2's names as they stand
(`__builtin__`) and does not know sets, nor `_codecs.encode`, the bytes of a NumPy number; later ones know and prefer
their own.
"""
REFUSED = re.compile(r"GLOBAL `?(.+?)`? (?:was not an allowed|whose module|instruction)", re.DOTALL)
"""How torch says that a name would have to be imported."""

_one_at_a_time = threading.Lock()
"""The list of allowed names and the warning filters are the process's: two threads would undo each other's."""


class _Ignored:
    """Stands in for an object that is not looked at: takes any arguments and any state, and keeps none."""

    def __init__(self, *args: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


def _empty_dict(*args: Any) -> dict[Any, Any]:
    """Stands in for `collections.defaultdict`, whose items are then set on the plain dict."""
    return {}


def _named(stand_in: Any, name: str) -> Any:
    """torch knows what it may build by `__module__` and `__qualname__` (2.4: `__name__`)."""
    stand_in.__module__, _, stand_in.__qualname__ = name.rpartition(".")
    stand_in.__name__ = stand_in.__qualname__
    return stand_in


_STAND_INS = [*(_named(type("_", (_Ignored,), {}), name) for name in HARMLESS),
              _named(_empty_dict, "collections.defaultdict")]


@dataclass
class Checkpoint:
    """What a file of `torch.save` holds."""

    root: Any
    """Mappings, lists, tuples, numbers, texts and CPU tensors, as saved."""
    sizes: frozenset[int]
    """Bytes of each storage in the file."""

    def array(self, tensor: Any, name: str) -> np.ndarray:
        """The tensor's values as float32, or float64 where they are that, in its own shape; may share memory with it.

        Raises:
            FileError: not a dense tensor of real numbers, or it shows more than the file holds for it.
        """
        import torch

        try:
            plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type == "cpu"
            if not plain or tensor.layout is not torch.strided or tensor.is_complex() or tensor.is_quantized:
                raise FileError(f"checkpoint: tensor {name!r} is {getattr(tensor, 'dtype', type(tensor))}, "
                                f"{getattr(tensor, 'layout', '')}; a dense tensor of real numbers is needed")
            item, held = tensor.element_size(), tensor.untyped_storage().nbytes()
            # torch before 2.10 believes the size that data.pkl gives a storage, and reads past its end.
            if not any(0 <= size - held < item for size in self.sizes):
                raise FileError(f"checkpoint: damaged: no entry of the zip has the {held:,} bytes of tensor {name!r}")
            if tensor.numel() * item > held:  # by a stride of 0: a few bytes that would become gigabytes
                raise FileError(f"checkpoint: tensor {name!r} of shape {tuple(tensor.shape)} claims more than the "
                                f"{held:,} bytes that the file holds for it")
            if tensor.dtype != torch.float32:
                check_memory(4 * tensor.numel(), f"the {tensor.numel():,} numbers of tensor {name!r}")
            return as_floats(tensor).numpy()
        except (RuntimeError, TypeError, ValueError, AttributeError, OverflowError) as e:
            raise FileError(f"checkpoint: tensor {name!r} cannot be read ({_first_line(e)})") from None


def is_tensor(value: Any) -> bool:
    """Whether `load_checkpoint` gave a tensor here."""
    import torch

    return isinstance(value, torch.Tensor)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a file of `torch.save` into memory, tensors on the CPU.

    The file is not mapped: a trainer that overwrites a mapped file kills the process that reads it.

    Raises:
        FileError: not such a file, damaged, or it holds objects that only unpickling could bring back.
        OSError: it cannot be read.
    """
    sizes = _check(path)
    import torch  # takes more than a second, which no other format should wait for

    with _allowed(), open(path, "rb") as f:
        try:
            root = torch.load(f, map_location="cpu", weights_only=True, mmap=False)
        except (OSError, MemoryError):
            raise
        except Exception as e:  # a damaged file makes torch's reader raise nearly anything
            raise FileError(f"checkpoint: {_reason(e)}") from None
    return Checkpoint(root, sizes)


def _check(path: Path) -> frozenset[int]:
    """Refuse what must not reach torch. Returns the sizes of the entries."""
    with open(path, "rb") as f:
        if f.read(4) != b"PK\x03\x04":
            raise FileError("checkpoint: not a zip file of torch.save (torch older than 1.6, or a plain pickle?). "
                            "Nothing is unpickled here: load it where you trust it and torch.save the tensors.")
        length = f.seek(0, 2)
    with open_zip(path) as archive:
        entries = archive.infolist()
        pickles = [i for i in entries if i.filename.rpartition("/")[2] == "data.pkl"]
        if len(pickles) != 1:
            raise FileError(f"checkpoint: {len(pickles) or 'no'} data.pkl in the zip; torch.save writes one")
        if any(i.filename.rpartition("/")[2] == "constants.pkl" for i in entries):
            raise FileError("checkpoint: a TorchScript archive, which is a program. Save tensors alone: "
                            "torch.save({'splats': module.state_dict()}, path).")
        if packed := next((i for i in entries if i.compress_type), None):
            raise FileError(f"checkpoint: {packed.filename[:60]!r} is compressed; torch.save writes entries not "
                            "compressed, and only such are read")
        if (claimed := sum(i.file_size for i in entries)) > length:
            raise FileError(f"checkpoint: damaged, or made to exhaust memory: the entries claim {claimed:,} bytes in "
                            f"a file of {length:,}")
        if pickles[0].file_size > PICKLE_LIMIT:
            raise FileError(f"checkpoint: data.pkl has {pickles[0].file_size:,} bytes; at most {PICKLE_LIMIT:,} are "
                            "read")
        try:
            text = archive.read(pickles[0])
        except (OSError, MemoryError):
            raise
        except Exception as e:  # zipfile lets EOFError, RuntimeError, struct.error and more through
            raise FileError(f"checkpoint: damaged zip: {_first_line(e)}") from None
    if text[:2] != bytes([0x80, PROTOCOL]):
        raise FileError(f"checkpoint: data.pkl starts with {text[:2].hex(' ')}, not with 80 02 of pickle protocol "
                        f"{PROTOCOL}, the only one that torch reads without running code. torch.save it again "
                        "without pickle_protocol.")
    if b"\nbytearray\n" in text:  # torch would let it be made in any size, and it is zeros at once
        raise FileError("checkpoint: it holds a bytearray, which a mapping of tensors does not need. Save tensors "
                        "alone: torch.save({'splats': module.state_dict()}, path).")
    try:
        check_pickle(text)
    except FileError as e:
        raise FileError(f"checkpoint: {e}") from None
    return frozenset(i.file_size for i in entries)


@contextmanager
def _allowed() -> Iterator[None]:
    """Have torch accept the stand-ins, and keep its warnings (on protocols, TypedStorage) from the terminal."""
    from torch import serialization

    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(serialization, "safe_globals"):
            allowed = serialization.safe_globals(_STAND_INS)
        else:  # torch 2.4: for the rest of the process, in which nobody else loads checkpoints
            serialization.add_safe_globals([s for s in _STAND_INS if s not in serialization.get_safe_globals()])
            allowed = nullcontext()
        with allowed:
            yield


def _reason(error: Exception) -> str:
    """What torch had to say, without its advice to load the file unsafely."""
    if refused := REFUSED.search(str(error)[:4000]):
        return (f"it holds a Python object, {refused[1][:120]!r}, that only unpickling could bring back, and "
                "unpickling runs code from the file. Save tensors alone: torch.save({'splats': "
                "module.state_dict()}, path).")
    return f"damaged, or not only tensors ({_first_line(error)})"


def _first_line(error: Exception) -> str:
    text = str(error)
    text = text.partition("WeightsUnpickler error:")[2] or text
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {line[:200]}" if line else type(error).__name__
