"""A film of a scene along a camera path: `splatview video`."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from splatview_viewer.app.progress_line import ProgressLine
from splatview_viewer.app.shot import parse_background
from splatview_viewer.app.still import (
    DEFAULT_SIZE,
    Still,
    StillOptions,
    wait_until,
)
from splatview_viewer.app.stills import Named, draw_named
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.screen import MIN_SIZE, Rect, parse_size
from splatview_viewer.formats.camera_paths import Film, check_length, read_path
from splatview_viewer.formats.films import check_film, make_writer
from splatview_viewer.geometry.path import turntable
from splatview_viewer.kinds import about
from splatview_viewer.scene_view.film import Camerawork, Filming

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.app.commands.pictures import Video
    from splatview_viewer.core.view import Value
    from splatview_viewer.scene_view.protocol import SceneView

_POLL_S = 0.001
"""Seconds to wait for a job of the film before the next look."""


def film(command: Video) -> int:
    """Film a scene as it is when this begins, and return the number of pictures.

    The progress is printed on stderr. Raises ViewerError: nothing to film, a path or
    file that makes no sense, no graphics.
    """
    options = StillOptions(
        size=None if command.size is None else parse_size(command.size),
        background=parse_background(command.background),
    )
    if command.path is None:
        path = None
    else:
        path = read_path(command.path)
    check_film(command.out)

    def film_value(
        still: Still, value: Value | None, overlays: Sequence[StreamFrame]
    ) -> int | None:
        return _film(still, value, options, command, path)

    named = Named(command.file, command.run, command.stream)
    return draw_named(named, "video", "--path", film_value)


def _film(
    still: Still,
    value: Value,
    options: StillOptions,
    command: Video,
    path: Film | None,
) -> int | None:
    """Film a value, and return the number of pictures.

    None when the writer overwrote the frame before it was loaded.
    """
    if not about(still.kind).filmed:
        raise ViewerError(
            f"video: this is of kind {still.kind}; only scenes can be filmed"
        )
    size = options.size
    if size is None:
        size = DEFAULT_SIZE if path is None else (path.width, path.height)
    if still.prepare(value, replace(options, size=size)) is None:
        return None
    # A small picture loads the scene.
    still.draw((MIN_SIZE, MIN_SIZE))
    if not still.is_intact():
        return None
    view = still.camera_view
    assert view is not None
    if path is None:
        path = _turntable(view, size)
    planned = Film(path.path, *size, command.fps or path.fps)
    if command.seconds is not None:
        planned.path.stretch(command.seconds)
    check_length(planned)
    is_transparent = options.background is None
    filming = Filming(
        Camerawork(still.screen.ctx, view, *size),
        planned,
        make_writer(command.out, *size, planned.fps, is_transparent),
        transparent=is_transparent,
    )
    _wait_for(filming, still)
    return filming.drawn


def _turntable(view: SceneView, size: tuple[int, int]) -> Film:
    """Return a film of one turn around a scene."""
    camera = view.rig.camera(Rect(0, 0, *size))
    sample = view.data.sample
    if camera is None or sample is None:
        raise ViewerError("video: there is nothing to film")
    return Film(turntable(camera, sample.middle, view.rig.up_axis.direction))


def _wait_for(filming: Filming, still: Still) -> None:
    """Draw a film to its end, with reports on stderr.

    Raises ViewerError if it fails.
    """
    progress = ProgressLine()
    text_at = partial(_progress_text, filming)

    def advance() -> bool | None:
        still.read_links()
        filming.advance()
        filming.wait(_POLL_S)
        progress.report(text_at)
        return filming.is_ended or None

    try:
        wait_until(advance, math.inf)
        if filming.fault:
            raise ViewerError(f"video: {filming.fault}")
        progress.clear()
    finally:
        filming.close()


def _progress_text(filming: Filming, seconds: float) -> str:
    """Return the line that says how far a film is after so many seconds."""
    rate = filming.drawn / max(seconds, 1e-3)
    text = f"{filming.drawn} of {filming.total} pictures, {rate:.1f}/s"
    if filming.drawn > 2:
        text += f", {(filming.total - filming.drawn) / rate:.0f} s left"
    return text
