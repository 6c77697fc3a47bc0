"""Hints about published cameras and photographs that may be wrong, logged once.

The worker thread checks what is in host memory. Values on a GPU are not checked here:
viewers, which have them, check poses and intrinsics themselves.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from splatview_ipc.kinds.camera_hints import intrinsics_hints, pose_hint

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import torch

    from splatview.adapters.photos import CallerPhotos
    from splatview_ipc.kinds.camera_hints import CameraHint
    from splatview_ipc.publisher.publisher import Publisher

_log = logging.getLogger("splatview")

_MIN_PAUSE_S = 0.5
_MAX_PAUSE_S = 30.0
"""Time between two searches for a scene, which may come long after its cameras."""
_POSE_CHECK_PAUSES_S = (10.0, 60.0)
"""Time after a check of poses until the next: the first scene may be random points."""
_MAX_POINTS = 4000
"""Gaussians that a check of poses reads."""
_PERIOD_S = 1.0
"""Time between two checks of new cameras.

A program that maps publishes more cameras with each picture.
"""


@dataclass(frozen=True, slots=True)
class PublishedCameras:
    """Cameras that were published together."""

    viewmats: np.ndarray | None
    Ks: np.ndarray | None
    """None where they lie on a GPU."""
    sizes: np.ndarray
    photos: CallerPhotos | None


class CameraAdvice:
    """The hints about the cameras of one name.

    The trainer's thread calls `take`, the worker thread everything else.
    """

    def __init__(self, publisher: Publisher, name: str) -> None:
        self._publisher = publisher
        self._name = name
        self._newest: PublishedCameras | None = None
        """Replaced, never changed in place."""
        self._is_new = False
        self._logged: set[str] = set()
        """Names of the hints that were logged."""
        self._next_pose_check = math.inf
        self._pause = _MIN_PAUSE_S
        self._pose_checks = 0
        """Checks of these poses together with a scene."""
        self._next_check = -math.inf
        """The time from which on new cameras may be checked."""

    def take(
        self, tensors: dict[str, torch.Tensor], photos: CallerPhotos | None
    ) -> bool:
        """Note published cameras; return whether the worker thread has to check them.

        Args:
            tensors: "viewmats", "Ks" and "sizes", which do not change any more.
            photos: their photographs.
        """
        arrays: dict[str, np.ndarray] = {}
        for name, tensor in tensors.items():
            if tensor.device.type == "cpu":
                arrays[name] = tensor.numpy()
        previous = self._newest
        self._newest = PublishedCameras(
            viewmats=arrays.get("viewmats"),
            Ks=arrays.get("Ks"),
            sizes=arrays["sizes"],
            photos=photos,
        )
        if previous is not None:
            has_same_count = len(previous.sizes) == len(self._newest.sizes)
            if has_same_count and photos is previous.photos:
                # The same cameras, whose poses are being optimised.
                return False
        self._is_new = True
        return True

    def tick(self, now: float) -> float:
        """Check new cameras; return when to be called again."""
        is_new = self._is_new
        if is_new and now < self._next_check:
            return self._next_check
        self._is_new = False
        newest = self._newest
        if newest is None:
            return math.inf
        if is_new:
            self._next_check = now + _PERIOD_S
            self._next_pose_check = -math.inf
            self._pause = _MIN_PAUSE_S
            self._pose_checks = 0
            if newest.Ks is not None:
                self.log_new(intrinsics_hints(newest.Ks, newest.sizes))
            if newest.photos is not None:
                self.log_new(newest.photos.hints())
        if now >= self._next_pose_check:
            self._next_pose_check = now + self._check_poses(newest)
        return self._next_pose_check

    def _check_poses(self, cameras: PublishedCameras) -> float:
        """Compare the cameras with the scene; return the pause until the next check."""
        if cameras.viewmats is None or cameras.Ks is None:
            return math.inf
        points = self._scene_points()
        if points is None:
            pause = self._pause
            self._pause = min(2 * pause, _MAX_PAUSE_S)
            return pause
        hint = pose_hint(cameras.viewmats, cameras.Ks, cameras.sizes, points)
        self._pose_checks += 1
        if hint is not None:
            self.log_new([hint])
            return math.inf
        if self._pose_checks > len(_POSE_CHECK_PAUSES_S):
            return math.inf
        return _POSE_CHECK_PAUSES_S[self._pose_checks - 1]

    def _scene_points(self) -> np.ndarray | None:
        """Return centres of some Gaussians of the run's largest scene in host memory.

        None if there is no such scene.
        """
        largest: torch.Tensor | None = None
        for stream in list(self._publisher.streams.values()):
            newest = stream.newest
            if stream.kind != "gaussians" or newest is None:
                continue
            layout, published = newest
            if layout.device != "cpu":
                continue
            means = layout.frame(published[0])["means"]
            if largest is None or len(means) > len(largest):
                largest = means
        if largest is None or not len(largest):
            return None
        points = largest[:: len(largest) // _MAX_POINTS + 1]
        return points.double().numpy()

    def log_new(self, hints: Iterable[CameraHint]) -> None:
        """Log the hints that were not logged yet."""
        for hint in hints:
            if hint.name not in self._logged:
                self._logged.add(hint.name)
                _log.warning("publish_cameras, %r: %s", self._name, hint.text)
