"""Pictures without a window are handed over when nothing in them is left to settle."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.pair import OtherRun
from support.view_cases import value

from splatview.adapters.series import SCALARS
from splatview_ipc.control.render_requests import RenderRequest
from splatview_viewer.app.grab import Grabber
from splatview_viewer.app.offscreen import Look, Still
from splatview_viewer.core.errors import LateError
from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds import KINDS
from splatview_viewer.shell.panel import Panel

if TYPE_CHECKING:
    from splatview_viewer.screens.offscreen import OffscreenScreen


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS if kind.still == "plot"])
def test_a_still_is_what_a_panel_shows_in_its_later_frames(kind: str, screen: OffscreenScreen) -> None:
    """Plots longer than the picture have a scroll bar, which imgui knows of after one frame."""
    still, panel = Still(screen, kind, "shot", "--camera"), Panel()
    size = still.prepare(value(kind), Look((200, 160)))
    assert size is not None
    still.draw(size)
    drawn, view = screen.pixels(), still.view
    assert view is not None
    for _ in range(4):
        view.draw(screen.framebuffer, Rect(0, 0, *size))
        panel.draw_over(screen.framebuffer, view.over, 1.0)
    np.testing.assert_array_equal(drawn, screen.pixels())
    panel.close()
    still.close()


def test_a_grab_of_a_stream_without_a_version_is_no_picture() -> None:
    """A stream is announced before its first version: `log` leaves both to a thread of its own."""
    with closing(OtherRun()) as run, closing(Grabber()) as grabber:
        run.stream("scalars", "scalars").describe(SCALARS)
        with pytest.raises(LateError, match="brought no frame"):
            grabber.draw(RenderRequest(0.1, stream="scalars"))
