"""Images: one tensor, its layout read off its shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from splatview.adapters.foreign import Foreign
from splatview.adapters.tensors import holds_values, is_array, outline, shape_text
from splatview_ipc.kinds.rules import IMAGE_CHANNELS, IMAGE_LAYOUTS, axes_of
from splatview_ipc.shm.slot_layout import dtype_name

if TYPE_CHECKING:
    from splatview_ipc.publisher.stream import ValueLayout as Form

_DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32)
_LEGAL_SHAPES = "(H, W), (H, W, 1|3|4) or (1|3|4, H, W)"
_LEGAL_DTYPES = "uint8 (0 to 255), float16, bfloat16, float32 (0 to 1)"


class ImageForm:
    """Images of one shape, dtype and device."""

    kind = "image"

    def __init__(self, tensor: torch.Tensor, layout: str, foreign: Foreign | None = None):
        """`foreign`: of arrays of other libraries."""
        self.shape = tuple(tensor.shape)
        self.dtype = dtype_name(tensor)
        self.device = str(tensor.device)
        self.layout = layout
        self._shape, self._dtype, self._device = tensor.shape, tensor.dtype, tensor.device
        self._asked: dict[str, Any] | None = None
        self._made: dict[str, Any] = {}
        self.foreign = foreign
        self._last: tuple[Any, ...] = (None,)

    def collect(self, value: Any) -> tuple[torch.Tensor, ...] | None:
        made = (value,)
        if not isinstance(value, torch.Tensor):
            if self.foreign is None or not is_array(value):
                return None
            made = self.foreign.tensors(made, ("image",))
            if made is self._last:
                return made
        if not self._is_like(made[0]):
            return None
        if (last := self._last)[0] is not made[0]:
            last = self._last = made
        return last  # the same tuple for the same tensor, so that callers can compare by identity

    def fits(self, value: Any) -> bool:
        """Whether a value is of this form, found out without its values."""
        return is_array(value) and self._is_like(outline(value, "image"))

    def _is_like(self, tensor: torch.Tensor) -> bool:
        return (tensor.shape == self._shape and tensor.dtype is self._dtype and tensor.device == self._device
                and tensor.layout is torch.strided and holds_values(tensor))

    def forget(self) -> None:
        self._last = (None,)
        if self.foreign is not None:
            self.foreign.forget()

    def following(self, value: Any, meta: dict[str, Any]) -> tuple[Form, tuple[tuple[Any, ...], dict[str, Any]]]:
        """As `Form.following`."""
        from splatview.adapters import following

        return following(self, value, meta)

    def unpack(self, published: tuple[tuple[torch.Tensor, ...], dict[str, Any]]
               ) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        (tensor,), meta = published
        return {"image": tensor.detach()}, self.meta(meta)

    def meta(self, meta: dict[str, Any]) -> dict[str, Any]:
        if meta != self._asked:
            self._asked, self._made = meta, {**meta, "layout": self.layout}
        return self._made  # the same object: whoever encodes it sees at once that nothing changed


def recognise_image(value: Any, options: dict[str, Any]) -> ImageForm:
    """The form of an image. `options["layout"]`, "HW", "HWC", "CHW" or "BGR", decides where the shape leaves a doubt.

    Without it (3, H, 3) and the like are taken as HWC. Raises TypeError or ValueError.
    """
    tensor = outline(value, "image")
    shape = shape_text(tensor)
    if tensor.dtype not in _DTYPES:
        mend = {torch.float64: ": use .float()", torch.bool: ": use .byte() * 255"}.get(tensor.dtype, "")
        raise ValueError(f"image of dtype {dtype_name(tensor)}; legal are {_LEGAL_DTYPES}{mend}")
    if tensor.ndim == 4:
        raise ValueError(f"image of shape {shape}; legal are {_LEGAL_SHAPES}: publish one of the batch, image[0]")
    if tensor.ndim not in (2, 3):
        raise ValueError(f"image of shape {shape}; legal are {_LEGAL_SHAPES}")
    if tensor.numel() == 0:
        raise ValueError(f"image of shape {shape} has no pixels; every side must be at least 1")
    layout = options.get("layout")
    if layout is None:
        layout = _guess(tensor)
        if layout is None:
            raise ValueError(f"image of shape {shape}; legal are {_LEGAL_SHAPES}")
    elif layout not in IMAGE_LAYOUTS:
        raise ValueError(f"layout is {layout!r}, not one of {', '.join(map(repr, IMAGE_LAYOUTS))}")
    elif len(axes := axes_of(layout)) != tensor.ndim or (
            tensor.ndim == 3 and tensor.shape[axes.index("C")] not in IMAGE_CHANNELS):
        raise ValueError(f"image of shape {shape} is not {layout} with 1, 3 or 4 channels")
    return ImageForm(tensor, layout, None if isinstance(value, torch.Tensor) else Foreign([value]))


def _guess(tensor: torch.Tensor) -> str | None:
    if tensor.ndim == 2:
        return "HW"
    if tensor.shape[2] in IMAGE_CHANNELS:
        return "HWC"
    return "CHW" if tensor.shape[0] in IMAGE_CHANNELS else None
