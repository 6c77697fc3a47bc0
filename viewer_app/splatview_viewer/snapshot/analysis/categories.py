"""Guesses the purpose of allocations from the functions in their stacks."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.snapshot.analysis.frames import (
    MAX_NAME_LETTERS,
    TORCH,
    classify_frames,
    frame_kinds,
    stacks_with,
)
from splatview_viewer.snapshot.model import cached

if TYPE_CHECKING:
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

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
"""Names of categories by id. "before the trace": allocated before it, and the snapshot does
not say where. "other": not told by the stack. "other temporaries": allocated and freed
within a forward pass or an optimizer's step."""
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
    _BEFORE_TRACE,
    _UNCATEGORIZED,
) = range(len(CATEGORIES))


class _Hint(IntEnum):
    """The hint of a frame about its stack; the innermost frame with one decides."""

    NONE = 0
    COMMUNICATION = 1
    WORKSPACE = 2
    OPTIMIZER = 3
    ZERO_GRAD = 4
    ACCUMULATE_GRAD = 5
    BACKWARD = 6
    INIT = 7
    DATA = 8
    FORWARD = 9
    RECOMPUTE = 10
    """A forward pass within a backward pass: activations that were not kept."""
    NO_STACK = 11


class _Freed(IntEnum):
    """The place in the program where an allocation is freed."""

    NEVER = 0
    ELSEWHERE = 1
    BACKWARD = 2
    OPTIMIZER = 3
    ZERO_GRAD = 4
    FORWARD = 5


_HINTS_BY_NAME = (
    (
        _Hint.COMMUNICATION,
        re.compile(r"ncclComm|ProcessGroup|c10d::|Reducer::|NCCLComm|symmetric_memory"),
    ),
    (
        _Hint.WORKSPACE,
        re.compile(
            r"[cC]ublas|CUDABlas|cuBLAS|getCUDABlas|[cC]udnn|cuDNN|[wW]orkspace|cufft|cusolver|"
            r"cusparse|MIOpen|miopen"
        ),
    ),
    (_Hint.ACCUMULATE_GRAD, re.compile(r"AccumulateGrad")),
    (
        _Hint.BACKWARD,
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


def _hint_of(file: str, name: str) -> int:
    """Return the hint of a frame about the stacks that it is in."""
    file = file[-MAX_NAME_LETTERS:]
    name = name[:MAX_NAME_LETTERS]
    for hint, pattern in _HINTS_BY_NAME:
        if pattern.search(name):
            return hint
    file = file.replace("\\", "/")
    if not file.endswith(".py"):
        return _Hint.NONE
    if "zero_grad" in name:
        return _Hint.ZERO_GRAD
    if "optim" in file and _OPTIMIZING.match(name):
        return _Hint.OPTIMIZER
    if "torch/utils/data/" in file or "collate" in name or "dataloader" in file.lower():
        return _Hint.DATA
    if _LOADING.match(name) or (name == "__init__" and "/nn/" in file):
        return _Hint.INIT
    if name in ("forward", "_call_impl"):
        return _Hint.FORWARD
    if "torch/distributed/" in file:
        return _Hint.COMMUNICATION
    return _Hint.NONE


@cached
def _stack_hints(snapshot: MemorySnapshot) -> np.ndarray:
    """Return the hint of each stack, uint8 (S + 1,); the last is for NO_STACK."""
    stacks = snapshot.stacks
    frame_hints = classify_frames(snapshot, _hint_of)
    entry_hints = frame_hints[stacks.frames]
    entries = np.flatnonzero(entry_hints)
    stack_of_entry = np.searchsorted(stacks.start, entries, "right") - 1
    hints = np.zeros(len(stacks) + 1, np.uint8)
    hints[-1] = _Hint.NO_STACK
    # Backwards, so that the innermost is written last.
    hints[stack_of_entry[::-1]] = entry_hints[entries[::-1]]
    is_gradient = frame_hints == _Hint.ACCUMULATE_GRAD
    is_backward_frame = (frame_hints == _Hint.BACKWARD) | is_gradient
    is_backward = stacks_with(snapshot, is_backward_frame)
    stack_hints = hints[:-1]
    stack_hints[is_backward & (stack_hints == _Hint.FORWARD)] = _Hint.RECOMPUTE
    stack_hints[np.diff(stacks.start) == 0] = _Hint.NO_STACK
    return hints


_FIXED_CATEGORIES = {
    _Hint.COMMUNICATION: _COMMUNICATION,
    _Hint.WORKSPACE: _WORKSPACES,
    _Hint.DATA: _INPUTS,
    _Hint.ACCUMULATE_GRAD: _GRADIENTS,
    _Hint.RECOMPUTE: _ACTIVATIONS,
}
"""Categories that the hint alone decides."""


def _category(hint: int, freed: int, is_long: bool, is_early: bool) -> int:
    """Return the category of an allocation.

    Args:
        hint: where it was allocated, a `_Hint`.
        freed: where it is freed, a `_Freed`.
        is_long: it lives long.
        is_early: it was allocated before the trace.
    """
    stays = is_long or freed == _Freed.NEVER
    if hint in _FIXED_CATEGORIES:
        return _FIXED_CATEGORIES[_Hint(hint)]
    if hint in (_Hint.OPTIMIZER, _Hint.ZERO_GRAD):
        return _OPTIMIZER if stays else _TEMPORARIES
    if hint == _Hint.BACKWARD:
        is_short = freed == _Freed.ELSEWHERE and not is_long
        return _SCRATCH if freed == _Freed.BACKWARD or is_short else _GRADIENTS
    if hint == _Hint.INIT:
        return _PARAMETERS if stays else _UNCATEGORIZED
    if freed == _Freed.BACKWARD:
        # Allocated outside the backward pass and kept for it.
        return _ACTIVATIONS
    if hint == _Hint.FORWARD:
        return _ACTIVATIONS if stays else _TEMPORARIES
    if freed == _Freed.ZERO_GRAD:
        return _GRADIENTS
    return _BEFORE_TRACE if is_early and hint == _Hint.NO_STACK else _UNCATEGORIZED


_CATEGORY_TABLE = np.array(
    [
        _category(hint, freed, bool(is_long), bool(is_early))
        for hint, freed, is_long, is_early in np.ndindex(len(_Hint), len(_Freed), 2, 2)
    ],
    np.uint8,
)
"""`_category` of all its arguments, the last varying fastest."""


def _freed_by_hint() -> np.ndarray:
    """Return the `_Freed` of a free whose stack has each `_Hint`, uint8."""
    freed = np.full(len(_Hint), _Freed.ELSEWHERE, np.uint8)
    freed[_Hint.ACCUMULATE_GRAD] = _Freed.BACKWARD
    freed[_Hint.BACKWARD] = _Freed.BACKWARD
    freed[_Hint.RECOMPUTE] = _Freed.BACKWARD
    freed[_Hint.OPTIMIZER] = _Freed.OPTIMIZER
    freed[_Hint.ZERO_GRAD] = _Freed.ZERO_GRAD
    freed[_Hint.FORWARD] = _Freed.FORWARD
    return freed


@cached
def categories(
    snapshot: MemorySnapshot, trace: Trace
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the purpose of each allocation: indices of names, uint8 (A,), and names.

    The names are CATEGORIES. It is a guess from the functions in the stacks of its alloc
    and its free, and from its lifetime; "other" where they do not tell.
    """
    allocations = trace.allocations
    events = trace.events
    event_count = len(events)
    hints = _stack_hints(snapshot)
    has_stacks = 4 * int(np.count_nonzero(events.stack >= 0)) > event_count
    is_python_only = bool((frame_kinds(snapshot) <= TORCH).all())
    if has_stacks and is_python_only:
        # The threads of a backward pass have no Python, and so no stack.
        hints = hints.copy()
        hints[-1] = _Hint.BACKWARD
    event_freed = np.full(event_count + 1, _Freed.NEVER, np.uint8)
    event_freed[:-1] = _freed_by_hint()[hints][events.stack]
    is_early = allocations.start < 0
    hint = hints[allocations.stack]
    hint[(allocations.stack < 0) & is_early] = _Hint.NO_STACK
    freed = event_freed[np.minimum(allocations.end, event_count)]
    lifetime = allocations.end - allocations.start
    is_long = lifetime > max(event_count // 20, 1)
    # Of uint16 and in place: there may be millions of allocations.
    code = hint.astype(np.uint16)
    for value, count in ((freed, len(_Freed)), (is_long, 2), (is_early, 2)):
        code *= np.uint16(count)
        code += value
    return _CATEGORY_TABLE[code], CATEGORIES
