"""Measure what a viewer in its own process costs a training at full speed.

1M Gaussians, 1920x1080, against no viewer.

Every ratio is held against the same process training without a viewer just before and
just after. The viewer is `splatview serve --offscreen` at 1920x1080, the panel hidden
so that the picture fills it, as near to the scene as the training's cameras are; its
mouse is dragged from outside. Below stand the lines of nerfview, the viewer of gsplat's
own examples, under the same load on the same machine.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import splatview
from benchmarks.gpu import peer
from benchmarks.gpu.load import Pace, Training, train
from benchmarks.gpu.scenes import ORBIT, paint
from benchmarks.gpu.viewer import Viewer
from benchmarks.harness import require_gpu, tried, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

MEASURED_S = 4.0
WITHOUT = 2.0
"""Seconds that are measured with a viewer, and without one before and after."""


@dataclass(frozen=True)
class Mode:
    title: str
    target: str
    options: tuple[str, ...] = ()
    hands: str = "rest"
    publish_hz: float = 0.0
    """The scene is published so often; 0: at every step."""
    viewer: bool = True


MODES = (
    Mode("none, published at every step", "1.00", viewer=False),
    Mode("scene refreshed 10 times/s, camera still", "0.995", publish_hz=10),
    Mode("published at every step, camera still", "0.99"),
    Mode(
        "camera moving all the time, default budget",
        "0.95 at 50 images/s or more",
        hands="drag",
    ),
    Mode(
        "camera moving, --gpu-budget 1 --max-fps 60, full resolution",
        "0.94 at 60 images/s",
        ("--gpu-budget", "1", "--max-fps", "60"),
        "drag",
    ),
    Mode("1 s of dragging, 1 s of rest", "0.97", hands="burst"),
)


def run() -> list[dict[str, str]]:
    require_gpu()
    training = Training()
    train(training, 1.5)
    without = [train(training, WITHOUT)]
    rows = [_row("no viewer", "", 1.0, without[0])]
    try:
        splatview.publish(training.scene, meta={"step": training.steps})
        for mode in MODES:
            rows += tried(
                mode.title, lambda mode=mode: [_in_turn(training, mode, without)]
            )
    finally:
        splatview.close()
    rates = [p.rate for p in without]
    rows[0]["training speed"] = f"1 ({min(rates):.1f} to {max(rates):.1f} steps/s)"
    return rows + tried("nerfview", _peer)


def _in_turn(training: Training, mode: Mode, without: list[Pace]) -> dict[str, str]:
    """Train with this viewer, then without one; return the row."""
    try:
        if mode.viewer:
            pace, report, state = _with_viewer(training, mode)
        else:
            pace = train(training, MEASURED_S, _publisher(training, mode.publish_hz))
            report = None
            state = None
    finally:
        without.append(train(training, WITHOUT))
    return _row(mode.title, mode.target, _ratio(pace, without), pace, report, state)


def _publisher(training: Training, hz: float) -> Callable[[int], None]:
    due = [0.0]

    def publish(_: int) -> None:
        if hz:
            now = time.perf_counter()
            if now < due[0]:
                return
            due[0] = max(due[0] + 1 / hz, now)
        splatview.publish(training.scene, meta={"step": training.steps})

    return publish


def _with_viewer(
    training: Training, mode: Mode
) -> tuple[Pace, dict[str, Any], dict[str, Any]]:
    publish = _publisher(training, mode.publish_hz)

    def step() -> None:
        training.step()
        publish(0)

    with Viewer(*mode.options) as viewer:
        viewer.ready(step)
        viewer.request("closer", distance=ORBIT)
        wait_until(
            "the viewer to come closer",
            lambda: abs(viewer.request("state")["distance"] - ORBIT) < 0.01,
            10,
            step,
        )
        viewer.request("hands", how=mode.hands)
        train(training, 1.2, publish)  # until speeds have settled
        viewer.request("begin")
        pace = train(training, MEASURED_S, publish)
        report = viewer.request("report")
        state = viewer.request("state")
        _check(training, viewer, step)
    return pace, report, state


def _check(training: Training, viewer: Viewer, step: Callable[[], None]) -> None:
    """Check that the viewer shows the trainer's next write, whatever the hand does."""
    saved_colors = training.scene["sh0"].detach().clone()
    paint(training.scene, (0.0, 1.0, 0.0))
    splatview.publish(training.scene, meta={"step": training.steps})

    def is_green() -> bool:
        r, g, b = viewer.pixel()
        return g > 2 * max(r, b) and g > 100

    wait_until("the scene painted green", is_green, 10, step)
    training.scene["sh0"].data.copy_(saved_colors)


def _ratio(pace: Pace, without: list[Pace]) -> float:
    """Return the ratio to the trainings without a viewer before and after it."""
    return pace.rate / ((without[-2].rate + without[-1].rate) / 2)


def _row(
    title: str,
    target: str,
    ratio: float,
    pace: Pace,
    report: dict[str, Any] | None = None,
    state: dict[str, Any] | None = None,
) -> dict[str, str]:
    row = {
        "what": title,
        "training speed": f"{ratio:.3f} ({pace.rate:.1f} steps/s)",
        "target": target,
        "step p50 / worst ms": f"{pace.median_ms:.2f} / {pace.worst_ms:.2f}",
        "worst / median (under 2)": f"{pace.worst_ms / pace.median_ms:.2f}",
    }
    if report is not None and state is not None:
        sizes = ", ".join(f"{size} ({count})" for size, count in report["sizes"])
        gpu_share = "no limit"
        if report["gpu_share"] is not None:
            gpu_share = f"{report['gpu_share']:.0%}"
        row |= {
            "images/s": f"{report['renders_s']:.1f} ({report['moved_s']:.1f} from a new place)",
            "their size": sizes,
            "longest gap ms": f"{report['gap_ms']:.0f}",
            "GPU share by itself": gpu_share,
            "way": " > ".join(state["path"]),
        }
    return row


def _peer() -> list[dict[str, str]]:
    lines, why_none = peer.measure()
    if why_none:
        return [{"what": f"nerfview: not measured: {why_none}"}]
    rows = []
    for line in lines:  # mode, ratio, ratio of means, worst stall, steps/s, mean/s, lock, update, images/s, ...
        mode, ratio, _, stall, rate, *_ = line.split()
        f = line.split()
        rate_of_images, gap = (f[i].replace("nan", "") for i in (8, 9))
        rows.append(
            {
                "what": f"nerfview: {mode}",
                "training speed": f"{ratio} ({rate} steps/s)",
                "step p50 / worst ms": f"/ {stall}",
                "images/s": rate_of_images,
                "their size": f[12] if len(f) > 12 else "",
                "longest gap ms": gap,
            }
        )
    return rows
