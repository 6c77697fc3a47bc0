"""The panel's part "Path": key frames, timing, files, and films."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from splatview_viewer.kinds.gaussians.path import PathTool

SIZES = {(1280, 720): "1280 x 720", (1920, 1080): "1920 x 1080", (2560, 1440): "2560 x 1440",
         (3840, 2160): "3840 x 2160", (1080, 1080): "1080 x 1080", (1080, 1920): "1080 x 1920"}
RATES = {24.0: "24 a second", 25.0: "25 a second", 30.0: "30 a second", 50.0: "50 a second", 60.0: "60 a second"}


def panel(tool: PathTool) -> bool:
    """Draw it; True when a picture has to follow."""
    path = tool.path
    changed = _keys(tool)
    if not path.keys:
        ui.wrapped("K sets a key frame where the camera is. A path of nerfstudio's viewer can be dropped here.",
                   theme.DIM)
        return changed
    loop = ui.check("Loop", path.loop)
    smooth = ui.check("Smooth", path.smooth)
    if (loop, smooth) != (path.loop, path.smooth):
        path.loop, path.smooth = loop, smooth
        tool.changed()
        changed = True
    if path.duration > 0:
        seconds = ui.slider("Duration", path.duration, (0.5, 60.0), "%.1f s")
        if seconds != path.duration:
            path.stretch(seconds)
            tool.changed()
            changed = True
    shown = ui.check("Timeline", tool.shown)
    if shown != tool.shown:
        tool.shown = shown
        changed = True
    if ui.buttons("File", ["Save"], ["Into the current folder, as nerfstudio's viewer writes paths"]) == 0:
        tool.save()
    return _film(tool) or changed


def _keys(tool: PathTool) -> bool:
    chosen, count = tool.chosen, len(tool.path.keys)
    pressed = ui.buttons("Key frame", ["Add", "Around"], [
        "Set one where the camera is (K)", "A path once around the scene, from here"])
    if pressed == 0:
        tool.add()
    elif pressed == 1:
        tool.around()
    if chosen is None or not count or pressed is not None:
        return pressed is not None
    key = tool.path.keys[chosen]
    edit = ui.buttons(f"{chosen + 1} of {count}", ["Set here", "Remove"], [
        "Move it to where the camera is", "Take it out (Delete)"])
    if edit == 0:
        tool.replace()
    elif edit == 1:
        tool.remove()
        return True
    fov = ui.slider("Its view", key.fov, (5.0, 120.0), "%.0f deg")
    if fov != key.fov:
        tool.path.keys[chosen] = replace(tool.path.keys[chosen], fov=fov)
        tool.changed()
    return edit is not None or fov != key.fov


def _film(tool: PathTool) -> bool:
    filming = tool.filming
    if filming is not None:
        ui.row("Film")
        imgui.progress_bar(filming.share, ImVec2(-1, 0), f"{filming.drawn} of {filming.total}")
        if ui.buttons("", ["Give up"]) == 0:
            tool.cancel()
        return True
    film = tool.film
    size = film.width, film.height
    sizes = SIZES if size in SIZES else {size: f"{size[0]} x {size[1]}", **SIZES}
    width, height = ui.choice("Film size", size, sizes)
    rates = RATES if film.fps in RATES else {film.fps: f"{film.fps:g} a second", **RATES}
    fps = ui.choice("Pictures", film.fps, rates)
    if (width, height, fps) != (film.width, film.height, film.fps):
        tool.film = replace(film, width=width, height=height, fps=fps)
        tool.changed()
    tool.as_frames = ui.choice("As", tool.as_frames, {False: "mp4", True: "PNGs"})
    if tool.as_frames:
        tool.transparent = ui.check("Transparent", tool.transparent)
    if ui.buttons("Film", ["Film it"], ["Into the current folder of the viewer; drawing goes on meanwhile"]) == 0:
        tool.record()
        return True
    return False
