"""Take pictures of the interface in its states: `make pictures`.

    python tools/pictures.py FOLDER [--scene FILE] [--only NAME ...]

Two scripts publish a scene and its curves, each in a process of its own
(`tools/picture_scripts.py`). The pictures of the interface around them are written into
a folder: at 1600x1000 dark, some light, some as a phone shows them, one of a page in
Chromium.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack, chdir, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
from splatview_viewer.formats.camera_paths import Film
from splatview_viewer.geometry.path import CameraPath, Keyframe
from splatview_viewer.kinds.gaussians.inspect import Inspect
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.kinds.snapshot.panes.compare import shown_growth, toggle_row
from splatview_viewer.kinds.snapshot.view import SnapshotView
from splatview_viewer.scene_view.frustums import Frustums
from splatview_viewer.scene_view.navigate import Navigate

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from support.viewer import Viewer

    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.scene_view.path import PathTool

Point = tuple[float, float, float]
Place = tuple[Point, Point]
"""A position, and the point that is looked at."""

DESKTOP = (1600, 1000)
PHONE = (390, 844)
_WARM_UP = (1000, 240)
"""Size of the screen while the trainings run: its pictures are soon drawn."""
_FIELD_OF_VIEW = 44.0
_CAMERA: Place = ((0.85, -0.95, -1.75), (0.0, -0.52, 0.0))
"""Where the pictures are seen from."""
_FILM_CAMERA: Place = ((1.9, -1.75, -2.55), (0.05, -0.42, 0.1))
_PHONE_CAMERA: Place = ((0.75, -1.1, -2.3), (0.0, -0.45, 0.0))
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
_CHROMIUM = ("chromium-headless-shell", "chromium", "google-chrome", "chromium-browser")


class Shot(NamedTuple):
    """One picture: its name, and what is done before it is taken."""

    name: str
    set_up: Callable[[Viewer, Scripts], None]
    light_name: str = ""
    """The name of the same picture in the light theme; "" for none."""
    size: tuple[int, int] = DESKTOP
    keeps_moving: bool = False
    """True for what is never at rest."""


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
    still = Still(screen, "gaussians", "pictures", "--camera")
    value: Any = scene_in(scene)
    for index, camera in enumerate(camera_ring()):
        options = StillOptions(PHOTO_SIZE, camera.to_json(), (0.055, 0.06, 0.068))
        size = still.prepare(value, options)
        assert size is not None
        still.draw(size)
        value = None
        pixels = screen.pixels()[..., :3].copy()
        Image.fromarray(pixels).save(photo_file(folder, index))
    still.close()
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
    """Record both trainings; the second one has ended then."""
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
    # The view of an ended run keeps what it has seen.
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


def _camera_at(view: GaussianView, place: Place) -> Camera:
    """Return the camera at a place, looking at another one."""
    from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at

    rect = view.rig.rect
    K = intrinsics(_FIELD_OF_VIEW, rect.width, rect.height)
    return Camera(look_at(*place), K, rect.width, rect.height)


def _look_from(viewer: Viewer, place: Place) -> None:
    """Put the camera of the scene at a place."""
    view = _view(viewer)
    view.rig.use_camera(_camera_at(view, place))
    view.rig.set_lens("pinhole", _FIELD_OF_VIEW)
    viewer.do()


def train_both(viewer: Viewer, scripts: Scripts) -> None:
    """Train, and keep three bookmarks."""
    _train(viewer, scripts)
    entries = viewer.state.entries
    (other,) = {e.group for e in entries if e.group.startswith("robot-default")}
    viewer.until(lambda: not any(e.alive for e in entries if e.group == other))
    if scripts.has_photos:
        frustums = _view(viewer).tools.of(Frustums)
        viewer.until(lambda: frustums.cameras is not None)
    bookmarks = _view(viewer).tools.of(Navigate).bookmarks
    for _ in range(3):
        bookmarks.add()
    viewer.until(lambda: not viewer.state.toasts)


def start_anew(viewer: Viewer, size: tuple[int, int], place: Place) -> None:
    """Show the scene alone, as at first, on a screen of this size, from a place."""
    _cancel_film(viewer)
    for _ in range(3):
        viewer.do(Key(name="escape"))
    layout = viewer.user.layout
    while len(layout) > 1:
        layout.remove(list(layout)[-1])
    viewer.user.choose(_key_of(viewer, "robot-mcmc"))
    viewer.do(Resize(*size, 1.0))
    state = viewer.user.interface.state
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
    _look_from(viewer, place)


def _hide_cameras(view: GaussianView) -> None:
    """Draw no training cameras over the scene."""
    view.tools.of(Frustums).change(shown=False)


def _look(viewer: Viewer, scripts: Scripts) -> None:
    """Inspect a Gaussian of the robot's ear."""
    _view(viewer).tools.choose("inspect")
    x, y = 1128, 373
    viewer.do(PointerMove(x, y))
    viewer.do(PointerPress(x, y), PointerRelease(x, y))
    inspect = _view(viewer).tools.of(Inspect)
    viewer.until(lambda: inspect.values is not None)


def _data(viewer: Viewer, scripts: Scripts) -> None:
    """Filter the scene, and select a hand with the lasso."""
    viewer.user.choose_tab("data")
    view = _view(viewer)
    view.tools.choose("lasso")
    x, y = 758, 452
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


def _film(viewer: Viewer, scripts: Scripts) -> None:
    """Film a path of five keyframes."""
    _look_from(viewer, _FILM_CAMERA)
    view = _view(viewer)
    keys = [
        Keyframe.of(_camera_at(view, (position, (0.0, -0.55, 0.0))), seconds=seconds)
        for position, seconds in _KEYFRAMES
    ]
    viewer.user.choose_tab("film")
    viewer.click("lane Path")
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


def _memory(viewer: Viewer, scripts: Scripts) -> None:
    """Compare two snapshots of the memory of a training."""
    from support.snapshot_cases import settle, until_compared
    from support.training_memory import write_training_steps

    before, after = write_training_steps(Path.cwd())
    viewer.user.drop([str(before)])
    view = viewer.until_shows(SnapshotView)
    viewer.user.drop([str(after)])
    until_compared(viewer, view)
    state = viewer.user.interface.state
    state.folded_runs.update(entry.group for entry in viewer.state.entries[:-2])
    view.change(unit="time", legend=False, moment=len(view.trace.events) * 2 // 3)
    settle(viewer, view)
    grown = shown_growth(view)
    if grown is not None:
        toggle_row(view, grown, 0)
    settle(viewer, view)


def _compare(viewer: Viewer, scripts: Scripts) -> None:
    """Compare both runs: beside each other, their difference, and their losses."""
    viewer.user.compare("pair", _key_of(viewer, "robot-default"))
    viewer.user.choose_tab("compare")
    viewer.do()
    viewer.click("Beside")
    viewer.click("in a pane of its own")
    layout = viewer.user.layout
    first = layout.active
    layout.activate(list(layout)[-1])
    viewer.do()
    viewer.click("See the curves beside")
    layout.activate(first)
    for pane in layout:
        working = pane.working()
        if working is not None and isinstance(working[1].view, GaussianView):
            _hide_cameras(working[1].view)
    viewer.do()


def _palette(viewer: Viewer, scripts: Scripts) -> None:
    """Type a few letters into the palette."""
    viewer.do(Key(name="k", mods=frozenset({"ctrl"})))
    viewer.do(Text(text="dep"))


def _menu(viewer: Viewer, scripts: Scripts) -> None:
    """Open the menu of a stream by a right click."""
    viewer.user.interface.state.folded_runs.clear()
    x, y = viewer.find(_key_of(viewer, "robot-default"))
    viewer.do(PointerMove(x, y))
    viewer.do(PointerPress(x, y, "right"), PointerRelease(x, y, "right"))
    viewer.do(PointerLeave())
    for _ in range(3):
        viewer.do(Key(name="down"))


def _ended(viewer: Viewer, scripts: Scripts) -> None:
    """Look at a run that has ended."""
    scripts.end("robot-mcmc")
    viewer.until(partial(_has_ended, viewer))


def _has_ended(viewer: Viewer) -> bool:
    entry = viewer.state.selected_entry
    return entry is not None and not entry.alive


def _phone(viewer: Viewer, scripts: Scripts) -> None:
    """Look at the scene on a phone."""
    _look_from(viewer, _PHONE_CAMERA)


def _photograph(viewer: Viewer, scripts: Scripts) -> None:
    """Look through a training camera on a phone."""
    frustums = _view(viewer).tools.of(Frustums)
    frustums.enter(PHOTO_COUNT // 2)
    viewer.until(lambda: frustums.through.meter.psnr is not None)


_PHOTOGRAPH = "6b-phone-photograph"
SHOTS = (
    Shot("1-look-dark", _look, "2-look-light"),
    Shot("7a-palette", _palette, "light-palette"),
    Shot("7b-menu", _menu, "light-menu"),
    Shot("9-data", _data, "light-data"),
    Shot("6a-phone", _phone, "light-phone", PHONE),
    Shot(_PHOTOGRAPH, _photograph, "light-phone-photograph", PHONE),
    Shot("3-compare", _compare, "light-compare"),
    Shot("5-film", _film, "light-film", keeps_moving=True),
    Shot("4-memory", _memory, "light-memory"),
    # The run ends: it comes last.
    Shot("8b-run-ended", _ended, "light-run-ended"),
)
"""The pictures of a training, which one viewer shows one after the other."""
_EMPTY = "8a-empty"
_EMPTY_LIGHT = "light-empty"


def write(viewer: Viewer, file: Path, *, light: bool) -> None:
    """Write what a viewer shows, in one of the themes."""
    viewer.user.set_light(light)
    # Numbers of rates and times settle.
    for _ in range(3):
        viewer.user.mark(4)
        viewer.step()
    Image.fromarray(viewer.screen.pixels()[..., :3].copy()).save(file)
    print(file, flush=True)


@contextmanager
def started(size: tuple[int, int]) -> Iterator[Viewer]:
    """Yield a new viewer that records all versions, on a screen of this size."""
    from support.viewer import Viewer

    from splatview_viewer.app.loop import AppOptions
    from splatview_viewer.recording.recording import RecordOptions
    from splatview_viewer.screens.offscreen import OffscreenScreen

    screen = OffscreenScreen(*size)
    with closing(Viewer(screen, AppOptions(record=RecordOptions(every=1)))) as viewer:
        yield viewer


def take_empty(folder: Path, is_wanted: Callable[[str], bool]) -> None:
    """Take the pictures of a viewer to which nothing publishes."""
    with started(DESKTOP) as viewer:
        for name in (_EMPTY, _EMPTY_LIGHT):
            if is_wanted(name):
                write(viewer, folder / f"{name}.png", light=name == _EMPTY_LIGHT)


def take_trainings(
    folder: Path, scene: Path | None, photos: Path | None, shots: Sequence[Shot]
) -> None:
    """Take pictures of trainings, all with one viewer."""
    with ExitStack() as stack:
        viewer = stack.enter_context(started(_WARM_UP))
        scripts = stack.enter_context(closing(Scripts(scene, photos)))
        train_both(viewer, scripts)
        for shot in shots:
            viewer.user.set_light(False)
            start_anew(viewer, shot.size, _CAMERA)
            shot.set_up(viewer, scripts)
            if not shot.keeps_moving:
                viewer.do()
            write(viewer, folder / f"{shot.name}.png", light=False)
            if shot.light_name:
                write(viewer, folder / f"{shot.light_name}.png", light=True)


def main() -> None:
    """Take the pictures that the command line names."""
    parser = argparse.ArgumentParser(description="Take pictures of the interface.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scene", type=Path, help="a scene to publish")
    parser.add_argument("--only", nargs="*", default=[], help="names of pictures")
    options = parser.parse_args()
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    scene = options.scene.absolute() if options.scene else None

    def is_wanted(name: str) -> bool:
        return not options.only or name in options.only

    from splatview_viewer.recording import schedule

    # All versions are recorded, however soon they follow on each other.
    schedule._GAP = 0.0
    with tempfile.TemporaryDirectory(prefix="splatview-pictures-") as name:
        photos = None
        if scene is not None and is_wanted(_PHOTOGRAPH):
            photos = Path(name) / "photos"
            photos.mkdir()
            take_photos(scene, photos)
        # No other runs of this user are in the list, and films leave no files.
        for variable in ("SPLATVIEW_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            os.environ[variable] = name

        shots = [
            shot for shot in SHOTS if is_wanted(shot.name) or is_wanted(shot.light_name)
        ]
        with chdir(name):
            take_empty(folder, is_wanted)
            if shots:
                take_trainings(folder, scene, photos, shots)


if __name__ == "__main__":
    main()
