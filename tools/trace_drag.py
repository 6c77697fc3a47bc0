"""Set up a viewer on a screen in memory, for `tools/trace.py` to follow a drag.

    python tools/trace.py --setup tools/trace_drag.py 'drag()'

`drag()` moves the pressed pointer over a published Gaussian scene by a few pixels, and
takes one turn of the viewer's loop: the calls lead from the event to the new picture.
"""

from __future__ import annotations

import itertools

import torch
from support.viewer import Viewer

import splatview
from splatview_viewer.app.loop import AppOptions
from splatview_viewer.core.events import PointerMove, PointerPress
from splatview_viewer.screens.offscreen import OffscreenScreen

COUNT = 1000

splatview.publish(
    {
        "means": torch.randn(COUNT, 3),
        "quats": torch.randn(COUNT, 4),
        "scales": torch.full((COUNT, 3), -3.0),
        "opacities": torch.full((COUNT,), 2.0),
        "sh0": torch.randn(COUNT, 1, 3),
    },
    "scene",
)
viewer = Viewer(OffscreenScreen(640, 480), AppOptions(panel=False))
viewer.until(viewer.loaded)
viewer.do(PointerMove(320, 240), PointerPress(320, 240))
positions = itertools.count(322, 2)


def drag() -> None:
    """Move the pointer, and take one turn of the loop."""
    viewer.screen.push(PointerMove(next(positions), 240))
    viewer.step()
