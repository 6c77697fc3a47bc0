"""Memory snapshots of one training step, of a program that leaks and one that does not."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from support.memory_data import MB, block, event, frame, segment, snapshot

if TYPE_CHECKING:
    from pathlib import Path

LAYERS = 110
"""Layers of the network that is trained."""
STEP_US = 200_000
_MATRIX = 30 * MB
_ATTENTION = 26 * MB
_GRADIENT = 5 * MB
_STATE = 12 * MB
_CACHED = 7 * MB
_WEIGHTS = 4700 * MB
_STEP_FRAMES = (
    frame("step", 141, "/home/ada/project/train.py"),
    frame("main", 203, "/home/ada/project/train.py"),
)


def _stack(name: str, line: int, file: str) -> list[dict[str, Any]]:
    """Return a stack of one line of the program, innermost first."""
    return [
        frame("at::empty_cuda", 0, "??"),
        frame(name, line, f"/home/ada/project/{file}"),
        *_STEP_FRAMES,
    ]


class _Recorder:
    """The events of a program, in the order of their times."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._next_address = 1 << 32

    def allocate(self, time_us: float, size: int, frames: list[dict[str, Any]]) -> int:
        """Allocate bytes; return their address."""
        address = self._next_address
        self._next_address += size + (-size % 512)
        self._add("alloc", time_us, address, size, frames)
        return address

    def free(self, time_us: float, address: int, size: int) -> None:
        """Free an allocation at once."""
        self._add("free_requested", time_us, address, size, list(_STEP_FRAMES))
        self._add("free_completed", time_us, address, size, [])

    def _add(
        self, action: str, time_us: float, address: int, size: int, frames: list[Any]
    ) -> None:
        self.events.append(
            event(action, address, size, time_us=round(time_us), frames=frames)
        )

    def sorted_events(self) -> list[dict[str, Any]]:
        """Return all events by their times."""
        return sorted(self.events, key=_time_of)


def _time_of(entry: dict[str, Any]) -> int:
    """Return the time of an event."""
    return entry["time_us"]


def training_step(*, leaks: bool) -> dict[str, Any]:
    """Return the snapshot of a step: forward, backward, optimizer.

    leaks: a cache keeps a tensor of every layer, as long as the program runs.
    """
    recorder = _Recorder()
    matrix_stack = _stack("einsum", 39, "model.py")
    attention_stack = _stack("bmm", 57, "model.py")
    gradient_stack = _stack("backward", 88, "autograd.py")
    state_stack = _stack("AdamW.step", 214, "optim.py")
    cache_stack = _stack("cache.append", 88, "train.py")
    cached_bytes = 0
    for layer in range(LAYERS):
        begin_us = 1e6 + STEP_US * 0.2 * layer / LAYERS
        end_us = 1e6 + STEP_US * (0.2 + 0.5 * (LAYERS - layer) / LAYERS)
        for size, stack in ((_MATRIX, matrix_stack), (_ATTENTION, attention_stack)):
            address = recorder.allocate(begin_us, size, stack)
            recorder.free(end_us, address, size)
        gradient = recorder.allocate(end_us - 200, _GRADIENT, gradient_stack)
        recorder.free(1e6 + STEP_US * (0.97 + 0.0002 * layer), gradient, _GRADIENT)
        late = 1e6 + STEP_US * (0.55 + 0.4 * layer / LAYERS)
        recorder.allocate(late, _STATE, state_stack)
        if leaks:
            recorder.allocate(begin_us + 50, _CACHED, cache_stack)
            cached_bytes += _CACHED
    used = _WEIGHTS + LAYERS * _STATE + cached_bytes
    peak = _WEIGHTS + LAYERS * (_MATRIX + _ATTENTION) + cached_bytes
    weights = segment(
        0x1000,
        [block(0x1000, _WEIGHTS, frames=_stack("Model.__init__", 12, "model.py"))],
    )
    inactive_segment = segment(
        1 << 32,
        [block(1 << 32, max(peak - used, used) + 600 * MB, "inactive", 0, frames=[])],
    )
    return snapshot(recorder.sorted_events(), [weights, inactive_segment])


def write_training_steps(folder: Path) -> tuple[Path, Path]:
    """Write the snapshots "before.pickle" and "after.pickle", the latter with a leak."""
    before_file = folder / "before.pickle"
    after_file = folder / "after.pickle"
    before_file.write_bytes(pickle.dumps(training_step(leaks=False)))
    after_file.write_bytes(pickle.dumps(training_step(leaks=True)))
    return before_file, after_file
