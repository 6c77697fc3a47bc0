"""The sections "Path", "Keyframe n" and "Video"."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.core.view import Section
from splatview_viewer.ui import controls, theme
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.progress import draw_progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.scene_view.film import Filming
    from splatview_viewer.scene_view.path import PathTool

SIZES = {
    (1280, 720): "1280 \u00d7 720",
    (1920, 1080): "1920 \u00d7 1080",
    (2560, 1440): "2560 \u00d7 1440",
    (3840, 2160): "3840 \u00d7 2160",
    (1080, 1080): "1080 \u00d7 1080",
    (1080, 1920): "1080 \u00d7 1920",
}
"""Sizes of a video in pixels, and their names."""
RATES = {24.0: "24", 25.0: "25", 30.0: "30", 50.0: "50", 60.0: "60"}
"""Pictures of a video in a second, and their names."""
_NO_KEYS = "the path has no keyframe"
_CANCEL_WIDTH = 84.0
"""Points."""


def sections_of(tool: PathTool) -> list[Section]:
    """Return the sections of the path: the keyframe's while one is chosen."""
    sections = [
        _section(tool, "Path", _draw_path, _path_words(tool)),
        _section(tool, "Video", _draw_video, ""),
    ]
    index = tool.chosen_key
    if index is not None and index < len(tool.path.keys):
        time_text = f"at {tool.path.times[index]:.1f} s"
        sections.insert(
            1, _section(tool, f"Keyframe {index + 1}", _draw_key, time_text)
        )
    return sections


def _section(
    tool: PathTool, title: str, draw: Callable[[PathTool], None], state: str
) -> Section:
    """Return a section that has the picture drawn again when the path changes."""

    def draw_and_compare() -> bool:
        previous = tool.displayed_state
        draw(tool)
        is_filming = tool.film_maker.filming is not None
        return previous != tool.displayed_state or is_filming

    return Section(title, draw_and_compare, opened=True, tab="film", state=state)


def _path_words(tool: PathTool) -> str:
    """Return the number of keyframes and the duration in a few words."""
    count = len(tool.path.keys)
    if not count:
        return "none"
    if count == 1:
        return "1 keyframe"
    return f"{count} keyframes, {tool.path.duration:.1f} s"


def _draw_path(tool: PathTool) -> None:
    tool.is_edited = True
    pressed = ui.buttons(
        "",
        ["Keyframe here", "Once around"],
        ["Set one where the camera is (K)", "A path once around the scene, from here"],
        ["plus", "around"],
    )
    if pressed == 0:
        tool.add_key()
    elif pressed == 1:
        tool.circle_scene()
    if tool.path.keys:
        _draw_times(tool)
    else:
        ui.wrapped(
            "K sets a keyframe where the camera is. A path of nerfstudio's viewer can "
            "be dropped over the picture.",
            theme.DIM,
        )
    _draw_files(tool)


def _draw_times(tool: PathTool) -> None:
    path = tool.path
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
    tip = "A curve through the keyframes; off: straight lines"
    path.smooth = ui.check("Smooth curve", tip, path.smooth)
    path.loop = ui.check("Loop", "The path goes back to its first keyframe", path.loop)
    tip = "The path's line is in the picture, also while another tab is shown"
    tool.is_open = ui.check("Stay shown", tip, tool.is_open)


def _draw_files(tool: PathTool) -> None:
    """Draw the buttons that save the path, and that list files of paths."""
    reason = None
    if not tool.path.keys:
        reason = _NO_KEYS
    pressed = ui.buttons(
        "Saved",
        ["Save", "Load"],
        [
            "Into the current folder, as nerfstudio's viewer writes paths",
            "One of the current folder's; others can be dropped over the picture",
        ],
        ["save", "open"],
        [reason, None],
    )
    if pressed == 0:
        tool.storage.save()
    elif pressed == 1:
        tool.storage.list_files()
        imgui.open_popup("paths")
    if not imgui.begin_popup("paths"):
        return
    for file in tool.storage.files:
        if imgui.menu_item(f"{file.name}##path", "", False)[0]:
            tool.storage.take_file(file)
    if not tool.storage.files:
        ui.dim("There is no path in the current folder")
    imgui.end_popup()


def _draw_key(tool: PathTool) -> None:
    """Draw the controls of the chosen keyframe."""
    index = tool.chosen_key
    keys = tool.path.keys
    if index is None or index >= len(keys):
        return
    key = keys[index]
    fov = ui.slider(
        "Field of view",
        "Vertical angle of this keyframe's picture",
        key.fov,
        (5.0, 120.0),
        "%.0f°",
    )
    pressed = ui.buttons(
        "",
        ["Set to this camera", "Remove"],
        ["Move it to where the camera is", "Take it out (Delete)"],
        ["camera", "delete"],
    )
    if pressed == 0:
        tool.replace_key()
    elif pressed == 1:
        tool.remove_key()
    elif fov != key.fov:
        keys[index] = replace(key, fov=fov)


def _draw_video(tool: PathTool) -> None:
    """Draw the settings of a film, and the button that starts it or how far it is."""
    filming = tool.film_maker.filming
    imgui.begin_disabled(filming is not None)
    _draw_settings(tool)
    imgui.end_disabled()
    if filming is not None:
        _draw_progress(tool, filming)
        return
    reason = None
    if not tool.path.keys:
        reason = _NO_KEYS
    is_pressed = controls.button(
        "Render",
        "film",
        width=-1,
        look="primary",
        reason=reason,
        hint="Into the current folder of the viewer; drawing goes on meanwhile",
    )
    if is_pressed:
        tool.film_maker.start()


def _draw_settings(tool: PathTool) -> None:
    film = tool.film
    reason = ""
    if tool.film_maker.filming is not None:
        reason = "a film is being rendered"
    size = (film.width, film.height)
    sizes = SIZES
    if size not in SIZES:
        sizes = {size: f"{film.width} \u00d7 {film.height}", **SIZES}
    rates = RATES
    if film.fps not in RATES:
        rates = {film.fps: f"{film.fps:g}", **RATES}
    width, height = ui.choice(
        "Size", "Width and height of the video, in pixels", size, sizes
    )
    tip = "Pictures of the video in a second"
    fps = ui.segments("Rate", tip, film.fps, rates, [reason] * len(rates))
    edited = replace(film, width=width, height=height, fps=fps)
    if edited != film:
        tool.film = edited
    maker = tool.film_maker
    maker.as_frames = ui.segments(
        "Format",
        "One video, or a folder of numbered pictures",
        maker.as_frames,
        {False: "mp4", True: "PNGs"},
        [reason] * 2,
    )
    if maker.as_frames:
        tip = "Pictures with an alpha channel in place of a background"
        maker.transparent = ui.check("Transparent", tip, maker.transparent)


def _draw_progress(tool: PathTool, filming: Filming) -> None:
    """Draw how far a film is, and the button that gives it up."""
    scale = theme.scale()
    gap = theme.ROW_GAP * scale
    width = imgui.get_content_region_avail().x - gap - _CANCEL_WIDTH * scale
    text = f"{filming.drawn} of {filming.total} pictures"
    draw_progress(filming.drawn / filming.total, text, width)
    imgui.same_line(0, gap)
    if controls.button("Cancel", "close", width=_CANCEL_WIDTH):
        tool.film_maker.cancel()
