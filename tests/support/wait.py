"""Wait up to 30 s for what must happen: the only clock of the tests."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

PATIENCE_S = 30.0
"""A test that waits longer waits for an event that never comes."""


clock = time.monotonic
"""The clock of code that takes the time as an argument."""


def wait_until(condition: Callable[[], Any], expected: str = "") -> Any:
    """Poll `condition` until its result is true, and return it.

    AssertionError after `PATIENCE_S`, naming `expected`.
    """
    for _ in polls(expected or str(condition)):
        result = condition()
        if result:
            return result
    raise AssertionError


def polls(expected: str = "the condition", *, pauses: bool = True) -> Iterator[None]:
    """Yield every few milliseconds, for loops that leave by themselves.

    Such a loop is `for _ in polls(): if ...: break`. AssertionError after `PATIENCE_S`.

    Args:
        expected: The condition's name.
        pauses: False yields without a pause.
    """
    end = time.monotonic() + PATIENCE_S
    pause = 0.001
    while True:
        yield
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE_S} s: {expected}")
        if pauses:
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)


def at_random(chance: random.Random, longest: float) -> None:
    """Sleep for a time that nothing foresees, up to `longest` seconds."""
    time.sleep(chance.uniform(0, longest))
