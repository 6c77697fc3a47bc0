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
"""Between two looks at poses that change, or at another version of the scene."""


class CameraHints:
    """The doubts about one stream of cameras. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self._cameras: CameraSet | None = None
        self._of_intrinsics: list[CameraHint] = []
        self._of_poses: CameraHint | None = None
        self._of_photos = ""
        self._compared: CameraSet | None = None
        self._compared_version = 0
        """The cameras and the version of the scene that were compared last."""
        self._next_at = -math.inf
        self._told: set[str] = set()

    @property
    def texts(self) -> list[str]:
        """The doubts, one a line."""
        poses = [] if self._of_poses is None else [self._of_poses.text]
        photos = [self._of_photos] if self._of_photos else []
        return [*poses, *(hint.text for hint in self._of_intrinsics), *photos]

    def take(self, cameras: CameraSet) -> None:
        """Look at the intrinsics of new cameras."""
        before = self._cameras
        if before is None or len(cameras) != len(before):
            self._of_poses = None
            self._next_at = -math.inf
        if before is None or cameras.photos != before.photos:
            self._of_photos = ""
        self._cameras = cameras
        self._of_intrinsics = intrinsics_hints(cameras.Ks, cameras.sizes)
        for hint in self._of_intrinsics:
            self._log(hint)

    def take_photo_hint(self, text: object) -> None:
        """Note what the publisher of photographs sent with them: a text, which it has logged itself, or None."""
        self._of_photos = text if isinstance(text, str) else ""

    def compare(self, points: np.ndarray, version: int, now: float) -> bool:
        """Look at the poses together with a scene; return whether there is something else to tell.

        Args:
            points: (M, 3) centres of some of its Gaussians.
            version: of the scene.
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
        before = self._of_poses
        self._of_poses = pose_hint(cameras.viewmats, cameras.Ks, cameras.sizes, points)
        if self._of_poses is not None:
            self._log(self._of_poses)
        return self._of_poses != before

    def _log(self, hint: CameraHint) -> None:
        if hint.name not in self._told:
            self._told.add(hint.name)
            log.warning("training cameras: %s", hint.text)
