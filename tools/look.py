"""Look at what you changed: draw the whole viewer, as a user sees it, into a PNG.

    python tools/look.py out.png                  # a small published scene
    python tools/look.py out.png --of depth       # uint16, in metres
    python tools/look.py out.png scene.ply --size 1600x900
    python tools/look.py out.png --set 'show="depth"' 'scale=0.5' --click Crop --pointer 600,300

`splatview shot` draws pictures alone; this draws panel, legend and status line too.
--set changes fields of the view's state; --click clicks widgets by the names that they
show (for an unknown one it prints all names); --pointer leaves the pointer at a pixel.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


def publish(name: str) -> None:
    """Publish a small measurement, or a ball of 2000 Gaussians."""
    import splatview

    if name == "depth":
        ramp = torch.linspace(0, 5000, 320).expand(240, 320).to(torch.uint16)
        splatview.publish(ramp, name, meta={"unit": "m", "scale": 0.001})
        return
    directions = torch.nn.functional.normalize(torch.randn(2000, 3), dim=1)
    scene = {"means": directions, "sh0": directions[:, None]}
    scene |= {"scales": torch.randn(2000, 3) - 3, "quats": torch.ones(2000, 4)}
    scene["opacities"] = torch.ones(2000)
    splatview.publish(scene, name)


def draw(options: argparse.Namespace) -> None:
    """Do in a viewer what the options say, and write its picture."""
    from support.view_cases import change_state
    from support.viewer import Viewer

    from splatview_viewer.app.loop import AppOptions
    from splatview_viewer.core.events import PointerMove
    from splatview_viewer.screens.offscreen import OffscreenScreen

    if not options.files:
        publish(options.of)
    screen = OffscreenScreen(*map(int, options.size.split("x")))
    viewer = Viewer(screen, AppOptions(files=tuple(options.files)))
    viewer.until(viewer.loaded)
    for field, _, value in (text.partition("=") for text in options.set):
        change_state(viewer.user.view, **{field: ast.literal_eval(value)})
    for name in options.click:
        viewer.click(name)
    x, y = map(int, options.pointer.split(","))
    viewer.do(PointerMove(x, y))
    Image.fromarray(screen.pixels()[..., :3].copy()).save(options.out)
    viewer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw the whole viewer into a PNG.")
    parser.add_argument("out", type=Path)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--of", choices=("scene", "depth"), default="scene")
    parser.add_argument("--size", default="1280x720")
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--click", nargs="*", default=[], metavar="WIDGET")
    parser.add_argument("--pointer", default="0,0", metavar="X,Y")
    with tempfile.TemporaryDirectory(prefix="splatview-look-") as folder:
        # No other runs of this user are in the list.
        os.environ["SPLATVIEW_RUNTIME_DIR"] = folder
        draw(parser.parse_args())
