"""The whole: `splatview.show` in a notebook, a viewer program behind it, and a published image in its frame."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import torch
from support.pages import elsewhere, seen
from support.wait import PATIENCE, wait_until

import splatview
from splatview_ipc.control.registry import viewers

if TYPE_CHECKING:
    from support.pages import Open


def test_the_viewer_shows_in_a_notebooks_frame(open_page: Open) -> None:
    from splatview.api.session import session

    before = threading.active_count()
    shown = splatview.show(port=0, timeout=PATIENCE, height=400)
    try:
        assert [v.url for v in viewers()] == [shown.url]
        assert threading.active_count() <= before, "no thread of this process is left"
        assert splatview.show(timeout=PATIENCE, width=300).pid == shown.pid, "both show the same viewer"
        halves = np.full((60, 80, 3), (250, 140, 20), np.uint8)
        halves[30:] = 20, 60, 240
        splatview.publish(torch.from_numpy(halves), "halves")
        with elsewhere(f"<body style='margin: 0'>{shown._repr_html_()}", "localhost") as (url, _):
            tab = open_page(url, (800, 500), expected="ERR_")

            def both() -> list[np.ndarray]:
                """Places of the two colours."""
                picture = seen(tab, "notebook").astype(int)
                found = [np.argwhere(np.abs(picture - halves[row, 0].astype(int)).max(-1) < 40) for row in (0, -1)]
                return found if min(map(len, found)) > 40_000 else []

            above, below = wait_until(both, "the frame shows the image")
            assert above[:, 0].max() < below[:, 0].min() and below[:, 0].max() < 400, "within the frame"
    finally:
        while programs := session().programs:
            programs.pop().end()
