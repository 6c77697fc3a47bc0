"""`paused` and `wait_while_paused`: where a script minds the pause button of the viewers."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING

from splatview.api import session as publishing
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from splatview_ipc import Publisher
    from splatview_ipc.shm.control_block import Board

__all__ = ["paused", "wait_while_paused"]

_log = logging.getLogger("splatview")

_NAP = 0.01
"""Seconds between two looks at the button."""


def paused() -> bool:
    """Whether somebody pressed the pause button of a viewer. Reads shared memory; costs nothing."""
    publisher = publishing.begun()
    return publisher is not None and publisher.control.paused


def wait_while_paused(timeout: float | None = None) -> bool:
    """Wait here while a viewer pauses the run, at most `timeout` seconds (None: as long as it takes).

    Call it once in each step of the training: while the run is paused, a viewer's "Step" lets one call return. True
    when the script may go on; False when the time is over and it should still wait. Costs nothing while nobody pauses.

    The first wait of a pause is noted in the log ("splatview", as a warning), with who paused it and how to go on, and
    its end as well. Any viewer may resume, and a viewer that dies takes its pause with it. Raises TypeError, ValueError
    for a timeout that is none.
    """
    if timeout is not None:
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
            raise TypeError(f"timeout is a {type(timeout).__name__}, not a number of seconds or None")
        if timeout != timeout:
            raise ValueError("timeout is nan, not a number of seconds or None")
    publisher = publishing.begun()
    if publisher is None:
        return True
    control = publisher.control
    if not control.paused:
        if not control.waits:
            control.waits = 1
        if control.noted is not None:
            _goes_on(control)
        return True
    return _wait(publisher, timeout)


def _wait(publisher: Publisher, timeout: float | None) -> bool:
    control = publisher.control
    if control.noted is None:
        control.noted = time.monotonic()
        _log.warning("splatview: the run is paused by %s; to go on, press Resume in a viewer, or close that one",
                     printable(control.paused_by or "a viewer"))
    end = None if timeout is None else time.monotonic() + timeout
    try:
        control.waits = 2
        while control.paused:
            if control.passed < control.granted:
                control.passed += 1
                return True
            left = _NAP if end is None else end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, _NAP))
        _goes_on(control)
        return True
    except ValueError:
        if publishing.begun() is publisher:
            raise
        return True  # another thread has closed the run meanwhile
    finally:
        with contextlib.suppress(ValueError):
            control.waits = 1


def _goes_on(control: Board) -> None:
    since, control.noted = control.noted, None
    if since is not None:
        _log.warning("splatview: the run goes on after %.1f s", time.monotonic() - since)
