"""The viewer's side of a program that paints, which has loaded the kernels while this one was busy opening a window.

Loading numba takes half a second in which nothing else of this Python runs. A second Python does it on a processor of
its own, and paints the first pictures of a short trace: the trace goes there through a socket, columns of pixels come
back, and that takes a hundredth of the time.

A message is the length of a header (4 bytes, little-endian), the header (JSON), then the bytes of its arrays.
"""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from typing import Any

import numpy as np

from splatview.ipc import child_process
from splatview.viewer_app.memory._programs import environment

PAINTERS = {"paint_bands": "_bands_kernel", "paint_addresses": "_addresses_kernels"}
"""The kernels that it runs, and their modules. Their last arguments are: columns, part, canvas, room to work in."""
SHOWN, LONGEST = 0.3, 4.0
"""Seconds from the end of the first call until the first picture stands; for which it is waited for at most."""


class ChildError(Exception):
    """The other program did not do it."""


def send(sock: socket.socket, header: dict[str, Any], arrays: list[np.ndarray]) -> None:
    text = json.dumps(header).encode()
    sock.sendall(len(text).to_bytes(4, "little") + text)
    for array in arrays:
        sock.sendall(_bytes(array))


def receive(sock: socket.socket) -> dict[str, Any]:
    """The next header. EOFError when the other side is gone."""
    length = int.from_bytes(_read(sock, bytearray(4)), "little")
    return json.loads(_read(sock, bytearray(length)))


def receive_array(sock: socket.socket, array: np.ndarray) -> np.ndarray:
    """Fill a contiguous array."""
    _read(sock, _bytes(array))
    return array


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _read(sock: socket.socket, into: Any) -> Any:
    view, got = memoryview(into), 0
    while got < len(view):
        count = sock.recv_into(view[got:])
        if not count:
            raise EOFError("the other program has ended")
        got += count
    return into


def _described(value: Any, arrays: list[np.ndarray]) -> Any:
    """An argument as JSON; its arrays are appended, contiguous."""
    if isinstance(value, np.ndarray):
        arrays.append(np.ascontiguousarray(value))
        return {"dtype": value.dtype.str, "shape": value.shape}
    if isinstance(value, tuple):
        return [_described(one, arrays) for one in value]
    return value


class Painter:
    """The program that paints, one call after the other. Any thread may call."""

    def __init__(self, patience: float) -> None:
        """patience: seconds for which a call waits, at most; starting the program counts as part of the first one.

        Raises OSError if no program can be started."""
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(patience)
        try:
            self._process = subprocess.Popen(
                child_process.command(f"{__package__}._worker", str(theirs.fileno())), pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
                start_new_session=True,  # Ctrl-C is for the viewer, and this ends with it
                env=environment())
        except OSError:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self._painted: float | None = None
        """When the first call ended."""
        self._closed = False

    def paint(self, name: str, args: tuple[Any, ...]) -> None:
        """Do what the painter of this name does with these arguments, but for its room, which stays as it is.

        Raises ChildError if the other program does not answer, which it is not asked again then; anything may stand in
        these columns of the canvas by then."""
        *given, columns, part, canvas, room = args
        moments, offset, low, per = columns
        mine = slice(*part)
        cut = moments[mine], offset[mine] if len(offset) else offset, low, per
        arrays: list[np.ndarray] = []
        said = [_described(value, arrays) for value in (*given, cut)]
        header = {"name": name, "args": said, "width": part[1] - part[0], "height": canvas[0].shape[1],
                  "room": _described(room, [])}
        with self._lock:
            if self._closed:
                raise ChildError("it was given back")
            try:
                send(self._socket, header, arrays)
                fault = receive(self._socket)["fault"]
                for array in canvas if not fault else ():
                    receive_array(self._socket, array[mine])
            except (OSError, EOFError, ValueError) as e:
                self._close()
                raise ChildError(f"{type(e).__name__}: {e}") from e
            self._painted = self._painted or time.monotonic()
        if fault:
            raise ChildError(fault)

    def wait_for_picture(self) -> None:
        """Until the first picture stands, or there will be none."""
        while time.monotonic() < self._begun + LONGEST and not self._closed:
            if self._painted is not None and time.monotonic() > self._painted + SHOWN:
                return
            time.sleep(0.02)

    def close(self) -> None:
        """End it, and wait until it is gone."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._socket.close()
            self._process.kill()
            self._process.wait()
