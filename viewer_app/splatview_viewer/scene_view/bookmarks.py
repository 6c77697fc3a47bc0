"""Bookmarks of a scene: cameras to come back to, by numbers from 1 to 9."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import CameraError
from splatview_viewer.geometry.camera_text import camera_from_text

if TYPE_CHECKING:
    from splatview_viewer.scene_view.protocol import SceneView

_DIGITS = range(1, 10)


class Bookmarks:
    """Cameras that are remembered of a file, or of a stream of this name.

    Each is a dict of a "camera" and a "pivot", what was orbited around.
    """

    def __init__(self, view: SceneView) -> None:
        self._view = view

    @property
    def by_digit(self) -> dict[int, dict[str, Any]]:
        """The bookmarks by ascending numbers."""
        saved = self._view.host.recall("bookmarks")
        if not isinstance(saved, dict):
            return {}
        return {n: saved[str(n)] for n in _DIGITS if str(n) in saved}

    @property
    def reason_full(self) -> str | None:
        """The reason why none can be added; None: one can."""
        if len(self.by_digit) < len(_DIGITS):
            return None
        return "There are nine bookmarks: delete one first"

    def _remember(self, bookmarks: dict[int, dict[str, Any]]) -> None:
        values = {str(digit): value for digit, value in bookmarks.items()}
        self._view.host.remember("bookmarks", values or None)

    def add(self, digit: int | None = None) -> None:
        """Save the camera as a bookmark.

        Args:
            digit: names the bookmark, and may replace one; None: the first free one.
        """
        bookmarks = self.by_digit
        if digit is None:
            digit = next((n for n in _DIGITS if n not in bookmarks), None)
        if digit is None:
            self._view.host.notify(self.reason_full or "")
            return
        camera = self._view.rig.camera()
        if camera is None:
            return
        bookmark = {
            "camera": json.loads(camera.to_json()),
            "pivot": self._view.rig.orbit.target.tolist(),
        }
        self._remember({**bookmarks, digit: bookmark})
        self._view.host.notify(f"Kept as bookmark {digit}")

    def visit(self, digit: int) -> bool:
        """Fly to a bookmark; return whether there is a valid one."""
        rig = self._view.rig
        try:
            bookmark = self.by_digit[digit]
            text = json.dumps(bookmark["camera"])
            camera = camera_from_text(text, rig.rect.width, rig.rect.height)
            pivot = np.array(bookmark["pivot"], np.float64).reshape(3)
            rig.fly_to(camera, pivot=pivot)
        except (CameraError, KeyError, TypeError, ValueError):
            return False
        return True

    def delete(self, digit: int) -> None:
        """Delete a bookmark."""
        self._remember({n: b for n, b in self.by_digit.items() if n != digit})
