"""Commands of a scene's camera path."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from splatview_viewer.core.command import Command
from splatview_viewer.scene_view.path import PathTool
from splatview_viewer.scene_view.protocol import SceneView

if TYPE_CHECKING:
    from collections.abc import Callable


class RedrawnView(SceneView, Protocol):
    """A view of a scene with a path."""

    def redraw(self) -> None:
        """Draw the picture again: what lies over it has changed."""
        ...


def _why_no_path(view: RedrawnView) -> str | None:
    if view.tools.of(PathTool).path.keys:
        return None
    return "the path has no keyframe"


def _why_no_key(view: RedrawnView) -> str | None:
    if view.tools.of(PathTool).chosen_key is None:
        return "no keyframe is chosen"
    return None


def _on_path(act: Callable[[PathTool], object], view: RedrawnView) -> None:
    """Have the path do something, and draw what it shows."""
    act(view.tools.of(PathTool))
    view.redraw()


def _save_path(view: RedrawnView) -> None:
    view.tools.of(PathTool).storage.save()


def _render_film(view: RedrawnView) -> None:
    view.tools.of(PathTool).film_maker.start()
    view.redraw()


PATH_COMMANDS: tuple[Command[Any], ...] = (
    Command(
        "path.key",
        "Set a keyframe here",
        partial(_on_path, PathTool.add_key),
        ("K",),
        icon="plus",
    ),
    Command(
        "path.remove",
        "Remove the chosen keyframe",
        partial(_on_path, PathTool.remove_key),
        ("Delete",),
        icon="delete",
        reason=_why_no_key,
    ),
    Command(
        "path.play",
        "Play the path, or stop",
        partial(_on_path, PathTool.toggle_playing),
        icon="play",
        reason=_why_no_path,
    ),
    Command(
        "path.around",
        "A path once around the scene",
        partial(_on_path, PathTool.circle_scene),
        icon="around",
    ),
    Command("path.save", "Save the path", _save_path, icon="save", reason=_why_no_path),
    Command(
        "path.render",
        "Render the video",
        _render_film,
        icon="film",
        reason=_why_no_path,
    ),
)
"""The commands of every scene's camera path."""
