"""The scripts of the pictures' trainings as a viewer meets them, and their states.

`tools/pictures.py` brings a viewer into each state before it takes its picture.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from picture_scripts import (
    LAST_STEP,
    PHOTO_COUNT,
    PHOTO_SIZE,
    SNAPSHOTS,
    camera_ring,
    photo_file,
    scene_in,
)
from PIL import Image

from splatview_viewer.core.events import (
    Key,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
    Resize,
    Text,
)
from splatview_viewer.core.settings import BACKDROP
from splatview_viewer.formats.camera_paths import Film
from splatview_viewer.geometry.path import CameraPath, Keyframe
from splatview_viewer.kinds.gaussians.inspect import Inspect
from splatview_viewer.kinds.gaussians.state import GaussianState
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.kinds.scalars.view import ScalarsView
from splatview_viewer.kinds.snapshot.panes.compare import shown_growth, toggle_row
from splatview_viewer.kinds.snapshot.view import SnapshotView
from splatview_viewer.scene_view.frustums import Frustums
from splatview_viewer.scene_view.navigate import Navigate

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

if TYPE_CHECKING:
    from support.viewer import Viewer

    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.scene_view.path import PathTool

Point = tuple[float, float, float]
Viewpoint = tuple[Point, Point]
"""A position, and the point that is looked at."""

_FIELD_OF_VIEW = 44.0
_CAMERA: Viewpoint = ((0.85, -0.95, -1.75), (0.0, -0.52, 0.0))
"""Where the pictures are seen from."""
_FILM_CAMERA: Viewpoint = ((1.9, -1.75, -2.55), (0.05, -0.42, 0.1))
_PHONE_CAMERA: Viewpoint = ((0.75, -1.1, -2.3), (0.0, -0.45, 0.0))
_KEYFRAMES = (
    ((-0.9, -0.55, -0.9), 2.7),
    ((-0.15, -0.95, -1.15), 2.9),
    ((0.72, -0.62, -0.95), 2.9),
    ((1.05, -0.85, -0.05), 3.5),
    ((0.5, -1.2, 0.75), 2.0),
)
"""Positions of the film's keyframes, and seconds to the next one."""
_RUNS = {"robot-mcmc": 0.0004, "robot-default": 0.008}
"""The runs, and the noise of their scenes in world units."""
_FILMED = 12
"""Pictures of the film that are waited for."""


# -- the scripts that publish ----------------------------------------------------------


class Scripts:
    """The scripts that publish while pictures are taken."""

    def __init__(self, scene: Path | None, photos: Path | None) -> None:
        self._scene = scene
        self._photos = photos
        self.has_photos = photos is not None
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, noise: float) -> None:
        """Start a script, whose scene stays so noisy."""
        program = str(ROOT / "tools" / "picture_scripts.py")
        command = [sys.executable, program, "--noise", str(noise)]
        if self._scene is not None:
            command += ["--scene", str(self._scene)]
        if self._photos is not None:
            command += ["--photos", str(self._photos)]
        self._processes[name] = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            text=True,
            env={**os.environ, "SPLATVIEW_NAME": name},
        )

    def advance(self, name: str) -> None:
        """Have a script publish its next step."""
        pipe = self._processes[name].stdin
        assert pipe is not None
        pipe.write("\n")
        pipe.flush()

    def end(self, name: str) -> None:
        """End one script."""
        process = self._processes[name]
        process.terminate()
        process.wait()

    def close(self) -> None:
        """End all scripts."""
        for process in self._processes.values():
            process.kill()
            process.wait()


def take_photos(scene: Path, folder: Path) -> None:
    """Draw the photographs that the scene is trained with, into a folder."""
    from splatview_viewer.app.still import Still, StillOptions
    from splatview_viewer.screens.offscreen import OffscreenScreen

    screen = OffscreenScreen(*PHOTO_SIZE)
    renderer = Still(screen, "gaussians", "pictures", "--camera")
    value: Any = scene_in(scene)
    for index, camera in enumerate(camera_ring()):
        options = StillOptions(PHOTO_SIZE, camera.to_json(), BACKDROP)
        size = renderer.prepare(value, options)
        assert size is not None
        renderer.draw(size)
        value = None
        pixels = screen.pixels()[..., :3].copy()
        Image.fromarray(pixels).save(photo_file(folder, index))
    renderer.close()
    screen.close()


# -- the states ------------------------------------------------------------------------


def _key_of(viewer: Viewer, run: str, stream: str = "gaussians") -> str:
    """Return the key of a stream of a run, by the beginning of the run's name."""
    for entry in viewer.state.entries:
        if entry.name == stream and entry.group.startswith(run):
            return entry.key
    return ""


def _step_of(viewer: Viewer) -> int:
    """Return the step of the scene that is shown."""
    if viewer.user.view is None or viewer.user.view.empty:
        return -1
    for text in viewer.user.view.info.details:
        if text.startswith("step "):
            return int(text.removeprefix("step ").replace(",", ""))
    return -1


def _view(viewer: Viewer) -> GaussianView:
    """Return the view of the scene that is shown."""
    view = viewer.shows(GaussianView)
    assert view is not None
    return view


def _train(viewer: Viewer, scripts: Scripts) -> None:
    """Run both trainings to their last step, then end the second one."""
    for run, noise in _RUNS.items():
        scripts.start(run, noise)
        viewer.until(partial(_key_of, viewer, run))
    first, second = _RUNS
    viewer.user.choose(_key_of(viewer, first))
    for index in range(SNAPSHOTS + 1):
        if index:
            scripts.advance(first)
            scripts.advance(second)
        step = round(index / SNAPSHOTS * LAST_STEP)
        viewer.until(partial(_has_recorded, viewer, index + 1, step))
    # The views of an ended run keep what they have seen.
    viewer.user.choose(_key_of(viewer, second, "scalars"))
    viewer.until(viewer.loaded)
    viewer.user.choose(_key_of(viewer, second))
    viewer.until(lambda: _step_of(viewer) == LAST_STEP)
    viewer.user.choose(_key_of(viewer, first))
    viewer.until(lambda: _step_of(viewer) == LAST_STEP)
    scripts.end(second)


def _has_recorded(viewer: Viewer, count: int, step: int) -> bool:
    """Return whether a step is shown, and so many versions of the scene are recorded."""
    if _step_of(viewer) != step:
        return False
    player = _view(viewer).data.player
    return player is not None and len(player.recording) >= count


def _camera_at(view: GaussianView, viewpoint: Viewpoint) -> Camera:
    """Return the camera at a place, looking at another one."""
    from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at

    rect = view.rig.rect
    K = intrinsics(_FIELD_OF_VIEW, rect.width, rect.height)
    return Camera(look_at(*viewpoint), K, rect.width, rect.height)


def _look_from(viewer: Viewer, viewpoint: Viewpoint) -> None:
    """Put the camera of the scene at a place."""
    view = _view(viewer)
    view.rig.use_camera(_camera_at(view, viewpoint))
    view.rig.set_lens("pinhole", _FIELD_OF_VIEW)
    viewer.do()


def train_both(viewer: Viewer, scripts: Scripts) -> None:
    """Train, and keep three bookmarks."""
    _train(viewer, scripts)
    entries = viewer.state.entries
    (second_run,) = {e.group for e in entries if e.group.startswith("robot-default")}
    viewer.until(lambda: not any(e.alive for e in entries if e.group == second_run))
    if scripts.has_photos:
        frustums = _view(viewer).tools.of(Frustums)
        viewer.until(lambda: frustums.cameras is not None)
    bookmarks = _view(viewer).tools.of(Navigate).bookmarks
    for _ in range(3):
        bookmarks.add()
    viewer.until(lambda: not viewer.state.toasts)


def start_anew(viewer: Viewer, size: tuple[int, int]) -> None:
    """Show the scene alone, as at first, on a screen of this size."""
    _cancel_film(viewer)
    for _ in range(3):
        viewer.do(Key(name="escape"))
    layout = viewer.user.layout
    while len(layout) > 1:
        layout.remove(list(layout)[-1])
    viewer.user.choose(_key_of(viewer, "robot-mcmc"))
    viewer.do(Resize(*size, 1.0))
    state = viewer.user.interface.state
    state.lane = ""
    state.folded_runs = {
        entry.group
        for entry in viewer.state.entries
        if entry.group.startswith("robot-default")
    }
    viewer.user.choose_tab("look")
    view = _view(viewer)
    frustums = view.tools.of(Frustums)
    if frustums.through.index is not None:
        frustums.leave()
    _hide_cameras(view)
    view.tools.choose("navigate")
    view.state = GaussianState(place=view.state.place, training=view.state.training)
    viewer.do()
    _look_from(viewer, _CAMERA)


def _hide_cameras(view: GaussianView) -> None:
    """Draw no training cameras over the scene."""
    view.tools.of(Frustums).change(shown=False)


def show_look(viewer: Viewer, scripts: Scripts) -> None:
    """Show the values of a Gaussian of the robot's ear."""
    _view(viewer).tools.choose("inspect")
    ear = (1128, 373)
    viewer.do(PointerMove(*ear))
    viewer.do(PointerPress(*ear), PointerRelease(*ear))
    inspect = _view(viewer).tools.of(Inspect)
    viewer.until(lambda: inspect.values is not None)


def show_data(viewer: Viewer, scripts: Scripts) -> None:
    """Filter the scene, and select a hand with the lasso."""
    viewer.user.choose_tab("data")
    view = _view(viewer)
    view.tools.choose("lasso")
    x = 758
    y = 452
    angles = [index / 24 * math.tau for index in range(25)]
    corners = [(x + 92 * math.cos(a), y + 72 * math.sin(a)) for a in angles]
    viewer.do(PointerMove(*corners[0]), PointerPress(*corners[0]))
    for corner in corners[1:]:
        viewer.do(PointerMove(*corner))
    viewer.do(PointerRelease(*corners[-1]))


def _cancel_film(viewer: Viewer) -> None:
    """Give up the film in the making, if there is one."""
    view = viewer.shows(GaussianView)
    if view is not None:
        view.path.film_maker.close()
        view.path.use(Film(CameraPath()))
        view.path.is_open = False


def show_film(viewer: Viewer, scripts: Scripts) -> None:
    """Make a film along a path of five keyframes."""
    _look_from(viewer, _FILM_CAMERA)
    view = _view(viewer)
    keys = [
        Keyframe.of(_camera_at(view, (position, (0.0, -0.55, 0.0))), seconds=seconds)
        for position, seconds in _KEYFRAMES
    ]
    viewer.user.choose_tab("film")
    viewer.user.interface.state.lane = "Path"
    path: PathTool = view.path
    path.use(Film(CameraPath(keys)))
    path.chosen_key = 2
    path.time = 6.6
    path.is_open = True
    viewer.do()
    film_maker = path.film_maker
    film_maker.start()
    for _ in range(1000):
        viewer.step()
        if film_maker.filming is None or film_maker.filming.drawn >= _FILMED:
            break


def show_memory(viewer: Viewer, scripts: Scripts) -> None:
    """Show two snapshots of the memory of a training side by side."""
    from support.snapshot_cases import settle, until_compared
    from support.training_memory import write_training_steps

    first_file, second_file = write_training_steps(Path.cwd())
    viewer.user.drop([str(first_file)])
    view = viewer.until_shows(SnapshotView)
    viewer.user.drop([str(second_file)])
    until_compared(viewer, view)
    state = viewer.user.interface.state
    state.folded_runs.update(entry.group for entry in viewer.state.entries[:-2])
    view.change(unit="time", legend=False, moment=len(view.trace.events) * 2 // 3)
    settle(viewer, view)
    grown = shown_growth(view)
    if grown is not None:
        toggle_row(view, grown, 0)
    settle(viewer, view)


def show_compare(viewer: Viewer, scripts: Scripts) -> None:
    """Compare both runs: beside each other, their difference, and their losses."""
    viewer.user.compare("pair", _key_of(viewer, "robot-default"))
    viewer.user.choose_tab("compare")
    viewer.do()
    while len(viewer.user.layout) < 2:
        # The panel may scroll while it is clicked.
        viewer.click("Beside")
    viewer.click("in a pane of its own")
    layout = viewer.user.layout
    first = layout.active
    layout.activate(list(layout)[-1])
    viewer.do()
    viewer.click("See the curves beside")
    plots = viewer.shows(ScalarsView)
    assert plots is not None
    plots.state = replace(plots.state, curve="loss", log_up=True, smoothing=0.82)
    layout.activate(first)
    for pane in layout:
        working = pane.working()
        if working is not None and isinstance(working[1].view, GaussianView):
            _hide_cameras(working[1].view)
    # No tip of a control lies over the picture.
    viewer.do(PointerLeave())


def show_overlay(viewer: Viewer, scripts: Scripts) -> None:
    """Look at an image with what a detector found in it."""
    viewer.user.choose(_key_of(viewer, "robot-mcmc", "render"))
    viewer.until(viewer.loaded)


def show_palette(viewer: Viewer, scripts: Scripts) -> None:
    """Type a few letters into the palette."""
    viewer.do(Key(name="k", mods=frozenset({"ctrl"})))
    viewer.do(Text(text="dep"))


def show_menu(viewer: Viewer, scripts: Scripts) -> None:
    """Open the menu of a stream by a right click."""
    viewer.user.interface.state.folded_runs.clear()
    x, y = viewer.find(_key_of(viewer, "robot-default"))
    viewer.do(PointerMove(x, y))
    viewer.do(PointerPress(x, y, "right"), PointerRelease(x, y, "right"))
    viewer.do(PointerLeave())
    viewer.do(Key(name="down"))
    viewer.do(Key(name="down"))


def show_ended(viewer: Viewer, scripts: Scripts) -> None:
    """Look at a run that has ended."""
    scripts.end("robot-mcmc")
    viewer.until(partial(_has_ended, viewer))


def _has_ended(viewer: Viewer) -> bool:
    entry = viewer.state.selected_entry
    return entry is not None and not entry.alive


def show_phone(viewer: Viewer, scripts: Scripts) -> None:
    """Look at the scene on a phone."""
    _look_from(viewer, _PHONE_CAMERA)


def show_photograph(viewer: Viewer, scripts: Scripts) -> None:
    """Look through a training camera on a phone."""
    frustums = _view(viewer).tools.of(Frustums)
    frustums.enter(PHOTO_COUNT // 2)
    viewer.until(lambda: frustums.through.meter.psnr is not None)
