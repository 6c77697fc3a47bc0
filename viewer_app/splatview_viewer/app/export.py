"""A scene as a file for other programs: `splatview export`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.app.still import Still, StillOptions
from splatview_viewer.app.stills import Named, draw_named
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.screen import MIN_SIZE, Rect
from splatview_viewer.formats.camera_paths import read_path
from splatview_viewer.formats.writers import (
    WrittenScene,
    chosen,
    write_bytes,
    write_scene,
    writer_of,
)
from splatview_viewer.geometry.orbit import Orbit
from splatview_viewer.splat_page.scene_html import scene_html

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.app.commands.export import Export
    from splatview_viewer.core.view import Value
    from splatview_viewer.formats.camera_paths import Film
    from splatview_viewer.geometry.orbit import OrbitPlace

_PAGES = (".html", ".htm")
"""Ends of the names of pages."""


class _ExportedScene(NamedTuple):
    """A scene that is exported, and the first view of it."""

    written: WrittenScene
    place: OrbitPlace


def export(command: Export) -> int:
    """Write a scene as it is when this begins; return the number of its Gaussians.

    Raises:
        ViewerError: nothing to write, a file that makes no sense, no graphics.
    """
    is_page = command.out.suffix.lower() in _PAGES
    if not is_page:
        # Before a training is asked for anything.
        _check_options(command)
        writer_of(command.out, _PAGES)
    path = None if command.path is None else read_path(command.path)

    def take(
        still: Still, value: Value | None, overlays: Sequence[StreamFrame]
    ) -> _ExportedScene | None:
        return _loaded(still, value, command.camera)

    named = Named(command.file, command.run, command.stream)
    loaded = draw_named(named, "export", "--camera", take)
    if not is_page:
        _, count = write_scene(loaded.written, command.out)
        return count
    return _write_page(loaded, path, command)


def _check_options(command: Export) -> None:
    """Raise ViewerError for options that only a page has."""
    for name in ("camera", "path"):
        if getattr(command, name) is not None:
            raise ViewerError(
                f"export: --{name} is for pages (.html), and {command.out} is none"
            )


def _loaded(
    still: Still, value: Value | None, camera: str | None
) -> _ExportedScene | None:
    """Return the scene of a value; None when the writer overwrote it meanwhile.

    Raises ViewerError for what is no scene of Gaussians.
    """
    size = still.prepare(value, StillOptions(camera=camera))
    if size is None:
        return None
    view = still.scene
    if view is None:
        raise ViewerError(
            f"export: this is of kind {still.kind}; scenes of Gaussians are exported. "
            "Name one with --stream, or a file"
        )
    # A small picture loads the scene.
    still.draw((MIN_SIZE, MIN_SIZE))
    if not still.is_intact():
        return None
    summary = view.data.summary
    sample = view.data.sample
    assert summary is not None
    assert sample is not None
    scene = view.data.renderer.scene()
    written = WrittenScene(
        scene.to_host(),
        antialiased=summary.antialiased,
        up=view.rig.up_axis.known,
        gpu=scene.gpu,
    )
    orbit = Orbit(up=view.rig.up_axis.direction)
    orbit.look_from(view.rig.camera_of_scene(Rect(0, 0, *size)), sample.middle)
    return _ExportedScene(written, orbit.place)


def _write_page(loaded: _ExportedScene, path: Film | None, command: Export) -> int:
    """Write a scene as one page; return the number of its Gaussians."""
    scene = chosen(loaded.written)
    scene = replace(scene, antialiased=loaded.written.antialiased)
    title = command.out.stem
    page = scene_html(scene, camera=loaded.place, path=path, title=title)
    write_bytes(page, command.out)
    return len(scene)
