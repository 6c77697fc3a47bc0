"""Show the Gaussians of nerfstudio's Splatfacto and its kin after every step.

The command::

    python -m splatview.integrations.nerfstudio splatfacto --data FOLDER

takes the place of `ns-train splatfacto --data FOLDER`. A script of your own calls
`show(trainer)` after `trainer.setup()`. The viewers' pause button works.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import splatview

try:
    from nerfstudio.engine.callbacks import TrainingCallback, TrainingCallbackLocation
    from nerfstudio.engine.trainer import Trainer
except ImportError:
    raise ImportError(
        "splatview.integrations.nerfstudio needs nerfstudio: pip install nerfstudio"
    ) from None

__all__ = ["main", "show"]


def show(trainer: Trainer) -> None:
    """Publish the Gaussians of a trainer after every training step.

    The trainer has been set up.
    """

    def publish(step: int) -> None:
        model = trainer.pipeline.model
        config = model.config
        splatview.publish(
            model,
            "gaussians",
            sh_degree=min(step // config.sh_degree_interval, config.sh_degree),
            antialiased=config.rasterize_mode == "antialiased",
            meta={"step": step},
        )
        splatview.wait_while_paused()

    has_gaussians = hasattr(trainer.pipeline.model, "gauss_params")
    if not has_gaussians or trainer.local_rank != 0:
        return
    locations = [TrainingCallbackLocation.AFTER_TRAIN_ITERATION]
    callback = TrainingCallback(locations, publish, update_every_num_iters=1)
    trainer.callbacks.append(callback)


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
