"""A scene as a file for other programs: `splatview export`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.app.still import Still, StillOptions
from splatview_viewer.app.stills import Named, draw_named
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.screen import MIN_SIZE
from splatview_viewer.formats.writers import WrittenScene, write_scene, writer_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.app.commands.export import Export
    from splatview_viewer.core.view import Value


def export(command: Export) -> int:
    """Write a scene as it is when this begins; return the number of its Gaussians.

    Raises:
        ViewerError: nothing to write, a file that makes no sense, no graphics.
    """
    writer_of(command.out)  # before a training is asked for anything

    def take(
        still: Still, value: Value | None, overlays: Sequence[StreamFrame]
    ) -> WrittenScene | None:
        return _loaded(still, value)

    named = Named(command.file, command.run, command.stream)
    written = draw_named(named, "export", "--camera", take)
    _, count = write_scene(written, command.out)
    return count


def _loaded(still: Still, value: Value | None) -> WrittenScene | None:
    """Return the scene of a value; None when the writer overwrote it meanwhile.

    Raises ViewerError for what is no scene of Gaussians.
    """
    if still.prepare(value, StillOptions()) is None:
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
    return WrittenScene(
        view.data.renderer.scene().to_host(),
        antialiased=summary.antialiased,
        up=view.rig.up_axis.known,
    )
