"""Use a Python function of the user's as a detector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from splatview.adapters.detections import class_numbers, is_result
from splatview.adapters.tensors import is_array
from splatview.adapters.value_texts import short_repr, type_text
from splatview.camera.detectors import DetectorError
from splatview.camera.detectors.user_modules import import_user_module

if TYPE_CHECKING:
    from collections.abc import Callable

_LEGAL = (
    "a dict of splatview.annotate's keywords, (boxes, labels, scores), an array "
    "(N, 4 | 5 | 6) of x0 y0 x1 y1, score, class, a result of Ultralytics or "
    "supervision, or None"
)
_LEGAL_SPEC = "module:function, such as my_detector:find"


class FunctionDetector:
    """Calls `module:function` with a picture.

    The function returns one of `_LEGAL`, also as tensors. If it is a class, one object
    is made, without arguments, and called. The module is an installed one, or else in
    the working folder, as `user_modules` finds it.
    """

    def __init__(self, spec: str) -> None:
        """Import the function. Raises DetectorError."""
        module, _, name = spec.partition(":")
        names = f"{module}.{name}".split(".")
        if not name or not all(part.isidentifier() for part in names):
            raise DetectorError(f"detect is {spec!r}; expected {_LEGAL_SPEC}")
        try:
            detector = _import_object(module, name)
        except (Exception, SystemExit) as error:
            # It is the user's code, which raises anything.
            raise DetectorError(
                f"{spec}: module {module} cannot be used: {type(error).__name__}: {error}"
            ) from error
        if not callable(detector):
            raise DetectorError(
                f"{spec}: no function, but {type_text(detector)}; expected "
                f"{_LEGAL_SPEC}"
            )
        self._call: Callable[[np.ndarray], Any] = detector
        self.title = spec[:100]

    def detect(self, image: np.ndarray) -> dict[str, Any]:
        """Return the things in a picture, as keywords of `splatview.annotate`.

        Raises the function's exceptions, and TypeError or ValueError for a result of
        another kind.
        """
        result: Any = self._call(image)
        if result is None:
            return {}
        if isinstance(result, dict):
            return result
        if is_result(result):
            return {"boxes": result}
        if isinstance(result, tuple):
            if len(result) != 3:
                raise ValueError(
                    f"the detector returned {len(result)} things; expected {_LEGAL}"
                )
            boxes, labels, scores = result
            return {"boxes": boxes, "labels": labels, "scores": scores}
        return _columns(result if is_array(result) else _as_array(result))


def _import_object(module: str, name: str) -> Any:
    """Return the object of a dotted name in a user's module; of a class an instance."""
    value: Any = import_user_module(module)
    for attribute in name.split("."):
        value = getattr(value, attribute, None)
    return value() if isinstance(value, type) else value


def _columns(table: Any) -> dict[str, Any]:
    """Return the columns of an array (N, 4 | 5 | 6) as keywords of `annotate`."""
    shape = tuple(table.shape)
    is_empty = shape[:1] == (0,)
    if is_empty:
        return {}
    if len(shape) != 2 or shape[1] not in (4, 5, 6):
        raise ValueError(
            f"the detector returned an array of shape {shape}; expected {_LEGAL}"
        )
    columns: dict[str, Any] = {"boxes": table[:, :4]}
    if shape[1] > 4:
        columns["scores"] = table[:, 4]
    if shape[1] > 5:
        columns["classes"] = class_numbers(table[:, 5])
    return columns


def _as_array(value: Any) -> np.ndarray:
    """Return lists of numbers as an array. Raises ValueError for other values."""
    if isinstance(value, list):
        try:
            return np.asarray(value, np.float32)
        except (TypeError, ValueError):
            pass
    raise ValueError(
        f"the detector returned {short_repr(value)}, of type {type(value).__name__}; "
        f"expected {_LEGAL}"
    )
