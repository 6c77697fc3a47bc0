"""The flame graph: bytes by the calls that lead to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.snapshot.analysis import frames as _frames
from splatview_viewer.snapshot.model import cached

if TYPE_CHECKING:
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace


@cached
def _paths(snapshot: MemorySnapshot) -> tuple[np.ndarray, np.ndarray]:
    """The frames of all stacks, outermost first, the last those of NO_STACK: (frames int32, start int64 (S + 2,)).

    Python's frames come before those of C++, which PyTorch mixes up; the frames that stand in every stack and tell
    nothing are left out, but where nothing else is there they stay. A stack without frames has the frame -2.
    """
    s = snapshot.stacks
    stack = np.repeat(np.arange(len(s), dtype=np.int32), np.diff(s.start))[::-1]
    frames = s.frames[::-1]  # stacks backwards, each of them outermost first
    kind = _frames.frame_kinds(snapshot)[frames]
    told = np.zeros(len(s), bool)
    told[stack[kind != _frames.MACHINERY]] = True
    keep = (kind != _frames.MACHINERY) | ~told[stack]
    frames = frames[keep]
    stack = stack[keep]
    kind = kind[keep]
    order = np.argsort(
        stack.astype(np.int64) * 2 + (kind > _frames.TORCH), kind="stable"
    )
    depth = np.append(np.bincount(stack, minlength=len(s)), 0)
    empty = depth == 0
    frames = np.insert(frames[order], (np.cumsum(depth) - depth)[empty], -2)
    return frames, np.append(0, np.cumsum(np.maximum(depth, 1)))


@dataclass(frozen=True, eq=False)
class FlameGraph:
    """Nodes in the order of their depth, and at each depth from left to right. Node 0 is all of it."""

    snapshot: MemorySnapshot
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
    ids: np.ndarray
    """The allocations that the graph is of."""

    def text(self, node: int) -> str:
        """Return the name of a node."""
        frame = int(self.frame[node])
        return "all" if frame == -1 else _frames.frame_text(self.snapshot, frame)

    def allocations(self, node: int) -> np.ndarray:
        """int32: the ids of a node's allocations."""
        under = self.leaf.copy()
        depth = int(self.depth[node])
        for _ in range(len(self.level)):
            deep = np.flatnonzero((under >= 0) & (self.depth[under] > depth))
            if not len(deep):
                break
            under[deep] = self.parent[under[deep]]
        return self.ids[(under == node)[self.trace.allocations.stack[self.ids]]].astype(
            np.int32
        )


def flame_graph(
    snapshot: MemorySnapshot, trace: Trace, mask: np.ndarray | None = None
) -> FlameGraph:
    """The flame graph of the allocations of a mask, bool (A,), or of all. Python's frames come first, then those of C++
    that tell something.
    """
    frames, start = _paths(snapshot)
    depth = np.diff(start)
    frame_base = np.int64(len(snapshot.stacks.file) + 2)
    if mask is not None:
        which = np.flatnonzero(mask)
    else:
        which = np.arange(len(trace.allocations))
    slot = trace.allocations.stack[which] % len(depth)  # NO_STACK is the last
    of_stack = np.zeros(len(depth), np.int64)
    np.add.at(of_stack, slot, trace.allocations.size[which])
    counts = np.bincount(slot, minlength=len(depth))
    going = np.flatnonzero(counts)
    leaf = np.full(len(depth), -1, np.int32)
    node = np.zeros(len(going), np.int64)
    # parent, frame, x, width and count of the nodes of each depth
    rows = [
        tuple(
            np.array([n], np.int64) for n in (-1, -1, 0, of_stack.sum(), counts.sum())
        )
    ]
    level = [0, 1]
    while len(going):
        key, of = np.unique(
            node * frame_base + frames[start[going] + len(rows) - 1] + 2,
            return_inverse=True,
        )
        width = np.zeros(len(key), np.int64)
        count = np.zeros(len(key), np.int64)
        np.add.at(width, of, of_stack[going])
        np.add.at(count, of, counts[going])
        order = np.lexsort(
            (-width, key // frame_base)
        )  # brothers are side by side, the largest first
        parent = (key // frame_base)[order]
        width = width[order]
        before = np.cumsum(width) - width
        x = (
            rows[-1][2][parent - level[-2]]
            + before
            - before[np.searchsorted(parent, parent)]
        )
        rows.append((parent, key[order] % frame_base - 2, x, width, count[order]))
        place = np.empty(len(key), np.int64)
        place[order] = np.arange(level[-1], level[-1] + len(key))
        level.append(level[-1] + len(key))
        node = place[of]
        leaf[going] = node
        deeper = depth[going] >= len(rows)
        going = going[deeper]
        node = node[deeper]
    parent, frame, x, width, count = (
        np.concatenate(column) for column in zip(*rows, strict=True)
    )
    return FlameGraph(
        snapshot,
        trace,
        parent.astype(np.int32),
        frame.astype(np.int32),
        np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(level)),
        x,
        width,
        count,
        np.array(level, np.int64),
        leaf,
        which,
    )
