"""`paused` and `wait_while_paused`: where a script minds the pause button of the viewers."""

from __future__ import annotations

import logging
import math
import time

from splatview.adapters import checks
from splatview.api.session import begun, public
from splatview_ipc.system.terminal import printable

_log = logging.getLogger("splatview")

_LOOK_S = 0.01


@public(answers=True)
def paused() -> bool:
    """Return True while a viewer pauses the run. Reads shared memory; costs nothing."""
    publisher = begun()
    return publisher is not None and publisher.control.paused


@public(answers=True)
def wait_while_paused(timeout: float | None = None) -> bool:
    """Wait here while a viewer pauses the run, at most `timeout` seconds (None: as long as it takes).

    Call it once in each step of the training: while the run is paused, a viewer's "Step" lets one call return. True
    when the script may go on; False when the time is over and it should still wait. Costs nothing while no viewer
    pauses.

    The first wait of a pause is noted in the log ("splatview", as a warning), with who paused it and how to go on, and
    its end as well. Any viewer may resume, and a viewer that dies takes its pause with it. Raises TypeError, ValueError
    for a timeout that is none.
    """
    if timeout is not None:
        checks.real("timeout", timeout, -math.inf, math.inf)
    publisher = begun()
    if publisher is None:
        return True
    control = publisher.control
    if control.paused:
        begin = time.monotonic()
        if control.noted is None:
            control.noted = begin
            _log.warning(
                "splatview: the run is paused by %s; to go on, press Resume in a viewer, or close that "
                "one",
                printable(control.paused_by or "a viewer"),
            )
        control.waits = 2
        try:
            while control.paused:
                if control.passed < control.granted:
                    control.passed += 1
                    return True
                if timeout is not None and time.monotonic() - begin >= timeout:
                    return False
                time.sleep(_LOOK_S)
        finally:
            control.waits = 1
    if not control.waits:
        control.waits = 1
    noted_at = control.noted
    if noted_at is not None:
        _log.warning(
            "splatview: the run goes on after %.1f s", time.monotonic() - noted_at
        )
        control.noted = None
    return True
