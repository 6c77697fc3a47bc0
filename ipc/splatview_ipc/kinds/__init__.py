"""The rules of each kind's tensors and metadata, for publisher and receivers.

Each kind has a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from splatview_ipc.kinds import (
    cameras,
    controls,
    gaussians,
    image,
    memory,
    overlay,
    picture,
    rendered,
    scalars,
    tensors,
)

if TYPE_CHECKING:
    import torch

    from splatview_ipc.kinds.rules import Meta, Tensors

CHECKS = {
    "image": image.check,
    "gaussians": gaussians.check,
    "memory": memory.check,
    "overlay": overlay.check,
    "cameras": cameras.check,
    "scalars": scalars.check,
    "rendered": rendered.check,
    "picture": picture.check,
    "tensors": tensors.check,
    "controls": controls.check,
}


class ValueLayout(Protocol):
    """Form of one stream's values, and their way to frames (`splatview.adapters`)."""

    kind: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    """"cpu" or "cuda:0"."""

    def frame(self, tensors: tuple[Any, ...]) -> dict[str, torch.Tensor]:
        """Return the tensors of a frame by name.

        They are views of the published ones, which are the caller's memory.
        """
        ...


def check_frame(kind: str, specs: Tensors, meta: Meta) -> None:
    """Raise ValueError unless these tensors and metadata make a frame of this kind.

    The check does not rely on what the sender promised.
    """
    check = CHECKS.get(kind)
    if check is None:
        raise ValueError(f"kind {kind!r} cannot be shown; expected {', '.join(CHECKS)}")
    check(specs, meta)
