"""A look at a pickle before torch reads it: what it would build is not larger than what it takes.

A pickle may refer to the same list or tuple twice, and to that one twice, and so on: 40 lines of it stand for a value
of 10^12 parts. Building it takes nothing, but its hash (as a key) or its text (in an error of torch's) never ends, and
cannot be interrupted. Nothing is built here: only what refers to what is counted.
"""

from __future__ import annotations

import pickletools
from typing import Any

from splatview_viewer.errors import FileError

MOST_OPERATIONS = 1_000_000
"""Each takes 2 us here and about as much in torch; a tensor takes 25."""
MOST_PARTS = 4_000_000
"""Of a value, each part counted as often as it occurs."""
MOST_LARGE = 1000
"""Whole numbers over 64 bits. Their hashes can be made to collide, which makes a mapping of them slow."""
LONG_TEXT = 64
"""Characters from which a text counts by its length."""

_MUTATORS = {"APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"}
_CONTAINERS = {"EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET"}
_MARK = -1
_LEAF = 0
"""The node of every value that has no parts."""


def check_pickle(data: bytes) -> None:
    """Check that no value in a pickle has more than MOST_PARTS parts or contains itself.

    Raises:
        FileError: it does, the pickle is damaged, or it has more than MOST_OPERATIONS operations.
    """
    graph = _Graph()
    count = large = 0
    try:
        for operation, argument, _ in pickletools.genops(data):
            count += 1
            if isinstance(argument, int) and argument.bit_length() > 64:
                large += 1
            if count > MOST_OPERATIONS or large > MOST_LARGE:
                raise FileError(f"the pickle has more than {MOST_OPERATIONS:,} operations or {MOST_LARGE:,} numbers "
                                "over 64 bits; mappings of tensors have less")
            graph.run(operation, argument)
    except (ValueError, IndexError, OverflowError, AssertionError) as e:
        raise FileError(f"damaged, or not only tensors ({type(e).__name__}: {e!s:.200})") from None
    graph.check()


class _Graph:
    """The stack machine of a pickle with a number for each value, and what each value refers to."""

    def __init__(self) -> None:
        self.stack: list[int] = []
        self.memo: dict[int, int] = {}
        self.parts: list[list[int]] = [[]]
        self.own = [1]
        """What each value counts besides its parts."""

    def run(self, operation: pickletools.OpcodeInfo, argument: Any) -> None:
        """Follow one operation. Raises IndexError where the stack is too short."""
        name = operation.name
        if name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[int(argument)] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo.get(int(argument), _LEAF))
        elif name == "DUP":
            self.stack.append(self.stack[-1])
        elif name == "MARK":
            self.stack.append(_MARK)
        else:
            taken = self._take(operation)
            if name in _MUTATORS:
                self._add(taken[0], taken[1:])
                self.stack.append(taken[0])
            elif operation.stack_after:
                text = len(argument) if isinstance(argument, (str, bytes)) else 0
                node = _LEAF
                if taken or name in _CONTAINERS or text > LONG_TEXT:
                    node = len(self.parts)
                    self.parts.append([])
                    self.own.append(max(text, 1))
                    self._add(node, taken)
                self.stack.append(node)

    def _take(self, operation: pickletools.OpcodeInfo) -> list[int]:
        """Take the values that an operation takes from the stack: all down to the mark, and those below it."""
        before = [kind.name for kind in operation.stack_before]
        taken: list[int] = []
        if "mark" in before:
            while (node := self.stack.pop()) != _MARK:
                taken.append(node)
            before = before[:before.index("mark")]
        for _ in before:
            taken.append(self.stack.pop())
        return taken[::-1]

    def _add(self, node: int, parts: list[int]) -> None:
        found = [p for p in parts if p > _LEAF]
        self.parts[node] += found
        self.own[node] += len(parts) - len(found)

    def check(self) -> None:
        """Add up the parts of every value, each after those that it refers to. Raises FileError."""
        sizes: dict[int, int] = {}
        open_nodes: set[int] = set()
        for root in range(1, len(self.parts)):
            waiting = [root]
            while waiting:
                node = waiting[-1]
                if node in sizes:
                    waiting.pop()
                elif node in open_nodes:
                    waiting.pop()
                    open_nodes.discard(node)
                    sizes[node] = self.own[node] + sum(sizes[p] for p in self.parts[node])
                    if sizes[node] > MOST_PARTS:
                        raise FileError(f"the pickle is made to exhaust memory: a value in it has more than "
                                        f"{MOST_PARTS:,} parts")
                else:
                    open_nodes.add(node)
                    for part in self.parts[node]:
                        if part in open_nodes:
                            raise FileError("the pickle has a value that contains itself; mappings of tensors do not")
                        if part not in sizes:
                            waiting.append(part)
