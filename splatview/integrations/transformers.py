"""Show what a model of Hugging Face's Trainer has learned, by a callback.

For example::

    from splatview.integrations.transformers import SplatviewCallback
    callback = SplatviewCallback(lambda model: {"render": model.render()})
    Trainer(model, arguments, callbacks=[callback], ...)

The viewers' pause button works.
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
        "splatview.integrations.transformers needs Hugging Face's Trainer: "
        "pip install transformers accelerate"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["SplatviewCallback"]


class SplatviewCallback(TrainerCallback):
    """Publishes what `look(model)` returns after every step, with the last logged loss.

    In the process of rank 0.
    """

    def __init__(self, look: Callable[[Any], Mapping[str, Any]] | None = None) -> None:
        """Prepare the callback.

        Args:
            look: returns images or Gaussians, as `splatview.publish` takes them, by the
                names of their streams; called without gradients. None: the model's own
                method `look()`.
        """
        self._look = look

    def on_step_end(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """Publish the values of a step, and wait while a viewer pauses."""
        if not state.is_world_process_zero:
            return
        meta = {"step": state.global_step, "loss": _last_loss(state.log_history)}
        with torch.no_grad():
            if self._look is None:
                values = model.look()
            else:
                values = self._look(model)
            for name, value in values.items():
                splatview.publish(value, name, meta=meta)
        splatview.wait_while_paused()


def _last_loss(log_history: list[dict[str, Any]]) -> float:
    """Return the loss that was logged last; 0 before there is one."""
    for entry in reversed(log_history):
        if "loss" in entry:
            return float(entry["loss"])
    return 0.0
