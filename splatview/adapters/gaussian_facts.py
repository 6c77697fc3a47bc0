"""The SH degree in use and antialiasing, as models of Gaussians hold them.

Both are read at each publish, and reading them never waits for a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from splatview.adapters.gaussian_holders import attribute

if TYPE_CHECKING:
    from collections.abc import Callable

_DEGREE_NAMES = ("active_sh_degree", "n_active_features")
_DEGREE_BUFFER = "_active_sh_degree"
"""The degree in use of gaussian-splatting-lightning's models.

Their property `active_sh_degree` waits for the GPU.
"""


def degree_attribute(model: Any) -> str | None:
    """Return the attribute of a model that holds the degree in use."""
    if isinstance(attribute(model, _DEGREE_BUFFER), torch.Tensor):
        return None
    for name in _DEGREE_NAMES:
        degree = attribute(model, name)
        is_on_gpu = isinstance(degree, torch.Tensor) and degree.device.type != "cpu"
        if hasattr(degree, "__index__") and not is_on_gpu:
            return name
    return None


def facts_reader(model: Any) -> Callable[[Any], tuple[int | None, bool]] | None:
    """Return a function from a model to its degree in use and its antialiasing.

    None for models without a configuration and without a buffer of the degree.
    """
    if attribute(attribute(model, "config"), "rasterize_mode") is not None:
        return _splatfacto_facts
    buffer = attribute(model, _DEGREE_BUFFER)
    # A buffer on the GPU is not read: coefficients that are not in use yet are zeros.
    if isinstance(buffer, torch.Tensor) and buffer.device.type == "cpu":
        return _buffer_facts
    return None


def _buffer_facts(model: Any) -> tuple[int | None, bool]:
    return int(getattr(model, _DEGREE_BUFFER)), False


def _splatfacto_facts(model: Any) -> tuple[int | None, bool]:
    config = model.config
    is_antialiased = config.rasterize_mode == "antialiased"
    step = attribute(model, "step")
    interval = attribute(config, "sh_degree_interval")
    if isinstance(step, int) and isinstance(interval, int) and interval > 0:
        return step // interval, is_antialiased
    return None, is_antialiased
