"""Opening files that people name, which must be regular.

A pipe, for instance, would be waited for without end.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path


def open_regular(path: str | Path) -> BinaryIO:
    """Open a file for reading, without waiting for anything.

    Raises:
        OSError: it cannot be opened, or is a folder, a pipe, a device or a socket.
        ValueError: the name cannot be that of a file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            reason = "it is no file but a pipe, a device or a socket"
            raise OSError(errno.EINVAL, reason, str(path))
        return open(fd, "rb")
    except BaseException:
        os.close(fd)
        raise
