"""The flame graph: bytes by the calls that lead to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.analysis import frames as _frames
from splatview_viewer.kinds.snapshot.model import ids_of, kept

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace


@dataclass(frozen=True, eq=False)
class _Tree:
    """All stacks of a snapshot as a tree of calls, the outermost first. Nodes lie in the order of their depth."""

    parent: np.ndarray
    """int32 (N,); -1: the root, which is node 0."""
    frame: np.ndarray
    """int32 (N,): -1: the root; -2: no stack."""
    level: np.ndarray
    """int64 (depth + 1,): the nodes of depth d are level[d]..level[d + 1]."""
    leaf: np.ndarray
    """int32 (S + 1,): the node where each stack ends; the last is for NO_STACK."""


def _paths(snapshot: Snapshot) -> tuple[np.ndarray, np.ndarray]:
    """The frames of all stacks, outermost first: (frames int32, start int64 (S + 1,)).

    Python's frames come before those of C++, which PyTorch mixes up; the frames that stand in every stack and tell
    nothing are left out, but where nothing else is there they stay.
    """
    s = snapshot.stacks
    stack = np.repeat(np.arange(len(s), dtype=np.int32), np.diff(s.start))[::-1]
    frames = s.frames[::-1]  # stacks backwards, each of them outermost first
    kind = _frames.frame_kinds(snapshot)[frames]
    told = np.zeros(len(s), bool)
    told[stack[kind != _frames.MACHINERY]] = True
    keep = (kind != _frames.MACHINERY) | ~told[stack]
    frames, stack, kind = frames[keep], stack[keep], kind[keep]
    order = np.argsort(stack.astype(np.int64) * 2 + (kind > _frames.TORCH), kind="stable")
    start = np.zeros(len(s) + 1, np.int64)
    np.cumsum(np.bincount(stack, minlength=len(s)), out=start[1:])
    return frames[order], start


@kept
def _tree(snapshot: Snapshot) -> _Tree:
    frames, start = _paths(snapshot)
    count = len(start) - 1
    depth = np.diff(start)
    leaf = np.zeros(count + 1, np.int32)
    parents, named = [np.array([-1], np.int32)], [np.array([-1], np.int32)]
    level = [0, 1]
    going = np.flatnonzero(depth > 0)
    width = np.int64(len(snapshot.stacks.file) + 1)
    for d in range(int(depth.max(initial=0))):
        key = leaf[going] * width + frames[start[going] + d]
        order = np.argsort(key, kind="stable")  # what is in order from the level before costs little
        going, key = going[order], key[order]
        new = np.append(True, key[1:] != key[:-1])
        leaf[going] = np.cumsum(new) - 1 + level[-1]
        unique = key[new]
        parents.append((unique // width).astype(np.int32))
        named.append((unique % width).astype(np.int32))
        level.append(level[-1] + len(unique))
        going = going[depth[going] > d + 1]
    if (leaf == 0).any():  # what has no stack is a child of the root
        parents.insert(2, np.zeros(1, np.int32))
        named.insert(2, np.full(1, -2, np.int32))
        at = level[2] if len(level) > 2 else 1
        leaf = np.where(leaf == 0, at, leaf + (leaf >= at)).astype(np.int32)
        parents[3:] = [p + (p >= at) for p in parents[3:]]
        level = [0, 1, *(end + 1 for end in (level[2:] or [1]))]
    return _Tree(np.concatenate(parents), np.concatenate(named), np.array(level, np.int64), leaf)


@dataclass(frozen=True, eq=False)
class FlameGraph:
    """Nodes in the order of their depth, and at each depth from left to right. Node 0 is all of it."""

    snapshot: Snapshot
    trace: Trace
    parent: np.ndarray
    """int32 (N,); -1: none."""
    frame: np.ndarray
    """int32 (N,): -1 for node 0; -2 for what has no stack."""
    depth: np.ndarray
    """int32 (N,)"""
    x: np.ndarray
    """int64 (N,), bytes: where the node begins. Its children lie in it, the largest at the left."""
    width: np.ndarray
    """int64 (N,), bytes"""
    count: np.ndarray
    """int64 (N,): allocations"""
    level: np.ndarray
    """int64 (depth + 1,): the nodes of depth d are level[d] to level[d + 1]."""
    leaf: np.ndarray
    """int32 (S + 1,): the node where each stack ends, the last for NO_STACK; -1: it is not in the graph."""
    ids: np.ndarray | slice
    """The allocations that the graph is of."""

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def depths(self) -> int:
        """Number of rows of the graph, that of node 0 included."""
        return len(self.level) - 1

    def text(self, node: int) -> str:
        """Return the name of a node."""
        frame = int(self.frame[node])
        return "all" if frame == -1 else _frames.frame_text(self.snapshot, frame)

    def visible(self, depth: int, low: float, high: float, least: float) -> np.ndarray:
        """int64: the nodes at a depth that reach into low..high and are at least `least` bytes wide."""
        first, last = int(self.level[depth]), int(self.level[depth + 1])
        x, width = self.x[first:last], self.width[first:last]
        return first + np.flatnonzero((x < high) & (x + width > low) & (width >= least))

    def path(self, node: int) -> list[int]:
        """The nodes from node 0 to this one."""
        out = []
        while node >= 0:
            out.append(node)
            node = int(self.parent[node])
        return out[::-1]

    def allocations(self, node: int) -> np.ndarray:
        """int32: the ids of a node's allocations."""
        under, depth = self.leaf.copy(), int(self.depth[node])
        for _ in range(self.depths):
            deep = np.flatnonzero((under >= 0) & (self.depth[under] > depth))
            if not len(deep):
                break
            under[deep] = self.parent[under[deep]]
        inside = (under == node)[self.trace.allocations.stack[self.ids]]
        ids = np.flatnonzero(inside)
        return (ids if isinstance(self.ids, slice) else self.ids[ids]).astype(np.int32)


def flame(snapshot: Snapshot, trace: Trace, ids: np.ndarray | None = None) -> FlameGraph:
    """The flame graph of some allocations: ids, a mask bool (A,), or None for all. Python's frames come first, then
    those of C++ that tell something."""
    tree = _tree(snapshot)
    which = ids_of(trace, ids)
    stack, size = trace.allocations.stack[which], trace.allocations.size[which]
    stacks = len(tree.leaf)
    of_stack = np.zeros(stacks, np.int64)
    slot = np.where(stack < 0, stacks - 1, stack)
    np.add.at(of_stack, slot, size)
    total, count = len(tree.parent), np.bincount(slot, minlength=stacks)
    width, number = np.zeros(total, np.int64), np.zeros(total, np.int64)
    np.add.at(width, tree.leaf, of_stack)
    np.add.at(number, tree.leaf, count)
    levels = [slice(int(a), int(b)) for a, b in zip(tree.level[:-1], tree.level[1:], strict=True)]
    for level in reversed(levels[1:]):
        parent = tree.parent[level]  # ascending: brothers lie side by side
        first = np.flatnonzero(np.append(True, parent[1:] != parent[:-1]))
        width[parent[first]] += np.add.reduceat(width[level], first)
        number[parent[first]] += np.add.reduceat(number[level], first)
    return _lay_out(snapshot, trace, tree, (width, number), which)


def _lay_out(snapshot: Snapshot, trace: Trace, tree: _Tree, sums: tuple[np.ndarray, np.ndarray],
             which: np.ndarray | slice) -> FlameGraph:
    """Leave out what is empty, and put brothers side by side, the largest first."""
    width, count = sums
    new = np.full(len(width), -1, np.int32)
    new[0] = 0
    x = np.zeros(len(width), np.int64)
    scale = 1.001 * max(int(width[0]), 1)
    order, level = [np.zeros(1, np.int64)], [0, 1]
    for a, b in zip(tree.level[1:-1], tree.level[2:], strict=True):
        nodes = a + np.flatnonzero(count[a:b])
        if not len(nodes):
            break
        parent = tree.parent[nodes]
        # by place of the parent, then from wide to narrow; one number for both is the quickest to sort
        place = np.argsort(new[parent] + (1 - width[nodes] / scale), kind="stable")
        nodes, parent = nodes[place], parent[place]
        before = np.cumsum(width[nodes]) - width[nodes]
        first = np.ones(len(nodes), bool)
        first[1:] = parent[1:] != parent[:-1]
        x[nodes] = x[parent] + before - before[np.flatnonzero(first)[np.cumsum(first) - 1]]
        new[nodes] = np.arange(level[-1], level[-1] + len(nodes))
        order.append(nodes)
        level.append(level[-1] + len(nodes))
    chosen = np.concatenate(order)
    parent = tree.parent[chosen]
    return FlameGraph(
        snapshot, trace, np.where(parent >= 0, new[parent], -1).astype(np.int32), tree.frame[chosen],
        np.repeat(np.arange(len(order), dtype=np.int32), np.diff(level)), x[chosen], width[chosen], count[chosen],
        np.array(level, np.int64), new[tree.leaf], which)
