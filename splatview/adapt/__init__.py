"""From what a trainer holds to what a stream carries: `recognise` finds the form of a value.

A form remembers what the value looked like, so that the next value of the same form costs a few comparisons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

Meta = dict[str, Any]
OPTIONS = ("activated", "layout")
"""Metadata that steer recognition."""


class Form(Protocol):
    """How values of one stream look, and how they become a frame."""

    kind: str
    shape: tuple[int, ...]
    dtype: str
    device: str

    def collect(self, value: Any) -> tuple[torch.Tensor, ...] | None:
        """The tensors of a value, or None when it is not (any more) of this form. Cheap: called at every publish."""
        ...

    def following(self, value: Any, meta: Meta) -> tuple[Form, tuple[tuple[Any, ...], Meta]]:
        """Of a value that comes after one of this form, and the caller's metadata: this form, or another if it looks
        different, and what the stream is given. Raises TypeError, ValueError for what cannot be shown."""
        ...

    def forget(self) -> None:
        """Keep no tensor of the last value. Any thread."""
        ...

    def unpack(self, published: tuple[tuple[torch.Tensor, ...], Meta]) -> tuple[dict[str, torch.Tensor], Meta]:
        """What `collect` gave and the caller's metadata, as the named tensors and metadata of a frame. The tensors
        are views: whoever shares them in place shares the caller's memory."""
        ...

    def meta(self, meta: Meta) -> Meta:
        """The metadata alone; the same object as long as they are the same. It never changes afterwards."""
        ...


def following(form: Form, value: Any, meta: Meta) -> tuple[Form, tuple[tuple[Any, ...], Meta]]:
    """As `Form.following`."""
    from splatview.adapt.meta import checked

    meta = checked(meta)
    tensors = form.collect(value)
    if tensors is None:
        form.forget()
        form = recognise(value, form.kind, {k: meta[k] for k in OPTIONS if k in meta})
        tensors = form.collect(value)
    if tensors is None:
        raise ValueError("a value changed while it was being looked at; publish from one thread at a time")
    return form, (tensors, meta)


def recognise(value: Any, kind: str | None, options: Meta) -> Form:
    """The form of a value. `options` are the caller's keywords that steer recognition: activated, layout.

    Raises TypeError or ValueError, naming what is wrong and what is legal.
    """
    from ipc.kinds import SHOWABLE
    from splatview.adapt.arrays import is_array
    from splatview.adapt.gaussians import recognise_gaussians
    from splatview.adapt.images import recognise_image

    if kind is not None and kind not in SHOWABLE:
        raise ValueError(f"kind is {kind!r}, not one of {', '.join(map(repr, SHOWABLE))}")
    if (kind or ("image" if is_array(value) else "gaussians")) == "image":
        return recognise_image(value, options)
    return recognise_gaussians(value, options)
