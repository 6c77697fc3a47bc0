"""The one wait of all tests: 30 s for what must happen, and the only clock in them."""

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
    """Poll `condition` until its result is true, and return it. AssertionError after `PATIENCE`, naming `what`."""
    for _ in turns(what or str(condition)):
        result = condition()
        if result:
            return result
    raise AssertionError


def turns(what: str = "the condition", *, rest: bool = True) -> Iterator[None]:
    """Yield every few milliseconds, for loops that leave by themselves: `for _ in turns(): if ...: break`.

    `rest=False`: without a pause. AssertionError after `PATIENCE`, naming `what`.
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


def at_random(chance: random.Random, most: float) -> None:
    """Come to a moment that nothing foresees, up to `most` seconds from now."""
    time.sleep(chance.uniform(0, most))
