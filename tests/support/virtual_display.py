"""A display without a screen: Xvfb."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from support import leaks


@contextmanager
def virtual_display(width: int = 1600, height: int = 1000) -> Iterator[str]:
    """Start an X server that draws into memory; yield its name, such as ":99"."""
    read, write = os.pipe()
    server = subprocess.Popen(
        # Without -noreset, the server starts over when its last window closes.
        [
            "Xvfb",
            "-displayfd",
            str(write),
            "-screen",
            "0",
            f"{width}x{height}x24",
            "-nolisten",
            "tcp",
            "-noreset",
        ],
        pass_fds=[write],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # All tests of a session share it, whichever of them is the first.
    leaks.forget(server)
    os.close(write)
    try:
        # Xvfb picks a free number and prints it.
        with os.fdopen(read) as answer:
            display_number = answer.readline().strip()
        assert display_number, "Xvfb did not start"
        yield f":{display_number}"
    finally:
        server.terminate()
        server.wait()
