"""From what a trainer holds to what a stream carries.

    layout = recognise(value, kind, meta)          # of a stream's first value, or one that looks different
    published = layout.match(value, meta)          # tensors and metadata for `Stream.publish`; None: recognise it anew

A layout remembers what the value looked like, so that the next value that looks the same costs a few comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from splatview.adapters.gaussians import GaussianLayout
    from splatview.adapters.images import ImageLayout


ADAPTERS = {
    "image": "images",
    "gaussians": "gaussians",
    "memory": "series",
    "overlay": "overlay",
    "cameras": "cameras",
    "scalars": "series",
}
"""Modules of this package that make the tensors of a frame, by kind."""


@dataclass
class NamedTensors:
    """The layout of streams whose caller makes the tensors of each frame: cameras, memory, overlay, scalars."""

    kind: str
    names: tuple[str, ...]
    """Names of the tensors, in the order in which they are published."""
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    device: str = "cpu"

    def frame(self, tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        return dict(zip(self.names, tensors, strict=True))


def recognise(
    value: Any, kind: str | None, meta: dict[str, Any]
) -> ImageLayout | GaussianLayout:
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
