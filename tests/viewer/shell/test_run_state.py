"""The words for a run's state, and what can be asked of it, from what is known of it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from splatview_viewer.core.settings import Entry
from splatview_viewer.shell.run_state import RunState, run_state

NOW = 1_700_000_000.0
TRAINING = Entry(
    "key",
    "run",
    "gaussians",
    "gaussians",
    version=3,
    published_at=NOW - 1,
    paused=False,
)
ENDED_AT = time.mktime((2026, 3, 1, 14, 32, 5, 0, 0, -1))


def said(state: RunState) -> tuple[str, str, str, bool, bool, str]:
    """Return words, dot, the button and whether it and Step can be pressed, and Live."""
    button = "Resume" if state.resumes else "Pause"
    can_pause = state.pause_reason is None
    can_step = state.step_reason is None
    return state.phrase, state.hue, button, can_pause, can_step, state.live


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (None, ("Waiting for a run", "faint", "Pause", False, False, "")),
        (
            Entry("key", "run", "render"),
            ("Waiting for data", "faint", "Pause", False, False, ""),
        ),
        (TRAINING, ("Training", "good", "Pause", True, False, "Live")),
        (
            replace(TRAINING, paused=True, waits=1),
            ("Pausing", "waits", "Resume", True, False, "Live"),
        ),
        (
            replace(TRAINING, paused=True, waits=2),
            ("Paused", "waits", "Resume", True, True, "Live"),
        ),
        (
            replace(TRAINING, paused=True, waits=0),
            ("Goes on", "waits", "Pause", False, False, "Live"),
        ),
        (
            replace(TRAINING, published_at=NOW - 125, waits=1),
            ("Quiet 2 min", "waits", "Pause", True, False, "Last"),
        ),
        (
            replace(TRAINING, published_at=NOW - 8),
            ("Quiet 5 s", "waits", "Pause", False, False, "Last"),
        ),
        (
            replace(TRAINING, alive=False, ended_at=ENDED_AT, paused=None),
            ("Ended 14:32", "faint", "Pause", False, False, "Last"),
        ),
        (
            Entry("key", "Files", "a.ply", is_file=True),
            ("File", "faint", "Pause", False, False, ""),
        ),
    ],
)
def test_state_of_a_run_says_what_is_known(
    entry: Entry | None, expected: tuple[str, str, str, bool, bool, str]
) -> None:
    assert said(run_state(entry, NOW)) == expected


def test_run_that_was_paused_when_it_ended_cannot_be_resumed() -> None:
    ended = replace(TRAINING, alive=False, paused=True, waits=2, ended_at=ENDED_AT)
    state = run_state(ended, NOW)
    assert state.mode == "ended"
    assert not state.resumes
    assert state.pause_reason == "the run ended"
    assert state.live == "Last"


@pytest.mark.parametrize(
    ("silence", "gap", "label"),
    [
        (4.9, 0.0, "Training"),
        (5.1, 0.0, "Quiet 5 s"),
        (5.1, 0.1, "Quiet 5 s"),
        (39.0, 4.0, "Training"),
        (41.0, 4.0, "Quiet 40 s"),
        (7300.0, 4.0, "Quiet 2 h"),
    ],
)
def test_run_is_quiet_after_five_seconds_or_ten_usual_gaps(
    silence: float, gap: float, label: str
) -> None:
    entry = replace(TRAINING, published_at=NOW - silence, usual_gap_s=gap)
    assert run_state(entry, NOW).title == label


def test_step_of_a_training_says_to_pause_first() -> None:
    assert run_state(TRAINING, NOW).step_reason == "pause first"


def test_script_that_never_waits_is_told_what_to_call() -> None:
    state = run_state(replace(TRAINING, paused=True), NOW)
    assert "splatview.wait_while_paused()" in (state.pause_reason or "")
