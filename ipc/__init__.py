"""Everything about sharing between a trainer and its viewers; knows nothing of either.

The trainer's side is `Publisher`, the viewer's `Subscriber`. Between them stand a run folder (`runs`), typed
messages (`messages`; viewers send them through `channel` and are answered through `mail`), and shared memory
(`segments`, `board`, `ways`).
Nothing heavy is imported until a name is used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for True; importing typing would cost half of this module's time
if TYPE_CHECKING:
    from typing import Any

    from splatview.ipc.errors import IpcError, NoViewerError, RuntimeFolderError, SharingError
    from splatview.ipc.frames import DeviceTensor, Frame, RemoteTensor
    from splatview.ipc.publisher import Publisher
    from splatview.ipc.remote import RemoteRun
    from splatview.ipc.remote_stream import RemoteStream
    from splatview.ipc.stream import Stream
    from splatview.ipc.subscriber import Subscriber

_HOME = {
    "DeviceTensor": "frames",
    "Frame": "frames",
    "IpcError": "errors",
    "NoViewerError": "errors",
    "Publisher": "publisher",
    "RemoteRun": "remote",
    "RemoteStream": "remote_stream",
    "RemoteTensor": "frames",
    "RuntimeFolderError": "errors",
    "SharingError": "errors",
    "Stream": "stream",
    "Subscriber": "subscriber",
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
        raise AttributeError(f"module 'splatview.ipc' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"splatview.ipc.{_HOME[name]}"), name)
    globals()[name] = value
    return value
