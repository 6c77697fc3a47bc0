"""Doubts about the cameras of a training, for the panel and, once, for the log."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from splatview_ipc.kinds.camera_hints import CameraHint, intrinsics_hints, pose_hint

if TYPE_CHECKING:
    import numpy as np

    from splatview_viewer.geometry.training_cameras import CameraSet

log = logging.getLogger("splatview")

_PERIOD_S = 5.0
"""Seconds between checks of poses that change, or of another version of the scene."""


class CameraHints:
    """The doubts about one stream of cameras. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self._cameras: CameraSet | None = None
        self._intrinsics_hints: list[CameraHint] = []
        self._pose_hint: CameraHint | None = None
        self._photo_hint = ""
        self._compared: CameraSet | None = None
        self._compared_version = 0
        """The cameras and the version of the scene that were compared last."""
        self._next_at = -math.inf
        self._logged: set[str] = set()

    @property
    def texts(self) -> list[str]:
        """The doubts, one a line."""
        texts = []
        if self._pose_hint is not None:
            texts.append(self._pose_hint.text)
        texts += [hint.text for hint in self._intrinsics_hints]
        if self._photo_hint:
            texts.append(self._photo_hint)
        return texts

    def check_intrinsics(self, cameras: CameraSet) -> None:
        """Check the intrinsics of new cameras."""
        previous = self._cameras
        if previous is None or len(cameras) != len(previous):
            self._pose_hint = None
            self._next_at = -math.inf
        if previous is None or cameras.photos != previous.photos:
            self._photo_hint = ""
        self._cameras = cameras
        self._intrinsics_hints = intrinsics_hints(cameras.Ks, cameras.sizes)
        for hint in self._intrinsics_hints:
            self._log(hint)

    def take_photo_hint(self, text: object) -> None:
        """Keep the hint that the publisher of photographs sent with them.

        Args:
            text: a text, which the publisher has logged itself, or None.
        """
        self._photo_hint = ""
        if isinstance(text, str):
            self._photo_hint = text

    def compare(self, points: np.ndarray, version: int, now: float) -> bool:
        """Check the poses together with a scene; return True if the doubts have changed.

        Args:
            points: (M, 3) centres of some of its Gaussians.
            version: the version of the scene.
            now: time of the loop's turn.
        """
        cameras = self._cameras
        if cameras is None or now < self._next_at:
            return False
        if cameras is self._compared and version == self._compared_version:
            return False
        self._compared = cameras
        self._compared_version = version
        self._next_at = now + _PERIOD_S
        previous = self._pose_hint
        hint = pose_hint(cameras.viewmats, cameras.Ks, cameras.sizes, points)
        self._pose_hint = hint
        if hint is not None:
            self._log(hint)
        return hint != previous

    def _log(self, hint: CameraHint) -> None:
        if hint.name not in self._logged:
            self._logged.add(hint.name)
            log.warning("training cameras: %s", hint.text)
