"""Computes flame graphs: bytes by the calls that lead to them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.core.quantities import count_text, exact_size_text, size_text
from splatview_viewer.snapshot.analysis import frames as _frames
from splatview_viewer.snapshot.model import cached

if TYPE_CHECKING:
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

ROOT_FRAME = -1
"""The frame of node 0, which stands for all stacks."""
NO_FRAME = -2
"""The frame of what has no stack."""


_WARM = (
    (0.93, 0.66, 0.38),
    (0.90, 0.58, 0.40),
    (0.94, 0.73, 0.43),
    (0.87, 0.62, 0.48),
    (0.91, 0.69, 0.52),
)
_COOL = (
    (0.42, 0.51, 0.63),
    (0.46, 0.55, 0.65),
    (0.39, 0.50, 0.58),
    (0.48, 0.53, 0.66),
    (0.43, 0.56, 0.61),
)


class _Paths(NamedTuple):
    """The frames of all stacks, outermost first; the last stack is that of NO_STACK."""

    frames: np.ndarray
    """int32; a stack without frames has the frame NO_FRAME."""
    start: np.ndarray
    """The index in `frames` at which each stack begins, and the end, int64 (S + 2,)."""


@cached
def _paths(snapshot: MemorySnapshot) -> _Paths:
    """Return the frames of all stacks as the graph shows them.

    Python's frames come before those of C++, which PyTorch mixes up. The frames that stand
    in every stack and tell nothing are left out, unless a stack has no others.
    """
    stacks = snapshot.stacks
    stack_count = len(stacks)
    stack = np.repeat(np.arange(stack_count, dtype=np.int32), np.diff(stacks.start))
    # Backwards, so that each stack is outermost first.
    stack = stack[::-1]
    frames = stacks.frames[::-1]
    kind = _frames.frame_kinds(snapshot)[frames]
    is_machinery = kind == _frames.MACHINERY
    has_telling_frame = np.zeros(stack_count, bool)
    has_telling_frame[stack[~is_machinery]] = True
    is_shown = ~is_machinery | ~has_telling_frame[stack]
    frames = frames[is_shown]
    stack = stack[is_shown]
    is_native = kind[is_shown] > _frames.TORCH
    order = np.argsort(stack.astype(np.int64) * 2 + is_native, kind="stable")
    depth = np.append(np.bincount(stack, minlength=stack_count), 0)
    start = np.cumsum(depth) - depth
    frames = np.insert(frames[order], start[depth == 0], NO_FRAME)
    return _Paths(frames, np.append(0, np.cumsum(np.maximum(depth, 1))))


@dataclass(frozen=True, eq=False)
class FlameGraph:
    """Nodes by depth, and at each depth from left to right. Node 0 stands for all."""

    snapshot: MemorySnapshot
    trace: Trace
    parent: np.ndarray
    """int32 (N,); -1: none."""
    frame: np.ndarray
    """int32 (N,): ROOT_FRAME for node 0; NO_FRAME for what has no stack."""
    depth: np.ndarray
    """int32 (N,)"""
    x: np.ndarray
    """int64 (N,), bytes: the left edge of the node. Its children lie in it, the largest at
    the left."""
    width: np.ndarray
    """int64 (N,), bytes"""
    count: np.ndarray
    """int64 (N,): allocations"""
    level: np.ndarray
    """int64 (depth + 1,): the nodes of depth d are level[d] to level[d + 1]."""
    leaf: np.ndarray
    """int32 (S + 1,): the node at which each stack ends, the last for NO_STACK; -1: it is
    not in the graph."""
    ids: np.ndarray
    """The allocations of the graph."""

    def text(self, node: int) -> str:
        """Return the name of a node."""
        frame = int(self.frame[node])
        if frame == ROOT_FRAME:
            return "all"
        return _frames.frame_text(self.snapshot, frame)

    def allocations(self, node: int) -> np.ndarray:
        """Return the ids of a node's allocations, int32."""
        # The ancestor of each stack's node at the depth of this node.
        ancestor = self.leaf.copy()
        depth = int(self.depth[node])
        for _ in range(len(self.level)):
            is_deeper = (ancestor >= 0) & (self.depth[ancestor] > depth)
            deeper = np.flatnonzero(is_deeper)
            if not len(deeper):
                break
            ancestor[deeper] = self.parent[ancestor[deeper]]
        stacks = self.trace.allocations.stack[self.ids]
        return self.ids[(ancestor == node)[stacks]].astype(np.int32)


class _Level(NamedTuple):
    """The nodes of one depth; columns as in `FlameGraph`, int64."""

    parent: np.ndarray
    frame: np.ndarray
    x: np.ndarray
    width: np.ndarray
    counts: np.ndarray


def flame_graph(
    snapshot: MemorySnapshot, trace: Trace, mask: np.ndarray | None = None
) -> FlameGraph:
    """Return the flame graph of the allocations of a mask, bool (A,), or of all.

    Python's frames come first, then those of C++ that tell something.
    """
    paths = _paths(snapshot)
    stack_depth = np.diff(paths.start)
    stack_count = len(stack_depth)
    if mask is not None:
        ids = np.flatnonzero(mask)
    else:
        ids = np.arange(len(trace.allocations))
    # NO_STACK, which is -1, becomes the last.
    stack = trace.allocations.stack[ids] % stack_count
    stack_bytes = np.zeros(stack_count, np.int64)
    np.add.at(stack_bytes, stack, trace.allocations.size[ids])
    stack_counts = np.bincount(stack, minlength=stack_count)
    leaf = np.full(stack_count, -1, np.int32)
    root = (-1, ROOT_FRAME, 0, stack_bytes.sum(), stack_counts.sum())
    levels = [_Level(*(np.array([value], np.int64) for value in root))]
    level_starts = [0, 1]
    # Stacks that go on at the next depth, and the nodes that they are at.
    active = np.flatnonzero(stack_counts)
    node = np.zeros(len(active), np.int64)
    while len(active):
        frames = paths.frames[paths.start[active] + len(levels) - 1]
        level, node_of_stack = _next_level(
            levels[-1],
            level_starts[-2],
            node,
            frames,
            stack_bytes[active],
            stack_counts[active],
        )
        node = level_starts[-1] + node_of_stack
        leaf[active] = node
        levels.append(level)
        level_starts.append(level_starts[-1] + len(level.parent))
        goes_on = stack_depth[active] >= len(levels)
        active = active[goes_on]
        node = node[goes_on]
    parent, frame, x, width, count = map(np.concatenate, zip(*levels, strict=True))
    depths = np.arange(len(levels), dtype=np.int32)
    return FlameGraph(
        snapshot=snapshot,
        trace=trace,
        parent=parent.astype(np.int32),
        frame=frame.astype(np.int32),
        depth=np.repeat(depths, np.diff(level_starts)),
        x=x,
        width=width,
        count=count,
        level=np.array(level_starts, np.int64),
        leaf=leaf,
        ids=ids,
    )


def _next_level(
    parent_level: _Level,
    above_start: int,
    parent_of_stack: np.ndarray,
    frames: np.ndarray,
    stack_bytes: np.ndarray,
    stack_counts: np.ndarray,
) -> tuple[_Level, np.ndarray]:
    """Return the nodes of the next depth, and which of them each stack is at.

    Args:
        parent_level: the nodes of the depth before.
        above_start: the index of the first of them.
        parent_of_stack: the node that each stack is at, at the depth before.
        frames: the frame of each stack at this depth.
        stack_bytes: bytes of the allocations of each stack.
        stack_counts: number of the allocations of each stack.
    """
    # Stacks of the same parent and frame are one node.
    frame_base = np.int64(max(int(frames.max()), 0) - NO_FRAME + 1)
    keys, key_of_stack = np.unique(
        parent_of_stack * frame_base + (frames - NO_FRAME), return_inverse=True
    )
    width = np.zeros(len(keys), np.int64)
    count = np.zeros(len(keys), np.int64)
    np.add.at(width, key_of_stack, stack_bytes)
    np.add.at(count, key_of_stack, stack_counts)
    # Children of one parent are side by side, the largest first.
    order = np.lexsort((-width, keys // frame_base))
    parent = (keys // frame_base)[order]
    width = width[order]
    left = np.cumsum(width) - width
    first_sibling = np.searchsorted(parent, parent)
    x = parent_level.x[parent - above_start] + left - left[first_sibling]
    frame = keys[order] % frame_base + NO_FRAME
    position = np.empty(len(keys), np.int64)
    position[order] = np.arange(len(keys))
    level = _Level(parent, frame, x, width, count[order])
    return level, position[key_of_stack]


# -- drawing ---------------------------------------------------------------------------


class PlacedNode(NamedTuple):
    """A node at its place in a drawing."""

    node: int
    x0: float
    """Its left end, in units of the drawing."""
    x1: float
    """Its right end."""


def lay_out(
    graph: FlameGraph,
    width: float,
    min_width: float,
    *,
    zoom: int = 0,
    max_callers: int = 0,
) -> list[list[PlacedNode]]:
    """Return the nodes of a drawing by depth, without those that are too narrow.

    Args:
        graph: the flame graph.
        width: of the drawing.
        min_width: of a node that is drawn.
        zoom: the node that fills the width.
        max_callers: rows for its nearest callers, each of which is as wide, at most.
    """
    path = [zoom]
    while len(path) <= max_callers and path[0]:
        path.insert(0, int(graph.parent[path[0]]))
    rows = [[PlacedNode(node, 0.0, width)] for node in path]
    left = int(graph.x[zoom])
    zoom_bytes = max(int(graph.width[zoom]), 1)
    scale = width / zoom_bytes
    min_bytes = max(min_width / scale, 1)
    deeper_levels = graph.level[int(graph.depth[zoom]) + 1 :].tolist()
    for first, end in pairwise(deeper_levels):
        x = graph.x[first:end]
        node_bytes = graph.width[first:end]
        is_inside = (x < left + zoom_bytes) & (x + node_bytes > left)
        nodes = first + np.flatnonzero(is_inside & (node_bytes >= min_bytes))
        if not len(nodes):
            break
        x0 = (graph.x[nodes] - left) * scale
        x1 = x0 + graph.width[nodes] * scale
        rows.append(list(map(PlacedNode, nodes.tolist(), x0.tolist(), x1.tolist())))
    return rows


def frame_colors(files: np.ndarray, user: np.ndarray) -> np.ndarray:
    """Return red, green and blue (0 to 1) of each frame, float64 (F, 3).

    They are warm for the user's own code, cool and quiet for libraries; alike within a
    file.

    Args:
        files: index of each frame's file, int (F,).
        user: frames of the user's code, bool (F,).
    """
    hashed = files.astype(np.uint64) * np.uint64(2654435761) >> np.uint64(7)
    tone = hashed % np.uint64(len(_WARM))
    return np.where(user[:, None], np.array(_WARM)[tone], np.array(_COOL)[tone])


def node_label(graph: FlameGraph, node: int) -> str:
    """Return the words in a node: "forward   1.20 GiB   model.py:54"."""
    size = size_text(int(graph.width[node]))
    if not node:
        return f"All: {size} in {count_text(int(graph.count[0]), 'block')}"
    name, _, location = graph.text(node).partition("  ")
    return f"{name}   {size}   {location}"


def node_text(graph: FlameGraph, node: int) -> str:
    """Return lines about a node: its frame, bytes, share and number of blocks."""
    width = int(graph.width[node])
    total = max(int(graph.width[0]), 1)
    count = count_text(int(graph.count[node]), "block")
    size = f"{exact_size_text(width)} in {count}, {width / total:.1%} of all"
    frame_id = int(graph.frame[node])
    if frame_id == ROOT_FRAME:
        return size
    if frame_id < 0:
        return f"What has no stack\n{size}"
    frame = graph.snapshot.frame(frame_id)
    location = "C++"
    if frame.file not in ("", "??"):
        location = f"{frame.file}:{frame.line}"
    return f"{frame.name}\n{location}\n{size}"
