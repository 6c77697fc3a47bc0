"""Sees to it that a run stays where viewers look for it: folders of temporary files are cleared, by hand or by a timer.

Belongs to the helper thread. A look takes some microseconds, a few seconds apart.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from splatview_ipc.control.channel import Listener
from splatview_ipc.control.descriptors import Server
from splatview_ipc.control.errors import RuntimeFolderError, SharingError
from splatview_ipc.control.mail import Mailroom

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_ipc.control.channel import Connection
    from splatview_ipc.control.run_folder import OwnedRunFolder

PERIOD = 5.0
"""Seconds between two looks."""


class Door:
    """The two sockets in a run's folder, through which viewers come."""

    def __init__(self, folder: OwnedRunFolder):
        """Raises SharingError when they cannot be made."""
        self._folder = folder
        self._mailroom = Mailroom()
        self._due = time.monotonic() + PERIOD
        try:
            self.server = Server(folder.path)
            try:
                self.listener = Listener(folder.path)
            except OSError:
                self.server.close()
                raise
        except OSError as e:
            raise SharingError(f"viewers cannot be answered in {folder.path.parent}: {e.strerror}") from None

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
            try:
                self.listener.move(making)
            except OSError:
                server.close()
                raise
        except OSError as e:
            raise RuntimeFolderError(f"runtime folder {making.parent}: viewers cannot be answered there: {e}") from None
        self.server.close()
        self.server = server

    def deliver(self, connection: Connection, inbox: str) -> None:
        """Have what is sent to a viewer go to the inbox that its hello names; "": it goes by the connection itself."""
        if inbox and connection.outbox is None:
            connection.outbox = self._mailroom.outbox(self._folder.path / inbox)

    def close(self) -> None:
        self.server.close()
        self.listener.close()
