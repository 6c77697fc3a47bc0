"""The program that paints for another: `python -m splatview.viewer_app.memory.timeline._worker FD`. See `_child`."""

from __future__ import annotations

import importlib
import socket
import sys
from typing import Any

import numpy as np

from splatview.viewer_app.memory.timeline._child import PAINTERS, receive, receive_array, send


def main(descriptor: int) -> None:
    """Answers on a socket until the other side is gone."""
    with socket.socket(fileno=descriptor) as sock:
        sock.setblocking(True)
        painters = {name: getattr(importlib.import_module(f"{__package__}.{module}"), name)
                    for name, module in PAINTERS.items()}
        while True:
            try:
                asked = receive(sock)
                args = [_received(sock, one) for one in asked["args"]]
            except (EOFError, OSError):
                return
            width, shape = asked["width"], (asked["width"], asked["height"])
            canvas, fault = (np.empty(shape, np.uint32), np.empty(shape, np.int32)), ""
            try:
                painters[asked["name"]](*args, (0, width), canvas, _room(asked["room"]))
            except Exception as e:  # told to whoever asked
                fault = f"{type(e).__name__}: {e}"
            send(sock, {"fault": fault}, [] if fault else [*canvas])


def _received(sock: socket.socket, said: Any) -> Any:
    """What was described."""
    if isinstance(said, dict):
        array = receive_array(sock, np.empty(said["shape"], said["dtype"]))
        array.flags.writeable = False
        return array
    return tuple(_received(sock, one) for one in said) if isinstance(said, list) else said


def _room(said: Any) -> Any:
    """Zeros as described."""
    return np.zeros(said["shape"], said["dtype"]) if isinstance(said, dict) else tuple(map(_room, said))


if __name__ == "__main__":
    main(int(sys.argv[1]))
