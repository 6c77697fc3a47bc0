"""Sees to it that a run stays where viewers look for it: folders of temporary files are cleared, by hand or by a timer.

Belongs to the helper thread. A look takes some microseconds, a few seconds apart.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import zmq

from ipc.descriptors import Server
from ipc.errors import RuntimeFolderError, SharingError
from ipc.runs import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

    from ipc.runs import OwnedRunFolder

PERIOD = 5.0
"""Seconds between two looks."""
_UNBINDING = 0.05
"""Seconds in which a socket that is not wanted any more takes its file away: not the one that comes in its place."""


class Door:
    """The two sockets in a run's folder, through which viewers come."""

    def __init__(self, folder: OwnedRunFolder, socket: zmq.Socket):
        """Raises SharingError when they cannot be made."""
        self._folder = folder
        self._socket = socket
        self._folder_fd = -1
        self._due = time.monotonic() + PERIOD
        try:
            self._address, self._folder_fd = folder.endpoint()
            socket.bind(self._address)
            self.server = Server(folder.path)
        except (OSError, zmq.ZMQError) as e:
            self._close_folder()
            raise SharingError(f"viewers cannot be answered in {folder.path}: {e}") from None

    def due(self) -> float:
        """When (time.monotonic) to `look` again."""
        return self._due

    def look(self) -> None:
        """Make the folder again if it was taken away. Raises RuntimeFolderError when that is not possible."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + PERIOD
        if not self._folder.in_place:
            self._folder.restore(self._furnish)

    def _furnish(self, making: Path) -> None:
        """Have both sockets in a folder that is being made. Raises RuntimeFolderError."""
        try:
            server = Server(making)
            address, fd = RunFolder(making, self._folder.description).endpoint()
            try:
                if self._address:
                    address_before, self._address = self._address, ""
                    self._socket.unbind(address_before)
                    time.sleep(_UNBINDING)
                self._socket.bind(address)
            except BaseException:
                server.close()
                if fd >= 0:
                    os.close(fd)
                raise
        except (OSError, zmq.ZMQError) as e:
            raise RuntimeFolderError(f"runtime folder {making.parent}: viewers cannot be answered there: {e}") from None
        self.server.close()
        self._close_folder()
        self.server, self._address, self._folder_fd = server, address, fd

    def close(self) -> None:
        """The socket for messages is closed by whoever made it."""
        self.server.close()
        self._close_folder()

    def _close_folder(self) -> None:
        if self._folder_fd >= 0:
            os.close(self._folder_fd)
            self._folder_fd = -1
