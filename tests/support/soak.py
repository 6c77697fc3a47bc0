"""Moments and lines of other programs, for the tests that take their time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from support.programs import Program


def at_random(chance: random.Random, most: float, look: Callable[[], object] = lambda: None) -> None:
    """Come to a moment that nothing foresees, up to `most` seconds from now; `look` is called again and again."""
    end = time.monotonic() + chance.uniform(0, most)
    while time.monotonic() < end:
        look()
        time.sleep(0.0005)


def next_line(program: Program) -> str:
    """Return the next line that a program has printed, or prints; "" when it has ended. For programs that print several
    at a time: `Program.line` looks into the pipe alone, not at what was read of it already."""
    return program.stdout.readline().rstrip("\n")
