"""From what a trainer holds to what a stream carries.

    layout = recognise(value, kind, meta)          # of a stream's first value, or one that looks different
    published = layout.match(value, meta)          # tensors and metadata for `Stream.publish`; None: recognise it anew

A layout remembers what the value looked like, so that the next value that looks the same costs a few comparisons.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from splatview.adapters.gaussians import GaussianLayout
    from splatview.adapters.images import ImageLayout


class NamedTensors:
    """The layout of streams whose caller makes the tensors of each frame: cameras, memory, overlay, scalars."""

    def __init__(self, kind: str, names: tuple[str, ...], *, shape: tuple[int, ...] = (), dtype: str = "float32",
                 device: str = "cpu") -> None:
        """`names` of the tensors, in the order in which they are published; shape and dtype as viewers list them."""
        self.kind, self.names, self.shape, self.dtype, self.device = kind, names, shape, dtype, device

    def frame(self, tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        return dict(zip(self.names, tensors, strict=True))


@lru_cache(maxsize=64)
def named_tensors(kind: str, names: tuple[str, ...], *, shape: tuple[int, ...] = (), device: str = "cpu"
                  ) -> NamedTensors:
    """Return the one layout of these names and this device, which a stream sees at once to be the one before."""
    return NamedTensors(kind, names, shape=shape, device=device)


def recognise(value: Any, kind: str | None, meta: dict[str, Any]) -> ImageLayout | GaussianLayout:
    """Return the layout of a value. Of `meta`, "activated" and "layout" decide where the value leaves a doubt.

    Raises TypeError or ValueError, naming what is wrong and what is legal.
    """
    from splatview.adapters.gaussians import recognise_gaussians
    from splatview.adapters.images import recognise_image
    from splatview.adapters.tensors import is_array

    if kind not in (None, "image", "gaussians"):
        raise ValueError(f"kind is {kind!r}, not one of 'image', 'gaussians'")
    if (kind or ("image" if is_array(value) else "gaussians")) == "image":
        return recognise_image(value, meta)
    return recognise_gaussians(value, meta)
