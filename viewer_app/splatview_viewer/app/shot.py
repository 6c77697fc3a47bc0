"""One picture of a stream or a file, as a file: `splatview shot`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from splatview_ipc.system.files import check_picture
from splatview_viewer.app.memory_answers import read
from splatview_viewer.app.still import Still, StillOptions
from splatview_viewer.app.stills import Named, draw_named
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.screen import parse_size
from splatview_viewer.formats.pictures import check_writable, save_picture
from splatview_viewer.kinds.snapshot.content import Content
from splatview_viewer.kinds.snapshot.view import SnapshotView
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.snapshot.model import MemorySnapshot, device_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.app.commands.pictures import Shot
    from splatview_viewer.core.settings import Color
    from splatview_viewer.core.view import Value
    from splatview_viewer.snapshot.model import Trace


def shoot(command: Shot, second_path: Path | None = None) -> tuple[int, int]:
    """Draw one stream or file into a picture, which appears whole or not at all.

    Args:
        command: says what, and into which file.
        second_path: a second memory snapshot, which is drawn below the first.

    Returns:
        Its width and height.

    Raises:
        ViewerError: nothing to draw, a camera or file that makes no sense, no graphics.
    """
    if second_path is None:
        second = None
    else:
        second = Content(read(second_path))
    options = StillOptions(
        size=None if command.size is None else parse_size(command.size),
        camera=command.camera,
        background=parse_background(command.background),
        device=command.device,
        show=command.show,
    )
    check_writable(command.out, check_picture, options.background is None)

    def draw(
        still: Still, value: Value | None, overlays: Sequence[StreamFrame]
    ) -> tuple[int, int] | None:
        size = still.prepare(value, options)
        if size is None:
            return None
        if second is not None:
            _compare(still, second)
        if options.background is None:
            pixels = still.see_through(size)
        else:
            still.draw(size, overlays)
            pixels = still.screen.pixels()[..., :3]
        if not still.is_intact():
            return None
        save_picture(pixels, command.out)
        for note in _notes(still, value, command):
            print(f"splatview: shot: {note}", file=sys.stderr)
        return size

    named = Named(command.file, command.run, command.stream)
    return draw_named(named, "shot", "--camera", draw)


def _compare(still: Still, second: Content) -> None:
    """Have a picture of a memory snapshot show a second one below it."""
    if still.view is None:
        view = None
    else:
        view = still.view.view
    if isinstance(view, SnapshotView):
        name = second.snapshot.name
        view.change(shows="both", tab="timeline", other=name)


def _notes(still: Still, value: Value | None, command: Shot) -> list[str]:
    """Return what a user would wonder at in a picture."""
    notes = []
    if still.missing:
        notes.append(f"Gaussians: {still.missing}")
    if isinstance(value, GaussianScene):
        notes += [f"{command.file}: {note}" for note in value.notes]
    if isinstance(value, MemorySnapshot):
        traces = value.traces
    else:
        traces = ()
    if command.device is None and len(traces) > 1:
        devices = ", ".join(map(_trace_title, traces))
        notes.append(
            f"{command.file}: the picture shows one of the devices {devices}; choose with "
            "--device"
        )
    return notes


def _trace_title(trace: Trace) -> str:
    """Return a device's name with the number of its events."""
    return f"{device_name(trace.device)} ({len(trace.events):,} events)"


def parse_background(text: str) -> Color | None:
    """Return RGB in [0, 1] from "R,G,B", or None from "transparent".

    The numbers are fractions, or 0 to 255 if any is over 1. Raises ViewerError for
    anything else.
    """
    if text.strip().lower() in ("transparent", "none"):
        return None
    try:
        r, g, b = map(float, text.split(","))
    except ValueError:
        raise ViewerError(
            f"background: {text!r} is not R,G,B, such as 0.1,0.2,0.3 or 25,50,75, nor "
            "transparent"
        ) from None
    maximum = 1.0
    if max(r, g, b) > 1:
        maximum = 255.0
    # NaN is in no range.
    is_in_range = all(0 <= channel <= maximum for channel in (r, g, b))
    if not is_in_range:
        raise ViewerError(
            f"background: {text!r} is out of range: three numbers from 0 to 1, or from "
            "0 "
            "to 255"
        )
    return r / maximum, g / maximum, b / maximum
