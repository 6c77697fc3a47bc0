"""Commands of a scene: ways to see it, its camera, bookmarks, path, crop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from splatview_viewer.core.command import Command
from splatview_viewer.kinds.gaussians.filter import Filter
from splatview_viewer.kinds.gaussians.history import HistoryTool
from splatview_viewer.kinds.gaussians.inspect import Inspect
from splatview_viewer.kinds.gaussians.region_tools import REGION_TOOLS
from splatview_viewer.kinds.gaussians.select import Select, SelectMode
from splatview_viewer.kinds.gaussians.state import SHOWS, Show
from splatview_viewer.scene import Box, Cylinder, Sphere
from splatview_viewer.scene_view.camera_commands import (
    CAMERA_COMMANDS,
    commands_of_cameras,
    find_cameras,
)
from splatview_viewer.scene_view.crop import Crop
from splatview_viewer.scene_view.frustums import Frustums
from splatview_viewer.scene_view.navigate import Navigate
from splatview_viewer.scene_view.path_commands import PATH_COMMANDS
from splatview_viewer.scene_view.tool import ORBIT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.scene import Shape

    SceneCommand = Command[GaussianView]


def commands_of(view: GaussianView) -> Sequence[SceneCommand]:
    """Return the commands of a view; those of training cameras come last."""
    cameras = view.tools.of(Frustums).cameras
    if cameras is None:
        return COMMANDS
    return (*COMMANDS, *commands_of_cameras(cameras))


def find_commands(view: GaussianView, text: str) -> Sequence[SceneCommand]:
    """Return the commands of a view that only a search finds."""
    cameras = view.tools.of(Frustums).cameras
    if cameras is None:
        return ()
    return find_cameras(cameras, text)


# -- ways to see it --------------------------------------------------------------------


def _show(show: Show, view: GaussianView) -> None:
    view.change(show=show)


def _step_show(step: int, view: GaussianView) -> None:
    """Show the next way to see the scene, or the one before."""
    shows: list[Show] = list(SHOWS)
    index = (shows.index(view.state.show) + step) % len(shows)
    view.change(show=shows[index])


def _show_commands() -> list[SceneCommand]:
    commands: list[SceneCommand] = [
        Command(
            "scene.show.next", "Show: the next way", partial(_step_show, 1), ("V",)
        ),
        Command(
            "scene.show.previous",
            "Show: the way before",
            partial(_step_show, -1),
            ("Shift V",),
        ),
    ]
    for show, show_facts in SHOWS.items():
        title = f"Show: {show_facts.title.lower()}"
        run = partial(_show, show)
        commands.append(Command(f"scene.show.{show}", title, run, icon="eye"))
    return commands


# -- tools -----------------------------------------------------------------------------


def _choose_tool(name: str, view: GaussianView) -> None:
    """Choose a tool of the strip; if it is chosen, that which moves the camera."""
    view.tools.choose(ORBIT if view.tools.chosen == name else name)
    view.redraw()


def _tool_commands() -> list[SceneCommand]:
    commands: list[SceneCommand] = []
    for tool in (Navigate, Inspect, *REGION_TOOLS, Crop):
        button = tool.button
        assert button is not None
        command: SceneCommand = Command(
            f"tool.{tool.name}",
            f"Tool: {button.title.lower()}",
            partial(_choose_tool, tool.name),
            (button.keys,) if button.keys else (),
            icon=button.icon,
        )
        commands.append(command)
    return commands


# -- what is chosen --------------------------------------------------------------------


def _why_none_chosen(view: GaussianView) -> str | None:
    return view.tools.of(Select).why_none


def _on_chosen(act: Callable[[Select], object], view: GaussianView) -> None:
    act(view.tools.of(Select))


_SELECT_MODES: dict[SelectMode, str] = {
    "new": "regions choose anew",
    "add": "regions add",
    "remove": "regions take away",
    "intersect": "regions keep only what is within",
}


def _set_mode(mode: SelectMode, view: GaussianView) -> None:
    view.tools.of(Select).mode = mode


def _select_commands() -> list[SceneCommand]:
    actions = (
        ("hide", "Hide the chosen Gaussians", Select.hide, "hide"),
        ("show_only", "Show only the chosen Gaussians", Select.show_only, "eye"),
        ("save", "Save the chosen Gaussians", Select.save, "save"),
        ("choose_none", "Choose no Gaussians", Select.choose_none, "close"),
    )
    commands: list[SceneCommand] = [
        Command(
            "select.invert",
            "Choose the other Gaussians",
            partial(_on_chosen, Select.invert),
            icon="swap",
        )
    ]
    for mode, title in _SELECT_MODES.items():
        commands.append(
            Command(
                f"select.mode.{mode}",
                f"Select: {title}",
                partial(_set_mode, mode),
                icon="lasso",
            )
        )
    for name, title, act, icon in actions:
        command: SceneCommand = Command(
            f"select.{name}",
            title,
            partial(_on_chosen, act),
            icon=icon,
            reason=_why_none_chosen,
        )
        commands.append(command)
    return commands


# -- the training ----------------------------------------------------------------------


def _why_no_history(view: GaussianView) -> str | None:
    return view.tools.of(HistoryTool).training.reason


def _step_history(step: int, view: GaussianView) -> None:
    view.tools.of(HistoryTool).move(step)


def _show_live(view: GaussianView) -> None:
    view.tools.of(HistoryTool).live()


def _history_commands() -> list[SceneCommand]:
    return [
        Command(
            "history.before",
            "The snapshot before",
            partial(_step_history, -1),
            (",",),
            icon="back",
            reason=_why_no_history,
            repeats=True,
        ),
        Command(
            "history.after",
            "The snapshot after",
            partial(_step_history, 1),
            (".",),
            icon="step",
            reason=_why_no_history,
            repeats=True,
        ),
        Command(
            "history.live",
            "What comes live, or the newest snapshot",
            _show_live,
            ("End",),
            icon="training",
            reason=_why_no_history,
        ),
    ]


# -- the data --------------------------------------------------------------------------


def _crop(kind: type[Shape], view: GaussianView) -> None:
    crop = view.tools.of(Crop)
    crop.set_shape(crop.fit(kind))


def _end_crop(view: GaussianView) -> None:
    view.tools.of(Crop).end()


def _fit_crop(view: GaussianView) -> None:
    view.tools.of(Crop).fit_shape()


def _why_no_crop(view: GaussianView) -> str | None:
    if view.tools.of(Crop).shape is not None:
        return None
    return "nothing is cropped"


def _show_all(view: GaussianView) -> None:
    view.tools.of(Filter).reset()


def _why_all(view: GaussianView) -> str | None:
    if view.tools.of(Filter).is_active:
        return None
    return "all are shown"


def _save_scene(only_shown: bool, view: GaussianView) -> None:
    view.tools.of(Filter).save(only_shown=only_shown)


def _why_not_saved(view: GaussianView) -> str | None:
    return view.tools.of(Filter).why_not_saved


def _clear_inspected(view: GaussianView) -> None:
    view.tools.of(Inspect).choose(None)


def _why_none_inspected(view: GaussianView) -> str | None:
    if view.tools.of(Inspect).index is not None:
        return None
    return "none is inspected"


def _data_commands() -> list[SceneCommand]:
    return [
        Command("crop.box", "Crop: a box", partial(_crop, Box), icon="crop"),
        Command("crop.sphere", "Crop: a sphere", partial(_crop, Sphere), icon="crop"),
        Command(
            "crop.cylinder", "Crop: a cylinder", partial(_crop, Cylinder), icon="crop"
        ),
        Command("crop.fit", "Crop: fit", _fit_crop, icon="crop", reason=_why_no_crop),
        Command(
            "crop.none",
            "Crop: none",
            _end_crop,
            icon="crop",
            reason=_why_no_crop,
        ),
        Command(
            "filter.reset",
            "Show all Gaussians",
            _show_all,
            icon="eye",
            reason=_why_all,
        ),
        Command(
            "scene.save",
            "Save the scene: all of it",
            partial(_save_scene, False),
            icon="save",
            reason=_why_not_saved,
        ),
        Command(
            "scene.save_shown",
            "Save the scene: what is shown",
            partial(_save_scene, True),
            icon="save",
            reason=_why_not_saved,
        ),
        Command(
            "inspect.clear",
            "Inspect none",
            _clear_inspected,
            icon="inspect",
            reason=_why_none_inspected,
        ),
    ]


COMMANDS: tuple[Command[Any], ...] = (
    *_show_commands(),
    *CAMERA_COMMANDS,
    *_tool_commands(),
    *_select_commands(),
    *_history_commands(),
    *PATH_COMMANDS,
    *_data_commands(),
)
"""The commands of every scene."""
