"""Values that change in size at every publish, grow to four times and shrink to nothing: each picture shows exactly its
version, never the numbers of one and the size of another."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.viewer import Viewer

from splatview.viewer_app.app import AppOptions
from splatview.viewer_app.cameras import Camera, intrinsics, look_at
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.programs import Programs


SHADES = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "yellow": (1, 1, 0), "cyan": (0, 1, 1),
          "magenta": (1, 0, 1)}
CELLS = {"red": 64, "green": 16, "blue": 4, "yellow": 61, "cyan": 33, "magenta": 1}
"""How many cells of a grid of 8 by 8 a scene of this colour fills, from the top left."""
PER_CELL = 80
"""Gaussians in one cell, all in one place: the memory of a small scene does not hold a large one."""


PICTURES = """
import itertools, json, sys, time
import torch, splatview
colours, sizes, per_cell = json.loads(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
grid = torch.stack(torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="xy"), -1).reshape(64, 2) - 3.5
points = torch.cat([grid, torch.zeros(64, 1)], 1).repeat_interleave(per_cell, 0)
def scene(colour):
    n = sizes[colour] * per_cell
    return {"means": points[:n].clone(), "quats": torch.tensor([[1.0, 0, 0, 0]]).repeat(n, 1),
            "scales": torch.full((n, 3), 0.12), "opacities": torch.ones(n),
            "rgb": torch.tensor(colours[colour]).float().repeat(n, 1)}
nothing = {name: t[:0] for name, t in scene("red").items()}
for i in itertools.count():
    value = nothing if i % 9 == 8 else scene(list(colours)[i % len(colours)])
    splatview.publish(value, "scene", activated=True, step=i)
    time.sleep(0.02)
"""


@pytest.fixture
def viewer() -> Iterator[Viewer]:
    app = Viewer(OffscreenScreen(490, 330), AppOptions(max_fps=500))
    yield app
    app.close()


def lit(picture: np.ndarray) -> tuple[str, np.ndarray] | None:
    """The one colour in a picture and where it is; None where there is none. Fails if there are two."""
    colourful = picture.max(axis=-1) - picture.min(axis=-1) > 150
    if not colourful.any():
        return None
    pixels = picture[colourful]
    found = {name: np.abs(pixels - 255 * np.array(rgb)).max(axis=-1) < 70 for name, rgb in SHADES.items()}
    there = [name for name, near in found.items() if near.any()]
    assert len(there) == 1, f"one picture shows {there}"
    mask = np.zeros_like(colourful)
    mask[colourful] = found[there[0]]
    return there[0], mask


def test_a_viewers_pictures_show_as_many_gaussians_as_their_version_has(viewer: Viewer,
                                                                        programs: Programs) -> None:
    trainer = programs.code(PICTURES, json.dumps(SHADES), json.dumps(CELLS), PER_CELL)
    viewer.until(lambda: viewer.loaded() and viewer.seat.view is not None and not viewer.seat.view.empty)
    view, room = viewer.seat.view, viewer.seat.layout()
    assert isinstance(view, GaussianView)
    camera = Camera(look_at((0, 0, -12), (0, 0, 0)), intrinsics(50, room.width, room.height), room.width, room.height)
    view.use_camera(camera)
    viewer.seat.mark()  # no new version may come until the first look
    viewer.do()
    grid = np.stack(np.meshgrid(np.arange(8.0), np.arange(8.0)), -1).reshape(64, 2) - 3.5
    points = (np.c_[grid, np.zeros(64), np.ones(64)] @ camera.viewmat.T)[:, :3] @ camera.K.T
    x, y = np.round(points[:, :2] / points[:, 2:]).astype(int).T
    seen: dict[str, int] = {}

    def cells() -> int:
        """How many cells the picture shows; fails unless its colour says so too."""
        picture = viewer.picture()
        picture[-114:, :110] = 0  # the axes
        found = lit(picture)
        if found is None:
            seen["nothing"] = seen.get("nothing", 0) + 1
            return 0
        colour, mask = found
        assert mask[y, x].tolist() == [i < CELLS[colour] for i in range(64)], colour
        seen[colour] = seen.get(colour, 0) + 1
        return CELLS[colour]

    def look() -> bool:
        viewer.turn()
        cells()
        return len(seen) == 7 and sum(seen.values()) > 15

    viewer.until(look)
    trainer.send_signal(signal.SIGSTOP)
    viewer.do()  # and what is said beside the picture is of the same version
    assert view.details[0] == f"{cells() * PER_CELL:,} Gaussians"
