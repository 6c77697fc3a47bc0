"""The process that trains: `python -m splatview.demo.trainer OPTIONS`. It shows itself with `splatview.publish`.

It would train the same way without the calls of `splatview`. Its options are a JSON object, its progress is a JSON
object a line: an "event", which is "note", "error", "camera", "progress", "train" or "done", with a text, or a camera,
and the part that is done. Once trained it stays, for viewers to see the result, until its standard input ends. A signal
before that ends the training with the result so far, a second one at once.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from splatview.demo import DemoError
from splatview_ipc.system import entry

if TYPE_CHECKING:
    from splatview.demo.training import Training

_PREVIEW_EVERY = 10
"""Steps between pictures of the view that is compared with its photograph."""
_CAMERA = {"position": [1.62, -1.82, 2.95], "look_at": [0.0, 0.22, 0.0], "fov": 40.0}
"""A good place to look at the packaged still life from."""
_SCALES = {
    "cpu": (1_000, 224 * 168, 4_000, 8_000),
    "cuda": (3_000, 1_000_000, 225_000, 300_000),
}
"""Size of a training of a minute or two, by device: steps, pixels of a view, points at most, Gaussians at most."""


def main(argv: list[str]) -> int:
    """Exit codes: 0 trained, 2 an option or the data cannot be used, 128 + signal when stopped early."""
    stop: list[int] = []

    def note_signal(number: int, _: object) -> None:
        if stop:
            os._exit(128 + number)
        stop.append(number)

    entry.handle(note_signal)
    try:
        finished = _train(stop, **json.loads(argv[0]))
    except DemoError as e:
        _tell("error", text=str(e))
        return 128 + stop[0] if stop else 2
    return 0 if finished else 128 + stop[0]


def _tell(event: str, **values: Any) -> None:
    print(json.dumps({"event": event, **values}), flush=True)


def _train(
    stop: list[int],
    device: Literal["auto", "cpu", "cuda"],
    seed: int,
    steps: int | None,
    data: str | None,
    save: str | None,
) -> bool:
    """Return whether all steps were done. `stop` gets the signal that ends the training."""
    import torch

    from splatview.demo import datasets, rasterizer
    from splatview.demo.files import write_gaussians
    from splatview.demo.training import Training

    chosen = rasterizer.choose_device(device)
    default_steps, pixels, max_points, limit = _SCALES[chosen.type]
    torch.manual_seed(seed)
    if chosen.type == "cpu":
        torch.set_num_threads(
            max(1, len(os.sched_getaffinity(0)) - 1)
        )  # one core is left to the viewer
        _tell("note", text="training with torch on the CPU")
    else:
        _tell(
            "note",
            text="training with gsplat; its kernels are compiled at first use, which can take a minute",
        )

    def progress(done: int, total: int) -> None:
        _tell("progress", done=done, of=total, text=f"views {done}/{total}")
        if stop:
            raise DemoError("stopped before the training began")

    source = datasets.PHOTOS if data is None else Path(data)
    capture = datasets.load(
        source, pixels=pixels, max_points=max_points, seed=seed, progress=progress
    )
    for note in capture.notes if data else ():
        _tell("note", text=note)
    first = capture.train[0]
    _tell(
        "camera",
        camera={
            "viewmat": first.viewmat.tolist(),
            "K": first.K.tolist(),
            "width": first.width,
            "height": first.height,
        }
        if data
        else _CAMERA,
    )
    training = Training(
        capture, chosen, steps or default_steps, max(limit, len(capture.points))
    )
    _loop(training, stop)
    quality = training.evaluate()
    _tell(
        "done",
        text=(
            "no held-out views"
            if quality is None
            else f"PSNR {quality:.2f} dB on held-out views"
        )
        + f" after {training.step_number} of {training.steps} steps, {len(training.gaussians['means']):,} Gaussians",
    )
    if save is not None:
        write_gaussians(Path(save), training.gaussians)
        _tell("note", text=f"Gaussians in {save}")
    if not stop:
        sys.stdin.read()
    return training.step_number == training.steps


def _loop(training: Training, stop: list[int]) -> None:
    """Train and publish until all steps are done, or a signal came."""
    import torch

    import splatview

    views = training.views
    preview = (training.held_out or views)[0]
    splatview.publish(preview.image, "target")
    splatview.publish_cameras(
        torch.stack([view.viewmat for view in views]),
        torch.stack([view.K for view in views]),
        [view.width for view in views],
        [view.height for view in views],
        [view.image for view in views],
    )
    mean_loss = 0.0
    mean_psnr = 0.0
    while training.step_number < training.steps and not stop:
        while not splatview.wait_while_paused(0.2) and not stop:
            pass
        loss, psnr, view = training.step()
        step = training.step_number
        splatview.publish(
            training.gaussians,
            "gaussians",
            sh_degree=training.sh_degree,
            meta={"step": step},
        )
        if step % _PREVIEW_EVERY == 0 or step == training.steps:
            with torch.no_grad():
                splatview.publish(
                    training.draw(preview).image.clamp(0, 1),
                    "render",
                    meta={"step": step},
                )
        splatview.log(step, loss=loss, psnr=psnr)
        splatview.publish_cameras(current=view)
        share = max(0.05, 1 / step)  # views differ: show a running mean
        mean_loss = mean_loss + share * (loss - mean_loss)
        mean_psnr = mean_psnr + share * (psnr - mean_psnr)
        _tell(
            "train",
            done=step,
            of=training.steps,
            text=f"step {step}/{training.steps}  loss {mean_loss:.4f}  PSNR {mean_psnr:.2f} dB  "
            f"{len(training.gaussians['means']):,} Gaussians",
        )


if __name__ == "__main__":
    sys.exit(entry.run(lambda: main(sys.argv[1:])))
