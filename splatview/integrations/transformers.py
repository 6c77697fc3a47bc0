"""Hugging Face's Trainer: a callback that shows what a model has learned, and minds the viewers' pause button.

from splatview.integrations.transformers import SplatviewCallback
Trainer(model, arguments, callbacks=[SplatviewCallback(lambda model: {"render": model.render()})], ...)
"""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

import splatview

try:
    from transformers import TrainerCallback
except ImportError:
    raise ImportError(
        "splatview.integrations.transformers needs Hugging Face's Trainer: pip install transformers "
        "accelerate"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["SplatviewCallback"]


class SplatviewCallback(TrainerCallback):
    """Publishes what `look(model)` returns after every step, with the last logged loss, in the process of rank 0."""

    def __init__(self, look: Callable[[Any], Mapping[str, Any]] | None = None) -> None:
        """look: returns images or Gaussians, as `splatview.publish` takes them, by the names of their streams; called
        without gradients. None: the model's own method `look()`.
        """
        self._look = look

    def on_step_end(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            loss = next(
                (
                    float(logged["loss"])
                    for logged in reversed(state.log_history)
                    if "loss" in logged
                ),
                0.0,
            )
            with torch.no_grad():
                values = model.look() if self._look is None else self._look(model)
                for name, value in values.items():
                    splatview.publish(
                        value, name, meta={"step": state.global_step, "loss": loss}
                    )
            splatview.wait_while_paused()
