"""Transports: how the tensors of a stream reach a viewer.

| transport | for | how |
|---|---|---|
| ring | CPU tensors | copied into a ring of slots in shared memory |
| device-ring | CUDA tensors that are new at every call | copied on the GPU into a ring of slots in GPU memory |
| in-place | CUDA tensors whose storage stays | shared without a copy; a version is a header and a word of the GPU |
| torch-ipc | the same, where the driver does not report their memory | by the handles of torch.multiprocessing |
| host | CUDA tensors that a viewer cannot open | copied by the GPU into a ring of slots in pinned shared memory |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_ipc.transports.base import Reader, Transport, Writer

if TYPE_CHECKING:
    from splatview_ipc.control.messages import Ref
    from splatview_ipc.transports.base import Descriptors

__all__ = ["TRANSPORTS", "ZERO_COPY", "Reader", "Transport", "Writer"]


def _ring_writer(tensors: dict[str, Any], growing: bool) -> Writer:
    from splatview_ipc.transports.cpu_ring import CpuRingWriter

    return CpuRingWriter.make(tensors, growing)


def _ring_reader(ref: Ref, fds: Descriptors) -> Reader:
    from splatview_ipc.transports.cpu_ring import CpuRingReader

    return CpuRingReader(ref, fds)


def _device_writer(tensors: dict[str, Any], growing: bool) -> Writer:
    from splatview_ipc.transports.device_ring import DeviceRingWriter

    return DeviceRingWriter.make(tensors, growing)


def _device_reader(ref: Ref, fds: Descriptors) -> Reader:
    from splatview_ipc.transports.device_ring import DeviceRingReader

    return DeviceRingReader(ref, fds)


def _zero_copy_writer(tensors: dict[str, Any], growing: bool) -> Writer:
    from splatview_ipc.transports.zero_copy_writer import ZeroCopyWriter

    return ZeroCopyWriter(tensors)


def _zero_copy_reader(ref: Ref, fds: Descriptors) -> Reader:
    from splatview_ipc.transports.zero_copy_reader import ZeroCopyReader

    return ZeroCopyReader(ref, fds)


def _host_writer(tensors: dict[str, Any], growing: bool) -> Writer:
    from splatview_ipc.transports.pinned_host import PinnedHostWriter

    return PinnedHostWriter.make(tensors, growing)


def _torch_writer(tensors: dict[str, Any], growing: bool) -> Writer:
    from splatview_ipc.transports.torch_ipc import TorchIpcWriter

    return TorchIpcWriter(tensors)


def _torch_reader(ref: Ref, fds: Descriptors) -> Reader:
    from splatview_ipc.transports.torch_ipc import TorchIpcReader

    return TorchIpcReader(ref, fds)


TRANSPORTS: dict[str, Transport] = {
    "ring": Transport(_ring_writer, _ring_reader, "shared-memory ring"),
    "device-ring": Transport(_device_writer, _device_reader, "ring in GPU memory"),
    "in-place": Transport(_zero_copy_writer, _zero_copy_reader, "in place (zero-copy)"),
    "torch-ipc": Transport(_torch_writer, _torch_reader, "torch.multiprocessing (zero-copy)"),
    "host": Transport(_host_writer, _ring_reader, "GPU to pinned host memory"),
}
ZERO_COPY = "in-place", "torch-ipc"
"""Those that share tensors where they are stored, the best first."""
