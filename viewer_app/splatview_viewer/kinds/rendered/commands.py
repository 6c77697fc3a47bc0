"""Commands of a scene that a function draws: its camera, bookmarks, path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.scene_view.camera_commands import (
    CAMERA_COMMANDS,
    commands_of_cameras,
    find_cameras,
)
from splatview_viewer.scene_view.frustums import Frustums
from splatview_viewer.scene_view.path_commands import PATH_COMMANDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.command import Command
    from splatview_viewer.kinds.rendered.view import RenderedView

COMMANDS: tuple[Command[Any], ...] = (*CAMERA_COMMANDS, *PATH_COMMANDS)
"""The commands of every such scene."""


def commands_of(view: RenderedView) -> Sequence[Command[Any]]:
    """Return the commands of a view; those of training cameras come last."""
    cameras = view.tools.of(Frustums).cameras
    if cameras is None:
        return COMMANDS
    return (*COMMANDS, *commands_of_cameras(cameras))


def find_commands(view: RenderedView, text: str) -> Sequence[Command[Any]]:
    """Return the commands of a view that only a search finds."""
    cameras = view.tools.of(Frustums).cameras
    if cameras is None:
        return ()
    return find_cameras(cameras, text)
