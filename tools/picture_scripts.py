"""The scripts whose trainings the pictures show: `tools/pictures.py` starts them.

    python tools/picture_scripts.py [--scene FILE] [--photos FOLDER] [--noise SHARE]

Each publishes a scene and its curves. The scene gets better by a step with every line on
the standard input, so that a viewer can record all of them.
"""

from __future__ import annotations

import argparse
import math
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera

LAST_STEP = 12_400
SNAPSHOTS = 24
PHOTO_COUNT = 30
PHOTO_SIZE = (520, 693)
"""Width and height of the photographs, pixels."""
_POINTS_PER_SNAPSHOT = 12
"""Logged values of a curve between two snapshots."""
_LOG_PAUSE_S = 0.01
"""Curves over the time of day go on evenly."""
_STEPS_PER_SECOND = 36


def declare_controls() -> None:
    """Declare a control of each form."""
    from splatview import controls

    controls.slider("time", 0.0, 1.0, value=0.35)
    controls.dropdown("mode", ["color", "depth", "normals"])
    controls.number("steps", 7)
    controls.text("note", "after densifying")
    with controls.folder("Deformation"):
        controls.checkbox("deform", True)
        controls.slider("strength", 0.0, 2.0, value=1.2)
        controls.color("tint", (0.42, 0.69, 1.0))
        controls.vector("up", (0.0, -1.0, 0.0))
    controls.button("save checkpoint")


def scene_in(file: Path) -> Any:
    """Read a scene of Gaussians from a file."""
    from splatview_viewer.formats import open_file
    from splatview_viewer.scene.scene import GaussianScene

    scene = open_file(file)
    if not isinstance(scene, GaussianScene):
        raise SystemExit(f"{file} holds no scene")
    return scene


def tensors_of(file: Path | None) -> dict[str, torch.Tensor]:
    """Return the tensors of a scene file; of a ball of Gaussians without one."""
    if file is None:
        means = torch.nn.functional.normalize(torch.randn(20_000, 3), dim=1)
        return {
            "means": means,
            "sh0": means[:, None],
            "scales": torch.full((20_000, 3), -3.4),
            "quats": torch.ones(20_000, 4),
            "opacities": torch.ones(20_000),
        }
    scene = scene_in(file)
    tensors = {
        "means": scene.means,
        "scales": scene.scales,
        "quats": scene.quats,
        "opacities": scene.opacities,
        "sh0": scene.sh0,
    }
    if scene.shN is not None and scene.shN.shape[1]:
        tensors["shN"] = scene.shN
    return {name: tensor.float().contiguous() for name, tensor in tensors.items()}


def camera_ring() -> list[Camera]:
    """Return the cameras around the scene that its photographs are taken from."""
    from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at

    width, height = PHOTO_SIZE
    K = intrinsics(44.0, width, height)
    cameras = []
    for index in range(PHOTO_COUNT):
        angle = (index / PHOTO_COUNT - 0.5) * 2.4 * math.pi / 2
        distance = 1.9 + 0.35 * (index % 3)
        position = (
            distance * math.sin(angle),
            -0.75 - 0.25 * (index % 4),
            -distance * math.cos(angle),
        )
        viewmat = look_at(position, (0.0, -0.42, 0.0))
        cameras.append(Camera(viewmat, K, width, height))
    return cameras


def photo_file(folder: Path, index: int) -> Path:
    """Return the photograph of the camera at an index."""
    return folder / f"IMG_{200 + index:04}.png"


def publish_photos(folder: Path) -> None:
    """Publish the cameras around the scene, and their photographs."""
    import splatview

    cameras = camera_ring()
    splatview.publish_cameras(
        np.stack([camera.viewmat for camera in cameras]),
        np.stack([camera.K for camera in cameras]),
        *PHOTO_SIZE,
        [photo_file(folder, index) for index in range(PHOTO_COUNT)],
    )


def publish_render(folder: Path | None) -> None:
    """Publish a photograph with what a detector would find in it; noise without one."""
    import splatview

    if folder is None:
        splatview.publish(torch.rand(240, 320, 3), "render")
        return
    with Image.open(photo_file(folder, PHOTO_COUNT // 2)) as photo:
        splatview.publish(np.asarray(photo), "render")
    splatview.annotate(
        "render",
        boxes=[
            (118, 60, 404, 290),
            (20, 245, 152, 362),
            (367, 245, 500, 362),
            (220, 440, 282, 500),
        ],
        labels=["head", "hand", "hand", "grass"],
        scores=[0.98, 0.94, 0.93, 0.81],
        lines=[[(86, 304), (260, 270), (434, 304)]],
        by="detector",
    )


class RepeatedTraining:
    """A training whose scene was trained already, and gets there step by step."""

    def __init__(self, file: Path | None, noise: float) -> None:
        self._trained = tensors_of(file)
        self._noise = noise
        self._logged_step = 0
        self._pause = threading.Event()

    def publish(self, index: int) -> None:
        """Publish the scene of a snapshot, and the curves up to it."""
        import splatview

        share = index / SNAPSHOTS
        step = round(share * LAST_STEP)
        count = len(self._trained["means"])
        # Densification adds Gaussians for a while, in jumps.
        share_alive = min(0.4 + 0.6 * (index // 3) / 6, 1.0)
        alive = max(int(count * share_alive), 1)
        scene = {name: tensor[:alive].clone() for name, tensor in self._trained.items()}
        scene["means"] += torch.randn(alive, 3) * self._noise * (1.6 - share)
        splatview.publish(scene, "gaussians", meta={"step": step})
        if index:
            self._log_until(step)

    def _log_until(self, step: int) -> None:
        """Log the curves from the last logged step to this one."""
        import splatview

        first = self._logged_step
        for index in range(_POINTS_PER_SNAPSHOT):
            at_step = first + (step - first) * (index + 1) // _POINTS_PER_SNAPSHOT
            loss = 0.2 * math.exp(-at_step / 1800) + 0.018 + self._noise
            jitter = 1 + 0.06 * math.sin(at_step * 12.9898)
            psnr = 20 + 8.2 * (1 - math.exp(-at_step / 4000))
            splatview.log(
                at_step,
                loss=loss * jitter,
                l1=0.8 * loss,
                ssim=1 - 2 * loss,
                psnr=psnr + jitter,
            )
            self._pause.wait(_LOG_PAUSE_S)
        self._logged_step = step


def main() -> None:
    """Publish until the standard input ends; then go on with small steps."""
    parser = argparse.ArgumentParser(description="Publish a training for pictures.")
    parser.add_argument("--scene", type=Path)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--noise", type=float, default=0.002)
    options = parser.parse_args()

    import splatview

    training = RepeatedTraining(options.scene, options.noise)
    training.publish(0)
    publish_render(options.photos)
    if options.photos is not None:
        publish_photos(options.photos)
    splatview.publish_memory(device="cpu")
    for index in range(SNAPSHOTS):
        sys.stdin.readline()
        training.publish(index + 1)
    pause = threading.Event()
    while True:
        splatview.wait_while_paused()
        pause.wait(1 / _STEPS_PER_SECOND)


if __name__ == "__main__":
    main()
