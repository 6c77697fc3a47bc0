"""`splatview demo` with its real programs: the picture, and nothing left running."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from support.programs import children

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.programs import Programs


def test_a_demo_that_is_killed_takes_its_processes_along(programs: Programs, wait_until: Callable[..., Any]) -> None:
    process = programs.splatview("demo", "--steps", "1000000", "--offscreen", "--device", "cpu", "--out", "a.png")
    started = wait_until(lambda: len(found := children(process.pid)) >= 2 and found)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in started))
