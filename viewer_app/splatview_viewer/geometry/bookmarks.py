"""Cameras that a user wants to come back to, by number, remembered from one time to the next."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import CameraError
from splatview_viewer.geometry.cameras import Camera, camera_from_json

if TYPE_CHECKING:
    from splatview_viewer.core.host import Memo

MOST = 50
"""Bookmarks of one thing; the keys reach the first nine."""


@dataclass(frozen=True)
class Bookmark:
    camera: Camera
    pivot: np.ndarray
    """(3,) what was orbited around."""


class Bookmarks:
    """Those of what is called `name`. What the memo holds may be anything: what is no bookmark does not count."""

    def __init__(self, memo: Memo, name: str) -> None:
        self._memo = memo
        self._key = f"bookmarks/{name}"

    @property
    def numbers(self) -> list[int]:
        """Which there are, ascending. Quick: they are looked at only when one goes there."""
        return sorted(int(n) for n, value in self._held().items() if isinstance(value, dict))

    def get(self, number: int, width: int, height: int) -> Bookmark | None:
        """Bookmark of this number, fitted to a picture; None where there is none."""
        value = self._held().get(str(number))
        if not isinstance(value, dict):
            return None
        try:
            camera = camera_from_json(json.dumps(value.get("camera")), width, height)
            pivot = np.array(value.get("pivot"), np.float64)
        except (CameraError, ValueError, TypeError, OverflowError, RecursionError):
            return None
        if pivot.shape != (3,) or not np.isfinite(pivot).all():
            return None
        return Bookmark(camera, pivot)

    def put(self, camera: Camera, pivot: np.ndarray, number: int | None = None) -> int | None:
        """Keep one, in the place of that of the same number, or as the first number that is free, which is returned.
        None when there are too many."""
        held = self._held()
        if number is None:
            number = next((n for n in range(1, MOST + 1) if str(n) not in held), None)
        if number is None:
            return None
        made = {"camera": json.loads(camera.to_json()), "pivot": np.asarray(pivot, np.float64).tolist()}
        self._memo.put(self._key, {**held, str(number): made})
        return number

    def delete(self, number: int) -> None:
        held = self._held()
        held.pop(str(number), None)
        self._memo.put(self._key, held or None)

    def _held(self) -> dict[str, Any]:
        found = self._memo.get(self._key)
        if not isinstance(found, dict):
            return {}
        return {n: value for n, value in found.items() if n.isascii() and n.isdigit() and 0 < int(n[:6]) <= MOST}
