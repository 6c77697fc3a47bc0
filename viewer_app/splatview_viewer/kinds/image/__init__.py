"""Pictures and arrays of numbers, with what is drawn over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.core.kind import Kind
from splatview_viewer.kinds.image.overlay import OVER

if TYPE_CHECKING:
    from splatview_viewer.kinds.image.view import ImageView


def _view() -> type[ImageView]:
    from splatview_viewer.kinds.image.view import ImageView

    return ImageView


def _holds(value: Any) -> bool:
    import numpy as np

    return isinstance(value, np.ndarray)


KIND = Kind("image", _view, compared=True, holds=_holds, links=(OVER,))
