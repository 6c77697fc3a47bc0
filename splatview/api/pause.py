"""`paused` and `wait_while_paused`: a script's side of the viewers' pause button."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING

from splatview.adapters import checks
from splatview.api.session import public, started_publisher
from splatview.api.waiting import DRAW_PERIOD_S, draw_while_waiting
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from splatview_ipc.shm.control_block import ControlBlock

_log = logging.getLogger("splatview")

_WAITS = 2
_WAITED = 1
"""Values of `ControlBlock.waits`: the script waits now, or has called before."""


@public(answers=True)
def paused() -> bool:
    """Return True while a viewer pauses the run. Reads shared memory; costs nothing."""
    publisher = started_publisher()
    return publisher is not None and publisher.control.paused


@public(answers=True)
def wait_while_paused(timeout: float | None = None) -> bool:
    """Wait here while a viewer pauses the run.

    Call it once in each step of the training: while the run is paused, a viewer's "Step"
    lets one call return. Costs nothing while no viewer pauses.

    The first wait of a pause is noted in the log ("splatview", as a warning), with who
    paused it and how to go on, and its end as well. Any viewer may resume, and a viewer
    that dies takes its pause with it.

    Args:
        timeout: seconds to wait at most; None: as long as the pause takes.

    Returns:
        True when the script may go on; False when the time is over and it should still
        wait.

    Raises:
        TypeError: the timeout is no number.
        ValueError: the timeout is NaN.
    """
    if timeout is not None:
        checks.real("timeout", timeout, -math.inf, math.inf)
    publisher = started_publisher()
    if publisher is None:
        return True
    control = publisher.control
    if control.paused:
        _log_pause(control)
        control.waits = _WAITS
        try:
            may_go_on = _wait(control, timeout)
        finally:
            control.waits = _WAITED
        if control.paused or not may_go_on:
            return may_go_on
    if not control.waits:
        control.waits = _WAITED
    noted_at = control.pause_logged_at
    if noted_at is not None:
        seconds = time.monotonic() - noted_at
        _log.warning("splatview: the run goes on after %.1f s", seconds)
        control.pause_logged_at = None
    return True


def _log_pause(control: ControlBlock) -> None:
    """Log that the run is paused, once for each pause."""
    if control.pause_logged_at is not None:
        return
    control.pause_logged_at = time.monotonic()
    _log.warning(
        "splatview: the run is paused by %s; to go on, press Resume in a viewer, or close "
        "that one",
        printable(control.paused_by or "a viewer"),
    )


def _wait(control: ControlBlock, timeout: float | None) -> bool:
    """Wait for the end of the pause or for a step that a viewer grants.

    Returns False when the time is over.
    """
    started_at = time.monotonic()
    while control.paused:
        if control.taken_steps < control.granted_steps:
            control.taken_steps += 1
            return True
        if timeout is not None and time.monotonic() - started_at >= timeout:
            return False
        draw_while_waiting()
        time.sleep(DRAW_PERIOD_S)
    return True
