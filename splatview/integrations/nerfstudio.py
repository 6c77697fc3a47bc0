"""Show nerfstudio's Splatfacto and its kin while they train.

The command::

    python -m splatview.integrations.nerfstudio splatfacto --data FOLDER

takes the place of `ns-train splatfacto --data FOLDER`. Viewers show the Gaussians after
every step, the training's cameras with their photographs, losses and metrics, and the
memory; their pause button works. A script of your own calls `show(trainer)` after
`trainer.setup()`.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch

import splatview

try:
    from nerfstudio.engine.callbacks import TrainingCallback, TrainingCallbackLocation
    from nerfstudio.engine.trainer import Trainer
except ImportError:
    raise ImportError(
        "splatview.integrations.nerfstudio needs nerfstudio: pip install nerfstudio"
    ) from None

__all__ = ["main", "show"]

_AXES = torch.tensor([1.0, -1.0, -1.0])
"""From OpenGL's axes of a camera, which nerfstudio has, to OpenCV's."""


def show(trainer: Trainer) -> None:
    """Publish what a trainer trains, in the process of rank 0.

    The trainer has been set up. One whose model has no Gaussians stays as it is.
    """
    has_gaussians = hasattr(trainer.pipeline.model, "gauss_params")
    if not has_gaussians or trainer.local_rank != 0:
        return

    def publish(step: int) -> None:
        splatview.publish(trainer.pipeline.model, "gaussians", meta={"step": step})
        splatview.publish_memory(step=step)
        splatview.wait_while_paused()

    datamanager = trainer.pipeline.datamanager
    _publish_cameras(datamanager)
    _follow_camera(datamanager)
    _log_losses(trainer)
    locations = [TrainingCallbackLocation.AFTER_TRAIN_ITERATION]
    callback = TrainingCallback(locations, publish, update_every_num_iters=1)
    trainer.callbacks.append(callback)


def _publish_cameras(datamanager: Any) -> None:
    """Publish the cameras of a training with the photographs as they are trained with."""
    images = _photographs(datamanager)
    # Straightening the photographs, above, changes the intrinsics.
    cameras = datamanager.train_dataset.cameras
    poses = cameras.camera_to_worlds.detach().cpu()
    rotations = (poses[:, :3, :3] * _AXES).transpose(1, 2)
    viewmats = torch.cat([rotations, -rotations @ poses[:, :3, 3:]], 2)
    splatview.publish_cameras(
        viewmats,
        cameras.get_intrinsics_matrices(),
        cameras.width[:, 0],
        cameras.height[:, 0],
        images,
    )


def _photographs(datamanager: Any) -> list[Any]:
    """Return the photographs that a trainer keeps, else the files of those that fit."""
    if getattr(datamanager.config, "cache_images", "disk") != "disk":
        return [data["image"] for data in datamanager.cached_train]
    dataset = datamanager.train_dataset
    distortion = dataset.cameras.distortion_params
    if distortion is None:
        return list(dataset.image_filenames)
    # The trainer straightens these when it reads them.
    is_distorted = (distortion != 0).any(-1).tolist()
    return [
        None if distorted else path
        for distorted, path in zip(is_distorted, dataset.image_filenames, strict=True)
    ]


def _follow_camera(datamanager: Any) -> None:
    """Have a trainer say which camera it trains with, wherever it says the index."""
    next_train = datamanager.next_train

    def next_train_and_publish(step: int) -> Any:
        camera, data = next_train(step)
        index = (camera.metadata or {}).get("cam_idx")
        if isinstance(index, int):
            splatview.publish_cameras(current=index)
        return camera, data

    datamanager.next_train = next_train_and_publish


def _log_losses(trainer: Any) -> None:
    """Have a trainer log its losses and metrics."""
    train_iteration = trainer.train_iteration

    def train_iteration_and_log(step: int) -> Any:
        loss, losses, metrics = train_iteration(step)
        splatview.log(step, **{**metrics, **losses, "loss": loss})
        return loss, losses, metrics

    trainer.train_iteration = train_iteration_and_log


def main() -> None:
    """Run `ns-train` with every trainer shown."""
    from nerfstudio.scripts.train import entrypoint

    nerfstudio_setup = Trainer.setup

    def setup(self: Trainer, *args: Any, **kwargs: Any) -> None:
        nerfstudio_setup(self, *args, **kwargs)
        show(self)

    Trainer.setup = setup
    entrypoint()


if __name__ == "__main__":
    main()
