"""nerfstudio: the Gaussians of Splatfacto and its kin, as they are after every step; the viewers' pause button works.

    python -m splatview.integrations.nerfstudio splatfacto --data FOLDER     # in place of: ns-train splatfacto ...

A script of your own calls `show(trainer)` after `trainer.setup()`.
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
    """Publish the Gaussians of a trainer that has been set up, after every training step."""

    def publish(step: int) -> None:
        scene = trainer.pipeline.model
        config = trainer.pipeline.model.config
        if config.sh_degree == 0:  # its features are the logits of colours then
            scene = {
                **scene.gauss_params,
                "features": scene.features_dc,
                "colors": scene.features_dc,
            }
            del scene["features_dc"], scene["features_rest"]
        splatview.publish(
            scene,
            "gaussians",
            sh_degree=min(step // config.sh_degree_interval, config.sh_degree),
            antialiased=config.rasterize_mode == "antialiased",
            meta={"step": step},
        )
        splatview.wait_while_paused()

    if hasattr(trainer.pipeline.model, "gauss_params") and trainer.local_rank == 0:
        where = [TrainingCallbackLocation.AFTER_TRAIN_ITERATION]
        trainer.callbacks.append(
            TrainingCallback(where, publish, update_every_num_iters=1)
        )


def main() -> None:
    """Run `ns-train` with every trainer shown."""
    from nerfstudio.scripts.train import entrypoint

    set_up = Trainer.setup

    def setup(self: Trainer, *args: Any, **kwargs: Any) -> None:
        set_up(self, *args, **kwargs)
        show(self)

    Trainer.setup = setup
    entrypoint()


if __name__ == "__main__":
    main()
