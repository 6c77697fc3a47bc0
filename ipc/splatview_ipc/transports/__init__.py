"""The ways in which the tensors of a stream reach a viewer.

| way | for | how |
|---|---|---|
| ring | CPU tensors | copied into a ring of slots in shared memory |
| device-ring | CUDA tensors new at every call | copied on the GPU into a ring of slots in GPU memory |
| in-place | CUDA tensors whose storage stays | shared where they lie; a version is an event and a counter |
| host | CUDA tensors that a viewer cannot open | copied by the GPU into a ring of slots in pinned shared memory |

`base` says what a transport has to do. Modules are loaded when one is used: the last three need CUDA.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from splatview_ipc.transports.base import Way

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CPU_WAYS", "GPU_WAYS", "WAYS", "Way"]


def _lazy(module: str, name: str) -> Callable[..., Any]:
    def make(*args: Any) -> Any:
        return getattr(import_module(f"splatview_ipc.transports.{module}"), name).make(*args)

    return make


WAYS: dict[str, Way] = {
    "ring": Way(_lazy("cpu_ring", "RingWriter"), _lazy("cpu_ring", "RingReader"), "shared-memory ring",
                aside=True),
    "device-ring": Way(_lazy("device_ring", "DeviceRingWriter"), _lazy("device_ring", "DeviceRingReader"),
                       "ring in GPU memory"),
    "in-place": Way(_lazy("zero_copy_writer", "InPlaceWriter"), _lazy("zero_copy_reader", "InPlaceReader"),
                    "in place (zero-copy)"),
    "host": Way(_lazy("pinned_host", "HostWriter"), _lazy("cpu_ring", "RingReader"), "GPU to pinned host memory",
                aside=True),
}
CPU_WAYS = ("ring",)
GPU_WAYS = ("in-place", "device-ring", "host")
