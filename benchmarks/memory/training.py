"""What a training run asks of its allocator: a transformer, AdamW, batches of varying length, evaluations, and faults.

A run is a sequence of programs, one for each step; a program is rows for `allocator.run`. How many tokens the batch has
differs from step to step, and with it the size of most tensors: that fragments the memory. Two leaks are in it: each
step's loss is kept, and now and then a feature map.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.memory.allocator import ALLOC, EMPTY_CACHE, FREE, FREE_LATER
from benchmarks.memory.stacks import DATA, SITE, TRAIN, Stacks

if TYPE_CHECKING:
    from collections.abc import Iterator

MAIN, COPY, COMM, GRAPH = range(4)
"""Families of memory: the current stream's, that of copies, of communication, of CUDA graphs with their own pool."""
STREAMS = (0, 94_125_881_403_520, 94_125_881_437_312, 94_125_881_612_400)
POOLS = ((0, 0), (0, 0), (0, 0), (0, 1))
HIDDEN, HEADS, BATCH, STAGES = 2048, 16, 4, 6
TOKENS = (256, 320, 384, 448, 512, 576, 640, 768, 896, 1024)


@dataclass(frozen=True)
class Program:
    """One step."""

    rows: np.ndarray
    """int32 (n, 4): what, slot, family, stack."""
    sizes: np.ndarray
    """int64 (n,), bytes"""
    marks: tuple[tuple[int, str, str], ...]
    """(row, name, stage) of what PyTorch's profiler would annotate."""


class _Rows:
    """Rows of one kind of step, with sizes that depend on the number of tokens."""

    def __init__(self, slots: _Slots) -> None:
        self.slots = slots
        self.rows: list[tuple[int, int, int, int]] = []
        self.sizes: list[tuple[float, float, float]] = []
        self.marks: list[tuple[int, str, str]] = []

    def alloc(self, size: tuple[float, float, float], stack: int, family: int = MAIN, slot: int | None = None) -> int:
        slot = self.slots.take() if slot is None else slot
        self.rows.append((ALLOC, slot, family, stack))
        self.sizes.append(size)
        return slot

    def free(self, slot: int, stack: int, *, later: bool = False, keep: bool = False) -> None:
        """keep: the slot is not for other tensors."""
        self.rows.append((FREE_LATER if later else FREE, slot, MAIN, stack))
        self.sizes.append((0, 0, 0))
        if not keep:
            self.slots.give(slot)

    def other(self, what: int, stack: int) -> None:
        self.rows.append((what, -1, MAIN, stack))
        self.sizes.append((0, 0, 0))

    def mark(self, name: str, stage: str) -> None:
        self.marks.append((len(self.rows), name, stage))

    def program(self) -> _Template:
        return _Template(np.array(self.rows, np.int32), np.array(self.sizes, np.float64), tuple(self.marks))


class _Slots:
    def __init__(self) -> None:
        self.spare: list[int] = []
        self.count = 0

    def take(self) -> int:
        if self.spare:
            return self.spare.pop()
        self.count += 1
        return self.count - 1

    def give(self, slot: int) -> None:
        self.spare.append(slot)


@dataclass(frozen=True)
class _Template:
    rows: np.ndarray
    sizes: np.ndarray
    marks: tuple[tuple[int, str, str], ...]

    def of(self, tokens: int) -> Program:
        sizes = self.sizes @ np.array([1.0, tokens, tokens * tokens])
        return Program(self.rows, np.maximum(sizes, 4).astype(np.int64), self.marks)


def _tokens(per_token: float) -> tuple[float, float, float]:
    return 0, BATCH * per_token, 0


NORM = (_tokens(2 * HIDDEN), _tokens(4), _tokens(4))
"""What a layer norm leaves: its result, means, deviations."""
FORWARD = (
    *(("native_layer_norm", "forward", 88, size, True) for size in NORM),
    ("to_copy", "qkv", 91, (6 * HIDDEN * HIDDEN, 0, 0), False), ("addmm", "qkv", 91, _tokens(6 * HIDDEN), True),
    *(("clone", "heads", line, _tokens(2 * HIDDEN), True) for line in (95, 96, 97)),
    *((op, "attend", line, (0, 0, 2 * BATCH * HEADS), saved) for op, line, saved in (
        ("bmm", 104, False), ("add", 105, False), ("_softmax", 106, True), ("native_dropout", 107, True))),
    ("native_dropout", "attend", 107, (0, 0, BATCH * HEADS), True), ("bmm", "attend", 109, _tokens(2 * HIDDEN), False),
    ("clone", "attend", 110, _tokens(2 * HIDDEN), True),
    ("to_copy", "project", 113, (2 * HIDDEN * HIDDEN, 0, 0), False),
    ("addmm", "project", 113, _tokens(2 * HIDDEN), False), ("add", "forward", 89, _tokens(2 * HIDDEN), True),
    *(("native_layer_norm", "forward", 90, size, True) for size in NORM),
    ("to_copy", "mlp", 121, (8 * HIDDEN * HIDDEN, 0, 0), False), ("addmm", "mlp", 121, _tokens(8 * HIDDEN), True),
    ("gelu", "mlp", 122, _tokens(8 * HIDDEN), True), ("to_copy", "mlp", 123, (8 * HIDDEN * HIDDEN, 0, 0), False),
    ("addmm", "mlp", 123, _tokens(2 * HIDDEN), False), ("add", "forward", 92, _tokens(2 * HIDDEN), True),
)
"""What a layer makes: operator, method, line, size, whether the backward pass needs it."""
PARAMETERS = tuple(("empty", line, size) for line, size in (
    (40, 4 * HIDDEN), (40, 4 * HIDDEN), (43, 12 * HIDDEN * HIDDEN), (43, 12 * HIDDEN), (46, 4 * HIDDEN * HIDDEN),
    (46, 4 * HIDDEN), (49, 4 * HIDDEN), (49, 4 * HIDDEN), (52, 16 * HIDDEN * HIDDEN), (52, 16 * HIDDEN),
    (55, 16 * HIDDEN * HIDDEN), (55, 4 * HIDDEN)))
"""Of a layer, float32: operator, line, bytes."""
VOCABULARY = 32_000


class Training:
    """A run: `programs()` are its steps, the first of which makes the parameters. layers: how deep the model is."""

    def __init__(self, layers: int = 24, *, oom: bool = False) -> None:
        self.stacks = Stacks()
        self.layers = layers
        self.oom = oom
        self._slots = _Slots()
        self._parameters: list[tuple[int, int]] = []
        """(slot, bytes)"""
        setup = self._setup()
        self._gradients = [self._slots.take() for _ in self._parameters]
        first = self._train(states=True)
        self._start = [setup, first]
        self._step = self._train(states=False)
        self._evaluation = self._evaluate()
        self._captures = [self._capture(i) for i in range(3)]
        self._leak = self._keep_features()
        self._checkpoint = self._save()
        self._end = self._forget()

    @property
    def slots(self) -> int:
        return self._slots.count

    @property
    def warm(self) -> int:
        """How many of the programs come before the trace begins."""
        return len(self._start)

    def programs(self, rng: np.random.Generator) -> Iterator[Program]:
        """Without end."""
        yield from (template.of(1024) for template in self._start)
        step = 0
        while True:
            step += 1
            yield self._step.of(int(rng.choice(TOKENS)) if step % 7 else max(TOKENS))
            if step in (3, 60, 400):
                yield self._captures[(3, 60, 400).index(step)].of(512)
            if step % 10 == 0:
                yield self._leak.of(int(rng.choice(TOKENS)))
            if step % 50 == 20:
                yield self._evaluation.of(int(rng.choice(TOKENS)))
            if step % 200 == 150:
                yield self._checkpoint.of(512)

    def last(self) -> Program | None:
        """The end of a run that dies for want of memory."""
        return self._end.of(max(TOKENS)) if self.oom else None

    def _setup(self) -> _Template:
        rows = _Rows(self._slots)
        shapes = [("embedding", 30, 4 * VOCABULARY * HIDDEN),
                  *(p for _ in range(self.layers) for p in PARAMETERS), ("head", 60, 4 * VOCABULARY * HIDDEN)]
        for op, line, size in shapes:
            stack, _ = self.stacks.python(op, ("__init__", f"{SITE}/nn/modules/linear.py", 106),
                                          ("__init__", "/home/me/project/models/transformer.py", line),
                                          ("build", TRAIN, 120))
            self._parameters.append((rows.alloc((size, 0, 0), stack), size))
        for family in (MAIN, COMM):  # cuBLAS keeps what it needs to work
            rows.alloc((8_519_680, 0, 0), self.stacks.backward("cublas_workspace")[0], family)
        return rows.program()

    def _layer(self, rows: _Rows, layer: int, loop: tuple[str, int], *, keep: bool) -> list[tuple[int, int, str]]:
        """One layer's forward pass; what it keeps, as (slot, row of FORWARD, operator)."""
        stage = layer * STAGES // self.layers
        kept, temporary = [], []
        for i, (op, method, line, size, saved) in enumerate(FORWARD):
            path = ((method, line), ("forward", 84), (f"stage{stage}", 140 + 3 * stage), ("forward", 160))
            make, free = self.stacks.forward(op, path, loop)
            slot = rows.alloc(size, make)
            if saved and keep:
                kept.append((slot, i, op))
            else:
                temporary.append((slot, free))
            while len(temporary) > 2:  # names are bound anew, what they held before goes
                rows.free(*temporary.pop(0))
        for slot, free in temporary:
            rows.free(slot, free)
        return kept

    def _batch(self, rows: _Rows) -> list[int]:
        make, _ = self.stacks.python("to_copy", ("to_device", DATA, 77), ("__next__", DATA, 61), ("step", TRAIN, 205))
        return [rows.alloc(_tokens(8), make, COPY) for _ in range(3)]

    def _train(self, *, states: bool) -> _Template:
        rows = _Rows(self._slots)
        stacks, loop = self.stacks, ("step", 210)
        batch = self._batch(rows)
        kept = [self._layer(rows, layer, loop, keep=True) for layer in range(self.layers)]
        make, free = stacks.forward("cross_entropy", (("loss", 171),), loop)
        logits, probabilities = (rows.alloc(_tokens(k * VOCABULARY), make) for k in (2, 4))
        rows.alloc((4, 0, 0), stacks.python("clone", ("log", TRAIN, 240), ("step", TRAIN, 216))[0], slot=-1)  # a leak
        self._backward(rows, kept, (logits, probabilities))
        _, free = stacks.python("to_copy", ("to_device", DATA, 77), ("step", TRAIN, 222))
        for slot in batch:
            rows.free(slot, free, later=True)
        self._optimize(rows, states)
        _, free = stacks.python("zero_grad", ("zero_grad", f"{SITE}/optim/optimizer.py", 985), ("step", TRAIN, 226))
        for slot in self._gradients:
            rows.free(slot, free, keep=True)
        return rows.program()

    def _backward(self, rows: _Rows, kept: list[list[tuple[int, int, str]]], loss: tuple[int, int]) -> None:
        stacks = self.stacks
        make, free = stacks.backward("nll_loss")
        flow = rows.alloc(_tokens(2 * VOCABULARY), make)
        for slot in loss:
            rows.free(slot, free)
        rows.alloc((self._parameters[-1][1], 0, 0), make, slot=self._gradients[-1])
        per_layer = len(PARAMETERS)
        for layer in reversed(range(self.layers)):
            weights = iter(reversed(range(1 + layer * per_layer, 1 + (layer + 1) * per_layer)))
            for count, (slot, row, op) in enumerate(reversed(kept[layer])):
                make, free = stacks.backward(op)
                following = rows.alloc(FORWARD[row][3], make)
                rows.free(flow, stacks.backward("accumulate")[1])
                flow = following
                if count % 2 == 0 and (weight := next(weights, None)) is not None:
                    rows.alloc((self._parameters[weight][1], 0, 0), stacks.backward("accumulate_grad")[0],
                               slot=self._gradients[weight])
                rows.free(slot, free)
            for weight in weights:
                rows.alloc((self._parameters[weight][1], 0, 0), stacks.backward("accumulate_grad")[0],
                           slot=self._gradients[weight])
            make, free = stacks.backward("all_reduce")
            rows.free(rows.alloc((25 << 20, 0, 0), make, COMM), free, later=True)
        make, free = stacks.backward("embedding")
        rows.alloc((self._parameters[0][1], 0, 0), make, slot=self._gradients[0])
        rows.free(flow, free)

    def _optimize(self, rows: _Rows, states: bool) -> None:
        adam, loop = f"{SITE}/optim/adamw.py", ("step", TRAIN, 224)
        rows.mark("Optimizer.step#AdamW.step", "START")
        if states:
            for _, size in self._parameters:
                make, _ = self.stacks.python("zeros_like", ("_init_group", f"{SITE}/optim/adam.py", 185),
                                             ("step", adam, 222), loop)
                rows.alloc((size, 0, 0), make)
                rows.alloc((size, 0, 0), make)
                rows.alloc((4, 0, 0), make)
        for first in range(0, len(self._parameters), 48):  # the foreach kernels take them in lots
            lot = self._parameters[first: first + 48]
            for line in (601, 606):
                make, free = self.stacks.python("_foreach_sqrt", ("_multi_tensor_adam", f"{SITE}/optim/adam.py", line),
                                                ("adam", f"{SITE}/optim/adam.py", 949), ("step", adam, 227), loop)
                slots = [rows.alloc((size, 0, 0), make) for _, size in lot]
                for slot in slots:
                    rows.free(slot, free)
        rows.mark("Optimizer.step#AdamW.step", "END")

    def _evaluate(self) -> _Template:
        rows = _Rows(self._slots)
        for _ in range(2):
            batch = self._batch(rows)
            for layer in range(self.layers):
                self._layer(rows, layer, ("evaluate", 260), keep=False)
            make, free = self.stacks.forward("cross_entropy", (("loss", 171),), ("evaluate", 262))
            rows.free(rows.alloc(_tokens(4 * VOCABULARY), make), free)
            for slot in batch:
                rows.free(slot, free, later=True)
        rows.other(EMPTY_CACHE, self.stacks.python("empty_cache", ("empty_cache", f"{SITE}/cuda/memory.py", 224),
                                                   ("evaluate", TRAIN, 266))[0])
        return rows.program()

    def _capture(self, number: int) -> _Template:
        """A CUDA graph of the model for one more length; its pool keeps what it got."""
        rows = _Rows(self._slots)
        make, free = self.stacks.python("addmm", ("forward", f"{SITE}/nn/modules/linear.py", 125),
                                        ("capture", TRAIN, 280 + 7 * number))
        for size in ((6 * HIDDEN, 0), (2 * HIDDEN, 0), (8 * HIDDEN, 0), (4, 0), (0, 2 * BATCH * HEADS)):
            rows.alloc((0, BATCH * size[0] * (number + 1), size[1]), make, GRAPH)
            rows.free(rows.alloc((0, BATCH * size[0], size[1]), make, GRAPH), free)
        return rows.program()

    def _keep_features(self) -> _Template:
        rows = _Rows(self._slots)
        make, _ = self.stacks.forward("clone", (("hook", 33), ("forward", 84)), ("step", 210))
        rows.alloc(_tokens(2 * HIDDEN), make, slot=-1)
        return rows.program()

    def _forget(self) -> _Template:
        """A validation that forgot no_grad: what the layers keep piles up until there is no more memory."""
        rows = _Rows(self._slots)
        for _ in range(400 // self.layers + 1):
            for layer in range(self.layers):
                self._layer(rows, layer, ("validate", 301), keep=True)
        return rows.program()

    def _save(self) -> _Template:
        rows = _Rows(self._slots)
        make, free = self.stacks.python("clone", ("state_dict", f"{SITE}/nn/modules/module.py", 2260),
                                        ("checkpoint", TRAIN, 330))
        slots = [rows.alloc((size, 0, 0), make) for _, size in self._parameters]
        for slot in slots:
            rows.free(slot, free)
        return rows.program()
