"""Kinds of frames, the frame of a stack that a person wants to read, and the purpose of an allocation."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.snapshot.model import cached

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

USER, LIBRARY, TORCH, BACKWARD, NATIVE, MACHINERY = range(6)
"""What a frame can be, the most telling first: the user's Python, other people's, PyTorch's, the step of a backward
pass, C++, and what stands in every stack and tells nothing (the interpreter, the dispatcher, the allocator)."""

MAX_NAME_LETTERS = 2000
"""Letters of a name that are looked at: a file from outside may have any, and patterns take their time."""
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
    """USER, LIBRARY, TORCH, BACKWARD, NATIVE or MACHINERY."""
    file = file[-MAX_NAME_LETTERS:].replace("\\", "/")
    name = name[:MAX_NAME_LETTERS]
    if _PYTHON.search(file):
        if _TORCH.search(file):
            return TORCH
        return LIBRARY if _PACKAGES.search(file) else USER
    if _BACKWARD.search(name):
        return BACKWARD
    return MACHINERY if _MACHINERY.search(name) else NATIVE


@cached
def frame_kinds(snapshot: MemorySnapshot) -> np.ndarray:
    """uint8 (F,): USER, LIBRARY, TORCH, BACKWARD, NATIVE or MACHINERY."""
    return classify_frames(snapshot, kind_of)


def classify_frames(
    snapshot: MemorySnapshot, tell: Callable[[str, str], int]
) -> np.ndarray:
    """uint8 (F,): what `tell(file, name)`, asked once for each pair, says of every frame."""
    s = snapshot.stacks
    pairs = s.file.astype(np.int64) * (len(snapshot.texts) + 1) + s.name
    _, first, which = np.unique(pairs, return_index=True, return_inverse=True)
    told = [
        tell(snapshot.texts[int(s.file[i])], snapshot.texts[int(s.name[i])])
        for i in first
    ]
    return np.array(told, np.uint8)[which]


@cached
def sites(snapshot: MemorySnapshot) -> np.ndarray:
    """int32 (S,): the frame that tells most about a stack: the innermost one of the user's code; where there is none,
    of other Python code, then of C++. -1 for a stack without frames.
    """
    return _first(snapshot, frame_kinds(snapshot)[snapshot.stacks.frames])


def _first(snapshot: MemorySnapshot, rank: np.ndarray) -> np.ndarray:
    """int32 (S,): the frame of the least rank in each stack, the innermost of equals; -1: none. rank: of all entries of
    stacks; 255 is none.
    """
    s = snapshot.stacks
    best = _reduce(
        np.minimum,
        rank.astype(np.int64) << 48 | np.arange(len(rank)),
        s.start,
        255 << 48,
    )
    return np.where(
        best < 255 << 48, np.append(s.frames, 0)[best & ((1 << 48) - 1)], -1
    ).astype(np.int32)


def _reduce(
    ufunc: np.ufunc, values: np.ndarray, start: np.ndarray, empty: int
) -> np.ndarray:
    """One value for each stack: the ufunc over its part of `values`; `empty` where it has none."""
    out = np.full(len(start) - 1, empty, values.dtype)
    some = np.flatnonzero(np.diff(start) > 0)
    if len(some):
        out[some] = ufunc.reduceat(
            values, start[some]
        )  # empty stacks lie between no two others' entries
    return out


def stacks_with(snapshot: MemorySnapshot, frames: np.ndarray) -> np.ndarray:
    """bool (S,): the stacks that have any of the frames. frames: bool (F,)."""
    s = snapshot.stacks
    return _reduce(np.logical_or, frames[s.frames], s.start, 0)


@cached
def stack_keys(snapshot: MemorySnapshot) -> np.ndarray:
    """uint64 (S,): a number for what a stack says, the same in every snapshot that has a stack of the same frames."""
    s = snapshot.stacks
    frames = map(snapshot.frame, range(len(s.file)))
    texts = (f"{f.file}\0{f.line}\0{f.name}".encode("utf-8", "replace") for f in frames)
    of_frame = np.array(
        [
            int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
            for text in texts
        ],
        np.uint64,
    )
    depth = (
        np.arange(len(s.frames)) - np.repeat(s.start[:-1], np.diff(s.start))
    ).astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = of_frame[s.frames] * (
            depth * np.uint64(2) + np.uint64(0x9E3779B97F4A7C15)
        )
        mixed ^= mixed >> np.uint64(29)
        return _reduce(np.add, mixed * np.uint64(0xBF58476D1CE4E5B9), s.start, 0)


def short_file(file: str) -> str:
    """Return the short name of a file: its last part, and the folder's name where that alone says little."""
    parts = file[-MAX_NAME_LETTERS:].replace("\\", "/").rstrip("/").split("/")
    if parts[-1] in ("__init__.py", "__main__.py"):
        return "/".join(parts[-2:])
    return parts[-1]


def path_text(file: str) -> str:
    """A file and the two folders that it is in: "src/models/unet.py"."""
    if file in ("", "??"):
        return "C++ without a file"
    return "/".join(file[-MAX_NAME_LETTERS:].replace("\\", "/").split("/")[-3:])


def short_name(name: str) -> str:
    """A function's name without the types of C++: "aten::mul_Tensor", "MulBackward0", "forward"."""
    name = name[:MAX_NAME_LETTERS]
    if "::" not in name and "(" not in name:
        return name
    out: list[str] = []
    depth = 0
    for c in (
        re.sub(r" ?\[clone [^]]*\]", "", name)
        .replace("(anonymous namespace)", "\1")
        .replace("operator()", "\2")
    ):
        if c in "<(":
            depth += 1
        elif c in ">)":
            depth = max(0, depth - 1)
        elif depth == 0:
            out.append(c)
    words = [word for word in "".join(out).split() if word != "const"]
    if not words:
        return name
    short = words[-1].replace("\1", "(anonymous)").replace("\2", "operator()")
    for pattern, plain in _PLAIN:
        found = pattern.fullmatch(short)
        if found:
            return found.expand(plain)
    return short


_PLAIN = (
    (re.compile(r"at::_ops::(\w+)::(?:call|redispatch)"), r"aten::\1"),
    (re.compile(r"(?:\w+::)*(\w+Backward\w*|AccumulateGrad)::apply"), r"\1"),
    (re.compile(r"torch::autograd::Engine::evaluate_function"), "backward pass"),
)


@cached
def _operations(snapshot: MemorySnapshot) -> tuple[np.ndarray, list[str]]:
    """int32 (S,), names: the operation of PyTorch's that each stack is of; -1 where it does not say."""
    s = snapshot.stacks
    numbers, which = np.unique(s.name, return_inverse=True)
    names = [""] * len(numbers)
    rank = np.full(
        len(numbers), 255, np.uint8
    )  # of the operations, the innermost that does more than allocate
    for i, number in enumerate(numbers.tolist()):
        found = _OPERATION.match(snapshot.texts[number][:MAX_NAME_LETTERS])
        if found:
            names[i] = found.group(1)
            rank[i] = bool(_ALLOCATING.search(names[i]))
    return np.append(which, -1)[_first(snapshot, rank[which[s.frames]])], names


def frame_text(snapshot: MemorySnapshot, frame: int) -> str:
    """ "forward  model.py:54"; for C++ the function alone; "no stack" for -1."""
    if frame < 0:
        return "no stack"
    f = snapshot.frame(frame)
    if f.file in ("", "??"):
        return short_name(f.name) or "??"
    place = f"{short_file(f.file)}:{f.line}" if f.line > 0 else short_file(f.file)
    return f"{short_name(f.name)}  {place}"


def stack_text(snapshot: MemorySnapshot, stack: int, *, caller: bool = True) -> str:
    """One line for a stack: "silu  model.py:532  aten::mul_Tensor  from forward model.py:399".

    The frame that tells most, PyTorch's operation, and the user's code that called it.
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
        users = frames[frame_kinds(snapshot)[frames] == USER]
        above = users[users != site]
        if len(above):
            text += f"  from {frame_text(snapshot, int(above[0])).replace('  ', ' ')}"
    return text


CATEGORIES = (
    "parameters",
    "gradients",
    "optimizer state",
    "activations",
    "backward temporaries",
    "other temporaries",
    "inputs",
    "library workspaces",
    "communication",
    "before the trace",
    "other",
)
"""Names by number. "before the trace": made before it, and the snapshot does not say where. "other": not told by its
stack. "other temporaries": made and given back within a forward pass or an optimizer's step."""
(
    _PARAMETERS,
    _GRADIENTS,
    _OPTIMIZER,
    _ACTIVATIONS,
    _SCRATCH,
    _TEMPORARIES,
    _INPUTS,
    _WORKSPACES,
    _COMMUNICATION,
    _BEFORE,
    _OTHER,
) = range(len(CATEGORIES))

# What a frame says; the innermost frame that says something decides for its stack.
(
    _SAYS_COMM,
    _SAYS_WORKSPACE,
    _SAYS_OPTIM,
    _SAYS_ZERO,
    _SAYS_ACC,
    _SAYS_BACK,
    _SAYS_INIT,
    _SAYS_DATA,
    _SAYS_FORWARD,
) = range(1, 10)
_SAYS_RECOMPUTE = 10
"""A forward pass within a backward pass: activations that were not kept."""
_SAYS_NOTHING = 0
_NO_STACK = 11
_NOT_FREED, _FREED_SOMEWHERE, _FREED_BACK, _FREED_OPTIM, _FREED_ZERO, _FREED_FORWARD = (
    range(6)
)

_BY_NAME = (
    (
        _SAYS_COMM,
        re.compile(r"ncclComm|ProcessGroup|c10d::|Reducer::|NCCLComm|symmetric_memory"),
    ),
    (
        _SAYS_WORKSPACE,
        re.compile(
            r"[cC]ublas|CUDABlas|cuBLAS|getCUDABlas|[cC]udnn|cuDNN|[wW]orkspace|cufft|cusolver|"
            r"cusparse|MIOpen|miopen"
        ),
    ),
    (_SAYS_ACC, re.compile(r"AccumulateGrad")),
    (
        _SAYS_BACK,
        re.compile(
            r"torch::autograd::Engine::|^backward$|_engine_run_backward|Backward\w*(<.*>)?::apply|"
            r"release_variables|SavedVariable::reset_data|CppNode<|PyNode::apply|_backward_impl"
        ),
    ),
)
_OPTIMIZING = re.compile(
    r"^(step|_init_group|_init_state|_multi_tensor_\w+|_single_tensor_\w+|_fused_\w+|"
    r"_foreach_\w+|adamw?|sgd|_update\w*|update|wrapper|_use_grad|profile_hook_step)$"
)
_LOADING = re.compile(
    r"^(_apply|load_state_dict|_load_from_state_dict|reset_parameters|register_buffer|"
    r"from_pretrained|init_weights|_init_weights|materialize\w*|to_empty)$"
)


def _says(file: str, name: str) -> int:
    """Return the hint of a frame about the stacks that it is in."""
    file = file[-MAX_NAME_LETTERS:]
    name = name[:MAX_NAME_LETTERS]
    for says, pattern in _BY_NAME:
        if pattern.search(name):
            return says
    file = file.replace("\\", "/")
    if not file.endswith(".py"):
        return _SAYS_NOTHING
    if "zero_grad" in name:
        return _SAYS_ZERO
    if "optim" in file and _OPTIMIZING.match(name):
        return _SAYS_OPTIM
    if "torch/utils/data/" in file or "collate" in name or "dataloader" in file.lower():
        return _SAYS_DATA
    if _LOADING.match(name) or (name == "__init__" and "/nn/" in file):
        return _SAYS_INIT
    if name == "forward" or name == "_call_impl":
        return _SAYS_FORWARD
    return _SAYS_COMM if "torch/distributed/" in file else _SAYS_NOTHING


@cached
def _stack_says(snapshot: MemorySnapshot) -> np.ndarray:
    """uint8 (S + 1,): what each stack says; the last is for NO_STACK."""
    s = snapshot.stacks
    says = classify_frames(snapshot, _says)
    of_entry = says[s.frames]
    telling = np.flatnonzero(of_entry)
    out = np.zeros(len(s) + 1, np.uint8)
    out[-1] = _NO_STACK
    stack = np.searchsorted(s.start, telling, "right") - 1
    out[stack[::-1]] = of_entry[telling[::-1]]  # the innermost is written last
    backward = stacks_with(snapshot, (says == _SAYS_BACK) | (says == _SAYS_ACC))
    out[:-1][backward & (out[:-1] == _SAYS_FORWARD)] = _SAYS_RECOMPUTE
    out[:-1][(np.diff(s.start) == 0)] = _NO_STACK
    return out


def _category(says: int, freed: int, long: bool, before: bool) -> int:
    """Return the category of an allocation: by where it was made and given back, and whether it stayed long."""
    fixed = {
        _SAYS_COMM: _COMMUNICATION,
        _SAYS_WORKSPACE: _WORKSPACES,
        _SAYS_DATA: _INPUTS,
        _SAYS_ACC: _GRADIENTS,
        _SAYS_RECOMPUTE: _ACTIVATIONS,
    }
    if says in fixed:
        return fixed[says]
    if says in (_SAYS_OPTIM, _SAYS_ZERO):
        return _OPTIMIZER if long or freed == _NOT_FREED else _TEMPORARIES
    if says == _SAYS_BACK:
        if freed == _FREED_BACK or (freed == _FREED_SOMEWHERE and not long):
            return _SCRATCH
        return _GRADIENTS
    if says == _SAYS_INIT:
        return _PARAMETERS if long or freed == _NOT_FREED else _OTHER
    if freed == _FREED_BACK:
        return _ACTIVATIONS  # made outside the backward pass and kept for it
    if says == _SAYS_FORWARD:
        return _ACTIVATIONS if long or freed == _NOT_FREED else _TEMPORARIES
    if freed == _FREED_ZERO:
        return _GRADIENTS
    return _BEFORE if before and says == _NO_STACK else _OTHER


_TABLE = np.array(
    [
        _category(says, freed, bool(long), bool(before))
        for says, freed, long, before in np.ndindex(12, 6, 2, 2)
    ],
    np.uint8,
)


@cached
def categories(
    snapshot: MemorySnapshot, trace: Trace
) -> tuple[np.ndarray, tuple[str, ...]]:
    """(uint8 (A,), names): what each allocation is for; the numbers are places in the names (CATEGORIES).

    A guess from the functions in the stacks of its alloc and its free, and how long it lived; "other" where they do
    not tell.
    """
    a = trace.allocations
    events = trace.events
    m = len(events)
    says = _stack_says(snapshot)
    recorded = 4 * int(np.count_nonzero(events.stack >= 0)) > m
    if recorded and bool((frame_kinds(snapshot) <= TORCH).all()):  # stacks without C++
        says = says.copy()
        says[-1] = _SAYS_BACK  # the threads of a backward pass have no Python
    freeing = np.full(13, _FREED_SOMEWHERE, np.uint8)
    freeing[[_SAYS_ACC, _SAYS_BACK, _SAYS_RECOMPUTE]] = _FREED_BACK
    freeing[_SAYS_OPTIM] = _FREED_OPTIM
    freeing[_SAYS_ZERO] = _FREED_ZERO
    freeing[_SAYS_FORWARD] = _FREED_FORWARD
    at_event = np.append(
        freeing[says][events.stack] if m else np.zeros(0, np.uint8),
        np.uint8(_NOT_FREED),
    )
    made = says[a.stack]
    made[(a.stack < 0) & (a.start < 0)] = _NO_STACK
    code = made * np.uint8(6)
    code += at_event[np.minimum(a.end, m)]
    code = code * np.uint8(2)
    code += (a.end - a.start > max(m // 20, 1)).view(np.uint8)
    code = code.astype(np.uint16) * np.uint16(2)
    code += a.start < 0
    return _TABLE[code], CATEGORIES
