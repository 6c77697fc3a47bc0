"""Answers that threads work out for the views of snapshots."""

from __future__ import annotations

import pytest
from support.wait import PATIENCE_S, wait_until

from splatview_viewer.kinds.snapshot.answers import SnapshotAnswers
from splatview_viewer.kinds.snapshot.content import Content
from splatview_viewer.snapshot.model import MemorySnapshot


def test_changes_count_the_answers_that_are_there() -> None:
    """Check that the count never lags: a picture without one would seem complete."""
    answers = SnapshotAnswers(lambda: None)
    for count in range(1, 50):
        key = ("total", count)
        assert answers.request(key, lambda: 7) is None
        # The thread may still be on its way to wake the loop.
        wait_until(lambda key=key: answers.peek(key) == 7)
        assert answers.changes == count
        answers.forget(key)
        assert answers.changes == count
    answers.close()


def test_database_that_is_closed_while_it_opens_ends_in_silence(
    real: MemorySnapshot, caplog: pytest.LogCaptureFixture
) -> None:
    """Check what the end of the program does with a database that is being opened."""
    content = Content(real)
    assert content.database() is None
    content.close()
    assert content.wait(PATIENCE_S)
    assert not caplog.records
