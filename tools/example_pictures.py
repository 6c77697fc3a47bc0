"""Take the pictures of docs/examples: run each example beside a viewer.

    python tools/example_pictures.py [NAME ...]

They are written into `docs/pictures/examples` as WebP.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pictures import settle
from PIL import Image, ImageGrab
from webp_pictures import write_picture

if TYPE_CHECKING:
    from support.viewer import Viewer

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

TARGET = ROOT / "docs" / "pictures" / "examples"
SIZE = (1040, 640)
_TURNS_BEFORE_PICTURE = 150
"""Turns of the viewer in which an example goes on before its picture is taken."""
_TURNS_OF_LATE_ONES = {"render_nerf": 500, "render_nerfview": 800, "two_runs": 500}
"""Of examples of which a process starts late, or that learn slowly."""
PICTURED_STREAMS = {
    "memory": "memory",
    "scalars": "scalars",
    "sharded": "gaussians",
    "streams": "gaussians",
    "training_cameras": "ball",
    "two_runs": "scalars",
}
"""Streams that are shown in pictures; of other examples the last of all."""
WINDOWS = ("window_image", "window_scene")
"""Examples that open a window of their own, of 500 x 500 pixels."""
_WINDOW_SIZE = 500
_WINDOW_COLORS = 1000
"""Of a picture in a window; a line of text has fewer."""


def take(name: str) -> None:
    """Take the picture of one example in this process."""
    from support.example_runs import STREAMS, run_until_shown
    from support.viewer import Viewer

    import splatview
    from splatview_ipc.control.registry import Announcement
    from splatview_viewer.app.loop import AppOptions
    from splatview_viewer.screens.offscreen import OffscreenScreen

    stream = PICTURED_STREAMS.get(name, STREAMS[name][-1])
    STREAMS[name].sort(key=stream.__eq__)
    with (
        closing(Viewer(OffscreenScreen(*SIZE), AppOptions())) as viewer,
        # The notebook finds a viewer, and starts none.
        Announcement("http://127.0.0.1:7007/", host="127.0.0.1", port=7007),
        pytest.MonkeyPatch.context() as patch,
    ):
        if name == "two_runs":
            # A run that has ended hands out no curves.
            show_both_runs(viewer)
        run_until_shown(
            name,
            viewer,
            patch,
            _TURNS_OF_LATE_ONES.get(name, _TURNS_BEFORE_PICTURE),
        )
        settle(viewer)
        picture = Image.fromarray(viewer.screen.pixels()[..., :3].copy())
        write_picture(picture, TARGET, name)
        splatview.close()


def take_window(name: str) -> None:
    """Take the picture of the window that an example opens, on a display of its own."""
    from support.example_runs import EXAMPLES, color_count
    from support.virtual_display import virtual_display
    from support.wait import polls

    with virtual_display(_WINDOW_SIZE, _WINDOW_SIZE) as display:
        environment = {**os.environ, "DISPLAY": display}
        command = [sys.executable, str(EXAMPLES / f"{name}.py")]
        example = subprocess.Popen(command, env=environment)
        try:
            for _ in polls(f"{name} shows its window"):
                picture = ImageGrab.grab(xdisplay=display)
                if color_count(np.asarray(picture)) > _WINDOW_COLORS:
                    write_picture(picture, TARGET, name)
                    break
        finally:
            example.send_signal(signal.SIGINT)
            example.wait()


def show_both_runs(viewer: Viewer) -> None:
    """Have the curves of both runs drawn in one plot as soon as they come."""
    viewer.user.choose_tab("compare")
    for run in ("slow", "fast"):
        viewer.user.interface.state.plotted[f"{run}/scalars"] = True


def main() -> None:
    """Take the pictures of some examples, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="default: all without other packages")
    names = parser.parse_args().names
    if len(names) == 1:
        take_one = take_window if names[0] in WINDOWS else take
        take_one(names[0])
        return
    from support.example_runs import STREAMS

    for name in names or (*STREAMS, *WINDOWS):
        with tempfile.TemporaryDirectory(prefix="splatview-examples-") as folder:
            # No other runs of this user are in the list.
            variables = {"SPLATVIEW_RUNTIME_DIR": folder, "XDG_CONFIG_HOME": folder}
            environment = {**os.environ, **variables}
            subprocess.run([sys.executable, __file__, name], env=environment)


if __name__ == "__main__":
    main()
