"""Conversion of what a trainer holds into what a stream carries.

    layout = recognise(value)               # of a stream's first value, or of another form
    published = layout.match(value, meta)   # tensors and metadata for `Stream.publish`

`match` returns None for a value of another form, which is then recognised again. A layout
remembers the form of its values, so that the next value of that form costs a few
comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from splatview.adapters.gaussians import GaussianLayout
    from splatview.adapters.images import ImageLayout

KINDS = ("image", "gaussians")


ADAPTERS = {
    "image": "images",
    "gaussians": "gaussians",
    "memory": "series",
    "overlay": "overlay",
    "cameras": "cameras",
    "scalars": "series",
    "rendered": "named_tensors",
    "tensors": "named_tensors",
}
"""Modules of this package that make the tensors of a frame, by kind."""


@dataclass
class NamedTensors:
    """The layout of streams for which splatview itself makes the tensors of each frame.

    Those are the kinds cameras, controls, memory, overlay and scalars.
    """

    kind: str
    names: tuple[str, ...]
    """Names of the tensors, in the order in which they are published."""
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    device: str = "cpu"

    def frame(self, tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        """Return the tensors of a frame by name."""
        return dict(zip(self.names, tensors, strict=True))


def recognise(
    value: Any,
    kind: str | None = None,
    layout: str | None = None,
    activated: bool | tuple[bool, bool] | None = None,
) -> ImageLayout | GaussianLayout:
    """Return the layout of a value.

    Args:
        value: an image or a Gaussian scene.
        kind: one of KINDS; None: an array is an image, anything else a scene.
        layout: of an image, where its shape leaves a doubt.
        activated: of a scene, where its names leave a doubt.

    Raises:
        TypeError: the value is neither.
        ValueError: shapes, dtypes or devices are not legal.
    """
    from splatview.adapters.gaussians import recognise_gaussians
    from splatview.adapters.images import recognise_image
    from splatview.adapters.tensors import is_array

    if kind is None:
        kind = "image" if is_array(value) else "gaussians"
    if not isinstance(kind, str) or kind not in KINDS:
        from splatview.adapters.value_texts import short_repr

        raise ValueError(f"kind is {short_repr(kind)}, not one of 'image', 'gaussians'")
    if kind == "image":
        return recognise_image(value, layout)
    return recognise_gaussians(value, activated)
