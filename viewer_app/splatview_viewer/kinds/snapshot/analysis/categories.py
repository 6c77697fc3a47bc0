"""What an allocation is for, as far as where it was made and where it was given back tell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.analysis import frames as _frames
from splatview_viewer.kinds.snapshot.model import kept

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace

CATEGORIES = ("parameters", "gradients", "optimizer state", "activations", "backward temporaries",
              "other temporaries", "inputs", "library workspaces", "communication", "before the trace", "other")
"""Names by number. "before the trace": made before it, and the snapshot does not say where. "other": not told by its
stack. "other temporaries": made and given back within a forward pass or an optimizer's step."""
(_PARAMETERS, _GRADIENTS, _OPTIMIZER, _ACTIVATIONS, _BACKWARD, _TEMPORARIES, _INPUTS, _WORKSPACES, _COMMUNICATION,
 _BEFORE, _OTHER) = range(len(CATEGORIES))

# What a frame says; the innermost frame that says something decides for its stack.
_SAYS_COMM, _SAYS_WORKSPACE, _SAYS_OPTIM, _SAYS_ZERO, _SAYS_ACC, _SAYS_BACK, _SAYS_INIT, _SAYS_DATA, _SAYS_FORWARD = \
    range(1, 10)
_SAYS_RECOMPUTE = 10
"""A forward pass within a backward pass: activations that were not kept."""
_SAYS_NOTHING, _NO_STACK = 0, 11
_NOT_FREED, _FREED_SOMEWHERE, _FREED_BACK, _FREED_OPTIM, _FREED_ZERO, _FREED_FORWARD = range(6)

_BY_NAME = (
    (_SAYS_COMM, re.compile(r"ncclComm|ProcessGroup|c10d::|Reducer::|NCCLComm|symmetric_memory")),
    (_SAYS_WORKSPACE, re.compile(r"[cC]ublas|CUDABlas|cuBLAS|getCUDABlas|[cC]udnn|cuDNN|[wW]orkspace|cufft|cusolver|"
                                 r"cusparse|MIOpen|miopen")),
    (_SAYS_ACC, re.compile(r"AccumulateGrad")),
    (_SAYS_BACK, re.compile(r"torch::autograd::Engine::|^backward$|_engine_run_backward|Backward\w*(<.*>)?::apply|"
                            r"release_variables|SavedVariable::reset_data|CppNode<|PyNode::apply|_backward_impl")),
)
_OPTIMIZING = re.compile(r"^(step|_init_group|_init_state|_multi_tensor_\w+|_single_tensor_\w+|_fused_\w+|"
                         r"_foreach_\w+|adamw?|sgd|_update\w*|update|wrapper|_use_grad|profile_hook_step)$")
_LOADING = re.compile(r"^(_apply|load_state_dict|_load_from_state_dict|reset_parameters|register_buffer|"
                      r"from_pretrained|init_weights|_init_weights|materialize\w*|to_empty)$")


def _says(file: str, name: str) -> int:
    """What a frame says about the stacks that it is in."""
    file, name = file[-_frames.LONGEST:], name[:_frames.LONGEST]
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


@kept
def _stack_says(snapshot: Snapshot) -> np.ndarray:
    """uint8 (S + 1,): what each stack says; the last is for NO_STACK."""
    s = snapshot.stacks
    says = _frames.of_frames(snapshot, _says)
    of_entry = says[s.frames]
    telling = np.flatnonzero(of_entry)
    out = np.zeros(len(s) + 1, np.uint8)
    out[-1] = _NO_STACK
    stack = np.searchsorted(s.start, telling, "right") - 1
    out[stack[::-1]] = of_entry[telling[::-1]]  # the innermost is written last
    backward = _frames.stacks_with(snapshot, (says == _SAYS_BACK) | (says == _SAYS_ACC))
    out[:-1][backward & (out[:-1] == _SAYS_FORWARD)] = _SAYS_RECOMPUTE
    out[:-1][(np.diff(s.start) == 0)] = _NO_STACK
    return out


def _category(says: int, freed: int, long: bool, before: bool) -> int:
    """What an allocation is, by where it was made, where it was given back, and whether it stayed long."""
    fixed = {_SAYS_COMM: _COMMUNICATION, _SAYS_WORKSPACE: _WORKSPACES, _SAYS_DATA: _INPUTS, _SAYS_ACC: _GRADIENTS,
             _SAYS_RECOMPUTE: _ACTIVATIONS}
    if says in fixed:
        return fixed[says]
    if says in (_SAYS_OPTIM, _SAYS_ZERO):
        return _OPTIMIZER if long or freed == _NOT_FREED else _TEMPORARIES
    if says == _SAYS_BACK:
        return _BACKWARD if freed == _FREED_BACK or (freed == _FREED_SOMEWHERE and not long) else _GRADIENTS
    if says == _SAYS_INIT:
        return _PARAMETERS if long or freed == _NOT_FREED else _OTHER
    if freed == _FREED_BACK:
        return _ACTIVATIONS  # made outside the backward pass and kept for it
    if says == _SAYS_FORWARD:
        return _ACTIVATIONS if long or freed == _NOT_FREED else _TEMPORARIES
    if freed == _FREED_ZERO:
        return _GRADIENTS
    return _BEFORE if before and says == _NO_STACK else _OTHER


def _table() -> np.ndarray:
    table = np.empty((12, 6, 2, 2), np.uint8)
    for index in np.ndindex(*table.shape):
        says, freed, long, before = index
        table[index] = _category(says, freed, bool(long), bool(before))
    return table.reshape(-1)


def _only_python(snapshot: Snapshot, trace: Trace) -> bool:
    """Whether stacks were recorded, but without C++."""
    kinds = _frames.frame_kinds(snapshot)
    most = 4 * int(np.count_nonzero(trace.events.stack >= 0)) > len(trace.events)
    return most and bool((kinds <= _frames.TORCH).all())


@kept
def categories(snapshot: Snapshot, trace: Trace) -> tuple[np.ndarray, tuple[str, ...]]:
    """(uint8 (A,), names): what each allocation is for; the numbers are places in the names (CATEGORIES).

    A guess from the functions in the stacks of its alloc and its free, and how long it lived; "other" where they do
    not tell.
    """
    a, events = trace.allocations, trace.events
    m = len(events)
    says = _stack_says(snapshot)
    if _only_python(snapshot, trace):
        says = says.copy()
        says[-1] = _SAYS_BACK  # the threads of a backward pass have no Python
    freeing = np.full(13, _FREED_SOMEWHERE, np.uint8)
    freeing[[_SAYS_ACC, _SAYS_BACK, _SAYS_RECOMPUTE]] = _FREED_BACK
    freeing[_SAYS_OPTIM], freeing[_SAYS_ZERO], freeing[_SAYS_FORWARD] = _FREED_OPTIM, _FREED_ZERO, _FREED_FORWARD
    at_event = np.append(freeing[says][events.stack] if m else np.zeros(0, np.uint8), np.uint8(_NOT_FREED))
    made = says[a.stack]
    made[(a.stack < 0) & (a.start < 0)] = _NO_STACK
    code = made * np.uint8(6)
    code += at_event[np.minimum(a.end, m)]
    code = code * np.uint8(2)
    code += (a.end - a.start > max(m // 20, 1)).view(np.uint8)
    code = code.astype(np.uint16) * np.uint16(2)
    code += a.start < 0
    return _table()[code], CATEGORIES
