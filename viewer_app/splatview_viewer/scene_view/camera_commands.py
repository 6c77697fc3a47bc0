"""Commands of a scene's camera: moves, bookmarks, training cameras."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.command import Command
from splatview_viewer.scene.scene import UPS
from splatview_viewer.scene_view.camera_panel import MODELS
from splatview_viewer.scene_view.frustums import Frustums
from splatview_viewer.scene_view.frustums_panel import COMPARISONS
from splatview_viewer.scene_view.navigate import Navigate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.geometry.cameras import CameraModel
    from splatview_viewer.geometry.training_cameras import CameraSet
    from splatview_viewer.scene_view.protocol import TrainedView

    SceneCommand = Command[TrainedView]

_MAX_CAMERAS = 500
"""Training cameras that are listed with a command of their own."""
_MAX_FOUND = 20
"""Others that are found by the beginning of their number."""


# -- the camera ------------------------------------------------------------------------


def _frame(view: TrainedView) -> None:
    view.rig.motion.fly_to_whole_scene()


def _level(view: TrainedView) -> None:
    view.rig.motion.fly_to_whole_scene(upright=True)


def _project(model: CameraModel, view: TrainedView) -> None:
    view.rig.set_lens(model, view.rig.orbit.fov)


def _set_up(name: str, view: TrainedView) -> None:
    view.rig.up_axis.choose(name)


def _look_from(name: str, view: TrainedView) -> None:
    view.rig.motion.fly_along(-np.array(UPS[name], float))


def _detect_up(view: TrainedView) -> None:
    view.rig.up_axis.detect_again()


def _switch_drag(view: TrainedView) -> None:
    view.tools.of(Navigate).switch_drag()


def _copy_camera(view: TrainedView) -> None:
    view.tools.of(Navigate).copy_later()


def _paste_camera(view: TrainedView) -> None:
    view.tools.of(Navigate).paste_from_clipboard()


def _camera_moves() -> list[SceneCommand]:
    commands: list[SceneCommand] = [
        Command("camera.frame", "See the whole scene", _frame, ("F",), icon="fit"),
        Command("camera.level", "Hold the camera level", _level, ("R",), icon="orbit"),
        Command(
            "camera.drag", "Drag: orbit or fly", _switch_drag, ("O",), icon="orbit"
        ),
        Command(
            "camera.copy", "Copy the camera", _copy_camera, ("Ctrl C",), icon="copy"
        ),
        Command(
            "camera.paste", "Paste a camera", _paste_camera, ("Ctrl V",), icon="paste"
        ),
        Command("camera.up.detect", "Up: find it again", _detect_up, icon="orbit"),
    ]
    for model, name in MODELS.items():
        title = f"Projection: {name.lower()}"
        run = partial(_project, model)
        commands.append(Command(f"camera.{model}", title, run, icon="camera"))
    for name in UPS:
        sign = name.replace("-", "\u2212")
        set_up = partial(_set_up, name)
        look = partial(_look_from, name)
        commands += [
            Command(f"camera.up.{name}", f"Up: {sign}", set_up, icon="orbit"),
            Command(f"camera.from.{name}", f"Look from {sign}", look, icon="eye"),
        ]
    return commands


# -- bookmarks -------------------------------------------------------------------------


def _keep_bookmark(digit: int | None, view: TrainedView) -> None:
    view.tools.of(Navigate).bookmarks.add(digit)


def _visit_bookmark(digit: int, view: TrainedView) -> None:
    view.tools.of(Navigate).bookmarks.visit(digit)


def _why_no_room(view: TrainedView) -> str | None:
    return view.tools.of(Navigate).bookmarks.reason_full


def _why_no_bookmark(digit: int, view: TrainedView) -> str | None:
    if digit in view.tools.of(Navigate).bookmarks.by_digit:
        return None
    return f"there is no bookmark {digit}"


def _bookmark_commands() -> list[SceneCommand]:
    commands: list[SceneCommand] = [
        Command(
            "bookmark.add",
            "Keep this camera as a bookmark",
            partial(_keep_bookmark, None),
            icon="bookmark",
            reason=_why_no_room,
        )
    ]
    for digit in range(1, 10):
        go_to_bookmark: SceneCommand = Command(
            f"bookmark.go.{digit}",
            f"Go to bookmark {digit}",
            partial(_visit_bookmark, digit),
            (str(digit),),
            icon="bookmark",
            reason=partial(_why_no_bookmark, digit),
            group="Bookmarks",
        )
        keep: SceneCommand = Command(
            f"bookmark.keep.{digit}",
            f"Keep this camera as bookmark {digit}",
            partial(_keep_bookmark, digit),
            (f"Shift {digit}", f"Ctrl {digit}"),
            icon="bookmark",
            group="Bookmarks",
        )
        commands += [go_to_bookmark, keep]
    return commands


# -- training cameras ------------------------------------------------------------------


def _why_no_cameras(view: TrainedView) -> str | None:
    if view.tools.of(Frustums).cameras is None:
        return "there are no training cameras"
    return None


def _why_not_through(view: TrainedView) -> str | None:
    if view.tools.of(Frustums).through.index is None:
        return "the view looks through no training camera"
    return None


def _step_camera(step: int, view: TrainedView) -> None:
    frustums = view.tools.of(Frustums)
    if frustums.through.index is None:
        frustums.enter(frustums.last_index)
    else:
        frustums.step(step)


def _leave_camera(view: TrainedView) -> None:
    view.tools.of(Frustums).leave()


def _enter_camera(index: int, view: TrainedView) -> None:
    view.tools.of(Frustums).choose(index)


def _go_to_worst(view: TrainedView) -> None:
    view.tools.of(Frustums).go_to_worst()


def _why_no_worst(view: TrainedView) -> str | None:
    return view.tools.of(Frustums).reason_no_worst()


def _order_cameras(view: TrainedView) -> None:
    frustums = view.tools.of(Frustums)
    frustums.order_by_psnr(not frustums.survey.is_by_psnr)


def _switch_cameras(view: TrainedView) -> None:
    frustums = view.tools.of(Frustums)
    frustums.change(shown=not frustums.state.shown)


def _switch_photographs(view: TrainedView) -> None:
    frustums = view.tools.of(Frustums)
    frustums.change(pictures=not frustums.state.pictures)


def _compare_photo(comparison: str, view: TrainedView) -> None:
    view.tools.of(Frustums).change(comparison=comparison)


def _training_commands() -> list[SceneCommand]:
    commands: list[SceneCommand] = [
        Command(
            "training.next",
            "Training camera: the next",
            partial(_step_camera, 1),
            ("Page down",),
            icon="cameras",
            reason=_why_no_cameras,
            repeats=True,
        ),
        Command(
            "training.previous",
            "Training camera: the one before",
            partial(_step_camera, -1),
            ("Page up",),
            icon="cameras",
            reason=_why_no_cameras,
            repeats=True,
        ),
        Command(
            "training.leave",
            "Training camera: leave it",
            _leave_camera,
            icon="cameras",
            reason=_why_not_through,
        ),
        Command(
            "training.worst",
            "Go to the worst photograph",
            _go_to_worst,
            icon="image",
            reason=_why_no_worst,
        ),
        Command(
            "training.order",
            "Training cameras: by number, or the worst first",
            _order_cameras,
            icon="cameras",
            reason=_why_no_worst,
        ),
        Command(
            "training.shown",
            "Training cameras: show or hide",
            _switch_cameras,
            icon="cameras",
            reason=_why_no_cameras,
        ),
        Command(
            "training.photos",
            "Training cameras: their photographs",
            _switch_photographs,
            icon="cameras",
            reason=_why_no_cameras,
        ),
    ]
    for comparison, name in COMPARISONS.items():
        command: SceneCommand = Command(
            f"training.{comparison}",
            f"Photograph: {name.lower()}",
            partial(_compare_photo, comparison),
            icon="image",
            reason=_why_not_through,
        )
        commands.append(command)
    return commands


@lru_cache(4)
def commands_of_cameras(cameras: CameraSet) -> tuple[SceneCommand, ...]:
    """Return a command for each training camera, as far as they are listed."""
    count = min(len(cameras), _MAX_CAMERAS)
    return tuple(_camera_command(cameras, index) for index in range(count))


def _camera_command(cameras: CameraSet, index: int) -> SceneCommand:
    return Command(
        f"training.camera.{index}",
        f"Look through camera {index}: {cameras.label(index)}",
        partial(_enter_camera, index),
        icon="camera",
        group="Cameras",
    )


def find_cameras(cameras: CameraSet, text: str) -> Sequence[SceneCommand]:
    """Return commands for cameras that are not listed, by a number in a text."""
    numerals = [word for word in text.split() if word.isascii() and word.isdigit()]
    if not numerals:
        return ()
    matches = [
        index
        for index in range(_MAX_CAMERAS, len(cameras))
        if str(index).startswith(numerals[0])
    ]
    return [_camera_command(cameras, index) for index in matches[:_MAX_FOUND]]


CAMERA_COMMANDS: tuple[SceneCommand, ...] = (
    *_camera_moves(),
    *_bookmark_commands(),
    *_training_commands(),
)
"""The commands of every scene's camera."""
