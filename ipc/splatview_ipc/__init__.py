"""Everything about sharing between a trainer and its viewers; knows nothing of either.

The trainer's side is `Publisher`, the viewer's `Subscriber`. Between them are a run folder, typed messages (viewers
send them over a Unix socket, which also brings descriptors, and are answered over ZeroMQ), and shared memory.
Nothing heavy is imported until a name is used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for True; importing typing would cost half of this module's time
if TYPE_CHECKING:
    from typing import Any

    from splatview_ipc.control.errors import IpcError, NoViewerError, RuntimeFolderError, SharingError
    from splatview_ipc.control.frame import DeviceTensor, Frame, RemoteTensor
    from splatview_ipc.publisher.publisher import Publisher
    from splatview_ipc.publisher.stream import Stream
    from splatview_ipc.subscriber.remote_run import RemoteRun
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_ipc.subscriber.subscriber import Subscriber

_HOME = {
    "DeviceTensor": "control.frame",
    "Frame": "control.frame",
    "IpcError": "control.errors",
    "NoViewerError": "control.errors",
    "Publisher": "publisher.publisher",
    "RemoteRun": "subscriber.remote_run",
    "RemoteStream": "subscriber.remote_stream",
    "RemoteTensor": "control.frame",
    "RuntimeFolderError": "control.errors",
    "SharingError": "control.errors",
    "Stream": "publisher.stream",
    "Subscriber": "subscriber.subscriber",
}

__all__ = [
    "DeviceTensor",
    "Frame",
    "IpcError",
    "NoViewerError",
    "Publisher",
    "RemoteRun",
    "RemoteStream",
    "RemoteTensor",
    "RuntimeFolderError",
    "SharingError",
    "Stream",
    "Subscriber",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'splatview_ipc' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"splatview_ipc.{_HOME[name]}"), name)
    globals()[name] = value
    return value
