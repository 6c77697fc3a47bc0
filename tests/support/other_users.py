"""Programs of another user of the machine, for tests: requests to a web server."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

OTHER_USER_ID = 65534
"""The user id that Linux gives to the account without rights."""


def why_not() -> str:
    """Return why programs here cannot become another user; "" when they can."""
    if os.getuid() != 0:
        return "only root can become another user"
    n = OTHER_USER_ID
    become = f"import os; os.setgroups([]); os.setgid({n}); os.setuid({n})"
    if subprocess.run([sys.executable, "-ISc", become], capture_output=True).returncode:
        return (
            "this machine lets root not become another user "
            "(a user namespace without other ids, or seccomp)"
        )
    return ""


needs_root = pytest.mark.skipif(
    bool(why_not()), reason=why_not() or "programs can become another user"
)
