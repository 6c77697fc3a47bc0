"""Reads tensors out of a file that `torch.save` wrote, without torch and without unpickling.

Such a file is a zip: `data.pkl` describes the saved object, `data/<key>` holds the bytes of each storage. Here the
pickle is read as plain data by a small stack machine: it builds mappings, lists, numbers, texts and descriptions of
tensors; it imports nothing and calls nothing, whatever the file says. A name that would have to be imported and is
not on the list of harmless ones is refused. Compared with `torch.load(weights_only=True)`, which has the same
aim, it takes inria's checkpoints (in which that refuses a NumPy number), leaves the optimizer's state on the disk,
and saves the second that importing torch takes.
"""

from __future__ import annotations

import pickletools
import struct
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from viewer_app.errors import FileError
from viewer_app.files.common import open_zip, read_exact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PICKLE_LIMIT = 64 << 20
"""Bytes of data.pkl, which holds no tensor's data; real ones have kilobytes."""
DTYPES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "BFloat16Storage": "<u2",
          "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "<i1",
          "ByteStorage": "<u1", "BoolStorage": "<u1"}
REBUILD = {"torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor"}
PARAMETER = {"torch._utils _rebuild_parameter", "torch._utils _rebuild_parameter_with_state",
             "torch.nn.parameter Parameter"}
MAPPING = {"collections OrderedDict", "collections defaultdict"}
HARMLESS = {
    "numpy dtype", "numpy ndarray", "_codecs encode", "torch device", "torch Size", "argparse Namespace",
    "pathlib PosixPath", "pathlib Path",
    *(f"torch {n}" for n in ("float16", "bfloat16", "float32", "float64", "uint8", "int32", "int64", "bool")),
    *(f"{m} {n}" for m in ("builtins", "__builtin__")
      for n in ("set", "frozenset", "bytearray", "complex", "int", "float", "list", "dict", "slice")),
    *(f"numpy.{m}.multiarray {n}" for m in ("core", "_core") for n in ("scalar", "_reconstruct")),
}
"""Names whose values are not needed: they become `Opaque`."""
CONSTANTS = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8"}
LITERALS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}


@dataclass(frozen=True)
class Name:
    """A name that the pickle mentions, "module name". Never imported."""

    name: str


@dataclass(frozen=True)
class Opaque:
    """Something saved beside the tensors that is not looked at."""

    name: str


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies in the file; nothing of it is believed before `Checkpoint.read` has checked it."""

    storage: Any
    offset: Any
    size: Any
    stride: Any


@dataclass
class Checkpoint:
    """An open checkpoint: `root` is what was saved, with `StoredTensor`s in it."""

    root: Any
    file: BinaryIO
    records: dict[str, tuple[int, int]]
    """Start of the local header and bytes of each storage, by key."""

    def read(self, tensor: StoredTensor, name: str) -> np.ndarray:
        """The tensor's values; floats of any width become float32.

        Raises:
            FileError: the file holds less than the tensor claims, or it is no tensor of numbers.
        """
        storage, offset, size, stride = tensor.storage, tensor.offset, tensor.size, tensor.stride
        if not (isinstance(storage, tuple) and len(storage) >= 3 and isinstance(storage[1], Name)
                and _counts(size) and _counts(stride) and len(size) == len(stride) <= 3 and _counts((offset,))):
            raise FileError(f"checkpoint: the description of tensor {name!r} is damaged")
        kind = storage[1].name.rpartition(" ")[2]
        if kind not in DTYPES:
            raise FileError(f"checkpoint: tensor {name!r} is stored as {storage[1].name!r}; legal are "
                            f"{', '.join(DTYPES)}")
        dtype = np.dtype(DTYPES[kind])
        numel, span = 1, 1
        for n, step in zip(size, stride, strict=True):
            numel, span = numel * n, span + (n - 1) * step
        if numel == 0:
            if max(size) >= 1 << 20:
                raise FileError(f"checkpoint: tensor {name!r} has shape {tuple(size)}")
            return np.zeros(size, np.float32)
        start, held = self.records.get(str(storage[2]), (0, -1))
        if held < 0:
            raise FileError(f"checkpoint: the data of tensor {name!r} is missing")
        if max(numel, offset + span) * dtype.itemsize > held:
            raise FileError(f"checkpoint: tensor {name!r} of shape {tuple(size)} claims more than the {held:,} "
                            "bytes that the file holds for it")
        self.file.seek(start)
        local = read_exact(self.file, 30, f"the entry of tensor {name!r}")
        if local[:4] != b"PK\x03\x04":
            raise FileError(f"checkpoint: the entry of tensor {name!r} is damaged")
        lengths = struct.unpack_from("<HH", local, 26)
        self.file.seek(start + 30 + sum(lengths) + offset * dtype.itemsize)
        flat = np.frombuffer(read_exact(self.file, span * dtype.itemsize, f"tensor {name!r}"), dtype)
        values = np.lib.stride_tricks.as_strided(flat, size, [s * dtype.itemsize for s in stride])
        if kind == "BFloat16Storage":
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32)


def _counts(values: Any) -> bool:
    return isinstance(values, tuple) and all(type(v) is int and v >= 0 for v in values)


@contextmanager
def open_checkpoint(path: Path) -> Iterator[Checkpoint]:
    """Open a file of `torch.save` and read what was saved, up to the tensors' data.

    Raises:
        FileError: not such a file, damaged, or it holds objects that only unpickling could bring back.
    """
    with open(path, "rb") as f:
        if f.read(2) != b"PK":
            raise FileError("checkpoint: not a zip file of torch.save (torch older than 1.6, or a plain pickle?). "
                            "Nothing is unpickled here: load it where you trust it and torch.save the tensors.")
        with open_zip(path) as archive:
            pickle = next((i for i in archive.infolist() if i.filename.rpartition("/")[2] == "data.pkl"), None)
            if pickle is None:
                raise FileError("checkpoint: no data.pkl in the zip")
            if pickle.file_size > PICKLE_LIMIT or pickle.compress_type:
                raise FileError(f"checkpoint: data.pkl has {pickle.file_size:,} bytes; at most {PICKLE_LIMIT:,}, "
                                "not compressed, are read")
            prefix = pickle.filename[:-len("data.pkl")]
            try:
                text = archive.read(pickle)
                order = archive.read(prefix + "byteorder") if prefix + "byteorder" in archive.namelist() else b""
            except Exception as e:  # zipfile lets EOFError, RuntimeError, struct.error and more through
                raise FileError(f"checkpoint: damaged zip: {e}") from None
            records = {i.filename[len(prefix) + 5:]: (i.header_offset, i.file_size) for i in archive.infolist()
                       if i.filename.startswith(prefix + "data/") and not i.compress_type}
        if order.strip() == b"big":
            raise FileError("checkpoint: written on a big-endian machine; only little-endian is read")
        yield Checkpoint(read_pickle(text), f, records)


def read_pickle(text: bytes) -> Any:
    """What a pickle describes, as plain data; see the module's text.

    Raises:
        FileError: damaged, or it needs a name that is not on the lists above.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pickletools warns about odd escapes in damaged texts
            return _run(text)
    except FileError:
        raise
    # A damaged pickle runs into these: stack empty, wrong types, unhashable keys, bad numbers and texts.
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, struct.error, OverflowError) as e:
        raise FileError(f"checkpoint: damaged data.pkl ({type(e).__name__}: {e})") from None


def _run(text: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    marks: list[int] = []

    def since_mark() -> list[Any]:
        at = marks.pop()
        items = stack[at:]
        del stack[at:]
        return items

    for op, arg, _ in pickletools.genops(text):
        name = op.name
        if name in CONSTANTS:
            stack.append(arg)
        elif name in LITERALS:
            stack.append(LITERALS[name])
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[int(arg)] = stack[-1]  # type: ignore[arg-type]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo[int(arg)])  # type: ignore[arg-type]
        elif name == "MARK":
            marks.append(len(stack))
        elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_SET"):
            stack.append({} if name == "EMPTY_DICT" else [])
        elif name == "EMPTY_TUPLE":
            stack.append(())
        elif name in ("TUPLE", "LIST", "FROZENSET"):
            stack.append(tuple(since_mark()) if name == "TUPLE" else since_mark())
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            items = [stack.pop() for _ in range(count)]
            stack.append(tuple(reversed(items)))
        elif name in ("SETITEM", "SETITEMS", "DICT"):
            items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else since_mark()
            if name == "DICT":
                stack.append({})
            _set_items(stack[-1], items)
        elif name in ("APPEND", "APPENDS", "ADDITEMS"):
            items = [stack.pop()] if name == "APPEND" else since_mark()
            if isinstance(stack[-1], list):
                stack[-1].extend(items)
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            stack.append(_name(str(arg) if name == "GLOBAL" else f"{stack.pop(-2)} {stack.pop()}"))
        elif name == "BINPERSID":
            stack.append(stack.pop())  # the tuple ("storage", type, key, device, count)
        elif name in ("REDUCE", "NEWOBJ"):
            args, function = stack.pop(), stack.pop()
            stack.append(_built(function, args))
        elif name == "BUILD":  # attributes of what lies below: of a state_dict, of something opaque
            stack.pop()
        elif name == "STOP":
            return stack.pop()
        elif name not in ("PROTO", "FRAME"):
            raise FileError(f"checkpoint: data.pkl uses {name}, which a mapping of tensors does not need")
    raise FileError("checkpoint: data.pkl has no end")


def _set_items(target: Any, items: list[Any]) -> None:
    if isinstance(target, dict):
        target.update(zip(items[::2], items[1::2], strict=True))


def _name(name: str) -> Name:
    module, _, attribute = name.partition(" ")
    if (module == "torch" and attribute in DTYPES) or name in HARMLESS | REBUILD | PARAMETER | MAPPING:
        return Name(name)
    raise FileError(
        f"checkpoint: it holds a Python object, {f'{module}.{attribute}'[:120]!r}, that only unpickling could bring "
        "back, and unpickling runs code from the file. Save tensors alone: torch.save({'splats': "
        "module.state_dict()}, path).")


def _built(function: Any, args: Any) -> Any:
    """What `function(*args)` stands for. Nothing is called."""
    if not isinstance(function, Name) or not isinstance(args, tuple):
        raise ValueError("a call of something that is not a name")
    if function.name in REBUILD:
        return StoredTensor(*args[:4])
    if function.name in PARAMETER:
        return args[0]
    if function.name in MAPPING:
        return {}
    if function.name == "torch Size":
        return tuple(args[0])
    return Opaque(function.name)
