"""A grab, drawn in this process."""

from __future__ import annotations

from contextlib import closing

import pytest
from support.pair import OtherRun

from splatview.adapters.series import SCALARS
from splatview_ipc.control.render_requests import RenderRequest
from splatview_viewer.app.grab import Grabber
from splatview_viewer.core.errors import LateError


def test_a_grab_of_a_stream_without_a_version_is_no_picture() -> None:
    """A stream is announced before its first version: `log` leaves both to a thread of its own."""
    with closing(OtherRun()) as run, closing(Grabber()) as grabber:
        run.stream("scalars", "scalars").describe(SCALARS)
        with pytest.raises(LateError, match="brought no frame"):
            grabber.draw(RenderRequest(0.1, stream="scalars"))
