"""The viewer beside a training on a GPU: in a window, with its panel, and within its share; and what doctor says."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.view_cases import zoom
from support.viewer_cases import H, Trainer, W, about, expected_image, keep, select, wait_for

from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import BRIDGE_WORDS

if TYPE_CHECKING:

    from support.programs import Programs

pytestmark = pytest.mark.cuda


# -- the window ----------------------------------------------------------------------------------------------


@pytest.mark.display
def test_a_window_shows_images_and_scenes(trainers: dict[str, Trainer], open_viewer: Any, display: str) -> None:
    from splatview_viewer.screens.window import WindowScreen

    trainer = trainers["expandable"]
    window = WindowScreen(900, 520, vsync=False)
    name = window.ctx.info["GL_RENDERER"]
    print(f"window on {display}: {name}")
    viewer = open_viewer(trainer, window, panel=True)
    select(viewer, trainer, "ring uint8 RGBA")
    viewer.until(lambda: viewer.user.shown.view is not None and not viewer.user.shown.view.empty)
    zoom(viewer.user.view, 4.0, viewer.user.picture_rect())
    viewer.user.mark()
    left, top, _ = viewer.image.pan_zoom.placed(viewer.user.picture_rect())
    want = np.kron(expected_image(trainer.k, "uint8", "RGBA"), np.ones((4, 4, 1), int))
    wait_for(viewer, trainer, want, Rect(round(left), round(top), 4 * W, 4 * H))
    keep(viewer, "window-image")
    bridges = viewer.image.info().path
    assert bridges == [BRIDGE_WORDS["direct" if "NVIDIA" in name else "host"]], about(viewer)
    select(viewer, trainer, "splats")
    viewer.until(lambda: viewer.user.shown.view is not None and not viewer.user.shown.view.empty)
    viewer.do()
    viewer.until(lambda: viewer.picture().max() > 100, 30)
    keep(viewer, "window-scene")


# -- etiquette -----------------------------------------------------------------------------------------------


def test_doctor_on_a_gpu(programs: Programs) -> None:
    done = subprocess.run([sys.executable, "-m", "splatview", "doctor", "--json"], capture_output=True, text=True,
                          timeout=400, check=False)
    findings = {f["name"]: f for f in json.loads(done.stdout)}
    for name in ("cuda", "cuda sharing", "gsplat", "opengl", "cuda to opengl", "display"):
        print(name, findings[name]["state"], findings[name]["detail"])
    assert done.returncode == 0, done.stdout
    memory = findings["memory"]
    if any(importlib.util.find_spec(name) is None for name in ("duckdb", "numba")):  # which are an extra
        assert memory["state"] == "absent", memory
        assert re.search(r"""pip install (['"])splatview\[memory\]\1""", memory["detail"] + memory["mend"]), memory
    else:
        assert memory["state"] == "ok", memory
    assert findings["cuda sharing"]["state"] == "ok", findings["cuda sharing"]
    assert findings["cuda to opengl"]["state"] == "ok", findings["cuda to opengl"]
    assert torch.cuda.get_device_name(0) in findings["cuda"]["detail"]
