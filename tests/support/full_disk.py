"""A disk without space, for what the program writes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

from splatview_ipc.system import files


@contextlib.contextmanager
def full_disk() -> Iterator[list[Path]]:
    """Let the kernel refuse what is written into new files as a full disk does.

    Each file is made where it belongs, so that one which stays is seen. The list names
    the folder of each.
    """
    folders: list[Path] = []

    def open_full(path: Path, *args: Any, **options: Any) -> BinaryIO:
        file = open(path, *args, **options)
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, file.fileno(), inheritable=False)
        os.close(full)
        folders.append(path.parent)
        return file

    with mock.patch.object(files, "open", open_full, create=True):
        yield folders
