"""Measure what scenes that a function draws cost a training, outside it and inside.

1M Gaussians that a network moves, 1920x1080, against no viewer.

The function is drawn outside the training (`publish(..., render=)`), inside it
(`splatview.renderer` and `draw`), and in nerfview's viewer; each time the same one. A
ratio is held against the same process training without a viewer just before and just
after. The viewer is `splatview serve --offscreen`, the panel hidden; its mouse is
dragged from outside.

The delay of a picture is that from the end of the function's work to the texture in the
viewer: the function waits for its GPU and writes the time into the first pixels, where
the viewer reads it afterwards. OpenGL is waited for. "Until drawn" is the time until the
picture is on the viewer's screen.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import timeit
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import splatview
from benchmarks.gpu import controls, peer
from benchmarks.gpu.deformation import (
    MODULE,
    PICTURE,
    STAMPED_PICTURE,
    TIME,
    DeformedTraining,
    draw_at,
    picture,
    stamped_picture,
)
from benchmarks.gpu.load import Pace, train
from benchmarks.gpu.scenes import ORBIT, SIZE
from benchmarks.gpu.viewer import Viewer
from benchmarks.harness import Program, percentile, require_gpu, tried, wait_until
from splatview.demo.views import DatasetView

Row = dict[str, str]

_PATIENCE_S = 40.0
"""Seconds for a viewer's start, an answer, or a picture."""
_BARS = 162
"""Height of what the viewer has above and below a picture of this size."""
_EQUAL_S = 10.0
"""Seconds until a picture of the training at rest is there."""
_SCENE = "scene"
_TARGET_STILL = "0.97 at 10 pictures/s"
_TARGET_MOVING = "0.90"


@dataclass(frozen=True)
class Plan:
    """Sizes and durations of what is measured."""

    gaussians: int = 1_000_000
    size: tuple[int, int] = SIZE
    device: str = "cuda"
    measured_s: float = 4.0
    settle_s: float = 1.2
    """Seconds until speeds have settled."""
    without_s: float = 2.0
    """Seconds without a viewer, before and after."""
    delays_s: float = 2.0


def run() -> list[Row]:
    require_gpu()
    return measure(Plan())


def measure(plan: Plan) -> list[Row]:
    """Return the rows."""
    training = DeformedTraining(plan.gaussians, plan.size, plan.device)
    train(training, plan.settle_s)
    rows = []
    for drawer_type in (OutsideDrawer, InsideDrawer):
        for measure_part in (_measure_calls, _measure_speed, _measure_delays):
            drawer = drawer_type(training)
            try:
                rows += tried(drawer.title, partial(measure_part, drawer, plan))
            finally:
                splatview.close()
    try:
        rows += tried("controls", partial(_measure_controls, training, plan))
    finally:
        splatview.close()
    rows += tried("nerfview", partial(_measure_nerfview, plan))
    return rows


# ---- the two ways of having a function drawn


class OutsideDrawer:
    """A function that another process draws with."""

    title = "outside"
    modes = (
        ("still", "published 10 times/s, camera still", _TARGET_STILL),
        ("moving", "camera moving all the time", _TARGET_MOVING),
    )
    call_title = "publish(render=)"

    def __init__(self, training: DeformedTraining) -> None:
        self.training = training
        self._function = PICTURE
        self._hz = 0.0
        self._due = 0.0

    def set_mode(self, mode: str) -> None:
        """Measure this mode from now on."""
        self._hz = 10.0 if mode == "still" else 0.0

    def stamp_pictures(self) -> None:
        """Have pictures tell when they were drawn."""
        self._function = STAMPED_PICTURE
        self._hz = 10.0

    def call(self) -> None:
        """Do what belongs to every step of the training."""
        splatview.publish(
            self.training.module,
            _SCENE,
            render=self._function,
            module=MODULE,
            meta={"step": self.training.steps},
        )

    def after_step(self, _: int = 0) -> None:
        """Do what belongs to every step of the training, if it is due."""
        now = time.perf_counter()
        if self._hz and now < self._due:
            return
        if self._hz:
            self._due = max(self._due + 1 / self._hz, now)
        self.call()


class InsideDrawer:
    """A function of the training's own, which it calls itself."""

    title = "inside"
    modes = (
        ("still", "camera still", _TARGET_STILL),
        ("moving", "camera moving all the time", ""),
        ("budget", "camera moving all the time, budget=0.1", _TARGET_MOVING),
    )
    call_title = "draw()"

    def __init__(self, training: DeformedTraining) -> None:
        self.training = training

    def _decorate(self, budget: float, function: Any = picture) -> None:
        """Have the scene be drawn by a function."""
        module = self.training.module

        @splatview.renderer(
            _SCENE, budget=budget, points=lambda: module.gaussians["means"]
        )
        def drawn(camera: Any, controls: Any) -> Any:
            return function(module, camera, controls)

    def set_mode(self, mode: str) -> None:
        """Measure this mode from now on."""
        self._decorate(0.1 if mode == "budget" else 0.05)

    def stamp_pictures(self) -> None:
        """Have pictures tell when they were drawn."""
        self._decorate(1.0, stamped_picture)

    def call(self) -> None:
        """Do what belongs to every step of the training."""
        splatview.draw()

    def after_step(self, _: int = 0) -> None:
        """Do what belongs to every step of the training."""
        splatview.draw()


Drawer = OutsideDrawer | InsideDrawer


# ---- with a viewer


def _measure_calls(drawer: Drawer, _: Plan) -> list[Row]:
    """Return the row of what a step pays where no viewer looks."""
    drawer.set_mode("moving")
    drawer.call()
    count = 2000
    call_s = min(timeit.repeat(drawer.call, number=count, repeat=5)) / count
    title = f"{drawer.call_title}, no viewer"
    return [{"what": title, "us a call": f"{call_s * 1e6:.2f}"}]


def _viewer(plan: Plan, *options: str) -> Viewer:
    """Return a viewer whose pictures have the plan's size."""
    width, height = plan.size
    return Viewer(
        *options,
        size=(width, height + _BARS),
        program="benchmarks.gpu.rendered_driver",
    )


def _measure_speed(drawer: Drawer, plan: Plan) -> list[Row]:
    """Return the rows of the speeds, and of the difference of pictures."""
    training = drawer.training
    pace_before = train(training, plan.without_s)
    drawer.set_mode("still")
    drawer.after_step()
    courses = []
    with _viewer(plan) as viewer:
        _approach(viewer, drawer)
        for mode in drawer.modes:
            courses.append((mode, *_course(viewer, drawer, mode[0], plan)))
        difference_row = _difference_row(viewer, drawer)
    splatview.close()
    pace_after = train(training, plan.without_s)
    rate_without = (pace_before.rate + pace_after.rate) / 2
    title = f"{drawer.title}: no viewer, before and after"
    speed = f"1 ({pace_before.rate:.1f} and {pace_after.rate:.1f} steps/s)"
    rows = [{"what": title, "training speed": speed}]
    for (_, mode_title, target), pace, report in courses:
        title = f"{drawer.title}: {mode_title}"
        rows.append(_speed_row(title, target, pace, pace.rate / rate_without, report))
    return [*rows, difference_row]


def _approach(viewer: Viewer, drawer: Drawer) -> None:
    """Wait for the first picture, and come as near as the training's cameras are."""

    def step() -> None:
        drawer.training.step()
        drawer.after_step()

    viewer.ready(step, timeout=_PATIENCE_S)
    viewer.request("closer", distance=ORBIT)
    wait_until(
        "the function's first picture",
        lambda: viewer.request("report")["renders_s"] > 0,
        _PATIENCE_S,
        step,
    )


def _course(
    viewer: Viewer, drawer: Drawer, mode: str, plan: Plan
) -> tuple[Pace, dict[str, Any]]:
    """Return the course of the training in a mode, and what the viewer counted."""
    drawer.set_mode(mode)
    viewer.request("hands", how="rest" if mode == "still" else "drag")
    train(drawer.training, plan.settle_s, drawer.after_step)
    viewer.request("begin")
    pace = train(drawer.training, plan.measured_s, drawer.after_step)
    return pace, viewer.request("report")


def _speed_row(
    title: str, target: str, pace: Pace, ratio: float, report: dict[str, Any]
) -> Row:
    sizes = ", ".join(f"{size} ({count})" for size, count in report["sizes"])
    function_ms = report["function_ms"]
    return {
        "what": title,
        "training speed": f"{ratio:.3f} ({pace.rate:.1f} steps/s)",
        "target": target,
        "step p50 / worst ms": f"{pace.median_ms:.2f} / {pace.worst_ms:.2f}",
        "pictures/s": f"{report['renders_s']:.1f}",
        "their size": sizes,
        "longest gap ms": f"{report['gap_ms']:.0f}",
        "function ms": "" if function_ms is None else f"{function_ms:.2f}",
    }


# ---- the picture itself


def _difference_row(viewer: Viewer, drawer: Drawer) -> Row:
    """Return the row of the difference to the training's own call of the function."""
    viewer.request("hands", how="rest")
    sh0 = drawer.training.scene["sh0"].data
    sh0.neg_()
    difference = 255
    end = time.monotonic() + _EQUAL_S
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "picture.npz"
        while difference > 1 and time.monotonic() < end:
            drawer.after_step()
            time.sleep(0.02)
            viewer.request("keep", file=str(file))
            difference = _difference(drawer.training, file)
    sh0.neg_()
    return {
        "what": f"{drawer.title}: largest difference to the training's own picture",
        "target": "1",
        "of 255": str(difference),
    }


def _difference(training: DeformedTraining, file: Path) -> int:
    """Return the largest difference of a kept picture, of 255."""
    device = training.scene["means"].device
    with np.load(file) as file_arrays:
        pixels = torch.from_numpy(file_arrays["pixels"]).to(device)
        viewmat = torch.from_numpy(file_arrays["viewmat"]).float().to(device)
        K = torch.from_numpy(file_arrays["K"]).float().to(device)
    height, width, _ = pixels.shape
    with torch.no_grad():
        view = DatasetView(viewmat, K, width, height)
        rgb = draw_at(training.module, TIME, view).rgb
    own_pixels = (rgb.clamp(0, 1) * 255 + 0.5).to(torch.uint8)
    return int((own_pixels.int() - pixels.int()).abs().max())


def _measure_delays(drawer: Drawer, plan: Plan) -> list[Row]:
    """Return the rows of the delays of pictures while the camera moves."""
    drawer.stamp_pictures()
    drawer.after_step()
    with _viewer(plan, "--max-fps", "1000", "--gpu-budget", "1") as viewer:
        _approach(viewer, drawer)
        viewer.request("hands", how="drag")
        return [
            _delay_row(viewer, drawer, plan, trains=trains) for trains in (True, False)
        ]


def _delay_row(viewer: Viewer, drawer: Drawer, plan: Plan, *, trains: bool) -> Row:
    """Return the row of delays while the training goes on, or rests."""

    def run_for(seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if trains:
                drawer.training.step()
            else:
                time.sleep(0.001)
            drawer.after_step()

    run_for(plan.settle_s)
    viewer.request("stamps", on=True)
    run_for(plan.delays_s)
    delays = viewer.request("delays")["delays"]
    state = "while it trains" if trains else "while the training rests"
    if not delays:
        raise RuntimeError(f"no picture came {state}")
    return {
        "what": f"{drawer.title}: delay of a picture, {state}",
        "target": "2 ms at 1080p",
        "rgb, median / p95 ms": _delays([d for d in delays if not d["has_depth"]]),
        "with depth and alpha": _delays([d for d in delays if d["has_depth"]]),
        "their size": f"{delays[-1]['size']} ({len(delays)})",
        "came by": delays[-1]["memory"],
    }


def _delays(delays: list[dict[str, Any]]) -> str:
    """Return delays as text."""
    if not delays:
        return ""
    texture_ms = [delay["texture_ms"] for delay in delays]
    drawn_ms = statistics.median(delay["drawn_ms"] for delay in delays)
    median_ms = statistics.median(texture_ms)
    p95_ms = percentile(texture_ms, 0.95)
    return f"{median_ms:.2f} / {p95_ms:.2f} ({drawn_ms:.2f} until drawn)"


# ---- the script's own controls


def _measure_controls(training: DeformedTraining, plan: Plan) -> list[Row]:
    """Return the rows of reading a control, and of seeing clicks."""
    drawer = InsideDrawer(training)
    drawer.set_mode("still")

    def step() -> None:
        training.step()
        drawer.after_step()

    read_us = controls.read_us()
    with _viewer(plan) as viewer:
        _approach(viewer, drawer)
        counts = controls.steps_until_seen(viewer, step)
    return [
        {"what": "control, read", "target": "0.3 us", "us a call": f"{read_us:.3f}"},
        {
            "what": "click of a control, seen",
            "target": "1",
            "steps, median / most": controls.steps_text(counts),
        },
    ]


# ---- nerfview


def _measure_nerfview(plan: Plan) -> list[Row]:
    """Return the rows of nerfview around the same training and function."""
    script = peer.FOLDER / peer.SCRIPT
    if not script.exists():
        reason = f"no {peer.SCRIPT} in {peer.FOLDER}: set SPLATVIEW_PEERS to its folder"
        return [{"what": f"nerfview: not measured: {reason}"}]
    rows = []
    with Program("benchmarks.gpu.nerfview_training") as program:
        program.request(
            "train",
            timeout=_PATIENCE_S,
            n=plan.gaussians,
            size=plan.size,
            device=plan.device,
        )
        for mode in ("still", "moving"):
            answer = program.request(
                "measure",
                timeout=2 * _PATIENCE_S,
                mode=mode,
                seconds=plan.measured_s,
                script=str(script),
            )
            rows.append(_nerfview_row(mode, answer))
    return rows


def _nerfview_row(mode: str, answer: dict[str, Any]) -> Row:
    titles = {"still": "camera still", "moving": "camera moving all the time"}
    return {
        "what": f"nerfview: {titles[mode]}",
        "training speed": f"{answer['ratio']:.3f} ({answer['rate']:.1f} steps/s)",
        "step p50 / worst ms": f"/ {answer['worst_ms']:.1f}",
        "pictures/s": f"{answer['pictures_s']:.1f}",
        "their size": answer["size"],
        "longest gap ms": f"{answer['gap_ms']:.0f}",
    }
