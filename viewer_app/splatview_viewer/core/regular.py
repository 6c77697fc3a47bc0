"""Opening files that people name: what is no file, a pipe for instance, would be waited for without end."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path


def open_regular(path: str | Path) -> BinaryIO:
    """A file, opened to be read. Raises OSError also for pipes, devices and sockets, at once; ValueError for a name
    that cannot be one.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(
                errno.EINVAL,
                "it is no file but a pipe, a device or a socket",
                str(path),
            )
        return open(fd, "rb")
    except BaseException:
        os.close(fd)
        raise
