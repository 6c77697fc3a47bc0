"""The state of a run in a word, and what can be asked of the run in it.

The words tell what is known: that something was published lately, that the process is
there, that its script waits.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from splatview_viewer.core.settings import Entry

Hue = Literal["good", "waits", "faint"]
"""The colour of the dot before a word."""
Mode = Literal[
    "waiting", "training", "pausing", "paused", "goes on", "quiet", "ended", "file"
]

NOTHING_RUNS = "nothing runs"
ENDED = "the run ended"
NEVER_WAITS = "the script never calls splatview.wait_while_paused()"
PAUSE_FIRST = "pause first"
_LEAST_QUIET_S = 5.0
"""Seconds without anything new after which a run is quiet at the earliest."""
_QUIET_GAPS = 10.0
"""Usual gaps without anything new after which it is."""


@dataclass(frozen=True)
class RunState:
    """A run's state, and what the buttons of the top bar do in it."""

    mode: Mode
    title: str
    """"Training", "Quiet 2 min", "Ended"."""
    hue: Hue
    resumes: bool = False
    """True if the button says Resume in place of Pause."""
    pause_reason: str | None = None
    """Why it cannot be paused or resumed now; None: it can."""
    step_reason: str | None = None
    """Why it cannot take a step now; None: it can."""
    live: Literal["", "Live", "Last"] = ""
    """The name of the newest snapshot; "": there is none."""
    clock: str = ""
    """The time of day since which it is so, where that matters."""

    @property
    def phrase(self) -> str:
        """Return all that is said: "Ended 14:32"."""
        return f"{self.title} {self.clock}".rstrip()


WAITING = RunState(
    "waiting", "Waiting for a run", "faint", False, NOTHING_RUNS, NOTHING_RUNS
)
_NO_RUN = "a file does not run"
_FILE = RunState("file", "File", "faint", False, _NO_RUN, _NO_RUN)


def run_state(entry: Entry | None, now: float) -> RunState:
    """Return the state of the run of an entry.

    Args:
        entry: what is shown; None: nothing.
        now: seconds since the epoch.
    """
    if entry is None:
        return WAITING
    if entry.is_file:
        return _FILE
    if not entry.alive:
        return _ended(entry)
    if entry.paused:
        return _asked_to_pause(entry)
    if not entry.version and not entry.published_at:
        title = "Waiting for data"
        reason = "the run published nothing yet"
        return RunState("waiting", title, "faint", False, reason, reason)
    silence_s = max(now - entry.published_at, 0.0)
    if silence_s > quiet_after(entry):
        return _quiet(entry, silence_s)
    return RunState("training", "Training", "good", False, None, PAUSE_FIRST, "Live")


def quiet_after(entry: Entry) -> float:
    """Return the seconds without anything new after which its run counts as quiet."""
    return max(_LEAST_QUIET_S, _QUIET_GAPS * entry.usual_gap_s)


def _ended(entry: Entry) -> RunState:
    clock = ""
    if entry.ended_at:
        clock = clock_text(entry.ended_at)
    return RunState("ended", "Ended", "faint", False, ENDED, ENDED, "Last", clock)


def _asked_to_pause(entry: Entry) -> RunState:
    """Return the state of a run that was asked to pause."""
    if not entry.waits:
        mode: Mode = "goes on"
        return RunState(
            mode, "Goes on", "waits", False, NEVER_WAITS, NEVER_WAITS, "Live"
        )
    if entry.waits == 1:
        reason = "the script has not come to its wait yet"
        return RunState("pausing", "Pausing", "waits", True, None, reason, "Live")
    return RunState("paused", "Paused", "waits", True, None, None, "Live")


def _quiet(entry: Entry, silence_s: float) -> RunState:
    title = f"Quiet {silence_text(silence_s)}"
    reason = NEVER_WAITS
    if entry.waits:
        reason = None
    return RunState("quiet", title, "waits", False, reason, "nothing new comes", "Last")


def clock_text(seconds: float) -> str:
    """Return the time of day of seconds since the epoch, such as "14:32"."""
    return time.strftime("%H:%M", time.localtime(seconds))


def silence_text(seconds: float) -> str:
    """Return a duration in one unit: "5 s", "20 s", "2 min", "3 h".

    It changes rarely: each change is a picture.
    """
    if seconds < 10:
        return "5 s"
    if seconds < 60:
        return f"{seconds // 10:.0f}0 s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min"
    return f"{seconds // 3600:,.0f} h"
