"""The machine on which this process runs, as folders of runs name it."""

from __future__ import annotations

import functools
import socket
from pathlib import Path

from splatview_ipc.control import limits

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@functools.cache
def boot_id() -> str:
    """Return a text that all processes have since the machine's start, containers too.

    Returns "" if it is unknown.
    """
    try:
        return _BOOT_ID.read_text().strip()[: limits.MAX_NAME]
    except OSError:
        return ""


@functools.cache
def host_name() -> str:
    """Return the name of the machine, or of the container."""
    return socket.gethostname()[: limits.MAX_NAME]
