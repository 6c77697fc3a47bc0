"""Take pictures of the interface in its states: `make pictures`.

    python tools/pictures.py FOLDER [--scene FILE] [--only NAME ...]

Two scripts publish a scene and its curves, each in a process of its own. The pictures of the interface around them are written into a folder: at 1600x1000
dark, some light, some as a phone shows them.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.viewer import Viewer

DESKTOP = (1600, 1000)
PHONE = (390, 844)
LAST_STEP = 12_400
SNAPSHOTS = 24


class Shot(NamedTuple):
    """One picture: its name, and what is done before it is taken."""

    name: str
    set_up: Callable[[Viewer, Scripts], None] | None
    """None for a viewer to which no script publishes."""
    size: tuple[int, int] = DESKTOP
    light: bool = False


# -- the scripts that publish ----------------------------------------------------------


def tensors_of(file: Path | None) -> dict[str, torch.Tensor]:
    """Return the tensors of a scene file; of a ball of Gaussians without one."""
    if file is None:
        means = torch.nn.functional.normalize(torch.randn(20_000, 3), dim=1)
        return {
            "means": means,
            "sh0": means[:, None],
            "scales": torch.full((20_000, 3), -3.4),
            "quats": torch.ones(20_000, 4),
            "opacities": torch.ones(20_000),
        }
    from splatview_viewer.formats import open_file
    from splatview_viewer.scene.scene import GaussianScene

    scene = open_file(file)
    if not isinstance(scene, GaussianScene):
        raise SystemExit(f"{file} holds no scene")
    tensors = {
        "means": scene.means,
        "scales": scene.scales,
        "quats": scene.quats,
        "opacities": scene.opacities,
        "sh0": scene.sh0,
    }
    if scene.shN is not None and scene.shN.shape[1]:
        tensors["shN"] = scene.shN
    return {name: tensor.float().contiguous() for name, tensor in tensors.items()}


def train(file: Path | None, noise: float) -> None:
    """Publish a scene that gets better, its curves, and a picture; then wait."""
    import splatview

    trained = tensors_of(file)
    count = len(trained["means"])
    pause = threading.Event()
    splatview.publish(torch.rand(240, 320, 3), "render")
    for index in range(SNAPSHOTS + 1):
        share = index / SNAPSHOTS
        step = round(share * LAST_STEP)
        alive = max(int(count * (0.4 + 0.6 * share)), 1)
        scene = {name: tensor[:alive].clone() for name, tensor in trained.items()}
        scene["means"] += torch.randn(alive, 3) * noise * (1.2 - share)
        splatview.publish(scene, "gaussians", meta={"step": step})
        for small in range(step - 500, step, 25):
            loss = 0.2 * math.exp(-max(small, 0) / 3000) + 0.02 + noise
            jitter = 1 + 0.2 * math.sin(small * 12.9898)
            psnr = 20 + 8 * max(small, 0) / LAST_STEP
            splatview.log(max(small, 0), loss=loss * jitter, psnr=psnr)
        pause.wait(0.12)
    while True:
        splatview.wait_while_paused()
        pause.wait(0.1)


class Scripts:
    """The scripts that publish while one picture is taken."""

    def __init__(self, scene: Path | None) -> None:
        self._processes: dict[str, subprocess.Popen[str]] = {}
        arguments = ["--scene", str(scene)] if scene else []
        for name, noise in (("mcmc", "0.002"), ("default", "0.01")):
            command = [sys.executable, __file__, ".", "--train", "--noise", noise]
            self._processes[name] = subprocess.Popen(
                [*command, *arguments],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "SPLATVIEW_NAME": name},
            )

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


# -- the states ------------------------------------------------------------------------


def _key_of(viewer: Viewer, run: str) -> str:
    """Return the key of the Gaussians of a run, by the beginning of its name."""
    for entry in viewer.state.entries:
        if entry.name == "gaussians" and entry.group.startswith(run):
            return entry.key
    return ""


def _show(viewer: Viewer, run: str) -> None:
    """Show the Gaussians of a run, and wait until it has published all."""
    viewer.until(lambda: _key_of(viewer, run))
    viewer.user.choose(_key_of(viewer, run))
    viewer.until(lambda: _step_of(viewer) == LAST_STEP)


def _step_of(viewer: Viewer) -> int:
    """Return the step of the scene that is shown."""
    if viewer.user.view is None or viewer.user.view.empty:
        return -1
    details = viewer.user.view.info.details
    steps = [text for text in details if text.startswith("step ")]
    return int(steps[0].removeprefix("step ").replace(",", "")) if steps else -1


def _look(viewer: Viewer, scripts: Scripts) -> None:
    _show(viewer, "mcmc")


def _data(viewer: Viewer, scripts: Scripts) -> None:
    _look(viewer, scripts)
    viewer.user.choose_tab("data")


def _memory(viewer: Viewer, scripts: Scripts) -> None:
    from support.snapshot_cases import settle, until_compared
    from support.training_memory import write_training_steps

    from splatview_viewer.kinds.snapshot.panes.compare import shown_growth, toggle_row
    from splatview_viewer.kinds.snapshot.view import SnapshotView

    # The list has the runs as well.
    viewer.until_listed("render", "gaussians", "scalars")
    folder = Path(os.environ["SPLATVIEW_RUNTIME_DIR"])
    before, after = write_training_steps(folder)
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


def _film(viewer: Viewer, scripts: Scripts) -> None:
    _look(viewer, scripts)
    viewer.user.choose_tab("film")


def _compare(viewer: Viewer, scripts: Scripts) -> None:
    _look(viewer, scripts)
    viewer.until(lambda: _key_of(viewer, "default"))
    viewer.user.compare("pair", _key_of(viewer, "default"))
    viewer.user.choose_tab("compare")
    viewer.do()
    viewer.click("Beside")


def _palette(viewer: Viewer, scripts: Scripts) -> None:
    from splatview_viewer.core.events import Key, Text

    _look(viewer, scripts)
    viewer.do(Key(name="k", mods=frozenset({"ctrl"})))
    viewer.do(Text(text="dep"))


def _ended(viewer: Viewer, scripts: Scripts) -> None:
    _show(viewer, "default")
    scripts.end("default")
    viewer.until(lambda: _has_ended(viewer))


def _has_ended(viewer: Viewer) -> bool:
    entry = viewer.state.selected_entry
    return entry is not None and not entry.alive


SHOTS = (
    Shot("1-look-dark", _look),
    Shot("2-look-light", _look, light=True),
    Shot("3-compare", _compare),
    Shot("4-memory", _memory),
    Shot("5-film", _film),
    Shot("6a-phone", _look, PHONE),
    Shot("7a-palette", _palette),
    Shot("8a-empty", None),
    Shot("8b-run-ended", _ended),
    Shot("9-data", _data),
)


def take(shot: Shot, folder: Path, scene: Path | None) -> None:
    """Bring a new viewer into a state, and write its picture."""
    from support.viewer import Viewer

    from splatview_viewer.app.loop import AppOptions
    from splatview_viewer.recording.recording import RecordOptions
    from splatview_viewer.screens.offscreen import OffscreenScreen

    screen = OffscreenScreen(*shot.size)
    viewer = Viewer(screen, AppOptions(record=RecordOptions()))
    viewer.user.set_light(shot.light)
    scripts = None
    try:
        if shot.set_up is not None:
            scripts = Scripts(scene)
            shot.set_up(viewer, scripts)
        # Numbers of rates and times settle.
        for _ in range(3):
            viewer.user.mark(4)
            viewer.do()
        pixels = screen.pixels()[..., :3].copy()
    finally:
        viewer.close()
        if scripts is not None:
            scripts.close()
    Image.fromarray(pixels).save(folder / f"{shot.name}.png")
    print(folder / f"{shot.name}.png", flush=True)


def main() -> None:
    """Take the pictures that the command line names."""
    parser = argparse.ArgumentParser(description="Take pictures of the interface.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scene", type=Path, help="a scene to publish")
    parser.add_argument("--only", nargs="*", default=[], help="names of pictures")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--noise", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.scene, options.noise)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    for shot in SHOTS:
        if options.only and shot.name not in options.only:
            continue
        with tempfile.TemporaryDirectory(prefix="splatview-pictures-") as runs:
            # No other runs of this user are in the list.
            os.environ["SPLATVIEW_RUNTIME_DIR"] = runs
            take(shot, options.folder, options.scene)


if __name__ == "__main__":
    main()
