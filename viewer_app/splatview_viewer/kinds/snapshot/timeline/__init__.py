"""Where everything lies in the pictures of a trace, and the painting of their columns of pixels.

    bands = Bands(trace)                                   # slow for long traces: on a worker thread
    axis = Axis(trace, "events")
    canvas = Canvas(1920, 1000)
    moments = bands.peaks(axis.edges(0, axis.extent[1], canvas.width))
    bands.paint(canvas, slice(0, 960), moments, 0.0, bands.live.max() / canvas.height, paint)

Importing this does not import numba; `warm_up` does, and loads the kernels or has them compiled.
"""

from __future__ import annotations

from splatview_viewer.kinds.snapshot.timeline.bands import (
           Addresses,
           Bands,
           Canvas,
           Lane,
           Paint,
           assemble,
           lanes,
           paint_ground,
)
from splatview_viewer.kinds.snapshot.timeline.compiled import end_loading, warm_up
from splatview_viewer.kinds.snapshot.timeline.index import Axis, Envelope, reserved

__all__ = [
           "Addresses",
           "Axis",
           "Bands",
           "Canvas",
           "Envelope",
           "Lane",
           "Paint",
           "assemble",
           "end_loading",
           "lanes",
           "paint_ground",
           "reserved",
           "warm_up",
]
