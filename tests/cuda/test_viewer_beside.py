"""The viewer beside a training on a GPU: in a window, with its panel, and within its share; and what doctor says."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from viewer_cases import (
    H,
    Trainer,
    W,
    about,
    expected_image,
    keep,
    open_viewer_fixture,  # noqa: F401
    select,
    trainers_fixture,  # noqa: F401
    wait_for,
)
from viewer_programs import BUSY

from splatview.viewer_app.controls import Rect
from splatview.viewer_app.events import PointerMove, PointerPress, PointerRelease
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.views.base import BRIDGE_WORDS
from splatview.viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Processes

pytestmark = pytest.mark.cuda


# -- the window ----------------------------------------------------------------------------------------------


@pytest.mark.display
def test_a_window_shows_images_and_scenes(trainers: dict[str, Trainer], open_viewer: Any, display: str) -> None:
    from splatview.viewer_app.screens.window import WindowScreen

    trainer = trainers["expandable"]
    window = WindowScreen(900, 520, vsync=False)
    name = window.ctx.info["GL_RENDERER"]
    print(f"window on {display}: {name}")
    viewer = open_viewer(trainer, window, panel=True)
    select(viewer, trainer, "ring uint8 RGBA")
    viewer.until(lambda: viewer.seat.shown.view is not None and not viewer.seat.shown.view.empty)
    viewer.image.pan_zoom.set_zoom(4.0, viewer.seat.layout())
    viewer.image.pan_zoom.center = (W / 2, H / 2)
    viewer.seat.mark()
    left, top, _ = viewer.image.pan_zoom.placed(viewer.seat.layout())
    want = np.kron(expected_image(trainer.k, "uint8", "RGBA"), np.ones((4, 4, 1), int))
    wait_for(viewer, trainer, want, Rect(round(left), round(top), 4 * W, 4 * H))
    keep(viewer, "window-image")
    bridges = viewer.image.path
    assert bridges == [BRIDGE_WORDS["direct" if "NVIDIA" in name else "host"]], about(viewer)
    select(viewer, trainer, "splats")
    viewer.until(lambda: viewer.seat.shown.view is not None and not viewer.seat.shown.view.empty)
    viewer.do()
    viewer.until(lambda: viewer.picture().max() > 100, 30)
    keep(viewer, "window-scene")


def test_offscreen_pictures_with_the_panel(trainers: dict[str, Trainer], open_viewer: Any) -> None:
    trainer = trainers["expandable"]
    viewer = open_viewer(trainer, OffscreenScreen(1280, 720), panel=True)
    for name, stream in (("egl-image", "in-place float32 HWC"), ("egl-scene", "splats")):
        select(viewer, trainer, stream)
        viewer.until(lambda: viewer.seat.shown.view is not None and not viewer.seat.shown.view.empty)
        viewer.until(lambda: viewer.picture().max() > 100, 30)
        for _ in range(30):
            viewer.turn()
        if viewer.seat.panel is not None:
            viewer.seat.panel._folds["Details"] = True
        keep(viewer, name)
    assert viewer.state.timings.latency_ms is not None
    print(f"latency {viewer.state.timings.latency_ms:.1f} ms; {about(viewer)}")


# -- etiquette -----------------------------------------------------------------------------------------------


def test_the_share_of_the_gpu_holds_beside_a_training(open_viewer: Any, processes: Processes,
                                                      runtime_dir: Path) -> None:
    trainer = processes.code(BUSY, SPLATVIEW_RUNTIME_DIR=str(runtime_dir))
    beside = type("Beside", (), {"runtime": runtime_dir})()
    viewer = open_viewer(beside, OffscreenScreen(1920, 1080), gpu_budget=0.1)
    viewer.until(lambda: viewer.seat.shown is not None and viewer.seat.shown.view is not None
                 and not viewer.seat.shown.view.empty, 60)

    def drag(seconds: float) -> tuple[float, float]:
        """Pictures a second and share of the GPU, on average."""
        shares, draws, begin, x = [], viewer.draws, time.monotonic(), 0
        while time.monotonic() < begin + seconds:
            x += 1
            viewer.screen.push(PointerMove(400 + x % 700, 300))
            viewer.turn()
            time.sleep(0.002)
            shares.append((time.monotonic(), viewer.governor.used))
        late = [s for at, s in shares if at > begin + 1]
        return (viewer.draws - draws) / seconds, float(np.mean(late))

    viewer.screen.push(PointerPress(400, 300))
    drag(2.0)
    rate, share = drag(4.0)
    slot = viewer.seat.shown
    assert slot is not None
    assert isinstance(slot.view, GaussianView)
    scale = slot.view._scale
    print(f"dragging: {rate:.0f} pictures/s at {scale:.0%}, {share:.1%} of the GPU; {viewer.work.ms}; {about(viewer)}")
    assert trainer.poll() is None
    assert viewer.governor.limited
    assert share <= 0.12
    assert rate >= 40
    viewer.screen.push(PointerRelease(400, 300))
    begin, draws = time.monotonic(), viewer.draws
    while time.monotonic() < begin + 3:
        viewer.turn()
    rate, published = (viewer.draws - draws) / 3, slot.entry.rate_hz
    print(f"at rest: {rate:.0f} pictures/s of {published:.0f} versions/s, {viewer.governor.used:.1%} of the GPU")
    assert slot.view._scale == 1.0
    assert published > 45, "this trainer publishes too slowly for what is tested"
    assert 9 <= rate <= 22  # 10 to 15 versions a second, and what the end of the drag still draws
    assert viewer.governor.used <= 0.12


def test_doctor_on_a_gpu(processes: Processes) -> None:
    done = subprocess.run([sys.executable, "-m", "splatview", "doctor", "--json"], capture_output=True, text=True,
                          timeout=400, check=False)
    findings = {f["name"]: f for f in json.loads(done.stdout)}
    for name in ("cuda", "cuda sharing", "gsplat", "opengl", "cuda to opengl", "display"):
        print(name, findings[name]["state"], findings[name]["detail"])
    assert done.returncode == 0, done.stdout
    assert findings["cuda sharing"]["state"] == "ok", findings["cuda sharing"]
    assert findings["cuda to opengl"]["state"] == "ok", findings["cuda to opengl"]
    assert torch.cuda.get_device_name(0) in findings["cuda"]["detail"]
