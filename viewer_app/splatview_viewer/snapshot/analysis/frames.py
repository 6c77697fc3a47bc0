"""Classifies frames and stacks: kinds, the most telling frame, and its text."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.snapshot.model import cached

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.snapshot.model import MemorySnapshot

USER = 0
"""The user's Python."""
LIBRARY = 1
"""Python of other libraries."""
TORCH = 2
"""PyTorch's Python."""
BACKWARD = 3
"""The step of a backward pass."""
NATIVE = 4
"""C++."""
MACHINERY = 5
"""Frames that stand in every stack and tell nothing: the interpreter, the dispatcher, the
allocator."""

MAX_NAME_LETTERS = 2000
"""Letters of a name that are matched: untrusted files may have names of any length."""
_PYTHON = re.compile(r"\.pyw?$|\.ipynb$|^<")
_PACKAGES = re.compile(
    r"(^|/)(site-packages|dist-packages)/|(^|/)lib/python\d|\.zip/|^<(?!ipython|stdin|string)"
)
_TORCH = re.compile(
    r"(^|/)torch/(_[a-zA-Z]\w*|nn|optim|autograd|utils|cuda|distributed|fx|amp|ao|jit|func|functional|fft|linalg|"
    r"overrides|hub|library|sparse|profiler|export|onnx|backends|random|storage|serialization|multiprocessing|"
    r"distributions|nested|masked|cpu|xpu|mps|testing)[/.]|(^|/)torch/__init__\.py$|torchinductor_|"
    r"^<eval_with_key>|^<torch"
)
_BACKWARD = re.compile(r"Backward\w*(<.*>)?::apply|AccumulateGrad::apply|::CppNode<")
_MACHINERY = re.compile(
    r"^(_?_?Py[A-Z_]|_PyEval|_PyObject|_PyFunction|slot_tp_|method_vectorcall|cfunction_|vectorcall|object_call|"
    r"type_call|builtin_|run_mod|pymain_|pyrun_|main$|_start$|__libc|__clone|clone|start_thread|pthread|execute_native|"
    r"torch::unwind|torch::CapturedTraceback|torch::cuda::\(anonymous namespace\)::gather|std::|void std::|"
    r"\?\?$|$|_object\* |THPVariable_|c10::impl::|void c10::impl::|c10::cuda::|c10::Storage|c10::intrusive_ptr|"
    r"at::detail::|at::TensorIteratorBase|torch::detail::|c10::TensorImpl)"
    r"|CUDACachingAllocator|::redispatch\(|(^|::)\(anonymous namespace\)::(wrapper_|create_out|structured_)"
    r"|structured_\w+::set_output|BoxedKernelWrapper|wrap_kernel_functor|torch::autograd::VariableType|"
    r"^at::\(anonymous namespace\)::|^at::meta::|^torch::autograd::(Engine::thread|python::|THP|Node::operator)|"
    r"^at::(native::|_ops::)?(new_)?empty|::resize_(impl|bytes)|^(\.\w+\.\d+|\w+) \[clone"
)
_OPERATION = re.compile(r"^at::_ops::(\w+)::(?:call|redispatch)\b")
_ALLOCATING = re.compile(
    r"^(new_)?empty|^resize_|_like$|^_to_copy$|^to_|^contiguous$|^clone$"
)


def kind_of(file: str, name: str) -> int:
    """Return the kind of a frame: USER, LIBRARY, TORCH, BACKWARD, NATIVE or MACHINERY."""
    file = file[-MAX_NAME_LETTERS:].replace("\\", "/")
    name = name[:MAX_NAME_LETTERS]
    if _PYTHON.search(file):
        if _TORCH.search(file):
            return TORCH
        if _PACKAGES.search(file):
            return LIBRARY
        return USER
    if _BACKWARD.search(name):
        return BACKWARD
    if _MACHINERY.search(name):
        return MACHINERY
    return NATIVE


@cached
def frame_kinds(snapshot: MemorySnapshot) -> np.ndarray:
    """Return the kind of each frame, uint8 (F,)."""
    return classify_frames(snapshot, kind_of)


def classify_frames(
    snapshot: MemorySnapshot, class_of: Callable[[str, str], int]
) -> np.ndarray:
    """Return `class_of(file, name)` of every frame, uint8 (F,).

    It is called once for each pair of a file and a name.
    """
    stacks = snapshot.stacks
    texts = snapshot.texts
    pairs = stacks.file.astype(np.int64) * (len(texts) + 1) + stacks.name
    _, first, pair_of_frame = np.unique(pairs, return_index=True, return_inverse=True)
    classes = [
        class_of(texts[int(stacks.file[frame])], texts[int(stacks.name[frame])])
        for frame in first
    ]
    return np.array(classes, np.uint8)[pair_of_frame]


@cached
def sites(snapshot: MemorySnapshot) -> np.ndarray:
    """Return the frame that tells most about each stack, int32 (S,).

    It is the innermost one of the user's code; where there is none, of other Python code,
    then of C++. -1 for a stack without frames.
    """
    return _best_frames(snapshot, frame_kinds(snapshot)[snapshot.stacks.frames])


_NO_RANK = 255


def _best_frames(snapshot: MemorySnapshot, rank: np.ndarray) -> np.ndarray:
    """Return the frame of the lowest rank in each stack, int32 (S,); -1: none.

    Of equals it is the innermost.

    Args:
        rank: rank of each entry of `Stacks.frames`, uint8; 255: the entry does not count.
    """
    stacks = snapshot.stacks
    # The rank in the high bits and the index of the entry in the low ones.
    index_bits = 48
    keys = rank.astype(np.int64) << index_bits | np.arange(len(rank))
    nothing = _NO_RANK << index_bits
    lowest_keys = _reduce(np.minimum, keys, stacks.start, nothing)
    entries = lowest_keys & ((1 << index_bits) - 1)
    frames = np.append(stacks.frames, 0)[entries]
    return np.where(lowest_keys < nothing, frames, -1).astype(np.int32)


def _reduce(
    ufunc: np.ufunc, values: np.ndarray, start: np.ndarray, empty: int
) -> np.ndarray:
    """Return one value for each stack: the ufunc over the stack's slice of `values`.

    `empty` for stacks without values.
    """
    reduced = np.full(len(start) - 1, empty, values.dtype)
    filled = np.flatnonzero(np.diff(start) > 0)
    if len(filled):
        # Between the slices of two filled stacks lie no other values.
        reduced[filled] = ufunc.reduceat(values, start[filled])
    return reduced


def stacks_with(snapshot: MemorySnapshot, frames: np.ndarray) -> np.ndarray:
    """Return which stacks have any of the frames, bool (S,). frames: bool (F,)."""
    stacks = snapshot.stacks
    return _reduce(np.logical_or, frames[stacks.frames], stacks.start, 0)


@cached
def stack_keys(snapshot: MemorySnapshot) -> np.ndarray:
    """Return a key of each stack's content, uint64 (S,).

    Stacks of the same frames have the same key in every snapshot.
    """
    stacks = snapshot.stacks
    frame_hashes = np.array(
        [_frame_hash(snapshot, frame) for frame in range(len(stacks.file))], np.uint64
    )
    stack_start = np.repeat(stacks.start[:-1], np.diff(stacks.start))
    depth = (np.arange(len(stacks.frames)) - stack_start).astype(np.uint64)
    with np.errstate(over="ignore"):
        weight = depth * np.uint64(2) + np.uint64(0x9E3779B97F4A7C15)
        mixed = frame_hashes[stacks.frames] * weight
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        return _reduce(np.add, mixed, stacks.start, 0)


def _frame_hash(snapshot: MemorySnapshot, frame_id: int) -> int:
    """Return a hash of 64 bits of a frame's texts and line."""
    frame = snapshot.frame(frame_id)
    text = f"{frame.file}\0{frame.line}\0{frame.name}".encode("utf-8", "replace")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "little")


def short_file(file: str) -> str:
    """Return the name of a file without its folders.

    With the last folder where the name alone says little.
    """
    folders = file[-MAX_NAME_LETTERS:].replace("\\", "/").rstrip("/").split("/")
    if folders[-1] in ("__init__.py", "__main__.py"):
        return "/".join(folders[-2:])
    return folders[-1]


def path_text(file: str) -> str:
    """Return a file and the two folders that it is in: "src/models/unet.py"."""
    if file in ("", "??"):
        return "C++ without a file"
    return "/".join(file[-MAX_NAME_LETTERS:].replace("\\", "/").split("/")[-3:])


def short_name(name: str) -> str:
    """Return a function's name without C++ types.

    For example "aten::mul_Tensor", "MulBackward0", "forward".
    """
    name = name[:MAX_NAME_LETTERS]
    if "::" not in name and "(" not in name:
        return name
    name_words = [
        name_word
        for name_word in _without_brackets(name).split()
        if name_word != "const"
    ]
    if not name_words:
        return name
    short = name_words[-1].replace("\1", "(anonymous)").replace("\2", "operator()")
    for pattern, plain_name in _PLAIN_NAMES:
        match = pattern.fullmatch(short)
        if match:
            return match.expand(plain_name)
    return short


def _without_brackets(name: str) -> str:
    """Return a name of C++ without arguments and template parameters.

    "(anonymous namespace)" becomes chr(1), and "operator()" chr(2).
    """
    name = re.sub(r" ?\[clone [^]]*\]", "", name)
    name = name.replace("(anonymous namespace)", "\1").replace("operator()", "\2")
    letters: list[str] = []
    depth = 0
    for letter in name:
        if letter in "<(":
            depth += 1
        elif letter in ">)":
            depth = max(0, depth - 1)
        elif depth == 0:
            letters.append(letter)
    return "".join(letters)


_PLAIN_NAMES = (
    (re.compile(r"at::_ops::(\w+)::(?:call|redispatch)"), r"aten::\1"),
    (re.compile(r"(?:\w+::)*(\w+Backward\w*|AccumulateGrad)::apply"), r"\1"),
    (re.compile(r"torch::autograd::Engine::evaluate_function"), "backward pass"),
)


@cached
def _operations(snapshot: MemorySnapshot) -> tuple[np.ndarray, list[str]]:
    """Return PyTorch's operation of each stack, and the names of operations.

    Returns:
        Indices of names, int32 (S,), -1 where a stack has none; and the names.
    """
    stacks = snapshot.stacks
    name_ids, name_of_frame = np.unique(stacks.name, return_inverse=True)
    names = [""] * len(name_ids)
    # An operation that does more than allocate ranks before the others.
    rank = np.full(len(name_ids), _NO_RANK, np.uint8)
    for i, name_id in enumerate(name_ids.tolist()):
        match = _OPERATION.match(snapshot.texts[name_id][:MAX_NAME_LETTERS])
        if match:
            names[i] = match.group(1)
            rank[i] = bool(_ALLOCATING.search(names[i]))
    best_frames = _best_frames(snapshot, rank[name_of_frame[stacks.frames]])
    return np.append(name_of_frame, -1)[best_frames], names


def frame_text(snapshot: MemorySnapshot, frame: int) -> str:
    """Return a frame on one line: "forward  model.py:54".

    For C++ the function alone; "no stack" for -1.
    """
    if frame < 0:
        return "no stack"
    entry = snapshot.frame(frame)
    if entry.file in ("", "??"):
        return short_name(entry.name) or "??"
    location = short_file(entry.file)
    if entry.line > 0:
        location = f"{location}:{entry.line}"
    return f"{short_name(entry.name)}  {location}"


def stack_text(snapshot: MemorySnapshot, stack: int, *, caller: bool = True) -> str:
    """Return a stack on one line.

    For example "silu  model.py:532  aten::mul_Tensor  from forward model.py:399": the frame
    that tells most, PyTorch's operation, and (with `caller`) the user's code that called it.
    """
    if stack < 0:
        return "no stack"
    site = int(sites(snapshot)[stack])
    text = frame_text(snapshot, site)
    operation, names = _operations(snapshot)
    if operation[stack] >= 0 and not text.startswith("aten::"):
        text += f"  aten::{names[operation[stack]]}"
    if caller and site >= 0 and frame_kinds(snapshot)[site] == USER:
        frames = snapshot.stacks.frames_of(stack)
        user_frames = frames[frame_kinds(snapshot)[frames] == USER]
        callers = user_frames[user_frames != site]
        if len(callers):
            caller_text = frame_text(snapshot, int(callers[0])).replace("  ", " ")
            text += f"  from {caller_text}"
    return text
