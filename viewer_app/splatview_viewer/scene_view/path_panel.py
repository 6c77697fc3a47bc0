"""The panel's part "Path": keyframes, times, files, and the film."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from splatview_viewer.scene_view.film import Filming
    from splatview_viewer.scene_view.path import PathTool

SIZES = {
    (1280, 720): "1280 x 720",
    (1920, 1080): "1920 x 1080",
    (2560, 1440): "2560 x 1440",
    (3840, 2160): "3840 x 2160",
    (1080, 1080): "1080 x 1080",
    (1080, 1920): "1080 x 1920",
}
RATES = {24.0: "24 fps", 25.0: "25 fps", 30.0: "30 fps", 50.0: "50 fps", 60.0: "60 fps"}


def draw_panel(tool: PathTool) -> bool:
    """Draw the section of the panel; return whether to draw the picture again."""
    previous = tool.displayed_state
    _draw_keyframes(tool)
    if tool.path.keys:
        _draw_times(tool)
        tip = "Into the current folder, as nerfstudio's viewer writes paths"
        if ui.buttons("File", ["Save"], [tip]) == 0:
            tool.storage.save()
        if tool.film_maker.filming is not None:
            _draw_progress(tool, tool.film_maker.filming)
        else:
            _draw_film(tool)
    else:
        ui.wrapped(
            "K sets a keyframe where the camera is. A path of nerfstudio's viewer can "
            "be dropped here.",
            theme.DIM,
        )
    return previous != tool.displayed_state or tool.film_maker.filming is not None


def _draw_keyframes(tool: PathTool) -> None:
    pressed = ui.buttons(
        "Keyframe",
        ["Add", "Around"],
        ["Set one where the camera is (K)", "A path once around the scene, from here"],
    )
    if pressed == 0:
        tool.add_key()
    elif pressed == 1:
        tool.circle_scene()
    elif tool.chosen_key is not None:
        _draw_chosen_key(tool, tool.chosen_key)


def _draw_chosen_key(tool: PathTool, index: int) -> None:
    keys = tool.path.keys
    key = keys[index]
    pressed = ui.buttons(
        f"{index + 1} of {len(keys)}",
        ["Set here", "Remove"],
        ["Move it to where the camera is", "Take it out (Delete)"],
    )
    fov = ui.slider(
        "Field of view",
        "Vertical angle of this keyframe's picture",
        key.fov,
        (5.0, 120.0),
        "%.0f deg",
    )
    if pressed == 0:
        tool.replace_key()
    elif pressed == 1:
        tool.remove_key()
    elif fov != key.fov:
        keys[index] = replace(key, fov=fov)


def _draw_times(tool: PathTool) -> None:
    path = tool.path
    path.loop = ui.check("Loop", "The path goes back to its first keyframe", path.loop)
    tip = "A curve through the keyframes; off: straight lines"
    path.smooth = ui.check("Smooth", tip, path.smooth)
    if path.duration > 0:
        seconds = ui.slider(
            "Duration",
            "Seconds from the first keyframe to the last",
            path.duration,
            (0.5, 60.0),
            "%.1f s",
        )
        if seconds != path.duration:
            path.stretch(seconds)
    tip = "The path's times at the lower edge of the picture"
    tool.is_open = ui.check("Timeline", tip, tool.is_open)


def _draw_progress(tool: PathTool, filming: Filming) -> None:
    ui.row("Video")
    share = filming.drawn / filming.total
    imgui.progress_bar(share, ImVec2(-1, 0), f"{filming.drawn} of {filming.total}")
    if ui.buttons("", ["Cancel"]) == 0:
        tool.film_maker.cancel()


def _draw_film(tool: PathTool) -> None:
    """Draw the settings of a film, and the button that starts it."""
    film = tool.film
    size = (film.width, film.height)
    sizes = SIZES
    if size not in SIZES:
        sizes = {size: f"{film.width} x {film.height}", **SIZES}
    rates = RATES
    if film.fps not in RATES:
        rates = {film.fps: f"{film.fps:g} fps", **RATES}
    width, height = ui.choice(
        "Resolution", "Width and height of the video, in pixels", size, sizes
    )
    fps = ui.choice("Frame rate", "Pictures of the video in a second", film.fps, rates)
    tool.film = replace(film, width=width, height=height, fps=fps)
    tool.film_maker.as_frames = ui.choice(
        "Format",
        "One video, or a folder of numbered pictures",
        tool.film_maker.as_frames,
        {False: "mp4", True: "PNGs"},
    )
    if tool.film_maker.as_frames:
        tip = "Pictures with an alpha channel in place of a background"
        tool.film_maker.transparent = ui.check(
            "Transparent", tip, tool.film_maker.transparent
        )
    tip = "Into the current folder of the viewer; drawing goes on meanwhile"
    if ui.buttons("Video", ["Render"], [tip]) == 0:
        tool.film_maker.start()
