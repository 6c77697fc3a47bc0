"""`splatview memory FILE --html`, `--flame`: documents that need no viewer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.system.files import OutputError, write_output
from splatview_ipc.system.terminal import printable
from splatview_viewer.app.memory_answers import read
from splatview_viewer.core.errors import FileError, ViewerError
from splatview_viewer.core.quantities import size_text
from splatview_viewer.formats.pictures import check_writable
from splatview_viewer.snapshot.export.flame_svg import flame_svg
from splatview_viewer.snapshot.export.timeline_html import timeline_html
from splatview_viewer.snapshot.model import (
    EMPTY_SNAPSHOT,
    busiest_device,
    find_device,
    peak_moment,
)

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.snapshot.model import MemorySnapshot, Trace


def write_page(file: Path, out: Path, device: str | None) -> str:
    """Write the timeline of a snapshot as an HTML page.

    Args:
        file: the snapshot.
        out: the page, which appears whole or not at all.
        device: the name of the device that it shows; None: the busiest one.

    Returns:
        What was written, for the user.

    Raises:
        ViewerError: no snapshot, no such device, or the page cannot be written.
    """
    check_writable(out)
    snapshot = read(file)
    return _write(out, timeline_html(snapshot, _trace_of(snapshot, file, device)))


def write_flame(
    file: Path, out: Path, device: str | None, event_index: int | None
) -> str:
    """Write the flame graph of what is live at a moment as an SVG.

    Args:
        file: the snapshot.
        out: the drawing, which appears whole or not at all.
        device: the name of the device that it is of; None: the busiest one.
        event_index: the number of events before it; None: the peak.

    Returns:
        What was written, for the user.

    Raises:
        ViewerError: no snapshot, no such device or moment, or the drawing cannot be
            written.
    """
    check_writable(out)
    snapshot = read(file)
    trace = _trace_of(snapshot, file, device)
    if event_index is None:
        event_index = peak_moment(trace)
    event_count = len(trace.events)
    if not 0 <= event_index <= event_count:
        raise ViewerError(
            f"{file}: --at {event_index} is outside the trace; expected 0 to {event_count}"
        )
    return _write(out, flame_svg(snapshot, trace, event_index))


def _trace_of(snapshot: MemorySnapshot, file: Path, device: str | None) -> Trace:
    """Return the trace of a device. Raises ViewerError where there is none."""
    if not snapshot.traces:
        raise FileError(f"{file}: {EMPTY_SNAPSHOT}")
    if device is None:
        return snapshot.traces[busiest_device(snapshot)]
    return snapshot.traces[find_device(snapshot, device)]


def _write(out: Path, text: str) -> str:
    """Write a document; return its name and size. Raises FileError."""
    content = text.encode("utf-8")
    try:
        write_output(out, content)
    except OutputError as e:
        raise FileError(str(e)) from None
    return f"{printable(out)}: {size_text(len(content))}"
