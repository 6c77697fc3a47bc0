"""The whole when parts of it die and come back."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.pages import drawn, state, until
from support.wait import PATIENCE
from support.whole import IMAGE, Stage, comes, drag, inside, is_like, open_at, placed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.pages import Open

FIRST, SECOND = drawn(310, 266, 3), drawn(310, 266, 4)
GONE = "failed: Error in connection establishment|ERR_CONNECTION_(REFUSED|RESET)"
"""What the browser logs while no viewer is there."""


@pytest.mark.soak
def test_the_page_recovers_from_a_killed_viewer_and_says_that_the_run_ended(
        stage: Stage, open_page: Open, tmp_path: Path, picture_of: Callable[..., np.ndarray]) -> None:
    for i, image in enumerate((FIRST, SECOND)):
        np.save(tmp_path / f"{i}.npy", image)
    trainer = stage.trainer(IMAGE, tmp_path / "0.npy")
    program = stage.viewer()
    page = open_at(program.url, open_page, expected=GONE)
    comes(page, is_like(placed(FIRST, 0, 1, 2)))

    program.kill()
    until(page, "splatview.state().notice.startsWith('The viewer is gone')")
    assert inside(picture_of(page, "viewer-gone"))[100:].std() > 10, "the last picture is still there"
    before = state(page)["frames"]
    again = stage.viewer(after=program)
    assert again.url == program.url
    until(page, f"splatview.state().frames > {before}")  # until then the old picture stands there
    comes(page, is_like(placed(FIRST, 0, 1, 2)))
    assert not page.evaluate("splatview.state().notice")
    drag(page, 24, 10)
    comes(page, is_like(placed(FIRST, 24, 11, 2)))

    trainer.kill()
    trainer.wait()
    until(page, "splatview.state().notice.startsWith('The run has ended')")
    comes(page, is_like(placed(FIRST, 24, 11, 2)))
    picture_of(page, "viewer-ended")
    new = stage.trainer(IMAGE, tmp_path / "1.npy")
    comes(page, is_like(placed(SECOND, 24, 11, 2)))  # where the hand left it
    until(page, f"splatview.state().notice === '' && document.title.includes('{new.pid}')")

    again.process.send_signal(signal.SIGTERM)
    assert again.process.wait(PATIENCE) == 0, again.said
    until(page, "splatview.state().notice.startsWith('The viewer is gone')")
