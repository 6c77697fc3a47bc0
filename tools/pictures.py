"""Take pictures of the interface in its states: `make pictures`.

    python tools/pictures.py FOLDER [--scene FILE] [--only NAME ...]

Two scripts publish a scene and its curves, each in a process of its own
(`tools/picture_scripts.py`). The pictures of the interface around them are written into
a folder: at 1600x1000 dark, some light, some as a phone shows them, two of a page in
Chromium.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack, chdir, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import picture_states as states
from picture_page import take_drawing_page, take_stopped_page
from picture_scripts import declare_controls, tensors_of
from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from support.viewer import Viewer

DESKTOP = (1600, 1000)
PHONE = (390, 844)
_WARM_UP = (1000, 240)
"""Size of the screen while the trainings run: its pictures are soon drawn."""


class Shot(NamedTuple):
    """One picture: its name, and what is done before it is taken."""

    name: str
    set_up: Callable[[Viewer, states.Scripts], None]
    light_name: str = ""
    """The name of the same picture in the light theme; "" for none."""
    size: tuple[int, int] = DESKTOP
    keeps_moving: bool = False
    """True for what is never at rest."""


_MOST_TURNS = 2000
_CALM_TURNS = 5
_OVERLAY = "image-overlay"
_PHOTOGRAPH = "6b-phone-photograph"
SHOTS = (
    Shot("1-look-dark", states.show_look, "2-look-light"),
    Shot(_OVERLAY, states.show_overlay),
    Shot("7a-palette", states.show_palette, "light-palette"),
    Shot("7b-menu", states.show_menu, "light-menu"),
    Shot("9-data", states.show_data, "light-data"),
    Shot("6a-phone", states.show_phone, "light-phone", PHONE),
    Shot(_PHOTOGRAPH, states.show_photograph, "light-phone-photograph", PHONE),
    Shot("3-compare", states.show_compare, "light-compare"),
    Shot("5-film", states.show_film, "light-film", keeps_moving=True),
    Shot("4-memory", states.show_memory, "light-memory"),
    # The run ends: it comes last.
    Shot("8b-run-ended", states.show_ended, "light-run-ended"),
)
"""The pictures of a training, which one viewer shows one after the other."""
_STOPPED = "8c-viewer-stopped"
_DRAWING = "8d-page-draws"
_EMPTY = "8a-empty"
_EMPTY_LIGHT = "light-empty"
_CONTROLS = "controls"


def settle(viewer: Viewer) -> None:
    """Take turns until the picture of the active pane is whole and sharp."""
    calm_turns = 0
    for _ in range(_MOST_TURNS):
        viewer.step()
        view = viewer.user.view
        wants = None if view is None else view.view.wants
        is_busy = wants is not None and (wants.busy or wants.stale or wants.moving)
        is_coarse = view is not None and "for now" in " ".join(view.info.details)
        calm_turns += 1
        if is_busy or is_coarse or viewer.user.dirty:
            calm_turns = 0
        if calm_turns == _CALM_TURNS:
            return


def write(viewer: Viewer, file: Path, *, light: bool) -> None:
    """Write what a viewer shows, in one of the themes."""
    viewer.user.set_light(light)
    # Numbers of rates and times settle.
    for _ in range(3):
        viewer.user.mark_interface(4)
        viewer.user.mark(4)
        viewer.step()
    Image.fromarray(viewer.screen.pixels()[..., :3].copy()).save(file)
    print(file, flush=True)


@contextmanager
def started(size: tuple[int, int]) -> Iterator[Viewer]:
    """Yield a new viewer that records all versions, on a screen of this size."""
    from support.viewer import Viewer

    from splatview_viewer.app.loop import AppOptions
    from splatview_viewer.recording.options import RecordOptions
    from splatview_viewer.screens.offscreen import OffscreenScreen

    screen = OffscreenScreen(*size)
    with closing(Viewer(screen, AppOptions(record=RecordOptions(every=1)))) as viewer:
        yield viewer


def take_empty(folder: Path, is_wanted: Callable[[str], bool]) -> None:
    """Take the pictures of a viewer to which nothing publishes."""
    names = [name for name in (_EMPTY, _EMPTY_LIGHT) if is_wanted(name)]
    if not names:
        return
    with started(DESKTOP) as viewer:
        for name in names:
            write(viewer, folder / f"{name}.png", light=name == _EMPTY_LIGHT)


def take_controls(file: Path, scene: Path | None) -> None:
    """Take the picture of the controls of a script, which this process is then."""
    import splatview

    os.environ["SPLATVIEW_NAME"] = "robot"
    declare_controls()
    splatview.publish(tensors_of(scene), "gaussians")
    with started(DESKTOP) as viewer:
        viewer.user.choose_tab("data")
        viewer.until(viewer.loaded)
        settle(viewer)
        write(viewer, file, light=False)
    splatview.close()
    del os.environ["SPLATVIEW_NAME"]


def take_trainings(
    folder: Path, scene: Path | None, photos: Path | None, shots: Sequence[Shot]
) -> None:
    """Take pictures of trainings, all with one viewer."""
    with ExitStack() as stack:
        viewer = stack.enter_context(started(_WARM_UP))
        scripts = stack.enter_context(closing(states.Scripts(scene, photos)))
        states.train_both(viewer, scripts)
        for shot in shots:
            viewer.user.set_light(False)
            states.start_anew(viewer, shot.size)
            shot.set_up(viewer, scripts)
            if not shot.keeps_moving:
                settle(viewer)
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
        if scene is not None and (is_wanted(_PHOTOGRAPH) or is_wanted(_OVERLAY)):
            photos = Path(name) / "photos"
            photos.mkdir()
            states.take_photos(scene, photos)
        # No other runs of this user are in the list, and nothing that another viewer
        # has remembered; films leave no files.
        for variable in ("SPLATVIEW_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
            os.environ[variable] = name

        shots = [
            shot for shot in SHOTS if is_wanted(shot.name) or is_wanted(shot.light_name)
        ]
        with chdir(name):
            take_empty(folder, is_wanted)
            if is_wanted(_CONTROLS):
                take_controls(folder / f"{_CONTROLS}.png", scene)
            if shots:
                take_trainings(folder, scene, photos, shots)
            if is_wanted(_STOPPED):
                take_stopped_page(folder / f"{_STOPPED}.png", scene, DESKTOP)
            if is_wanted(_DRAWING):
                take_drawing_page(folder / f"{_DRAWING}.png", scene, DESKTOP)


if __name__ == "__main__":
    main()
