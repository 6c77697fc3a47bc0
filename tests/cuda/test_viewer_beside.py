"""The viewer beside a training on a GPU: in a window, with its panel, and within its share; and what doctor says."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.viewer_cases import (
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
from support.viewer_programs import BUSY
from support.wait import PATIENCE

from splatview.viewer_app.controls import Rect
from splatview.viewer_app.events import PointerMove, PointerPress, PointerRelease
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.views.base import BRIDGE_WORDS
from splatview.viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Programs
    from support.viewer import Viewer

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


class Watched:
    """Measure what a viewer spends and draws while `during` runs, beside what the GPU has time for.

    How fast a picture comes depends on what else the GPU does. A turn of it to CUDA and on to OpenGL, with next to
    nothing to do, is the measure: `turns` of these a second, made between the periods that are watched.
    """

    def __init__(self, viewer: Viewer, during: Callable[[], object]):
        self.viewer, self._during = viewer, during
        self.seconds = self.spent = 0.0
        """Watched so far; of those, the GPU's seconds that the governor counted as the viewer's."""
        self.pictures = 0
        self._turns, self._turning = 0, 0.0
        self._small = viewer.screen.ctx.simple_framebuffer((16, 16))
        self._on_cuda = torch.zeros(1, device="cuda")

    def watch(self, seconds: float) -> None:
        viewer, draws, pay = self.viewer, self.viewer.draws, self.viewer.governor._pay

        def counted(ms: float, heavy: bool) -> None:
            self.spent += ms * 1e-3
            pay(ms, heavy)

        viewer.governor._pay = counted  # type: ignore[method-assign]
        begin = time.monotonic()
        while time.monotonic() < begin + seconds:
            self._during()
            viewer.turn()
        self.seconds += time.monotonic() - begin
        self.pictures += viewer.draws - draws
        viewer.governor._pay = pay  # type: ignore[method-assign]

    def measure(self, seconds: float = 0.25) -> None:
        begin = time.monotonic()
        while time.monotonic() < begin + seconds:
            self._on_cuda.add_(1)
            torch.cuda.synchronize()
            self._small.clear()
            self.viewer.screen.ctx.finish()
            self._turns += 1
        self._turning += time.monotonic() - begin

    @property
    def rate(self) -> float:
        return self.pictures / self.seconds

    @property
    def share(self) -> float:
        return self.spent / self.seconds

    @property
    def turns(self) -> float:
        return self._turns / self._turning

    def fluent(self, rate: float, of_turns: float) -> bool:
        """Return whether `rate` pictures a second came; where others keep the machine busy, one in `of_turns` turns.

        Half as many will do where the share is spent: the GPU's time for a picture is measured with what others do in
        between.
        """
        enough = min(rate, self.turns / of_turns)
        spent = self.share >= 0.8 * self.viewer.governor.share
        return self.rate >= (enough / 2 if spent else enough)

    def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Watch for so long at least, and until all that was watched, taken together, is so."""
        end = time.monotonic() + PATIENCE
        while True:
            self.watch(2.0)
            self.measure()
            if self.seconds >= seconds and condition():
                break
            assert time.monotonic() < end, f"{what}: {self}, {about(self.viewer)}"
        print(f"{what}: {self}; {self.viewer.work.ms}; {about(self.viewer)}")

    def __str__(self) -> str:
        rate_hz = None if (slot := self.viewer.seat.shown) is None else slot.entry.rate_hz
        return (f"{self.rate:.0f} pictures/s of {rate_hz} versions/s, {self.share:.1%} of the GPU, "
                f"in {self.seconds:.0f} s; {self.turns:.0f} turns/s")


def test_the_share_of_the_gpu_holds_beside_a_training(open_viewer: Any, programs: Programs,
                                                      runtime_dir: Path) -> None:
    trainer = programs.code(BUSY, SPLATVIEW_RUNTIME_DIR=str(runtime_dir))
    beside = type("Beside", (), {"runtime": runtime_dir})()
    viewer = open_viewer(beside, OffscreenScreen(1920, 1080), gpu_budget=0.1)
    viewer.until(lambda: viewer.seat.shown is not None and viewer.seat.shown.view is not None
                 and not viewer.seat.shown.view.empty)
    slot = viewer.seat.shown
    assert slot is not None
    assert isinstance(slot.view, GaussianView)
    steps = itertools.count()

    def move() -> None:
        viewer.screen.push(PointerMove(400 + next(steps) % 700, 300))
        time.sleep(0.002)

    viewer.screen.push(PointerPress(400, 300))
    Watched(viewer, move).watch(2.0)
    dragging = Watched(viewer, move)
    dragging.until(lambda: viewer.governor.limited and dragging.share <= 0.12 and dragging.fluent(40, of_turns=6),
                   4.0, "dragging")
    assert trainer.poll() is None
    viewer.screen.push(PointerRelease(400, 300))
    resting = Watched(viewer, lambda: None)
    resting.until(lambda: viewer.governor.limited and resting.share <= 0.12 and resting.fluent(9, of_turns=4)
                  and slot.view._scale == 1.0 and slot.entry.rate_hz > 45, 3.0, "at rest")
    assert resting.rate <= 22  # 10 to 15 versions a second, and what the end of the drag still draws


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
