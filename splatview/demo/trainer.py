"""The process that trains, and shows itself with `splatview.publish`.

    python -m splatview.demo.trainer OPTIONS

It would train the same way without the calls of `splatview`. Its options are a JSON
object, its progress is a JSON object a line: an "event", which is "note", "error",
"camera", "progress", "train" or "done", with a text, or a camera, and the part that is
done. Once trained it stays, for viewers to see the result, until its standard input
ends. A signal before that ends the training with the result so far, a second one at
once.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from splatview.demo import DemoError
from splatview_ipc.system import entry

if TYPE_CHECKING:
    import torch

    from splatview.demo.training import Training
    from splatview.demo.views import Capture

_PREVIEW_EVERY = 10
"""Steps between pictures of the view that is compared with its photograph."""
_CAMERA = {"position": [1.62, -1.82, 2.95], "look_at": [0.0, 0.22, 0.0], "fov": 40.0}
"""A good position to look at the packaged still life from."""
_MIN_AVERAGED = 0.05
"""Weight of the newest step in the running means that are printed."""


class _TrainingScale(NamedTuple):
    """Size of a training of a minute or two."""

    steps: int
    pixels: int
    """Of a view."""
    max_points: int
    max_gaussians: int


_SCALES = {
    "cpu": _TrainingScale(1_000, 224 * 168, 4_000, 8_000),
    "cuda": _TrainingScale(3_000, 1_000_000, 225_000, 300_000),
}


def main(argv: list[str]) -> int:
    """Train by the options in `argv[0]`.

    Returns:
        The exit status: 0 trained, 2 an option or the data cannot be used, 128 + signal
        when stopped early.
    """
    signals: list[int] = []

    def note_signal(signal: int, _: object) -> None:
        if signals:
            os._exit(128 + signal)
        signals.append(signal)

    entry.install_handler(note_signal)
    try:
        has_finished = _train(signals, **json.loads(argv[0]))
    except DemoError as error:
        _report("error", text=str(error))
        return 128 + signals[0] if signals else 2
    return 0 if has_finished else 128 + signals[0]


def _report(event: str, **values: Any) -> None:
    """Print an event for the command."""
    print(json.dumps({"event": event, **values}), flush=True)


def _train(
    signals: list[int],
    device: Literal["auto", "cpu", "cuda"],
    seed: int,
    steps: int | None,
    data: str | None,
    save: str | None,
) -> bool:
    """Train, and wait for the end of the standard input.

    Args:
        signals: gets the signal that ends the training.
        device: to train on.
        seed: the seed of random choices.
        steps: gradient steps; None for those of the device.
        data: a data set; None for the packaged photographs.
        save: path of a PLY file to write; None for none.

    Returns:
        Whether all steps were done.
    """
    import torch

    if device != "cpu" and torch.cuda.is_available():
        _report(
            "note",
            text="training with gsplat, which compiles its kernels the first time; that "
            "can take a minute",
        )
    _check_gsplat()
    from splatview.demo import rasterizer
    from splatview.demo.files import write_gaussians
    from splatview.demo.training import Training

    torch_device = rasterizer.choose_device(device)
    scale = _SCALES[torch_device.type]
    torch.manual_seed(seed)
    _prepare_device(torch_device)
    capture = _load(data, seed, scale, signals)
    training = Training(
        capture,
        torch_device,
        steps or scale.steps,
        limit=max(scale.max_gaussians, len(capture.points)),
    )
    _train_and_publish(training, signals)
    quality = training.evaluate()
    if quality is None:
        result = "no held-out views"
    else:
        result = f"PSNR {quality:.2f} dB on held-out views"
    _report(
        "done",
        text=f"{result} after {training.step_number} of {training.steps} steps, "
        f"{len(training.gaussians['means']):,} Gaussians",
    )
    if save is not None:
        write_gaussians(Path(save), training.gaussians)
        _report("note", text=f"Gaussians in {save}")
    if not signals:
        sys.stdin.read()
    return training.step_number == training.steps


def _check_gsplat() -> None:
    """Raise DemoError if gsplat does not load, which may be for any reason."""
    try:
        import gsplat  # noqa: F401
    except Exception as error:
        message = " ".join(str(error).split())[:200]
        raise DemoError(
            f"gsplat does not load here ({type(error).__name__}: {message}). From 1.6 on it "
            "compiles itself where nvcc is installed, which takes a GPU; without one, pip "
            "install gsplat==1.5.3"
        ) from error


def _prepare_device(device: torch.device) -> None:
    """Leave one core of the CPU to the viewer, if that trains, and report it."""
    import torch

    if device.type == "cpu":
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) - 1))
        _report("note", text="training with torch on the CPU")


def _load(
    data: str | None, seed: int, scale: _TrainingScale, signals: list[int]
) -> Capture:
    """Load the views, and report a camera to look from. Raises DemoError."""
    from splatview.demo import datasets

    def report_progress(done: int, total: int) -> None:
        _report("progress", done=done, of=total, text=f"views {done}/{total}")
        if signals:
            raise DemoError("stopped before the training began")

    source = datasets.PHOTOS if data is None else Path(data)
    capture = datasets.load(
        source,
        pixels=scale.pixels,
        max_points=scale.max_points,
        seed=seed,
        progress=report_progress,
    )
    if not data:
        _report("camera", camera=_CAMERA)
        return capture
    for note in capture.notes:
        _report("note", text=note)
    first = capture.train[0]
    camera = {
        "viewmat": first.viewmat.tolist(),
        "K": first.K.tolist(),
        "width": first.width,
        "height": first.height,
    }
    _report("camera", camera=camera)
    return capture


def _train_and_publish(training: Training, signals: list[int]) -> None:
    """Train and publish until all steps are done, or a signal came."""
    import torch

    import splatview

    preview = (training.held_out or training.views)[0]
    splatview.publish(preview.image, "target")
    _publish_cameras(training)
    mean_loss = 0.0
    mean_psnr = 0.0
    while training.step_number < training.steps and not signals:
        while not splatview.wait_while_paused(0.2) and not signals:
            pass
        result = training.step()
        step = training.step_number
        splatview.publish(
            training.gaussians,
            "gaussians",
            sh_degree=training.sh_degree,
            meta={"step": step},
        )
        if step % _PREVIEW_EVERY == 0 or step == training.steps:
            with torch.no_grad():
                render = training.draw(preview).image.clamp(0, 1)
            splatview.publish(render, "render", meta={"step": step})
        splatview.log(step, loss=result.loss, psnr=result.psnr)
        splatview.publish_cameras(current=result.view_index)
        # Views differ: show a running mean.
        share = max(_MIN_AVERAGED, 1 / step)
        mean_loss += share * (result.loss - mean_loss)
        mean_psnr += share * (result.psnr - mean_psnr)
        _report(
            "train",
            done=step,
            of=training.steps,
            text=f"step {step}/{training.steps}  loss {mean_loss:.4f}  "
            f"PSNR {mean_psnr:.2f} dB  {len(training.gaussians['means']):,} Gaussians",
        )


def _publish_cameras(training: Training) -> None:
    """Publish the views with their photographs."""
    import torch

    import splatview

    views = training.views
    splatview.publish_cameras(
        torch.stack([view.viewmat for view in views]),
        torch.stack([view.K for view in views]),
        [view.width for view in views],
        [view.height for view in views],
        [view.image for view in views],
    )


if __name__ == "__main__":
    sys.exit(entry.run(lambda: main(sys.argv[1:])))
