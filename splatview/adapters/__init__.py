"""From what a trainer holds to what a stream carries: `recognise` finds the form of a value.

A form remembers what the value looked like, so that the next value of the same form costs a few comparisons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splatview_ipc.publisher.stream import ValueLayout as Form

Meta = dict[str, Any]
_OPTIONS = ("activated", "layout")
"""Metadata that steer recognition."""


def following(form: Form, value: Any, meta: Meta) -> tuple[Form, tuple[tuple[Any, ...], Meta]]:
    """As `Form.following`."""
    from splatview.adapters.metadata import checked
    from splatview.adapters.tensors import GoneError
    from splatview_ipc.control.errors import NotYet

    meta = checked(meta)
    try:
        tensors = form.collect(value)
        if tensors is None:
            form.forget()
            form = recognised(value, form.kind, meta)
            tensors = collected(form, value, f"a value of kind {form.kind!r}")
    except GoneError:  # it was donated to the next step, which has not come to publish yet
        raise NotYet from None
    return form, (tensors, meta)


def recognised(value: Any, kind: str | None, meta: Meta) -> Form:
    """The form of a value. `meta`: the caller's, checked. Raises as `recognise`."""
    return recognise(value, kind, {k: meta[k] for k in _OPTIONS if k in meta})


def collected(form: Form, value: Any, what: str) -> tuple[Any, ...]:
    """The tensors of a value of which this was found to be the form; `what`: what people call it.

    Raises ValueError for a value that another thread is changing.
    """
    tensors = form.collect(value)
    if tensors is None:
        raise ValueError(f"{what} changed while it was being published; publish from one thread at a time")
    return tensors


def recognise(value: Any, kind: str | None, options: Meta) -> Form:
    """The form of a value. `options` are the caller's keywords that steer recognition: activated, layout.

    Raises TypeError or ValueError, naming what is wrong and what is legal.
    """
    from splatview.adapters.gaussians import recognise_gaussians
    from splatview.adapters.images import recognise_image
    from splatview.adapters.tensors import is_array
    from splatview_ipc.kinds.rules import SHOWABLE

    if kind is not None and kind not in SHOWABLE:
        raise ValueError(f"kind is {kind!r}, not one of {', '.join(map(repr, SHOWABLE))}")
    if (kind or ("image" if is_array(value) else "gaussians")) == "image":
        return recognise_image(value, options)
    return recognise_gaussians(value, options)
