"""Show what a module of PyTorch Lightning has learned, by a callback.

For example::

    from splatview.integrations.lightning import SplatviewCallback
    callback = SplatviewCallback(lambda module: {"render": module.render()})
    trainer = lightning.Trainer(callbacks=[callback])

The viewers' pause button works.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

import splatview

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        # The same under its older name.
        from pytorch_lightning import Callback
    except ImportError:
        raise ImportError(
            "splatview.integrations.lightning needs PyTorch Lightning: "
            "pip install lightning"
        ) from None

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["SplatviewCallback"]


class SplatviewCallback(Callback):  # type: ignore
    """Publishes what `look(module)` returns after every training step.

    In the process of rank 0.
    """

    def __init__(self, look: Callable[[Any], Mapping[str, Any]] | None = None) -> None:
        """Prepare the callback.

        Args:
            look: returns images or Gaussians, as `splatview.publish` takes them, by the
                names of their streams; called without gradients. None: the module's own
                method `look()`.
        """
        self._look = look

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Publish the values of a step, and wait while a viewer pauses."""
        if not trainer.is_global_zero:
            return
        meta = {"step": trainer.global_step, "epoch": trainer.current_epoch}
        with torch.no_grad():
            if self._look is None:
                values = pl_module.look()
            else:
                values = self._look(pl_module)
            for name, value in values.items():
                splatview.publish(value, name, meta=meta)
        splatview.wait_while_paused()
