"""A scene as a file for other programs: `splatview export`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.app.progress_line import ProgressLine
from splatview_viewer.app.still import Still, StillOptions
from splatview_viewer.app.stills import Named, draw_named
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.screen import MIN_SIZE, Rect
from splatview_viewer.formats.camera_paths import read_path
from splatview_viewer.formats.pictures import check_writable
from splatview_viewer.formats.writers import WrittenScene, write_scene, writer_of
from splatview_viewer.kinds.gaussians.scene_page import PAGE_SUFFIX, page_writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.app.commands.export import Export
    from splatview_viewer.core.view import Value
    from splatview_viewer.formats.camera_paths import Film
    from splatview_viewer.formats.writers import SceneWriter


class _ExportedScene(NamedTuple):
    """A scene that is exported, and what writes it."""

    written: WrittenScene
    writer: SceneWriter


def export(command: Export) -> int:
    """Write a scene as it is when this begins; return the number of its Gaussians.

    The progress is printed on stderr.

    Raises:
        ViewerError: nothing to write, a file that makes no sense, no graphics.
    """
    is_page = command.out.name.lower().endswith(PAGE_SUFFIX)
    # Before a training is asked for anything.
    if not is_page:
        writer_of(command.out, [PAGE_SUFFIX])
        _check_options(command)
    check_writable(command.out)
    path = None if command.path is None else read_path(command.path)

    def take(
        still: Still, value: Value | None, overlays: Sequence[StreamFrame]
    ) -> _ExportedScene | None:
        return _loaded(still, value, command, path)

    named = Named(command.file, command.run, command.stream)
    exported = draw_named(named, "export", "--camera", take)
    line = ProgressLine()

    def report(activity: str, fraction: float) -> None:
        line.report(lambda _: f"{activity}, {fraction:.0%}")

    _, count = write_scene(
        exported.written, command.out, writer=exported.writer, progress=report
    )
    line.clear()
    return count


def _check_options(command: Export) -> None:
    """Raise ViewerError for options that only a page has."""
    for name in ("camera", "path"):
        if getattr(command, name) is not None:
            raise ViewerError(
                f"export: --{name} is for pages ({PAGE_SUFFIX}), and {command.out} is "
                "none; leave it out"
            )


def _loaded(
    still: Still, value: Value | None, command: Export, path: Film | None
) -> _ExportedScene | None:
    """Return the scene of a value; None when the writer overwrote it meanwhile.

    Raises ViewerError for what is no scene of Gaussians.
    """
    size = still.prepare(value, StillOptions(camera=command.camera))
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
    assert summary is not None
    scene = view.data.renderer.scene()
    written = WrittenScene(
        scene.to_host(),
        antialiased=summary.antialiased,
        up=view.rig.up_axis.known,
        gpu=scene.gpu,
    )
    if command.out.name.lower().endswith(PAGE_SUFFIX):
        camera = view.rig.camera_of_scene(Rect(0, 0, *size))
        writer = page_writer(view, camera, path)
    else:
        writer = writer_of(command.out)
    return _ExportedScene(written, writer)
