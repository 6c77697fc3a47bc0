"""A Python function of the user's as a detector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from splatview.adapters.checks import short_repr
from splatview.adapters.detections import class_numbers, is_result
from splatview.adapters.tensors import is_array
from splatview.camera.detectors import DetectorError
from splatview.camera.detectors.user_modules import import_user_module

if TYPE_CHECKING:
    from collections.abc import Callable

_LEGAL = (
    "a dict of splatview.annotate's keywords, (boxes, labels, scores), an array (N, 4 | 5 | 6) of "
    "x0 y0 x1 y1, score, class, a result of Ultralytics or supervision, or None"
)


class FunctionDetector:
    """`module:function`, called with a picture; it returns one of `_LEGAL`, also as tensors.

    If it is a class, one object is made, without arguments, and called. The module is an installed one, or else in the
    working folder, as `user_modules` finds it.
    """

    def __init__(self, spec: str) -> None:
        """Raises DetectorError."""
        module, _, name = spec.partition(":")
        legal = "module:function, such as my_detector:find"
        if not name or not all(
            part.isidentifier() for part in f"{module}.{name}".split(".")
        ):
            raise DetectorError(f"detect is {spec!r}; legal is {legal}")
        try:
            found: Any = import_user_module(module)
            for part in name.split("."):
                found = getattr(found, part, None)
            if isinstance(found, type):
                found = found()
        except (Exception, SystemExit) as e:  # of the user's code
            raise DetectorError(
                f"{spec}: module {module} cannot be used: {type(e).__name__}: {e}"
            ) from e
        if not callable(found):
            raise DetectorError(
                f"{spec}: no function, but a {type(found).__name__}; legal is {legal}"
            )
        self._call: Callable[[np.ndarray], Any] = found
        self.by = spec[:100]

    def detect(self, image: np.ndarray) -> dict[str, Any]:
        """Raises the function's exceptions, and TypeError or ValueError for a result of another kind."""
        value: Any = self._call(image)
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        if is_result(value):
            return {"boxes": value}
        if isinstance(value, tuple):
            if len(value) != 3:
                raise ValueError(
                    f"the detector returned {len(value)} things; legal are {_LEGAL}"
                )
            boxes, labels, scores = value
            return {"boxes": boxes, "labels": labels, "scores": scores}
        if not is_array(value):
            value = _table(value)
        shape = tuple(value.shape)
        if shape[:1] == (0,):  # nothing, in any form
            return {}
        if len(shape) != 2 or shape[1] not in (4, 5, 6):
            raise ValueError(
                f"the detector returned an array of shape {shape}; legal are {_LEGAL}"
            )
        found: dict[str, Any] = {"boxes": value[:, :4]}
        if shape[1] > 4:
            found["scores"] = value[:, 4]
        if shape[1] > 5:
            found["classes"] = class_numbers(value[:, 5])
        return found


def _table(value: Any) -> np.ndarray:
    """Return an array of lists of numbers. Raises ValueError for what is none."""
    if isinstance(value, list):
        try:
            return np.asarray(value, np.float32)
        except (TypeError, ValueError):
            pass
    raise ValueError(
        f"the detector returned {short_repr(value)}, of type {type(value).__name__}; legal are {_LEGAL}"
    )
