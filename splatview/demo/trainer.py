"""The process that trains: `python -m splatview.demo.trainer`. It shows itself with `splatview.publish`, nothing else.

It would train the same way with the three calls of `splatview` taken out.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - tyro reads the annotations
from typing import TYPE_CHECKING, Literal

from splatview.demo.errors import DemoError
from splatview.demo.progress import Progress, style_for
from splatview_ipc.system import entry
from splatview_ipc.system.files import check_output

if TYPE_CHECKING:
    from types import FrameType

    from splatview.demo.backends import Backend
    from splatview.demo.capture import Capture, View
    from splatview.demo.training import Training

PREVIEW_EVERY = 10
"""Steps between pictures of the view that is compared with its photograph."""


@dataclass
class TrainerOptions:
    """Train 3-D Gaussians from posed views and publish them while they learn."""

    steps: int | None = None
    """Gradient steps; 1000 on the CPU and 3000 on CUDA if left out."""
    data: Path | None = None
    """A COLMAP folder, a folder with transforms.json, or an .npz. Left out: a still life of the demo's own."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train: gsplat on CUDA, plain torch on the CPU."""
    seed: int = 0
    """Order of views, choice of points, splits: the same seed gives the same training."""
    save: Path | None = None
    """Write the Gaussians to this .ply at the end."""
    json_progress: bool = False
    """Tell the progress as one JSON object per line."""
    hold: bool = False
    """After training, stay until standard input ends, so that viewers can still see the result."""


@dataclass(frozen=True)
class _Scale:
    """What a device trains in a minute or two."""

    steps: int
    size: tuple[int, int]
    pixels: int
    points: int
    limit: int


_CPU = _Scale(1_000, (224, 168), 224 * 168, 4_000, 8_000)
_CUDA = _Scale(3_000, (960, 720), 1_000_000, 50_000, 300_000)


class _StoppedBeforeTrainingError(Exception):
    """Asked to end while the views were being made or read."""


class _Stop:
    """Whether somebody asked to end: the signal that did, if any."""

    def __init__(self) -> None:
        self.signal: int | None = None
        entry.handle(self._asked)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:  # the second time, at once
            os._exit(128 + number)
        self.signal = number


def main(argv: list[str]) -> int:
    """Exit codes: 0 trained, 2 an option or the data cannot be used, 128 + signal when stopped early."""
    options: TrainerOptions = entry.options(TrainerOptions, "splatview.demo.trainer", argv)
    tell = Progress(style_for(sys.stdout, options.json_progress))
    try:
        return train(options, tell, _Stop())
    except DemoError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read the progress is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def train(options: TrainerOptions, tell: Progress, stop: _Stop) -> int:
    """What `main` does once its options are read."""
    if options.steps is not None and options.steps < 1:
        raise DemoError(f"--steps {options.steps} must be at least 1")
    if options.save is not None:
        try:
            check_output(options.save)
        except OSError as e:
            raise DemoError(f"--save: {e}") from None
    import torch

    from splatview.demo import backends, ply
    from splatview.demo.density import DensityOptions
    from splatview.demo.training import Training, TrainingOptions

    backend = backends.choose(options.device)
    on_cpu = backend.device.type == "cpu"
    scale = _CPU if on_cpu else _CUDA
    if on_cpu:  # one core is left to the viewer
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) - 1))
    tell("note", text=f"training with {backend.name}" + ("" if on_cpu else
         "; its kernels are compiled at first use, which can take a minute"))
    began = time.monotonic()
    try:
        capture = _capture(options, scale, backend, tell, stop)
    except _StoppedBeforeTrainingError:
        tell("note", text="stopped before the training began")
        return 128 + (stop.signal or 0)
    for note in capture.notes:
        tell("note", text=note)
    tell("camera", camera=capture.camera or capture.train[0].to_json())
    steps = options.steps or scale.steps
    density = DensityOptions(stop=int(0.7 * steps), limit=max(scale.limit, len(capture.points)))
    training = Training(capture, backend, TrainingOptions(steps, options.seed, density))
    result = _loop(training, tell, stop)
    tell("done", steps=training.step_number, of=steps, seconds=round(time.monotonic() - began, 1), psnr=result,
         gaussians=len(training.gaussians["means"]))
    if options.save is not None:
        ply.write_gaussians(options.save, training.gaussians)
        tell("note", text=f"Gaussians in {options.save}")
    if options.hold and stop.signal is None:
        _wait_for_end_of_input(stop)
    return 0 if stop.signal is None or training.step_number == steps else 128 + stop.signal


def _capture(options: TrainerOptions, scale: _Scale, backend: Backend, tell: Progress,
             stop: _Stop) -> Capture:
    from splatview.demo import datasets, scene

    def progress(done: int, total: int) -> None:
        tell("views", done=done, of=total)
        if stop.signal is not None:
            raise _StoppedBeforeTrainingError

    if options.data is None:
        tell("note", text="taking the photographs: a still life, seen from all around")
        return scene.still_life(*scale.size, n_points=scale.points, seed=options.seed, device=str(backend.device),
                                progress=progress)
    return datasets.load(options.data, pixels=scale.pixels, max_points=scale.limit * 3 // 4, seed=options.seed,
                         progress=progress)


def _loop(training: Training, tell: Progress, stop: _Stop) -> float | None:
    """Train to the end or until asked to stop; the mean PSNR on held-out views."""
    import splatview

    preview = (training.held_out or training.views)[0]
    splatview.publish(preview.image, "target")
    _publish_cameras(training)
    loss = psnr = 0.0
    while training.step_number < training.options.steps and stop.signal is None:
        while not splatview.wait_while_paused(0.2) and stop.signal is None:
            pass
        report = training.step()
        splatview.publish(training.gaussians, "gaussians", sh_degree=training.sh_degree, step=report.step)
        if report.step % PREVIEW_EVERY == 0 or report.step == training.options.steps:
            _publish_render(training, preview, report.step)
        share = max(0.05, 1 / report.step)  # views differ: show a running mean
        splatview.log(report.step, loss=report.loss, psnr=report.psnr)
        splatview.publish_cameras(current=report.view)
        loss, psnr = loss + share * (report.loss - loss), psnr + share * (report.psnr - psnr)
        tell("train", step=report.step, of=training.options.steps, loss=loss, psnr=psnr, gaussians=report.count)
    return training.evaluate()


def _publish_cameras(training: Training) -> None:
    import torch

    import splatview

    views = training.views
    splatview.publish_cameras(torch.stack([view.viewmat for view in views]), torch.stack([view.K for view in views]),
                              [view.width for view in views], [view.height for view in views],
                              [view.image for view in views])


def _publish_render(training: Training, preview: View, step: int) -> None:
    import torch

    import splatview

    with torch.no_grad():
        splatview.publish(training.draw(preview).image.clamp(0, 1), "render", step=step)


def _wait_for_end_of_input(stop: _Stop) -> None:
    import select

    while stop.signal is None:
        ready, _, _ = select.select([sys.stdin], [], [], 0.2)
        if ready and not os.read(sys.stdin.fileno(), 4096):
            return


if __name__ == "__main__":
    sys.exit(entry.run(lambda: main(sys.argv[1:])))
