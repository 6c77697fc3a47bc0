"""Wait up to 30 s for what must happen: the only clock of the tests."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

PATIENCE = 30.0
"""Seconds. A test that waits longer waits for an event that never comes."""


clock = time.monotonic
"""The clock of code that takes the time as an argument."""


def wait_until(condition: Callable[[], Any], what: str = "") -> Any:
    """Poll `condition` until its result is true, and return it.

    AssertionError after `PATIENCE`, naming `what`.
    """
    for _ in turns(what or str(condition)):
        result = condition()
        if result:
            return result
    raise AssertionError


def turns(what: str = "the condition", *, rest: bool = True) -> Iterator[None]:
    """Yield every few milliseconds, for loops that leave by themselves.

    Such a loop is `for _ in turns(): if ...: break`. AssertionError after `PATIENCE`.

    Args:
        what: The condition's name.
        rest: False yields without a pause.
    """
    end = time.monotonic() + PATIENCE
    pause = 0.001
    while True:
        yield
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        if rest:
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)


def at_random(chance: random.Random, longest: float) -> None:
    """Sleep for a time that nothing foresees, up to `longest` seconds."""
    time.sleep(chance.uniform(0, longest))
